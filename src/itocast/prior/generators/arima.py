"""Seasonal ARIMA: autoregression and moving average, differenced or not, at lag one and at the season."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from itocast.prior.generators.common import Array, Whole, chance, log_uniform, seasonal, uniform
from itocast.prior.generators.noise import noise


def arima(rng: Generator, seasons: Whole, length: int) -> Array:
    """(p, d, q)(P, D, Q) with p ≤ 3, q ≤ 2 and the rest at most 1; a drift and a fixed profile in a share."""
    series = len(seasons)
    burn = 64
    padded = length + burn
    error = noise(rng, seasons, padded)
    x = seasonal_filter(rng, error, seasons[:, 0])
    x = moving_average(rng, x)
    x = autoregressive(rng, x)[:, burn:]
    spread = x.std(1, keepdims=True) + 1e-9
    drift = rng.normal(size=(series, 1)) * log_uniform(rng, 0.01, 0.5, series) * chance(rng, 0.4, series)
    once = chance(rng, 0.5, series)
    x = np.where(once > 0, (x / spread + drift).cumsum(1), x / spread)
    twice = once * chance(rng, 0.06, series)
    x = np.where(twice > 0, x.cumsum(1), x)
    fixed = log_uniform(rng, 0.1, 10, series) * chance(rng, 0.5, series)
    observed = log_uniform(rng, 0.05, 3, series) * chance(rng, 0.3, series)
    return x + fixed * seasonal(rng, seasons, length) + observed * noise(rng, seasons, length)


def seasonal_filter(rng: Generator, error: Array, season: Whole) -> Array:
    """x_t = Φ x_{t-m} + ε_t + Θ ε_{t-m}, with Φ = 1 in some: seasons that wander."""
    series, length = error.shape
    strong = chance(rng, 0.35, series)
    phi = np.where(strong > 0, 1, uniform(rng, -0.3, 0.95, series) * chance(rng, 0.4, series))[:, 0]
    theta = uniform(rng, -0.95, 0.4, series)[:, 0] * (rng.random(series) < 0.6)
    apply = (season > 1) & (season < length)
    phi, theta = phi * apply, theta * apply
    lag = np.where(apply, season, 1)
    every = np.arange(series)
    e = error.T.copy()
    x = e.copy()
    for t in range(1, length):
        place = t - lag
        inside = place >= 0
        x[t] += inside * (phi * x[place, every] + theta * e[place, every])
    return x.T


def moving_average(rng: Generator, x: Array) -> Array:
    """x_t + θ₁ x_{t-1} + θ₂ x_{t-2}."""
    series = len(x)
    first = uniform(rng, -0.95, 0.95, series) * chance(rng, 0.5, series)
    second = uniform(rng, -0.6, 0.6, series) * chance(rng, 0.2, series)
    out = x.copy()
    out[:, 1:] += first * x[:, :-1]
    out[:, 2:] += second * x[:, :-2]
    return out


def autoregressive(rng: Generator, x: Array) -> Array:
    """An autoregression of order 3 at most, stationary by its partial autocorrelations."""
    series = len(x)
    order = rng.choice(4, series, p=[0.3, 0.4, 0.2, 0.1])
    partial = rng.uniform(-0.95, 0.98, (series, 3)) * (np.arange(3) < order[:, None])
    partial[:, 0] = np.where(rng.random(series) < 0.7, np.abs(partial[:, 0]), partial[:, 0])
    a, b, c = partial.T
    first, second = a - b * a, b
    one, two, three = first - c * second, second - c * first, c
    out = x.T.copy()
    for t in range(3, len(out)):
        out[t] += one * out[t - 1] + two * out[t - 2] + three * out[t - 3]
    return out.T
