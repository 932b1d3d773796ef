"""Isotonic recalibration: a monotone map of probabilities."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from itocast.calibration.base import Calibrator, masks, outcomes, places, steady
from itocast.forecast import Forecast
from itocast.tabulated import LEVELS, NODES, Tabulated

TAIL = 10  # outcomes beyond a level, fewer than which its place is guessed


class Isotonic(Calibrator):
    """Ask the law for another probability: that below which the wanted share of outcomes fell (Kuleshov et al. 2018).

    For each step and target the law's cdf at the outcomes is collected; where a law is right, a share p of these
    numbers lies below p. The corrected p-quantile is the old quantile of that level below which a share p of them lies,
    so the map is monotone by itself. Levels are kept as normal scores, which tell far outcomes apart; beyond the last
    ten outcomes on either side the map goes on as straight as it is between. Mean, bounds and shape all change; the
    ratio of aleatoric to epistemic variance stays.
    """

    keeps_points = True

    def __init__(self, scores: Any = ()) -> None:
        self.scores = torch.as_tensor(scores, dtype=torch.float64)  # (groups, NODES, horizon, targets)

    def fit(self, forecast: Forecast, y: Any, groups: Any = None, overlap: float = 1.0) -> Self:
        forecast, y = forecast.unclip(outcomes(forecast, y, overlap))
        seen = ~y.isnan()
        scores = Tabulated.of(forecast).scores(torch.where(seen, y, 0.0))
        scores = torch.where(seen, scores, torch.nan)
        parts = [scores[mask] for mask in masks(groups, len(y))]
        maps = steady([_map(part) for part in parts], [(~part.isnan()).sum(0) / overlap for part in parts])
        self.scores = torch.where(maps.isnan(), NODES.reshape(-1, 1, 1), maps)
        return self

    def correct(self, forecast: Forecast, groups: Any) -> Forecast:
        place = places(groups, len(forecast), len(self.scores))
        return Tabulated.of(forecast).moved(self.scores[place].movedim(1, 0))

    def to_dict(self) -> dict[str, Any]:
        return {"scores": self.scores}


def _map(scores: Tensor) -> Tensor:
    """The old scores below which the shares LEVELS of the outcomes lie, (nodes, horizon, targets)."""
    if len(scores) == 0:
        return torch.full((len(NODES), *scores.shape[1:]), torch.nan, dtype=torch.float64)
    count = (~scores.isnan()).sum(0)
    edge = (TAIL / count.clamp(min=1)).clamp(max=0.25)  # (horizon, targets)
    z, first = NODES.reshape(-1, 1, 1), torch.special.ndtri(edge)
    low, high = _at(scores, edge), _at(scores, 1 - edge)
    slope = ((high - low) / (-2 * first)).clamp(0.05, 20.0)
    known = scores.nanquantile(LEVELS, dim=0)
    known = torch.where(z < first, low + slope * (z - first), known)
    return torch.where(z > -first, high + slope * (z + first), known).cummax(0).values


def _at(scores: Tensor, p: Tensor) -> Tensor:
    """The quantile of each column at a probability of its own."""
    count = (~scores.isnan()).sum(0)
    place = (p * (count - 1).clamp(min=0)).round().long()
    return scores.sort(dim=0).values.gather(0, place[None])[0]  # nan last
