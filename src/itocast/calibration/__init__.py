"""All calibrators by name: they learn from forecasts and outcomes how to correct later forecasts."""

from __future__ import annotations

from itocast.calibration.adaptive import Adaptive
from itocast.calibration.auto import CANDIDATES, Auto
from itocast.calibration.base import Calibrator
from itocast.calibration.conformal import Conformal, ConformalQuantiles
from itocast.calibration.isotonic import Isotonic
from itocast.calibration.variance import VarianceScaling

CALIBRATORS: dict[str, type[Calibrator]] = {
    "auto": Auto,
    **CANDIDATES,
    "conformal_quantiles": ConformalQuantiles,
    "adaptive": Adaptive,
}

__all__ = [
    "CALIBRATORS",
    "Adaptive",
    "Auto",
    "Calibrator",
    "Conformal",
    "ConformalQuantiles",
    "Isotonic",
    "VarianceScaling",
]
