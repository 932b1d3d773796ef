"""Scores of forecasts by quantiles, as the field publishes them; numpy alone.

An outcome that is missing, nan, is not scored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

TENTHS = np.arange(1, 10) / 10
PERCENTS = np.arange(1, 100) / 100
Bounds = tuple[np.ndarray, np.ndarray]


class Answer(NamedTuple):
    """What a method says of the last rows of every series."""

    quantiles: np.ndarray  # (series, horizon, 9), at TENTHS
    intervals: dict[int, Bounds]  # low and high of a level in percent, (series, horizon) each


def pinball(y: np.ndarray, quantiles: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The loss of each quantile, whose levels are the last axis."""
    error = y[..., None] - quantiles
    return np.maximum(levels * error, (levels - 1) * error)


def wql(y: np.ndarray, quantiles: np.ndarray) -> float:
    """Weighted quantile loss: 2 Σ pinball / Σ |y|, a mean over 0.1 … 0.9."""
    seen = np.isfinite(y)
    loss = pinball(y[seen], quantiles[seen], TENTHS).sum(0)
    return float(2 * loss.mean() / np.abs(y[seen]).sum())


def seasonal_error(past: np.ndarray, season: int) -> float:
    """The mean absolute seasonal difference of a past, the unit of MASE."""
    return float(np.nanmean(np.abs(past[season:] - past[:-season])))


def mase(y: np.ndarray, median: np.ndarray, units: np.ndarray) -> float:
    """Mean absolute error of the median, of each series in its unit; y (series, horizon)."""
    seen = np.isfinite(y)
    errors = np.abs(y - median) / units[:, None]
    return float(errors[seen].mean())


def coverage(y: np.ndarray, bounds: Bounds) -> float:
    """The share of outcomes in their intervals, ends included."""
    low, high = bounds
    held = (low <= y) & (y <= high)
    return float(held.sum() / np.isfinite(y).sum())


def crps(y: np.ndarray, quantiles: np.ndarray) -> float:
    """Twice the mean pinball loss at 0.01 … 0.99."""
    return float(2 * pinball(y, quantiles, PERCENTS).mean())


def naive(past: np.ndarray, horizon: int, season: int) -> np.ndarray:
    """The last season that was seen, again and again."""
    known = past[np.isfinite(past)]
    return np.resize(known[-season:], horizon)


def geometric(values: np.ndarray) -> float:
    """The geometric mean."""
    return float(np.exp(np.log(values).mean()))
