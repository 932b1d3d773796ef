"""Calibrators inside a graph: each `apply` with what was learned as constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from itocast.calibration import Adaptive, Auto, Calibrator, Conformal, ConformalQuantiles, Isotonic, VarianceScaling
from itocast.calibration.conformal import SIDE, stretched
from itocast.export.laws import Law, Table, between
from itocast.export.special import running_max
from itocast.tabulated import LEVELS

Correction = Callable[[Law, Tensor], Law]  # of a law, and where each row's correction is kept


def chosen(calibrator: Calibrator | None) -> Calibrator | None:
    """What corrects laws, if one had the choice."""
    return calibrator.chosen if isinstance(calibrator, Auto) else calibrator


def correction(calibrator: Calibrator | None) -> Correction | None:
    """What a calibrator does to a law; None if nothing."""
    calibrator = chosen(calibrator)
    if calibrator is None:
        return None
    if type(calibrator) not in CORRECTIONS:
        raise ValueError(
            f"calibration by {type(calibrator).__name__} cannot be exported: calibrate the model with one of "
            f"{', '.join(kind.__name__ for kind in CORRECTIONS)}"
        )
    return CORRECTIONS[type(calibrator)](calibrator)


def count(calibrator: Calibrator | None) -> int:
    """How many corrections are told apart: one for all rows, and one for each group."""
    calibrator = chosen(calibrator)
    names = ("factors", "moves", "scores")
    return next((len(getattr(calibrator, name)) for name in names if hasattr(calibrator, name)), 1)


def _variance(calibrator: VarianceScaling) -> Correction:
    def apply(law: Law, place: Tensor) -> Law:
        factors = calibrator.factors[place]  # (rows, horizon, targets)
        return law.affine(factors, law.moments().mean * (1 - factors))

    return apply


def _symmetric(factors: Tensor) -> Correction:
    """Mean ± deviation times factors, which are (groups, SHARES, horizon, targets)."""
    factors = factors.movedim(1, -1)  # (groups, horizon, targets, SHARES)
    both = SIDE * torch.cat([factors.flip(-1)[..., :-1], factors], -1)

    def apply(law: Law, place: Tensor) -> Table:
        moments = law.moments()
        deviation = moments.variance.clamp(min=1e-300).sqrt()
        return Table(moments.mean[..., None] + both[place] * deviation[..., None], moments.share)

    return apply


def _conformal(calibrator: Conformal) -> Correction:
    return _symmetric(calibrator.factors)


def _adaptive(calibrator: Adaptive) -> Correction:
    level = (1 - (calibrator.trust * calibrator.misses).sum(0)).clamp(min=0.0)
    return _symmetric(stretched(calibrator.errors, level.cummax(0).values)[None])


def _conformal_quantiles(calibrator: ConformalQuantiles) -> Correction:
    moves, half = calibrator.moves.movedim(1, -1), len(LEVELS) // 2

    def apply(law: Law, place: Tensor) -> Table:
        values, move = law.table(), moves[place]
        middle = values[..., half : half + 1]
        upper = running_max(torch.maximum(values[..., half:] + move, middle))
        lower = -running_max(torch.maximum(move - values[..., : half + 1].flip(-1), -middle))
        return Table(torch.cat([lower.flip(-1)[..., :-1], middle, upper[..., 1:]], -1), law.moments().share)

    return apply


def _isotonic(calibrator: Isotonic) -> Correction:
    left, share = between(calibrator.scores.movedim(1, -1))  # (groups, horizon, targets, NODES)

    def apply(law: Law, place: Tensor) -> Table:
        values, before = law.table(), left[place]
        low, high = values.gather(-1, before), values.gather(-1, before + 1)
        return Table(low + (high - low) * share[place], law.moments().share)

    return apply


CORRECTIONS: dict[type, Callable[[Any], Correction]] = {
    VarianceScaling: _variance,
    Isotonic: _isotonic,
    Conformal: _conformal,
    ConformalQuantiles: _conformal_quantiles,
    Adaptive: _adaptive,
}
