"""What befalls a series: outliers, holidays, shifts of the level, bends of the trend, changes that fade."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from itocast.prior.generators.common import Array, Whole, log_uniform, split, spread


def events(rng: Generator, values: Array, seasons: Whole, past: int) -> Array:
    """Four in ten of the series with events of one kind, of a size in deviations of its past."""
    series, length = values.shape
    out = values.copy()
    size = spread(values[:, :past])
    kinds = [outliers, holidays, shifts, bends, fading]
    _, *chosen = split(rng, series, [0.6, 0.06, 0.06, 0.12, 0.09, 0.07])
    for rows, kind in zip(chosen, kinds, strict=True):
        if len(rows):
            out[rows] += size[rows] * kind(rng, seasons[rows], length)
    return out


def outliers(rng: Generator, seasons: Whole, length: int) -> Array:
    """A few values far off."""
    series = len(seasons)
    hit = rng.random((series, length)) < log_uniform(rng, 0.002, 0.05, series)
    return hit * rng.normal(size=(series, length)) * log_uniform(rng, 1, 15, series)


def holidays(rng: Generator, seasons: Whole, length: int) -> Array:
    """The same jump, some steps long, at a fixed place of the longer season."""
    series = len(seasons)
    period = np.maximum(seasons.max(1), 7)[:, None]
    place = (np.arange(length) + rng.integers(0, 10_000, (series, 1))) % period
    lasts = np.maximum(1, (period * rng.uniform(0, 0.08, (series, 1))).astype(int))
    return (place < lasts) * rng.normal(size=(series, 1)) * log_uniform(rng, 0.5, 6, series)


def shifts(rng: Generator, seasons: Whole, length: int) -> Array:
    """Jumps to a new level, about one to four in the series."""
    series = len(seasons)
    hit = rng.random((series, length)) < rng.uniform(1, 4, (series, 1)) / length
    return (hit * rng.normal(size=(series, length))).cumsum(1) * log_uniform(rng, 0.3, 5, series)


def bends(rng: Generator, seasons: Whole, length: int) -> Array:
    """The slope changes once or twice."""
    series = len(seasons)
    hit = rng.random((series, length)) < rng.uniform(0.5, 2, (series, 1)) / length
    slope = (hit * rng.normal(size=(series, length))).cumsum(1)
    return slope.cumsum(1) * log_uniform(rng, 0.5, 8, series) / length


def fading(rng: Generator, seasons: Whole, length: int) -> Array:
    """A shock from which the series returns step by step."""
    series = len(seasons)
    shock = (rng.random((series, length)) < rng.uniform(0.5, 3, (series, 1)) / length).astype(float)
    shock *= rng.normal(size=(series, length)) * log_uniform(rng, 1, 10, series)
    decay = np.exp(-log_uniform(rng, 0.02, 1, series))[:, 0]
    x = shock.T.copy()
    for t in range(1, length):
        x[t] += decay * x[t - 1]
    return x.T
