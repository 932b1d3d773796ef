"""Scores of a model beside those of others, and of forecasts that anyone can make: the last value, the last cycle's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from itocast.data.clock import CYCLES, DAY, Clock
from itocast.data.series import carried
from itocast.data.table import Table
from itocast.data.windows import Windows
from itocast.fitted import Fitted
from itocast.metrics import METRICS, Scored, score

SHOWN = ("rmse", "r2", "crps", "nll", "cwce", "epiw", "pinball", "coverage_80", "coverage_95")
POINT = ("rmse", "r2", "crps", "pinball")  # what can be said of a single number: as of a law that is all at one place
MATCHED = 0.5  # share of the forecasts that must find a value one cycle before


def scores(scored: Scored, table: Table, windows: Windows, beside: dict[str, tuple[Fitted, Table]]) -> list[dict]:
    """One entry a forecaster: the model itself, others beside it, and simple references, all on the same forecasts."""
    rows = [{"name": "this model", "kind": "model"} | {name: METRICS[name](scored) for name in SHOWN}]
    for name, (fitted, other) in beside.items():
        rows.append({"name": name, "kind": "model"} | _of_model(name, fitted, other, table, windows))
    for name, guess in references(table, windows).items():
        cells = guess[scored.row, scored.step, scored.target]
        point = replace(scored, mean=cells, crps=(scored.y - cells).abs(), pinball=(scored.y - cells).abs() / 2)
        rows.append({"name": name, "kind": "reference"} | {key: METRICS[key](point) for key in POINT})
    return rows


def _of_model(name: str, fitted: Fitted, other: Table, table: Table, windows: Windows) -> dict[str, float]:
    same = fitted.recipe.horizon == windows.horizon and other.columns.targets == table.columns.targets
    if not same or not np.array_equal(other.times, table.times) or not np.array_equal(other.starts, table.starts):
        raise ValueError(
            f"beside names {name!r}, which forecasts other targets, steps or rows: expected a model with the horizon "
            f"{windows.horizon} and the targets {', '.join(table.columns.targets)} that reads the table in the same way"
        )
    prepared = fitted.preparation.meeting(other, fitted.held.rows(other))
    own = prepared.of_origins(other, windows.origins)
    law = fitted.law(own)
    scored = score(law, own.actuals())
    return {key: METRICS[key](scored) for key in SHOWN}


def references(table: Table, windows: Windows) -> dict[str, torch.Tensor]:
    """Simple forecasts by name, (windows, horizon, targets): of each only what was known at the cutoff."""
    last = carried(table, table.y)[0]  # (rows, targets)
    origin, ahead = windows.origins.numpy(), windows.steps().numpy()
    latest = np.broadcast_to(last[origin][:, None], (*ahead.shape, last.shape[1]))
    found = {"last value": np.nan_to_num(latest)}
    for name, steps in seasons(table.clock).items():
        rows = _before(table, origin, ahead, steps)
        values = np.where((rows >= 0)[..., None], last[np.maximum(rows, 0)], latest)
        if (rows >= 0).mean() >= MATCHED:
            found[name] = np.nan_to_num(values)
    return {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in found.items()}


def seasons(clock: Clock) -> dict[str, int]:
    """Cycles that a forecast can repeat, and their length in steps.

    >>> seasons(Clock("h"))
    {'value one day before': 24, 'value one week before': 168}
    >>> seasons(Clock("D")), seasons(Clock("MS")), seasons(Clock("3", dates=False))
    ({'value one week before': 7}, {'value one year before': 12}, {})
    """
    if not clock.dates:
        return {}
    if clock.freq == "B":
        return {"value one week before": 5}
    cycles = ("day", "week") if clock.step < DAY else ("week",) if clock.step < 7 * DAY else ("year",)
    steps = {f"value one {cycle} before": CYCLES[cycle].length / clock.step for cycle in cycles}
    return {
        name: round(count) for name, count in steps.items() if count > 1.5 and abs(count - round(count)) < 0.1 * count
    }


def _before(table: Table, origin: np.ndarray, ahead: np.ndarray, season: int) -> np.ndarray:
    """The row whole cycles before each step that is the latest known at its cutoff, -1 if there is none."""
    step = ahead - origin[:, None]
    back = season * -(-step // season)
    first = table.starts[:-1][table.series[ahead]]
    if table.regular:
        return np.where(ahead - back >= first, ahead - back, -1)
    distinct, place = np.unique(table.times, return_inverse=True)
    keys = table.series * len(distinct) + place  # ascending: rows are in the order of series and time
    times = table.times[ahead] - np.rint(back * table.clock.step).astype(np.int64)
    spot = np.minimum(np.searchsorted(distinct, times), len(distinct) - 1)
    wanted = table.series[ahead] * len(distinct) + spot
    rows = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    known = (distinct[spot] == times) & (keys[rows] == wanted) & (rows <= origin[:, None])
    return np.where(known, rows, -1)


def best_reference(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The reference with the smallest CRPS."""
    return min((row for row in rows if row["kind"] == "reference"), key=lambda row: row["crps"])
