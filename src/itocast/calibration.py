"""Calibrators: learn from forecasts and outcomes how to correct later forecasts."""

from __future__ import annotations

from typing import Any, Protocol

import torch

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
    """Stretch a law about its mean so that its wide intervals hold what they should, for each horizon step and target.

    The factor is the one at which the central intervals of 80, 90 and 95 % hold their shares of the outcomes, on
    average over the three. The shape of the law, its mean and the ratio of aleatoric to epistemic variance stay.

    >>> law = Forecast(torch.zeros(1, 999, 1, 1), torch.ones(1, 999, 1, 1))
    >>> y = 2 * torch.special.ndtri(torch.arange(1, 1000) / 1000)
    >>> round(VarianceScaling().fit(law, y).factors.item(), 2)
    2.0
    """

    levels = (80, 90, 95)

    def __init__(self, factors: Any = ()) -> None:
        self.factors = torch.as_tensor(factors, dtype=torch.float64)  # (horizon, targets)

    def fit(self, forecast: Forecast, y: Any) -> VarianceScaling:
        y = forecast.check(y, missing=True).double()
        if len(y) == 0:
            raise ValueError("y has no rows: a calibrator needs forecasts and their outcomes")
        error = y - forecast.mean.double()
        needed = []  # by how much an interval must be stretched to reach y, (levels, rows, horizon, targets)
        for level in self.levels:
            low, high = (bound - forecast.mean.double() for bound in forecast.interval(level))
            needed.append(error / torch.where(error < 0, low.clamp(max=-1e-300), high.clamp(min=1e-300)))
        share = sum(self.levels) / len(self.levels) / 100
        factors = torch.stack(needed).flatten(0, 1).nanquantile(share, dim=0)
        self.factors = factors.nan_to_num(1.0).clamp(0.05, 20.0)  # 1 where there is no outcome
        return self

    def apply(self, forecast: Forecast) -> Forecast:
        return forecast.affine(self.factors, forecast.mean.double() * (1 - self.factors))

    def to_dict(self) -> dict[str, Any]:
        return {"factors": self.factors.tolist()}


CALIBRATORS: dict[str, type[Calibrator]] = {"variance": VarianceScaling}
