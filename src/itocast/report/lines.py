"""The course of each series for charts: forecasts that follow one another, what happened, and what comes next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from itocast import results
from itocast.data.table import Table
from itocast.data.windows import Windows
from itocast.doctor import Examined
from itocast.fitted import Fitted

LEVELS = (80, 95)
POINTS = 80_000  # of all series together
EACH = 10_000  # of one series
LEAST = 12  # of one series, and two forecasts: there are charts of as many series as that allows
BOUNDS = ("lo-80", "hi-80", "lo-95", "hi-95")
NAME = 60  # letters of a name that are kept


def lines(fitted: Fitted, table: Table, examined: Examined, later: Table | None) -> dict[str, Any]:
    """The points of each series and target, with its coverage; of evenly spaced series if they are many."""
    targets, horizon = len(table.columns.targets), examined.all.horizon
    series = np.unique(table.series[examined.all.origins.numpy()])
    most = max(1, POINTS // (targets * max(LEAST, 2 * horizon)))
    kept = series if len(series) <= most else series[np.linspace(0, len(series) - 1, most).round().astype(int)]
    each = min(EACH, POINTS // (len(kept) * targets)) - horizon
    past = _consecutive(table, examined.all, kept, max(1, each // horizon))
    ahead = _ahead(fitted, table, later)
    parts = [_points(fitted, table, past)]
    if ahead is not None:
        labels = set(table.ids[kept].tolist())
        windows, whole = ahead
        chosen = np.array([label in labels for label in whole.ids[whole.series[windows.origins.numpy()]].tolist()])
        parts.append(_points(fitted, whole, windows.only(chosen)))
    tick = max(1, int(np.gcd.reduce(np.concatenate([part["time"] for part in parts]))))  # hours need few letters
    return {
        "of": len(series) * targets, "ahead": ahead is not None, "tick": tick,
        "lines": [_line(*pair, tick) for pair in _pairs(table, kept, *parts)],
    }  # fmt: skip


def _consecutive(table: Table, windows: Windows, kept: np.ndarray, count: int) -> Windows:
    """The last so many forecasts of each series that do not overlap, one horizon apart: the latest has an outcome."""
    origins = windows.origins.numpy()
    series = table.series[origins]
    last = np.full(len(table.ids), -1)
    np.maximum.at(last, series, origins)
    back = last[series] - origins
    chosen = (back % windows.horizon == 0) & (back // windows.horizon < count) & np.isin(series, kept)
    return windows.only(chosen)


def _ahead(fitted: Fitted, table: Table, later: Table | None) -> tuple[Windows, Table] | None:
    """The forecast after the end of each series, if all is known that it needs."""
    future = bool(fitted.preparation.columns.future)
    if future and later is None:
        return None
    try:
        return fitted.preparation.meeting(table).ahead(table, later if future else None)
    except ValueError:  # covariates of too few steps ahead are known
        return None


def _points(fitted: Fitted, table: Table, windows: Windows) -> dict[str, np.ndarray]:
    """One entry a forecast of a step and target, in the order of series, cutoff, step and target."""
    targets = len(table.columns.targets)
    columns = results.summary(fitted.laws(windows), list(LEVELS), [])
    rows = np.repeat(windows.steps().numpy().reshape(-1), targets)
    columns |= {"time": table.times[rows], "y": windows.actuals().reshape(-1).numpy()}
    columns["target"] = np.tile(np.arange(targets), windows.horizon * len(windows))
    columns["label"] = table.ids[table.series[rows]]
    return columns


def _pairs(table: Table, kept: np.ndarray, *parts: dict[str, np.ndarray]) -> Iterator[tuple[dict, dict, int]]:
    """For each series and target what it is called, its points, and how many of them are not ahead."""
    columns = table.columns
    places = {label: place for place, label in enumerate(table.ids[kept].tolist())}
    several = len(columns.targets)
    sorted_parts = []
    for part in parts:
        group = np.array([places[label] for label in part["label"].tolist()], int) * several + part["target"]
        order = np.argsort(group, kind="stable")
        edges = np.searchsorted(group[order], np.arange(len(kept) * several + 1))
        sorted_parts.append((part, order, edges))
    for i in range(len(kept) * several):
        chosen = [(part, order[edges[i] : edges[i + 1]]) for part, order, edges in sorted_parts]
        points = {name: np.concatenate([part[name][rows] for part, rows in chosen]) for name in parts[0]}
        yield named(table, int(kept[i // several]), i % several), points, len(chosen[0][1])


def named(table: Table, series: int, target: int) -> dict[str, Any]:
    """What a series and target are called where there are several, and a number, as long names may look the same."""
    names = [str(table.ids[series])] if table.columns.id else []
    names += [table.columns.targets[target]] if len(table.columns.targets) > 1 or not names else []
    name = " · ".join(names)
    name = name if len(name) <= NAME else f"{name[: NAME - 1]}…"
    return {"name": name, "key": series * len(table.columns.targets) + target}


def _line(name: dict[str, Any], points: dict[str, np.ndarray], past: int, tick: int) -> dict[str, Any]:
    """A line in few letters: times by their steps, and numbers as whole multiples of a unit that no chart shows."""
    y = points["y"]
    scale = _scale(np.concatenate([y[~np.isnan(y)], *(points[column] for column in ("mean", "lo-95", "hi-95"))]))
    return {
        **name, "past": past, **_scores(points), "time": pack_times(points["time"] // tick), "scale": scale,
        **{column: pack(points[column], *scale) for column in ("y", "mean", *BOUNDS)},
        **{column: _deviation(points[column]) for column in ("aleatoric", "epistemic")},
    }  # fmt: skip


def _scores(points: dict[str, np.ndarray]) -> dict[str, Any]:
    """What the table of all series says of one, from the points of its chart."""
    seen = ~np.isnan(points["y"])
    if not seen.any():
        return {"forecasts": 0}
    known = {name: column[seen] for name, column in points.items()}
    y, aleatoric, epistemic = known["y"], np.square(known["aleatoric"]), np.square(known["epistemic"])
    scores: dict[str, Any] = {"forecasts": len(y), "rmse": np.sqrt(np.square(y - known["mean"]).mean())}
    for level in LEVELS:
        scores[f"coverage_{level}"] = ((y >= known[f"lo-{level}"]) & (y <= known[f"hi-{level}"])).mean()
    scores |= {
        "width_95": (known["hi-95"] - known["lo-95"]).mean(),
        "share": epistemic.sum() / (aleatoric + epistemic).sum(),
    }
    return scores


def _deviation(values: np.ndarray) -> dict[str, Any]:
    unit = float(f"{max(float(np.median(values)), float(values.max()) / 1e4) / 100 or 1.0:.2e}")
    return {"unit": unit, "values": pack(values, 0, unit)}


def _scale(values: np.ndarray) -> list[Any]:
    """A whole number k0 and a unit: a two thousandth of where most values lie, which outliers do not widen."""
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
    unit = float(f"{(high - low or abs(middle) or 1.0) / 2000:.1e}")
    return [round(middle / unit), unit]


def pack(values: np.ndarray, shift: int, unit: float) -> list[int | None]:
    """Whole numbers k of (shift + k) · unit, None for nan."""
    whole = np.rint(values / unit) - shift
    return [None if np.isnan(k) else int(k) for k in whole.tolist()]


def pack_times(times: np.ndarray) -> list[Any]:
    """The first instant, then how many times each step follows: [first, [[step, times], …]].

    >>> pack_times(np.array([5, 6, 7, 9]))
    [5, [[1, 2], [2, 1]]]
    """
    steps = np.diff(times)
    edges = np.flatnonzero(np.append(True, np.diff(steps) != 0)) if len(steps) else np.zeros(0, int)
    counts = np.diff(np.append(edges, len(steps)))
    return [int(times[0]), [[int(steps[i]), int(n)] for i, n in zip(edges, counts, strict=True)]]
