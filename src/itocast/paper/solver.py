"""Fig. 2: NLL and CWCE by epoch under both solvers, on the training and the validation part."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from itocast import metrics
from itocast.data import sources
from itocast.data.windows import Windows
from itocast.forecaster import Forecaster
from itocast.models import SDEHNN, Model
from itocast.paper.cells import Cell, Task, stored
from itocast.paper.outputs import digits, markdown, write_figure, write_table
from itocast.paper.protocol import Options, cut, paper_training, rows, settings, short, until
from itocast.plots import BLUE, ORANGE
from itocast.training import predict

SOLVERS = {"Euler-Maruyama": 0.0, "with dropout of g": 0.5}  # the probability that a unit of g is masked
WATCHED = 2000  # windows of each part that are scored after an epoch
PARTS = ("train", "validation")
SCORES = ("NLL", "CWCE")


def tasks(options: Options) -> list[Task]:
    """A run of the literal SDE-HNN for each solver and trial, on the first dataset."""
    dataset = options.datasets[0]
    return [
        Task(
            f"solver/{short(dataset)}-{dropout}-{seed}", train,
            {"dataset": dataset, "dropout": dropout, "seed": seed, "quick": options.quick, "epochs": options.epochs},
            options.data_dir,
        )
        for seed in options.seeds
        for dropout in SOLVERS.values()
    ]  # fmt: skip


def train(
    dataset: str, dropout: float, seed: int, quick: bool, epochs: int | None, data_dir: str | None = None
) -> Cell:
    """NLL and CWCE of both parts after every epoch, in the model's scale."""
    opened = sources.open_dataset(dataset, data_dir)
    frame, schema = rows(opened, quick)
    forecaster = Forecaster(
        1, window=5, data=settings("paper"), model=partial(SDEHNN.paper, dropout=dropout),
        training=paper_training(len(frame), epochs, quick), calibration=None, seed=seed,
    )  # fmt: skip
    forecaster.recipe = replace(forecaster.recipe, watch=_watch)
    history = forecaster.fit(until(frame, schema, cut(frame, schema)), **schema).fitted.history
    curves = {
        f"{part} {name}": [epoch[f"{part} {name}"] for epoch in history.epochs] for part in PARTS for name in SCORES
    }
    return {"curves": curves, "shown": {name: curve[-1] for name, curve in curves.items()}}


def _watch(model: Model, train: Windows, validation: Windows) -> dict[str, float]:
    scores: dict[str, float] = {}
    for name, windows in zip(PARTS, (train.thin(WATCHED), validation.thin(WATCHED)), strict=True):
        law = predict(model, windows, paths=16)
        y = windows.batch(slice(None))[1]
        scores[f"{name} NLL"] = float(f"{metrics.nll(law, y):.5g}")
        scores[f"{name} CWCE"] = float(f"{metrics.cwce(law, y):.5g}")
    return scores


def _mean(runs: list[Cell]) -> dict[str, Any]:
    curves = [run["curves"] for run in runs]
    shortest = min(len(curve) for run in curves for curve in run.values())
    return {name: np.mean([run[name][:shortest] for run in curves], axis=0) for name in curves[0]}


def figure(curves: dict[str, dict[str, Any]], dataset: str) -> Figure:
    """Four panels: both scores on both parts, one line a solver."""
    out = Figure(figsize=(10, 5.6), layout="constrained")
    for row, score in zip(out.subplots(2, 2, sharex=True), SCORES, strict=True):
        for ax, part in zip(row, PARTS, strict=True):
            for (solver, runs), colour in zip(curves.items(), (ORANGE, BLUE), strict=True):
                values = runs[f"{part} {score}"]
                ax.plot(np.arange(1, len(values) + 1), values, color=colour, label=solver, marker=".", lw=1.4)
            ax.set_title(f"{short(dataset)}, {part} part", fontsize=10)
            ax.set_ylabel(f"{score} (nats, scaled target)" if score == "NLL" else score)
        row[0].sharey(row[1])
    for ax in out.axes[2:]:
        ax.set_xlabel("epoch")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    out.axes[0].legend(frameon=False)
    return out


def write(folder: Path) -> None:
    """solver.csv, solver.md and solver.png: means over the trials."""
    runs = stored(folder, "solver")
    dataset = runs[0]["settings"]["dataset"]  # one alone: the first
    runs = [run for run in runs if run["settings"]["dataset"] == dataset]
    curves = {
        name: _mean([run for run in runs if run["settings"]["dropout"] == dropout]) for name, dropout in SOLVERS.items()
    }
    frames = [
        pd.DataFrame(values).assign(solver=solver, epoch=range(1, len(next(iter(values.values()))) + 1))
        for solver, values in curves.items()
    ]
    names = list(next(iter(curves.values())))
    lines = []
    for solver, values in curves.items():
        lines.append([f"{solver}, last epoch", *(digits(values[name][-1]) for name in names)])
        best = int(values["validation NLL"].argmin())
        lines.append([f"{solver}, epoch {best + 1}, of the best NLL", *(digits(values[name][best]) for name in names)])
    heads = [f"means over the trials: {len(runs) // len(SOLVERS)}", *names]
    write_table(folder, "solver", pd.concat(frames, ignore_index=True), markdown(heads, lines))
    write_figure(folder, "solver", figure(curves, dataset))
