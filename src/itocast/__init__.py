"""itocast: forecasts and regressions whose uncertainty can be trusted.

Names are imported when they are first used, so that `import itocast` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from itocast import metrics as metrics
    from itocast.data import sources as datasets
    from itocast.data.table import read_table
    from itocast.data.windows import Preparation, split
    from itocast.fitted import Fitted
    from itocast.forecast import Forecast
    from itocast.models.hnn import HNN
    from itocast.models.sde_hnn import SDEHNN
    from itocast.sde import SDEBlock
    from itocast.training import Training

__version__ = "0.1.0"
__all__ = [
    "HNN", "SDEHNN", "Fitted", "Forecast", "Preparation", "SDEBlock", "Training",
    "datasets", "metrics", "read_table", "split",
]  # fmt: skip

_HOMES = {
    "Fitted": "itocast.fitted",
    "Forecast": "itocast.forecast",
    "HNN": "itocast.models.hnn",
    "Preparation": "itocast.data.windows",
    "SDEBlock": "itocast.sde",
    "SDEHNN": "itocast.models.sde_hnn",
    "Training": "itocast.training",
    "read_table": "itocast.data.table",
    "split": "itocast.data.windows",
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
