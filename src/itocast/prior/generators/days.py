"""Days, weeks and years: two seasons of which the shorter changes with the longer, noise by time of day, solar."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from itocast.prior.generators.common import (
    Array,
    Whole,
    autoregression,
    chance,
    log_uniform,
    profile,
    split,
    uniform,
)
from itocast.prior.generators.noise import noise


def days(rng: Generator, seasons: Whole, length: int) -> Array:
    """Of series with seasons: busy days and quiet ones, or light that comes and goes; others wander."""
    series = len(seasons)
    out = np.zeros((series, length))
    busy, light = split(rng, series, [0.75, 0.25])
    out[busy] = activity(rng, seasons[busy], length)
    out[light] = sunlight(rng, seasons[light], length)
    return out


def activity(rng: Generator, seasons: Whole, length: int) -> Array:
    """A daily course times that of the week, with noise that grows with the level, and slow changes of both."""
    series = len(seasons)
    first, second = seasons.T
    course = np.exp(uniform(rng, 0.1, 1, series) * profile(rng, first, length))
    steps = np.maximum(first, 1)[:, None]
    cycle = (np.arange(length) + rng.integers(0, 1000, (series, 1))) // steps
    cycles = np.maximum(second // np.maximum(first, 1), 1)
    table = rng.normal(size=(series, cycles.max(initial=1)))
    quiet = np.take_along_axis(table, cycle % cycles[:, None], 1) * (second > 1)[:, None]
    slow = profile(rng, second, length)
    week = np.where(chance(rng, 0.6, series) > 0, quiet, slow)
    level = np.exp(uniform(rng, 0.05, 0.6, series) * week)
    other = np.exp(uniform(rng, 0.1, 1, series) * profile(rng, first, length))
    share = np.clip(0.5 + 0.5 * week, 0, 1) * chance(rng, 0.4, series)
    mean = level * ((1 - share) * course + share * other)
    per_day = rng.standard_normal((series, int(cycle.max(initial=0)) + 1)) * uniform(rng, 0, 0.3, series)
    mean = mean * np.exp(np.take_along_axis(per_day, cycle, 1) * chance(rng, 0.5, series))
    rough = autoregression(noise(rng, seasons, length), uniform(rng, 0, 0.95, series))
    size = log_uniform(rng, 0.02, 1, series)
    power = uniform(rng, 0, 1, series)
    slow_walk = 0.02 * rng.standard_normal((series, length)).cumsum(1) * chance(rng, 0.5, series)
    return mean * np.exp(np.clip(slow_walk, -3, 3)) + size * mean**power * rough


def sunlight(rng: Generator, seasons: Whole, length: int) -> Array:
    """The sun above the horizon times a clear sky that clouds hide: 0 at night."""
    series = len(seasons)
    first = np.where(seasons[:, 0] > 3, seasons[:, 0], 24)[:, None]
    angle = 2 * np.pi * (np.arange(length) + rng.integers(0, 1000, (series, 1))) / first
    sun = np.maximum(np.sin(angle) + uniform(rng, -0.5, 0.6, series), 0)
    clouds = autoregression(rng.standard_normal((series, length)), uniform(rng, 0.3, 0.98, series))
    clear = 1 / (1 + np.exp(uniform(rng, 0.2, 3, series) * clouds - uniform(rng, -1, 3, series)))
    return sun ** uniform(rng, 0.7, 1.5, series) * clear
