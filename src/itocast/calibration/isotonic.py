"""Isotonic recalibration: a monotone map of probabilities."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from itocast.calibration.base import masks, outcomes, places, steady
from itocast.forecast import Forecast
from itocast.tabulated import LEVELS, Tabulated

TAIL = 10  # outcomes beyond a level below which its place is guessed from the last one that is known


class Isotonic:
    """Ask the law for another probability: that below which the wanted share of outcomes fell (Kuleshov et al. 2018).

    For each step and target the cdf at the outcomes is collected; where a law is right, a share p of these numbers lies
    below p. The corrected p-quantile is the old quantile of that level below which a share p of them lies, so the map
    is monotone by itself. Beyond the last ten outcomes on either side it goes on in proportion. Mean, bounds and shape
    all change; the ratio of aleatoric to epistemic variance stays.
    """

    def __init__(self, levels: Any = ()) -> None:
        self.levels = torch.as_tensor(levels, dtype=torch.float64)  # (groups, LEVELS, horizon, targets)

    def fit(self, forecast: Forecast, y: Any, groups: Any = None) -> Isotonic:
        y = outcomes(forecast, y)
        seen = ~y.isnan()
        u = torch.where(seen, forecast.cdf(torch.where(seen, y, 0.0)), torch.nan)
        parts = [u[mask] for mask in masks(groups, len(y))]
        learned = [_levels(part) for part in parts]
        self.levels = steady(learned, [(~part.isnan()).sum(0) for part in parts])
        return self

    def apply(self, forecast: Forecast, groups: Any = None) -> Forecast:
        place = places(groups, len(forecast), len(self.levels))
        return Tabulated.of(forecast).reached(self.levels[place].movedim(1, 0))

    def to_dict(self) -> dict[str, Any]:
        return {"levels": self.levels.tolist()}


def _levels(u: Tensor) -> Tensor:
    """The old levels below which the shares LEVELS of the outcomes lie, (levels, horizon, targets)."""
    count = (~u.isnan()).sum(0)
    known = u.nanquantile(LEVELS, dim=0) if len(u) else torch.full((len(LEVELS), *u.shape[1:]), torch.nan)
    p = LEVELS.reshape(-1, 1, 1)
    edge = (TAIL / count.clamp(min=2 * TAIL)).clamp(max=0.5)  # (horizon, targets)
    low, high = (_at(u, end) for end in (edge, 1 - edge))
    known = torch.where(p < edge, low * p / edge, known)
    known = torch.where(p > 1 - edge, 1 - (1 - high) * (1 - p) / edge, known)
    return known.cummax(0).values.clamp(1e-9, 1 - 1e-9)


def _at(u: Tensor, p: Tensor) -> Tensor:
    """The quantile of each column at a probability of its own."""
    ordered = u.sort(dim=0).values  # nan last
    count = (~u.isnan()).sum(0)
    place = (p * (count - 1).clamp(min=0)).round().long()
    return ordered.gather(0, place[None])[0]
