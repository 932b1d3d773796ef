"""Variance scaling: one factor for the width of a law."""

from __future__ import annotations

from typing import Any, Self

import torch

from itocast.calibration.base import Calibrator, masks, outcomes, places, steady
from itocast.forecast import Forecast, central


class VarianceScaling(Calibrator):
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
        self.factors = torch.as_tensor(factors, dtype=torch.float64)  # (groups, horizon, targets)

    def fit(self, forecast: Forecast, y: Any, groups: Any = None) -> Self:
        forecast, y = forecast.unclip(outcomes(forecast, y))
        error = y - forecast.mean.double()
        bounds = forecast.quantile([share for level in self.levels for share in central(level)]) - forecast.mean
        low, high = bounds[::2].clamp(max=-1e-300), bounds[1::2].clamp(min=1e-300)
        stretch = error / torch.where(error < 0, low, high)  # that makes it reach y, (levels, rows, horizon, targets)
        share = sum(self.levels) / len(self.levels) / 100
        parts = [stretch[:, mask].flatten(0, 1) for mask in masks(groups, len(y))]
        nothing = torch.full_like(y[0], torch.nan)
        learned = [part.nanquantile(share, dim=0) if part.numel() else nothing for part in parts]
        counts = [(~part.isnan()).sum(0) / len(self.levels) for part in parts]
        self.factors = steady(learned, counts).nan_to_num(1.0).clamp(0.05, 20.0)
        return self

    def correct(self, forecast: Forecast, groups: Any) -> Forecast:
        factors = self.factors[places(groups, len(forecast), len(self.factors))]
        return forecast.affine(factors, forecast.mean.double() * (1 - factors))

    def to_dict(self) -> dict[str, Any]:
        return {"factors": self.factors}
