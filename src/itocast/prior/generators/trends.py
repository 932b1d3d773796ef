"""A trend, seasonal profiles and noise, added or multiplied: the series of a textbook."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from itocast.prior.generators.common import Array, Whole, chance, log_uniform, seasonal, split, uniform
from itocast.prior.generators.noise import coloured


def textbook(rng: Generator, seasons: Whole, length: int) -> Array:
    """Trend + season + noise; in a third both grow with the trend's level."""
    series = len(seasons)
    rise = trend(rng, series, length) * log_uniform(rng, 0.1, 30, series) * chance(rng, 0.75, series)
    wave = seasonal(rng, seasons, length) * log_uniform(rng, 0.1, 10, series) * chance(rng, 0.9, series)
    drift = slow_change(rng, series, length)
    rough = coloured(rng, seasons, length)
    swing = np.exp(uniform(rng, -0.8, 0.8, series) * np.linspace(-1, 1, length) * chance(rng, 0.25, series))
    level = 1 + np.abs(rise) / (np.abs(rise).mean(1, keepdims=True) + 1)
    grows = chance(rng, 0.35, series) > 0
    factor = np.where(grows, level, 1)
    return rise + factor * (wave * swing + rough) + drift


def trend(rng: Generator, series: int, length: int) -> Array:
    """A line, damped line, broken line, logistic or Gompertz curve, or exponential, from 0 to about ±1."""
    time = np.linspace(0, 1, length)[None]
    out = np.zeros((series, length))
    line, damped, broken, logistic, gompertz, exponential = split(rng, series, [0.3, 0.15, 0.25, 0.12, 0.06, 0.12])
    out[line] = time
    out[damped] = 1 - np.exp(-log_uniform(rng, 1, 30, len(damped)) * time)
    breaks = rng.uniform(0, 1, (len(broken), 3))
    slopes = rng.normal(size=(len(broken), 4)) * (np.arange(4) <= rng.integers(1, 4, (len(broken), 1)))
    out[broken] = slopes[:, :1] * time
    for k in range(3):
        out[broken] += slopes[:, k + 1, None] * np.maximum(time - breaks[:, k, None], 0)
    centre, speed = uniform(rng, -0.2, 1.5, len(logistic)), log_uniform(rng, 3, 40, len(logistic))
    out[logistic] = 1 / (1 + np.exp(-np.clip(speed * (time - centre), -50, 50)))
    centre, speed = uniform(rng, 0, 1, len(gompertz)), log_uniform(rng, 3, 20, len(gompertz))
    out[gompertz] = np.exp(-np.exp(-np.clip(speed * (time - centre), -6, 50)))
    speed = uniform(rng, 0.3, 4, len(exponential))
    out[exponential] = np.expm1(speed * time) / np.expm1(speed)
    return out * np.where(rng.random((series, 1)) < 0.65, 1, -1)


def slow_change(rng: Generator, series: int, length: int) -> Array:
    """A walk far slower than the noise, in half of the series."""
    size = log_uniform(rng, 0.01, 0.3, series) * chance(rng, 0.5, series)
    return size * rng.standard_normal((series, length)).cumsum(1)
