"""itocast: forecasts and regressions whose uncertainty can be trusted.

Names are imported when they are first used, so that `import itocast` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from itocast import metrics as metrics
    from itocast.data import sources as datasets
    from itocast.data.preparation import Data
    from itocast.data.reading import long
    from itocast.estimators import SDEClassifier, SDERegressor
    from itocast.forecast import Forecast
    from itocast.forecaster import Forecaster
    from itocast.models.hnn import HNN
    from itocast.models.sde_hnn import SDEHNN
    from itocast.schedule import Training
    from itocast.sde import SDEBlock
    from itocast.tuning.search import tune

__version__ = "0.1.0"
__all__ = [
    "HNN", "SDEHNN", "Data", "Forecast", "Forecaster", "SDEBlock", "SDEClassifier", "SDERegressor", "Training",
    "datasets", "long", "metrics", "tune",
]  # fmt: skip

_HOMES = {
    "Data": "itocast.data.preparation",
    "Forecast": "itocast.forecast",
    "Forecaster": "itocast.forecaster",
    "HNN": "itocast.models.hnn",
    "SDEBlock": "itocast.sde",
    "SDEClassifier": "itocast.estimators",
    "SDEHNN": "itocast.models.sde_hnn",
    "SDERegressor": "itocast.estimators",
    "Training": "itocast.schedule",
    "long": "itocast.data.reading",
    "tune": "itocast.tuning.search",
}
_MODULES = {"datasets": "itocast.data.sources", "metrics": "itocast.metrics"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(_MODULES[name])
    raise AttributeError(f"module 'itocast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
