"""Experiments on known laws: which tables, how often, and the page of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from short_series.judged import judge
from short_series.laws import (
    BURN_IN,
    DRAWS,
    Autoregression,
    Gamma,
    Heteroscedastic,
    Law,
    Seasonal,
    Shifts,
    Walk,
    draw,
    heavy,
)
from short_series.rows import Key, Row, Rows, Settings, label, table


class Shape(NamedTuple):
    """Of a table, and how far it is to be forecast."""

    rows: int
    horizon: int
    freq: str = "MS"
    season: int = 12


MakeLaw = Callable[[Shape, int], Law]  # from the number of a run too


class Experiment(NamedTuple):
    """Every law on every shape, so many runs each, by a Forecaster with some settings."""

    title: str
    about: str
    laws: dict[str, MakeLaw]
    shapes: tuple[Shape, ...]
    levels: tuple[int, ...]
    runs: int
    burn: int = 0  # rows that are not seen, until a law is stationary
    draws: int = DRAWS
    model: str | None = None  # of the Forecaster


def sales(shape: Shape, run: int) -> Law:
    """One of many plausible histories of sales."""
    return Seasonal.drawn(np.random.default_rng([run, 1]), shape.season, shape.freq)


def always(law: Law) -> MakeLaw:
    """The same law in every run."""
    return lambda shape, run: law


HOURLY = (
    "Hourly rows of five laws. AR(1): 0.8 of the last value around 57, deviation 10; "
    "heteroscedastic: the same with shocks of 0.2 to 1.8 times the size by the time of day; "
    "t(3): with shocks of three degrees of freedom; gamma: with positive shocks of shape 2; "
    "level shifts: ten series, each row with a chance of 1 % of a jump of deviation 20."
)
GENERATORS: dict[str, MakeLaw] = {
    "AR(1)": always(Autoregression()),
    "heteroscedastic": always(Heteroscedastic()),
    "t(3)": always(Autoregression(shock=heavy)),
    "gamma": always(Gamma()),
    "level shifts": always(Shifts()),
}
EXPERIMENTS = {
    "generators": Experiment(
        "known generators", HOURLY, GENERATORS,
        tuple(Shape(rows, horizon, "h", 24) for rows in (400, 1500) for horizon in (1, 12)),
        levels=(90,), runs=20, burn=BURN_IN,
    ),
    "zero-shot": Experiment(
        "the prior on known laws", HOURLY, GENERATORS,
        tuple(Shape(rows, 12, "h", 24) for rows in (30, 100, 400)),
        levels=(80, 90, 95), runs=20, burn=BURN_IN, model="prior",
    ),
    "months": Experiment(
        "months",
        "Plausible sales: a level with a trend, two waves of the year, and an AR(1), multiplied; "
        "each set has its own level, trend, season and noise.",
        {"sales": sales},
        (Shape(36, 6), Shape(60, 12), Shape(120, 12)),
        levels=(80, 95), runs=100,
    ),
    "ladder": Experiment(
        "the least rows",
        "One series of a random walk, an AR(1) or plausible sales.",
        {
            "random walk": lambda shape, run: Walk(freq=shape.freq),
            "AR(1)": lambda shape, run: Autoregression(freq=shape.freq),
            "sales": sales,
        },
        (
            *(Shape(rows, horizon) for rows in (1, 3, 10, 36) for horizon in (1, 6, 12, 24)),
            Shape(48, 12),
            Shape(104, 26, "W", 52),
            Shape(20, 6, "YS", 1),
            Shape(504, 168, "h", 24),
        ),
        levels=(80, 95), runs=4, draws=200,
    ),
}  # fmt: skip
KEY = ("method", "law", "freq", "rows", "horizon", "run")
JUDGED = (
    "Intervals are judged by futures that the law draws from the same past, so their coverage is "
    "that of the next outcome, free of its luck; ± is the standard error of the mean over runs. "
    "`evaluate` is what the same model says of its own table. CRPS is a ratio to that of the true "
    "law; seconds are of the processor, to fit and predict."
)


def run(
    experiment: Experiment, rows: Rows, runs: int, missing: bool, settings: Settings,
    laws: tuple[str, ...] = (),
) -> None:  # fmt: skip
    """Make the rows of all laws or of some; first runs first, so that a cut one is of use."""
    shapes = {(shape.freq, shape.rows, shape.horizon): shape for shape in experiment.shapes}
    keys: list[Key] = [
        {"method": label(settings), "law": law, **about(shape), "run": number}
        for number in range(runs)
        for shape in experiment.shapes
        for law in laws or experiment.laws
    ]

    def make(method: str, law: str, freq: str, rows: int, horizon: int, run: int) -> Row:
        shape = shapes[freq, rows, horizon]
        process = experiment.laws[law](shape, run)
        drawn = draw(process, rows, horizon, run, experiment.draws, experiment.burn)
        return judge(drawn, horizon, experiment.levels, run, settings)

    rows.fill(keys, make, missing)


def about(shape: Shape) -> Key:
    """The part of a key that is a shape's."""
    return {"freq": shape.freq, "rows": shape.rows, "horizon": shape.horizon}


def summary(experiment: Experiment, frame: pd.DataFrame) -> list[str]:
    """A table of all cells, and one for each law."""
    law = {"method": "", "law": ""}
    shape = {"freq": "", "rows": "d", "horizon": "d"}
    found = [JUDGED, "## Each table", _lines(experiment, frame, law | shape)]
    if len(experiment.laws) > 1:
        found += ["## Each law", _lines(experiment, frame, law)]
    return [*found, *refusals(frame)]


def _lines(experiment: Experiment, frame: pd.DataFrame, names: dict[str, str]) -> str:
    groups = frame.groupby(list(names), sort=False)
    means = pd.DataFrame([_mean(experiment, group, names) for _, group in groups])
    return table(means, names | formats(experiment))


def formats(experiment: Experiment) -> dict[str, str]:
    """Columns of a summary."""
    shown = {"runs": "d", "refused": "d", "missing": "d"}
    for level in experiment.levels:
        shown |= {f"in {level} %": ".1f", f"± {level}": ".1f"}
        shown |= {f"last in {level} %": ".1f", f"evaluate {level} %": ".1f"}
    return shown | {"CRPS": ".3f", "seconds": ".1f"}


def _mean(experiment: Experiment, rows: pd.DataFrame, names: dict[str, str]) -> Row:
    """One line: means over the runs that gave a forecast."""
    done = rows[rows["refused"].isna()] if "refused" in rows else rows
    found = {name: rows[name].iloc[0] for name in names}
    found |= {"runs": len(rows), "refused": len(rows) - len(done)}
    if done.empty:
        return found | dict.fromkeys(list(formats(experiment))[2:])
    found["missing"] = int(done["missing"].sum())
    for level in experiment.levels:
        held = 100 * done[f"in_{level}"]
        found[f"in {level} %"] = held.mean()
        found[f"± {level}"] = held.std() / np.sqrt(len(done))
        found[f"last in {level} %"] = 100 * done[f"last_in_{level}"].mean()
        found[f"evaluate {level} %"] = 100 * done.get(f"said_{level}", np.nan * held).mean()
    return found | {"CRPS": done["crps_ratio"].mean(), "seconds": done["seconds"].mean()}


def refusals(frame: pd.DataFrame) -> list[str]:
    """What was said where there was no forecast, each once."""
    names = [name for name in ("refused", "evaluate_refused") if name in frame]
    said = pd.concat([frame[name].dropna() for name in names]) if names else pd.Series(dtype=str)
    lines = [f"- {count} times: {words}" for words, count in said.value_counts().head(10).items()]
    return ["## Refusals", "\n".join(lines)] if lines else []
