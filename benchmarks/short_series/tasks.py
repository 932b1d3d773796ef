"""The public tasks: their rows, what a method is asked, and the check that a harness must pass."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from short_series.scores import TENTHS, Answer, coverage, mase, naive, seasonal_error, wql

FOLDER = "short"
TOLERANCE = 1e-4  # relative, of the published figures of seasonal naive
QUANTILES = [f"q-{level:g}" for level in TENTHS]
LEVELS = (80, 95)


@dataclass(frozen=True)
class Task:
    """Series whose last rows are to be forecast."""

    name: str
    frame: pd.DataFrame  # unique_id, ds, y; by series, in order of time
    horizon: int
    season: int
    freq: str
    check: dict[str, float]
    published: dict[str, tuple[float, float]]  # WQL and MASE

    @property
    def train(self) -> pd.DataFrame:
        """All rows but the last `horizon` of each series."""
        left = self.frame.groupby("unique_id").cumcount(ascending=False)
        return self.frame[left >= self.horizon]

    @property
    def test(self) -> pd.DataFrame:
        """The last `horizon` rows of each series."""
        return self.frame.groupby("unique_id").tail(self.horizon)

    @property
    def pasts(self) -> list[np.ndarray]:
        """What is known of each series."""
        groups = self.train.groupby("unique_id", sort=False)["y"]
        return [values.to_numpy() for _, values in groups]

    @property
    def outcomes(self) -> np.ndarray:
        """(series, horizon)"""
        return self.test["y"].to_numpy().reshape(-1, self.horizon)

    def some(self, each: int) -> Task:
        """Every so many-th series alone, with which nothing that is published compares."""
        names = self.frame["unique_id"].unique()[::each]
        frame = self.frame[self.frame["unique_id"].isin(names)]
        return replace(self, frame=frame, published={})

    def units(self) -> np.ndarray:
        """What MASE divides by, for each series."""
        return np.array([seasonal_error(past, self.season) for past in self.pasts])


def read(data_dir: Path, names: tuple[str, ...] = ()) -> list[Task]:
    """The tasks of a folder, all or some."""
    folder = data_dir / FOLDER
    about = json.loads((folder / "tasks.json").read_text())
    unknown = set(names) - set(about)
    if unknown:
        wrong, known = ", ".join(sorted(unknown)), ", ".join(about)
        raise ValueError(f"tasks={wrong}: expected some of {known}")
    return [_read(folder, name, about[name]) for name in names or about]


def checked(data_dir: Path, names: tuple[str, ...] = ()) -> list[Task]:
    """The same, once seasonal naive scores what was published."""
    tasks = read(data_dir, names)
    for task in tasks:
        check(task)
    return tasks


def _read(folder: Path, name: str, about: dict[str, Any]) -> Task:
    file = folder / f"{name}.csv.gz"
    frame = pd.read_csv(file, parse_dates=["ds"], dtype={"unique_id": str})
    shape = about["horizon"], about["season"], about["freq"]
    published = {method: tuple(pair) for method, pair in about["published"].items()}
    return Task(name, frame, *shape, about["check_seasonal_naive"], published)


def score(task: Task, answer: Answer) -> dict[str, float]:
    """WQL, MASE, and how much of the outcomes each interval holds, of all steps and of the last."""
    y = task.outcomes
    median = answer.quantiles[..., len(TENTHS) // 2]
    found = {"WQL": wql(y, answer.quantiles), "MASE": mase(y, median, task.units())}
    for level, bounds in answer.intervals.items():
        low, high = bounds
        found[f"in_{level}"] = coverage(y, bounds)
        found[f"last_in_{level}"] = coverage(y[:, -1], (low[:, -1], high[:, -1]))
    return found


def seasonal_naive(task: Task) -> Answer:
    """The last season again, as a law without width."""
    values = np.stack([naive(past, task.horizon, task.season) for past in task.pasts])
    quantiles = np.repeat(values[..., None], len(TENTHS), axis=-1)
    return Answer(quantiles, dict.fromkeys(LEVELS, (values, values)))


def check(task: Task) -> None:
    """Refuse to go on where seasonal naive does not score what was published."""
    found = score(task, seasonal_naive(task))
    for name, wanted in (("WQL", task.check["WQL"]), ("MASE", task.check["MASE"])):
        if abs(found[name] / wanted - 1) > TOLERANCE:
            raise ValueError(
                f"{task.name}: seasonal naive has {name} {found[name]:.6g} here and {wanted} where "
                "it was published: other scores would not compare, so look at rows and scores"
            )


def answer_of(task: Task, forecasts: pd.DataFrame) -> Answer:
    """A frame as `Forecaster.predict` gives it, put in the order of the test part."""
    keys = ["unique_id", "ds"]
    rows = task.test[keys].merge(forecasts, on=keys, how="left", validate="one_to_one")
    if rows["q-0.5"].isna().any():
        missing = rows[rows["q-0.5"].isna()].iloc[0]
        series, time = missing["unique_id"], missing["ds"]
        raise ValueError(f"{task.name}: no forecast of series {series} at {time}")
    shape = (-1, task.horizon)
    quantiles = rows[QUANTILES].to_numpy().reshape(*shape, len(TENTHS))
    intervals = {}
    for level in LEVELS:
        low, high = (rows[f"{side}-{level}"].to_numpy().reshape(shape) for side in ("lo", "hi"))
        intervals[level] = low, high
    return Answer(quantiles, intervals)
