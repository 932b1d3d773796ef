"""The calibrator that chooses among the others, or none of them."""

from __future__ import annotations

import copy
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
WORTH = 1.015  # how many times the best CRPS a law may have for a CWCE that chance explains
HELD = (80, 90, 95)  # percent: the intervals that must hold what they say
SLACK = 0.005  # by which a coverage may be off besides chance
ENOUGH = 100  # independent outcomes below which only the width is corrected, shrunk: there is nothing to compare


class Auto(Calibrator):
    """Fit every calibrator on four fifths of the rows, score it on the fifth left out, and keep the best, or none.

    Coverage comes first. Of the laws whose intervals of 80, 90 and 95 % hold what they say, as far as
    chance can tell, the one with the best CRPS is taken; one whose calibration error at all levels
    (CWCE) chance explains too is preferred if it costs at most 1.5 % of the CRPS. Of several within
    half a percent none is taken rather than a correction, and one for all rows rather than for each
    group. If no law holds, the one is taken that misses least, and too narrow counts twice.

    From fewer than 100 independent outcomes nothing can be compared: there the width alone is
    corrected, shrunk (see `VarianceScaling`). What is taken is fitted on all rows. With `either`, a
    correction for all rows together competes with one for each group. `scores` and `why` tell what was
    compared. Where laws have a probability of the last value again, only what leaves that value where
    it is competes.

    `ConformalQuantiles` does not compete: it moves the bounds of sharp and of wide laws by as much,
    which turns the sharpest into points where laws of one table differ a lot.

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

    def fit(self, forecast: Forecast, y: Any, groups: Any = None, overlap: float = 1.0) -> Self:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of few rows: what is chosen from them is shrunk
            y = outcomes(forecast, y, overlap)
        groups = None if groups is None else torch.as_tensor(groups)
        table = tabulated(forecast)  # once, for all of them
        points = isinstance(forecast, Clipped) and forecast.again is not None
        independent = len(y) / overlap
        ways = self._ways(groups is not None, points, independent)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = torch.linspace(0, len(y) - 1, min(len(y), max(1, MOST // y[0].numel()))).round().long()
            some = None if groups is None else groups[rows]
            found = _cross_fitted(ways, table[rows], y[rows], some, max(1.0, len(rows) / independent))
            self.way = _best(found, independent) if len(found) > 2 else ways[-1]
            self.chosen = self.way.fitted(table, y, groups, overlap)
        self.scores = {str(way): score for way, score in found.items()}
        return self

    def _ways(self, several: bool, points: bool, independent: float) -> list[Way]:
        """What competes; where there is too little evidence, none and what is taken for lack of it."""
        nothing = Way("none", False)
        if independent < ENOUGH:
            return [nothing] if points else [nothing, Way("variance", False)]
        grouped = [False] if not several else [False, True] if self.either else [True]
        kinds = [kind for kind, one in CANDIDATES.items() if one.keeps_points or not points]
        return [nothing, *(Way(kind, one) for one in grouped for kind in kinds)]

    def again(self, forecast: Forecast, y: Any, groups: Any, overlap: float) -> Calibrator:
        """The same choice, learned from other rows."""
        other = copy.copy(self)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other.chosen = self.way.fitted(tabulated(forecast), y, groups, overlap)
        return other

    @property
    def kind(self) -> str:
        """The name of what was picked, or "none"."""
        return self.way.kind

    @property
    def why(self) -> str:
        """What was picked, and what it holds."""
        chosen, plain = self.scores.get(str(self.way)), self.scores.get("none")
        if not chosen or not plain:
            return f"{self.way}: too few outcomes to compare"
        held = f"95 % intervals held {100 * chosen['coverage_95']:.1f} % of outcomes that it had not seen"
        if self.kind == "none":
            return f"none: {held}"
        return f"{self.way}: {held} (without: {100 * plain['coverage_95']:.1f} %)"

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

    def fitted(self, forecast: Forecast, y: Tensor, groups: Any, overlap: float) -> Calibrator | None:
        """The calibrator, having learned."""
        if self.kind == "none":
            return None
        return CANDIDATES[self.kind]().fit(forecast, y, groups if self.grouped else None, overlap)


def _best(found: dict[Way, dict[str, float]], independent: float) -> Way:
    """The rule of `Auto`, from the scores of all ways."""
    right = [way for way in found if _misses(found[way], independent) == 0]
    if not right:
        return min(found, key=lambda way: (_misses(found[way], independent), found[way]["crps"]))
    chance = CHANCE / independent**0.5
    exact = [way for way in right if found[way]["cwce"] <= chance]
    exact = _near(exact, found, WORTH, min(found[way]["crps"] for way in right))
    level = exact or right
    level = _near(level, found, NEAR, min(found[way]["crps"] for way in level))
    return min(level, key=lambda way: (way.effort, found[way]["cwce"]))


def _near(ways: Iterable[Way], found: dict[Way, dict[str, float]], share: float, best: float) -> list[Way]:
    """Those whose CRPS is at most so many times the best."""
    return [way for way in ways if found[way]["crps"] <= share * best]


def _misses(score: dict[str, float], independent: float) -> float:
    """By how much coverage is off beyond what chance explains, summed over levels; too little counts twice."""
    total = 0.0
    for level in HELD:
        low, high = metrics.chance_band(level / 100, round(independent))
        off = score[f"coverage_{level}"]
        total += 2 * max(0.0, float(low) - SLACK - off) + max(0.0, off - float(high) - SLACK)
    return total


def _cross_fitted(
    ways: list[Way], forecast: Forecast, y: Tensor, groups: Tensor | None, overlap: float
) -> dict[Way, dict[str, float]]:
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
            calibrator = way.fitted(learn, y[~left], inside, overlap)
            law = calibrator.apply(rest, outside) if calibrator else rest
            parts[way].append(_score(law, y[left], seen))
    return {way: _summary(*map(torch.cat, zip(*part, strict=True))) for way, part in parts.items() if part}


def _score(law: Forecast, y: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """CRPS and place of all outcomes that were seen."""
    full = torch.where(seen, y, law.mean)
    return law.crps(full)[seen], law.pit(full)[seen]


def _summary(crps: Tensor, ranks: Tensor) -> dict[str, float]:
    held = {f"coverage_{level}": metrics.inside(ranks, level).double().mean().item() for level in HELD}
    return {"crps": crps.mean().item(), "cwce": metrics.cwce_of(ranks)} | held
