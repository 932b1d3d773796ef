"""Settings of a run in one place: what a TOML file may hold, and what options on the command line replace."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from itocast.data.preparation import Data
from itocast.forecaster import Forecaster
from itocast.models import MODELS, Model
from itocast.nets import Sizes
from itocast.settings import Settings


def model_from(settings: dict[str, Any]) -> str | Callable[..., Model]:
    """What a Forecaster takes as its model: a name, or what makes the network of some settings, checked by making one.

    Settings without a kind are those of SDE-HNN, alone.

    >>> model_from({"kind": "deep_ensemble", "members": 3})(Sizes(5, 1, 0, 0, 1), seed=0).paths
    3
    """
    chosen = dict(settings)
    kind = chosen.pop("kind", "sde_hnn" if chosen else "auto")
    if kind in ("auto", "prior"):
        if chosen:
            raise ValueError(f"model.{next(iter(chosen))} with model.kind={kind!r}: expected the kind of a network")
        return str(kind)
    if kind not in MODELS:
        raise ValueError(f"model.kind={kind!r}: expected one of auto, prior, {', '.join(MODELS)}")
    known = [name for name in signature(MODELS[kind]).parameters if name not in ("sizes", "seed")]
    for name, value in chosen.items():
        if name not in known:
            raise ValueError(f"model.{name}={value!r}: {kind} has no such setting; expected one of {', '.join(known)}")
    build = partial(MODELS[kind], **chosen)
    build(Sizes(1, 1, 0, 0, 1))
    return build


class Config(Settings):
    """Everything that `itocast fit` can be told; names are those of `Forecaster` and its `fit`."""

    horizon: int = Field(1, ge=1)
    window: int | None = None
    effort: str = "balanced"
    support: str = "auto"
    calibration: str | None = "auto"
    calibration_by: str | None = "auto"
    seed: int = 0
    target: str | list[str] = "y"
    time: str | None = "ds"
    id: str | None = "unique_id"
    past: tuple[str, ...] = ()
    future: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    data: Data = Data()
    model: dict[str, Any] = Field({}, description="kind, a name in MODELS, and settings of that model")
    training: dict[str, Any] = Field({}, description="settings of Training that replace those suited to the data")

    @field_validator("time", "id")
    @classmethod
    def _none(cls, name: str | None) -> str | None:
        """TOML and options cannot say None: an empty name does."""
        return name or None

    @classmethod
    def read(cls, path: Path | None, options: dict[str, Any]) -> Config:
        """A file's settings, replaced by options that are given; `data.freq` is the option freq of the table data."""
        values: dict[str, Any] = {}
        if path is not None:
            if not path.is_file():
                raise FileNotFoundError(f"config={str(path)!r}: there is no such file")
            try:
                values = tomllib.loads(path.read_text())
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise ValueError(f"config={str(path)!r} is not TOML: {error}") from None
        for name, value in options.items():
            if value is None:
                continue
            *parents, last = name.split(".")
            inner = values
            for parent in parents:
                inner = inner.setdefault(parent, {})
            inner[last] = value
        try:
            return cls(**values)
        except ValueError as error:
            raise ValueError(f"config={str(path)!r}: {error}" if path else str(error)) from None

    def text(self) -> str:
        """The text of a file from which `read` gives the same settings; those that are defaults are left out.

        >>> print(Config(horizon=24, time=None, model={"encoder": {"hidden": 128}}).text())
        horizon = 24
        time = ""
        <BLANKLINE>
        [model.encoder]
        hidden = 128
        <BLANKLINE>
        """
        values = self.model_dump(mode="json", exclude_defaults=True)
        values |= {name: "" for name in ("time", "id") if getattr(self, name) is None}
        values |= {name: "none" for name in ("calibration", "calibration_by") if getattr(self, name) is None}
        return toml(values).lstrip("\n")

    def forecaster(self) -> Forecaster:
        """A forecaster of these settings."""
        return Forecaster(
            self.horizon, window=self.window, effort=self.effort, support=self.support,  # type: ignore[arg-type]
            data=self.data, model=model_from(self.model), training=self.training,
            calibration=None if self.calibration == "none" else self.calibration,
            calibration_by=None if self.calibration_by == "none" else self.calibration_by, seed=self.seed,
        )  # fmt: skip

    def columns(self) -> dict[str, Any]:
        """The arguments of `Forecaster.fit` that say which column is what."""
        return {name: getattr(self, name) for name in ("target", "time", "id", "past", "future", "static")}


def toml(values: dict[str, Any], table: str = "") -> str:
    """A table of TOML and those inside it; a word or list of JSON is one of TOML too."""
    plain = {name: value for name, value in values.items() if not isinstance(value, dict)}
    for name, value in plain.items():
        if value is None:
            raise ValueError(f"{table}{name}=None: a settings file cannot hold it; give it a value, or leave it out")
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in plain.items()]
    head = f"\n[{table[:-1]}]\n" if table and plain else ""
    inner = [toml(value, f"{table}{name}.") for name, value in values.items() if isinstance(value, dict)]
    return "".join([head, *lines, *inner]).replace("\x7f", "\\u007f")
