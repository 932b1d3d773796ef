"""Fig. 7: parameters and training time of all methods, trained until their validation law gets no better."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from itocast.paper.calibration import COLOURS
from itocast.paper.cells import Cell, Task, stored
from itocast.paper.outputs import markdown, spread, summary, write_figure, write_table
from itocast.paper.protocol import METHODS, Options, cell, short

MOST, PATIENCE = 200, 20  # epochs of the paper's form, and how many without a better law end a run
Runs = dict[tuple[str, str], list[Cell]]  # by method and form


def tasks(options: Options) -> list[Task]:
    """Every method in the paper's form and SDE-HNN in itocast's, on the first dataset."""
    forms = [*((method, "paper") for method in options.methods), ("sde_hnn", "itocast")]
    return [_task(method, form, seed, options) for seed in options.seeds for method, form in forms]


def _task(method: str, form: str, seed: int, options: Options) -> Task:
    dataset = options.datasets[0]
    known = cell(dataset, method, form, seed, options)
    longest = {"epochs": MOST, "patience": PATIENCE} if form == "paper" else {"patience": None}
    key = f"efficiency/{short(dataset)}-{form}-{method}-{seed}"
    return known._replace(key=key, settings=known.settings | longest)


def figure(runs: Runs, dataset: str) -> Figure:
    """Two bar charts: parameters, and processor seconds to the best validation law."""
    names = [f"{METHODS[method]}, {form}" for method, form in runs]
    colours = [COLOURS[method] for method, _ in runs]
    out = Figure(figsize=(11, 0.36 * len(runs) + 1.2), layout="constrained")
    left, right = out.subplots(1, 2, sharey=True)
    left.barh(names, [trials[0]["parameters"] / 1000 for trials in runs.values()], color=colours)
    left.set_xlabel("parameters (thousands)")
    times = [summary([trial["seconds_to_best"] for trial in trials]) for trials in runs.values()]
    deviations = [0 if len(trials) == 1 else time[1] for trials, time in zip(runs.values(), times, strict=True)]
    right.barh(names, [time[0] for time in times], xerr=deviations, color=colours, ecolor="#555555")
    right.set_xlabel("processor seconds to the best validation law, one thread")
    left.invert_yaxis()
    left.set_title(f"{short(dataset)}: size", fontsize=10)
    right.set_title(f"{short(dataset)}: time", fontsize=10)
    return out


def write(folder: Path) -> None:
    """efficiency.csv, efficiency.md and a figure for each dataset."""
    rows, lines = [], []
    cells = stored(folder, "efficiency")
    for dataset in dict.fromkeys(one["settings"]["dataset"] for one in cells):
        runs: Runs = {}
        for one in cells:
            if one["settings"]["dataset"] == dataset:
                runs.setdefault((one["settings"]["method"], one["settings"]["form"]), []).append(one)
        for (method, form), trials in runs.items():
            parts = {
                name: [trial[name] for trial in trials] for name in ("seconds_to_best", "fit_seconds", "best_epoch")
            }
            head = {"dataset": short(dataset), "form": form, "method": method, "parameters": trials[0]["parameters"]}
            rows.append(head | {"trials": len(trials)} | {name: summary(values)[0] for name, values in parts.items()})
            name = f"{short(dataset)}, {METHODS[method]}, {form}"
            times = (spread(parts[name]) for name in ("seconds_to_best", "fit_seconds"))
            rmse, crps = (spread([trial["scores"][metric] for trial in trials]) for metric in ("rmse", "crps"))
            best = f"{rows[-1]['best_epoch']:.0f}"
            lines.append([name, f"{trials[0]['parameters']:,}", *times, best, rmse, crps, str(len(trials))])
        write_figure(folder, f"efficiency-{short(dataset)}", figure(runs, dataset))
    heads = ["", "parameters", "seconds to the best law", "of the whole fit", "best epoch", "RMSE", "CRPS", "trials"]
    write_table(folder, "efficiency", pd.DataFrame(rows), markdown(heads, lines))
