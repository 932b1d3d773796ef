"""How a report can be made again: settings as a file that `itocast fit` takes, the data, and versions."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from itocast.config import toml
from itocast.data.table import Table
from itocast.fitted import Fitted
from itocast.models import MODELS
from itocast.storage import versions


def settings(fitted: Fitted) -> str:
    """TOML for `itocast fit --config`, with all that differs from what it would take by itself."""
    recipe, prepared = fitted.recipe, fitted.preparation
    columns = prepared.columns
    top = {
        "horizon": recipe.horizon, "window": prepared.window, "effort": recipe.effort, "support": recipe.support,
        "calibration": recipe.calibration or "none", "calibration_by": recipe.calibration_by or "none",
        "seed": recipe.seed, "target": list(columns.targets) if len(columns.targets) > 1 else columns.targets[0],
        "time": columns.time or "", "id": columns.id or "", "past": list(columns.past),
        "future": list(columns.future), "static": list(columns.static),
    }  # fmt: skip
    data = prepared.data.model_dump() | ({"freq": prepared.clock.freq} if prepared.data.freq else {})
    tables = {"data": data, "training": fitted.history.settings, "model": _model(fitted)}
    return toml(_given(top | tables))


def _model(fitted: Fitted) -> dict[str, Any]:
    """What was asked for, by its settings where it is a network alone."""
    if fitted.net is None or fitted.zero_shot is not None:
        return {"kind": "prior" if fitted.recipe.build is None else "auto"}
    model = fitted.net.model
    kind = next((kind for kind, cls in MODELS.items() if cls is type(model)), type(model).__name__)
    return {"kind": kind} | {name: value for name, value in model.config.items() if name not in ("sizes", "seed")}


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Without what is None, which a settings file leaves out."""
    pairs = ((name, _given(value) if isinstance(value, dict) else value) for name, value in values.items())
    return {name: value for name, value in pairs if value is not None}


def data(fitted: Fitted, table: Table) -> dict[str, Any]:
    """What the table holds; the digest is of series, times and targets."""
    targets = {}
    for name in table.columns.targets:
        y = table.values[name]
        seen = y[~np.isnan(y)]
        targets[name] = {
            "missing": int(np.isnan(y).sum()), "least": float(seen.min()), "mean": float(seen.mean()),
            "most": float(seen.max()), "deviation": float(seen.std()),
        }  # fmt: skip
    digest = hashlib.sha256(json.dumps([str(label) for label in table.ids.tolist()]).encode())
    for array in (table.starts.astype(np.int64), table.times.astype(np.int64), table.y):
        digest.update(np.ascontiguousarray(array).tobytes())
    first, last, held, end = table.clock.index(
        np.array([table.times.min(), table.times.max(), fitted.held.typical, fitted.context.times.max()])
    )
    return {
        "rows": len(table), "series": len(table.ids), "freq": table.clock.freq, "first": str(first), "last": str(last),
        "trained until": str(held), "model ends": str(end), "targets": targets, "sha256": digest.hexdigest(),
    }  # fmt: skip


def made(fitted: Fitted) -> dict[str, Any]:
    """Versions and seed."""
    return {"versions": versions(), "seed": fitted.recipe.seed, "settings": settings(fitted)}
