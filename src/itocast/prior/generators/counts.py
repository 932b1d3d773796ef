"""Counts: intermittent demand, and Poisson or negative binomial numbers around a moving intensity."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from itocast.prior.generators.common import (
    Array,
    Whole,
    autoregression,
    chance,
    log_uniform,
    seasonal,
    split,
    uniform,
)


def counts(rng: Generator, seasons: Whole, length: int) -> Array:
    """Half intermittent demand, half counts of a moving intensity; never negative, mostly whole."""
    series = len(seasons)
    out = np.zeros((series, length))
    rare, steady = split(rng, series, [0.5, 0.5])
    out[rare] = intermittent(rng, seasons[rare], length)
    out[steady] = around_intensity(rng, seasons[steady], length)
    return out


def moving(rng: Generator, seasons: Whole, length: int) -> Array:
    """A log intensity: an autoregression, seasons and a line, each in a share of the series."""
    series = len(seasons)
    phi = 1 - log_uniform(rng, 0.003, 0.7, series)
    wander = autoregression(rng.standard_normal((series, length)), phi)
    total = wander * uniform(rng, 0, 0.8, series) * chance(rng, 0.6, series)
    total += seasonal(rng, seasons, length) * uniform(rng, 0.1, 1.2, series) * chance(rng, 0.7, series)
    line = rng.normal(size=(series, 1)) * chance(rng, 0.4, series)
    return np.clip(total + line * np.linspace(-1, 1, length), -5, 5)


def intermittent(rng: Generator, seasons: Whole, length: int) -> Array:
    """A demand occurs with some probability; its size is geometric, lognormal or nearly constant."""
    series = len(seasons)
    odds = np.log(log_uniform(rng, 0.02, 2, series)) + 0.7 * moving(rng, seasons, length)
    occurs = rng.random((series, length)) < 1 / (1 + np.exp(-odds))
    size = np.ones((series, length))
    geometric, lognormal, _ = split(rng, series, [0.5, 0.3, 0.2])
    size[geometric] = rng.geometric(uniform(rng, 0.1, 0.95, len(geometric)), (len(geometric), length))
    spread = uniform(rng, 0.1, 1.2, len(lognormal))
    size[lognormal] = np.exp(spread * rng.standard_normal((len(lognormal), length)) + 1)
    return occurs * size


def around_intensity(rng: Generator, seasons: Whole, length: int) -> Array:
    """Poisson counts, half of them overdispersed by gamma noise: the negative binomial law."""
    series = len(seasons)
    intensity = log_uniform(rng, 0.3, 300, series) * np.exp(moving(rng, seasons, length))
    shape = log_uniform(rng, 0.5, 30, series)
    burst = rng.standard_gamma(shape, (series, length)) / shape
    burst = np.where(chance(rng, 0.5, series) > 0, burst, 1)
    return rng.poisson(np.minimum(intensity * burst, 1e6)).astype(float)
