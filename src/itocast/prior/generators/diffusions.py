"""The Itô diffusions that give this library its name, seen at whole times: dX = f(X) dt + g(X) dB."""

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
from itocast.prior.generators.noise import coloured


def diffusion(rng: Generator, seasons: Whole, length: int) -> Array:
    """One of six diffusions, in a share with a season and noise of observation on top."""
    series = len(seasons)
    kinds = [ornstein_uhlenbeck, walk, square_root, jumps, stochastic_volatility, switching]
    out = np.zeros((series, length))
    for rows, kind in zip(split(rng, series, [0.2, 0.2, 0.15, 0.15, 0.15, 0.15]), kinds, strict=True):
        if len(rows):
            out[rows] = kind(rng, len(rows), length)
    step = np.abs(np.diff(out, axis=1)).mean(1, keepdims=True) + 1e-9
    season = log_uniform(rng, 0.2, 10, series) * chance(rng, 0.5, series)
    blur = log_uniform(rng, 0.05, 3, series) * chance(rng, 0.35, series)
    return out / step + season * seasonal(rng, seasons, length) + blur * coloured(rng, seasons, length)


def ornstein_uhlenbeck(rng: Generator, series: int, length: int) -> Array:
    """dX = -θX dt + dB, started at a distance from its mean in some."""
    decay = np.exp(-log_uniform(rng, 0.003, 1.5, series))
    away = 3 * rng.normal(size=(series, 1)) * chance(rng, 0.3, series)
    stationary = autoregression(rng.standard_normal((series, length)), decay)
    return stationary + away * decay ** np.arange(length)


def walk(rng: Generator, series: int, length: int) -> Array:
    """dX = μ dt + dB, which under exp (in `transforms`) is geometric Brownian motion."""
    drift = rng.normal(size=(series, 1)) * log_uniform(rng, 0.01, 0.5, series) * chance(rng, 0.5, series)
    return (drift + rng.standard_normal((series, length))).cumsum(1)


def square_root(rng: Generator, series: int, length: int) -> Array:
    """dX = θ(μ - X) dt + σ √X dB by Euler-Maruyama, reflected at 0."""
    pull = log_uniform(rng, 0.01, 0.7, series)[:, 0]
    spread = uniform(rng, 0.2, 1.6, series)[:, 0] * np.sqrt(2 * pull)
    x = rng.gamma(2, 0.5, series)
    out = np.empty((length, series))
    for t, dB in enumerate(rng.standard_normal((length, series))):
        x = np.abs(x + pull * (1 - x) + spread * np.sqrt(x) * dB)
        out[t] = x
    return out.T


def jumps(rng: Generator, series: int, length: int) -> Array:
    """A walk or an Ornstein-Uhlenbeck process with jumps of normal size at random times."""
    drive = rng.standard_normal((series, length))
    rare = rng.random((series, length)) < log_uniform(rng, 0.003, 0.1, series)
    leap = log_uniform(rng, 2, 30, series) * rng.normal(size=(series, length)) * rare
    decay = np.where(chance(rng, 0.5, series) > 0, 1, np.exp(-log_uniform(rng, 0.01, 0.5, series)))
    x = (drive + leap).T.copy()
    for t in range(1, length):
        x[t] += decay[:, 0] * x[t - 1]
    return x.T


def stochastic_volatility(rng: Generator, series: int, length: int) -> Array:
    """Log variance is an Ornstein-Uhlenbeck process; X is its noise, or the walk driven by it."""
    decay = np.exp(-log_uniform(rng, 0.005, 0.5, series))
    log_deviation = autoregression(rng.standard_normal((series, length)), decay)
    x = np.exp(uniform(rng, 0.2, 1, series) * log_deviation) * rng.standard_normal((series, length))
    return np.where(chance(rng, 0.6, series) > 0, x.cumsum(1), x)


def switching(rng: Generator, series: int, length: int) -> Array:
    """Two regimes, each with a mean, a drift and a deviation of its own, by a Markov chain."""
    leave = np.exp(rng.uniform(np.log(0.004), np.log(0.2), (2, series)))
    regime = np.zeros((length, series), dtype=int)
    state = rng.integers(0, 2, series)
    every = np.arange(series)
    for t, u in enumerate(rng.random((length, series))):
        state = np.where(u < leave[state, every], 1 - state, state)
        regime[t] = state
    regime = regime.T
    second = regime > 0
    deviation = np.where(second, log_uniform(rng, 0.2, 5, series), 1)
    mean = np.where(second, 3 * rng.normal(size=(series, 1)), 0)
    drift = np.where(second, 0.3, 0.1) * rng.normal(size=(series, 1))
    shocks = deviation * rng.standard_normal((series, length))
    return np.where(chance(rng, 0.4, series) > 0, (drift + shocks).cumsum(1), mean + shocks)
