"""Gaussian processes by random Fourier features: smooth, rough, periodic and locally periodic kernels."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from itocast.prior.generators.common import Array, Whole, chance, log_uniform, split, uniform
from itocast.prior.generators.noise import coloured

FEATURES = 20


def gaussian(rng: Generator, seasons: Whole, length: int) -> Array:
    """A sum of two processes of random kernels, a line, and noise of a random size."""
    series = len(seasons)
    total = process(rng, seasons, length)
    some = np.flatnonzero(rng.random(series) < 0.5)
    total[some] += log_uniform(rng, 0.1, 2, len(some)) * process(rng, seasons[some], length)
    line = rng.normal(size=(series, 1)) * log_uniform(rng, 0.1, 10, series) * chance(rng, 0.4, series)
    total += line * np.linspace(0, 1, length)
    return total + log_uniform(rng, 0.01, 3, series) * coloured(rng, seasons, length)


def process(rng: Generator, seasons: Whole, length: int) -> Array:
    """√(2/J) Σ cos(ω_j t + φ_j) with frequencies ω from the kernel's spectrum, of deviation about 1."""
    series = len(seasons)
    frequency = np.zeros((series, FEATURES))
    weight = np.full((series, FEATURES), np.sqrt(2 / FEATURES))
    smooth, rough, periodic = split(rng, series, [0.35, 0.25, 0.4])
    scale = log_uniform(rng, 2, 2 * length, series)
    normal = rng.normal(size=(series, FEATURES)) / scale
    tail = np.sqrt(rng.gamma(rng.uniform(0.25, 2.5, (series, 1)), 1, (series, FEATURES)) + 1e-3)
    frequency[smooth] = normal[smooth]
    frequency[rough] = np.clip((normal / tail)[rough], -np.pi, np.pi)
    second = (seasons[:, 1] > 1) & (rng.random(series) < 0.4)
    season = np.where(second, seasons[:, 1], seasons[:, 0])
    own = np.exp(rng.uniform(np.log(3), np.log(60), series))  # an unknown cycle, where no season is told
    season = np.where(season > 1, season, own)[:, None]
    harmonic = rng.geometric(uniform(rng, 0.25, 0.9, series), (series, FEATURES))
    harmonic = np.minimum(harmonic, np.maximum(season / 2, 1))
    wander = normal * chance(rng, 0.5, series) * np.minimum(1, 4 * scale / season)
    frequency[periodic] = (2 * np.pi * harmonic / season + wander)[periodic]
    phase = rng.uniform(0, 2 * np.pi, (series, FEATURES))
    time = np.arange(length, dtype=np.float32)
    out = np.zeros((series, length), dtype=np.float32)
    for j in range(FEATURES):
        angle = frequency[:, j, None].astype(np.float32) * time + phase[:, j, None].astype(np.float32)
        out += weight[:, j, None].astype(np.float32) * np.cos(angle)
    return out.astype(float)
