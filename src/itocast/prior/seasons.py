"""Which seasons series have: peaks of the periodogram at the harmonics of each candidate, with a rule for noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2
from torch import Tensor

Array = NDArray[np.float64]
MISTAKES = 0.05  # chance at most that pure noise is found to have a season
SHARE = 0.2  # of the series that must show a season
MOST = 200  # series that are looked at
FAR = 4.0  # changes beyond so many mean absolute ones are cut


def find_seasons(values: Tensor, candidates: tuple[int, ...]) -> tuple[int, int]:
    """The seasons, at most two, that series (series, length) share, the shorter first; 0 for none.

    A season is found where at least a fifth of the series show it, each at a level so strict that noise gets there
    in less than 5 % of all cases, however much the series depend on one another (Markov's inequality).

    >>> import torch
    >>> months = torch.arange(120).double()
    >>> find_seasons((months / 12 * 2 * torch.pi).sin()[None], (4, 12))
    (12, 0)
    """
    picked = np.unique(np.linspace(0, len(values) - 1, min(len(values), MOST)).astype(int))
    changes = [change for row in picked if len(change := changes_of(values[row].double().numpy())) > 3]
    level = MISTAKES * SHARE / max(len(candidates), 1)
    rest = changes  # without the seasons that were found
    powers: dict[int, float] = {}  # of these, in the changes as they are
    for season in sorted(candidates):
        long = [number for number, change in enumerate(rest) if len(change) >= 2 * season]
        shown = [number for number in long if show(rest[number], season)[0] < level]
        if season > 1 and len(shown) >= max(1, SHARE * len(changes)):
            powers[season] = float(np.mean([show(changes[number], season)[1] for number in long]))
            rest = [without(change, season) if len(change) >= 2 * season else change for change in rest]
    first, second = (*two_of(powers), 0, 0)[:2]
    return first, second


def two_of(powers: dict[int, float]) -> list[int]:
    """The two strongest; of a season and its multiple the shorter only if it holds far more than its share."""
    kept = []
    for short, power in powers.items():
        multiples = [long for long in powers if long > short and long % short == 0]
        if all(power > powers[long] * (1 + short / long) / 2 for long in multiples):
            kept.append(short)
    return sorted(sorted(kept, key=lambda season: -powers[season])[:2])


def changes_of(values: Array) -> Array:
    """Differences from the first to the last value seen, gaps filled by lines, in units of their mean size."""
    seen = np.flatnonzero(np.isfinite(values))
    if len(seen) < 2:
        return np.empty(0)
    place = np.arange(seen[0], seen[-1] + 1)
    change = np.diff(np.interp(place, seen, values[seen] / max(np.abs(values[seen]).max(), 1e-300)))
    change -= change.mean()
    size = max(np.abs(change).mean(), 1e-12)
    return (change / size).clip(-FAR, FAR)


def show(change: Array, season: int) -> tuple[float, float]:
    """The probability of peaks so high at the season's harmonics without one, and their power above the noise.

    Each harmonic's power is compared with the mean of the q frequencies around it: without a season their ratio r
    exceeds x with probability (1 + x/q)^-q. Harmonics are joined by Fisher's rule and by Bonferroni's.
    """
    cycles = len(change) // season
    power = np.abs(np.fft.rfft(change[-cycles * season :])) ** 2
    if power.sum() < 1e-9:
        return 1.0, 0.0
    harmonics = np.arange(1, (season + 1) // 2) * cycles  # but the fastest of an even season: half a frequency
    harmonics = harmonics if len(harmonics) else np.array([cycles])
    reach = max(1, cycles // 2)
    around = [k for k in range(-reach, reach + 1) if k and (k % cycles)]
    places = harmonics[:, None] + np.array(around)
    noise = power[np.abs(places).clip(1, len(power) - 1)].mean(1)
    noise = np.maximum(noise, 1e-9 * power.max())
    ratio = power[harmonics] / noise
    log_p = -len(around) * np.log1p(ratio / len(around))
    fisher = chi2.sf(-2 * log_p.sum(), 2 * len(log_p))
    bonferroni = len(log_p) * np.exp(log_p.min())
    excess = np.maximum(power[harmonics] - noise, 0).sum() / (cycles * season) ** 2
    return float(min(1.0, 2 * min(fisher, bonferroni))), float(excess)


def without(change: Array, season: int) -> Array:
    """The changes less their mean at each phase of the season."""
    phase = np.arange(len(change)) % season
    means = np.bincount(phase, change, season) / np.bincount(phase, minlength=season)
    return change - means[phase]
