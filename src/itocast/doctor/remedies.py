"""Which setting addresses a fault, in view of those that the model has."""

from __future__ import annotations

from typing import Any

from itocast.doctor.faults import Finding
from itocast.fitted import Fitted

KEEP_UP = (
    "update(df) trains and calibrates on new rows; calibration='adaptive' with observe(df) follows without training"
)


def remedy(finding: Finding, fitted: Fitted, tried: dict[str, Any]) -> str:
    """What to set, as it is written in Python; the command line has options of the same names."""
    recipe = fitted.recipe
    if finding.fault == "drift":
        return KEEP_UP
    if finding.fault == "series" and fitted.by != "series":
        return "calibration_by='series' gives each series a correction of its own"
    if finding.fault in ("hour", "weekday"):
        if fitted.preparation.data.calendar:
            return "the model sees the calendar already: mark what is special then by a covariate, future=[...]"
        return "data={'calendar': True} lets the model see hour and day"
    if finding.fault == "size":
        return "calibration='isotonic' bends the laws; more lags (window=) or covariates (past=) tell large from small"
    if finding.fault == "few paths":
        return f"predict with paths={4 * fitted.network.model.paths} of the model"
    if finding.fault == "coarse step":
        dt = tried["solver"][0]["dt"]
        return f"fit anew with a finer step, {dt / 4:g} instead of {dt:g}: block={{'dt': {dt / 4:g}}} of the model"
    return KEEP_UP if recipe.calibration else _calibrate(tried["calibrators"])


def _calibrate(scores: dict[str, dict[str, float]]) -> str:
    best = min(scores, key=lambda name: scores[name]["cwce"])
    return (
        f"calibration='auto'; on held-out rows {best} takes the calibration error (CWCE) from "
        f"{scores['none']['cwce']:.2f} to {scores[best]['cwce']:.2f}"
    )
