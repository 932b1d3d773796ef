"""Calibrators: learn from forecasts and outcomes how to correct later forecasts."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from itocast.forecast import Forecast


class Calibrator(Protocol):
    """`fit` on rows that the model was not trained on, then `apply` to any forecast of the same steps and targets."""

    def fit(self, forecast: Forecast, y: Any) -> Calibrator:
        """Learn the correction and return the calibrator."""
        ...

    def apply(self, forecast: Forecast) -> Forecast:
        """The corrected law."""
        ...


class VarianceScaling:
    """Stretch a law about its mean by the factor that is most likely, one for each horizon step and target.

    The shape of the law, its mean and the ratio of aleatoric to epistemic variance stay.

    >>> law = Forecast(torch.zeros(1, 100, 1, 1), torch.ones(1, 100, 1, 1))
    >>> y = torch.linspace(-3, 3, 100)
    >>> round(VarianceScaling().fit(law, y).factors.item(), 3) == round(y.square().mean().sqrt().item(), 3)
    True
    """

    factors: Tensor  # (horizon, targets)

    def fit(self, forecast: Forecast, y: Any) -> VarianceScaling:
        y = forecast.check(y)
        if len(y) == 0:
            raise ValueError("y has no rows: a calibrator needs forecasts and their outcomes")
        _, horizon, targets = forecast.shape
        self.factors = torch.ones(horizon, targets, dtype=torch.float64)
        for step, target in np.ndindex(horizon, targets):
            part = forecast.select(step, target)
            truth = y[:, step : step + 1, target : target + 1]
            best = minimize_scalar(lambda s: _nll(part, truth, np.exp(s)), bounds=(-3, 3), method="bounded")  # noqa: B023
            self.factors[step, target] = float(np.exp(best.x))
        return self

    def apply(self, forecast: Forecast) -> Forecast:
        return _stretch(forecast, self.factors)


def _stretch(law: Forecast, factor: Tensor) -> Forecast:
    """The law of mean + factor (y - mean)."""
    return law.affine(factor, law.mean.double() * (1 - factor))


def _nll(law: Forecast, y: Tensor, factor: float) -> float:
    return -_stretch(law, torch.tensor(factor, dtype=torch.float64)).log_prob(y).mean().item()


CALIBRATORS: dict[str, type[Calibrator]] = {"variance": VarianceScaling}
