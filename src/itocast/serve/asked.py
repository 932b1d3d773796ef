"""What a request asks for: options and tables, from JSON or CSV."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pydantic import Field, field_validator
from pydantic_core import from_json

from itocast.data.columns import open_frame
from itocast.serve.limits import Limits, Refused, check
from itocast.settings import Settings

Columns = dict[str, list[Any]]
PLAIN = {int, float, str, bool, type(None)}  # what a cell of a table may be


class Options(Settings):
    """What may be asked for beside the tables; see `Forecaster.predict`."""

    model: str | None = Field(None, description="Name of the model; may be left out if there is one.")
    level: list[float] = Field([80, 95], description="Central intervals in percent, from 1 to below 100.")
    quantiles: list[float] = Field([], description="Probabilities above 0 and below 1.")
    paths: int | None = Field(None, ge=1, description="So many sampled courses instead of bounds.")
    abstain: float | None = Field(None, gt=0, lt=1, description="Mark about so large a share of forecasts.")

    @field_validator("level", "quantiles", mode="before")
    @classmethod
    def _list(cls, value: Any) -> Any:
        """One number, or text with commas, will do."""
        if isinstance(value, str):
            return [word for word in value.split(",") if word.strip()]
        return [value] if isinstance(value, int | float) and not isinstance(value, bool) else value

    @field_validator("level", "quantiles")
    @classmethod
    def _numbers(cls, value: list[float]) -> list[float]:
        if not all(map(math.isfinite, value)):
            raise ValueError("level and quantiles: expected finite numbers")
        return value


@dataclass(frozen=True)
class Asked:
    """One request, read: columns of cells (JSON), a frame (CSV), or nothing, and the same for what is known ahead."""

    options: Options
    data: Columns | pd.DataFrame | None
    future: Columns | None = None

    @property
    def rows(self) -> int:
        """How many rows the table to forecast from has."""
        return 0 if self.data is None else _length(self.data)


def read(body: bytes, kind: str, query: Mapping[str, str], limits: Limits, needed: bool = False) -> Asked:
    """A request of one of the two kinds; its options stand in the query, those of JSON also in the body."""
    asked = _read_csv(body, query) if kind == "text/csv" else _read_json(body, query)
    if needed and asked.data is None:
        raise Refused(422, "data is missing: send the rows that happened")
    options = asked.options
    rows = asked.rows + (0 if asked.future is None else _length(asked.future))
    check("rows", rows, limits.rows, "send the newest rows of each series")
    check("level and quantiles", len(options.level) + len(options.quantiles), limits.levels, "ask for fewer")
    return asked


def _read_csv(body: bytes, query: Mapping[str, str]) -> Asked:
    options = Options(**query)
    return Asked(options, open_frame(io.BytesIO(body)).to_native() if body.strip() else None)


def _read_json(body: bytes, query: Mapping[str, str]) -> Asked:
    try:
        content = from_json(body or b"{}", allow_inf_nan=False)
    except ValueError as error:
        raise Refused(422, f"the body is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise Refused(422, f"the body is {_named(content)}: expected an object with data, level and so on")
    data, future = (_table(name, content.pop(name, None)) for name in ("data", "future"))
    twice = sorted(set(content) & set(query))
    if twice:
        raise Refused(422, f"{', '.join(twice)}: given in the body and in the address; give it once")
    return Asked(Options(**query, **content), data, future)


def _table(name: str, value: Any) -> Columns | None:
    """Columns of a table that came as an object of lists, or as a list of objects."""
    if value is None:
        return None
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        names = list(dict.fromkeys(key for row in value for key in row))
        value = {key: [row.get(key) for row in value] for key in names}
    if not isinstance(value, dict) or not all(isinstance(column, list) for column in value.values()):
        raise Refused(422, f"{name} is {_named(value)}: expected an object of lists, or a list of objects")
    lengths = {key: len(column) for key, column in value.items()}
    if len(set(lengths.values())) > 1:
        raise Refused(422, f"{name} has columns of different length: {_few(lengths)}")
    if not lengths or not max(lengths.values()):
        raise Refused(422, f"{name} holds no rows: leave it out, or send a table with at least one")
    for key, column in value.items():
        other = set(map(type, column)) - PLAIN
        if other:
            names = " and ".join(sorted(_named(kind()) for kind in other))
            raise Refused(422, f"{name}: column {key!r} holds {names}: expected numbers, text or null")
    return value


def frame_of(table: Columns | pd.DataFrame | None) -> pd.DataFrame | None:
    """A table as the library takes it."""
    return pd.DataFrame(table) if isinstance(table, dict) else table


def _length(table: Columns | pd.DataFrame) -> int:
    return len(next(iter(table.values()))) if isinstance(table, dict) else len(table)


def _few(lengths: dict[str, int]) -> str:
    shown = [f"{name!r} has {count:,}" for name, count in list(lengths.items())[:5]]
    return ", ".join(shown) + (", …" if len(lengths) > 5 else "")


def _named(value: Any) -> str:
    """What a value of JSON is called."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
