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
from itocast.calibration import CALIBRATORS, Calibrator
from itocast.clipped import SUPPORTS
from itocast.data.holdout import Cut
from itocast.data.preparation import Preparation
from itocast.data.table import Table
from itocast.dependence import Dependence
from itocast.fitted import Fitted, Recipe
from itocast.models import MODELS, SDEHNN, Model
from itocast.network import Build, Network, Stage
from itocast.schedule import EFFORTS
from itocast.training import History
from itocast.zero_shot import ZeroShot

RECIPE = ("window", "effort", "support", "prior", "calibration", "calibration_by", "seed")  # written as it is


def save(fitted: Fitted, folder: str | Path) -> None:
    """Write to a folder; see `itocast.storage`."""
    recipe, context = fitted.recipe, fitted.context
    tensors: dict[str, Tensor] = {}
    categories = {name: column.tolist() for name, column in context.values.items() if column.dtype == object}
    settings: dict[str, Any] = {
        "preparation": fitted.preparation.to_dict(),
        "network": None if fitted.net is None else _network(fitted.net, tensors),
        "prior": None if fitted.zero_shot is None else _prior(fitted.zero_shot, tensors),
        "share": fitted.share,
        "own": fitted.own,
        "shares": [[share, crps] for share, crps in fitted.shares.items()],
        "recipe": {name: getattr(recipe, name) for name in RECIPE},
        "trains": recipe.build is not None,
        "training": dict(recipe.training),
        "calibrator": _calibrator(fitted.calibrator, "calibrator", tensors),
        "folds": [_calibrator(one, f"fold/{i}", tensors) for i, one in enumerate(fitted.folds)],
        "edges": [_cut(edge, f"edge/{i}", tensors) for i, edge in enumerate(fitted.edges)],
        "held": _cut(fitted.held, "held", tensors),
        "by": fitted.by,
        "groups": fitted.groups,
        "support": fitted.support,
        "evidence": fitted.evidence,
        "doubt": None if fitted.doubt is None else fitted.doubt.series,
        "context": {"ids": context.ids.tolist(), "categories": categories},
    }
    tensors |= {f"dependence/{name}": part for name, part in vars(fitted.dependence).items()}
    if fitted.doubt is not None:
        tensors |= {f"doubt/{name}": part for name, part in fitted.doubt.tensors().items()}
    arrays = {"starts": context.starts, "times": context.times}
    arrays |= {f"values/{name}": column for name, column in context.values.items() if column.dtype != object}
    tensors |= {f"context/{name}": torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    storage.save(folder, settings, tensors)


def _network(net: Network, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """A network as plain values; its weights are added to the tensors."""
    models = {"model": net.model} | {f"stage/{i}": one.model for i, one in enumerate(net.stages)}
    for key, model in models.items():
        tensors |= {f"{key}/{name}": part for name, part in model.state_dict().items()}
    return {
        "kind": _kind(net.model),
        "config": net.model.config,
        "seed": net.seed,
        "history": asdict(net.history),
        "stages": [_cut(one.end, f"ends/{i}", tensors) for i, one in enumerate(net.stages)],
    }


def _prior(zero_shot: ZeroShot, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The weights go into the folder: those of a later version forecast something else."""
    tensors |= {f"prior/{name}": part for name, part in zero_shot.prior.tensors().items()}
    return {"seasons": list(zero_shot.seasons), "tuned": zero_shot.tuned}


def _calibrator(calibrator: Calibrator | None, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any] | None:
    return None if calibrator is None else storage.pack(calibrator.to_dict(), prefix, tensors)


def _cut(cut: Cut, name: str, tensors: dict[str, Tensor]) -> list[str]:
    """The labels of a cut; its instants are added to the tensors."""
    tensors[f"cuts/{name}"] = torch.from_numpy(cut.instants.copy())
    return list(cut.labels)


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
    preparation = Preparation.from_dict(manifest["preparation"])
    for names, name in (
        (SUPPORTS, manifest["support"]),
        (("auto", *SUPPORTS), manifest["recipe"]["support"]),
        (EFFORTS, manifest["recipe"]["effort"]),
    ):
        if name not in names:
            raise KeyError(name)
    net: Network | None = None
    build: Build | None = SDEHNN if manifest["trains"] else None
    if manifest["network"] is not None:
        net, build = _read_network(manifest["network"], tensors, preparation)
    recipe = Recipe(
        horizon=preparation.horizon,
        data=preparation.data,
        build=build,
        **manifest["recipe"],
        training=manifest["training"],
    )
    kind = CALIBRATORS[recipe.calibration] if recipe.calibration else None
    calibrator, folds = None, []
    if kind is not None and manifest["calibrator"] is not None:
        calibrator = kind(**storage.unpack(manifest["calibrator"], tensors))
        folds = [kind(**storage.unpack(one, tensors)) for one in manifest["folds"]]
    zero_shot = None
    if manifest["prior"] is not None:
        from itocast.prior import Prior

        prior = Prior.of(_part(tensors, "prior"))
        told = manifest["prior"]
        zero_shot = ZeroShot(prior, tuple(told["seasons"]), told["tuned"])
    doubt = None
    if manifest["doubt"] is not None:
        doubt = Doubt(**_part(tensors, "doubt"), series=manifest["doubt"])
    edges = [_read_cut(one, f"edge/{i}", tensors) for i, one in enumerate(manifest["edges"])]
    last = {name: manifest[name] for name in ("share", "own", "by", "groups", "support", "evidence")}
    return Fitted(
        recipe,
        preparation,
        net,
        zero_shot,
        shares=dict(manifest["shares"]),
        context=_context(manifest["context"], _part(tensors, "context"), preparation),
        held=_read_cut(manifest["held"], "held", tensors),
        dependence=Dependence(**_part(tensors, "dependence")),
        doubt=doubt,
        calibrator=calibrator,
        folds=folds,
        edges=edges,
        **last,
    )


def _read_network(
    manifest: dict[str, Any], tensors: dict[str, Tensor], preparation: Preparation
) -> tuple[Network, Build]:
    """The network, and what makes another like it."""
    kind, config = MODELS[manifest["kind"]], manifest["config"]
    model = _model(kind, config, _part(tensors, "model"))
    stages = [
        Stage(
            _model(kind, config, _part(tensors, f"stage/{i}")),
            _read_cut(labels, f"ends/{i}", tensors),
        )
        for i, labels in enumerate(manifest["stages"])
    ]
    history = History(**manifest["history"])
    own = {name: value for name, value in config.items() if name not in ("sizes", "seed")}
    return Network(preparation, model, history, manifest["seed"], stages), partial(kind, **own)


def _context(manifest: dict[str, Any], tensors: dict[str, Tensor], preparation: Preparation) -> Table:
    """The last rows of every series."""
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    values = {name.split("/", 1)[1]: array for name, array in arrays.items() if name.startswith("values/")}
    categories = manifest["categories"].items()
    values |= {name: np.array(column, object) for name, column in categories}
    ids = np.array(manifest["ids"], object)
    places = arrays["starts"], arrays["times"]
    return Table(preparation.columns, preparation.clock, ids, *places, values)


def _part(tensors: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a part, without it."""
    return {name.removeprefix(f"{part}/"): tensor for name, tensor in tensors.items() if name.startswith(f"{part}/")}


def _read_cut(labels: list[str], name: str, tensors: dict[str, Tensor]) -> Cut:
    return Cut.of_labels(labels, tensors[f"cuts/{name}"].numpy())


def _model(kind: type[Model], config: dict[str, Any], weights: dict[str, Tensor]) -> Model:
    model = kind(**config)
    model.load_state_dict(weights)
    return model.eval()


def _kind(model: Model) -> str:
    for kind, cls in MODELS.items():
        if type(model) is cls:
            return kind
    raise ValueError(f"{type(model).__name__} cannot be saved: add it to itocast.models.MODELS")
