"""From a table to what a model reads: the split in time, the scaling, and windows that are views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from itocast.data.scaling import SCALERS, Scaler
from itocast.data.table import Table
from itocast.forecast import Forecast
from itocast.nets import Inputs, Sizes

SCALINGS = {
    "quantile": {"lags": "quantile", "past": "standard", "targets": "standard"},
    "rank": {"lags": "quantile", "past": "standard", "targets": "quantile"},
    "minmax": {"lags": "minmax", "past": "minmax", "targets": "minmax"},
}


class Split(NamedTuple):
    """Row ranges of the three parts, one after the other in time."""

    train: range
    validation: range
    test: range


def split(rows: int, train: float = 0.6, validation: float = 0.2) -> Split:
    """Cut rows into training, validation and test part in the order of time.

    >>> split(10)
    Split(train=range(0, 6), validation=range(6, 8), test=range(8, 10))
    """
    if not isinstance(rows, int):
        raise TypeError(f"rows is a {type(rows).__name__}: expected how many there are, such as len(table)")
    if not (train > 0 and validation >= 0 and train + validation <= 1):
        raise ValueError(f"train={train}, validation={validation}: expected shares that sum to at most 1")
    first, second = round(rows * train), round(rows * (train + validation))
    return Split(range(0, first), range(first, second), range(second, rows))


class Windows:
    """The windows of a table whose targets lie in one part: a length, and batches by position.

    Nothing is copied but the rows of the batch that is asked for.
    """

    def __init__(self, columns: dict[str, Tensor], sizes: Sizes, part: range) -> None:
        lags, past, targets = columns["lags"], columns["past"], columns["targets"]  # (all rows, columns)
        first = max(part.start, sizes.window)  # the first target row that has a whole window before it
        count = part.stop - first - sizes.horizon + 1
        if count < 1:
            raise ValueError(
                f"rows {part.start} to {part.stop} hold no window: window={sizes.window} and horizon={sizes.horizon} "
                f"need {sizes.window + sizes.horizon} rows; use a smaller window or horizon, or more rows"
            )
        self.sizes = sizes
        self.rows = range(first, first + count)  # of the first target of each window
        begin = first - sizes.window
        self._lags = lags[begin:].unfold(0, sizes.window, 1)[:count]  # (count, targets, window), a view
        self._past = past[begin:].unfold(0, sizes.window, 1)[:count]
        self._last = targets[first - 1 :][:count]
        self._y = targets[first:].unfold(0, sizes.horizon, 1)[:count]

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, index: Tensor | slice) -> tuple[Inputs, Tensor]:
        """What the model reads, and the targets (rows, horizon, targets) in the scale of the model."""
        lags, past = self._lags[index].movedim(1, 2), self._past[index].movedim(1, 2)
        last = self._last[index]
        anchor = last[:, None, :].expand(-1, self.sizes.horizon, -1)
        return Inputs(lags, past, lags.new_empty(len(lags), 0), anchor), self._y[index].movedim(1, 2)


class Preparation:
    """All that turns a table into windows and a law back into the table's units, fitted on the training part."""

    def __init__(
        self, targets: Sequence[str], covariates: Sequence[str], window: int, horizon: int, scaling: str,
        scalers: dict[str, Scaler],
    ) -> None:  # fmt: skip
        self.targets, self.covariates = tuple(targets), tuple(covariates)
        self.window, self.horizon, self.scaling, self.scalers = window, horizon, scaling, scalers

    @classmethod
    def fit(
        cls, table: Table, train: range, window: int = 5, horizon: int = 1,
        scaling: Literal["quantile", "rank", "minmax"] = "quantile",
    ) -> Self:  # fmt: skip
        """Fit the scalers on the rows in `train`, and on nothing else.

        "quantile" makes lags normal through their ranks and standardises covariates and targets; "rank" makes targets
        normal through their ranks too, so that laws cannot be Gaussian in the table's units; "minmax" brings all to
        [0, 1] as in the paper.
        """
        for name, value in (("window", window), ("horizon", horizon)):
            if value < 1:
                raise ValueError(f"{name}={value}: expected a whole number of rows, at least 1")
        if scaling not in SCALINGS:
            raise ValueError(f"scaling={scaling!r}: expected one of {', '.join(SCALINGS)}")
        if len(train) < 2:
            raise ValueError(f"train holds {len(train)} rows: scalers need at least 2")
        rows = slice(train.start, train.stop)
        y, past = table.values(table.targets)[rows], table.values(table.covariates)[rows]
        values = {"lags": y, "past": past, "targets": y}
        scalers = {name: SCALERS[kind].fit(values[name]) for name, kind in SCALINGS[scaling].items()}
        return cls(table.targets, table.covariates, window, horizon, scaling, scalers)

    @property
    def sizes(self) -> Sizes:
        """What a model must know."""
        return Sizes(self.window, len(self.targets), len(self.covariates), 0, self.horizon)

    def windows(self, table: Table, part: range) -> Windows:
        """The windows whose targets are in a part of the table; lags may reach back before it."""
        if part.step != 1 or part.start < 0 or part.stop > len(table):
            raise ValueError(f"part={part}: expected rows of the table, range(0, {len(table)}) or a part of it")
        return Windows(self._columns(table), self.sizes, part)

    def _columns(self, table: Table) -> dict[str, Tensor]:
        """The scaled columns of the whole table, float32."""
        for argument in ("targets", "covariates"):
            wanted, there = getattr(self, argument), getattr(table, argument)
            if missing := set(wanted) - set(there):
                raise ValueError(f"table has no {min(missing)!r} in {argument}: read it with {argument}={list(wanted)}")
        y, past = table.values(self.targets), table.values(self.covariates)
        values = {"lags": y, "past": past, "targets": y}
        scaled = {name: scaler.transform(values[name]).astype(np.float32) for name, scaler in self.scalers.items()}
        return {name: torch.from_numpy(part) for name, part in scaled.items()}

    def latest(self, table: Table) -> Inputs:
        """What a model reads at the end of the table, to forecast the rows that will follow it: one row of Inputs."""
        if len(table) < self.window:
            raise ValueError(f"table has {len(table)} rows: expected at least the window, {self.window}")
        columns = self._columns(table)
        lags, past = (columns[name][-self.window :][None] for name in ("lags", "past"))
        return Inputs(lags, past, lags.new_empty(1, 0), columns["targets"][-1:].expand(1, self.horizon, -1))

    def unscale(self, law: Forecast) -> Forecast:
        """A model's law in the units of the table."""
        return self.scalers["targets"].unscale(law)

    def actuals(self, table: Table, windows: Windows) -> Tensor:
        """The true targets of some windows in the units of the table, (rows, horizon, targets), float64."""
        y = torch.from_numpy(table.values(self.targets))[windows.rows.start :]
        return y.unfold(0, self.horizon, 1)[: len(windows)].movedim(1, 2)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        scalers = {name: scaler.to_dict() for name, scaler in self.scalers.items()}
        return {
            "targets": list(self.targets), "covariates": list(self.covariates), "window": self.window,
            "horizon": self.horizon, "scaling": self.scaling, "scalers": scalers,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """From what `to_dict` gave."""
        kinds = SCALINGS[data["scaling"]]
        scalers = {name: SCALERS[kinds[name]](**values) for name, values in data["scalers"].items()}
        return cls(**{**data, "scalers": scalers})
