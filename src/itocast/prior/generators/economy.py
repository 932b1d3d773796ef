"""Series that grow by rates: sales, prices, arrivals. Their logarithm wanders, drifts and has seasons."""

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
from itocast.prior.generators.noise import noise

ENDS = 0.4  # share of series whose growth is bounded
BOOMING = 0.3  # share of series with booms


def economy(rng: Generator, seasons: Whole, length: int) -> Array:
    """exp of a walk with a drift, of booms that end, of seasons and of noise: above 0."""
    series = len(seasons)
    step = log_uniform(rng, 0.002, 0.2, series)
    shocks = autoregression(noise(rng, seasons, length), uniform(rng, -0.3, 0.8, series))
    walk = (step * shocks).cumsum(1)
    growth = bounded(rng, (step * drift(rng, series, length)).cumsum(1))
    boom = booms(rng, series, length)
    swing = 1 + 0.5 * rng.normal(size=(series, 1)) * np.linspace(-1, 1, length)
    wave = seasonal(rng, seasons, length) * log_uniform(rng, 0.01, 0.6, series)
    wave = wave * chance(rng, 0.85, series)
    rough = noise(rng, seasons, length) * step * log_uniform(rng, 0.1, 5, series)
    rough = rough * chance(rng, 0.6, series)
    total = walk + growth + boom + swing * wave + rough
    return np.exp(np.clip(total, -20, 20))


def drift(rng: Generator, series: int, length: int) -> Array:
    """Growth in units of the shocks: constant, wandering, or returning to its mean."""
    mean = 0.5 * rng.normal(size=(series, 1)) + 0.3 * chance(rng, 0.5, series)
    out = np.repeat(mean, length, axis=1)
    _, wandering, returning = split(rng, series, [0.4, 0.3, 0.3])
    walk = rng.standard_normal((len(wandering), length)).cumsum(1)
    out[wandering] += walk * log_uniform(rng, 0.003, 0.1, len(wandering))
    decay = np.exp(-log_uniform(rng, 0.01, 0.3, len(returning)))
    change = autoregression(rng.standard_normal((len(returning), length)), decay)
    out[returning] += change * log_uniform(rng, 0.2, 2, len(returning))
    return out


def bounded(rng: Generator, growth: Array) -> Array:
    """Growth that goes on, or ends somewhere between the double and the thousandfold."""
    most = log_uniform(rng, 0.7, 7, len(growth))
    ends = rng.random((len(growth), 1)) < ENDS
    return np.where(ends, most * np.tanh(growth / most), growth)


def booms(rng: Generator, series: int, length: int) -> Array:
    """Years above and below the trend, in some of the series: growth that is lost again."""
    decay = np.exp(-log_uniform(rng, 0.02, 0.4, series))
    cycle = autoregression(rng.standard_normal((series, length)), decay)
    return cycle * log_uniform(rng, 0.02, 0.5, series) * chance(rng, BOOMING, series)
