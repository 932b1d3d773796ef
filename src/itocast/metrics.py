"""Scores of a forecast against what happened, Sec. 5.3 and App. E. `y` is (rows, horizon, targets)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from itocast.forecast import Forecast, central

Sided = Literal["one", "two"]
LEVELS = torch.arange(1, 100, dtype=torch.float64) / 100


def rmse(forecast: Forecast, y: Any) -> float:
    """Root of the mean squared error of the mean, over all rows, steps and targets, in the target's unit.

    >>> rmse(Forecast([[[[1.0]], [[5.0]]]], [[[[1.0]], [[1.0]]]]), [1.0, 3.0]) == 2**0.5
    True
    """
    return _squared_error(forecast, y).mean().sqrt().item()


def r2(forecast: Forecast, y: Any) -> float:
    """Share of the variance explained by the mean; the mean over targets."""
    return 1 - _unexplained(forecast, y)


def nll(forecast: Forecast, y: Any) -> float:
    """Mean of -log of the predictive density, in nats; it depends on the target's unit."""
    return -forecast.log_prob(y).mean().item()


def crps(forecast: Forecast, y: Any) -> float:
    """Mean continuous ranked probability score, in the target's unit: the absolute error of a whole law."""
    return forecast.crps(y).mean().item()


def pinball(forecast: Forecast, y: Any, quantiles: Any = None) -> float:
    """Mean pinball loss at some probabilities, 0.05, 0.10 … 0.95 if none are given, in the target's unit."""
    p = LEVELS[4::5] if quantiles is None else torch.as_tensor(quantiles, dtype=torch.float64).reshape(-1)
    error = forecast.check(y) - forecast.quantile(p)  # (levels, rows, horizon, targets)
    p = p.reshape(-1, 1, 1, 1)
    return torch.maximum(p * error, (p - 1) * error).mean().item()


def pit(forecast: Forecast, y: Any) -> Tensor:
    """The predictive cdf at each y, in the shape of y: uniform on [0, 1] if the forecast is calibrated."""
    return forecast.cdf(forecast.check(y))


def calibration_curve(forecast: Forecast, y: Any, sided: Sided = "two") -> tuple[Tensor, Tensor]:
    """Expected and observed coverage at p = 0.01 … 0.99, over all rows, steps and targets.

    "two": of the central interval that should hold a share p (App. C). "one": of y ≤ F⁻¹(p) (Eq. 13).
    """
    u = pit(forecast, y).reshape(-1)
    if sided not in ("one", "two"):
        raise ValueError(f"sided={sided!r}: expected 'one' or 'two'")
    needed = u if sided == "one" else (2 * u - 1).abs()  # the smallest p whose set holds y
    return LEVELS.clone(), torch.searchsorted(needed.sort().values, LEVELS, right=True) / len(u)


def coverage(forecast: Forecast, y: Any, level: float = 95) -> float:
    """Share of y inside the central interval of `level` percent."""
    low, high = central(level)
    u = pit(forecast, y)
    return ((u >= low) & (u <= high)).double().mean().item()


def cwce(forecast: Forecast, y: Any, sided: Sided = "two", unit: Literal["sum", "percent"] = "sum") -> float:
    """Confidence-weighted calibration error: Σ p |E(p) - p| over p = 0.01 … 0.99.

    Deviates: the paper gives neither grid nor unit, and its largest figures exceed this sum's largest value of 33.
    `unit="percent"` is 100 times the weighted mean, Σ p |E(p) - p| / Σ p, at most 66.3.
    """
    if unit not in ("sum", "percent"):
        raise ValueError(f"unit={unit!r}: expected 'sum' or 'percent'")
    p, observed = calibration_curve(forecast, y, sided)
    total = (p * (observed - p).abs()).sum()
    return (total if unit == "sum" else 100 * total / p.sum()).item()


def r_cwce(forecast: Forecast, y: Any, sided: Sided = "two") -> float:
    """CWCE times the unexplained share of the variance, 1 - R²: calibration and accuracy in one number."""
    return _unexplained(forecast, y) * cwce(forecast, y, sided)


def ecpe(forecast: Forecast, y: Any, sided: Sided = "two") -> float:
    """Mean of |E(p) - p| over p = 0.01 … 0.99: the calibration error without weights."""
    p, observed = calibration_curve(forecast, y, sided)
    return (observed - p).abs().mean().item()


def epiw(forecast: Forecast, level: float | None = None) -> float:
    """Mean width of the central interval of `level` percent, or over the levels 1 … 99 %, in the target's unit."""
    levels = [level] if level is not None else [100 * p for p in LEVELS.tolist()]
    bounds = torch.tensor([central(level) for level in levels], dtype=torch.float64).T  # (2, levels)
    low, high = forecast.quantile(bounds.reshape(-1)).chunk(2)
    return (high - low).mean().item()


def evaluate(forecast: Forecast, y: Any) -> dict[str, float]:
    """Every metric by name.

    >>> law = Forecast(torch.zeros(1, 4, 1, 1), torch.ones(1, 4, 1, 1))
    >>> round(evaluate(law, [-1.0, -0.2, 0.2, 1.0])["nll"], 4)  # ½ log 2π + ½ · 0.52
    1.1789
    """
    return {name: metric(forecast, y) for name, metric in METRICS.items()}


def _squared_error(forecast: Forecast, y: Any) -> Tensor:
    return (forecast.check(y).double() - forecast.mean.double()).square()


def _unexplained(forecast: Forecast, y: Any) -> float:
    """Σ (y - ŷ)² / Σ (y - ȳ)², the mean over targets that vary; nan if none does."""
    y = forecast.check(y).double()
    varies = (y.amax((0, 1)) > y.amin((0, 1))).nonzero()[:, 0]
    total = (y - y.mean((0, 1))).square().sum((0, 1))
    return (_squared_error(forecast, y).sum((0, 1)) / total)[varies].mean().item()


METRICS: dict[str, Callable[[Forecast, Any], float]] = {
    "rmse": rmse,
    "r2": r2,
    "crps": crps,
    "nll": nll,
    "cwce": cwce,
    "cwce_one_sided": lambda forecast, y: cwce(forecast, y, sided="one"),
    "r_cwce": r_cwce,
    "ecpe": ecpe,
    "epiw": lambda forecast, y: epiw(forecast),
    "pinball": pinball,
    "coverage_50": lambda forecast, y: coverage(forecast, y, 50),
    "coverage_80": lambda forecast, y: coverage(forecast, y, 80),
    "coverage_90": lambda forecast, y: coverage(forecast, y, 90),
    "coverage_95": lambda forecast, y: coverage(forecast, y, 95),
}
