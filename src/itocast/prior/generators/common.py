"""What the families share: choices by series, random numbers of a range, seasonal profiles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
Kind = Callable[[Generator, int, int], Array]  # from (rng, series, length) to (series, length)
HARMONICS = 4


def uniform(rng: Generator, low: float, high: float, series: int) -> Array:
    """Numbers between two ends, a column, (series, 1)."""
    return rng.uniform(low, high, (series, 1))


def log_uniform(rng: Generator, low: float, high: float, series: int) -> Array:
    """Positive numbers whose logarithms are uniform, a column, (series, 1)."""
    return np.exp(rng.uniform(np.log(low), np.log(high), (series, 1)))


def chance(rng: Generator, share: float, series: int) -> Array:
    """1 with a probability of `share`, otherwise 0, a column, (series, 1)."""
    return (rng.random((series, 1)) < share).astype(float)


def split(rng: Generator, series: int, weights: list[float]) -> list[Whole]:
    """Which series take each of several choices, by the weights of these."""
    shares = np.array(weights) / sum(weights)
    kinds = rng.choice(len(weights), series, p=shares)
    return [np.flatnonzero(kinds == kind) for kind in range(len(weights))]


def mixed(rng: Generator, series: int, length: int, kinds: dict[Kind, float]) -> Array:
    """Each series by one of several functions of (rng, series, length), by their weights."""
    out = np.zeros((series, length))
    for rows, kind in zip(split(rng, series, list(kinds.values())), kinds, strict=True):
        if len(rows):
            out[rows] = kind(rng, len(rows), length)
    return out


def standard(values: Array, past: int) -> Array:
    """Each series with mean 0 and deviation 1 over its first `past` values; a constant one is 0."""
    before = values[:, :past]
    values = values - before.mean(1, keepdims=True)
    deviation = spread(before)
    return np.divide(values, deviation, out=np.zeros_like(values), where=deviation > 1e-9)


def spread(values: Array) -> Array:
    """The deviation of each series, a column, (series, 1)."""
    return values.std(1, keepdims=True)


def profile(rng: Generator, season: Whole, length: int) -> Array:
    """A pattern that repeats after each series' season, (series, length), of deviation about 1; 0 without a season.

    A third each: some harmonics; an independent value a phase; a smooth level with a few phases that stand out.
    """
    series = len(season)
    time = np.arange(length)[None]
    steps = np.maximum(season, 1)[:, None]
    place = (time + rng.integers(0, 10_000, (series, 1))) % steps
    out = np.zeros((series, length))
    smooth, rough, peaks = split(rng, series, [0.45, 0.35, 0.2])
    order = np.arange(1, HARMONICS + 1)
    size = rng.normal(size=(len(smooth), HARMONICS)) * order ** -rng.uniform(0, 2, (len(smooth), 1))
    size /= np.sqrt((size**2).sum(1, keepdims=True) / 2)
    shift = rng.uniform(0, 2 * np.pi, (len(smooth), HARMONICS))
    angle = 2 * np.pi * place[smooth] / steps[smooth]
    for k in range(HARMONICS):
        out[smooth] += size[:, k, None] * np.sin((k + 1) * angle + shift[:, k, None])
    table = rng.normal(size=(len(rough), steps.max(initial=1)))
    out[rough] = np.take_along_axis(table, place[rough], 1)
    width = steps.max(initial=1)
    tall = rng.random((len(peaks), width)) < rng.uniform(0.02, 0.3, (len(peaks), 1))
    table = 0.2 * rng.normal(size=(len(peaks), width)) + tall * rng.gamma(2, 1, (len(peaks), width))
    out[peaks] = np.take_along_axis(table, place[peaks], 1) * rng.choice([-1, 1], (len(peaks), 1))
    return out * (season > 1)[:, None]


def seasonal(rng: Generator, seasons: Whole, length: int) -> Array:
    """The profiles of both seasons, in random shares, (series, length)."""
    series = len(seasons)
    both = (seasons[:, 1:] > 1) & (rng.random((series, 1)) < 0.9)
    share = np.where(both, rng.beta(1.5, 1.5, (series, 1)), 0)
    first, second = (profile(rng, seasons[:, k], length) for k in range(2))
    return np.sqrt(1 - share) * first + np.sqrt(share) * second


def autoregression(noise: Array, coefficient: Array) -> Array:
    """x_t = φ x_{t-1} + √(1-φ²) ε_t along the series, from its stationary law; `coefficient` is (series, 1)."""
    drive = (noise * np.sqrt(np.maximum(1 - coefficient**2, 0))).T.copy()
    drive[0] = noise[:, 0]
    phi = coefficient[:, 0]
    for t in range(1, len(drive)):
        drive[t] += phi * drive[t - 1]
    return drive.T
