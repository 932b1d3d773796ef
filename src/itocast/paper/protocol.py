"""The paper's protocol, Sec. 5.2: window 5, horizon 1, 60/20/20 in the order of time; one cell trains one model."""

from __future__ import annotations

import math
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field

from itocast import metrics
from itocast.data import sources
from itocast.data.preparation import Data
from itocast.forecast import Forecast
from itocast.forecaster import Forecaster
from itocast.models import MODELS
from itocast.paper.cells import Cell, Task
from itocast.schedule import Training
from itocast.settings import Settings

METHODS = {  # in the order of Table 1
    "mc_dropout": "MCD",
    "deep_gp": "DGP",
    "bnn": "BNN",
    "deep_ensemble": "Deep-ens",
    "hnn": "HNN",
    "sde_net": "SDE-Net",
    "sde_hnn": "SDE-HNN",
}
FORMS = {
    "paper": "the paper's architecture and training",
    "itocast": "itocast's encoder, scaling, schedule and calibration",
}
NEEDS = {"deep_gp": ("gpytorch", "dgp")}  # a package, and the extra that brings it
COLUMNS = {"gaps": "keep", "repeated": "keep", "calendar": False, "elapsed": False, "identity": False}  # five lags
BATCH = 64
TEST, VALIDATION = 0.2, 0.25  # of all rows, and of those that are left
EXCERPT = 250  # rows of the test part whose intervals are stored
QUICK_ROWS = 8000


class Options(Settings):
    """What an experiment is run on."""

    datasets: tuple[str, ...] = Field(("metro", "pickups"), min_length=1)
    methods: tuple[str, ...] = tuple(METHODS)
    forms: tuple[str, ...] = tuple(FORMS)
    trials: int = Field(5, ge=1)
    seed: int = Field(0, ge=0, description="of the first trial; the others follow")
    epochs: int | None = Field(None, ge=1, description="of the paper's form; None for a number that suits the rows")
    quick: bool = False
    data_dir: str | None = None

    @property
    def seeds(self) -> range:
        return range(self.seed, self.seed + self.trials)

    def tasks(self) -> list[Task]:
        """A cell for each dataset, trial, form and method; first trials first, so that a cut run is of use."""
        return [
            cell(dataset, method, form, seed, self)
            for seed in self.seeds
            for dataset in self.datasets
            for form in self.forms
            for method in self.methods
        ]


def cell(dataset: str, method: str, form: str, seed: int, options: Options) -> Task:
    """The task of one model."""
    settings = {
        "dataset": dataset, "method": method, "form": form, "seed": seed, "quick": options.quick,
        "epochs": options.epochs if form == "paper" else None,
    }  # fmt: skip
    return Task(f"{short(dataset)}/{form}-{method}-{seed}", train, settings, options.data_dir)


def short(dataset: str) -> str:
    """The name of a dataset without its file.

    >>> short("electricity=electricity/first.csv")
    'electricity'
    """
    return dataset.split("=")[0]


def available(methods: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Those of some methods whose packages are there, and what to install for the others."""
    there = [method for method in methods if method not in NEEDS or find_spec(NEEDS[method][0])]
    return there, [f"{METHODS[m]} needs pip install 'itocast[{NEEDS[m][1]}]'" for m in methods if m not in there]


def train(
    dataset: str, method: str, form: str, seed: int, quick: bool, epochs: int | None, patience: int | None = None,
    data_dir: str | None = None,
) -> Cell:  # fmt: skip
    """Train one model on one dataset and score it on the test part."""
    build = MODELS[method].paper if form == "paper" else MODELS[method]  # type: ignore[attr-defined]
    return measure(dataset, build, form, seed, quick, epochs, {"patience": patience}, data_dir)


def paper_training(rows: int, epochs: int | None = None, quick: bool = False, **chosen: Any) -> Training:
    """The paper's optimiser; it leaves batch size and length open.

    Batches of 64, at least 8 epochs and 3,500 steps but at most 200 epochs: what two cores can bear.

    >>> [paper_training(rows).epochs for rows in (48204, 29101, 8220, 1000)]
    [8, 13, 45, 200]
    """
    batches = math.ceil((1 - TEST) * (1 - VALIDATION) * rows / BATCH)
    suited = min(200, max(8, math.ceil(3500 / batches)))
    update = {"batch_size": BATCH, "patience": None} | chosen
    return Training.paper(3 if quick else epochs or suited).model_copy(update=update)


def measure(
    dataset: str, build: Any, form: str, seed: int, quick: bool, epochs: int | None, chosen: dict[str, Any],
    data_dir: str | None = None,
) -> Cell:  # fmt: skip
    """Fit what `build` makes, in the paper's form or with itocast's defaults, and score it on the test part.

    The paper's training takes the `chosen` settings.
    """
    opened = sources.open_dataset(dataset, data_dir)
    frame, schema = rows(opened, quick)
    start = cut(frame, schema)
    training: Any = {"epochs": 8} if quick else None
    if form == "paper":
        training = paper_training(len(frame), epochs, quick, **chosen)
    forecaster = Forecaster(
        1, window=5, support="real" if form == "paper" else "auto", data=settings(form), model=build,
        training=training, calibration=None if form == "paper" else "auto", seed=seed,
    )  # fmt: skip
    began = time.process_time()  # of this one thread, so that other work on the machine does not count
    fitted = forecaster.fit(until(frame, schema, start), **schema).fitted
    seconds = time.process_time() - began
    law, y = forecaster.backtest_distribution(frame, start=start)
    scores = metrics.evaluate(law, y)
    history = fitted.history
    passed = sum(epoch["seconds"] for epoch in history.epochs[: history.best]) / max(history.seconds, 1e-9)
    return {
        "file": Path(opened.file).name, "published": opened.published, "digest": opened.digest,
        "rows": len(frame), "targets": len(fitted.preparation.columns.targets), "unit": sources.source_of(dataset).unit,
        "parameters": fitted.parameters, "fit_seconds": seconds, "seconds_to_best": seconds * passed,
        "best_epoch": history.best,
        "stopped": history.stopped,
        "training": history.settings, "model": fitted.network.model.config, "history": _history(history.epochs),
        "scores": scores | _parts(law), "curve": _curve(law, y), "excerpt": _excerpt(law, y),
        "shown": {name: scores[name] for name in ("rmse", "crps", "cwce")},
    }  # fmt: skip


def rows(opened: sources.Dataset, quick: bool) -> tuple[Any, dict[str, Any]]:
    """Rows and columns as the paper takes them: those of one series in the order of the file, no calendar."""
    schema = {key: value for key, value in opened.schema.items() if key != "future"}
    if "id" not in schema:
        schema["time"] = None
    return (opened.frame.tail(QUICK_ROWS).reset_index(drop=True) if quick else opened.frame), schema


def settings(form: str) -> Data:
    """How a table is read: five lags and nothing else, scaled to [0, 1] in the paper's form."""
    literal = {"scaling": "minmax", "local": False, "apart": False} if form == "paper" else {}
    return Data(validation=VALIDATION, **COLUMNS, **literal)


def cut(frame: Any, schema: dict[str, Any]) -> Any:
    """The last instant before the test part."""
    if schema["time"] is None:
        return round((1 - TEST) * len(frame)) - 1
    times = np.sort(frame[schema["time"]].unique())
    return times[round((1 - TEST) * len(times)) - 1]


def until(frame: Any, schema: dict[str, Any], start: Any) -> Any:
    """The rows before the test part."""
    return frame[: start + 1] if schema["time"] is None else frame[frame[schema["time"]] <= start]


def _history(epochs: list[dict[str, float]]) -> dict[str, list[float]]:
    return {name: [float(f"{epoch[name]:.6g}") for epoch in epochs] for name in ("train", "validation", "seconds")}


def _parts(law: Forecast) -> dict[str, float]:
    """How large both parts of the uncertainty are."""
    return {"aleatoric": law.aleatoric.mean().sqrt().item(), "epistemic": law.epistemic.mean().sqrt().item()}


def _curve(law: Forecast, y: torch.Tensor) -> list[float]:
    """The observed coverage of central intervals at 1 … 99 %."""
    seen = ~y.isnan()
    u = metrics.pit(law, torch.where(seen, y, 0.0))[seen]
    return [round(value, 5) for value in metrics.observed_coverage(u).tolist()]


def _excerpt(law: Forecast, y: torch.Tensor) -> dict[str, list[float]]:
    """Intervals of the first target and step over the first rows of the test part."""
    law, y = law[slice(0, EXCERPT)], y[:EXCERPT]
    columns = {"y": y, "mean": law.mean}
    for level in (65, 95):
        columns[f"lo-{level}"], columns[f"hi-{level}"] = law.interval(level)
    seen = ~y[:, 0, 0].isnan()
    return {name: [float(f"{value:.6g}") for value in part[:, 0, 0][seen].tolist()] for name, part in columns.items()}
