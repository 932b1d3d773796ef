"""All that turns a table into windows and a law back into the table's units, fitted on the training part."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from itocast.data.clock import Clock
from itocast.data.reading import Gaps, Repeated
from itocast.data.scaling import SCALERS, Scaler
from itocast.data.series import Scales, carried, changes, scales, stays, steps_between
from itocast.data.table import Columns, Table, extend
from itocast.data.windows import FAR, NARROWEST, WIDEST, Codes, Numbers, Windows, origins, squash
from itocast.forecast import Forecast
from itocast.nets import tame
from itocast.settings import Settings

COVARIATES = {"past": "faint", "future": "standard", "static": "standard"}
SCALINGS = {
    "quantile": {"lags": "quantile", "targets": "standard", **COVARIATES},
    "rank": {"lags": "quantile", "targets": "quantile", **COVARIATES},
    "minmax": dict.fromkeys(("lags", "targets", *COVARIATES), "minmax"),
}
Instant = int | np.ndarray | None  # one for all series, one for each row's series, (rows,), or none

MOST_LAGS = 60  # of a cycle that a window holds
CATEGORIES = 64  # so many of a column are told apart; the rest are as one that was never seen


class NoWindows(ValueError):
    """A table, or a part of it, holds no forecast that can be checked."""


class Data(Settings):
    """How a table is read and what the model sees of it."""

    freq: str | int | None = Field(None, description="the step between rows; by default the most common one")
    repeated: Repeated = Field("error", description="what becomes of rows of one series with the same time")
    gaps: Gaps = Field("auto", description="whether missing times become rows")
    calendar: bool = Field(True, description="the position in day, week, month and year of each time forecast")
    holidays: str | None = Field(None, description="a country such as 'US', whose holidays are marked")
    elapsed: bool = Field(True, description="where times are irregular: the time between rows and until each step")
    identity: bool = Field(True, description=f"tell series apart, if there are 2 to {CATEGORIES}")
    apart: bool = Field(
        True, description="forecast several targets with the same weights, each from its own lags and those of all"
    )
    local: bool = Field(True, description="see lags and targets relative to the mean and spread of their window")
    scaling: Literal["quantile", "rank", "minmax"] = Field("quantile", description="of lags, covariates and targets")
    validation: float = Field(0.2, gt=0, lt=1, description="the latest share of rows, for stopping and calibration")


@dataclass
class Preparation:
    """Columns, scales and categories as they were in training."""

    columns: Columns
    clock: Clock
    window: int
    horizon: int
    data: Data
    scalers: dict[str, Scaler]
    scales: Scales
    categories: dict[str, list[str]]  # of each column that is not of numbers
    identity: list[str]  # the series that are told apart
    cycles: tuple[str, ...]  # of the calendar
    regular: bool  # missing times became rows, or there were none
    irregular: bool  # rows were not one step apart
    incomplete: bool  # targets were missing
    repeats: bool = False  # targets often were the last value again
    floor: float = WIDEST  # is added to the spread of a window, in deviations of its series
    ranges: dict[str, tuple[list[float], list[float]]] = field(default_factory=dict)  # of levels, by series
    echoes: tuple[int, ...] = ()  # rows from each step back to a season ago, for seasons beyond the window
    limits: dict[str, tuple[float, float]] = field(default_factory=dict)  # of each covariate of numbers
    memory: int = 0  # rows before a forecast that the prior reads, 0 if it plays no part

    @property
    def reach(self) -> int:
        """How many rows up to its origin a forecast reads."""
        return max(self.window, self.memory, *self.echoes)

    @classmethod
    def fit(
        cls, table: Table, horizon: int = 1, window: int | None = None, data: Data = Data(), until: Instant = None
    ) -> Self:
        """Learn scales and categories from the rows up to an instant, and from nothing after it."""
        seen = table if until is None else table.until(until)
        if not len(seen):
            raise NoWindows("no rows come before the cut: there is nothing to learn from")
        kinds = SCALINGS[data.scaling]
        rows = int(np.median(np.diff(seen.starts)))
        window = window or default_window(table.clock, horizon, rows)
        even = bool((np.rint(steps_between(seen)) == 1).all())
        self = cls(
            table.columns, table.clock, window, horizon, data,
            scalers={}, scales=scales(seen, data.scaling != "minmax"),
            categories={name: _most_common(v) for name, v in seen.values.items() if v.dtype == object},
            identity=[str(i) for i in seen.ids] if data.identity and 2 <= len(seen.ids) <= CATEGORIES else [],
            cycles=table.clock.cycles(float(np.ptp(seen.times))) if data.calendar else (),
            regular=table.regular, irregular=data.elapsed and not even,
            incomplete=bool(np.isnan(seen.y).any()),
            limits=_limits(seen),
        )  # fmt: skip
        if data.local and even:
            self.echoes = _echoes(table.clock, window, horizon, rows)
        self.repeats = kinds["targets"] == "standard" and stays(seen, self._scale(seen)[2])
        for part, kind in kinds.items():
            values = self._values(seen, part)
            self.scalers[part] = SCALERS[kind].fit(values[~np.isnan(values).any(1)] if len(values) else values)
        return self

    def meeting(self, table: Table, until: Instant = None) -> Self:
        """The same with scales for new series: of their rows up to an instant, or else of their first window."""
        if all(label in self.scales for label in table.ids.tolist()):
            return self
        seen = table if until is None else table.until(until)
        first = np.maximum(np.minimum(self.window, np.diff(table.starts) - self.horizon), 1)  # up to the first origin
        own = self.data.scaling != "minmax"
        return replace(self, scales=scales(table.head(first), own) | scales(seen, own) | self.scales)

    def windows(
        self, table: Table, after: Instant = None, until: Instant = None, numbers: Numbers | None = None
    ) -> Windows:
        """All forecasts that can be checked, their targets later than one instant and up to another.

        `numbers` are those of the table, if they are there already.
        """
        observed = ~np.isnan(table.y).all(1)
        rows = origins(table.starts, table.times, observed, self.window, self.horizon, after, until)
        if not len(rows):
            longest = int(np.diff(table.starts).max())
            raise NoWindows(
                f"no forecast fits: window={self.window} and horizon={self.horizon} need rows before and after a "
                f"cutoff, and the longest series has {longest} rows; use a smaller window or horizon, or more rows"
            )
        numbers = numbers or self.numbers(table)
        return self._windows(numbers, rows)

    def ahead(self, table: Table, future: Table | None = None) -> tuple[Windows, Table]:
        """The forecast from the end of each series, and the table with the steps that are forecast."""
        whole = extend(table, self.horizon, future)
        last = np.searchsorted(whole.series, np.arange(len(whole.ids)), side="right") - 1 - self.horizon
        return self._windows(self.numbers(whole), last), whole

    def _windows(self, numbers: Numbers, origins: np.ndarray) -> Windows:
        place = torch.from_numpy(origins)
        return Windows(numbers, self.window, self.horizon, self.data.local, self.floor, self.echoes, place)

    def of_origins(self, table: Table, origins: Tensor) -> Windows:
        """The forecasts from some rows of a table."""
        return self._windows(self.numbers(table), origins.numpy())

    def seen(self, train: Windows) -> tuple[Self, Windows]:
        """The same knowing the levels and spreads of windows to learn from, and these windows as it makes them."""
        low, high, spread = train.ranges()
        floor = min(max(spread, NARROWEST), WIDEST)
        there = low[:, 0] <= high[:, 0]
        labels = train.numbers.labels["series"]
        ranges = {str(labels[i]): (low[i].tolist(), high[i].tolist()) for i in there.nonzero()[:, 0].tolist()}
        self = replace(self, floor=floor, ranges=ranges)
        numbers = replace(train.numbers, low=low, high=high)
        return self, replace(train, numbers=numbers, floor=floor)

    def numbers(self, table: Table) -> Numbers:
        """The whole table in the scale of the model."""
        past, future, lags = (_tensor(self._scaled(table, part)) for part in ("past", "future", "lags"))
        seen, age = carried(table, table.y)
        last = _tensor(self.scalers["targets"].transform(self._standard(table, seen)))
        gaps = [steps_between(table)[:, None] - 1] * self.irregular
        gaps += [age] * self.incomplete
        moments, moment = np.unique(table.times, return_inverse=True)
        calendar = [table.clock.calendar(moments, self.cycles)]
        if self.data.holidays:
            calendar.append(table.clock.holidays(moments, self.data.holidays))
        shift, scale, rounding = self._scale(table)
        low, high = self._ranges(table)
        return Numbers(
            y=torch.from_numpy(table.y), shift=torch.from_numpy(shift), scale=torch.from_numpy(scale),
            rounding=torch.from_numpy(rounding),
            again=torch.from_numpy(seen) if self.repeats else None,
            lags=tame(lags, FAR), last=last, targets=torch.from_numpy(self._scaled(table, "targets")).float(),
            past=past, past_codes=self._codes(table, self.columns.past),
            gaps=squash(torch.from_numpy(np.concatenate([np.zeros((len(table), 0)), *gaps], 1))),
            clock=torch.from_numpy((table.times - table.times.min()) / table.clock.step) if self.irregular else None,
            future=future, calendar=torch.cat([_tensor(part) for part in calendar], 1),
            moment=torch.from_numpy(moment.astype(np.int32)), moments=torch.from_numpy(moments),
            future_codes=self._codes(table, self.columns.future),
            static=self._static(table, self._scaled(table, "static")),
            series=torch.from_numpy(table.series.astype(np.int32)), starts=torch.from_numpy(table.starts[:-1]),
            low=low, high=high,
            labels={"series": table.ids.astype(str)}
            | {name: table.values[name][table.starts[:-1]].astype(str) for name in self.columns.static},
        )  # fmt: skip

    def _scaled(self, table: Table, part: str) -> np.ndarray:
        return self.scalers[part].transform(self._values(table, part))

    def _values(self, table: Table, part: str) -> np.ndarray:
        """The numbers of one part before they are scaled; static ones have a row for each series."""
        if part == "targets":
            return self._standard(table, _unrounded(table, self._scale(table)[2], self.repeats))
        if part == "lags":
            return carried(table, table.y)[0]
        names = [name for name in getattr(self.columns, part) if name not in self.categories]
        values = table.numbers(names)
        return values[table.starts[:-1]] if part == "static" else carried(table, values)[0]

    def _standard(self, table: Table, y: np.ndarray) -> np.ndarray:
        shift, scale, _ = self._scale(table)
        rows = table.series
        return (y - shift[rows]) / scale[rows]

    def _scale(self, table: Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Shift, scale and rounding of each series, (series, targets)."""
        for label in table.ids.tolist():
            if label not in self.scales:
                name = f"series {label!r}" if self.columns.id else "the table"
                raise ValueError(f"{name} has no observed value of a target before the forecast: drop it")
        parts = np.array([self.scales[label] for label in table.ids.tolist()])  # (series, 3, targets)
        return parts[:, 0], parts[:, 1], parts[:, 2]

    def _ranges(self, table: Table) -> tuple[Tensor, Tensor]:
        """The levels that training saw in each series, each (series, targets); an empty range for a new series."""
        targets = len(self.columns.targets)
        nothing = [np.inf] * targets, [-np.inf] * targets
        parts = [self.ranges.get(str(label), nothing) for label in table.ids.tolist()]
        both = torch.tensor(parts, dtype=torch.float32)  # (series, 2, targets)
        return both[:, 0], both[:, 1]

    def _codes(self, table: Table, names: tuple[str, ...]) -> Codes:
        names = tuple(name for name in names if name in self.categories)
        codes = [_code(table.values[name], self.categories[name]) for name in names]
        values = np.stack(codes, 1) if codes else np.zeros((len(table), 0), np.int16)
        return Codes(torch.from_numpy(values), tuple(len(self.categories[name]) for name in names))

    def _static(self, table: Table, numbers: np.ndarray) -> Tensor:
        """What stays the same in a series, (series, features)."""
        first = table.starts[:-1]
        names = [name for name in self.columns.static if name in self.categories]
        codes = [_code(table.values[name][first], self.categories[name]) for name in names]
        counts = [len(self.categories[name]) for name in names]
        if self.identity:
            codes.append(_code(np.array([str(label) for label in table.ids], object), self.identity))
            counts.append(len(self.identity))
        values = np.stack(codes, 1) if codes else np.zeros((len(first), 0), np.int16)
        hot = Codes(torch.from_numpy(values), tuple(counts)).expand(torch.arange(len(first)))
        return torch.cat([_tensor(numbers), hot], 1)

    def unscale(self, law: Forecast, windows: Windows) -> Forecast:
        """A model's law in the units of the table."""
        series = windows.numbers.series[windows.origins]
        shift, scale = windows.numbers.shift[series][:, None], windows.numbers.scale[series][:, None]
        if windows.local:
            centre, spread = windows.levels()
            law = law.affine(spread, centre)
        return self.scalers["targets"].unscale(law).affine(scale, shift)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "columns": self.columns.model_dump(mode="json"), "clock": asdict(self.clock), "window": self.window,
            "horizon": self.horizon, "data": self.data.model_dump(),
            "scalers": {name: scaler.to_dict() for name, scaler in self.scalers.items()},
            "scales": [[label, *parts] for label, parts in self.scales.items()], "categories": self.categories,
            "identity": self.identity, "cycles": self.cycles, "regular": self.regular,
            "irregular": self.irregular, "incomplete": self.incomplete, "repeats": self.repeats,
            "memory": self.memory, "floor": self.floor, "limits": self.limits, "echoes": list(self.echoes),
            "ranges": [[label, *parts] for label, parts in self.ranges.items()],
        }  # fmt: skip

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """From what `to_dict` gave."""
        data = Data(**values["data"])
        kinds = SCALINGS[data.scaling]
        return cls(**values | {
            "columns": Columns(**values["columns"]), "clock": Clock(**values["clock"]), "data": data,
            "scalers": {name: SCALERS[kinds[name]](**state) for name, state in values["scalers"].items()},
            "cycles": tuple(values["cycles"]),
            "scales": {label: tuple(parts) for label, *parts in values["scales"]},
            "echoes": tuple(values["echoes"]),
            "limits": {name: tuple(ends) for name, ends in values["limits"].items()},
            "ranges": {label: tuple(parts) for label, *parts in values["ranges"]},
        })  # fmt: skip


def default_window(clock: Clock, horizon: int, rows: int) -> int:
    """As many lags as the shortest cycle has steps, or as the horizon if that is longer, up to three cycles.

    Of a cycle of more than 60 steps the newest 60 do, beside what each step was a cycle ago (`_echoes`).
    At most half of what a series of so many `rows` can spare, so that most series give whole windows.

    >>> [default_window(Clock(freq), horizon, 1000) for freq, horizon in (("h", 1), ("h", 48), ("D", 14), ("YS", 1))]
    [24, 48, 14, 10]
    >>> default_window(Clock("5min"), horizon=12, rows=10_000)
    60
    >>> default_window(Clock("h"), horizon=6, rows=30)
    12
    """
    season = max(min(clock.season(), MOST_LAGS), 10 if clock.season() < 5 else 5)
    return max(1, min(max(season, horizon), 3 * season, (rows - horizon) // 2))


def _unrounded(table: Table, rounding: np.ndarray, repeats: bool) -> np.ndarray:
    """Targets spread evenly over what was rounded to them, always in the same way.

    A law learned from counts as they are would shrink to spikes on whole numbers, whose intervals mean nothing. Where
    laws have a point at the last value, what repeats it stays as it is.
    """
    even = np.random.default_rng(0).uniform(-0.5, 0.5, table.y.shape)
    even = np.where(changes(table) == 0, 0.0, even) if repeats else even
    return table.y + even * rounding[table.series]


def _echoes(clock: Clock, window: int, horizon: int, rows: int) -> tuple[int, ...]:
    """How far back the last two seasons lie, where the window does not reach and there are rows to learn from.

    A day and a week of hours, a week and a year of days, one and two years of months.

    >>> [_echoes(Clock(freq), 12, 12, 1000) for freq in ("h", "MS", "YS")]
    [(24, 168), (24,), ()]
    """
    first, second = clock.seasons()
    if not first:
        return ()
    seasons = {season * -(-horizon // season): None for season in (first, second or 2 * first)}
    return tuple(lag for lag in seasons if window < lag <= rows // 2)


def _limits(table: Table) -> dict[str, tuple[float, float]]:
    """The least and the largest value of each covariate of numbers."""
    columns = {name: table.values[name] for name in table.columns.covariates}
    return {
        name: (float(np.nanmin(values)), float(np.nanmax(values)))
        for name, values in columns.items()
        if values.dtype != object and not np.isnan(values).all()
    }


def _most_common(column: np.ndarray) -> list[str]:
    counts = pd.Series(column).value_counts()
    return sorted(map(str, counts.index[:CATEGORIES]))


def _code(column: np.ndarray, categories: list[str]) -> np.ndarray:
    return (pd.Index(categories, dtype=object).get_indexer(pd.Index(column, dtype=object)) + 1).astype(np.int16)


def _tensor(values: np.ndarray) -> Tensor:
    """float32, with 0, the centre of every scale, where nothing was ever seen."""
    return torch.from_numpy(np.asarray(values)).float().nan_to_num_(nan=0.0)
