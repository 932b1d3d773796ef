"""Calibrators: learn from forecasts and outcomes how to correct later forecasts."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from itocast.forecast import Forecast


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
    """Stretch a law about its mean by the factor that is most likely, one for each horizon step and target.

    The shape of the law, its mean and the ratio of aleatoric to epistemic variance stay.

    >>> law = Forecast(torch.zeros(1, 100, 1, 1), torch.ones(1, 100, 1, 1))
    >>> y = torch.linspace(-3, 3, 100)
    >>> round(VarianceScaling().fit(law, y).factors.item(), 3) == round(y.square().mean().sqrt().item(), 3)
    True
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
                best = minimize_scalar(partial(_nll, law, truth), bounds=(-3, 3), method="bounded")
                self.factors[step, target] = float(np.exp(best.x))
        return self

    def apply(self, forecast: Forecast) -> Forecast:
        return _stretch(forecast, self.factors)

    def to_dict(self) -> dict[str, Any]:
        return {"factors": self.factors.tolist()}


def _stretch(law: Forecast, factor: Tensor) -> Forecast:
    """The law of mean + factor (y - mean)."""
    return law.affine(factor, law.mean.double() * (1 - factor))


def _nll(law: Forecast, y: Tensor, log_factor: float) -> float:
    return -_stretch(law, torch.tensor(math.exp(log_factor), dtype=torch.float64)).log_prob(y).mean().item()


CALIBRATORS: dict[str, type[Calibrator]] = {"variance": VarianceScaling}
