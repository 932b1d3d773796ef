"""Calibrators: learn from forecasts and outcomes how to correct later forecasts."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from itocast.forecast import LEVELS, Forecast
from itocast.metrics import observed_coverage


class Calibrator(Protocol):
    """`fit` on rows that the model was not trained on, then `apply` to any forecast of the same steps and targets."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def fit(self, forecast: Forecast, y: Any) -> Calibrator:
        """Learn the correction and return the calibrator; y is nan where it is missing."""
        ...

    def apply(self, forecast: Forecast) -> Forecast:
        """The corrected law."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """What the constructor takes to make this calibrator again, as plain values for JSON."""
        ...


class VarianceScaling:
    """Stretch a law about its mean until its intervals cover, by one factor for each horizon step and target.

    The factor minimises Σ p (E(p) - p)² over the levels of CWCE, E(p) being the coverage of the central interval. The
    shape of the law, its mean and the ratio of aleatoric to epistemic variance stay.

    >>> law = Forecast(torch.zeros(1, 1000, 1, 1), torch.ones(1, 1000, 1, 1))
    >>> y = 2 * torch.special.ndtri((torch.arange(1000) + 0.5) / 1000)
    >>> round(VarianceScaling().fit(law, y).factors.item(), 1)
    2.0
    """

    def __init__(self, factors: Any = ()) -> None:
        self.factors = torch.as_tensor(factors, dtype=torch.float64)  # (horizon, targets)

    def fit(self, forecast: Forecast, y: Any) -> VarianceScaling:
        y = forecast.check(y, missing=True)
        if len(y) == 0:
            raise ValueError("y has no rows: a calibrator needs forecasts and their outcomes")
        _, horizon, targets = forecast.shape
        self.factors = torch.ones(horizon, targets, dtype=torch.float64)
        for step, target in np.ndindex(horizon, targets):
            seen = ~y[:, step, target].isnan()
            if seen.any():
                law, truth = forecast[seen].select(step, target), y[seen][:, [step]][:, :, [target]]
                best = minimize_scalar(partial(_miscoverage, law, truth), bounds=(-2.5, 2.5), method="bounded")
                self.factors[step, target] = float(np.exp(best.x))
        return self

    def apply(self, forecast: Forecast) -> Forecast:
        return forecast.affine(self.factors, forecast.mean.double() * (1 - self.factors))

    def to_dict(self) -> dict[str, Any]:
        return {"factors": self.factors.tolist()}


def _miscoverage(law: Forecast, y: Tensor, log_factor: float) -> float:
    """Σ p (E(p) - p)² of the law stretched about its mean by a factor."""
    mean = law.mean.double()
    observed = observed_coverage(law.cdf(mean + (y - mean) / math.exp(log_factor)))
    return (LEVELS * (observed - LEVELS).square()).sum().item()


CALIBRATORS: dict[str, type[Calibrator]] = {"variance": VarianceScaling}
