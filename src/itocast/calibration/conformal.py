"""Split conformal intervals: bounds that hold their share of outcomes whatever the law, if the world stays the same."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from itocast.calibration.base import Calibrator, masks, outcomes, places
from itocast.forecast import Forecast
from itocast.tabulated import HUGE, LEVELS, Tabulated

SIDE = (LEVELS - 0.5).sign()
SHARES = 2 * LEVELS[len(LEVELS) // 2 :] - 1  # of the central intervals, whose upper bounds are the upper half of LEVELS


class Conformal(Calibrator):
    """Mean ± deviation times a factor: that below which enough of the standardised errors were (Lei et al. 2018).

    Of n errors |y - mean| / deviation the one of rank ⌈(n + 1) p⌉ bounds the central interval of share p, for each step
    and target: it then holds at least p of later outcomes. Where that rank is above n, no finite bound does; the
    largest error is stretched in proportion to the normal scores instead, which the number of outcomes was warned of.
    There a group takes the factor of all rows, if it is larger than its own errors. The mean stays; the law becomes
    symmetric; the ratio of aleatoric to epistemic variance stays.

    >>> law = Forecast(torch.zeros(1, 99, 1, 1), torch.ones(1, 99, 1, 1))
    >>> conformal = Conformal().fit(law, torch.arange(1.0, 100.0))
    >>> [bound[0].item() for bound in conformal.apply(law).interval(90)]
    [-90.0, 90.0]
    """

    def __init__(self, factors: Any = ()) -> None:
        self.factors = torch.as_tensor(factors, dtype=torch.float64)  # (groups, SHARES, horizon, targets)

    def fit(self, forecast: Forecast, y: Any, groups: Any = None, overlap: float = 1.0) -> Self:
        forecast, y = forecast.unclip(outcomes(forecast, y, overlap))
        errors, shares = standardised(forecast, y), SHARES.reshape(-1, 1, 1)
        pooled = stretched(errors, shares)
        own = [ranked(errors[mask], shares) for mask in masks(groups, len(errors))[1:]]
        parts = [torch.where(there, value, value.nan_to_num(0.0).maximum(pooled)) for value, there in own]
        self.factors = torch.stack([pooled, *(part.cummax(0).values for part in parts)])
        return self

    def correct(self, forecast: Forecast, groups: Any) -> Forecast:
        factors = self.factors[places(groups, len(forecast), len(self.factors))]
        return symmetric(forecast, factors.movedim(1, 0))

    def to_dict(self) -> dict[str, Any]:
        return {"factors": self.factors}


class ConformalQuantiles(Calibrator):
    """The law's own bounds, moved outwards or inwards by what enough of the outcomes needed (Romano et al. 2019).

    For the interval of share p, an outcome needs max(low - y, y - high), which is negative inside; the need of rank
    ⌈(n + 1) p⌉ is added on both sides. Where that rank is above n, it is what the widest interval needed whose rank is
    not; a group takes what all rows needed there, if that is more. Unlike with `Conformal`, asymmetric laws keep their
    shape. The ratio of aleatoric to epistemic variance stays.
    """

    def __init__(self, moves: Any = ()) -> None:
        self.moves = torch.as_tensor(moves, dtype=torch.float64)  # (groups, SHARES, horizon, targets)

    def fit(self, forecast: Forecast, y: Any, groups: Any = None, overlap: float = 1.0) -> Self:
        forecast, y = forecast.unclip(outcomes(forecast, y, overlap))
        bounds = Tabulated.of(forecast).values  # (levels, rows, horizon, targets)
        needs = torch.maximum(bounds.flip(0) - y, y - bounds)[len(LEVELS) // 2 :].movedim(1, 0)  # (rows, shares, …)
        moves: list[Tensor] = []
        for mask in masks(groups, len(y)):
            value, there = ranked(needs[mask], SHARES.reshape(-1, 1, 1))
            last = value.gather(0, (there.sum(0, keepdim=True) - 1).clamp(min=0)).nan_to_num(0.0)
            moves.append(torch.where(there, value, last.maximum(moves[0]) if moves else last))
        self.moves = torch.stack(moves)
        return self

    def correct(self, forecast: Forecast, groups: Any) -> Forecast:
        law, moves = Tabulated.of(forecast), self.moves[places(groups, len(forecast), len(self.moves))].movedim(1, 0)
        half = len(LEVELS) // 2
        upper = (law.values[half:] + moves).clamp(min=law.values[half]).cummax(0).values
        lower = (law.values[: half + 1].flip(0) - moves).clamp(max=law.values[half]).cummin(0).values
        return Tabulated(torch.cat([lower.flip(0)[:-1], law.values[half, None], upper[1:]]), law.epistemic_share)

    def to_dict(self) -> dict[str, Any]:
        return {"moves": self.moves}


def standardised(forecast: Forecast, y: Tensor) -> Tensor:
    """|y - mean| / deviation, (rows, horizon, targets)."""
    return (y - forecast.mean).abs() / _variance(forecast).sqrt()


def symmetric(forecast: Forecast, factors: Tensor) -> Forecast:
    """The law mean ± deviation times factors, (SHARES, rows or 1, horizon, targets)."""
    both, variance = SIDE.reshape(-1, 1, 1, 1) * torch.cat([factors.flip(0)[:-1], factors]), _variance(forecast)
    return Tabulated(forecast.mean + both * variance.sqrt(), (forecast.epistemic / variance).clamp(max=1.0))


def _variance(forecast: Forecast) -> Tensor:
    return forecast.variance.double().clamp(1e-300, HUGE**2)  # that of a point or of the widest law is a number, too


def ranked(scores: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Of n scores (rows, …) those of rank ⌈(n + 1) share⌉, (shares, …), and whether there are so many.

    If not it is the largest; without any score it is nan. Scores have an axis of shares or are the same for all.
    """
    count = (~scores.isnan()).sum(0)
    wanted = ((count + 1) * shares - 1e-9).ceil().long().clamp(min=1)
    place = torch.minimum(wanted, count.clamp(min=1)) - 1
    if not len(scores):
        return torch.full_like(wanted, torch.nan, dtype=torch.float64), wanted <= count
    ordered = scores.sort(dim=0).values  # nan last
    value = ordered.gather(0, place) if scores.ndim == shares.ndim else ordered.gather(0, place[None])[0]
    return value, wanted <= count


def stretched(errors: Tensor, shares: Tensor) -> Tensor:
    """The error of the rank that a share asks for, (shares, horizon, targets); shares ascend and may exceed 1.

    Beyond the largest error it grows in proportion to normal scores. Without errors it is the normal score itself.
    """
    value, there = ranked(errors, shares)
    count = (~errors.isnan()).sum(0)
    asked = torch.special.ndtri(0.5 + 0.5 * shares.clamp(0.0, 1 - 1e-6)) + 2 * (shares - 1).clamp(min=0.0)
    largest = torch.special.ndtri(0.5 + 0.5 * count / (count + 1.0))  # the normal score of the largest error
    beyond = torch.where(count > 0, value * (asked / largest).clamp(min=1.0), asked)
    return torch.where(there, value, beyond).cummax(0).values
