"""Forecasts seen through an increasing map: scales that are not affine, and bounded targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from itocast.forecast import Forecast, as_rows, as_tensor


class Warp(Protocol):
    """An increasing map from the target's unit to another scale, along a last axis of targets."""

    def forward(self, y: Tensor) -> Tensor:
        """To the scale of the base law."""
        ...

    def inverse(self, u: Tensor) -> Tensor:
        """Back to the unit."""
        ...

    def slope(self, y: Tensor) -> Tensor:
        """The derivative of `forward`."""
        ...

    def select(self, target: int) -> Warp:
        """The map of one target."""
        ...


class Transformed(Forecast):
    """The law of y = scale · warp.inverse(u) + shift, where u follows `base`.

    Quantiles, cdf and density are exact. The moments of each component are integrals by Gauss-Hermite quadrature, so
    mean and both variances mean what they mean for any Forecast; CRPS is an integral over quantiles at `nodes` levels.
    """

    nodes = 256

    def __init__(self, base: Forecast, warp: Warp, scale: Any = 1.0, shift: Any = 0.0) -> None:
        self.base, self.warp = base, warp
        self.scale, self.shift = (as_tensor("scale", part).double().expand(base.shape) for part in (scale, shift))
        if not (self.scale > 0).all():
            raise ValueError(f"scale has a smallest value of {self.scale.min().item():g}: expected all to be positive")
        self.means, self.log_variances, self.log_weights = base.means, base.log_variances, base.log_weights

    def _forward(self, y: Tensor) -> Tensor:
        return self.warp.forward((y - self.shift) / self.scale)

    def _inverse(self, u: Tensor) -> Tensor:
        return self.warp.inverse(u) * self.scale + self.shift

    def __getitem__(self, rows: Any) -> Forecast:
        rows = as_rows(rows, len(self))
        return Transformed(self.base[rows], self.warp, self.scale[rows], self.shift[rows])

    def select(self, step: int, target: int) -> Forecast:
        scale, shift = (part[:, [step]][:, :, [target]] for part in (self.scale, self.shift))
        return Transformed(self.base.select(step, target), self.warp.select(target), scale, shift)

    def join(self, laws: Sequence[Any]) -> Forecast:
        if any(getattr(law, "warp", None) is not self.warp for law in laws):
            raise ValueError("laws differ in their warp: only parts of one law can be put below one another")
        scale, shift = (torch.cat([getattr(law, part) for law in laws]) for part in ("scale", "shift"))
        return Transformed(Forecast.cat([law.base for law in laws]), self.warp, scale, shift)

    def affine(self, scale: Any, shift: Any) -> Forecast:
        scale, shift = as_tensor("scale", scale).double(), as_tensor("shift", shift).double()
        return Transformed(self.base, self.warp, self.scale * scale, self.shift * scale + shift)

    def moments(self) -> tuple[Tensor, Tensor]:
        return self.clipped_moments(-math.inf, math.inf)

    def clipped_moments(self, low: float, high: float) -> tuple[Tensor, Tensor]:
        """Mean and variance of each component, its values kept inside a range."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(32)
        deviation = (0.5 * self.log_variances.double()).exp()

        def expected(value: Callable[[Tensor], Tensor]) -> Tensor:
            total = torch.zeros_like(deviation)
            for node, weight in zip(nodes, weights / weights.sum(), strict=True):
                u = (self.means.double() + node * deviation).movedim(-1, 0)  # components before (…, horizon, targets)
                total += weight * value(self._inverse(u).movedim(0, -1).clamp(low, high))
            return total

        mean = expected(lambda y: y)
        return mean, expected(lambda y: (y - mean).square())

    def path_log_prob(self, y: Any) -> Tensor:
        y = self.check(y)
        slope = self.warp.slope((y - self.shift) / self.scale) / self.scale
        return self.base.path_log_prob(self._forward(y)) + slope.log()

    def cdf(self, y: Any) -> Tensor:
        return self.base.cdf(self._forward(self.check(y, leading=True)))

    def quantile(self, p: Any) -> Tensor:
        return self._inverse(self.base.quantile(p))

    def tabulate(self, levels: Tensor) -> Tensor:
        return self._inverse(self.base.tabulate(levels))

    def crps(self, y: Any) -> Tensor:
        """Twice the mean over levels of the pinball loss of the quantiles, (rows, horizon, targets)."""
        levels = (torch.arange(self.nodes, dtype=torch.float64) + 0.5) / self.nodes
        error = self.check(y).double() - self.quantile(levels)  # (levels, rows, horizon, targets)
        levels = levels.reshape(-1, 1, 1, 1)
        return 2 * torch.maximum(levels * error, (levels - 1) * error).mean(0)

    def sample(self, n: int, seed: int | torch.Generator = 0) -> Tensor:
        return self._inverse(self.base.sample(n, seed))
