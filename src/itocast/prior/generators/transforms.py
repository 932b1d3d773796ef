"""What series are measured in: levels, logarithms, limits, whole numbers."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from itocast.prior.generators.common import Array, log_uniform, split, standard, uniform


def transform(rng: Generator, values: Array, past: int) -> Array:
    """A third of the series as they are with another level; others under exp, cut off, or rounded.

    What changes a series is drawn by its past alone.
    """
    series = len(values)
    values = standard(values, past)
    out = np.empty_like(values)
    plain, positive, grown, cut, whole, bounded = split(rng, series, [0.38, 0.2, 0.24, 0.06, 0.08, 0.04])
    level = rng.normal(size=(len(plain), 1)) * log_uniform(rng, 0.1, 100, len(plain))
    out[plain] = values[plain] + level
    out[positive] = lifted(rng, values[positive], past)
    out[grown] = np.exp(np.clip(log_uniform(rng, 0.05, 1.2, len(grown)) * values[grown], -12, 12))
    out[cut] = np.maximum(values[cut] + uniform(rng, -0.7, 2, len(cut)), 0)
    steps = log_uniform(rng, 0.5, 200, len(whole))
    out[whole] = np.round(lifted(rng, values[whole], past) * steps)
    steep = uniform(rng, 0.5, 3, len(bounded))
    out[bounded] = 1 / (1 + np.exp(-np.clip(steep * values[bounded], -50, 50)))
    return out


def lifted(rng: Generator, values: Array, past: int) -> Array:
    """Above 0 in the past, from just to far above, in deviations of it; cut off at 0 in the future."""
    lowest = values[:, :past].min(1, keepdims=True)
    return np.maximum(values - lowest + log_uniform(rng, 0.02, 30, len(values)), 0)
