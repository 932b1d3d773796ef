"""Fig. 7: parameters and training time of all methods."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from itocast.paper.calibration import COLOURS
from itocast.paper.outputs import markdown, spread, summary, write_figure, write_table
from itocast.paper.protocol import METHODS, short
from itocast.paper.table import Groups, group, scores


def figure(dataset: str, groups: Groups) -> Figure:
    """Two bar charts: parameters, and processor seconds to the best validation law."""
    own = {key[1:]: trials for key, trials in groups.items() if key[0] == dataset}
    names = [f"{METHODS[method]}, {form}" for form, method in own]
    colours = [COLOURS[method] for _, method in own]
    out = Figure(figsize=(11, 0.32 * len(own) + 1.2), layout="constrained")
    left, right = out.subplots(1, 2, sharey=True)
    left.barh(names, [trials[0]["parameters"] / 1000 for trials in own.values()], color=colours)
    left.set(xlabel="parameters (thousands)", xscale="log")
    times = [summary(scores(trials, "seconds_to_best")) for trials in own.values()]
    deviations = [0 if len(trials) == 1 else time[1] for trials, time in zip(own.values(), times, strict=True)]
    right.barh(names, [time[0] for time in times], xerr=deviations, color=colours, ecolor="#555555")
    right.set_xlabel("processor seconds to the best validation law, one thread")
    left.invert_yaxis()
    left.set_title(f"{short(dataset)}: size", fontsize=10)
    right.set_title(f"{short(dataset)}: time", fontsize=10)
    return out


def write(folder: Path) -> None:
    """efficiency.csv, efficiency.md and a figure for each dataset."""
    groups = group(folder)
    rows, lines = [], []
    for (dataset, form, method), trials in groups.items():
        head = {"dataset": short(dataset), "form": form, "method": method, "parameters": trials[0]["parameters"]}
        parts = {name: scores(trials, name) for name in ("fit_seconds", "seconds_to_best", "best_epoch")}
        rows.append(head | {name: summary(values)[0] for name, values in parts.items()})
        times = (spread(parts[name]) for name in ("seconds_to_best", "fit_seconds"))
        name = f"{short(dataset)}, {METHODS[method]}, {form}"
        lines.append([name, f"{trials[0]['parameters']:,}", *times, f"{rows[-1]['best_epoch']:.0f}"])
    heads = ["", "parameters", "processor seconds to the best validation law", "of the whole fit", "best epoch"]
    write_table(folder, "efficiency", pd.DataFrame(rows), markdown(heads, lines))
    for dataset in dict.fromkeys(dataset for dataset, _, _ in groups):
        write_figure(folder, f"efficiency-{short(dataset)}", figure(dataset, groups))
