"""From columns of numbers to what a model reads: windows, gathered row by row when a batch is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding, one_hot

from itocast.data.holdout import Cut
from itocast.nets import Inputs, Sizes, tame

FAR = 5.0  # normal scores beyond which lags are on a log scale: a new series may be of any size
WIDEST = 1.0  # the most that is added to the spread of a window, in deviations of its series
NARROWEST = 0.1  # the least: quiet windows are not blown up


CHUNK = 4096  # windows that are gathered at once


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
    rounding: Tensor  # (series, targets): the step between values, in the table's units; 0 where there is none
    series: Tensor  # (rows,), int32
    starts: Tensor  # (series,): its first row
    low: Tensor  # (series, targets): the least level of a window that training saw, in the scale of the targets
    high: Tensor  # the largest: what the level tells is shown inside this range alone
    labels: dict[str, np.ndarray]  # of each series: its name, and what its static columns say


@dataclass(frozen=True)
class Windows:
    """Forecasts from some origins: a length, and batches by position. Only the rows of a batch are ever copied.

    A window that begins before its series repeats the first row.
    """

    numbers: Numbers
    window: int
    horizon: int
    local: bool  # instance normalisation: lags and targets relative to the mean and spread of their window
    floor: float  # is added to that spread, in deviations of the series
    echoes: tuple[int, ...]  # how many rows before each step a season ago was, for seasons beyond the window
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

    def made(self) -> Tensor:
        """The instant at which each forecast is made, (windows,)."""
        return self.numbers.moments[self.numbers.moment[self.origins]]

    def cut(self, before: Tensor) -> Cut:
        """An instant in each series between the forecasts of a mask and its later ones."""
        made, series = self.made(), self.numbers.series[self.origins].long()
        count = len(self.numbers.starts)
        first = torch.full((count,), torch.iinfo(torch.int64).max).scatter_reduce(0, series, made, "amin")
        last = torch.full((count,), torch.iinfo(torch.int64).min)
        last = last.scatter_reduce(0, series[before], made[before], "amax")
        there = torch.bincount(series, minlength=count) > 0
        instants = torch.maximum(last[there], first[there] - 1)
        return Cut.of_labels(self.numbers.labels["series"][there.numpy()], instants)

    def around(self) -> tuple[Cut, Cut]:
        """Just before the first outcome of the forecasts in each series, and the last of their outcomes."""
        (begin, end), series = self.spans(), self.numbers.series[self.origins].long()
        count = len(self.numbers.starts)
        first = torch.full((count,), torch.iinfo(torch.int64).max).scatter_reduce(0, series, begin, "amin")
        last = torch.full((count,), torch.iinfo(torch.int64).min).scatter_reduce(0, series, end, "amax")
        there = torch.bincount(series, minlength=count) > 0
        labels = self.numbers.labels["series"][there.numpy()]
        return Cut.of_labels(labels, first[there] - 1), Cut.of_labels(labels, last[there])

    def beside(self, part: Tensor) -> Tensor:
        """A mask of the forecasts that share no outcome with those of a part, nor with any made between these."""
        rows, series = self.origins, self.numbers.series[self.origins].long()
        far = torch.full((len(self.numbers.starts),), torch.iinfo(torch.int64).max // 2)
        first = far.scatter_reduce(0, series[part], rows[part], "amin")[series]
        last = (-far).scatter_reduce(0, series[part], rows[part], "amax")[series]
        earlier = rows < first
        before = (-far).scatter_reduce(0, series[earlier], rows[earlier], "amax")[series]
        return (rows + self.horizon <= before + 1) | (rows >= last + self.horizon)

    def instants(self, cut: Cut) -> Tensor:
        """The instant of a cut in the series of each forecast, (windows,)."""
        series, place = self.numbers.series[self.origins].unique(return_inverse=True)
        return torch.from_numpy(cut.at(self.numbers.labels["series"][series.numpy()]))[place]

    def history(self, length: int) -> Tensor:
        """What was observed up to each origin, (windows, length, targets), oldest first.

        It is in the table's units, and nan where it is missing or before the series.
        """
        first = self.numbers.starts[self.numbers.series[self.origins]][:, None]
        rows = self.origins[:, None] + torch.arange(1 - length, 1)
        values = self.numbers.y[rows.clamp(min=0)]
        return torch.where((rows >= first)[..., None], values, torch.nan)

    def independent_of_series(self) -> Tensor:
        """How many forecasts of each series do not overlap, (series,), float64."""
        series = self.numbers.series[self.origins].long()
        counts = torch.bincount(series, minlength=len(self.numbers.starts))
        rows = self.origins
        first = torch.full_like(counts, torch.iinfo(torch.int64).max).scatter_reduce(0, series, rows, "amin")
        last = torch.zeros_like(counts).scatter_reduce(0, series, rows, "amax")
        apart = (last - first) / self.horizon + 1
        return torch.where(counts > 0, torch.minimum(counts, apart), 0.0).double()

    def independent(self) -> float:
        """How many of the forecasts are independent: those of one series that do not overlap."""
        return float(self.independent_of_series().sum())

    def actuals(self) -> Tensor:
        """What happened, in the table's units, (windows, horizon, targets), float64, nan where it is missing."""
        return self.numbers.y[self.steps()]

    @property
    def targets(self) -> int:
        """How many columns are forecast."""
        return self.numbers.y.shape[1]

    @property
    def longest(self) -> int:
        """The rows of the longest history."""
        first = self.numbers.starts[self.numbers.series[self.origins]]
        return int((self.origins - first).max()) + 1

    @property
    def sizes(self) -> Sizes:
        """What a model must know."""
        n = self.numbers
        ahead = n.future.shape[1] + n.calendar.shape[1] + sum(n.future_codes.counts) + (n.clock is not None)
        known = self.window * n.gaps.shape[1] + self.horizon * ahead + sum(n.past_codes.counts) + n.static.shape[1]
        known += self.own * n.lags.shape[1]
        own = 1 + n.future.shape[1] + n.calendar.shape[1] if n.clock is not None and self.horizon > 1 else 0
        return Sizes(
            self.window, n.lags.shape[1], n.past.shape[1], known, self.horizon, len(self), repeats=n.again is not None,
            before=self.window * n.gaps.shape[1], ahead=own,
        )  # fmt: skip

    @property
    def own(self) -> int:
        """How many of the last columns of what is known each target has."""
        return own_columns(self.window, self.horizon, self.local, len(self.echoes))

    def back(self, index: Tensor | slice) -> Tensor:
        """The rows of each window, oldest first, (windows, window)."""
        origin = self.origins[index]
        first = self.numbers.starts[self.numbers.series[origin]]
        return torch.maximum(origin[:, None] + torch.arange(1 - self.window, 1), first[:, None])

    def levels(self, index: Tensor | slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Mean and spread of the targets in each window, in the scale of the targets, (windows, 1, targets)."""
        return _level(self.numbers.last[self.back(index)], self.floor)

    def batch(self, index: Tensor | slice, closed: Tensor | None = None) -> tuple[Inputs, Tensor]:
        """What the model reads, and the targets (rows, horizon, targets) in the scale of the model, nan if missing.

        Where a window is `closed`, or its level is outside the range that training saw, its level is not shown.
        """
        n, origin, back, ahead = self.numbers, self.origins[index], self.back(index), self.steps(index)
        known = [
            n.gaps[back].flatten(1), *self._until(origin, ahead),
            torch.cat([n.future[ahead], n.calendar[n.moment[ahead]]], -1).flatten(1),
            n.future_codes.expand(ahead).flatten(1), n.past_codes.expand(origin), n.static[n.series[origin]],
        ]  # fmt: skip
        lags, anchor, targets = n.lags[back], n.last[origin][:, None, :], n.targets[ahead]
        if self.local:
            last = n.last[back]
            centre, spread = _level(last, self.floor)
            for echo in self.echoes:
                known += self._echo(echo, origin, ahead, centre, spread)
            shown = self._shown(origin, centre, closed)
            parts = (torch.ones_like(centre), centre, spread.log(), lags)
            known += [(shown * part).flatten(1) for part in parts]
            lags, anchor, targets = ((part - centre) / spread for part in (last, anchor, targets))
        anchor = anchor.expand(-1, self.horizon, -1)
        return Inputs(lags, embedding(back, n.past), torch.cat(known, 1), anchor), targets

    def _echo(self, echo: int, origin: Tensor, ahead: Tensor, centre: Tensor, spread: Tensor) -> list[Tensor]:
        """What each step was a season ago, relative to the window, and whether it was seen; else 0."""
        first = self.numbers.starts[self.numbers.series[origin]]
        seen = (origin + 1 - echo >= first)[:, None, None].float()
        values = self.numbers.last[(ahead - echo).clamp(min=0)]  # (windows, horizon, targets)
        relative = tame((values - centre) / spread, FAR)
        return [(seen * relative).flatten(1), seen.expand_as(centre).flatten(1)]

    def _shown(self, origin: Tensor, centre: Tensor, closed: Tensor | None) -> Tensor:
        """1 where the level of a window is shown to the model, else 0, (windows, 1, targets)."""
        series = self.numbers.series[origin]
        low, high = self.numbers.low[series][:, None], self.numbers.high[series][:, None]
        shown = (centre >= low) & (centre <= high)
        return (shown if closed is None else shown & ~closed[:, None, None]).float()

    def ranges(self) -> tuple[Tensor, Tensor, float]:
        """The range of the windows' levels in each series, (series, targets), and the usual spread inside a window."""
        n = self.numbers
        low = torch.full((len(n.starts), n.lags.shape[1]), torch.inf)
        high, spreads = -low, []
        for part in self.chunks(CHUNK):
            centre, spread = _level(n.last[part.back(slice(None))], 0.0)
            series = n.series[part.origins].long()[:, None].expand(-1, low.shape[1])
            low = low.scatter_reduce(0, series, centre[:, 0], "amin")
            high = high.scatter_reduce(0, series, centre[:, 0], "amax")
            spreads.append(spread.flatten())
        return low, high, float(torch.cat(spreads).median())

    def _until(self, origin: Tensor, ahead: Tensor) -> list[Tensor]:
        """How much later than usual each step is, where that varies."""
        clock = self.numbers.clock
        if clock is None:
            return []
        return [squash(clock[ahead] - clock[origin][:, None] - torch.arange(1, self.horizon + 1))]


@dataclass(frozen=True)
class Masked:
    """Windows to learn from, and copies of some of them whose level is not shown.

    So a model learns to forecast from the shape of a window alone: what it does where a level is new.
    """

    windows: Windows
    copies: Tensor  # (copies,): which windows are there twice

    @classmethod
    def of(cls, windows: Windows, count: int) -> Masked:
        """With so many copies, evenly spaced."""
        most = min(count, len(windows))
        return cls(windows, torch.linspace(0, len(windows) - 1, most).round().long())

    @property
    def sizes(self) -> Sizes:
        return self.windows.sizes

    @property
    def own(self) -> int:
        return self.windows.own

    def __len__(self) -> int:
        return len(self.windows) + len(self.copies)

    def batch(self, index: Tensor | slice) -> tuple[Inputs, Tensor]:
        """As `Windows.batch`; the copies come after all windows."""
        rows = index if isinstance(index, Tensor) else torch.arange(*index.indices(len(self)))
        closed = rows >= len(self.windows)
        copy = self.copies[(rows - len(self.windows)).clamp(min=0)] if len(self.copies) else rows
        return self.windows.batch(torch.where(closed, copy, rows), closed)


def own_columns(window: int, horizon: int, local: bool, echoes: int) -> int:
    """How many of the last columns of what is known each target has.

    For each season beyond the window what the steps were then, and whether it was seen; whether its
    level is shown, its level, its spread, and its lags by rank, which come last.
    """
    return (echoes * (horizon + 1) + 3 + window) * local


def _level(values: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Mean and spread over the window of values (windows, window, targets), each (windows, 1, targets)."""
    values = values.mT.contiguous()
    mean = values.mean(-1, keepdim=True)
    spread = ((values - mean).square().mean(-1, keepdim=True) + floor**2).sqrt()
    return mean.mT, spread.mT


def origins(
    starts: np.ndarray, times: np.ndarray, observed: np.ndarray, window: int, horizon: int,
    after: int | np.ndarray | None, until: int | np.ndarray | None,
) -> np.ndarray:  # fmt: skip
    """The rows from which a forecast can be made and checked, its targets after one instant and up to another.

    Instants are one for all series, or one for each row's series, (rows,).

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
        good &= times[row + 1] > np.broadcast_to(after, times.shape)[row]
    if until is not None:
        good &= times[row + horizon] <= np.broadcast_to(until, times.shape)[row]
    return row[good]


def squash(elapsed: Tensor) -> Tensor:
    """Steps too many or too few, on a scale on which years and minutes are both small numbers, float32."""
    return tame(elapsed, end=0.0).float()
