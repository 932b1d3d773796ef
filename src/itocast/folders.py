"""A fitted model in a folder: all that was learned is written, and read back."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from itocast import storage
from itocast.abstention import Doubt
from itocast.calibration import CALIBRATORS
from itocast.clipped import SUPPORTS
from itocast.data.preparation import Preparation
from itocast.data.table import Table
from itocast.dependence import Dependence
from itocast.fitted import Earlier, Fitted, Recipe
from itocast.models import MODELS, Model
from itocast.schedule import EFFORTS
from itocast.training import History

RECIPE = ("window", "effort", "support", "calibration", "calibration_by", "seed")  # is written as it is


def save(fitted: Fitted, folder: str | Path) -> None:
    """Write to a folder; see `itocast.storage`."""
    recipe, context = fitted.recipe, fitted.context
    categories = {name: column.tolist() for name, column in context.values.items() if column.dtype == object}
    models = {"model": fitted.model} | {f"earlier/{i}": one.model for i, one in enumerate(fitted.earlier)}
    tensors = {f"{key}/{name}": part for key, model in models.items() for name, part in model.state_dict().items()}
    settings: dict[str, Any] = {
        "preparation": fitted.preparation.to_dict(),
        "model": {"kind": _kind(fitted.model), "config": fitted.model.config},
        "recipe": {name: getattr(recipe, name) for name in RECIPE},
        "training": dict(recipe.training),
        "calibrator": storage.pack(fitted.calibrator.to_dict(), "calibrator", tensors) if fitted.calibrator else None,
        "by": fitted.by,
        "groups": fitted.groups,
        "held": fitted.held,
        "support": fitted.support,
        "outcomes": fitted.outcomes,
        "earlier": [one.end for one in fitted.earlier],
        "doubt": fitted.doubt.series,
        "history": asdict(fitted.history),
        "context": {"ids": context.ids.tolist(), "categories": categories},
    }
    tensors |= {f"dependence/{name}": tensor for name, tensor in vars(fitted.dependence).items()}
    tensors |= {f"doubt/{name}": tensor for name, tensor in fitted.doubt.tensors().items()}
    arrays = {"starts": context.starts, "times": context.times}
    arrays |= {f"values/{name}": column for name, column in context.values.items() if column.dtype != object}
    tensors |= {f"context/{name}": torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    storage.save(folder, settings, tensors)


def load(folder: str | Path) -> Fitted:
    """Read from a folder that `save` wrote."""
    manifest, tensors = storage.load(folder)
    if "estimator" in manifest:
        kind = manifest["estimator"]
        raise storage.StorageError(f"{folder} holds {kind}: expected a Forecaster; load it with {kind}.load")
    try:
        return _restore(manifest, tensors)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise storage.other_version(folder, manifest, error) from None


def _restore(manifest: dict[str, Any], tensors: dict[str, Tensor]) -> Fitted:
    parts: dict[str, dict[str, Tensor]] = {
        name: {} for name in ("model", "earlier", "dependence", "doubt", "context", "calibrator")
    }
    for name, tensor in tensors.items():
        part, rest = name.split("/", 1)
        parts[part][rest] = tensor
    preparation = Preparation.from_dict(manifest["preparation"])
    kind, config = MODELS[manifest["model"]["kind"]], manifest["model"]["config"]
    model = _model(kind, config, parts["model"])
    build = partial(kind, **{name: value for name, value in config.items() if name not in ("sizes", "seed")})
    for names, name in (
        (SUPPORTS, manifest["support"]),
        (("auto", *SUPPORTS), manifest["recipe"]["support"]),
        (EFFORTS, manifest["recipe"]["effort"]),
    ):
        if name not in names:
            raise KeyError(name)
    recipe = Recipe(
        horizon=preparation.horizon, data=preparation.data, build=build, **manifest["recipe"],
        training=manifest["training"],
    )  # fmt: skip
    calibrator = None
    if recipe.calibration and manifest["calibrator"] is not None:
        calibrator = CALIBRATORS[recipe.calibration](**storage.unpack(manifest["calibrator"], tensors))
    arrays = {name: tensor.numpy() for name, tensor in parts["context"].items()}
    values = {name.split("/", 1)[1]: array for name, array in arrays.items() if name.startswith("values/")}
    values |= {name: np.array(column, object) for name, column in manifest["context"]["categories"].items()}
    ids = np.array(manifest["context"]["ids"], object)
    context = Table(preparation.columns, preparation.clock, ids, arrays["starts"], arrays["times"], values)
    history, dependence = History(**manifest["history"]), Dependence(**parts["dependence"])
    doubt = Doubt(**parts["doubt"], series=manifest["doubt"])
    last = {name: manifest[name] for name in ("by", "groups", "held", "support", "outcomes")}
    earlier = []
    for i, end in enumerate(manifest["earlier"]):
        weights = {name: parts["earlier"][f"{i}/{name}"] for name in parts["model"]}
        earlier.append(Earlier(_model(kind, config, weights), end))
    return Fitted(recipe, preparation, model, history, calibrator, dependence, context, doubt, **last, earlier=earlier)


def _model(kind: type[Model], config: dict[str, Any], weights: dict[str, Tensor]) -> Model:
    model = kind(**config)
    model.load_state_dict(weights)
    return model.eval()


def _kind(model: Model) -> str:
    for kind, cls in MODELS.items():
        if type(model) is cls:
            return kind
    raise ValueError(f"{type(model).__name__} cannot be saved: add it to itocast.models.MODELS")
