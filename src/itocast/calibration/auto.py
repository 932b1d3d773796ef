"""The calibrator that chooses among the others, or none of them."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from itocast import metrics
from itocast.calibration.base import Calibrator, outcomes
from itocast.calibration.conformal import Conformal, ConformalQuantiles
from itocast.calibration.isotonic import Isotonic
from itocast.calibration.variance import VarianceScaling
from itocast.forecast import Forecast
from itocast.tabulated import Tabulated

CANDIDATES: dict[str, type[Calibrator]] = {
    "variance": VarianceScaling,
    "isotonic": Isotonic,
    "conformal": Conformal,
    "conformal_quantiles": ConformalQuantiles,
}
BLOCKS = 5  # of rows that follow one another; each is scored by calibrators that were fitted on the others
MOST = 6000  # forecasts of one step and target that are compared, of rows evenly spaced
CHANCE = 31.0  # √n times the CWCE of a law that is right, on n outcomes: it is smaller 19 times in 20
NEAR = 1.0025  # a CRPS within a quarter of a percent of the best counts as the best


class Auto:
    """Fit every calibrator on four fifths of the rows, score it on the fifth left out, and keep the best, or none.

    Of all whose CRPS is within a quarter of a percent of the best, the one with the smallest calibration error (CWCE)
    is taken, and fitted on all rows. Errors that a right law would have by chance count as equal: then none is taken
    rather than one, and a simple one rather than another. `scores` and `why` tell what was compared.

    >>> law = Forecast(torch.zeros(1, 500, 1, 1), torch.ones(1, 500, 1, 1))
    >>> auto = Auto().fit(law, 3 * torch.randn(500, generator=torch.Generator().manual_seed(0)))
    >>> auto.kind != "none", auto.scores["none"]["cwce"] > 5
    (True, True)
    """

    def __init__(self, kind: str = "none", settings: Any = None, scores: Any = None) -> None:
        self.kind, self.scores = kind, dict(scores or {})
        self.chosen = None if kind == "none" else CANDIDATES[kind](**settings)

    def fit(self, forecast: Forecast, y: Any, groups: Any = None) -> Auto:
        y = outcomes(forecast, y)
        groups = None if groups is None else torch.as_tensor(groups)
        table = Tabulated.of(forecast)  # once, for all of them
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of too few rows: `outcomes` has said so
            rows = torch.linspace(0, len(y) - 1, min(len(y), max(1, MOST // y[0].numel()))).round().long()
            self.scores = _cross_fitted(table[rows], y[rows], None if groups is None else groups[rows])
            chance = CHANCE / max(1, int((~y[rows].isnan()).sum())) ** 0.5
            best = min((score["crps"] for score in self.scores.values()), default=0.0)
            near = {name: score for name, score in self.scores.items() if score["crps"] <= NEAR * best}
            self.kind = min(near, key=lambda name: max(near[name]["cwce"], chance), default="none")
            self.chosen = None if self.kind == "none" else CANDIDATES[self.kind]().fit(table, y, groups)
        return self

    @property
    def why(self) -> str:
        """What was picked, and what it was compared with."""
        compared = ", ".join(f"{name} {score['crps']:.4g} / {score['cwce']:.2f}" for name, score in self.scores.items())
        rule = "of those within 0.25 % of the best CRPS the smallest CWCE, chance set aside"
        return f"{self.kind}: {rule} (CRPS / CWCE: {compared})"

    def apply(self, forecast: Forecast, groups: Any = None) -> Forecast:
        return forecast if self.chosen is None else self.chosen.apply(forecast, groups)

    def to_dict(self) -> dict[str, Any]:
        settings = None if self.chosen is None else self.chosen.to_dict()
        return {"kind": self.kind, "settings": settings, "scores": self.scores}


def _cross_fitted(forecast: Forecast, y: Tensor, groups: Tensor | None) -> dict[str, dict[str, float]]:
    """The scores of all candidates, and of none, on rows that they have not seen."""
    block = torch.arange(len(y)) * BLOCKS // len(y)
    parts: dict[str, list[tuple[Tensor, Tensor]]] = {"none": [], **{name: [] for name in CANDIDATES}}
    for left in (block == one for one in block.unique()):
        seen = ~y[left].isnan()
        if not seen.any() or left.all():
            continue
        learn, rest = forecast[~left], forecast[left]
        inside, outside = (None, None) if groups is None else (groups[~left], groups[left])
        parts["none"].append(_score(rest, y[left], seen))
        for name, kind in CANDIDATES.items():
            law = kind().fit(learn, y[~left], inside).apply(rest, outside)
            parts[name].append(_score(law, y[left], seen))
    return {name: _summary(*map(torch.cat, zip(*part, strict=True))) for name, part in parts.items() if part}


def _score(law: Forecast, y: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """CRPS and cdf at all outcomes that were seen."""
    full = torch.where(seen, y, law.mean)
    return law.crps(full)[seen], law.cdf(full)[seen]


def _summary(crps: Tensor, ranks: Tensor) -> dict[str, float]:
    wrong = (metrics.observed_coverage(ranks) - metrics.LEVELS).abs()
    return {"crps": crps.mean().item(), "cwce": (metrics.LEVELS * wrong).sum().item()}
