"""When a forecast should not be relied on: the rule behind the column `abstain`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from itocast.data.windows import Windows

POINTS = 2000  # inputs of training that are kept, evenly spaced
AXES = 8  # directions in which they are told apart; with more of them small noise hides strange inputs
NEAREST = 5  # of them are what a distance is measured to
ROWS = 1024  # inputs that are compared at once
STEPS = 1001  # quantiles that are kept of what validation showed
OWN = 20  # validation forecasts without which a series has no usual deviation of its own
LEAST = 0.1  # what a feature that hardly moved in training is divided by: all features are of order 1
EMPTY = torch.empty(0)


@dataclass(frozen=True)
class Doubt:
    """How doubtful a forecast is, and from where on it is better not to rely on it.

    Three signals, each a number that is 0 or more:

    - the predictive deviation √v over what is usual for its series, step and target;
    - its epistemic part √(share · v), over the same, where share is the epistemic share of the variance v;
    - the distance of the input from the nearest inputs of training.

    Each becomes a surprise, -log of the share of validation forecasts in which it was as large, and goes on in
    proportion beyond the largest; their sum is the doubt (Fisher's way to join tests). Whoever wants to abstain from a
    share of the forecasts does so above that quantile of the doubts of validation.

    Why these, as the validation parts of Metro and Pickups say: the share alone goes the wrong way within a series. It
    is high where there is little noise, so the error of what is kept grows. Times the variance it is what the model
    does not know in the target's unit, and the error falls; with the deviation itself it falls faster. The distance
    says little about the error of usual inputs, and is there for strange ones. Deviations are relative because else a
    large series would always be doubted and a small one never. With one path there is no epistemic part, and the other
    two decide.

    Distances are Euclidean between standardised inputs, in the leading directions of training and in what is left
    over: its length is one more coordinate, so that a pattern that was never seen is far away too.
    """

    centre: Tensor  # (features,)
    spread: Tensor  # (features,)
    axes: Tensor  # (features, directions): orthonormal
    points: Tensor  # (points, directions + 1)
    usual: Tensor = EMPTY  # (horizon, targets): the median deviation, in scales of the series
    own: Tensor = EMPTY  # (series, targets): how many times larger it is in a series
    ladders: Tensor = EMPTY  # (3, STEPS): quantiles of the signals
    doubts: Tensor = EMPTY  # (STEPS,): quantiles of the doubt
    series: list[str] = field(default_factory=list)  # that have a usual deviation of their own

    @classmethod
    def of(cls, train: Windows) -> Self:
        """Remember what training looked like. It can doubt after `learned`."""
        inputs = torch.cat(list(_inputs(train.thin(POINTS))))
        centre, spread = inputs.mean(0), inputs.std(0, correction=0).clamp(min=LEAST)
        axes = _leading((inputs - centre) / spread)
        empty = cls(centre, spread, axes, EMPTY)
        return replace(empty, points=empty._place(inputs))

    def extended(self, train: Windows) -> Self:
        """The same after more training: new inputs beside the old ones, on the old scales."""
        new = torch.cat([self._place(part) for part in _inputs(train.thin(POINTS))])
        points = torch.cat([self.points, new])
        kept = torch.linspace(0, len(points) - 1, min(len(points), POINTS)).round().long()
        return replace(self, points=points[kept])

    def learned(self, windows: Windows, variance: Tensor, epistemic: Tensor) -> Self:
        """The same with what is usual and what is rare, from forecasts that were not trained on."""
        relative = variance.double().sqrt() / _scale(windows)  # (rows, horizon, targets)
        usual = _median(relative)
        relative = relative / usual
        number = windows.numbers.series[windows.origins]
        own = dict(zip(self.series, self.own, strict=True))
        for one in number.unique().tolist():
            rows = relative[number == one]
            if len(rows) * windows.horizon >= OWN:
                own[str(windows.numbers.labels["series"][one])] = _median(rows.flatten(0, 1)).float()
        table = torch.stack(list(own.values())) if own else EMPTY
        self = replace(self, usual=usual.float(), own=table, series=list(own))
        signals = self.signals(windows, variance, epistemic)
        self = replace(self, ladders=torch.stack([quantiles(signal) for signal in signals]))
        return replace(self, doubts=quantiles(self._sum(signals)))

    def score(self, windows: Windows, variance: Tensor, epistemic: Tensor) -> Tensor:
        """The doubt of each forecast, (rows, horizon, targets), from its variance and the epistemic part of that."""
        return self._sum(self.signals(windows, variance, epistemic))

    def marks(self, windows: Windows, variance: Tensor, epistemic: Tensor, rate: float) -> Tensor:
        """Which forecasts not to rely on, (rows, horizon, targets): a share `rate` of those like validation's."""
        place = (1 - rate) * (STEPS - 1)
        left = min(int(place), STEPS - 2)
        limit = self.doubts[left : left + 2].double()
        return self.score(windows, variance, epistemic) > limit[0] + (limit[1] - limit[0]) * (place - left)

    def distance(self, windows: Windows) -> Tensor:
        """The mean distance of each input to its nearest neighbours in training, (rows,)."""
        parts = []
        for inputs in _inputs(windows):
            apart = torch.cdist(self._place(inputs), self.points)
            parts.append(apart.topk(min(NEAREST, len(self.points)), largest=False).values.mean(1))
        return torch.cat(parts)

    def tensors(self) -> dict[str, Tensor]:
        """All but the names of series, to be saved."""
        return {name: value for name, value in vars(self).items() if name != "series"}

    def signals(self, windows: Windows, variance: Tensor, epistemic: Tensor) -> list[Tensor]:
        """Deviation, epistemic deviation and distance, each (rows, horizon, targets)."""
        unit = _scale(windows) * self.usual * self._own(windows)
        deviations = [part.double().clamp(min=0).sqrt() / unit for part in (variance, epistemic)]
        return [*deviations, self.distance(windows).double()[:, None, None].expand_as(unit)]

    def _sum(self, signals: list[Tensor]) -> Tensor:
        return torch.stack([surprise(*pair) for pair in zip(signals, self.ladders, strict=True)]).sum(0)

    def _own(self, windows: Windows) -> Tensor:
        """How many times larger than usual the deviation of each row's series is, (rows, 1, targets)."""
        place = {label: number for number, label in enumerate(self.series)}
        table = torch.cat([self.own.reshape(len(self.series), self.usual.shape[1]), torch.ones_like(self.usual[:1])])
        labels: Any = windows.numbers.labels["series"]
        numbers = torch.tensor([place.get(label, len(place)) for label in labels])
        return table[numbers[windows.numbers.series[windows.origins]]][:, None]

    def _place(self, inputs: Tensor) -> Tensor:
        """Inputs as points, (rows, directions + 1)."""
        inputs = (inputs - self.centre) / self.spread
        along = inputs @ self.axes
        return torch.cat([along, torch.linalg.vector_norm(inputs - along @ self.axes.T, dim=1, keepdim=True)], 1)


def _inputs(windows: Windows) -> Iterator[Tensor]:
    """What a model reads, some rows at a time, (rows, features); of past covariates the latest values alone."""
    for part in windows.chunks(ROWS):
        x = part.batch(slice(None))[0]
        yield torch.cat([x.lags.flatten(1), x.past[:, -1], x.known], 1)


def _leading(inputs: Tensor) -> Tensor:
    """Orthonormal directions in which inputs vary most, (features, directions), by subspace iteration."""
    generator = torch.Generator().manual_seed(0)
    features = inputs.shape[1]
    axes = torch.randn(features, min(AXES, features), generator=generator)
    for _ in range(10):
        axes = torch.linalg.qr(inputs.T @ (inputs @ axes)).Q
    return axes.contiguous()


def _scale(windows: Windows) -> Tensor:
    """The scale of each row's series, (rows, 1, targets)."""
    return windows.numbers.scale[windows.numbers.series[windows.origins]][:, None]


def _median(values: Tensor) -> Tensor:
    """The median over the first axis; the mean, or else 1, where it is 0: one divides by it."""
    middle, mean = values.median(0).values, values.mean(0)
    return torch.where(middle > 1e-9, middle, torch.where(mean > 1e-9, mean, 1.0))


def quantiles(values: Tensor) -> Tensor:
    """Evenly spaced quantiles, from the smallest value to the largest."""
    return values.double().flatten().quantile(torch.linspace(0, 1, STEPS, dtype=torch.float64)).float()


def surprise(values: Tensor, ladder: Tensor) -> Tensor:
    """-log of the share of a ladder that is as large; beyond its top it grows in proportion."""
    ladder = ladder.double()
    below = torch.searchsorted(ladder, values.contiguous())
    beyond = torch.where(ladder[-1] > 0, values / ladder[-1], 1.0).clamp(min=1.0)
    return -torch.log1p(-below / (len(ladder) + 1.0)) * beyond
