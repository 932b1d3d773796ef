"""Laws given by their quantiles: what calibrators make of a mixture whose shape was wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from itocast.forecast import Forecast, as_rows, as_tensor, paths_last


def _levels() -> Tensor:
    """0.005 … 0.995, so that the bounds of all intervals of whole percents are kept, and the tails to 4 deviations."""
    tail = torch.special.ndtr(torch.arange(-4.0, -2.6, 0.1, dtype=torch.float64))
    return torch.cat([tail, torch.arange(1, 200, dtype=torch.float64) / 200, 1 - tail.flip(0)])


LEVELS = _levels()
NODES = torch.special.ndtri(LEVELS)  # the same as normal scores
HUGE = 1e100  # no value is larger, so that squares are finite
UNIT = 10  # nodes to a unit of scores in the tails


def _weights() -> tuple[Tensor, Tensor, Tensor]:
    """E h_j, E h_j² and E h_j h_(j+1) under a standard normal: h_j is 1 at node j and falls to 0 at its neighbours.

    The first and last pieces go on for ever. With them mean and variance of a law are exact.
    """
    ends = torch.cat([torch.tensor([-math.inf]), NODES[1:-1], torch.tensor([math.inf])]).double()
    a, b, low, high = NODES[:-1], NODES[1:], ends[:-1], ends[1:]
    mass = torch.special.ndtr(high) - torch.special.ndtr(low)
    at_low, at_high = (torch.exp(-0.5 * end.square()) / math.sqrt(2 * math.pi) for end in (low, high))
    first = at_low - at_high
    second = mass + low.nan_to_num(posinf=0, neginf=0) * at_low - high.nan_to_num(posinf=0, neginf=0) * at_high
    width = b - a
    rise = (first - a * mass) / width  # E of the piece that rises from 0 at a to 1 at b
    rise2 = (second - 2 * a * first + a.square() * mass) / width.square()
    fall, fall2, both = mass - rise, mass - 2 * rise + rise2, rise - rise2
    zero = torch.zeros(1, dtype=torch.float64)
    return torch.cat([fall, zero]) + torch.cat([zero, rise]), torch.cat([fall2, zero]) + torch.cat([zero, rise2]), both


def _smoothing(reach: float = 0.25) -> Tensor:
    """The matrix that makes of quantiles at NODES their means over the scores within reach of each node.

    Beyond the last node a law goes on as steeply as it does over the last unit of scores.
    """
    points = NODES[:, None] + torch.linspace(-reach, reach, 101, dtype=torch.float64)  # (nodes, points)
    right = torch.searchsorted(NODES, points).clamp(1, len(NODES) - 1)
    left = right - 1
    left = torch.where(points < NODES[0], 0, left)
    right = torch.where(points < NODES[0], UNIT, right)
    left = torch.where(points > NODES[-1], len(NODES) - 1 - UNIT, left)
    share = (points - NODES[left]) / (NODES[right] - NODES[left])
    out = torch.zeros(len(NODES), len(NODES), dtype=torch.float64)
    return out.scatter_add_(1, left, 1 - share).scatter_add_(1, right, share) / points.shape[1]


_MEAN, _SQUARE, _PRODUCT = _weights()
_SMOOTH = _smoothing()


class Tabulated(Forecast):
    """The law of q(Z), Z standard normal, where q is linear between some scores and goes on beyond them.

    `values` are the quantiles at `LEVELS`, (levels, rows, horizon, targets). A Gaussian is exact, and any smooth law
    nearly so; bounds of intervals of whole percents are the values themselves. `epistemic_share` says which part of
    the variance is epistemic, (rows, horizon, targets): a table of quantiles cannot know. Quantiles that were learned
    from few outcomes come in steps, so `log_prob` is that of the law smoothed over a quarter of a deviation.

    >>> law = Tabulated(10 + 2 * NODES.reshape(-1, 1, 1, 1), torch.zeros(1, 1, 1))
    >>> [round(x.item(), 4) for x in (law.mean, law.variance.sqrt(), law.quantile(0.975), law.cdf([12.0]))]
    [10.0, 2.0, 13.9199, 0.8413]
    """

    def __init__(self, values: Any, epistemic_share: Any) -> None:
        values, share = as_tensor("values", values).double(), as_tensor("epistemic_share", epistemic_share).double()
        if values.ndim != 4 or len(values) != len(NODES):
            raise ValueError(f"values has shape {tuple(values.shape)}: expected ({len(NODES)}, rows, horizon, targets)")
        if values.isnan().any():
            raise ValueError(
                "values holds nan: expected all quantiles of a law; if a model forecast them, "
                "its training diverged: lower the learning rate"
            )
        values = values.clamp(-HUGE, HUGE)
        if (values[1:] < values[:-1]).any():
            values = values.cummax(0).values
        self.values, self.epistemic_share = values, share.expand(values.shape[1:])

    @classmethod
    def _trusted(cls, values: Tensor, epistemic_share: Tensor) -> Tabulated:
        law = cls.__new__(cls)
        law.values, law.epistemic_share = values, epistemic_share
        return law

    @classmethod
    def of(cls, law: Forecast) -> Tabulated:
        """A law as a table of its quantiles."""
        if isinstance(law, Tabulated):
            return law
        values, variance = law.tabulate(LEVELS), law.variance.double().clamp(1e-300, HUGE**2)
        values = torch.where(values.isnan(), law.mean, values)  # of a law too wide for numbers
        return cls(values, (law.epistemic / variance).clamp(max=1.0))

    @property
    def shape(self) -> tuple[int, int, int]:
        _, rows, horizon, targets = self.values.shape
        return rows, horizon, targets

    def __repr__(self) -> str:
        rows, horizon, targets = self.shape
        return f"Tabulated({rows=}, {horizon=}, {targets=})"

    def __getitem__(self, rows: Any) -> Forecast:
        rows = as_rows(rows, len(self))
        return Tabulated._trusted(self.values[:, rows], self.epistemic_share[rows])

    def select(self, step: int, target: int) -> Forecast:
        values, share = self.values[:, :, [step]][..., [target]], self.epistemic_share[:, [step]][..., [target]]
        return Tabulated._trusted(values, share)

    def join(self, laws: Sequence[Any]) -> Forecast:
        values = torch.cat([law.values for law in laws], dim=1)
        return Tabulated._trusted(values, torch.cat([law.epistemic_share for law in laws]))

    def affine(self, scale: Any, shift: Any) -> Forecast:
        scale, shift = as_tensor("scale", scale).double(), as_tensor("shift", shift).double()
        if not (scale > 0).all():
            raise ValueError(
                "scale holds numbers that are not positive: a law cannot be turned over or shrunk to a point"
            )
        return Tabulated(self.values * scale + shift, self.epistemic_share)

    def moved(self, scores: Tensor) -> Tabulated:
        """The law whose quantiles at NODES are those of this law at other scores, (nodes, rows, horizon, targets)."""
        return Tabulated(self.at(scores), self.epistemic_share)

    def scores(self, y: Tensor) -> Tensor:
        """The normal score of each outcome, (rows, horizon, targets): standard normal if the law is right."""
        return self._score(y.double())[0]

    @property
    def mean(self) -> Tensor:
        return _weigh(_MEAN, self.values)

    @property
    def variance(self) -> Tensor:
        error = self.values - self.mean
        total = _weigh(_SQUARE, error.square()) + 2 * _weigh(_PRODUCT, error[:-1] * error[1:])
        return total.clamp(min=0.0)

    @property
    def epistemic(self) -> Tensor:
        return self.variance * self.epistemic_share

    @property
    def aleatoric(self) -> Tensor:
        return self.variance * (1 - self.epistemic_share)

    def quantile(self, p: Any) -> Tensor:
        levels = as_tensor("p", p).double()
        if levels.ndim > 1 or levels.numel() == 0 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"p={p}: expected a number above 0 and below 1, or a list of such")
        scores = torch.special.ndtri(levels.reshape(-1))
        out = self.at(scores.reshape(-1, 1, 1, 1).expand(-1, *self.shape))
        return out.reshape(*levels.shape, *self.shape)

    def tabulate(self, levels: Tensor) -> Tensor:
        return self.quantile(levels)

    def at(self, scores: Tensor) -> Tensor:
        """q at normal scores, (n, rows, horizon, targets)."""
        right = torch.searchsorted(NODES, scores.contiguous()).clamp(1, len(NODES) - 1)
        low, high = self.values.gather(0, right - 1), self.values.gather(0, right)
        return low + (high - low) * (scores - NODES[right - 1]) / (NODES[right] - NODES[right - 1])

    def _score(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """The largest normal score whose quantile is at most y, and the slope of q there, for y of the law's shape."""
        flat = self.values.reshape(len(NODES), -1).T.contiguous()  # (points, nodes)
        points = y.reshape(-1, flat.shape[0]).T.contiguous()  # (points, n)
        right = torch.searchsorted(flat, points, right=True).clamp(1, len(NODES) - 1)
        low, high = flat.gather(1, right - 1), flat.gather(1, right)
        width = NODES[right] - NODES[right - 1]
        least = 1e-12 * (flat[:, -1:] - flat[:, :1]) + 1e-300  # where values repeat, nearly all of y is on one side
        slope = torch.maximum((high - low) / width, least)
        score = NODES[right - 1] + (points - low) / slope
        return score.T.reshape(y.shape), slope.T.reshape(y.shape)

    def cdf(self, y: Any) -> Tensor:
        return torch.special.ndtr(self._score(self.check(y, leading=True).double())[0])

    def log_prob(self, y: Any) -> Tensor:
        values = (_SMOOTH @ self.values.flatten(1)).reshape(self.values.shape)
        smooth = Tabulated._trusted(values, self.epistemic_share)
        score, slope = smooth._score(self.check(y).double())
        return -0.5 * (score.square() + math.log(2 * math.pi)) - slope.log()

    def crps(self, y: Any) -> Tensor:
        """The integral of (F(x) - 1{y ≤ x})² over x, F taken to be linear between the values."""
        y = self.check(y).double()
        inside = y.clamp(self.values[0], self.values[-1])
        widths = self.values.diff(dim=0)
        below = (widths * _squares(LEVELS[:-1], LEVELS[1:]).reshape(-1, 1, 1, 1)).cumsum(0)
        above = (widths * _squares(1 - LEVELS[:-1], 1 - LEVELS[1:]).reshape(-1, 1, 1, 1)).cumsum(0)
        piece = (self.values[1:-1] <= inside).sum(0, keepdim=True)  # in which y lies
        start, width, under, over = (part.gather(0, piece)[0] for part in (self.values, widths, below, above))
        low, high = LEVELS[piece[0]], LEVELS[piece[0] + 1]
        step = inside - start
        at = low + (high - low) * step / width.clamp(min=1e-300)
        under = under - width * _squares(low, high) + step * _squares(low, at)
        over = above[-1] - over + (width - step) * _squares(1 - at, 1 - high)
        return (y - inside).abs() + under + over

    def sample(self, n: int, seed: int | torch.Generator = 0) -> Tensor:
        generator = seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)
        return self.at(torch.randn(n, *self.shape, generator=generator, dtype=torch.float64))


def _weigh(weights: Tensor, values: Tensor) -> Tensor:
    """Weighted sums over the first axis."""
    return (paths_last(values) * weights).sum(-1)


def _squares(a: Tensor, b: Tensor) -> Tensor:
    """The mean of x² over x from a to b."""
    return (a.square() + a * b + b.square()) / 3
