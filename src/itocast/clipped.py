"""Forecasts that have a probability of single values: of the ends of a range, and of the last value again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from itocast import mixtures
from itocast.forecast import Forecast, as_rows, paths_last
from itocast.tabulated import Tabulated
from itocast.transformed import Transformed

SUPPORTS = {"real": (-math.inf, math.inf), "positive": (0.0, math.inf), "unit": (0.0, 1.0)}

GROWTH = 1.2207440846057596  # the root of x⁴ = x + 1
REACH = 5.0  # deviations of a Gaussian that stands for a value within which all of it lies


class Again(NamedTuple):
    """A value that may come again exactly, and how near to it a law's values stand for it: (rows, horizon, targets)."""

    value: Tensor
    within: Tensor

    @classmethod
    def of(cls, law: Forecast, value: Tensor) -> Again:
        """A value for which the last component of each path of a mixture stands."""
        return cls(value.expand(law.shape), REACH * (0.5 * law.log_variances[0, ..., -1].double()).exp())

    def is_at(self, y: Tensor) -> Tensor:
        """Which numbers stand for the value; none where it is nan."""
        return (y - self.value).abs() <= self.within


class Pointed(Forecast):
    """A mixture the last component of whose paths stands for a value: its quantiles are those of the rest, or there."""

    def __init__(self, base: Forecast, again: Again) -> None:
        self.means, self.log_variances, self.log_weights, self.again = (
            base.means, base.log_variances, base.log_weights, again,
        )  # fmt: skip

    def tabulate(self, levels: Tensor) -> Tensor:
        return self.quantiles(levels, partial(mixtures.table, ends=mixtures.ends_of(levels)))

    def quantiles(self, levels: Tensor, solve: Callable[..., Tensor] = mixtures.quantile) -> Tensor:
        weights = paths_last(self.log_weights.double().exp()).mean(-1)  # (rows, horizon, targets, components)
        share, left = weights[..., -1], weights[..., :-1].sum(-1).clamp(min=1e-12)
        rest = self._map(lambda part: part[..., :-1].double())
        rest.log_weights = rest.log_weights - left.log()[..., None]
        value = torch.where(self.again.value.isnan(), self.means[0, ..., -1].double(), self.again.value)
        below, levels = left * rest.cdf(value), levels.reshape(-1, 1, 1, 1)
        under, over = levels < below, levels > below + share
        inner = torch.where(over, 1 - (1 - levels) / left, torch.minimum(levels, below) / left)
        found = rest.quantiles(inner.clamp(1e-12, 1 - 1e-12), solve)
        begin, end = value - self.again.within, value + self.again.within
        point = begin + (end - begin) * ((levels - below) / share.clamp(min=1e-300)).clamp(0, 1)
        return torch.where(under, found.minimum(begin), torch.where(over, found.maximum(end), point))


class Clipped(Forecast):
    """The law of min(max(Y, low), high) where Y follows `base`: the ends may carry a share of the probability.

    No quantile is further from a target inside the range than before, so neither pinball loss nor CRPS can grow. The
    moments of each component are those of a clipped Gaussian, in closed form (of a Transformed law, by quadrature). A
    value in between may have a probability, too: what `base` has very near to `again` is put on it. `log_prob` is the
    logarithm of a probability at the ends and at `again`, of a density elsewhere, and -∞ beyond the ends.

    >>> law = Clipped(Forecast([[[[0.0]]]], [[[[1.0]]]]), 0.0, math.inf)
    >>> law.cdf([0.0]).item(), law.quantile(0.3).item(), round(law.mean.item(), 4)  # 1/√2π
    (0.5, 0.0, 0.3989)
    """

    def __init__(self, base: Forecast, low: float, high: float, again: Again | None = None) -> None:
        if not low < high:
            raise ValueError(f"low={low}, high={high}: expected an upper end above the lower one")
        self.base, self.low, self.high, self.again = base, low, high, again
        if not isinstance(base, Tabulated):
            self.means, self.log_variances, self.log_weights = base.means, base.log_variances, base.log_weights

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.base.shape

    def __repr__(self) -> str:
        return f"Clipped({self.base}, low={self.low:g}, high={self.high:g})"

    def around(self, base: Forecast) -> Clipped:
        """Another law of the same rows, kept as this one is."""
        return Clipped(base, self.low, self.high, self.again)

    def __getitem__(self, rows: Any) -> Forecast:
        rows = as_rows(rows, len(self))
        return self._part(self.base[rows], lambda part: part[rows])

    def select(self, step: int, target: int) -> Forecast:
        return self._part(self.base.select(step, target), lambda part: part[:, [step]][:, :, [target]])

    def _part(self, base: Forecast, change: Callable[[Tensor], Tensor]) -> Clipped:
        again = None if self.again is None else Again(*map(change, self.again))
        return Clipped(base, self.low, self.high, again)

    def join(self, laws: Sequence[Any]) -> Forecast:
        again = None if self.again is None else Again(*map(torch.cat, zip(*(law.again for law in laws), strict=True)))
        return Clipped(Forecast.cat([law.base for law in laws]), self.low, self.high, again)

    def affine(self, scale: Any, shift: Any) -> Forecast:
        raise TypeError("a clipped law has fixed ends: scale and shift its base before clipping")

    @property
    def mean(self) -> Tensor:
        return self._tabulated.mean if isinstance(self.base, Tabulated) else super().mean

    @property
    def aleatoric(self) -> Tensor:
        return self._tabulated.aleatoric if isinstance(self.base, Tabulated) else super().aleatoric

    @property
    def epistemic(self) -> Tensor:
        return self._tabulated.epistemic if isinstance(self.base, Tabulated) else super().epistemic

    @property
    def _tabulated(self) -> Tabulated:
        """What moments of a law of quantiles are taken of."""
        assert isinstance(self.base, Tabulated)
        return Tabulated(self.base.values.clamp(self.low, self.high), self.base.epistemic_share)

    def moments(self) -> tuple[Tensor, Tensor]:
        if isinstance(self.base, Transformed):
            return self.base.clipped_moments(self.low, self.high)
        mean, variance = (part.double() for part in self.base.moments())
        deviation = variance.sqrt()
        under_low, at_low, tail_low = _normal(self.low, mean, deviation)
        under_high, at_high, tail_high = _normal(self.high, mean, deviation)
        inside, slope = under_high - under_low, deviation * (at_low - at_high)
        first = mean * inside + slope
        second = (mean.square() + variance) * inside + 2 * mean * slope + variance * (tail_low - tail_high)
        for end, share in ((self.low, under_low), (self.high, 1 - under_high)):
            if math.isfinite(end):
                first, second = first + end * share, second + end**2 * share
        return first, (second - first.square()).clamp(min=0.0)

    def log_prob(self, y: Any) -> Tensor:
        y = self.check(y).double()
        single = (y == self.low) | (y == self.high)
        if self.again is not None:
            single |= self.again.is_at(y)
        logs = self.base.log_prob(y).double()
        if single.any():
            below, upto = self._around(y)
            logs = torch.where(single, (upto - below).log(), logs)
        return torch.where((y < self.low) | (y > self.high), -math.inf, logs)

    def cdf(self, y: Any) -> Tensor:
        y = self.check(y, leading=True).double()
        return torch.where(y < self.low, 0.0, self._around(y)[1])

    def pit(self, y: Any, first: int = 0) -> Tensor:
        y = self.check(y).double()
        below, upto = self._around(y.clamp(self.low, self.high))
        inside = below + _places(y.shape, first) * (upto - below)
        return torch.where(y < self.low, 0.0, torch.where(y > self.high, 1.0, inside))

    def _around(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """The probabilities of less than y and of at most y, for y inside the range: apart where y has one itself."""
        if self.again is None:
            below = upto = self.base.cdf(y)
        else:
            at, (value, within) = self.again.is_at(y), self.again
            below, upto = (self.base.cdf(torch.where(at, value + side * within, y)) for side in (-1, 1))
        return torch.where(y <= self.low, 0.0, below), torch.where(y >= self.high, 1.0, upto)

    def unclip(self, y: Tensor, first: int = 0) -> tuple[Forecast, Tensor]:
        law, at = Tabulated.of(self.solved), torch.where(y.isnan(), 0.0, y).clamp(self.low, self.high)
        scores = torch.special.ndtri(self.pit(at, first).clamp(1e-12, 1 - 1e-12))
        beyond = law.at(scores[None])[0]
        if self.again is not None:
            y = torch.where(self.again.is_at(y), beyond, y)
        y = torch.where(y <= self.low, beyond.clamp(max=self.low), y)
        return law, torch.where(y >= self.high, beyond.clamp(min=self.high), y)

    def quantile(self, p: Any) -> Tensor:
        return self.inside(self.solved.quantile(p))

    def tabulate(self, levels: Tensor) -> Tensor:
        return self.inside(self.solved.tabulate(levels))

    @property
    def solved(self) -> Forecast:
        """The base, of which quantiles can be asked: a point among Gaussians would take long, or be missed."""
        if self.again is None or isinstance(self.base, Tabulated):
            return self.base
        return Pointed(self.base, self.again)

    def crps(self, y: Any) -> Tensor:
        """That of the base, less what its law beyond the ends adds to it: ∫ F² below and ∫ (1 - F)² above."""
        y = self.check(y).double()
        if isinstance(self.base, Tabulated):
            return self._tabulated.crps(y)
        score = self.base.crps(y.clamp(self.low, self.high))
        score = score + (y - y.clamp(self.low, self.high)).abs()
        if math.isfinite(self.low):
            score = score - self._beyond(self.low, 1e-9)
        if math.isfinite(self.high):
            score = score - self._beyond(self.high, 1 - 1e-9)
        return score

    def _beyond(self, end: float, level: float) -> Tensor:
        """The integral of F², or of (1 - F)², from the base's quantile of an extreme level to the end."""
        far = self.solved.quantile(level)
        width = (far - end).clamp(min=0.0) if level > 0.5 else (end - far).clamp(min=0.0)
        nodes, weights = np.polynomial.legendre.leggauss(64)
        sign = 1.0 if level > 0.5 else -1.0
        total = torch.zeros_like(far)
        for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
            share = self.base.cdf(end + sign * width * node)
            total += weight * width * ((1 - share) if sign > 0 else share).square()
        return total

    def sample(self, n: int, seed: int | torch.Generator = 0) -> Tensor:
        return self.inside(self.base.sample(n, seed))

    def inside(self, values: Tensor) -> Tensor:
        """Values of the base, (…, rows, horizon, targets), as those of this law."""
        if self.again is not None:
            values = torch.where(self.again.is_at(values), self.again.value, values)
        return values.clamp(self.low, self.high)


def _normal(end: float, mean: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """At the standardised end z of a Gaussian: Φ(z), φ(z) and z φ(z)."""
    z = (end - mean) / deviation
    density = (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
    return torch.special.ndtr(z), density, torch.where(z.isinf(), 0.0, z * density)


def _places(shape: torch.Size, first: int) -> Tensor:
    """Numbers from 0 to 1 that spread evenly over rows, steps and targets, and over any part of them.

    Multiples of the powers of 1/g, where g⁴ = g + 1; only what follows the point counts.
    """
    total = torch.full((1,), 0.5, dtype=torch.float64)
    for axis, size in enumerate(shape):
        count = torch.arange(size, dtype=torch.float64) + (first if axis == 0 else 0)
        total = total[..., None] + count * GROWTH ** -(axis + 1)
    return (total % 1)[0]


def clip(law: Forecast, support: str, again: Again | None = None) -> Forecast:
    """A law inside what is possible: "real", "positive" (0 and above) or "unit" (0 to 1)."""
    return law if support == "real" and again is None else Clipped(law, *SUPPORTS[support], again)


def tabulated(law: Forecast) -> Forecast:
    """A law as a table of its quantiles, kept inside the same range."""
    return law.around(Tabulated.of(law.solved)) if isinstance(law, Clipped) else Tabulated.of(law)
