"""All models by name."""

from __future__ import annotations

from itocast.models.base import OBJECTIVES, Model
from itocast.models.bnn import BNN
from itocast.models.deep_ensemble import DeepEnsemble
from itocast.models.deep_gp import DeepGP
from itocast.models.hnn import HNN
from itocast.models.mc_dropout import MCDropout
from itocast.models.sde_hnn import SDEHNN
from itocast.models.sde_net import SDENet

MODELS: dict[str, type[Model]] = {
    "sde_hnn": SDEHNN,
    "hnn": HNN,
    "mc_dropout": MCDropout,
    "deep_ensemble": DeepEnsemble,
    "bnn": BNN,
    "deep_gp": DeepGP,
    "sde_net": SDENet,
}

__all__ = ["BNN", "HNN", "MODELS", "OBJECTIVES", "SDEHNN", "DeepEnsemble", "DeepGP", "MCDropout", "Model", "SDENet"]
