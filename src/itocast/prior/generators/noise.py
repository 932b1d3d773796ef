"""Noise of deviation about 1: normal, heavy-tailed, skewed, with outliers; and how its size changes over time."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from itocast.prior.generators.common import (
    Array,
    Kind,
    Whole,
    autoregression,
    chance,
    mixed,
    profile,
    split,
    uniform,
)


def normal(rng: Generator, series: int, length: int) -> Array:
    """Standard normal."""
    return rng.standard_normal((series, length))


def student(rng: Generator, series: int, length: int) -> Array:
    """Student's t with 2.2 to 10 degrees of freedom, of the quartiles of a normal law rather than its variance."""
    freedom = np.exp(rng.uniform(np.log(2.2), np.log(10), (series, 1)))
    return rng.standard_normal((series, length)) / np.sqrt(
        rng.standard_gamma(freedom / 2, (series, length)) * 2 / freedom
    )


def laplace(rng: Generator, series: int, length: int) -> Array:
    """Laplace: two exponential tails."""
    return rng.laplace(scale=np.sqrt(0.5), size=(series, length))


def gamma(rng: Generator, series: int, length: int) -> Array:
    """A gamma law less its mean, skewed to either side, mostly to the right."""
    shape = np.exp(rng.uniform(np.log(0.3), np.log(10), (series, 1)))
    side = np.where(rng.random((series, 1)) < 0.75, 1, -1)
    return side * (rng.standard_gamma(shape, (series, length)) - shape) / np.sqrt(shape)


def spoilt(rng: Generator, series: int, length: int) -> Array:
    """Normal, with a few values of 3 to 20 times the size."""
    share = rng.uniform(0.002, 0.08, (series, 1))
    factor = np.exp(rng.uniform(np.log(3), np.log(20), (series, 1)))
    hit = rng.random((series, length)) < share
    return rng.standard_normal((series, length)) * np.where(hit, factor, 1)


def flat(rng: Generator, series: int, length: int) -> Array:
    """Uniform."""
    return rng.uniform(-np.sqrt(3), np.sqrt(3), (series, length))


KINDS: dict[Kind, float] = {normal: 0.42, student: 0.25, laplace: 0.08, gamma: 0.12, spoilt: 0.08, flat: 0.05}


def volatility(rng: Generator, seasons: Whole, length: int) -> Array:
    """The size of the noise at each step, (series, length): mostly 1, else by phase, time or a random walk."""
    series = len(seasons)
    out = np.zeros((series, length))
    _, by_phase, by_time, wandering, broken = split(rng, series, [0.42, 0.14, 0.12, 0.22, 0.1])
    out[by_phase] = uniform(rng, 0.1, 1.2, len(by_phase)) * profile(rng, seasons[by_phase, 0], length)
    out[by_time] = uniform(rng, -1.5, 1.5, len(by_time)) * np.linspace(-1, 1, length)
    walk = autoregression(normal(rng, len(wandering), length), uniform(rng, 0.8, 0.999, len(wandering)))
    out[wandering] = uniform(rng, 0.2, 1.3, len(wandering)) * walk
    start = rng.integers(0, length, (len(broken), 1))
    out[broken] = rng.normal(size=(len(broken), 1)) * (np.arange(length) >= start)
    return np.exp(np.clip(out, -3, 3))


def noise(rng: Generator, seasons: Whole, length: int) -> Array:
    """Independent noise of many kinds, sometimes of changing size, (series, length)."""
    series = len(seasons)
    return mixed(rng, series, length, KINDS) * volatility(rng, seasons, length)


def coloured(rng: Generator, seasons: Whole, length: int) -> Array:
    """The same, in half of the series with autocorrelation of the first order."""
    series = len(seasons)
    phi = uniform(rng, -0.5, 0.97, series) * chance(rng, 0.5, series)
    return autoregression(noise(rng, seasons, length), phi)
