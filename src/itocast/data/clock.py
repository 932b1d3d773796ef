"""Time: instants as whole numbers, the step between rows, the times ahead, and the calendar."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

DAY = 86_400_000_000  # microseconds
MONTH, YEAR = 30.44 * DAY, 365.2425 * DAY


class Cycle(NamedTuple):
    """How long a cycle of the calendar is, and by how many sines and cosines the position in it is described."""

    length: float
    harmonics: int


CYCLES = {"day": Cycle(DAY, 4), "week": Cycle(7 * DAY, 3), "month": Cycle(MONTH, 1), "year": Cycle(YEAR, 2)}


@dataclass(frozen=True)
class Clock:
    """What the times of a table are, and how far apart.

    Instants are int64: microseconds since 1970 in UTC, or plain whole numbers where `dates` is false. `freq` is a
    pandas offset such as "h" or "MS", or a whole number; `zone` is the name of the time zone, if there is one.
    """

    freq: str
    dates: bool = True
    zone: str | None = None
    days: bool = False  # times came as days without a time of day, and go out as such

    @classmethod
    def infer(cls, times: np.ndarray, starts: np.ndarray, zone: str | None, dates: bool) -> Clock:
        """The most common step between the rows of a series, by the calendar where steps are months or working days.

        Where no step is common, the middle one.

        >>> days = pd.to_datetime(["2024-01-31", "2024-02-29", "2024-03-31"]).as_unit("us").asi8
        >>> Clock.infer(days, np.array([0, 3]), None, dates=True).freq
        'ME'
        """
        steps = np.diff(times)
        steps = np.delete(steps, starts[1:-1] - 1)  # not from one series to the next
        steps = steps[steps > 0]
        if not len(steps):
            return cls("D" if dates else "1", dates, zone)
        distinct, counts = np.unique(steps, return_counts=True)
        common = counts.max() >= 0.3 * len(steps)
        step = int(distinct[counts.argmax()] if common else np.median(steps))
        if not dates:
            return cls(str(step), dates)
        return cls(_calendar_freq(step, cls("D", True, zone).index(times)) or _tick(step), dates, zone)

    @classmethod
    def named(cls, freq: Any, zone: str | None, dates: bool) -> Clock:
        """A clock of a stated frequency."""
        kind = "a pandas offset such as 'h', '15min', 'D', 'B', 'W', 'MS'" if dates else "a whole number, at least 1"
        try:
            text = pd.tseries.frequencies.to_offset(str(freq)).freqstr if dates else str(_whole(freq))
            if not cls(text, dates, zone).step > 0:
                raise ValueError
        except (ValueError, AttributeError, TypeError):
            raise ValueError(f"freq={freq!r}: expected {kind}") from None
        return cls(text, dates, zone)

    @cached_property
    def offset(self) -> pd.DateOffset:
        if self.freq.endswith(" months"):
            return pd.DateOffset(months=int(self.freq.split()[0]))
        return pd.tseries.frequencies.to_offset(self.freq)  # type: ignore[return-value]

    @cached_property
    def step(self) -> float:
        """The length of a step in the unit of instants; a mean for steps of the calendar."""
        if not self.dates:
            return float(self.freq)
        first = pd.Timestamp("2001-01-01") + self.offset
        return (first + 60 * self.offset - first) / pd.Timedelta(microseconds=1) / 60

    def index(self, times: np.ndarray) -> Any:
        """Instants as pandas shows them: with zone, without, or as whole numbers."""
        if not self.dates:
            return pd.Index(times)
        index = pd.DatetimeIndex(times.astype("datetime64[us]"))
        return index.tz_localize("UTC").tz_convert(self.zone) if self.zone else index

    def instant(self, value: Any) -> int:
        """A point in time that a user names, such as "2024-05-01" or 7."""
        try:
            if not self.dates:
                return _whole(value)
            time = pd.Timestamp(value)
            if pd.isna(time) or isinstance(value, Real):
                raise ValueError
        except (ValueError, TypeError):
            kind = "a date" if self.dates else "a whole number"
            raise ValueError(f"start={value!r}: expected a share of the rows above 0 and below 1, or {kind}") from None
        if self.zone:
            time = time.tz_localize(self.zone) if time.tzinfo is None else time
        elif time.tzinfo is not None:
            raise ValueError(f"start={value!r} has a zone and the table's times have none: leave it out")
        return int(pd.DatetimeIndex([time]).as_unit("us").asi8[0])

    def ahead(self, last: np.ndarray, horizon: int) -> np.ndarray:
        """The instants of the next steps after each of `last`, (len(last), horizon)."""
        steps = np.tile(np.arange(1, horizon + 1), len(last))
        return self.after(np.repeat(last, horizon), steps).reshape(len(last), horizon)

    def after(self, times: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Each instant so many steps later."""
        if not self.dates or self.step < DAY:
            return times + round(self.step) * steps
        wall = self.index(times)
        wall = wall.tz_localize(None) if self.zone else wall  # days are counted on the calendar of the zone
        out = times.copy()
        for count in np.unique(steps[steps > 0]):
            out[steps == count] = self._instant(wall[steps == count] + int(count) * self.offset)
        return out

    def _instant(self, wall: Any) -> np.ndarray:
        if self.zone:
            wall = wall.tz_localize(self.zone, ambiguous=np.ones(len(wall), bool), nonexistent="shift_forward")
        return wall.as_unit("us").asi8

    def season(self) -> int:
        """How many steps the shortest natural cycle has: a day, a week or a year; 1 if there is none.

        >>> [Clock(freq).season() for freq in ("h", "30min", "D", "B", "W", "MS", "YE")]
        [24, 48, 7, 5, 52, 12, 1]
        """
        if not self.dates:
            return 1
        if self.freq == "B":
            return 5
        cycle = DAY if self.step < DAY else 7 * DAY if self.step < 7 * DAY else YEAR
        return max(1, min(round(cycle / self.step), 288))

    def seasons(self) -> tuple[int, int]:
        """The steps of up to two natural cycles, the shorter first; 0 for one that there is not.

        >>> [Clock(freq).seasons() for freq in ("h", "D", "B", "W", "MS", "QS", "YS")]
        [(24, 168), (7, 365), (5, 261), (52, 0), (12, 0), (4, 0), (0, 0)]
        """
        if not self.dates:
            return 0, 0
        if self.freq == "B":
            return 5, 261
        lengths = [round(cycle / self.step) for cycle in (DAY, 7 * DAY, YEAR)]
        known = [length for length in lengths if 2 <= length <= 512][:2]
        first, second = [*known, 0, 0][:2]
        return first, second

    def cycles(self, span: float = math.inf) -> tuple[str, ...]:
        """The cycles of the calendar that a step can resolve and that a span of time went through at least twice.

        A cycle that was not seen twice would only tell the rows of training apart.

        >>> Clock("h").cycles(), Clock("D").cycles(), Clock("MS").cycles(), Clock("5", dates=False).cycles()
        (('day', 'week', 'year'), ('week', 'month', 'year'), ('year',), ())
        >>> Clock("h").cycles(span=100 * DAY)
        ('day', 'week')
        """
        if not self.dates or self.step > 0.9 * YEAR:
            return ()
        fine = ("day", "week", "year") if self.step < DAY else ("week", "month", "year")
        return tuple(c for c in (fine if self.step < 7 * DAY else ("year",)) if span >= 2 * CYCLES[c].length)

    def holidays(self, times: np.ndarray, country: str) -> np.ndarray:
        """1 on the holidays of a country, else 0, (rows, 1)."""
        if not self.dates:
            raise ValueError(f"holidays={country!r} needs dates, and the table's times are whole numbers")
        distinct, place = np.unique(times, return_inverse=True)
        return _holidays(self.index(distinct), country)[place][:, None]

    def calendar(self, times: np.ndarray, cycles: tuple[str, ...]) -> np.ndarray:
        """Sines and cosines of the position in each cycle, in local time, float32 (rows, features)."""
        if not cycles:
            return np.zeros((len(times), 0), np.float32)
        distinct, place = np.unique(times, return_inverse=True)
        wall = self.index(distinct)
        local = (wall.tz_localize(None) if self.zone else wall).as_unit("us")
        micro = local.asi8
        position = {
            "day": lambda: micro / DAY % 1,
            "week": lambda: (micro / DAY + 3) % 7 / 7,  # 1970 began on a Thursday
            "month": lambda: (local.day.to_numpy() - 1) / local.days_in_month.to_numpy(),
            "year": lambda: (local.day_of_year.to_numpy() - 1) / 365.25,
        }
        waves = []
        for cycle in cycles:
            angle = 2 * np.pi * position[cycle]()
            for k in range(1, CYCLES[cycle].harmonics + 1):
                waves += [np.sin(k * angle), np.cos(k * angle)]
        return np.stack(waves, axis=1).astype(np.float32)[place]


def _whole(value: Any) -> int:
    if int(value) != float(value):
        raise ValueError
    return int(value)


def _holidays(days: pd.DatetimeIndex, country: str) -> np.ndarray:
    try:
        from holidays import country_holidays
    except ImportError:
        raise ImportError("marking holidays needs the library holidays: pip install 'itocast[holidays]'") from None
    try:
        known = country_holidays(country)
    except NotImplementedError:
        raise ValueError(f"holidays={country!r}: expected a country such as 'US', 'DE' or 'JP'") from None
    return np.array([day in known for day in days.date], np.float32)


def _calendar_freq(step: int, index: Any) -> str | None:
    """Months and working days, whose steps are not all of one length."""
    if not 27.5 * DAY <= step <= 366.5 * DAY:
        weekend = step == DAY and len(index) >= 10 and not (index.day_of_week >= 5).any()
        return "B" if weekend else None
    months = round(step / MONTH)
    if abs(step - months * MONTH) > 3 * DAY or months not in (1, 2, 3, 4, 6, 12):
        return None
    if index.is_month_end.all():
        return "ME" if months == 1 else f"{months}ME"
    if (index.day == 1).all():
        return "MS" if months == 1 else f"{months}MS"
    return f"{months} months"


def _tick(step: int) -> str:
    if step % DAY == 0:
        return "D" if step == DAY else f"{step // DAY}D"
    return pd.tseries.frequencies.to_offset(pd.Timedelta(microseconds=step)).freqstr
