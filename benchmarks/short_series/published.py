"""The tasks as a table: the Forecaster, seasonal naive, local methods, published figures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path

import pandas as pd

from short_series import peers
from short_series.rows import Key, Row, Rows, Settings, label, page, table
from short_series.scores import TENTHS, geometric
from short_series.tasks import LEVELS, Task, answer_of, score, seasonal_naive

KEY = ("task", "method", "seed")
NAIVE = "seasonal naive"
SCORES = ("WQL", "MASE")
SHOWN = {
    "method": "", "WQL": ".4f", "MASE": ".3f", "WQL, of naive": ".3f", "MASE, of naive": ".3f",
    "in 80 %": ".1f", "in 80 %, last": ".1f", "in 95 %": ".1f", "in 95 %, last": ".1f",
    "fit (s)": ".1f", "predict (s)": ".1f",
}  # fmt: skip
PERCENT = {
    "in 80 %": "in_80", "in 80 %, last": "last_in_80",
    "in 95 %": "in_95", "in 95 %, last": "last_in_95",
}  # fmt: skip
SECONDS = {"fit (s)": "fit_seconds", "predict (s)": "predict_seconds"}


def run(tasks: list[Task], rows: Rows, seeds: range, missing: bool, settings: Settings) -> None:
    """Score the Forecaster with some settings on the tasks."""
    named = {task.name: task for task in tasks}
    same = {"method": label(settings)}
    keys: list[Key] = [same | {"task": name, "seed": seed} for seed, name in product(seeds, named)]

    def make(task: str, method: str, seed: int) -> Row:
        return forecast(named[task], seed, settings)

    rows.fill(keys, make, missing)


def forecast(task: Task, seed: int, settings: Settings) -> Row:
    """Fit one Forecaster on all series of a task and score what it says of their last rows."""
    from itocast import Forecaster

    began = time.process_time()
    try:
        forecaster = Forecaster(task.horizon, seed=seed, **settings).fit(task.train)
        fitted = time.process_time()
        forecasts = forecaster.predict(level=list(LEVELS), quantiles=list(TENTHS))
    except ValueError as error:
        return {"refused": str(error)}
    done = time.process_time()
    seconds = {"fit_seconds": fitted - began, "predict_seconds": done - fitted}
    return score(task, answer_of(task, forecasts)) | seconds


def run_peers(tasks: list[Task], rows: Rows, method: str, missing: bool) -> None:
    """Score a local method on the tasks."""
    ways = {}
    for task in tasks:
        for season in peers.seasons(task):
            name = method if season == task.season else f"{method}, season {season}"
            ways[task.name, name] = partial(_local, method, season, task)
    keys: list[Key] = [{"task": task, "method": name, "seed": 0} for task, name in ways]

    def make(task: str, method: str, seed: int) -> Row:
        return ways[task, method]()

    rows.fill(keys, make, missing)


def _local(method: str, season: int, task: Task) -> Row:
    answer, seconds = peers.answer(method, season, task)
    made = f"statsforecast {version('statsforecast')}"
    return score(task, answer) | {"fit_seconds": seconds, "made": made}


def peers_of(tasks: list[Task], file: Path) -> pd.DataFrame:
    """What local methods scored on the same rows; nothing of a part of the series."""
    whole = all(task.published for task in tasks)
    return Rows(file, KEY).frame if whole else pd.DataFrame()


def write(tasks: list[Task], rows: Rows, others: pd.DataFrame, file: Path, command: str) -> str:
    """The page: a table of geometric means, and one for each task."""
    found = pd.concat([rows.frame, others])
    whole = [(task, _scored(task, found)) for task in tasks]
    means = pd.DataFrame(_means([scored for _, scored in whole]))
    about = (
        "The last rows of each series, as many as the horizon, are forecast from all rows before "
        "them, by one Forecaster a task with its defaults. WQL is the mean over 0.1 … 0.9 of "
        "2 Σ pinball / Σ |y|, MASE that of the median; both beside their ratio to seasonal naive. "
        "Coverage is in percent, over all steps and at the last; seconds are of the processor. "
        "AutoETS and AutoARIMA are those of statsforecast, series by series; figures of Chronos "
        "and Chronos-Bolt are published ones."
    )
    ways = {"method": "", "WQL, of naive": ".3f", "MASE, of naive": ".3f", "tasks": "d"}
    parts = ["## Geometric means of the ratios to seasonal naive", table(means, ways)]
    for task, scored in whole:
        counts = f"{task.frame['unique_id'].nunique()} series, {task.horizon} steps ahead"
        parts += [f"## {task.name}: {counts}, season {task.season}", table(scored, SHOWN)]
    return page(file, "Short series: public tasks", command, about, parts, rows.frame)


def _scored(task: Task, found: pd.DataFrame) -> pd.DataFrame:
    """All methods on a task: what was measured, means over seeds, and what was published."""
    own = found[found["task"] == task.name]
    measured = own.groupby("method", sort=False).mean(numeric_only=True).reset_index()
    naive = pd.DataFrame([{"method": NAIVE, **score(task, seasonal_naive(task))}])
    pairs = {name: pair for name, pair in task.published.items() if name != "seasonal-naive"}
    others = pd.DataFrame({"method": name} | _named(pair) for name, pair in pairs.items())
    scored = pd.concat([measured, naive, others], ignore_index=True)
    for name in SCORES:
        scored[f"{name}, of naive"] = scored[name] / naive[name].iloc[0]
    for name, column in PERCENT.items():
        scored[name] = 100 * scored[column]
    return scored.assign(**{name: scored.get(column) for name, column in SECONDS.items()})


def _named(pair: tuple[float, float]) -> Row:
    return dict(zip(SCORES, pair, strict=True))


def _means(scored: list[pd.DataFrame]) -> Iterator[Row]:
    """Geometric means of each method that was asked all tasks, over those it did not refuse."""
    together = pd.concat(scored)
    for method, rows in together.groupby("method", sort=False):
        done = rows[rows["WQL"].notna()]
        if len(rows) == len(scored) and len(done):
            named = (f"{name}, of naive" for name in SCORES)
            ratios = {name: geometric(done[name].to_numpy()) for name in named}
            yield {"method": method, **ratios, "tasks": len(done)}
