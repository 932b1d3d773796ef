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
    uniform,
)
from itocast.prior.generators.noise import noise


def economy(rng: Generator, seasons: Whole, length: int) -> Array:
    """exp of a walk whose steps are autocorrelated, a drift that changes slowly, seasons and noise: above 0."""
    series = len(seasons)
    step = log_uniform(rng, 0.002, 0.2, series)
    shocks = autoregression(noise(rng, seasons, length), uniform(rng, -0.3, 0.8, series))
    drift = 0.5 * rng.normal(size=(series, 1)) + 0.3 * chance(rng, 0.5, series)
    turning = rng.standard_normal((series, length)).cumsum(1) * log_uniform(rng, 0.003, 0.1, series)
    turning = turning * chance(rng, 0.5, series)
    level = (step * (shocks + drift + turning)).cumsum(1)
    swing = 1 + 0.5 * rng.normal(size=(series, 1)) * np.linspace(-1, 1, length)
    wave = seasonal(rng, seasons, length) * log_uniform(rng, 0.01, 0.6, series) * chance(rng, 0.85, series)
    rough = noise(rng, seasons, length) * step * log_uniform(rng, 0.1, 5, series) * chance(rng, 0.6, series)
    return np.exp(np.clip(level - level[:, :1] + swing * wave + rough, -20, 20))
