"""Numbers of many Gaussian mixtures at once: means, deviations and weights are (points, components), in float64."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def cdf(y: Tensor, means: Tensor, deviations: Tensor, weights: Tensor) -> Tensor:
    """The mixture's cdf at y (points, levels), exact in the lower tail too."""
    standard = (means[:, None, :] - y[:, :, None]).div_((deviations * math.sqrt(2))[:, None, :])
    return 0.5 * _total(standard.erfc_(), weights)


def cdf_and_density(y: Tensor, means: Tensor, deviations: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Both at y (points, levels), from one standardisation."""
    standard = (y[:, :, None] - means[:, None, :]).div_((deviations * math.sqrt(2))[:, None, :])
    reached = 0.5 + 0.5 * _total(standard.erf(), weights)
    heights = weights / deviations / math.sqrt(2 * math.pi)
    return reached, _total(standard.square_().neg_().exp_(), heights)


def _total(values: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums over components of values (points, levels, components), which are overwritten.

    Not by a matrix product: that rounds a point in one way or another by how many points there are.
    """
    return values.mul_(weights[:, None, :]).sum(-1)


def quantile(levels: Tensor, means: Tensor, deviations: Tensor, weights: Tensor, exact: bool = True) -> Tensor:
    """Solve cdf(y) = level for ascending levels, (points, levels): a table of the cdf, then safeguarded Newton.

    A mixture's quantile lies between the smallest and the largest quantile of its components, which gives the first
    brackets. Newton steps that leave their bracket are replaced by halving it. What is solved drops out. Unless the
    solution is to be exact, the table alone must do: it is made anew twice, each time where the last one says that the
    levels are, and is nearly right on peaked laws too.
    """
    mixture = (means, deviations, weights)
    low, high = (means[:, None, :] + deviations[:, None, :] * torch.special.ndtri(levels)[:, None]).aminmax(dim=-1)
    ends = low[:, :1], high[:, -1:]
    grid = ends[0] + (ends[1] - ends[0]) * torch.linspace(0, 1, 64, dtype=torch.float64)
    for _ in range(0 if exact else 2):
        y, _, _ = _look_up(levels[::2], grid, *cdf_and_density(grid, *mixture))
        grid = torch.cat([ends[0], y.clamp(*ends), ends[1]], 1).sort(dim=1).values
    y, left, right = _look_up(levels, grid, *cdf_and_density(grid, *mixture))
    low, high = torch.maximum(low, left), torch.minimum(high, right)
    y, level = y.clamp(low, high), levels.expand_as(y)
    if not exact:
        return y
    solution, open_ = torch.empty_like(y).view(-1), torch.arange(y.numel())
    for _ in range(200):
        reached, density = cdf_and_density(y, *mixture)
        error = reached - level
        low, high = torch.where(error < 0, y, low), torch.where(error > 0, y, high)
        newton = y - error / density.clamp(min=1e-300)
        y = torch.where((newton >= low) & (newton <= high), newton, (low + high) / 2)
        solution[open_] = y.reshape(-1)
        wrong = (error.abs() > 1e-10 * torch.minimum(level, 1 - level)) & (high - low > 4e-16 * y.abs())
        if not wrong.any():
            break
        open_ = open_[wrong.reshape(-1)]
        y, low, high, level = (part[wrong][:, None] for part in (y, low, high, level))
        point = open_ // len(levels)
        mixture = (means[point], deviations[point], weights[point])
    return solution.view(len(means), len(levels))


def _look_up(levels: Tensor, grid: Tensor, reached: Tensor, density: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A first guess of the quantiles by cubic interpolation of the inverse cdf, and the grid points around it."""
    place = torch.searchsorted(reached, levels.expand(len(reached), -1).contiguous()).clamp_(1, grid.shape[1] - 1)
    (left, right), (below, above), (rise, fall) = (
        (part.gather(1, place - 1), part.gather(1, place)) for part in (grid, reached, 1 / density.clamp(min=1e-300))
    )
    width, height = right - left, (above - below).clamp(min=1e-300)
    t = ((levels - below) / height).clamp(0, 1)
    rise, fall = (torch.minimum(slope * height, 3 * width) for slope in (rise, fall))  # keeps the cubic monotone
    s = 1 - t
    return left + width * t * t * (3 - 2 * t) + t * s * (rise * s - fall * t), left, right


def mean_abs(difference: Tensor, deviation: Tensor) -> Tensor:
    """E|X| for X ~ N(difference, deviation²)."""
    z = difference / deviation
    density = (-0.5 * z.square()).exp() * math.sqrt(2 / math.pi)
    return deviation * density + difference * (z / math.sqrt(2)).erf()
