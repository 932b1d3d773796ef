"""Distribution matching: how far outcomes are, as a whole, from what the laws of their rows let expect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from itocast.forecast import Forecast
from itocast.models.base import Batches, Model
from itocast.nets import Inputs
from itocast.sde import Noise

BANDWIDTHS = (0.5, 1.0, 2.0, 4.0)  # of the kernels, in deviations of a law
MOST = 1 << 22  # numbers that are computed at a time
WEIGHT = 30.0  # of the distance beside the model's own loss


@torch.no_grad()
def check_matching(model: Model, rows: Batches, epochs: int) -> None:
    """Refuse a model whose laws are no Forecasts before any time is spent on it."""
    law = model.eval()(rows.batch(slice(0, 1))[0], 1, Noise(0, shared=True))
    if not isinstance(law, Forecast):
        raise ValueError(
            f"matching={epochs}: {type(model).__name__} gives laws of kind {type(law).__name__}; expected a Forecast, "
            "a mixture of Gaussians: set matching=0, or match with a model of numbers"
        )


def matching_loss(model: Model, x: Inputs, y: Tensor, noise: Noise) -> Tensor:
    """The model's own loss, which keeps each row's law where it is, and the distance of all rows' laws from outcomes.

    The laws are those of forecasts: without the dropout of training, over as many paths as in validation.
    """
    own = model.train().loss(x, y, noise)
    law = model.eval()(x, model.validation_paths, noise)
    return own + WEIGHT * squared_mmd(*standardised(law, y)).mean()


def standardised(law: Forecast, y: Tensor) -> tuple[Forecast, Tensor]:
    """A law and its outcomes in the law's own unit: less its mean, over its deviation, both taken as constants.

    So rows of wide and narrow laws count alike, and a law can come nearer to outcomes in no other way than to move:
    a mean that flees its outcome, so as to look uncertain, gains nothing.
    """
    centre, log_variance = law.mean.detach(), law.variance.detach().log()
    scaled = Forecast.from_logs(
        (law.means - centre[..., None]) * (-0.5 * log_variance[..., None]).exp(),
        law.log_variances - log_variance[..., None],
        law.log_weights,
    )
    return scaled, (y - centre) * (-0.5 * log_variance).exp()


def squared_mmd(law: Forecast, y: Tensor, bandwidths: Sequence[float] = BANDWIDTHS) -> Tensor:
    """The squared maximum mean discrepancy of outcomes and the laws of their rows, (horizon, targets).

    Cui, Hu and Zhu (2020), with the mean over `bandwidths` h of the kernels exp(-(a - b)² / 2h²). Such a kernel is the
    mean of cos(t (a - b)) over Gaussian t, so the distance is the mean over t of |Σ_i (exp(i t y_i) - φ_i(t))|², where
    φ_i is the characteristic function of row i's law. Pairs of a row with itself are left out: the expectation is 0
    if every outcome follows its law. Outcomes that are nan are left out with their laws.

    Deviates: laws enter as they are, not by draws, so that work grows with the rows, not with their pairs; and training
    gives it standardised laws, since plain ones differ by their means far more than by their deviations.

    >>> y = torch.randn(4000, 1, 1, generator=torch.Generator().manual_seed(0))
    >>> laws = [Forecast(torch.zeros(1, 4000, 1, 1), torch.full((1, 4000, 1, 1), variance)) for variance in (1.0, 2.0)]
    >>> [round(squared_mmd(law, y).item(), 3) for law in laws]
    [0.0, 0.016]
    """
    t, shares = (part.to(law.means) for part in _frequencies(bandwidths))
    seen, size = ~y.isnan(), max(1, MOST // law.means.numel())
    total = torch.zeros_like(law.means[0, 0, ..., 0])
    again = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)  # in the backward pass: saves memory
    for some in zip(t.split(size), shares.split(size), strict=True):
        arguments = (law, torch.where(seen, y, 0.0).to(law.means), seen, *some)
        total = total + (_distance(*arguments) if size >= len(t) else again(_distance, *arguments))
    rows = seen.sum(0)
    return total / (rows * (rows - 1)).clamp(min=1)


def _distance(law: Forecast, y: Tensor, seen: Tensor, t: Tensor, shares: Tensor) -> Tensor:
    """The sum over pairs of two rows and the mean over some frequencies, (horizon, targets)."""
    t, shares = t.reshape(-1, 1, 1, 1, 1, 1), shares[:, None, None]
    sizes = (law.log_weights - 0.5 * t.square() * law.log_variances.exp()).exp() / len(law.means)
    angles = t * law.means  # (frequencies, paths, rows, horizon, targets, components)
    total = torch.zeros_like(y[0])
    for wave in (torch.cos, torch.sin):  # real and imaginary part
        gap = seen * (wave(t[:, 0, ..., 0] * y) - (sizes * wave(angles)).sum((1, 5)))
        total = total + (shares * (gap.sum(1).square() - gap.square().sum(1))).sum(0)
    return total


def _frequencies(bandwidths: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Values of t and their shares: the midpoint rule, which for Gaussians is all but exact.

    The kernel is true to 2e-6 up to distances of 2.5 times the widest bandwidth, and to 2e-4 up to four times.
    """
    if not bandwidths or not all(0 < h < math.inf for h in bandwidths):
        raise ValueError(f"bandwidths={bandwidths}: expected positive numbers, in the unit of y")
    step = 0.8 / max(bandwidths)
    nodes = [(i + 0.5) * step for i in range(math.ceil(4.5 / min(bandwidths) / step))]
    shares = [sum(h * math.exp(-0.5 * (h * t) ** 2) for h in bandwidths) for t in nodes]
    return torch.tensor(nodes, dtype=torch.float64), torch.tensor(shares, dtype=torch.float64) / sum(shares)
