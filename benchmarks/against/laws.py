"""Laws as quantiles at 0.01 … 0.99, and their scores: one rule for every peer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy.special import ndtr, ndtri

from itocast import metrics
from itocast.metrics import Scored

LEVELS = np.arange(1, 100) / 100
SCORES = ndtri(LEVELS)  # the same as normal scores
_HALF = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
KNOTS = np.array([*_HALF, 0.5, *(1 - p for p in reversed(_HALF))])  # the 19 levels of quantile regressions
SHOWN = ("rmse", "cwce", "cwce_one_sided", "r_cwce", "coverage_50", "coverage_80", "coverage_90", "coverage_95")


class Answer(NamedTuple):
    """What a peer says of the test part, and what that took."""

    quantiles: np.ndarray  # (99, rows, horizon, targets)
    mean: np.ndarray | None  # (rows, horizon, targets), if the peer has one
    fit_seconds: float
    predict_seconds: float
    size: int  # numbers learned, or leaves
    nll: float | None = None  # of the law itself, if the peer has a density


def interpolate(values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles at LEVELS from those at some levels, (levels, …): sorted, then linear in normal scores.

    Beyond the outermost levels a law goes on as it does between the last two.
    """
    values, nodes = np.sort(values, axis=0), ndtri(levels)
    right = np.clip(np.searchsorted(nodes, SCORES), 1, len(nodes) - 1)
    share = (SCORES - nodes[right - 1]) / (nodes[right] - nodes[right - 1])
    share = share.reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray(values[right - 1] + share * (values[right] - values[right - 1]))


def pit(quantiles: np.ndarray, y: np.ndarray, seed: int = 0) -> np.ndarray:
    """The cdf at each outcome, (n,), of laws (99, n): linear in normal scores, Gaussian beyond 0.01 and 0.99.

    An outcome on which a law puts probability, such as 0 where laws are cut off there, has a place within that
    probability drawn for it: so u is uniform if the law is right.
    """
    below, upto = (quantiles < y).sum(0), (quantiles <= y).sum(0)
    u = np.random.default_rng(seed).uniform(size=len(y))
    low = np.where(below == 0, 0.0, LEVELS[np.minimum(below, 98)])
    high = np.where(upto == 99, 1.0, LEVELS[np.maximum(upto, 1) - 1])
    drawn = low + u * (high - low)
    right = np.clip(below, 1, 98)
    first, final = below == 0, below == 99
    near = np.where(first, 0, np.where(final, 98, right - 1))  # from the outermost five levels in the tails
    far = np.where(first, 4, np.where(final, 94, right))
    at, to = (np.take_along_axis(quantiles, i[None], 0)[0] for i in (near, far))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = SCORES[near] + (y - at) * (SCORES[far] - SCORES[near]) / (to - at)
    z = np.where(final & (to == at), np.inf, z)  # beyond a flat end
    return np.where(below < upto, drawn, ndtr(z))


def pinball(quantiles: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The pinball loss of laws (99, n) at each outcome, (n,), a mean over the levels."""
    error, p = y - quantiles, LEVELS[:, None]
    loss: np.ndarray = np.maximum(p * error, (p - 1) * error).mean(0)
    return loss


def score(quantiles: np.ndarray, mean: np.ndarray | None, y: np.ndarray) -> dict[str, float]:
    """All scores of laws (99, rows, horizon, targets) against outcomes (rows, horizon, targets), nan if unknown.

    The CRPS is twice the mean pinball loss over the 99 levels; the RMSE is that of the peer's mean, or of the mean of
    its 99 quantiles if it has none.
    """
    seen = ~np.isnan(y)
    q, truth = quantiles[:, seen], y[seen]  # (99, n), (n,)
    centre = q.mean(0) if mean is None else mean[seen]
    crps = 2 * pinball(q, truth)
    unknown = np.full_like(truth, np.nan)
    columns = (truth, centre, unknown, crps, pit(q, truth), unknown, unknown)
    scored = Scored(
        *(torch.from_numpy(np.ascontiguousarray(c)) for c in columns), *torch.from_numpy(np.argwhere(seen).T)
    )
    found = {name: metrics.METRICS[name](scored) for name in SHOWN}
    return found | {"crps": float(crps.mean()), "width_90": float((q[94] - q[4]).mean())}
