"""The work behind the requests: each read, those that can be joined forecast together, and every answer written."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from itocast.serve import together
from itocast.serve.answers import encode
from itocast.serve.asked import Asked, frame_of, read
from itocast.serve.limits import Limits, Refused, check
from itocast.serve.registry import Loaded, Registry

log = logging.getLogger("itocast.serve")
MISTAKES = (ValueError, TypeError, ArithmeticError)  # what the library says of a user's mistake


@dataclass(frozen=True)
class Request:
    """A request as it came, and the form in which its answer is wanted."""

    body: bytes
    kind: str
    query: dict[str, str]
    form: str


@dataclass(frozen=True)
class Read:
    """A request that was understood, the model that it is for, and its table if it can be joined."""

    asked: Asked
    model: Loaded
    part: together.Part | None

    @property
    def group(self) -> tuple[Any, ...]:
        """What must be the same for requests to be joined."""
        options = self.asked.options
        return id(self.model), tuple(options.level), tuple(options.quantiles)


class Work:
    """Answers batches of requests; `seen` is told how many rows of requests went into each call of a model."""

    def __init__(self, registry: Registry, limits: Limits, seen: Callable[[int], None]) -> None:
        self.registry, self.limits, self.seen = registry, limits, seen

    def answer(self, requests: list[Request]) -> list[bytes | Refused]:
        """An answer for each request, whatever becomes of the others."""
        out: list[Any] = [attempt(self._read, request) for request in requests]
        groups: dict[Any, list[int]] = {}
        for i, one in enumerate(out):
            if isinstance(one, Read):
                groups.setdefault(one.group if one.part else i, []).append(i)
        for places in groups.values():
            answers = self._forecast([out[i] for i in places], [requests[i].form for i in places])
            for i, answer in zip(places, answers, strict=True):
                out[i] = answer
        return out

    def _read(self, request: Request) -> Read:
        asked = read(request.body, request.kind, request.query, self.limits)
        model = self.registry.find(asked.options.model).loaded
        part = together.part_of(model.forecaster, asked) if model.joins else None
        self._check_size(asked, model)
        return Read(asked, model, part)

    def _check_size(self, asked: Asked, model: Loaded) -> None:
        fitted = model.forecaster.fitted
        columns, data = fitted.preparation.columns, asked.data
        series = len(fitted.context.ids) if data is None else 1
        if data is not None and columns.id in data:
            series = len(set(data[columns.id]))
        rows = series * fitted.preparation.horizon * len(columns.targets) * (asked.options.paths or 1)
        check("forecasts", rows, self.limits.forecasts, "send fewer series, or ask for fewer paths")

    def _forecast(self, reads: list[Read], forms: list[str]) -> list[bytes | Refused]:
        """Together; if that fails, each half by itself, until the one that is at fault is alone."""
        if len(reads) == 1:
            return [attempt(self._alone, reads[0], forms[0])]
        parts = [one.part for one in reads if one.part]
        try:
            with Notes() as notes:
                frames = together.forecast(reads[0].model.forecaster, parts, reads[0].asked.options)
        except MISTAKES:
            half = len(reads) // 2
            return self._forecast(reads[:half], forms[:half]) + self._forecast(reads[half:], forms[half:])
        self.seen(len(reads))
        whole = zip(frames, forms, strict=True)
        return [attempt(self._write, frame, form, reads[0].model, notes.texts) for frame, form in whole]

    def _alone(self, one: Read, form: str) -> bytes:
        options = one.asked.options
        with Notes() as notes:
            frame = one.model.forecaster.predict(
                frame_of(one.asked.data), options.level, options.quantiles, options.paths, frame_of(one.asked.future),
                options.abstain,
            )  # fmt: skip
        self.seen(1)
        return self._write(frame, form, one.model, notes.texts)

    @staticmethod
    def _write(frame: Any, form: str, model: Loaded, notes: list[str]) -> bytes:
        return encode(frame, form, model.name, model.version, notes)


def attempt(step: Callable[..., Any], *arguments: Any) -> Any:
    """What a step gives, or why its request is refused."""
    try:
        return step(*arguments)
    except Refused as refused:
        return refused
    except MISTAKES as error:
        return Refused(422, str(error))
    except Exception:
        log.exception("a request failed")
        return Refused(500, "the server failed on this request; its log says where")


class Notes:
    """What the library warns of inside a block, for the answer."""

    def __enter__(self) -> Notes:
        self._catch = warnings.catch_warnings(record=True)
        self._caught: Any = self._catch.__enter__()
        warnings.simplefilter("always")
        self.texts: list[str] = []
        return self

    def __exit__(self, *error: Any) -> None:
        self._catch.__exit__(*error)
        told = [str(one.message) for one in self._caught if issubclass(one.category, UserWarning)]
        self.texts = list(dict.fromkeys(told))
