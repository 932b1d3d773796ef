"""Scalers: fitted on the training part, one scale a column, and invertible for whole forecasts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from itocast.forecast import Forecast
from itocast.transformed import Transformed


class Scaler(Protocol):
    """Columns (rows, columns) to scaled columns; `unscale` takes a law in the scale back to the unit.

    The constructor takes what `to_dict` gives.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    @classmethod
    def fit(cls, values: np.ndarray) -> Self: ...
    def transform(self, values: np.ndarray) -> np.ndarray: ...
    def unscale(self, law: Forecast) -> Forecast: ...
    def to_dict(self) -> dict[str, Any]: ...


class Affine:
    """(x - shift) / scale, column by column."""

    def __init__(self, shift: Any, scale: Any) -> None:
        self.shift, self.scale = np.asarray(shift, np.float64), np.asarray(scale, np.float64)

    def transform(self, values: np.ndarray) -> np.ndarray:
        return (values - self.shift) / self.scale

    def unscale(self, law: Forecast) -> Forecast:
        return law.affine(self.scale, self.shift)

    def to_dict(self) -> dict[str, Any]:
        return {"shift": self.shift.tolist(), "scale": self.scale.tolist()}


class MinMax(Affine):
    """To [0, 1], Sec. 5.2; a constant column becomes 0.

    >>> MinMax.fit(np.array([[1.0], [3.0]])).transform(np.array([[2.0], [5.0]])).tolist()
    [[0.5], [2.0]]
    """

    @classmethod
    def fit(cls, values: np.ndarray) -> Self:
        low = values.min(0)
        return cls(low, _nonzero(values.max(0) - low))


class Standard(Affine):
    """To mean 0 and deviation 1; a constant column becomes 0."""

    @classmethod
    def fit(cls, values: np.ndarray) -> Self:
        return cls(np.where(np.ptp(values, axis=0) > 0, values.mean(0), values[0]), _deviation(values))


class Faint(Affine):
    """To mean 0 and deviation 1/5: inputs so small must earn their weight; a constant column becomes 0.

    >>> Faint.fit(np.array([[1.0], [3.0]])).transform(np.array([[2.0], [6.0]])).tolist()
    [[0.0], [0.8]]
    """

    deviation = 0.2

    @classmethod
    def fit(cls, values: np.ndarray) -> Self:
        standard = Standard.fit(values)
        return cls(standard.shift, np.where(np.ptp(values, axis=0) > 0, 1 / cls.deviation, 1.0) * standard.scale)


class QuantileNormal:
    """To a standard normal through the ranks of the training values; a constant column becomes 0.

    The map is piecewise linear between up to 1000 quantiles and goes on beyond the ends with the slope of a
    standardised column, so it is increasing, invertible and never clips.

    >>> scaler = QuantileNormal.fit(np.arange(101.0)[:, None])
    >>> scaler.transform(np.array([[50.0], [1000.0]])).round(2).tolist()
    [[0.0], [33.45]]
    """

    def __init__(self, knots: list[list[float]], normals: list[list[float]], slopes: list[float]) -> None:
        self.knots, self.normals, self.slopes = knots, normals, slopes

    @classmethod
    def fit(cls, values: np.ndarray) -> Self:
        columns = [_normal_scores(column) for column in values.T]
        return cls(
            [c[0].tolist() for c in columns], [c[1].tolist() for c in columns], (1 / _deviation(values)).tolist()
        )

    def transform(self, values: np.ndarray) -> np.ndarray:
        columns = [
            _extend(v, k, n, s) for v, k, n, s in zip(values.T, self.knots, self.normals, self.slopes, strict=True)
        ]
        return np.stack(columns, axis=1)

    def unscale(self, law: Forecast) -> Forecast:
        return Transformed(law, self)

    def forward(self, y: Tensor) -> Tensor:
        return _columns(y, _extend, self.knots, self.normals, self.slopes)

    def inverse(self, u: Tensor) -> Tensor:
        return _columns(u, _extend, self.normals, self.knots, [1 / slope for slope in self.slopes])

    def slope(self, y: Tensor) -> Tensor:
        return _columns(y, _segment_slope, self.knots, self.normals, self.slopes)

    def select(self, target: int) -> QuantileNormal:
        return QuantileNormal([self.knots[target]], [self.normals[target]], [self.slopes[target]])

    def to_dict(self) -> dict[str, Any]:
        return {"knots": self.knots, "normals": self.normals, "slopes": self.slopes}


def _nonzero(scale: np.ndarray) -> np.ndarray:
    return np.where(scale > 0, scale, 1.0)


def _deviation(values: np.ndarray) -> np.ndarray:
    """The standard deviation; 1 for a constant column, whatever the rounding of its mean."""
    return np.where(np.ptp(values, axis=0) > 0, values.std(0), 1.0)


def _normal_scores(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct quantiles and the normal scores of their middle ranks."""
    distinct, counts = np.unique(column, return_counts=True)
    scores = torch.special.ndtri(torch.from_numpy((np.cumsum(counts) - counts / 2) / len(column))).numpy()
    if len(distinct) > 1000:
        tails = torch.special.ndtr(torch.linspace(-5, 5, 200, dtype=torch.float64)).numpy()
        ranks = np.concatenate([np.linspace(0, 1, 800), tails])
        keep = np.unique(np.searchsorted(np.cumsum(counts) / len(column), ranks).clip(0, len(distinct) - 1))
        distinct, scores = distinct[keep], scores[keep]
    return distinct, scores


def _extend(values: np.ndarray, knots: Any, images: Any, slope: float) -> np.ndarray:
    """Linear interpolation that goes on beyond the ends with a given slope."""
    inside = np.interp(values, knots, images)
    return inside + slope * (np.minimum(values - knots[0], 0) + np.maximum(values - knots[-1], 0))


def _segment_slope(values: np.ndarray, knots: Any, images: Any, slope: float) -> np.ndarray:
    """The derivative of `_extend`, by the segment that a value lies in."""
    steps = np.concatenate([[slope], np.diff(images) / np.diff(knots), [slope]])
    return steps[np.searchsorted(knots, values)]


def _columns(values: Tensor, change: Callable[..., np.ndarray], *columns: Any) -> Tensor:
    """Apply a change with the parameters of each column along the last axis."""
    parts = zip(values.double().unbind(-1), *columns, strict=True)
    return torch.stack([torch.from_numpy(np.asarray(change(part.numpy(), *rest))) for part, *rest in parts], -1)


SCALERS: dict[str, type[Scaler]] = {
    "minmax": MinMax, "standard": Standard, "faint": Faint, "quantile": QuantileNormal,
}  # fmt: skip
