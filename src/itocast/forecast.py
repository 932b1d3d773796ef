"""The predictive law: a mixture of Gaussians over paths, with exact cdf, quantiles, density and CRPS."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from itocast import mixtures

LEVELS = torch.arange(1, 100, dtype=torch.float64) / 100  # at which calibration is measured
CHUNK = 1 << 18  # elements a chunk of work may have: 2 MB of float64 stays in the cache


class Forecast:
    """A mixture of Gaussians for every row, horizon step and target.

    `means` and `variances` are arrays (paths, rows, horizon, targets), all paths of equal weight. With `weights`
    all three have a last axis of K components inside each path, and weights sum to one over it.

    >>> law = Forecast(means=[[[[0.0]]], [[[2.0]]]], variances=[[[[1.0]]], [[[1.0]]]])
    >>> law.mean.item(), law.aleatoric.item(), law.epistemic.item(), law.variance.item()
    (1.0, 1.0, 1.0, 2.0)
    >>> law.quantile([0.25, 0.5, 0.75]).flatten().tolist() == sorted(law.quantile([0.75, 0.25, 0.5]).flatten().tolist())
    True
    >>> [round(bound.item(), 3) for bound in law.interval(level=90)]
    [-1.284, 3.284]
    """

    def __init__(self, means: Any, variances: Any, weights: Any = None) -> None:
        means, variances = as_tensor("means", means), as_tensor("variances", variances)
        axes = 4 if weights is None else 5
        if means.ndim != axes:
            names = "(paths, rows, horizon, targets)" if axes == 4 else "(paths, rows, horizon, targets, components)"
            raise ValueError(f"means has shape {tuple(means.shape)}: expected {names}")
        if variances.shape != means.shape:
            raise ValueError(
                f"variances has shape {tuple(variances.shape)}: expected that of means, {tuple(means.shape)}"
            )
        if not (means.isfinite().all() and variances.isfinite().all()):
            raise ValueError("means or variances hold values that are not finite")
        if means.shape[0] == 0 or means.shape[-1] == 0:
            raise ValueError(f"means has shape {tuple(means.shape)}: expected at least one path and one component")
        if not (variances > 0).all():
            raise ValueError(
                f"variances has a smallest value of {variances.min().item():g}: expected all to be positive"
            )
        if weights is None:
            means, variances, weights = means[..., None], variances[..., None], torch.ones_like(means)[..., None]
        weights = as_tensor("weights", weights)
        if weights.shape != means.shape:
            raise ValueError(f"weights has shape {tuple(weights.shape)}: expected that of means, {tuple(means.shape)}")
        if not ((weights >= 0).all() and torch.allclose(weights.sum(-1), torch.ones_like(weights[..., 0]), atol=1e-4)):
            raise ValueError("weights must not be negative and must sum to 1 over the last axis")
        self.means, self.log_variances, self.log_weights = means, variances.log(), weights.log()

    @classmethod
    def from_logs(cls, means: Tensor, log_variances: Tensor, log_weights: Tensor) -> Forecast:
        """A law from a network's outputs, all (paths, rows, horizon, targets, components), taken on trust."""
        law = Forecast.__new__(Forecast)
        law.means, law.log_variances, law.log_weights = means, log_variances, log_weights
        return law

    def _map(self, change: Callable[[Tensor], Tensor]) -> Forecast:
        return Forecast.from_logs(change(self.means), change(self.log_variances), change(self.log_weights))

    def __getitem__(self, rows: Any) -> Forecast:
        """The law of some rows, by position, slice, mask or list of positions."""
        rows = as_rows(rows, len(self))
        return self._map(lambda part: part[:, rows])

    def select(self, step: int, target: int) -> Forecast:
        """The law of one horizon step and one target, (rows, 1, 1)."""
        return self._map(lambda part: part[:, :, [step]][:, :, :, [target]])

    @staticmethod
    def cat(laws: Sequence[Forecast]) -> Forecast:
        """The rows of several laws below one another."""
        return laws[0].join(laws)

    def join(self, laws: Sequence[Forecast]) -> Forecast:
        """What `cat` does for laws of this kind."""
        parts = ("means", "log_variances", "log_weights")
        return Forecast.from_logs(*(torch.cat([getattr(law, part) for law in laws], dim=1) for part in parts))

    @staticmethod
    def beside(laws: Sequence[Forecast]) -> Forecast:
        """The paths of several laws of the same rows beside one another."""
        parts = ("means", "log_variances", "log_weights")
        return Forecast.from_logs(*(torch.cat([getattr(law, part) for law in laws]) for part in parts))

    def affine(self, scale: Any, shift: Any) -> Forecast:
        """The law of scale·y + shift; `scale` and `shift` broadcast to (rows, horizon, targets)."""
        scale, shift = as_tensor("scale", scale).double()[..., None], as_tensor("shift", shift).double()[..., None]
        if (scale == 0).any():
            raise ValueError("scale holds 0: a law cannot be shrunk to a point")
        return Forecast.from_logs(
            self.means.double() * scale + shift,
            self.log_variances.double() + 2 * scale.abs().log(),
            self.log_weights.double(),
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rows, horizon, targets)."""
        _, rows, horizon, targets, _ = self.means.shape
        return rows, horizon, targets

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        rows, horizon, targets = self.shape
        paths, components = self.means.shape[0], self.means.shape[-1]
        return f"{type(self).__name__}({paths=}, {rows=}, {horizon=}, {targets=}, {components=})"

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of each component, (paths, rows, horizon, targets, components)."""
        return self.means, self.log_variances.exp()

    @property
    def path_means(self) -> Tensor:
        """The mean of each path, (paths, rows, horizon, targets)."""
        return (self.log_weights.exp() * self.moments()[0]).contiguous().sum(-1)

    @property
    def mean(self) -> Tensor:
        """The mean of the law, (rows, horizon, targets)."""
        return paths_last(self.path_means).mean(-1)

    @property
    def aleatoric(self) -> Tensor:
        """Mean over the paths of the variance within a path: the noise in the data."""
        (means, variances), weights = self.moments(), self.log_weights.exp()
        path_means = (weights * means).contiguous().sum(-1, keepdim=True)
        return paths_last((weights * (variances + (means - path_means).square())).contiguous().sum(-1)).mean(-1)

    @property
    def epistemic(self) -> Tensor:
        """Variance over the paths of the path's mean: what the model does not know."""
        means = paths_last(self.path_means)
        return (means - means.mean(-1, keepdim=True)).square().mean(-1)

    @property
    def variance(self) -> Tensor:
        """The variance of the law, the sum of both parts."""
        return self.aleatoric + self.epistemic

    def path_log_prob(self, y: Any) -> Tensor:
        """log p(y) under each path alone, (paths, rows, horizon, targets).

        In the stable form: -½ (y - μ)² e^(-s) - ½ s - ½ log 2π with s = log σ², Eq. 9.
        """
        error = self.check(y).to(self.means.dtype)[..., None] - self.means
        normal = -0.5 * (error.square() * (-self.log_variances).exp() + self.log_variances + math.log(2 * math.pi))
        return (self.log_weights + normal).logsumexp(-1)

    def log_prob(self, y: Any) -> Tensor:
        """log of the predictive density at y: of the mean over paths of the density, (rows, horizon, targets)."""
        return self.path_log_prob(y).logsumexp(0) - math.log(self.means.shape[0])

    def cdf(self, y: Any) -> Tensor:
        """P(Y ≤ y), exact; y is (rows, horizon, targets) or has further axes in front."""
        y = self.check(y, leading=True).double()
        points = y.reshape(math.prod(y.shape[:-3]), math.prod(self.shape)).T  # (points, levels)
        out = torch.empty_like(points)
        for rows, mixture in self._mixtures(points.shape[1]):
            out[rows] = mixtures.cdf(points[rows], *mixture)
        return out.T.reshape(y.shape)

    def pit(self, y: Any, first: int = 0) -> Tensor:
        """The cdf at each outcome, (rows, horizon, targets): uniform on [0, 1] if the law is right.

        An outcome that has a probability of its own is given a place within it, by the number of its row, counted from
        `first`.
        """
        return self.cdf(self.check(y))

    def unclip(self, y: Tensor, first: int = 0) -> tuple[Forecast, Tensor]:
        """The law before it was kept inside a range, and what outcomes, nan if missing, may have been before.

        An outcome at an end of the range stands for all that lies beyond it, of which its place as in `pit` is taken.
        """
        return self, y

    def quantile(self, p: Any) -> Tensor:
        """The smallest y with cdf(y) ≥ p, Eq. 5: (rows, horizon, targets), with a first axis if p is a sequence."""
        levels = as_tensor("p", p).double()
        if levels.ndim > 1 or levels.numel() == 0 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"p={p}: expected a number above 0 and below 1, or a list of such")
        order = levels.reshape(-1).argsort()
        out = self.quantiles(levels.reshape(-1)[order])[order.argsort()]
        return out.reshape(*levels.shape, *self.shape)

    def tabulate(self, levels: Tensor) -> Tensor:
        """Quantiles at many ascending levels, to a thousandth of a deviation, in a fraction of the time."""
        return self.quantiles(levels, mixtures.table)

    def quantiles(self, levels: Tensor, solve: Callable[..., Tensor] = mixtures.quantile) -> Tensor:
        """Quantiles at ascending levels, (levels,) or those of each point, (levels, rows, horizon, targets)."""
        own = None if levels.ndim == 1 else levels.flatten(1).T
        out = torch.empty(math.prod(self.shape), len(levels), dtype=torch.float64)
        for rows, mixture in self._mixtures(max(160, len(levels))):
            out[rows] = solve(levels if own is None else own[rows], *mixture)
        out = out.cummax(1).values  # quantiles never cross, whatever the rounding
        return out.T.reshape(len(levels), *self.shape)

    def interval(self, level: float = 95) -> tuple[Tensor, Tensor]:
        """The central interval that holds `level` percent: lower and upper bound."""
        lower, upper = self.quantile(central(level))
        return lower, upper

    def crps(self, y: Any) -> Tensor:
        """Continuous ranked probability score in the target's unit, closed form, (rows, horizon, targets)."""
        y = self.check(y).double().reshape(-1)
        out = torch.empty_like(y)
        for rows, (means, deviations, weights) in self._mixtures(self.means.shape[0] * self.means.shape[-1]):
            hit = mixtures.mean_abs(y[rows, None] - means, deviations)
            spread = mixtures.mean_abs(
                means[:, :, None] - means[:, None, :],
                (deviations[:, :, None].square() + deviations[:, None, :].square()).sqrt(),
            )
            out[rows] = (weights * hit).sum(1) - 0.5 * torch.einsum("ri,rij,rj->r", weights, spread, weights)
        return out.reshape(self.shape)

    def sample(self, n: int, seed: int | torch.Generator = 0) -> Tensor:
        """n draws, (n, rows, horizon, targets). A draw follows one path over all rows: it is one scenario."""
        generator = seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)
        path = torch.randint(self.means.shape[0], (n,), generator=generator)
        uniform = torch.rand(n, *self.shape, 1, generator=generator, dtype=torch.float64)
        steps = self.log_weights.double().exp().cumsum(-1)[path]
        part = (uniform > steps).sum(-1, keepdim=True).clamp_(max=self.means.shape[-1] - 1)
        normal = torch.randn(n, *self.shape, generator=generator, dtype=torch.float64)
        deviation = (0.5 * self.log_variances.double()[path].gather(-1, part)).exp()[..., 0]
        return self.means.double()[path].gather(-1, part)[..., 0] + deviation * normal

    def check(self, y: Any, leading: bool = False, missing: bool = False) -> Tensor:
        """y as a tensor (rows, horizon, targets); one value a row will do where horizon and targets are 1.

        Further axes in front and values that are nan are taken if `leading` and `missing` say so.
        """
        y = as_tensor("y", y)
        if y.ndim == 1 and self.shape == (len(y), 1, 1):
            y = y[:, None, None]
        if y.shape[-3:] != self.shape or (y.ndim > 3 and not leading):
            raise ValueError(f"y has shape {tuple(y.shape)}: expected (rows, horizon, targets) = {self.shape}")
        if not missing and y.isnan().any():
            raise ValueError(f"y holds {int(y.isnan().sum())} values that are not numbers: drop those rows")
        return y

    def _mixtures(self, work: int) -> Iterator[tuple[slice, tuple[Tensor, Tensor, Tensor]]]:
        """Chunks of points with means, deviations and weights (points, components), in float64.

        `work` is how many numbers the caller computes for each point and component.
        """
        paths, *points, components = self.means.shape
        parts = [
            part.detach().movedim(0, -2).reshape(math.prod(points), paths * components)
            for part in (self.means, self.log_variances, self.log_weights)
        ]
        size = max(1, CHUNK // (work * paths * components))
        for start in range(0, math.prod(points), size):
            rows = slice(start, start + size)
            means, log_variances, log_weights = (part[rows].double() for part in parts)
            yield rows, (means, (0.5 * log_variances).exp(), log_weights.exp() / paths)


def central(level: float) -> tuple[float, float]:
    """The two probabilities of the central interval that holds `level` percent.

    >>> central(90)
    (0.05, 0.95)
    """
    if not (isinstance(level, Real) and 1 <= level < 100):
        raise ValueError(f"level={level!r}: expected a percentage from 1 to below 100, such as 95")
    return (100 - level) / 200, (100 + level) / 200


def paths_last(values: Tensor) -> Tensor:
    """The first axis behind the others, in memory too: so a sum over it rounds alike, however many rows there are."""
    return values.movedim(0, -1).contiguous()


def as_tensor(name: str, value: Any) -> Tensor:
    """Any array of numbers as a floating tensor; `name` is for the error."""
    try:
        tensor = value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))  # Python floats in full
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} is not an array of numbers: {error}") from None
    return tensor if tensor.is_floating_point() else tensor.to(torch.float64)


def as_rows(rows: Any, count: int) -> Any:
    """Rows for indexing that keeps the axis of rows."""
    if not isinstance(rows, int | np.integer):
        return rows
    if not -count <= rows < count:
        raise IndexError(f"row {rows}: there are {count}")
    return [int(rows)]
