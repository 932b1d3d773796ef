"""What a backtest tells about intervals: one row for each forecast whose outcome is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from itocast.data.clock import DAY, Clock
from itocast.forecast import Forecast
from itocast.metrics import between, chance_band

LEVELS = (50, 80, 90, 95, 99)
BLOCKS = 50  # of time, whose differences tell how far from independent the outcomes are
PERIODS = 10  # of time, each with as many forecasts
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True)
class Factor:
    """A way to part forecasts: a number for each of them, and what each number is called."""

    codes: np.ndarray
    names: list[str]

    def __getitem__(self, rows: Any) -> Factor:
        return replace(self, codes=self.codes[rows])


@dataclass(frozen=True)
class Evidence:
    """Forecasts and outcomes, each column (forecasts,), in the order of time.

    `score` is the normal score of the outcome under its law: standard normal if the law is right.
    """

    score: np.ndarray
    error: np.ndarray
    deviation: np.ndarray
    epistemic: np.ndarray  # share of the variance
    order: np.ndarray  # the place of each among the known outcomes of the law, by row, step and target
    block: np.ndarray
    factors: dict[str, Factor]

    @classmethod
    def of(
        cls, law: Forecast, y: torch.Tensor, times: np.ndarray, series: np.ndarray, clock: Clock, names: dict[str, list]
    ) -> Evidence:
        """From the laws of some windows; `times` is (rows, horizon), `series` the number of each row's series.

        `names` are those of "series" and "target".
        """
        seen = ~y.isnan()
        row, step, target = (index.numpy() for index in seen.nonzero().T)
        time = times[row, step]
        order = np.lexsort((row, time))
        full = torch.where(seen, y, law.mean.double())
        columns = {
            "score": _scores(law, full), "error": full - law.mean, "deviation": law.variance.sqrt(),
            "epistemic": law.epistemic / law.variance,
        }  # fmt: skip
        numbers = {name: values[seen].double().numpy()[order] for name, values in columns.items()}
        mean = law.mean[seen].double().numpy()[order]
        row, step, target, time = row[order], step[order], target[order], time[order]
        rank = np.arange(len(time))
        factors = {
            "series": Factor(series[row], names["series"]),
            "target": Factor(target, names["target"]),
            "step": Factor(step, [str(one + 1) for one in range(y.shape[1])]),
            **_calendar(clock, time),
            "size": Factor(_fifths(mean, series[row]), ["lowest", "low", "middle", "high", "highest"]),
            "time": _periods(clock, time),
        }
        factors = {name: factor for name, factor in factors.items() if len(np.unique(factor.codes)) > 1}
        return cls(**numbers, order=order, block=rank * BLOCKS // max(len(rank), 1), factors=factors)

    def __len__(self) -> int:
        return len(self.score)

    def __getitem__(self, rows: Any) -> Evidence:
        columns = ("score", "error", "deviation", "epistemic", "order", "block")
        factors = {name: factor[rows] for name, factor in self.factors.items()}
        return Evidence(**{name: getattr(self, name)[rows] for name in columns}, factors=factors)

    def inside(self, level: float) -> np.ndarray:
        """Which outcomes the central interval of a level holds."""
        return np.abs(self.score) <= between(1 - level / 100)

    def inflation(self, hits: np.ndarray) -> float:
        """How much larger the variance of a share is than it were if outcomes were independent, at least 1.

        From the differences between neighbouring blocks of time, so that a slow change does not count as noise.
        """
        counts = np.bincount(self.block, minlength=BLOCKS)
        there = counts > 0
        if len(self) < 2 * BLOCKS or there.sum() < 2 or not 0 < hits.mean() < 1:
            return 1.0
        shares = np.bincount(self.block, hits, minlength=BLOCKS)[there] / counts[there]
        between = 0.5 * np.square(np.diff(shares)).mean()
        return max(1.0, float(between * counts[there].mean() / (hits.mean() * (1 - hits.mean()))))

    def share(self, hits: np.ndarray, p: float, chance: float) -> dict[str, float]:
        """Observed share, and the band in which it lies but for a share `chance` of the time if it should be p."""
        low, high = chance_band(p, len(self), self.inflation(hits), chance)
        return {"observed": float(hits.mean()), "low": float(low), "high": float(high)}

    def coverage(self, level: float) -> dict[str, float]:
        """Observed share, and the band in which it lies 99 % of the time if the interval is right."""
        return self.share(self.inside(level), level / 100, chance=0.01)

    def table(self, name: str, level: float = 90) -> list[dict[str, Any]]:
        """Coverage in each part of a factor."""
        factor = self.factors[name]
        parts = []
        for code in np.unique(factor.codes):
            part = self[factor.codes == code]
            parts.append({"part": factor.names[code], "forecasts": len(part), **part.coverage(level)})
        return parts


def stretch(score: np.ndarray, level: float) -> float:
    """By how much the central interval of a level must be stretched to hold its share."""
    return float(np.quantile(np.abs(score), level / 100) / between(1 - level / 100))


def _scores(law: Forecast, y: torch.Tensor) -> torch.Tensor:
    """Normal scores."""
    return torch.special.ndtri(law.pit(y).clamp(1e-12, 1 - 1e-12))


def _calendar(clock: Clock, time: np.ndarray) -> dict[str, Factor]:
    if not clock.dates or clock.step > 1.5 * DAY:
        return {}
    index = clock.index(time)
    factors = {"hour": Factor(index.hour.to_numpy(), [f"{hour:02}:00" for hour in range(24)])}
    return (factors if clock.step < DAY else {}) | {"weekday": Factor(index.day_of_week.to_numpy(), list(DAYS))}


def _fifths(mean: np.ndarray, series: np.ndarray) -> np.ndarray:
    """Which fifth of its series' forecasts each one belongs to, by size."""
    order = np.lexsort((mean, series))
    place = np.empty(len(mean), int)
    starts = np.searchsorted(series[order], series[order])
    counts = np.bincount(series)[series[order]]
    place[order] = (np.arange(len(mean)) - starts) * 5 // counts
    return place


def _periods(clock: Clock, time: np.ndarray) -> Factor:
    """Tenths of the forecasts by time; forecasts of one instant stay together."""
    edges = time[np.arange(1, PERIODS) * len(time) // PERIODS]
    codes = np.searchsorted(edges, time, side="right")
    starts = clock.index(np.array([time[0], *edges]))
    return Factor(codes, [str(start) for start in starts])
