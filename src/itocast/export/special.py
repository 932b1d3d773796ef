"""Functions that a graph is made of where ONNX has no operator, or none in float64, for them."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from itocast.data.clock import CYCLES

DEGREE = 16  # of the polynomial of the normal tail: right to 3e-11 of the tail itself
BLOCK = 32  # knots that are compared at once
LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  # days of the months


def _tail() -> list[float]:
    """Coefficients of Φ(-a) e^(a²/2) as a polynomial in 1 / (1 + a / 3), the highest first."""
    from scipy.special import erfcx

    t = (np.cos(np.pi * (np.arange(400) + 0.5) / 400) + 1) / 2
    t = 0.02 + 0.98 * t
    fit = np.polynomial.Chebyshev.fit(t, 0.5 * erfcx((3 / t - 3) / math.sqrt(2)), DEGREE, domain=[0.02, 1])
    return fit.convert(kind=np.polynomial.Polynomial).coef[::-1].tolist()


class Normal:
    """Φ and e^(-z²/2) in float64, the smaller tail to nearly all digits."""

    def __init__(self) -> None:
        self.coefficients = _tail()

    def __call__(self, z: Tensor) -> tuple[Tensor, Tensor]:
        size = z.abs().clamp(max=38.0)
        height = (-0.5 * size * size).exp()
        t = 3.0 / (size + 3.0)
        tail = t * self.coefficients[0] + self.coefficients[1]
        for coefficient in self.coefficients[2:]:
            tail = tail * t + coefficient
        tail = tail * height
        return torch.where(z < 0, tail, 1.0 - tail), height


class Line:
    """An increasing map, linear between knots and beyond them, for each column along the last axis.

    It is what `QuantileNormal` does. A value's place is found among blocks of knots, then within one block.
    """

    def __init__(self, knots: list[list[float]], images: list[list[float]], slopes: list[float]) -> None:
        longest = max(map(len, knots))
        self.blocks = -(-longest // BLOCK)
        starts = torch.full((len(knots), self.blocks * BLOCK), math.inf, dtype=torch.float64)
        pieces = torch.zeros(3, len(knots), self.blocks * BLOCK + 1, dtype=torch.float64)
        for column, (here, there, slope) in enumerate(zip(knots, images, slopes, strict=True)):
            k, v, end = (torch.tensor(part, dtype=torch.float64) for part in (here, there, [slope]))
            starts[column, : len(k)] = k
            steps = torch.cat([end, v.diff() / k.diff(), end])
            for row, part in enumerate((torch.cat([k[:1], k]), torch.cat([v[:1], v]), steps)):
                pieces[row, column, : len(k) + 1] = part
        self.firsts = starts[:, ::BLOCK].contiguous()  # (columns, blocks)
        self.knots = starts.reshape(-1, BLOCK)  # (columns · blocks, BLOCK)
        self.starts, self.images, self.slopes = (part.reshape(-1) for part in pieces)
        self.column = torch.arange(len(knots))

    def __call__(self, values: Tensor) -> Tensor:
        block = ((values[..., None] >= self.firsts).sum(-1) - 1).clamp(min=0)
        within = (values[..., None] >= self.knots[block + self.column * self.blocks]).sum(-1)
        piece = block * BLOCK + within + self.column * (self.blocks * BLOCK + 1)
        return self.images[piece] + self.slopes[piece] * (values - self.starts[piece])


def running_max(values: Tensor) -> Tensor:
    """The largest value so far along the last axis, which ONNX has no operator for."""
    count = values.shape[-1]
    later = torch.full((count, count), -math.inf, dtype=values.dtype).triu(1)
    return (values[..., None, :] + later).amax(-1)


def waves(seconds: Tensor, cycles: tuple[str, ...]) -> list[Tensor]:
    """Sines and cosines of the position in each cycle of the calendar, as `Clock.calendar`: each of the shape given."""
    days = seconds / 86_400
    whole = days.floor()
    out = []
    for cycle in cycles:
        angle = 2 * math.pi * _POSITIONS[cycle](days, whole)
        for k in range(1, CYCLES[cycle].harmonics + 1):
            out += [(k * angle).sin(), (k * angle).cos()]
    return out


def _divided(a: Tensor, b: int) -> Tensor:
    return (a / b).floor()


def _civil(day: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Year, month, day of the month and day of the year, all from 1, of days since 1970 (whole numbers in float64).

    Counted in eras of 400 years from 1 March, so that the leap day is the last of its year.
    """
    shifted = day + 719_468
    era = _divided(shifted, 146_097)
    of_era = shifted - 146_097 * era
    skipped = _divided(of_era, 1460) - _divided(of_era, 36_524) + _divided(of_era, 146_096)
    year = _divided(of_era - skipped, 365)
    of_year = of_era - (365 * year + _divided(year, 4) - _divided(year, 100))
    place = _divided(5 * of_year + 2, 153)
    of_month = of_year - _divided(153 * place + 2, 5) + 1
    month = torch.where(place < 10, place + 3, place - 9)
    year = year + 400 * era + (month <= 2).double()
    past = year - 1  # the years before this one
    january = 365 * past + _divided(past, 4) - _divided(past, 100) + _divided(past, 400) - 719_162
    return year, month, of_month, day - january + 1


def _month(_: Tensor, day: Tensor) -> Tensor:
    year, month, of_month, _ = _civil(day)
    lengths = torch.tensor(LENGTHS, dtype=torch.float64)[month.long() - 1]
    fours, centuries, eras = (_divided(year, n) * n == year for n in (4, 100, 400))
    leap = (month == 2) & fours & (~centuries | eras)
    return (of_month - 1) / (lengths + leap.double())


_POSITIONS = {
    "day": lambda days, whole: days - whole,
    "week": lambda days, whole: ((days + 3) / 7) - ((days + 3) / 7).floor(),  # 1970 began on a Thursday
    "month": _month,
    "year": lambda days, whole: (_civil(whole)[3] - 1) / 365.25,
}
