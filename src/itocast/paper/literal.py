"""The literal SDE-HNN taken apart: what z is, the dropout of g, its gain, and what is trained on."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from itocast.models import SDEHNN
from itocast.models.sde_hnn import Block
from itocast.nets import Encoder, Sizes
from itocast.paper.cells import Cell, Task, stored
from itocast.paper.outputs import markdown, spread, summary, write_table
from itocast.paper.protocol import Options, cell, measure, short
from itocast.paper.table import group, scores

STEADY = {"gain": 0.1, "kind": "linear", "objective": "mixture"}
CYCLE = {"schedule": "one-cycle", "learning_rate": 3e-3, "optimiser": "adamw", "weight_decay": 1e-2}
ENCODER = {"encoder": "mlp", "relative": True}
CHANGES: dict[str, dict[str, Any]] = {  # from the literal form: z the last state, p = 0.5, no gain, Eq. 9
    "HNN": {},
    "literal": {},
    "literal, z the sequence": {"state": "sequence"},
    "p = 0.2": {"dropout": 0.2},
    "p = 0": {"dropout": 0.0},
    "gain from 0.3": {"gain": 0.3},
    "gain from 0.1": {"gain": 0.1},
    "(a) gain from 0.1, f and g linear + tanh, mixture over 2 paths": STEADY,
    "(b) one-cycle AdamW at 3e-3": CYCLE,
    "(a) and (b)": STEADY | CYCLE,
    "(c) MLP with periodic embedding, mean relative to the last value": ENCODER,
    "(a) and (c)": STEADY | ENCODER,
    "(a), (b) and (c)": STEADY | CYCLE | ENCODER,
    "itocast's defaults": {},
}
SAME = {"HNN": ("hnn", "paper"), "literal": ("sde_hnn", "paper"), "itocast's defaults": ("sde_hnn", "itocast")}
SHOWN = {"rmse": "RMSE", "crps": "CRPS", "nll": "NLL", "cwce": "CWCE", "r_cwce": "R-CWCE", "epistemic": "epistemic"}


def tasks(options: Options) -> list[Task]:
    """A run for each change and trial, on the first dataset."""
    return [task(name, seed, options) for seed in options.seeds for name in CHANGES]


def task(name: str, seed: int, options: Options) -> Task:
    """One run; those of `SAME` are cells of Table 1."""
    dataset = options.datasets[0]
    if name in SAME:
        return cell(dataset, *SAME[name], seed, options)
    settings = {
        "dataset": dataset, "change": CHANGES[name], "seed": seed, "quick": options.quick, "epochs": options.epochs,
    }  # fmt: skip
    key = "-".join(f"{setting}={value}" for setting, value in CHANGES[name].items())
    return Task(f"literal/{short(dataset)}-{key}-{seed}", train, settings, options.data_dir)


def build(sizes: Sizes, seed: int, change: dict[str, Any]) -> SDEHNN:
    """The literal form with some of its settings replaced."""
    literal = {"kind": "lstm", "T": 3.0, "dt": 0.5, "dropout": 0.5, "gain": None, "state": "last"}
    block = Block(opposite=False, **{name: change.get(name, value) for name, value in literal.items()})
    encoder = Encoder(kind="mlp") if "encoder" in change else Encoder(kind="lstm", dim=64, layers=1, dropout=0)
    relative, objective = change.get("relative", False), change.get("objective", "paper")
    return SDEHNN(sizes, encoder, block, components=1, relative=relative, objective=objective, seed=seed)


def train(
    dataset: str, change: dict[str, Any], seed: int, quick: bool, epochs: int | None, data_dir: str | None = None
) -> Cell:
    """Train and score one of them in the paper's protocol."""
    training = {name: value for name, value in change.items() if name in CYCLE}
    return measure(dataset, partial(build, change=change), "paper", seed, quick, epochs, training, data_dir)


def write(folder: Path) -> None:
    """literal.csv and literal.md."""
    runs = stored(folder, "literal")
    dataset = runs[0]["settings"]["dataset"]
    rows, lines = [], []
    for name, change in CHANGES.items():
        if name in SAME:
            trials = group(folder).get((dataset, SAME[name][1], SAME[name][0]), [])
        else:
            alike = {"dataset": dataset, "change": change}
            trials = [run for run in runs if alike.items() <= run["settings"].items()]
        if not trials:
            continue
        row: dict[str, Any] = {"form": name, "trials": len(trials), "parameters": trials[0]["parameters"]}
        for metric in (*SHOWN, "fit_seconds"):
            row[metric], row[f"{metric}_std"] = summary(scores(trials, metric))
        rows.append(row)
        figures = (spread(scores(trials, metric)) for metric in SHOWN)
        lines.append([name, *figures, f"{row['fit_seconds']:.0f}", str(len(trials))])
    heads = [short(dataset), *SHOWN.values(), "fit (s)", "trials"]
    write_table(folder, "literal", pd.DataFrame(rows), markdown(heads, lines))
