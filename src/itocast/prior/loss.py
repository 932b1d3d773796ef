"""What the prior learns by: CRPS and a share of the likelihood, relative to past changes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from itocast.forecast import Forecast
from itocast.nets import tame
from itocast.prior.inputs import Context, Units, growth_at

LIKELIHOOD = 0.4  # share of -log density in the loss
FAR = 10.0  # relative scores beyond it count as their logarithm
HEAVIEST = 4.0  # weight of a step's score at most, which else is the root of its size
WILDEST = 1e4  # units from the level at which an outcome is cut off


def loss_of(law: Forecast, y: Tensor, context: Context, units: Units, leads: Tensor) -> Tensor:
    """The mean loss of outcomes y (rows, steps), in the units of the values; missing ones are nan.

    It is relative to how far such steps went in the past, and to nothing of the future: a limit in
    units would reward laws that are too narrow where the future is wide.
    """
    seen = ~y.isnan()
    y = ((y - units.level) / units.unit).clamp(-WILDEST, WILDEST).float().nan_to_num()[..., None]
    size = growth_at(context.by_steps, leads.expand(len(y), -1)).exp()[..., None].clamp(1, 1e3)
    score = tame(crps(law, y) / size, FAR) * size.sqrt().clamp(max=HEAVIEST)
    surprise = tame(size.log() - law.log_prob(y), FAR)
    return (score + LIKELIHOOD * surprise)[seen].mean()


def crps(law: Forecast, y: Tensor) -> Tensor:
    """Closed form for one path, with a gradient, (rows, steps, 1)."""
    means, deviations = law.means[0], (0.5 * law.log_variances[0]).exp()
    weights = law.log_weights[0].exp()
    hit = (weights * absolute(y[..., None] - means, deviations)).sum(-1)
    components = means.shape[-1]
    one, two = torch.triu_indices(components, components, 1)
    both = (deviations[..., one].square() + deviations[..., two].square()).sqrt()
    pairs = weights[..., one] * weights[..., two] * absolute(means[..., one] - means[..., two], both)
    own = weights.square() * deviations / math.sqrt(math.pi)
    return hit - pairs.sum(-1) - own.sum(-1)


def absolute(difference: Tensor, deviation: Tensor) -> Tensor:
    """E|X| for X ~ N(difference, deviation²)."""
    z = difference / deviation
    density = (-0.5 * z.square()).exp() * math.sqrt(2 / math.pi)
    return deviation * density + difference * torch.erf(z * math.sqrt(0.5))
