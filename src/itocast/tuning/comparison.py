"""Whether settings are better than the defaults on rows that did not choose them, or by luck."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

CHANCE = 0.05  # that settings are kept which are no better, however many are compared


@dataclass(frozen=True)
class Compared:
    """The CRPS of the defaults less that of other settings, its standard error, and what it must exceed."""

    gain: float
    error: float
    needed: float

    @property
    def better(self) -> bool:
        return self.gain > self.needed


def compare(fits: dict[int, np.ndarray], counts: np.ndarray) -> dict[int, Compared]:
    """Settings 1, 2, … against the defaults, 0; those with less than two fits are left out.

    `fits` are sums of the CRPS of the same forecasts, (fits, blocks of time), and `counts` the number of forecasts of
    each block. The variance of a difference has two parts: that of blocks, which are paired and so long that the next
    one hardly depends on them, and that of seeds, pooled over all settings. What is needed is a quantile of Student's
    law with the degrees of freedom of Welch and Satterthwaite, at CHANCE divided by the number of comparisons.

    >>> fits = {0: np.array([[4.0, 5.0, 6.0], [4.1, 5.0, 6.1]]), 1: np.array([[2.0, 3.0, 4.1], [2.0, 3.1, 4.0]])}
    >>> compare(fits, np.array([2, 2, 2]))[1].better
    True
    """
    from scipy.stats import t as student

    fits = {number: rows for number, rows in fits.items() if len(rows) > 1}
    if 0 not in fits or len(fits) == 1:
        return {}
    free = sum(len(rows) - 1 for rows in fits.values())
    seeds = sum((len(rows) - 1) * np.var(scores(rows, counts), ddof=1) for rows in fits.values()) / free
    found: dict[int, Compared] = {}
    for number, rows in fits.items():
        if number == 0:
            continue
        difference = fits[0].mean(0) - rows.mean(0)  # (blocks,)
        gain = float(difference.sum() / counts.sum())
        of_blocks = np.var((difference - gain * counts) / counts.mean(), ddof=1) / len(counts)
        of_seeds = seeds * (1 / len(fits[0]) + 1 / len(rows))
        error = math.sqrt(of_blocks + of_seeds)
        degrees = error**4 / (of_blocks**2 / (len(counts) - 1) + of_seeds**2 / free) if error else free
        found[number] = Compared(gain, error, error * float(student.isf(CHANCE / (len(fits) - 1), degrees)))
    return found


def scores(rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The CRPS of each fit, from its sums over blocks."""
    return rows.sum(1) / counts.sum()
