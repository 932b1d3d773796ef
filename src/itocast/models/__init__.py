"""All models by name."""

from __future__ import annotations

from itocast.models.base import OBJECTIVES, Model
from itocast.models.hnn import HNN
from itocast.models.sde_hnn import SDEHNN

MODELS: dict[str, type[Model]] = {"sde_hnn": SDEHNN, "hnn": HNN}

__all__ = ["HNN", "MODELS", "OBJECTIVES", "SDEHNN", "Model"]
