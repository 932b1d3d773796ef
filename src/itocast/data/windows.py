"""From columns of numbers to what a model reads: windows, gathered row by row when a batch is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding, one_hot

from itocast.nets import Inputs, Sizes, tame

FAR = 5.0  # normal scores beyond which lags are on a log scale: a new series may be of any size
SPREAD = 1.0  # is added to the spread of a window, in deviations of its series: quiet windows are not blown up


@dataclass(frozen=True)
class Codes:
    """Categories of some columns: numbers from 0 (none or unknown), and how many each column has."""

    values: Tensor  # (rows, columns), int16
    counts: tuple[int, ...]

    def expand(self, rows: Tensor) -> Tensor:
        """One column of 0 and 1 for each category, along a last axis, for some rows; all 0 where it is unknown."""
        codes = self.values[rows].long()
        parts = [one_hot(codes[..., i], count + 1)[..., 1:] for i, count in enumerate(self.counts)]
        return torch.cat(parts, -1).float() if parts else codes.new_empty(*codes.shape[:-1], 0).float()


@dataclass(frozen=True)
class Numbers:
    """A table in the scale of the model, float32, one row for each of its rows."""

    y: Tensor  # (rows, targets): in the table's units, float64, nan where missing
    lags: Tensor  # (rows, targets): the last value seen, made normal over all series: how large a series is shows
    last: Tensor  # (rows, targets): the same in the scale of the targets, each series in its own deviations
    targets: Tensor  # (rows, targets): what is learned, without rounding; nan where missing
    again: Tensor | None  # (rows, targets): the last value seen, in the table's units, if targets often repeat it
    past: Tensor  # (rows, past covariates)
    past_codes: Codes
    gaps: Tensor  # (rows, features): time between rows and age of what was seen, read over the whole window
    clock: Tensor | None  # (rows,): time in steps, float64; None if the time until a step is not a feature
    future: Tensor  # (rows, known covariates)
    calendar: Tensor  # (moments, features): of each time that there is, once
    moment: Tensor  # (rows,): which of them a row has, int32
    moments: Tensor  # (moments,): the instants themselves, int64
    future_codes: Codes
    static: Tensor  # (series, features)
    shift: Tensor  # (series, targets): y = shift + scale · standardised y, float64
    scale: Tensor
    series: Tensor  # (rows,), int32
    starts: Tensor  # (series,): its first row
    labels: dict[str, np.ndarray]  # of each series: its name, and what its static columns say


@dataclass(frozen=True)
class Windows:
    """Forecasts from some origins: a length, and batches by position. Only the rows of a batch are ever copied.

    A window that begins before its series repeats the first row.
    """

    numbers: Numbers
    window: int
    horizon: int
    local: bool  # lags and targets relative to the mean and spread of their window
    origins: Tensor  # (windows,): the last row that each forecast may see

    def __len__(self) -> int:
        return len(self.origins)

    def thin(self, most: int) -> Windows:
        """At most so many of the windows, evenly spaced."""
        if len(self) <= most:
            return self
        return replace(self, origins=self.origins[torch.linspace(0, len(self) - 1, most).round().long()])

    def by_time(self, times: np.ndarray) -> Windows:
        """The same windows, oldest first, whatever their series; `times` are those of the table's rows."""
        order = np.argsort(times[self.origins.numpy()], kind="stable")
        return replace(self, origins=self.origins[torch.from_numpy(order)])

    def last(self, count: int) -> Windows:
        """At most so many of the windows, from the end."""
        return replace(self, origins=self.origins[-count:])

    def every(self, step: int) -> Windows:
        """Every so many-th window of each series, from its first."""
        series = self.numbers.series[self.origins]  # ascending
        place = torch.arange(len(self)) - torch.searchsorted(series, series)
        return self.only((place % step == 0).numpy())

    def only(self, mask: np.ndarray) -> Windows:
        """Some of the windows."""
        return replace(self, origins=self.origins[torch.from_numpy(mask)])

    def chunks(self, size: int) -> Iterator[Windows]:
        """All of them, so many at a time."""
        for origins in self.origins.split(size):
            yield replace(self, origins=origins)

    def steps(self, index: Tensor | slice = slice(None)) -> Tensor:
        """The rows that are forecast, (windows, horizon)."""
        return self.origins[index][:, None] + torch.arange(1, self.horizon + 1)

    def spans(self) -> tuple[Tensor, Tensor]:
        """The instants of the first and of the last step of each forecast, each (windows,)."""
        n = self.numbers
        return n.moments[n.moment[self.origins + 1]], n.moments[n.moment[self.origins + self.horizon]]

    def actuals(self) -> Tensor:
        """What happened, in the table's units, (windows, horizon, targets), float64, nan where it is missing."""
        return self.numbers.y[self.steps()]

    @property
    def sizes(self) -> Sizes:
        """What a model must know."""
        n = self.numbers
        ahead = n.future.shape[1] + n.calendar.shape[1] + sum(n.future_codes.counts) + (n.clock is not None)
        known = self.window * n.gaps.shape[1] + self.horizon * ahead + sum(n.past_codes.counts) + n.static.shape[1]
        known += own_columns(self.window, self.local) * n.lags.shape[1]
        own = 1 + n.future.shape[1] + n.calendar.shape[1] if n.clock is not None and self.horizon > 1 else 0
        return Sizes(
            self.window, n.lags.shape[1], n.past.shape[1], known, self.horizon, len(self), repeats=n.again is not None,
            before=self.window * n.gaps.shape[1], ahead=own,
        )  # fmt: skip

    def back(self, index: Tensor | slice) -> Tensor:
        """The rows of each window, oldest first, (windows, window)."""
        origin = self.origins[index]
        first = self.numbers.starts[self.numbers.series[origin]]
        return torch.maximum(origin[:, None] + torch.arange(1 - self.window, 1), first[:, None])

    def levels(self, index: Tensor | slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Mean and spread of the targets in each window, in the scale of the targets, (windows, 1, targets)."""
        return _level(self.numbers.last[self.back(index)])

    def batch(self, index: Tensor | slice) -> tuple[Inputs, Tensor]:
        """What the model reads, and the targets (rows, horizon, targets) in the scale of the model, nan if missing."""
        n, origin, back, ahead = self.numbers, self.origins[index], self.back(index), self.steps(index)
        known = [
            n.gaps[back].flatten(1), *self._until(origin, ahead),
            torch.cat([n.future[ahead], n.calendar[n.moment[ahead]]], -1).flatten(1),
            n.future_codes.expand(ahead).flatten(1), n.past_codes.expand(origin), n.static[n.series[origin]],
        ]  # fmt: skip
        lags, anchor, targets = n.lags[back], n.last[origin][:, None, :], n.targets[ahead]
        if self.local:
            last = n.last[back]
            centre, spread = _level(last)
            known += [centre.flatten(1), spread.log().flatten(1), lags.flatten(1)]
            lags, anchor, targets = ((part - centre) / spread for part in (last, anchor, targets))
        anchor = anchor.expand(-1, self.horizon, -1)
        return Inputs(lags, embedding(back, n.past), torch.cat(known, 1), anchor), targets

    def _until(self, origin: Tensor, ahead: Tensor) -> list[Tensor]:
        """How much later than usual each step is, where that varies."""
        clock = self.numbers.clock
        if clock is None:
            return []
        return [squash(clock[ahead] - clock[origin][:, None] - torch.arange(1, self.horizon + 1))]


def own_columns(window: int, local: bool) -> int:
    """How many of the last columns of what is known each target has: level and spread of its window, and its lags."""
    return (2 + window) * local


def _level(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and spread over the window of values (windows, window, targets), each (windows, 1, targets)."""
    values = values.mT.contiguous()
    mean = values.mean(-1, keepdim=True)
    spread = ((values - mean).square().mean(-1, keepdim=True) + SPREAD**2).sqrt()
    return mean.mT, spread.mT


def origins(
    starts: np.ndarray, times: np.ndarray, observed: np.ndarray, window: int, horizon: int, after: int | None,
    until: int | None,
) -> np.ndarray:  # fmt: skip
    """The rows from which a forecast can be made and checked, its targets after one instant and up to another.

    A series of window + horizon rows or more gives whole windows; a shorter one all that it has. At least one target
    must have been observed before, and one after. `observed` says so for each row.
    """
    lengths, first = np.diff(starts), starts[:-1]
    begin = first + np.maximum(np.minimum(window, lengths - horizon), 1) - 1
    counts = np.maximum(starts[1:] - horizon - begin, 0)  # origins of each series
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    row = np.repeat(begin, counts) + place
    seen = np.append(0, np.cumsum(observed, dtype=np.int32))
    good = (seen[row + 1] > np.repeat(seen[first], counts)) & (seen[row + horizon + 1] > seen[row + 1])
    if after is not None:
        good &= times[row + 1] > after
    if until is not None:
        good &= times[row + horizon] <= until
    return row[good]


def squash(elapsed: Tensor) -> Tensor:
    """Steps too many or too few, on a scale on which years and minutes are both small numbers, float32."""
    return tame(elapsed, end=0.0).float()
