"""What an exported graph reads: names, shapes and units, and the arrays themselves for windows of a table."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from itocast.calibration import Adaptive
from itocast.data.preparation import Preparation, _code
from itocast.data.series import carried, steps_between
from itocast.data.table import Table
from itocast.data.windows import Windows
from itocast.export.corrections import correction
from itocast.fitted import Fitted
from itocast.zero_shot import CONTEXT

Arrays = dict[str, np.ndarray]


class Input(NamedTuple):
    """One array that a caller passes; the first axis of all is rows, one for each forecast."""

    name: str
    shape: tuple[int, ...]  # without rows
    whole: bool  # int64, else float64
    meaning: str


def inputs_of(fitted: Fitted) -> list[Input]:
    """All arrays of a model, in the order of the graph."""
    p, targets = fitted.preparation, len(fitted.preparation.columns.targets)
    out = [] if fitted.net is None else _of_network(p)
    if fitted.zero_shot is not None:
        meaning = (
            f"the last {CONTEXT} values of {_list(p.columns.targets)} in the table's units, oldest "
            "first; nan where one is missing, and before the start of a series"
        )
        out.append(Input("history", (CONTEXT, targets), False, meaning))
    if p.columns.id:
        meaning = "position of the series in the list in `series`, counted from 0; -1 for one that training did not see"
        out.append(Input("series", (), True, meaning))
        meaning = "where series is -1: mean and standard deviation of the series; elsewhere it is not read"
        out.append(Input("scale", (2, targets), False, meaning))
        if fitted.zero_shot is not None:
            meaning = (
                "where series is -1: the smallest step between values of the series, 0 if none of "
                "them repeats; elsewhere it is not read"
            )
            out.append(Input("rounding", (targets,), False, meaning))
    if _by_column(fitted):
        meaning = f"position of its {fitted.by} in the list in `groups`, counted from 0; -1 for none"
        out.append(Input("group", (), True, meaning))
    return out


def _of_network(p: Preparation) -> list[Input]:
    """What a network reads."""
    window, horizon, targets = p.window, p.horizon, len(p.columns.targets)
    numbers, codes = ({part: _names(p, part, kind) for part in ("past", "future", "static")} for kind in (False, True))
    seen = "the last value seen where one is missing"
    known = "position of the category in the list in `categories`, counted from 1; 0 for any other or a missing one"
    out = [
        Input(
            "lags", (window, targets), False,
            f"the last {window} values of {_list(p.columns.targets)} in the table's units, oldest first; {seen}, and "
            "the first row again before the start of a series",
        )
    ]  # fmt: skip
    if p.echoes:
        back = " and ".join(str(echo) for echo in p.echoes)
        meaning = f"the values {back} steps before each time that is forecast; {seen}"
        out.append(Input("season", (len(p.echoes), horizon, targets), False, meaning))
        meaning = "1 where the series reaches so far back, else 0"
        out.append(Input("seasoned", (len(p.echoes),), True, meaning))
    if p.incomplete:
        out.append(Input("age", (window, targets), False, "steps since each value was seen, 0 for one of its own row"))
    if p.irregular:
        out.append(Input("gap", (window,), False, "steps from the row before to each row, 1 at the start of a series"))
        out.append(Input("until", (horizon,), False, "steps from the last row to each time that is forecast"))
    if p.cycles:
        zone = f"on clocks in {p.clock.zone}" if p.clock.zone else "as in the table"
        meaning = f"each time that is forecast: seconds since 1970-01-01 00:00, {zone}, without leap seconds"
        out.append(Input("time", (horizon,), False, meaning))
    if p.data.holidays:
        meaning = f"1 where a time that is forecast is on a holiday in {p.data.holidays}, else 0"
        out.append(Input("holiday", (horizon,), False, meaning))
    for part, axes in (("past", (window,)), ("future", (horizon,)), ("static", ())):
        when = {"past": "of the same rows", "future": "of the times that are forecast", "static": "of the series"}[part]
        if numbers[part]:
            meaning = f"{_list(numbers[part])} {when}; {seen}, or nan"
            out.append(Input(part, (*axes, len(numbers[part])), False, meaning))
        if codes[part]:
            axes, when = ((), "of the last row") if part == "past" else (axes, when)
            out.append(Input(f"{part}_codes", (*axes, len(codes[part])), True, f"{_list(codes[part])} {when}: {known}"))
    return out


def arrays_of(fitted: Fitted, table: Table, windows: Windows, preparation: Preparation) -> Arrays:
    """The arrays for windows of a table, that a graph makes the same forecasts of."""
    p, back, ahead = fitted.preparation, windows.back(slice(None)).numpy(), windows.steps().numpy()
    origin, first = windows.origins.numpy(), table.starts[:-1]
    series = table.series[origin]
    values, age = carried(table, table.y)
    steps = windows.numbers.clock
    wall = table.clock.index(table.times[ahead.reshape(-1)]) if p.cycles else None
    out: Arrays = {"lags": values[back], "age": age[back], "gap": steps_between(table)[back]}
    if p.echoes:
        reach = origin[:, None] + 1 - np.array(p.echoes)  # (windows, echoes)
        out["seasoned"] = (reach >= first[series][:, None]).astype(np.int64)
        rows = ahead[:, None] - np.array(p.echoes)[:, None]  # (windows, echoes, horizon)
        out["season"] = values[np.maximum(rows, 0)]
    if steps is not None:
        out["until"] = (steps[torch.from_numpy(ahead)] - steps[windows.origins][:, None]).numpy()
    if wall is not None:
        local = wall.tz_localize(None) if table.clock.zone else wall
        out["time"] = (local.as_unit("us").asi8 / 1e6).reshape(ahead.shape)
    if p.data.holidays:
        out["holiday"] = table.clock.holidays(table.times[ahead.reshape(-1)], p.data.holidays).reshape(ahead.shape)
    for part, rows in (("past", back), ("future", ahead), ("static", first[series])):
        numbers = table.numbers(_names(p, part, False))
        out[part] = (numbers if part == "static" else carried(table, numbers)[0])[rows]
        codes = [_code(table.values[name], p.categories[name]) for name in _names(p, part, True)]
        if codes:
            out[f"{part}_codes"] = np.stack(codes, 1)[origin if part == "past" else rows]
    places = {label: place for place, label in enumerate(p.scales)}
    out["series"] = np.array([places.get(label, -1) for label in table.ids.tolist()])[series]
    scales = np.array([preparation.scales[label] for label in table.ids.tolist()])[series]
    out["scale"], out["rounding"] = scales[:, :2], scales[:, 2]  # of (rows, 3, targets)
    if fitted.zero_shot is not None:
        out["history"] = windows.history(CONTEXT).numpy()
    groups = fitted.groups_of(windows)
    if groups is not None:
        out["group"] = groups
    kinds = {spec.name: np.int64 if spec.whole else np.float64 for spec in inputs_of(fitted)}
    return {name: np.ascontiguousarray(out[name], dtype=kind) for name, kind in kinds.items()}


def description(fitted: Fitted) -> dict[str, Any]:
    """All a caller must know beside the graph."""
    p = fitted.preparation
    described: dict[str, Any] = {
        "targets": list(p.columns.targets), "horizon": p.horizon,
        "window": CONTEXT if fitted.net is None else p.window, "step": p.clock.freq,
        "inputs": [
            {"name": spec.name, "shape": ["rows", *spec.shape], "type": "int64" if spec.whole else "float64",
             "meaning": spec.meaning}
            for spec in inputs_of(fitted)
        ],
    }  # fmt: skip
    if p.categories:
        described["categories"] = p.categories
    if p.columns.id:
        described["series"] = list(p.scales)
    if _by_column(fitted):
        described["groups"] = fitted.groups
    return described


def _names(p: Preparation, part: str, categories: bool) -> list[str]:
    """The covariates of a part that are categories, or those that are numbers."""
    return [name for name in getattr(p.columns, part) if (name in p.categories) == categories]


def _by_column(fitted: Fitted) -> bool:
    """Whether corrections go by a column that the graph must be told of."""
    by = fitted.by
    learned = correction(fitted.calibrator) is not None and not isinstance(fitted.calibrator, Adaptive)
    return bool(learned and by and by != "series")


def _list(names: Any) -> str:
    return ", ".join(names)
