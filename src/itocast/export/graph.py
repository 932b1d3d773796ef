"""The whole way from raw numbers to a forecast as one network: what is exported."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from itocast.calibration import Adaptive
from itocast.clipped import SUPPORTS
from itocast.export.contract import inputs_of
from itocast.export.corrections import chosen, correction, count
from itocast.export.laws import Law, Levels, Mixture, blended
from itocast.export.network import OfNetwork
from itocast.export.prior import OfPrior
from itocast.export.series import Series
from itocast.fitted import Fitted


class Graph(nn.Module):
    """`Fitted.law` and its summary, from the arrays of `inputs_of`, float64.

    It gives mean, both deviations and quantiles.
    """

    def __init__(self, fitted: Fitted, levels: list[float]) -> None:
        super().__init__()
        p, zero_shot = fitted.preparation, fitted.zero_shot
        self.names = [spec.name for spec in inputs_of(fitted)]
        series = self.series = Series(p)
        self.network = None if fitted.net is None else OfNetwork(fitted, series)
        self.prior = None if zero_shot is None else OfPrior(zero_shot, p.horizon, series)
        common = [fitted.share] * len(p.columns.targets)
        shares = [*(fitted.own.get(label, common) for label in series.labels), common]
        self.shares = torch.tensor(shares, dtype=torch.float64)  # (series + 1, targets)
        self.levels = Levels.of(torch.tensor(levels, dtype=torch.float64))
        self.ends = SUPPORTS[fitted.support]
        self.correct = correction(fitted.calibrator)
        calibrator = chosen(fitted.calibrator)
        self.keeps_points = calibrator is None or calibrator.keeps_points
        self.by, self.known = fitted.by, count(fitted.calibrator)
        self.grouped = bool(self.by) and not isinstance(fitted.calibrator, Adaptive)
        self.places = series.places(fitted.groups[: self.known - 1])

    def forward(self, *arrays: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x = dict(zip(self.names, arrays, strict=True))
        law = self._law(x)
        corrected = law if self.correct is None else self.correct(law, self._place(x))
        moments = corrected.moments(self.ends)
        low, high = self.ends
        quantiles = corrected.quantiles(self.levels)
        if isinstance(law, Mixture) and law.again is not None and self.keeps_points:
            again, within = law.again[..., None], law.within[..., None]
            quantiles = torch.where((quantiles - again).abs() <= within, again, quantiles)
        if not (math.isinf(low) and math.isinf(high)):
            quantiles = quantiles.clamp(low, high)
        return moments.mean, moments.aleatoric.sqrt(), moments.epistemic.sqrt(), quantiles

    def _law(self, x: dict[str, Tensor]) -> Law:
        """What network and prior say, as `Fitted.uncorrected`."""
        laws = [part(x) for part in (self.network, self.prior) if part is not None]
        if len(laws) == 1:
            return laws[0]
        one, other = laws
        share = self.shares[self.series.number(x)][:, None]  # of the network
        return blended(one, other, share, self.ends)

    def _place(self, x: dict[str, Tensor]) -> Tensor:
        """Where the correction of each row is kept, as `calibration.base.places`."""
        number = self.series.number(x)
        if not self.grouped:
            return torch.zeros_like(number)
        if self.by == "series":
            return self.places[number]
        return torch.where((x["group"] >= 0) & (x["group"] + 1 < self.known), x["group"] + 1, 0)
