"""The calibrator that chooses among the others, or none of them."""

from __future__ import annotations

import warnings
from typing import Any

import torch

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
NEAR = 1.0025  # a CRPS within a quarter of a percent of the best counts as the best


class Auto:
    """Fit every calibrator on four fifths of the rows, score it on the fifth left out, and keep the best, or none.

    Of all whose CRPS is within a quarter of a percent of the best, the one with the smallest calibration error (CWCE)
    is taken, and fitted on all rows. `scores` and `why` tell what was compared.

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
        self.scores = {"none": _score([table], [y])}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of too few rows: `outcomes` has said so
            for name, kind in CANDIDATES.items():
                self.scores[name] = _cross_fitted(kind, table, y, groups)
            best = min(score["crps"] for score in self.scores.values())
            near = {name: score for name, score in self.scores.items() if score["crps"] <= NEAR * best}
            self.kind = min(near, key=lambda name: near[name]["cwce"])
            self.chosen = None if self.kind == "none" else CANDIDATES[self.kind]().fit(forecast, y, groups)
        return self

    @property
    def why(self) -> str:
        """What was picked, and what it was compared with."""
        compared = ", ".join(f"{name} {score['crps']:.4g} / {score['cwce']:.2f}" for name, score in self.scores.items())
        return f"{self.kind}: the smallest CWCE of those with nearly the best CRPS (CRPS / CWCE: {compared})"

    def apply(self, forecast: Forecast, groups: Any = None) -> Forecast:
        return forecast if self.chosen is None else self.chosen.apply(forecast, groups)

    def to_dict(self) -> dict[str, Any]:
        settings = None if self.chosen is None else self.chosen.to_dict()
        return {"kind": self.kind, "settings": settings, "scores": self.scores}


def _cross_fitted(kind: type[Calibrator], forecast: Forecast, y: torch.Tensor, groups: Any) -> dict[str, float]:
    """The scores of rows under calibrators that have not seen them."""
    block = torch.arange(len(y)) * BLOCKS // max(len(y), 1)
    laws, truths = [], []
    for one in range(BLOCKS):
        left = block == one
        if not left.any() or left.all():
            continue
        inside, outside = (None, None) if groups is None else (groups[~left], groups[left])
        laws.append(kind().fit(forecast[~left], y[~left], inside).apply(forecast[left], outside))
        truths.append(y[left])
    return _score(laws, truths) if laws else {"crps": float("inf"), "cwce": float("inf")}


def _score(laws: list[Forecast], truths: list[torch.Tensor]) -> dict[str, float]:
    """CRPS and CWCE over all rows, steps and targets."""
    scores, ranks = [], []
    for law, y in zip(laws, truths, strict=True):
        seen = ~y.isnan()
        full = torch.where(seen, y, law.mean.double())
        scores.append(torch.where(seen, law.crps(full), torch.nan))
        ranks.append(law.cdf(full)[seen])
    if not sum(map(len, ranks)):  # nothing was observed
        return {"crps": 0.0, "cwce": 0.0}
    wrong = (metrics.observed_coverage(torch.cat(ranks)) - metrics.LEVELS).abs()
    return {"crps": torch.cat(scores).nanmean().item(), "cwce": (metrics.LEVELS * wrong).sum().item()}
