"""Variance scaling: one factor for the width of a law."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from itocast.calibration.base import Calibrator, masks, outcomes, places, steady
from itocast.forecast import Forecast, central

WIDER = 20.0  # independent outcomes that are trusted by three quarters when they ask for a wider law
NARROWER = 60.0  # those when they ask for a narrower one: few outcomes are often near by luck


class VarianceScaling(Calibrator):
    """Stretch a law about its mean so that its wide intervals hold what they should.

    The factor is the one at which the central intervals of 80, 90 and 95 % hold their shares of the
    outcomes, on average over the three, for each horizon step and target. Few outcomes say little: a
    step is shrunk towards all steps together, a group towards all rows, and all of them towards a
    factor of 1, narrower laws more than wider ones. The shape of the law, its mean and the ratio of
    aleatoric to epistemic variance stay.

    >>> law = Forecast(torch.zeros(1, 999, 1, 1), torch.ones(1, 999, 1, 1))
    >>> y = 2 * torch.special.ndtri(torch.arange(1, 1000) / 1000)
    >>> round(VarianceScaling().fit(law, y).factors.item(), 2)
    2.0
    """

    levels = (80, 90, 95)

    def __init__(self, factors: Any = ()) -> None:
        self.factors = torch.as_tensor(factors, dtype=torch.float64)  # (groups, horizon, targets)

    def fit(self, forecast: Forecast, y: Any, groups: Any = None, overlap: float = 1.0) -> Self:
        forecast, y = forecast.unclip(outcomes(forecast, y, overlap))
        stretch = self._stretch(forecast, y)  # (levels, rows, horizon, targets)
        counts = [(~y[mask].isnan()).sum(0) / overlap for mask in masks(groups, len(y))]
        learned = [self._factor(stretch[:, mask]) for mask in masks(groups, len(y))]
        pooled = self._pooled(stretch, counts[0])
        share = counts[0] / (counts[0] + WIDER)
        learned[0] = share * learned[0].nan_to_num(1.0) + (1 - share) * pooled
        self.factors = steady(learned, counts).nan_to_num(1.0).clamp(0.05, 20.0)
        return self

    def _stretch(self, forecast: Forecast, y: Tensor) -> Tensor:
        """By how much the interval of each level must be stretched to reach each outcome."""
        error = y - forecast.mean.double()
        bounds = forecast.quantile([share for level in self.levels for share in central(level)])
        bounds = bounds - forecast.mean
        low, high = bounds[::2].clamp(max=-1e-300), bounds[1::2].clamp(min=1e-300)
        return error / torch.where(error < 0, low, high)

    def _factor(self, stretch: Tensor) -> Tensor:
        """The factor of each step and target from (levels, rows, horizon, targets)."""
        share = sum(self.levels) / len(self.levels) / 100
        flat = stretch.flatten(0, 1)
        if not len(flat):
            return torch.full(stretch.shape[2:], torch.nan, dtype=torch.float64)
        return flat.nanquantile(share, dim=0)

    def _pooled(self, stretch: Tensor, counts: Tensor) -> Tensor:
        """One factor for all steps of a target, shrunk towards 1, (targets,)."""
        together = self._factor(stretch.flatten(1, 2)[:, :, None])[0].nan_to_num(1.0)
        log_factor = together.clamp(0.05, 20.0).log()
        enough = torch.where(log_factor > 0, WIDER, NARROWER)
        doubt = enough / (enough + counts.amax(0))
        return ((1 - doubt.square()) * log_factor).exp()

    def correct(self, forecast: Forecast, groups: Any) -> Forecast:
        factors = self.factors[places(groups, len(forecast), len(self.factors))]
        return forecast.affine(factors, forecast.mean.double() * (1 - factors))

    def to_dict(self) -> dict[str, Any]:
        return {"factors": self.factors}
