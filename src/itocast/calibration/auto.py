"""The calibrator that chooses among the others, or none of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from itocast import metrics
from itocast.calibration.base import Calibrator, outcomes
from itocast.calibration.conformal import Conformal
from itocast.calibration.isotonic import Isotonic
from itocast.calibration.variance import VarianceScaling
from itocast.clipped import Clipped, tabulated
from itocast.forecast import Forecast

CANDIDATES: dict[str, type[Calibrator]] = {
    "variance": VarianceScaling,
    "isotonic": Isotonic,
    "conformal": Conformal,
}
BLOCKS = 5  # of rows that follow one another; each is scored by calibrators that were fitted on the others
MOST = 6000  # forecasts of one step and target that are compared, of rows evenly spaced
CHANCE = 31.0  # √n times the CWCE of a law that is right, on n outcomes: it is smaller 19 times in 20
NEAR = 1.005  # a CRPS within half a percent of the best counts as the best
WORTH = 1.015  # how many times the best CRPS a law may have that is calibrated as well as chance can tell


class Auto(Calibrator):
    """Fit every calibrator on four fifths of the rows, score it on the fifth left out, and keep the best, or none.

    Right is a law whose calibration error (CWCE) chance could give to one that is. Of those that are right the one with
    the best CRPS is taken, if that is within 1.5 % of the best of all; of several within half a percent of it none
    rather than a correction, and one for all rows rather than for each group. If none is right, the smallest CWCE of
    those within half a percent of the best CRPS decides. What is taken is fitted on all rows. With `either`, a
    correction for all rows together competes with one for each group. `scores` and `why` tell what was compared. Where
    laws have a probability of the last value again, only what leaves that value where it is competes.

    `ConformalQuantiles` does not compete: it moves the bounds of sharp and of wide laws by as much, which turns the
    sharpest into points where laws of one table differ a lot.

    >>> law = Forecast(torch.zeros(1, 500, 1, 1), torch.ones(1, 500, 1, 1))
    >>> auto = Auto().fit(law, 3 * torch.randn(500, generator=torch.Generator().manual_seed(0)))
    >>> auto.kind != "none", auto.scores["none"]["cwce"] > 5
    (True, True)
    """

    def __init__(
        self, kind: str = "none", grouped: bool = False, settings: Any = None, scores: Any = None, either: bool = False
    ) -> None:
        self.way, self.scores, self.either = Way(kind, grouped), dict(scores or {}), either
        self.chosen = None if kind == "none" else CANDIDATES[kind](**settings)

    def fit(self, forecast: Forecast, y: Any, groups: Any = None) -> Self:
        y = outcomes(forecast, y)
        groups = None if groups is None else torch.as_tensor(groups)
        grouped = [False] if groups is None else [False, True] if self.either else [True]
        points = isinstance(forecast, Clipped) and forecast.again is not None
        kinds = [kind for kind, one in CANDIDATES.items() if one.keeps_points or not points]
        ways = [Way("none", False), *(Way(kind, one) for one in grouped for kind in kinds)]
        table = tabulated(forecast)  # once, for all of them
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of too few rows: `outcomes` has said so
            rows = torch.linspace(0, len(y) - 1, min(len(y), max(1, MOST // y[0].numel()))).round().long()
            found = _cross_fitted(ways, table[rows], y[rows], None if groups is None else groups[rows])
            chance = CHANCE / max(1, int((~y[rows].isnan()).sum())) ** 0.5
            self.way = _best(found, chance) if found else ways[0]
            self.chosen = self.way.fitted(table, y, groups)
        self.scores = {str(way): score for way, score in found.items()}
        return self

    @property
    def kind(self) -> str:
        """The name of what was picked, or "none"."""
        return self.way.kind

    @property
    def why(self) -> str:
        """What was picked, and what it was compared with."""
        compared = ", ".join(f"{name} {score['crps']:.4g} / {score['cwce']:.2f}" for name, score in self.scores.items())
        rule = "the best CRPS of those whose CWCE may be chance, or else the smallest CWCE"
        return f"{self.way}: {rule} (CRPS / CWCE: {compared})"

    def apply(self, forecast: Forecast, groups: Any = None) -> Forecast:
        return forecast if self.chosen is None else self.chosen.apply(forecast, groups)

    def correct(self, forecast: Forecast, groups: Any) -> Forecast:
        return forecast if self.chosen is None else self.chosen.correct(forecast, groups)

    def to_dict(self) -> dict[str, Any]:
        settings = None if self.chosen is None else self.chosen.to_dict()
        return {"kind": self.kind, "grouped": self.way.grouped, "settings": settings, "scores": self.scores}


class Way(NamedTuple):
    """A name in CANDIDATES, or "none", and whether each group has a correction of its own."""

    kind: str
    grouped: bool

    def __str__(self) -> str:
        return f"{self.kind} by group" if self.grouped else self.kind

    @property
    def effort(self) -> int:
        """0 for none, 1 for a correction of all rows together, 2 for one of each group."""
        return 0 if self.kind == "none" else 1 + self.grouped

    def fitted(self, forecast: Forecast, y: Tensor, groups: Any) -> Calibrator | None:
        """The calibrator, having learned."""
        if self.kind == "none":
            return None
        return CANDIDATES[self.kind]().fit(forecast, y, groups if self.grouped else None)


def _best(found: dict[Way, dict[str, float]], chance: float) -> Way:
    """The rule of `Auto`, from the scores of all ways."""

    def near(ways: Iterable[Way], share: float, best: float) -> list[Way]:
        return [way for way in ways if found[way]["crps"] <= share * best]

    best = min(score["crps"] for score in found.values())
    right = near((way for way in found if found[way]["cwce"] <= chance), WORTH, best)
    if not right:
        return min(near(found, NEAR, best), key=lambda way: found[way]["cwce"])
    level = near(right, NEAR, min(found[way]["crps"] for way in right))
    return min(level, key=lambda way: (way.effort, found[way]["cwce"]))


def _cross_fitted(ways: list[Way], forecast: Forecast, y: Tensor, groups: Tensor | None) -> dict[Way, dict[str, float]]:
    """The scores of all ways on rows that they have not seen."""
    block = torch.arange(len(y)) * BLOCKS // len(y)
    parts: dict[Way, list[tuple[Tensor, Tensor]]] = {way: [] for way in ways}
    for left in (block == one for one in block.unique()):
        seen = ~y[left].isnan()
        if not seen.any() or left.all():
            continue
        learn, rest = forecast[~left], forecast[left]
        inside, outside = (None, None) if groups is None else (groups[~left], groups[left])
        for way in ways:
            calibrator = way.fitted(learn, y[~left], inside)
            law = calibrator.apply(rest, outside) if calibrator else rest
            parts[way].append(_score(law, y[left], seen))
    return {way: _summary(*map(torch.cat, zip(*part, strict=True))) for way, part in parts.items() if part}


def _score(law: Forecast, y: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """CRPS and place of all outcomes that were seen."""
    full = torch.where(seen, y, law.mean)
    return law.crps(full)[seen], law.pit(full)[seen]


def _summary(crps: Tensor, ranks: Tensor) -> dict[str, float]:
    wrong = (metrics.observed_coverage(ranks) - metrics.LEVELS).abs()
    return {"crps": crps.mean().item(), "cwce": (metrics.LEVELS * wrong).sum().item()}
