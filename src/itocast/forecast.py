"""The predictive law: a mixture of Gaussians over paths, with exact cdf, quantiles, density and CRPS."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

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
    [-1.288, 3.288]
    """

    def __init__(self, means: Any, variances: Any, weights: Any = None) -> None:
        means, variances = _tensor("means", means), _tensor("variances", variances)
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
        weights = _tensor("weights", weights)
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
        """The law of some rows, by slice, mask or list of positions."""
        return self._map(lambda part: part[:, rows])

    @staticmethod
    def cat(laws: Sequence[Forecast]) -> Forecast:
        """The rows of several laws below one another."""
        parts = ("means", "log_variances", "log_weights")
        return Forecast.from_logs(*(torch.cat([getattr(law, part) for law in laws], dim=1) for part in parts))

    def affine(self, scale: Any, shift: Any) -> Forecast:
        """The law of scale·y + shift; `scale` and `shift` broadcast to (rows, horizon, targets)."""
        scale, shift = _tensor("scale", scale).double()[..., None], _tensor("shift", shift).double()[..., None]
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

    @property
    def path_means(self) -> Tensor:
        """The mean of each path, (paths, rows, horizon, targets)."""
        return (self.log_weights.exp() * self.means).sum(-1)

    @property
    def mean(self) -> Tensor:
        return self.path_means.mean(0)

    @property
    def aleatoric(self) -> Tensor:
        """Mean over the paths of the variance within a path: the noise in the data."""
        within = self.log_variances.exp() + (self.means - self.path_means[..., None]).square()
        return (self.log_weights.exp() * within).sum(-1).mean(0)

    @property
    def epistemic(self) -> Tensor:
        """Variance over the paths of the path's mean: what the model does not know."""
        return self.path_means.var(0, correction=0)

    @property
    def variance(self) -> Tensor:
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
        points = y.reshape(-1, self.means[0, ..., 0].numel()).T  # (points, levels)
        out = torch.empty_like(points)
        for rows, mixture in self._mixtures(points.shape[1]):
            out[rows] = _cdf(points[rows], *mixture)
        return out.T.reshape(y.shape)

    def quantile(self, p: Any) -> Tensor:
        """The smallest y with cdf(y) ≥ p, Eq. 5: (rows, horizon, targets), with a first axis if p is a sequence."""
        levels = _tensor("p", p).double()
        if levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"p={p}: expected numbers above 0 and below 1")
        order = levels.reshape(-1).argsort()
        ascending = levels.reshape(-1)[order]
        out = torch.empty(self.means[0, ..., 0].numel(), len(order), dtype=torch.float64)
        for rows, mixture in self._mixtures(max(64, len(order))):
            out[rows] = _quantile(ascending, *mixture)
        out = out.cummax(1).values[:, order.argsort()]  # quantiles never cross, whatever the rounding
        return out.T.reshape(*levels.shape, *self.shape)

    def interval(self, level: float = 95) -> tuple[Tensor, Tensor]:
        """The central interval that holds `level` percent: lower and upper bound."""
        lower, upper = self.quantile(central(level))
        return lower, upper

    def crps(self, y: Any) -> Tensor:
        """Continuous ranked probability score in the target's unit, closed form, (rows, horizon, targets)."""
        y = self.check(y).double().reshape(-1)
        out = torch.empty_like(y)
        for rows, (means, deviations, weights) in self._mixtures(self.means.shape[0] * self.means.shape[-1]):
            hit = _mean_abs(y[rows, None] - means, deviations)
            spread = _mean_abs(
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

    def check(self, y: Any, leading: bool = False) -> Tensor:
        """y as a tensor (rows, horizon, targets); one value a row will do where horizon and targets are 1."""
        y = _tensor("y", y)
        if y.ndim == 1 and self.shape == (len(y), 1, 1):
            return y[:, None, None]
        if y.shape[-3:] != self.shape or (y.ndim > 3 and not leading):
            raise ValueError(f"y has shape {tuple(y.shape)}: expected (rows, horizon, targets) = {self.shape}")
        return y

    def _mixtures(self, work: int) -> Iterator[tuple[slice, tuple[Tensor, Tensor, Tensor]]]:
        """Chunks of points with means, deviations and weights (points, components), in float64.

        `work` is how many numbers the caller computes for each point and component.
        """
        paths, *points, components = self.means.shape
        parts = [
            part.detach().movedim(0, -2).reshape(math.prod(points), -1)
            for part in (self.means, self.log_variances, self.log_weights)
        ]
        size = max(1, CHUNK // (work * paths * components))
        for start in range(0, math.prod(points), size):
            rows = slice(start, start + size)
            means, log_variances, log_weights = (part[rows].double() for part in parts)
            yield rows, (means, (0.5 * log_variances).exp(), log_weights.exp() / paths)


class Transformed(Forecast):
    """The law of y = inverse(u) where u follows `base` and `forward` is increasing with inverse `inverse`.

    `slope(y)` is the derivative of `forward`. Quantiles, cdf and density are exact; mean, variances and CRPS are
    integrals over quantiles at `nodes` levels. The epistemic share of the variance is that of the base.
    """

    nodes = 256

    def __init__(
        self, base: Forecast, forward: Callable[[Tensor], Tensor], inverse: Callable[[Tensor], Tensor],
        slope: Callable[[Tensor], Tensor],
    ) -> None:  # fmt: skip
        self.base, self.forward, self.inverse, self.slope = base, forward, inverse, slope
        self.means, self.log_variances, self.log_weights = base.means, base.log_variances, base.log_weights

    def __getitem__(self, rows: Any) -> Forecast:
        return Transformed(self.base[rows], self.forward, self.inverse, self.slope)

    def affine(self, scale: Any, shift: Any) -> Forecast:
        scale, shift = _tensor("scale", scale).double(), _tensor("shift", shift).double()
        return Transformed(
            self.base,
            lambda y: self.forward((y - shift) / scale),
            lambda u: self.inverse(u) * scale + shift,
            lambda y: self.slope((y - shift) / scale) / scale,
        )

    def _levels(self) -> Tensor:
        return (torch.arange(self.nodes, dtype=torch.float64) + 0.5) / self.nodes

    @property
    def mean(self) -> Tensor:
        return self.quantile(self._levels()).mean(0)

    @property
    def variance(self) -> Tensor:
        return self.quantile(self._levels()).var(0, correction=0)

    @property
    def epistemic(self) -> Tensor:
        return self.variance * (self.base.epistemic / self.base.variance)

    @property
    def aleatoric(self) -> Tensor:
        return self.variance * (self.base.aleatoric / self.base.variance)

    def path_log_prob(self, y: Any) -> Tensor:
        y = self.check(y)
        return self.base.path_log_prob(self.forward(y)) + self.slope(y).log()

    def cdf(self, y: Any) -> Tensor:
        return self.base.cdf(self.forward(self.check(y, leading=True)))

    def quantile(self, p: Any) -> Tensor:
        return self.inverse(self.base.quantile(p))

    def crps(self, y: Any) -> Tensor:
        """Twice the mean over levels of the pinball loss of the quantiles."""
        y, levels = self.check(y).double(), self._levels()
        error = y - self.quantile(levels)  # (levels, rows, horizon, targets)
        return 2 * torch.maximum(levels.reshape(-1, 1, 1, 1) * error, (levels.reshape(-1, 1, 1, 1) - 1) * error).mean(0)

    def sample(self, n: int, seed: int | torch.Generator = 0) -> Tensor:
        return self.inverse(self.base.sample(n, seed))


def central(level: float) -> tuple[float, float]:
    """The two probabilities of the central interval that holds `level` percent.

    >>> central(90)
    (0.05, 0.95)
    """
    if not 0 < level < 100:
        raise ValueError(f"level={level}: expected a percentage above 0 and below 100, such as 95")
    return (100 - level) / 200, (100 + level) / 200


def _tensor(name: str, value: Any) -> Tensor:
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} is not an array of numbers: {error}") from None
    return tensor if tensor.is_floating_point() else tensor.to(torch.float64)


def _cdf(y: Tensor, means: Tensor, deviations: Tensor, weights: Tensor) -> Tensor:
    """The mixture's cdf at y (points, levels)."""
    standard = (y[:, :, None] - means[:, None, :]).div_((deviations * math.sqrt(2))[:, None, :])
    return standard.erf_().add_(1).mul_(0.5 * weights[:, None, :]).sum(-1)


def _pdf(y: Tensor, means: Tensor, deviations: Tensor, weights: Tensor) -> Tensor:
    standard = (y[:, :, None] - means[:, None, :]).div_(deviations[:, None, :])
    factor = (weights / deviations / math.sqrt(2 * math.pi))[:, None, :]
    return standard.square_().mul_(-0.5).exp_().mul_(factor).sum(-1)


def _quantile(levels: Tensor, means: Tensor, deviations: Tensor, weights: Tensor) -> Tensor:
    """Solve cdf(y) = level for ascending levels, (points, levels): a table of the cdf, then safeguarded Newton.

    A mixture's quantile lies between the smallest and the largest quantile of its components, which gives the
    brackets; Newton steps that leave their bracket are replaced by halving it.
    """
    z = torch.special.ndtri(levels)
    low, high = (means[:, None, :] + deviations[:, None, :] * z[:, None]).aminmax(dim=-1)
    grid = low[:, :1] + (high[:, -1:] - low[:, :1]) * torch.linspace(0, 1, 48, dtype=torch.float64)
    table = _cdf(grid, means, deviations, weights)
    place = torch.searchsorted(table, levels.expand(len(table), -1).contiguous()).clamp_(1, grid.shape[1] - 1)
    left, right = grid.gather(1, place - 1), grid.gather(1, place)
    below, above = table.gather(1, place - 1), table.gather(1, place)
    low, high = torch.maximum(low, left), torch.minimum(high, right)
    y = torch.lerp(left, right, ((levels - below) / (above - below).clamp(min=1e-300)).clamp(0, 1)).clamp(low, high)
    tolerance = 1e-7 * torch.minimum(levels, 1 - levels)
    for _ in range(100):
        error = _cdf(y, means, deviations, weights) - levels
        low, high = torch.where(error < 0, y, low), torch.where(error > 0, y, high)
        step = error / _pdf(y, means, deviations, weights).clamp(min=1e-300)
        newton = y - step
        y = torch.where((newton > low) & (newton < high), newton, torch.where(error == 0, y, (low + high) / 2))
        if bool(
            ((error.abs() <= tolerance) | (high - low <= 4e-16 * y.abs())).all()
        ):  # the step taken squares the error
            break
    return y


def _mean_abs(difference: Tensor, deviation: Tensor) -> Tensor:
    """E|X| for X ~ N(difference, deviation²)."""
    z = difference / deviation
    density = (-0.5 * z.square()).exp() * math.sqrt(2 / math.pi)
    return deviation * density + difference * (z / math.sqrt(2)).erf()
