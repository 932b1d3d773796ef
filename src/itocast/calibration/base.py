"""What every calibrator is, and how corrections are kept: one for all rows, and one for each group of them."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from typing import Any, Self

import torch
from torch import Tensor

from itocast.clipped import Clipped
from itocast.forecast import Forecast


class Calibrator(ABC):
    """`fit` on rows that the model was not trained on, then `apply` to any forecast of the same steps and targets.

    `groups` are numbers from 0 that say which group a row belongs to; -1 is none of them. What a calibrator learns has
    a first axis of groups, of which the first is all rows together: it serves rows of no group, and steadies groups
    with few rows. Of laws that are kept inside a range the law before that is corrected, and kept inside it again.
    `keeps_points` says that a value which has a probability of its own inside the range stays where it is; corrections
    that do not say so leave no such value.
    """

    keeps_points = False

    @abstractmethod
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    @abstractmethod
    def fit(self, forecast: Forecast, y: Any, groups: Any = None, overlap: float = 1.0) -> Self:
        """Learn the correction and return the calibrator; y is nan where it is missing.

        `overlap` is how many of the rows tell as much as one independent row: forecasts of 12 steps
        from origins that follow one another share most of their outcomes.
        """

    def again(self, forecast: Forecast, y: Any, groups: Any, overlap: float) -> Calibrator:
        """One of the same kind that learned from other rows; of few outcomes the first has spoken."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return type(self)().fit(forecast, y, groups, overlap)

    def apply(self, forecast: Forecast, groups: Any = None) -> Forecast:
        """The corrected law."""
        if isinstance(forecast, Clipped):
            corrected = self.correct(forecast.solved, groups)
            return forecast.around(corrected) if self.keeps_points else Clipped(corrected, forecast.low, forecast.high)
        return self.correct(forecast, groups)

    @abstractmethod
    def correct(self, forecast: Forecast, groups: Any) -> Forecast:
        """The corrected law of one that is not kept inside a range."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """What the constructor takes to make this calibrator again: plain values and tensors."""


def outcomes(forecast: Forecast, y: Any, overlap: float = 1.0) -> Tensor:
    """Outcomes as (rows, horizon, targets), nan where missing; no rows are refused, and few are warned of.

    A step or target without any outcome is left as it is.
    """
    y = forecast.check(y, missing=True).double()
    if len(y) == 0:
        raise ValueError("y has no rows: a calibrator needs forecasts and their outcomes")
    counts = (~y.isnan()).sum(0)
    if counts.any():
        warn_of_few(round(int(counts[counts > 0].min()) / overlap), 95)
    return y


def warn_of_few(count: int, level: float) -> None:
    """Say so if an interval is wider than so many outcomes can tell.

    An interval of 95 % can only be learned from at least 19 outcomes, one of 99 % from 99: the largest of n errors is
    exceeded once in n + 1 times.
    """
    needed = math.ceil(100 / (100 - level) - 1e-9) - 1
    if count < needed:
        warnings.warn(
            f"{count} independent outcomes calibrate the forecasts, and intervals of {level:g} % need at least "
            f"{needed}: their width rests on the model more than on evidence, and may hold less; more rows would tell",
            stacklevel=4,
        )


def masks(groups: Any, rows: int) -> list[Tensor]:
    """Which rows belong to all together, then to each group."""
    everything = [torch.ones(rows, dtype=torch.bool)]
    if groups is None:
        return everything
    groups = torch.as_tensor(groups)
    if groups.shape != (rows,):
        raise ValueError(f"groups has shape {tuple(groups.shape)}: expected one number for each of {rows} rows")
    return everything + [groups == group for group in range(int(groups.max()) + 1 if rows else 0)]


def places(groups: Any, rows: int, count: int) -> Tensor:
    """Where the correction of each row is kept, of so many: at 0 where its group was not learned."""
    if groups is None:
        return torch.zeros(rows, dtype=torch.long)
    groups = torch.as_tensor(groups).long()
    return torch.where((groups >= 0) & (groups + 1 < count), groups + 1, 0)


def steady(learned: list[Tensor], counts: list[Tensor], enough: float = 20.0) -> Tensor:
    """Corrections stacked along a first axis, small groups drawn towards all: halfway at `enough` rows.

    From 20 outcomes a width is known to a fifth of itself, about as much as groups tend to differ by.
    """
    shares = [torch.ones_like(counts[0])] + [count / (count + enough) for count in counts[1:]]
    parts = [
        torch.where(share > 0, share * own.nan_to_num(0.0) + (1 - share) * learned[0], learned[0])
        for own, share in zip(learned, shares, strict=True)
    ]
    return torch.stack(parts)
