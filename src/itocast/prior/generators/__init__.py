"""Synthetic series of many families, seeded: all that the prior ever saw. No real data, no licence to ask."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from itocast.prior.generators.arima import arima
from itocast.prior.generators.common import Array, Whole, log_uniform, split, standard
from itocast.prior.generators.counts import counts
from itocast.prior.generators.days import days
from itocast.prior.generators.diffusions import diffusion
from itocast.prior.generators.economy import economy
from itocast.prior.generators.events import events
from itocast.prior.generators.gaussian import gaussian
from itocast.prior.generators.smoothing import smoothing
from itocast.prior.generators.transforms import transform
from itocast.prior.generators.trends import textbook

FAMILIES = {  # each with its share of the series
    smoothing: 0.24,
    arima: 0.18,
    textbook: 0.2,
    gaussian: 0.14,
    diffusion: 0.12,
    days: 0.12,
}
COUNTS = 0.08  # share of series that are counts, which no transformation follows
ECONOMY = 0.22  # the same of those that grow by rates
PAIRS = 0.25  # share of series that are the sum of two families
COMMON = [4, 12, 7, 24, 52, 5, 6, 2, 3, 10, 30, 13, 48, 60, 96, 26, 168, 365]
COMMON_SHARES = [14, 22, 14, 14, 6, 3, 2, 1, 1, 2, 2, 1, 3, 1, 2, 1, 1, 1]
DOUBLE = [(24, 168), (7, 365), (12, 84), (48, 336), (7, 30), (5, 21), (4, 52), (96, 672), (7, 28)]
DOUBLE_SHARES = [10, 9, 1, 3, 2, 1, 2, 1, 1]


class World(NamedTuple):
    """Series and the seasons that they were made with."""

    values: Array  # (series, length)
    seasons: Whole  # (series, 2), the shorter first; 0 for none


def draw_seasons(rng: Generator, series: int, longest: int) -> Whole:
    """None, one or two seasons a series, of which the longer is at most `longest`."""
    out = np.zeros((series, 2), dtype=np.int64)
    _, common, any_, double, any_two = split(rng, series, [0.24, 0.48, 0.1, 0.14, 0.04])
    out[common, 0] = rng.choice(COMMON, len(common), p=np.array(COMMON_SHARES) / sum(COMMON_SHARES))
    out[any_, 0] = log_uniform(rng, 2, min(longest, 200), len(any_))[:, 0].astype(int)
    out[double] = rng.choice(DOUBLE, len(double), p=np.array(DOUBLE_SHARES) / sum(DOUBLE_SHARES))
    out[any_two, 0] = rng.integers(2, 25, len(any_two))
    out[any_two, 1] = out[any_two, 0] * rng.integers(2, 15, len(any_two))
    return np.where(out > longest, 0, out)


def draw(rng: Generator, series: int, past: int, future: int) -> World:
    """So many series of `past` + `future` values, each of a family or of two, with events, in a unit of its own.

    Levels and limits are drawn by the past alone: they say nothing of the future.
    """
    length = past + future
    seasons = draw_seasons(rng, series, longest=length)
    base = family(rng, seasons, length)
    some = np.flatnonzero(rng.random(series) < PAIRS)
    share = rng.uniform(0, 1, (len(some), 1))
    other = standard(family(rng, seasons[some], length), past)
    base[some] = np.sqrt(share) * standard(base[some], past) + np.sqrt(1 - share) * other
    values = transform(rng, events(rng, base, seasons, past), past)
    _, counted, grown = split(rng, series, [1 - COUNTS - ECONOMY, COUNTS, ECONOMY])
    values[counted] = counts(rng, seasons[counted], length)
    values[grown] = events(rng, economy(rng, seasons[grown], length), seasons[grown], past)
    return World(values, seasons)


def family(rng: Generator, seasons: Whole, length: int) -> Array:
    """Each series by one of the families."""
    out = np.zeros((len(seasons), length))
    for rows, kind in zip(split(rng, len(seasons), list(FAMILIES.values())), FAMILIES, strict=True):
        if len(rows):
            out[rows] = kind(rng, seasons[rows], length)
    return out
