"""Scalers: fitted on the training part, one scale a column, and invertible for whole forecasts."""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from itocast.forecast import Forecast, Transformed


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
        return cls(values.mean(0), _nonzero(values.std(0)))


class QuantileNormal:
    """To a standard normal through the ranks of the training values; a constant column becomes 0.

    The map is piecewise linear between up to 1000 quantiles and goes on beyond the ends with the slope of a
    standardised column, so it is increasing, invertible and never clips.

    >>> scaler = QuantileNormal.fit(np.arange(101.0)[:, None])
    >>> scaler.transform(np.array([[50.0], [1000.0]])).round(2).tolist()
    [[0.0], [33.44]]
    """

    def __init__(self, knots: list[list[float]], normals: list[list[float]], slopes: list[float]) -> None:
        self.knots, self.normals, self.slopes = knots, normals, slopes

    @classmethod
    def fit(cls, values: np.ndarray) -> Self:
        columns = [_normal_scores(column) for column in values.T]
        return cls(
            [c[0].tolist() for c in columns], [c[1].tolist() for c in columns], (1 / _nonzero(values.std(0))).tolist()
        )

    def transform(self, values: np.ndarray) -> np.ndarray:
        columns = [
            _extend(v, k, n, s) for v, k, n, s in zip(values.T, self.knots, self.normals, self.slopes, strict=True)
        ]
        return np.stack(columns, axis=1)

    def unscale(self, law: Forecast) -> Forecast:
        inverse_slopes = [1 / slope for slope in self.slopes]
        return Transformed(
            law,
            lambda y: self._each(y, self.knots, self.normals, self.slopes),
            lambda u: self._each(u, self.normals, self.knots, inverse_slopes),
            self._slope,
        )

    def _each(self, values: Tensor, knots: Any, normals: Any, slopes: Any) -> Tensor:
        """Apply the map of each target along the last axis."""
        columns = zip(values.double().unbind(-1), knots, normals, slopes, strict=True)
        return torch.stack([torch.from_numpy(np.asarray(_extend(v.numpy(), k, n, s))) for v, k, n, s in columns], -1)

    def _slope(self, y: Tensor) -> Tensor:
        """The derivative of the map, by the segment that y lies in."""
        parts = []
        for values, knots, normals, slope in zip(
            y.double().unbind(-1), self.knots, self.normals, self.slopes, strict=True
        ):
            steps = np.concatenate([[slope], np.diff(normals) / np.diff(knots), [slope]])
            parts.append(torch.from_numpy(steps[np.searchsorted(knots, values.numpy())]))
        return torch.stack(parts, -1)

    def to_dict(self) -> dict[str, Any]:
        return {"knots": self.knots, "normals": self.normals, "slopes": self.slopes}


def _nonzero(scale: np.ndarray) -> np.ndarray:
    return np.where(scale > 0, scale, 1.0)


def _normal_scores(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct quantiles and the normal scores of their middle ranks."""
    from scipy.special import ndtri

    distinct, counts = np.unique(column, return_counts=True)
    scores = ndtri((np.cumsum(counts) - counts / 2) / len(column))
    if len(distinct) > 1000:
        keep = np.unique(np.linspace(0, len(distinct) - 1, 1000).round().astype(int))
        distinct, scores = distinct[keep], scores[keep]
    return distinct, scores


def _extend(values: np.ndarray, knots: Any, images: Any, slope: float) -> np.ndarray:
    """Linear interpolation that goes on beyond the ends with a given slope."""
    inside = np.interp(values, knots, images)
    return inside + slope * (np.minimum(values - knots[0], 0) + np.maximum(values - knots[-1], 0))


SCALERS: dict[str, type[Scaler]] = {"minmax": MinMax, "standard": Standard, "quantile": QuantileNormal}
