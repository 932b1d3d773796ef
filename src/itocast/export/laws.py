"""Laws inside a graph: what `Forecast`, `Transformed`, `Tabulated` and `Clipped` say, with a fixed number of steps.

Axes are rows, horizon, targets, then paths and components of a mixture, or levels of a table. Numbers are float64, but
for the error function: ONNX Runtime has it in float32, which knows a cdf to some 1e-8. That does for tables; single
quantiles are then polished with one in float64, made of a polynomial.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from itocast import mixtures, tabulated
from itocast.blend import unknown
from itocast.clipped import REACH
from itocast.export.special import Line, Normal, running_max
from itocast.tabulated import LEVELS, NODES

GRID = 64  # points of the first table of a cdf
PARTS = 8  # into which a bracket is cut at once
CUTS = 4  # times: brackets then are 1/262,144 of the range of the law
POLISH = 3  # Newton steps in float64
NOISE = 1e-7  # that a quick cdf may have
TINY = 1e-30
Ends = tuple[float, float]

normal = Normal()


class Levels(NamedTuple):
    """Ascending probabilities with all that follows from them alone: constants of a graph."""

    shares: Tensor
    scores: Tensor  # of a standard normal
    left: Tensor  # the node of a table before each
    way: Tensor  # and which share of the way to the next it is

    @classmethod
    def of(cls, shares: Tensor) -> Levels:
        scores = torch.special.ndtri(shares)
        return cls(shares, scores, *between(scores))


@dataclass(frozen=True)
class Moments:
    """Mean and both parts of the variance, (rows, horizon, targets)."""

    mean: Tensor
    aleatoric: Tensor
    epistemic: Tensor

    @property
    def variance(self) -> Tensor:
        return self.aleatoric + self.epistemic

    @property
    def share(self) -> Tensor:
        """The epistemic part of the variance."""
        return (self.epistemic / self.variance.clamp(min=1e-300)).clamp(max=1.0)


@dataclass(frozen=True)
class Mixture:
    """Gaussians (rows, horizon, targets, paths, components), seen through a warp and then scaled, if there is one."""

    means: Tensor
    deviations: Tensor
    weights: Tensor  # sum to 1 over components
    warp: Line | None = None
    scale: Tensor | None = None  # (rows, horizon, targets), of what the warp gives
    shift: Tensor | None = None
    again: Tensor | None = None  # (rows, 1, targets): for which the last component stands

    def affine(self, scale: Tensor, shift: Tensor) -> Mixture:
        """The law of scale·y + shift, both (rows, horizon, targets) or broadcast to it."""
        if self.warp is None:
            wide, far = scale[..., None, None], shift[..., None, None]
            return replace(self, means=self.means * wide + far, deviations=self.deviations * wide)
        assert self.scale is not None
        assert self.shift is not None
        return replace(self, scale=self.scale * scale, shift=self.shift * scale + shift)

    def wider(self, least: Tensor) -> Mixture:
        """The law of y + noise of a deviation, (rows, horizon, targets) or broadcast to it."""
        extra = least[..., None, None].square()
        return replace(self, deviations=(self.deviations.square() + extra).sqrt())

    def _outside(self, u: Tensor) -> Tensor:
        """From the scale of the mixture to the table's units, (rows, horizon, targets, …)."""
        if self.warp is None:
            return u
        assert self.scale is not None
        assert self.shift is not None
        extra = (...,) + (None,) * (u.ndim - 3)
        return self.warp(u.movedim(2, -1)).movedim(-1, 2) * self.scale[extra] + self.shift[extra]

    def moments(self, ends: Ends = (-math.inf, math.inf)) -> Moments:
        """Of the law kept inside a range."""
        means, variances = self._components(ends)
        path = (self.weights * means).sum(-1)  # (rows, horizon, targets, paths)
        within = (self.weights * (variances + (means - path[..., None]).square())).sum(-1)
        mean = path.mean(-1)
        return Moments(mean, within.mean(-1), (path - mean[..., None]).square().mean(-1))

    def _components(self, ends: Ends) -> tuple[Tensor, Tensor]:
        low, high = ends
        if self.warp is not None:
            nodes, weights = np.polynomial.hermite_e.hermegauss(32)
            u = self.means[..., None] + self.deviations[..., None] * torch.from_numpy(nodes)
            y, weight = self._outside(u).clamp(low, high), torch.from_numpy(weights / weights.sum())
            mean = y @ weight
            return mean, (y - mean[..., None]).square() @ weight
        variances = self.deviations.square()
        if math.isinf(low) and math.isinf(high):
            return self.means, variances
        first = second = before = density = far = torch.zeros_like(self.means)
        for end, sign in ((low, 1.0), (high, -1.0)):
            if math.isinf(end):
                continue
            z = (end - self.means) / self.deviations
            under, height = normal(z)
            height = height / math.sqrt(2 * math.pi)
            share = under if sign > 0 else 1.0 - under
            first, second = first + end * share, second + end**2 * share
            before, density, far = before + share, density + sign * height, far + sign * z * height
        inside, slope = 1.0 - before, self.deviations * density
        first = first + self.means * inside + slope
        second = second + (self.means.square() + variances) * inside + 2 * self.means * slope + variances * far
        return first, (second - first.square()).clamp(min=0.0)

    def quantiles(self, levels: Levels) -> Tensor:
        """Exact quantiles at ascending levels, (rows, horizon, targets, levels)."""
        flat = _Flat.of(self)
        return self._outside(flat.restore(flat.solve(levels), self.means.shape[:3]))

    def table(self) -> Tensor:
        """Quantiles at LEVELS as `Forecast.tabulate` finds them, (rows, horizon, targets, LEVELS)."""
        if self.again is not None:
            return self._pointed(self.again)
        flat = _Flat.of(self)
        return self._outside(flat.restore(flat.tabulate(NODED), self.means.shape[:3]))

    @property
    def within(self) -> Tensor:
        """How near to `again` values stand for it, (rows, horizon, targets)."""
        return REACH * self.deviations[..., 0, -1]

    def _pointed(self, again: Tensor) -> Tensor:
        """The table as `Pointed` finds it."""
        weights = self.weights.mean(-2)  # (rows, horizon, targets, components)
        share, left = weights[..., -1], weights[..., :-1].sum(-1).clamp(min=1e-12)
        flat = _Flat.of(
            Mixture(self.means[..., :-1], self.deviations[..., :-1], self.weights[..., :-1] / left[..., None, None])
        )
        place = (again.expand_as(share).reshape(-1, 1) - flat.centre) / flat.spread
        below = left[..., None] * flat._look(place, fine=True)[0].reshape(*share.shape, 1)
        part, levels = share[..., None], NODED.shares
        under, over = levels < below, levels > below + part
        inner = torch.where(over, 1 - (1 - levels) / left[..., None], torch.minimum(levels, below) / left[..., None])
        inner = inner.clamp(1e-12, 1 - 1e-12).reshape(-1, len(levels))
        found = flat.restore(flat.tabulate(NODED, inner), self.means.shape[:3])
        begin, end = ((again + side * self.within)[..., None] for side in (-1, 1))
        point = begin + (end - begin) * ((levels - below) / part.clamp(min=1e-300)).clamp(0, 1)
        return torch.where(under, torch.minimum(found, begin), torch.where(over, torch.maximum(found, end), point))


@dataclass(frozen=True)
class Table:
    """The quantiles of a law at LEVELS, (rows, horizon, targets, LEVELS), and the epistemic share of its variance."""

    values: Tensor
    share: Tensor

    @classmethod
    def of(cls, law: Mixture) -> Table:
        """A mixture as a table of its quantiles."""
        return cls(law.table(), law.moments().share)

    def affine(self, scale: Tensor, shift: Tensor) -> Table:
        """The law of scale·y + shift, both (rows, horizon, targets) or broadcast to it."""
        return replace(self, values=self.values * scale[..., None] + shift[..., None])

    def table(self) -> Tensor:
        """The same values, as those of a mixture."""
        return self.values

    def moments(self, ends: Ends = (-math.inf, math.inf)) -> Moments:
        """Of the law kept inside a range, as those of `Tabulated`."""
        values = self.values.clamp(*ends)
        mean = values @ tabulated._MEAN
        error = values - mean[..., None]
        both = error[..., :-1] * error[..., 1:]
        variance = (error.square() @ tabulated._SQUARE + 2 * (both @ tabulated._PRODUCT)).clamp(min=0.0)
        return Moments(mean, variance * (1 - self.share), variance * self.share)

    def quantiles(self, levels: Levels) -> Tensor:
        """By straight lines between normal scores, (rows, horizon, targets, levels)."""
        low = self.values[..., levels.left]
        return low + (self.values[..., levels.left + 1] - low) * levels.way


Law = Mixture | Table


def blended(one: Mixture, other: Mixture, share: Tensor, ends: Ends) -> Table:
    """What `blend.blended` makes of two laws kept inside a range, the share (rows, 1, targets)."""
    first, second = Table.of(one), Table.of(other)
    values = share[..., None] * first.values + (1 - share[..., None]) * second.values
    return Table(values, unknown(first.moments(ends), second.moments(ends), share))


def between(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The node before each of some scores, and which share of the way to the next it is."""
    left = torch.searchsorted(NODES, scores.contiguous()).clamp(1, len(NODES) - 1) - 1
    return left, (scores - NODES[left]) / (NODES[left + 1] - NODES[left])


NODED = Levels.of(LEVELS)


@dataclass(frozen=True)
class _Flat:
    """Mixtures as (points, components), standardised."""

    means: Tensor
    deviations: Tensor
    weights: Tensor
    centre: Tensor  # (points, 1)
    spread: Tensor

    @classmethod
    def of(cls, law: Mixture) -> _Flat:
        count = law.means.shape[-2] * law.means.shape[-1]
        means, deviations, weights = (
            part.reshape(-1, count) for part in (law.means, law.deviations, law.weights / law.means.shape[-2])
        )
        centre = (weights * means).sum(-1, keepdim=True)
        spread = (weights * (deviations.square() + (means - centre).square())).sum(-1, keepdim=True).sqrt()
        return cls((means - centre) / spread, deviations / spread, weights, centre, spread)

    def restore(self, u: Tensor, shape: tuple[int, ...]) -> Tensor:
        """From (points, levels) to (rows, horizon, targets, levels)."""
        return (u * self.spread + self.centre).reshape(-1, *shape[1:], u.shape[-1])

    def solve(self, levels: Levels) -> Tensor:
        """Quantiles at ascending levels, (points, levels): brackets are cut, then Newton polishes."""
        if self.means.shape[1] == 1:
            return self.means + self.deviations * levels.scores
        low, width = self._brackets(levels)
        u = low + 0.5 * width
        for _ in range(POLISH):
            reached, density = self._look(u, fine=True)
            density = density.clamp(min=TINY)
            most = 2 * width + NOISE / density
            step = (levels.shares - reached) / density
            u = u + torch.minimum(torch.maximum(step, -most), most)
        least, largest = self._bounds(levels.scores)
        return torch.minimum(torch.maximum(u, least), largest)

    def _bounds(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The smallest and largest quantile of the components at each score, between which that of the law lies."""
        each = self.means[:, None] + self.deviations[:, None] * scores[:, None]
        return each.amin(-1), each.amax(-1)

    def _brackets(self, levels: Levels) -> tuple[Tensor, Tensor]:
        """Where brackets begin and how wide they are, (points, levels) and (points, 1)."""
        wanted = levels.shares[:, None]
        first, last = self._bounds(levels.scores[[0, -1]])
        low, width = first[:, :1], (last[:, 1:] - first[:, :1]) / (GRID - 1)
        reached, _ = self._look(low + width * torch.arange(GRID))
        place = (reached[:, None] < wanted).sum(-1).clamp(1, GRID - 1) - 1
        low = low + width * place
        inner = torch.arange(1, PARTS)
        for _ in range(CUTS):
            width = width / PARTS
            points = low[..., None] + width[..., None] * inner  # (points, levels, PARTS - 1)
            reached = self._look(points.flatten(1))[0].reshape(points.shape)
            low = low + width * (reached < wanted).sum(-1)
        return low, width

    def _look(self, u: Tensor, fine: bool = False) -> tuple[Tensor, Tensor]:
        """cdf and density at (points, n), from one standardisation; `fine` ones are right to all digits of float64."""
        z = (u[..., None] - self.means[:, None]) / self.deviations[:, None]
        heights = (self.weights / self.deviations / math.sqrt(2 * math.pi))[..., None]
        if fine:
            under, height = normal(z)
            return 0.5 + ((under - 0.5) @ self.weights[..., None])[..., 0], (height @ heights)[..., 0]
        z = (z * math.sqrt(0.5)).float()
        under = z.erf().double() @ self.weights[..., None]
        return 0.5 + 0.5 * under[..., 0], ((-z * z).exp() @ heights.float())[..., 0].double()

    def tabulate(self, levels: Levels, own: Tensor | None = None) -> Tensor:
        """The steps of `mixtures.table`, (points, levels), at the levels or each point's own in their place.

        Where numbers are in single precision there they are here, but for sums, which would add a
        noise of their own.
        """
        shares = levels.shares if own is None else own
        kind = torch.float64 if self.means.shape[1] <= mixtures.FEW else torch.float32
        means, deviations = self.means.to(kind), self.deviations.to(kind)
        first, last = levels.scores[[0, -1]].to(kind).unbind()
        low = (means + first * deviations).amin(1, keepdim=True)
        high = (means + last * deviations).amax(1, keepdim=True)
        grid = low + (high - low) * torch.linspace(0, 1, mixtures.GRID, dtype=kind)
        reached, _ = self._reach(grid)
        inner = _between(shares, grid.double(), running_max(reached)).to(kind)
        grid = torch.cat([low, inner, high], 1)
        reached, density = self._reach(grid)
        return _look_up(shares, grid.double(), running_max(reached), density)

    def _reach(self, grid: Tensor) -> tuple[Tensor, Tensor]:
        """cdf and density at (points, n), in the precision of these."""
        if grid.dtype == torch.float64:
            return self._look(grid, fine=True)
        parts = (self.means, self.deviations, self.weights)
        means, deviations, weights = (part.float() for part in parts)
        z = (grid[..., None] - means[:, None]) / (deviations * math.sqrt(2))[:, None]
        reached = 0.5 + 0.5 * (z.erf().double() @ weights.double()[..., None])[..., 0]
        heights = weights / deviations / math.sqrt(2 * math.pi)
        density = ((-z * z).clamp(min=-85).exp() @ heights[..., None])[..., 0]
        return reached, density.double()


def _place(levels: Tensor, reached: Tensor) -> Tensor:
    """The first point of a table at which each level is reached, but the first of all."""
    return (reached[:, None] < levels[..., None]).sum(-1).clamp(1, reached.shape[1] - 1)


def _between(levels: Tensor, grid: Tensor, reached: Tensor) -> Tensor:
    """Quantiles by linear interpolation of a table, (points, levels)."""
    place = _place(levels, reached)
    (left, right), (below, above) = ((part.gather(1, place - 1), part.gather(1, place)) for part in (grid, reached))
    return left + (right - left) * ((levels - below) / (above - below).clamp(min=TINY)).clamp(0, 1)


def _look_up(levels: Tensor, grid: Tensor, reached: Tensor, density: Tensor) -> Tensor:
    """The cubic interpolation of `mixtures.quantile`, within the points around it."""
    place = _place(levels, reached)
    slopes = 1 / density.clamp(min=TINY)
    (left, right), (below, above), (rise, fall) = (
        (part.gather(1, place - 1), part.gather(1, place)) for part in (grid, reached, slopes)
    )
    width, height = right - left, (above - below).clamp(min=TINY)
    t = ((levels - below) / height).clamp(0, 1)
    rise, fall = (torch.minimum(slope * height, 3 * width) for slope in (rise, fall))
    s = 1 - t
    y = left + width * t * t * (3 - 2 * t) + t * s * (rise * s - fall * t)
    return torch.minimum(torch.maximum(y, left), right)
