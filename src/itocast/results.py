"""Forecasts as columns: which series, time and target, what happened, and what was forecast."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import Tensor

from itocast.data.table import Table
from itocast.data.windows import Windows
from itocast.forecast import Forecast, central
from itocast.metrics import METRICS, Scored

Frame = dict[str, np.ndarray]
NAMES = ("mean", "median", "aleatoric", "epistemic", "cutoff", "step", "y", "path", "target", "abstain")


def is_reserved(name: str) -> bool:
    """Whether a column of results may have this name."""
    return name in NAMES or name.startswith(("lo-", "hi-", "q-"))


def index(table: Table, windows: Windows) -> Frame:
    """Series (if the table names them), time and target (if there are several) of each forecast."""
    columns, rows = table.columns, windows.steps().numpy()  # (windows, horizon)
    targets = len(columns.targets)
    out: Frame = {}
    if columns.id:
        out[columns.id] = np.repeat(table.ids[table.series[rows[:, 0]]], rows.shape[1] * targets)
    out[columns.time or "ds"] = np.repeat(table.times[rows.reshape(-1)], targets)
    if targets > 1:
        out["target"] = np.tile(np.array(columns.targets, object), rows.size)
    return out


def outcome(table: Table, windows: Windows) -> Frame:
    """Cutoff, horizon step and what happened."""
    targets = len(table.columns.targets)
    each = windows.horizon * targets
    return {
        "cutoff": np.repeat(table.times[windows.origins.numpy()], each),
        "step": np.tile(np.repeat(np.arange(1, windows.horizon + 1), targets), len(windows)),
        "y": windows.actuals().reshape(-1).numpy(),
    }


def summary(laws: Iterable[Forecast], levels: list[float], quantiles: list[float]) -> Frame:
    """Mean, median, bounds, quantiles and both deviations, of laws whose rows follow one another."""
    bounds = {f"{side}-{level:g}": p for level in levels for side, p in zip(("lo", "hi"), central(level), strict=True)}
    named = {"median": 0.5} | bounds | {f"q-{p:g}": p for p in quantiles}
    parts: dict[str, list[Tensor]] = {name: [] for name in ("mean", *named, "aleatoric", "epistemic")}
    for law in laws:
        parts["mean"].append(law.mean)
        for name, values in zip(named, law.quantile(list(named.values())), strict=True):
            parts[name].append(values)
        parts["aleatoric"].append(law.aleatoric.sqrt())
        parts["epistemic"].append(law.epistemic.sqrt())
    return {name: np.concatenate([p.reshape(-1).double().numpy() for p in tensors]) for name, tensors in parts.items()}


def scores(scored: Scored, series: np.ndarray) -> Frame:
    """Every metric over all forecasts, for each step and for each series; `series` names that of each row."""
    names = series[scored.row.numpy()]
    groups: list[tuple[str, str, Any]] = [("all", "", slice(None))]
    steps = scored.step.unique().tolist()
    groups += [("step", str(step + 1), scored.step == step) for step in steps] if len(steps) > 1 else []
    labels = list(dict.fromkeys(series.tolist()))
    if len(labels) > 1:
        order = np.argsort(names.astype(str), kind="stable")
        starts = np.searchsorted(names[order].astype(str), [str(label) for label in labels], side="left")
        ends = np.searchsorted(names[order].astype(str), [str(label) for label in labels], side="right")
        parts = zip(labels, starts, ends, strict=True)
        groups += [("series", str(label), order[begin:end]) for label, begin, end in parts if end > begin]
    rows = [scored[which].metrics() for _, _, which in groups]
    out: Frame = {
        "by": np.array([by for by, _, _ in groups], object),
        "of": np.array([of for _, of, _ in groups], object),
        "forecasts": np.array([len(scored[which]) for _, _, which in groups]),
    }
    return out | {name: np.array([row[name] for row in rows]) for name in METRICS}
