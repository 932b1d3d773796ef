"""Numbers of many Gaussian mixtures at once: means, deviations and weights are (points, components), in float64."""

from __future__ import annotations

import math

import torch
from torch import Tensor

GRID = 128  # points of the first table of a cdf
FEW = 8  # components up to which tables are in double precision
STEEPEST = math.exp(-0.5) / math.sqrt(2 * math.pi)  # slope of the standard normal density, at 1


def cdf(y: Tensor, means: Tensor, deviations: Tensor, weights: Tensor) -> Tensor:
    """The mixture's cdf at y (points, levels), exact in the lower tail too."""
    standard = (means[:, None, :] - y[:, :, None]).div_((deviations * math.sqrt(2))[:, None, :])
    return 0.5 * _total(standard.erfc_(), weights)


def cdf_and_density(y: Tensor, means: Tensor, deviations: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Both at y (points, levels), from one standardisation."""
    standard = (y[:, :, None] - means[:, None, :]).div_((deviations * math.sqrt(2))[:, None, :])
    reached = 0.5 + 0.5 * _total(standard.erf(), weights)
    heights = weights / deviations / math.sqrt(2 * math.pi)
    powers = standard.square_().neg_().clamp_(min=-85)  # smaller numbers would take ten times as long
    return reached, _total(powers.exp_(), heights)


def _total(values: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums over components of values (points, levels, components), which are overwritten.

    Not by a matrix product: that rounds a point in one way or another by how many points there are.
    """
    return values.mul_(weights[:, None, :]).sum(-1)


def quantile(levels: Tensor, means: Tensor, deviations: Tensor, weights: Tensor) -> Tensor:
    """Solve cdf(y) = level, (points, levels): from `table` by safeguarded Newton steps.

    Levels ascend; they are the same for all points, or each has its own.

    A mixture's quantile lies between the smallest and the largest of its components', which gives the first brackets. A
    step that leaves its bracket, or is not half the last one, is replaced by halving the bracket. The slope of a
    mixture's density has a bound, and so has what a step leaves of the error: what is within 1e-12 of the smaller tail
    drops out, mostly after one step.
    """
    mixture, y = (means, deviations, weights), table(levels, means, deviations, weights)
    level, slope = levels.expand_as(y), (STEEPEST * weights / deviations.square()).sum(1, keepdim=True).expand_as(y)
    first, last = ends_of(levels)
    low = (means + first * deviations).amin(1, keepdim=True).expand_as(y)
    high = (means + last * deviations).amax(1, keepdim=True).expand_as(y)
    before = high - low  # the length of the last step
    solution, open_ = torch.empty_like(y).view(-1), torch.arange(y.numel())
    for _ in range(200):
        reached, density = cdf_and_density(y, *mixture)
        error = reached - level
        low, high = torch.where(error < 0, y, low), torch.where(error > 0, y, high)
        step = error / density.clamp(min=1e-300)
        moved = y - step
        astray = (moved < low) | (moved > high) | (step.abs() > 0.5 * before)
        moved = torch.where(astray, (low + high) / 2, moved)
        y, before = moved, (moved - y).abs()
        solution[open_] = y.reshape(-1)
        left = 0.5 * slope * step.square()  # of the error, at most
        wrong = (astray | (left > 1e-12 * torch.minimum(level, 1 - level))) & (high - low > 4e-16 * y.abs())
        if not wrong.any():
            break
        open_ = open_[wrong.reshape(-1)]
        y, low, high, before, level, slope = (part[wrong][:, None] for part in (y, low, high, before, level, slope))
        point = open_ // levels.shape[-1]
        mixture = (means[point], deviations[point], weights[point])
    return solution.view(len(means), levels.shape[-1])


def table(
    levels: Tensor, means: Tensor, deviations: Tensor, weights: Tensor, ends: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Quantiles at ascending levels, (points, levels), nearly right on peaked laws too, in a fraction of the time.

    A table of the cdf alone, made anew where it says that the levels are, with the density, in
    deviations of the law. It spans the normal scores `ends` of the components, or those of the
    levels. Many components are computed in single precision. Of a rare wide one among few that would
    make noise of the far tails, which shows in the deviation of the law.
    """
    kind = torch.float64 if means.shape[1] <= FEW else torch.float32
    centre = (weights * means).sum(1, keepdim=True)
    spread = (weights * (deviations.square() + (means - centre).square())).sum(1, keepdim=True).sqrt()
    parts = ((means - centre) / spread, deviations / spread, weights)
    mixture = tuple(part.to(kind) for part in parts)
    first, last = (end.to(kind) for end in ends or ends_of(levels))
    low = (mixture[0] + first * mixture[1]).amin(1, keepdim=True)
    high = (mixture[0] + last * mixture[1]).amax(1, keepdim=True)
    grid, levels = low + (high - low) * torch.linspace(0, 1, GRID, dtype=kind), levels.to(kind)
    standard = (grid[:, :, None] - mixture[0][:, None, :]).div_(mixture[1][:, None, :] * math.sqrt(2))
    reached = (0.5 + 0.5 * _total(standard.erf_(), mixture[2])).cummax(1).values
    grid = torch.cat([low, _between(levels, grid, reached), high], 1)
    reached, density = cdf_and_density(grid, *mixture)
    y, left, right = _look_up(levels, grid, reached.cummax(1).values, density)
    return y.clamp(left, right).double() * spread + centre


def ends_of(levels: Tensor) -> tuple[Tensor, Tensor]:
    """The normal scores of the first and of the last level, (1,), or (points, 1) if each point has its own."""
    return torch.special.ndtri(levels[..., :1]), torch.special.ndtri(levels[..., -1:])


def _between(levels: Tensor, grid: Tensor, reached: Tensor) -> Tensor:
    """Quantiles by linear interpolation of a table, (points, levels)."""
    place = torch.searchsorted(reached, levels.expand(len(reached), -1).contiguous()).clamp_(1, grid.shape[1] - 1)
    (left, right), (below, above) = ((part.gather(1, place - 1), part.gather(1, place)) for part in (grid, reached))
    return left + (right - left) * ((levels - below) / (above - below).clamp(min=1e-30)).clamp(0, 1)


def _look_up(levels: Tensor, grid: Tensor, reached: Tensor, density: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A first guess of the quantiles by cubic interpolation of the inverse cdf, and the grid points around it."""
    least = torch.finfo(grid.dtype).tiny
    place = torch.searchsorted(reached, levels.expand(len(reached), -1).contiguous()).clamp_(1, grid.shape[1] - 1)
    (left, right), (below, above), (rise, fall) = (
        (part.gather(1, place - 1), part.gather(1, place)) for part in (grid, reached, 1 / density.clamp(min=least))
    )
    width, height = right - left, (above - below).clamp(min=least)
    t = ((levels - below) / height).clamp(0, 1)
    rise, fall = (torch.minimum(slope * height, 3 * width) for slope in (rise, fall))  # keeps the cubic monotone
    s = 1 - t
    return left + width * t * t * (3 - 2 * t) + t * s * (rise * s - fall * t), left, right


def mean_abs(difference: Tensor, deviation: Tensor) -> Tensor:
    """E|X| for X ~ N(difference, deviation²)."""
    z = difference / deviation
    density = (-0.5 * z.square()).exp() * math.sqrt(2 / math.pi)
    return deviation * density + difference * (z / math.sqrt(2)).erf()
