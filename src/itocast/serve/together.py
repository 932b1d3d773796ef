"""Forecasts of several requests by one call of the model, equal to those of each alone to the last digit.

The tables become one, whose series carry the number of their request. Only what is sure to be read alike is joined:
plain numbers, text, and times written as in 2024-12-31 23:59; everything else is forecast by itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from itocast.data import frames
from itocast.data.table import objects
from itocast.forecaster import Forecaster
from itocast.models import DeepGP
from itocast.serve.asked import Asked, Options

MOST_ROWS = 2000  # of a table that is joined: a larger one keeps the model busy by itself
SERIES = " series"
DATE = re.compile(
    r"(1[7-9]|2[01])\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])([T ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?)?"
)


@dataclass(frozen=True)
class Label:
    """The name of a series, which is that of its request alone."""

    request: int
    name: Any

    def __str__(self) -> str:
        return str(self.name)


@dataclass(frozen=True)
class Part:
    """A table that can be joined: its columns as arrays, the names of its series, and each row's number among them."""

    columns: dict[str, np.ndarray]
    names: list[Any]
    codes: np.ndarray


def joins(forecaster: Forecaster) -> bool:
    """Whether rows of a model can be forecast together without a change of digits.

    Recurrent networks and the deep GP round by how many rows there are; where times are irregular, time is counted
    from the first of the table.
    """
    if forecaster.fitted.net is None:
        return not forecaster.fitted.preparation.irregular
    model = forecaster.fitted.net.model
    rounds = isinstance(model, DeepGP) or any(isinstance(part, nn.RNNBase) for part in model.modules())
    return not rounds and not forecaster.fitted.preparation.irregular


def part_of(forecaster: Forecaster, asked: Asked) -> Part | None:
    """The table of a request, if it can be joined with others."""
    options = asked.options
    if asked.data is None or asked.future is not None or asked.rows > MOST_ROWS or options.paths or options.abstain:
        return None
    preparation, data = forecaster.fitted.preparation, asked.data
    wanted, clock = preparation.columns, preparation.clock
    needed = [*wanted.targets, *wanted.covariates, *(name for name in (wanted.id, wanted.time) if name)]
    if SERIES in needed or not all(name in data for name in needed):
        return None
    cells: dict[str, list[Any]] = {name: list(data[name]) for name in needed}
    out = {}
    for name in (*wanted.targets, *wanted.covariates):
        column = _texts(cells[name]) if name in preparation.categories else _numbers(cells[name])
        if column is None:
            return None
        out[name] = column
    if wanted.time:
        times = (_dates if clock.dates else _instants)(cells[wanted.time])
        if times is None or clock.zone:
            return None
        out[wanted.time] = times
    labels = cells[wanted.id] if wanted.id else [""] * asked.rows
    if {*map(type, labels)} not in ({str}, {int}):
        return None
    codes = {label: code for code, label in enumerate(dict.fromkeys(labels))}
    return Part(out, list(codes), np.array([codes[label] for label in labels]))


def forecast(forecaster: Forecaster, parts: list[Part], options: Options) -> list[pd.DataFrame]:
    """The forecasts of several tables of which the same is asked."""
    wanted = forecaster.fitted.preparation.columns
    starts = np.cumsum([0, *(len(part.names) for part in parts)])
    joined = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    joined[SERIES] = np.concatenate([part.codes + start for part, start in zip(parts, starts, strict=False)])
    labels = objects([Label(i, name) for i, part in enumerate(parts) for name in part.names])
    columns = forecaster.predict_joined(pd.DataFrame(joined), SERIES, labels, options.level, options.quantiles)
    names = columns.pop(SERIES)
    if wanted.id:
        columns = {wanted.id: objects([label.name for label in names])} | columns
    frame = frames.build(columns, "pandas", forecaster.fitted.preparation.clock, (wanted.time or "ds",))
    ends = starts * (len(frame) // starts[-1])
    return [frame.iloc[begin:end] for begin, end in pairwise(ends)]


def _numbers(cells: list[Any]) -> np.ndarray | None:
    if {*map(type, cells)} <= {int, float, type(None)}:
        try:
            return np.array(cells, np.float64)
        except OverflowError:
            return None
    return None


def _texts(cells: list[Any]) -> np.ndarray | None:
    return objects(cells) if {*map(type, cells)} <= {str, type(None)} else None


def _dates(cells: list[Any]) -> np.ndarray | None:
    if {*map(type, cells)} != {str} or not all(map(DATE.fullmatch, cells)):
        return None
    try:
        return np.array(cells, "datetime64[us]")
    except ValueError:  # such as the 30th of February
        return None


def _instants(cells: list[Any]) -> np.ndarray | None:
    whole = {*map(type, cells)} == {int} and max(map(abs, cells)) <= 2**53
    return np.array(cells, np.int64) if whole else None
