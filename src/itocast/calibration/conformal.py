"""Split conformal intervals: bounds that hold their share of outcomes whatever the law, if the world stays the same."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from itocast.calibration.base import masks, outcomes, places
from itocast.forecast import Forecast
from itocast.tabulated import LEVELS, NODES, Tabulated

CENTRAL = (2 * LEVELS - 1).abs()  # the share that lies between a level and its mirror image
SIDE = (LEVELS - 0.5).sign()


class Conformal:
    """Mean ± deviation times a factor: that below which enough of the standardised errors were (Lei et al. 2018).

    Of n errors |y - mean| / deviation the one of rank ⌈(n + 1) p⌉ bounds the central interval of share p, for each step
    and target: it then holds at least p of later outcomes. Where that rank is above n, no finite bound does; the
    largest error is stretched in proportion to the normal scores instead, which the number of outcomes was warned of.
    The mean stays; the law becomes symmetric; the ratio of aleatoric to epistemic variance stays.

    >>> law = Forecast(torch.zeros(1, 99, 1, 1), torch.ones(1, 99, 1, 1))
    >>> conformal = Conformal().fit(law, torch.arange(1.0, 100.0))
    >>> [bound[0].item() for bound in conformal.apply(law).interval(90)]
    [-90.0, 90.0]
    """

    def __init__(self, factors: Any = ()) -> None:
        self.factors = torch.as_tensor(factors, dtype=torch.float64)  # (groups, LEVELS, horizon, targets)

    def fit(self, forecast: Forecast, y: Any, groups: Any = None) -> Conformal:
        errors = (outcomes(forecast, y) - forecast.mean).abs() / forecast.variance.sqrt()
        self.factors = torch.stack(_own(errors, groups))
        return self

    def apply(self, forecast: Forecast, groups: Any = None) -> Forecast:
        factors = self.factors[places(groups, len(forecast), len(self.factors))].movedim(1, 0)  # (levels, rows, …)
        side = SIDE.reshape(-1, 1, 1, 1)
        values = forecast.mean + side * factors * forecast.variance.sqrt()
        return Tabulated(values, forecast.epistemic / forecast.variance)

    def to_dict(self) -> dict[str, Any]:
        return {"factors": self.factors.tolist()}


class ConformalQuantiles:
    """The law's own bounds, moved outwards or inwards by what enough of the outcomes needed (Romano et al. 2019).

    For the interval of share p, an outcome needs max(low - y, y - high), which is negative inside; the need of rank
    ⌈(n + 1) p⌉ is added on both sides. Unlike `Conformal`, asymmetric laws keep their shape. The ratio of aleatoric to
    epistemic variance stays.
    """

    def __init__(self, moves: Any = ()) -> None:
        self.moves = torch.as_tensor(moves, dtype=torch.float64)  # (groups, LEVELS, horizon, targets)

    def fit(self, forecast: Forecast, y: Any, groups: Any = None) -> ConformalQuantiles:
        y = outcomes(forecast, y)
        bounds = Tabulated.of(forecast).values  # (levels, rows, horizon, targets)
        needs = torch.maximum(bounds.flip(0) - y, y - bounds)[len(LEVELS) // 2 :]  # of the upper half of the levels
        moves = []
        for mask in masks(groups, len(y)):
            upper = torch.stack(
                [rank(need[mask], p)[0] for need, p in zip(needs, CENTRAL[len(LEVELS) // 2 :], strict=True)]
            )
            moves.append(torch.cat([upper.flip(0)[:-1], upper]))
        self.moves = torch.stack(moves)
        self.moves = torch.where(self.moves.isnan(), self.moves[:1], self.moves).nan_to_num(0.0)
        return self

    def apply(self, forecast: Forecast, groups: Any = None) -> Forecast:
        moves = self.moves[places(groups, len(forecast), len(self.moves))].movedim(1, 0)
        law = Tabulated.of(forecast)
        return Tabulated(monotone(law.values + SIDE.reshape(-1, 1, 1, 1) * moves), law.epistemic_share)

    def to_dict(self) -> dict[str, Any]:
        return {"moves": self.moves.tolist()}


def rank(scores: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Of n scores that of rank ⌈(n + 1) share⌉, nan if there are none, and whether there is one; the largest if not."""
    ordered = scores.sort(dim=0).values  # nan last
    count = (~scores.isnan()).sum(0)
    wanted = ((count + 1) * share - 1e-9).ceil().long().clamp(min=1)
    place = torch.minimum(wanted, count.clamp(min=1)) - 1
    return ordered.gather(0, place[None])[0], wanted <= count


def factors(errors: Tensor) -> Tensor:
    """The factor of each of LEVELS from standardised errors (rows, horizon, targets)."""
    found, last = [], None
    for node, share in zip(NODES[len(NODES) // 2 :], CENTRAL[len(NODES) // 2 :], strict=True):
        value, there = rank(errors, share)
        last = (value, torch.where(there, node, node)) if last is None else last
        beyond = last[0] * node / last[1].clamp(min=1e-9)
        value = torch.where(there, value, torch.maximum(beyond, last[0]))
        last = (torch.where(there, value, last[0]), torch.where(there, node, last[1]))
        found.append(value)
    upper = torch.stack(found)
    return torch.cat([upper.flip(0)[:-1], upper])


def _own(errors: Tensor, groups: Any) -> list[Tensor]:
    """Factors of all rows together, then of each group; where a group has no outcomes, those of all."""
    parts = [factors(errors[mask]) if mask.any() else None for mask in masks(groups, len(errors))]
    assert parts[0] is not None
    pooled = torch.where(parts[0].isnan(), NODES.abs().reshape(-1, 1, 1), parts[0])  # without outcomes: a Gaussian
    return [pooled if part is None else torch.where(part.isnan(), pooled, part) for part in parts]


def monotone(values: Tensor) -> Tensor:
    """Quantiles that do not cross: outwards from the median, none is nearer to it than the one before."""
    middle = len(values) // 2
    upper = values[middle:].cummax(0).values
    lower = values[: middle + 1].flip(0).cummin(0).values.flip(0)
    return torch.cat([lower[:-1], upper])
