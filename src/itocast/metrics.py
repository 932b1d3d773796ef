"""Scores of a forecast against what happened, Sec. 5.3 and App. E. `y` is (rows, horizon, targets).

Every metric is one number made from the scores of single forecasts: one for each row, horizon step and target. `score`
computes those once; each entry of METRICS takes them, or any part of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from itocast.forecast import LEVELS, Forecast, central

Sided = Literal["one", "two"]
TWENTIETHS = LEVELS[4::5]  # 0.05, 0.10 … 0.95


@dataclass(frozen=True)
class Scored:
    """The scores of single forecasts, each (forecasts,), and which row, step and target they are of."""

    y: Tensor
    mean: Tensor
    log_prob: Tensor
    crps: Tensor
    pit: Tensor
    width: Tensor  # of the central intervals, the mean over the levels 1 … 99 %
    pinball: Tensor  # the mean over the probabilities 0.05, 0.10 … 0.95
    row: Tensor
    step: Tensor
    target: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, which: Any) -> Scored:
        """Some of them, by a mask or by positions."""
        return Scored(*(getattr(self, field.name)[which] for field in fields(self)))

    @staticmethod
    def cat(parts: list[Scored], rows: list[int]) -> Scored:
        """Several together; `rows` is how many rows each part's forecast has."""
        first = torch.tensor([0, *rows[:-1]]).cumsum(0)
        columns = {f.name: torch.cat([getattr(part, f.name) for part in parts]) for f in fields(Scored)}
        columns["row"] = torch.cat([part.row + begin for part, begin in zip(parts, first, strict=True)])
        return Scored(**columns)

    def metrics(self) -> dict[str, float]:
        """Every metric by name."""
        return {name: metric(self) for name, metric in METRICS.items()}


def score(forecast: Forecast, y: Any, first: int = 0) -> Scored:
    """The scores of each forecast whose outcome is known, which is where y is not nan.

    Of a part of a longer forecast, `first` says how many rows came before.
    """
    y = forecast.check(y, missing=True).double()
    seen, mean = ~y.isnan(), forecast.mean.double()
    if not seen.any():
        raise ValueError("y holds no outcome that is a number: nothing can be scored")
    full = torch.where(seen, y, mean)
    parts = (
        full, mean, forecast.log_prob(full).double(), forecast.crps(full), forecast.pit(full, first),
        _widths(forecast, LEVELS), _pinballs(forecast, full, TWENTIETHS),
    )  # fmt: skip
    return Scored(*(part[seen] for part in parts), *seen.nonzero().T)


def evaluate(forecast: Forecast, y: Any) -> dict[str, float]:
    """Every metric by name; outcomes that are nan are left out.

    >>> law = Forecast(torch.zeros(1, 4, 1, 1), torch.ones(1, 4, 1, 1))
    >>> round(evaluate(law, [-1.0, -0.2, 0.2, 1.0])["nll"], 4)  # ½ log 2π + ½ · 0.52
    1.1789
    """
    if not isinstance(forecast, Forecast):
        raise TypeError(f"forecast is a {type(forecast).__name__}: expected a Forecast, then the outcomes")
    return score(forecast, y).metrics()


def rmse(forecast: Forecast, y: Any) -> float:
    """Root of the mean squared error of the mean, over all rows, steps and targets, in the target's unit.

    >>> round(rmse(Forecast([[[[1.0]], [[5.0]]]], [[[[1.0]], [[1.0]]]]), [1.0, 3.0]), 6)  # √2
    1.414214
    """
    return (forecast.check(y).double() - forecast.mean.double()).square().mean().sqrt().item()


def r2(forecast: Forecast, y: Any) -> float:
    """Share of the variance explained by the mean; the mean over targets."""
    return 1 - _unexplained_of(forecast, y)


def nll(forecast: Forecast, y: Any) -> float:
    """Mean of -log of the predictive density, in nats; it depends on the target's unit."""
    return -forecast.log_prob(y).mean().item()


def crps(forecast: Forecast, y: Any) -> float:
    """Mean continuous ranked probability score, in the target's unit: the absolute error of a whole law."""
    return forecast.crps(y).mean().item()


def pinball(forecast: Forecast, y: Any, quantiles: Any = None) -> float:
    """Mean pinball loss at some probabilities, 0.05, 0.10 … 0.95 if none are given, in the target's unit."""
    p = TWENTIETHS if quantiles is None else torch.as_tensor(quantiles, dtype=torch.float64).reshape(-1)
    return _pinballs(forecast, forecast.check(y), p).mean().item()


def pit(forecast: Forecast, y: Any) -> Tensor:
    """The predictive cdf at each y, in the shape of y: uniform on [0, 1] if the forecast is calibrated.

    Where forecasts end at a value such as 0, which then has a probability, an outcome there has a place within it.
    """
    return forecast.pit(y)


def calibration_curve(forecast: Forecast, y: Any, sided: Sided = "two") -> tuple[Tensor, Tensor]:
    """Expected and observed coverage at p = 0.01 … 0.99, over all rows, steps and targets.

    "two": of the central interval that should hold a share p (App. C). "one": of y ≤ F⁻¹(p) (Eq. 13).
    """
    return LEVELS.clone(), observed_coverage(pit(forecast, y), sided)


def coverage(forecast: Forecast, y: Any, level: float = 95) -> float:
    """Share of y inside the central interval of `level` percent."""
    return _inside(pit(forecast, y), level)


def cwce(forecast: Forecast, y: Any, sided: Sided = "two", unit: Literal["sum", "percent"] = "sum") -> float:
    """Confidence-weighted calibration error: Σ p |E(p) - p| over p = 0.01 … 0.99.

    Deviates: the paper gives neither grid nor unit, and its largest figures exceed this sum's largest value of 33.
    `unit="percent"` is 100 times the weighted mean, Σ p |E(p) - p| / Σ p, at most 66.3.
    """
    if unit not in ("sum", "percent"):
        raise ValueError(f"unit={unit!r}: expected 'sum' or 'percent'")
    total = cwce_of(pit(forecast, y), sided)
    return total if unit == "sum" else 100 * total / LEVELS.sum().item()


def r_cwce(forecast: Forecast, y: Any, sided: Sided = "two") -> float:
    """CWCE times the unexplained share of the variance, 1 - R²: calibration and accuracy in one number."""
    return _unexplained_of(forecast, y) * cwce(forecast, y, sided)


def ecpe(forecast: Forecast, y: Any, sided: Sided = "two") -> float:
    """Mean of |E(p) - p| over p = 0.01 … 0.99: the calibration error without weights."""
    return _ecpe(pit(forecast, y), sided)


def epiw(forecast: Forecast, level: float | None = None) -> float:
    """Mean width of the central interval of `level` percent, or over the levels 1 … 99 %, in the target's unit."""
    if level is None:
        return _widths(forecast, LEVELS).mean().item()
    low, high = central(level)
    return _widths(forecast, torch.tensor([high - low], dtype=torch.float64)).mean().item()


def observed_coverage(u: Tensor, sided: Sided = "two") -> Tensor:
    """The observed coverage at p = 0.01 … 0.99, from the cdf at the outcomes."""
    if sided not in ("one", "two"):
        raise ValueError(f"sided={sided!r}: expected 'one' or 'two'")
    u = u.reshape(-1)
    needed = u if sided == "one" else (2 * u - 1).abs()  # the smallest p whose set holds y
    return torch.searchsorted(needed.sort().values, LEVELS, right=True) / len(u)


def inside(u: Tensor, level: float) -> Tensor:
    """Which outcomes the central interval of `level` percent holds, from the cdf at the outcomes."""
    low, high = central(level)
    return (u >= low) & (u <= high)


def between(outside: float) -> float:
    """The number of deviations within which all but a share of a normal law lies.

    >>> round(between(0.05), 2)
    1.96
    """
    return -float(torch.special.ndtri(torch.tensor(outside / 2, dtype=torch.float64)))


def chance_band(p: Any, forecasts: int, inflation: Any = 1.0, chance: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    """Between which shares an observed one lies, but for a share `chance` of the time, if it should be p.

    `inflation` is how many times the variance of a share among independent outcomes its variance is.

    >>> [round(float(bound), 3) for bound in chance_band(0.9, forecasts=1000)]
    [0.881, 0.919]
    """
    p = np.asarray(p)
    half = between(chance) * np.sqrt(inflation * p * (1 - p) / max(forecasts, 1))
    return np.clip(p - half, 0, 1), np.clip(p + half, 0, 1)


def _inside(u: Tensor, level: float) -> float:
    return inside(u, level).double().mean().item()


def cwce_of(u: Tensor, sided: Sided = "two") -> float:
    """CWCE from the cdf at the outcomes."""
    return (LEVELS * (observed_coverage(u, sided) - LEVELS).abs()).sum().item()


def _ecpe(u: Tensor, sided: Sided = "two") -> float:
    return (observed_coverage(u, sided) - LEVELS).abs().mean().item()


def _widths(forecast: Forecast, levels: Tensor) -> Tensor:
    """Mean width over some central intervals, (rows, horizon, targets)."""
    low, high = forecast.quantile(torch.cat([0.5 - levels / 2, 0.5 + levels / 2])).chunk(2)
    return (high - low).mean(0)


def _pinballs(forecast: Forecast, y: Tensor, p: Tensor) -> Tensor:
    """Mean pinball loss over some probabilities, (rows, horizon, targets)."""
    error = y - forecast.quantile(p)  # (levels, rows, horizon, targets)
    p = p.reshape(-1, 1, 1, 1)
    return torch.maximum(p * error, (p - 1) * error).mean(0)


def _unexplained_of(forecast: Forecast, y: Any) -> float:
    y = forecast.check(y).double()
    return _unexplained(y, forecast.mean.double(), torch.arange(y.shape[-1]).expand_as(y))


def _unexplained(y: Tensor, mean: Tensor, target: Tensor) -> float:
    """Σ (y - ŷ)² / Σ (y - ȳ)², the mean over targets that vary; nan if none does."""
    shares = []
    for i in target.unique():
        truth, guess = y[target == i], mean[target == i]
        if truth.max() > truth.min():
            shares.append(((truth - guess).square().sum() / (truth - truth.mean()).square().sum()).item())
    return sum(shares) / len(shares) if shares else float("nan")


METRICS: dict[str, Callable[[Scored], float]] = {
    "rmse": lambda s: (s.y - s.mean).square().mean().sqrt().item(),
    "r2": lambda s: 1 - _unexplained(s.y, s.mean, s.target),
    "crps": lambda s: s.crps.mean().item(),
    "nll": lambda s: -s.log_prob.mean().item(),
    "cwce": lambda s: cwce_of(s.pit),
    "cwce_one_sided": lambda s: cwce_of(s.pit, "one"),
    "r_cwce": lambda s: _unexplained(s.y, s.mean, s.target) * cwce_of(s.pit),
    "ecpe": lambda s: _ecpe(s.pit),
    "epiw": lambda s: s.width.mean().item(),
    "pinball": lambda s: s.pinball.mean().item(),
    "coverage_50": lambda s: _inside(s.pit, 50),
    "coverage_80": lambda s: _inside(s.pit, 80),
    "coverage_90": lambda s: _inside(s.pit, 90),
    "coverage_95": lambda s: _inside(s.pit, 95),
}
