"""Exponential smoothing in its state-space form: level, damped trend, two seasons that change slowly."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from itocast.prior.generators.common import Array, Whole, chance, log_uniform, seasonal, uniform
from itocast.prior.generators.noise import noise


def smoothing(rng: Generator, seasons: Whole, length: int) -> Array:
    """y = l + b + s + ε; l, b and s each follow ε by their own rate.

    The profile is that of `seasonal`; what the seasons learn from ε is kept in a table by phase.
    """
    series = len(seasons)
    error = noise(rng, seasons, length)
    base = log_uniform(rng, 0.05, 10, series) * seasonal(rng, seasons, length)
    alpha = (rng.beta(0.7, 1.2, (series, 1)) * chance(rng, 0.9, series))[:, 0]
    beta = alpha * (rng.beta(0.8, 6, (series, 1)) * chance(rng, 0.45, series))[:, 0]
    phi = np.where(chance(rng, 0.5, series) > 0, 1, uniform(rng, 0.8, 0.99, series))[:, 0]
    first = seasons[:, 0]
    gamma = ((1 - alpha) * (rng.beta(0.8, 5, (series, 1)) * chance(rng, 0.5, series))[:, 0]) * (first > 1)
    steps = np.maximum(first, 1)
    table = np.zeros((steps.max(initial=1), series))
    every = np.arange(series)
    level = np.zeros(series)
    trend = (rng.normal(size=series) * log_uniform(rng, 0.003, 0.5, series)[:, 0]) * (rng.random(series) < 0.5)
    out = np.empty((length, series))
    for t, e in enumerate(error.T.copy()):
        level = level + trend
        place = t % steps
        learnt = table[place, every]
        out[t] = level + learnt + e
        level = level + alpha * e
        trend = phi * trend + beta * e
        table[place, every] = learnt + gamma * e
    return out.T + base
