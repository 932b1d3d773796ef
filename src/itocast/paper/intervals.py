"""Fig. 4 and 6: intervals of HNN beside those of SDE-HNN over a stretch of the test part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from itocast.paper.cells import Task
from itocast.paper.outputs import digits, markdown, write_figure, write_table
from itocast.paper.protocol import FORMS, METHODS, Options, short
from itocast.paper.table import Groups, group
from itocast.plots import BLUE, ORANGE

PAIR = ("hnn", "sde_hnn")
LEVELS = (65, 95)
SHOWN = 120  # rows in a panel


def tasks(options: Options) -> list[Task]:
    """The first trial of both methods."""
    first = options.model_copy(update={"methods": PAIR, "trials": 1})
    return first.tasks()


def figure(dataset: str, groups: Groups) -> Figure:
    """One row a form, one column a method: the first trial's 65 % and 95 % intervals and what happened."""
    own = {key[1:]: trials for key, trials in groups.items() if key[0] == dataset}
    forms, methods = (list(dict.fromkeys(part)) for part in zip(*own, strict=True))
    out = Figure(figsize=(5.6 * len(methods), 2.9 * len(forms)), layout="constrained")
    axes = out.subplots(len(forms), len(methods), squeeze=False, sharex=True, sharey=True)
    for row, form in zip(axes, forms, strict=True):
        for ax, method in zip(row, methods, strict=True):
            if (form, method) not in own:
                continue
            trial = own[form, method][0]
            part = {name: np.array(values[:SHOWN]) for name, values in trial["excerpt"].items()}
            steps = np.arange(1, len(part["y"]) + 1)
            for level, alpha in ((95, 0.22), (65, 0.45)):
                low, high = part[f"lo-{level}"], part[f"hi-{level}"]
                ax.fill_between(steps, low, high, color=BLUE, alpha=alpha, lw=0, label=f"{level} % interval")
            ax.plot(steps, part["y"], ".", color=ORANGE, ms=3.5, label="observed")
            error, width = (digits(trial["scores"][name]) for name in ("cwce", "epiw"))
            ax.set_title(f"{METHODS[method]}, {FORMS[form]}\nCWCE {error}, EPIW {width}", fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel("row of the test part")
    for row in axes:
        row[0].set_ylabel(next(iter(own.values()))[0]["unit"])
    axes[0][0].legend(loc="upper right", frameon=False, fontsize=8, ncols=3)
    return out


def write(folder: Path) -> None:
    """intervals.csv, intervals.md and a figure for each dataset."""
    groups = {key: trials for key, trials in group(folder).items() if key[2] in PAIR}
    rows, lines = [], []
    for (dataset, form, method), trials in groups.items():
        part = pd.DataFrame(trials[0]["excerpt"]).dropna()
        head = {"dataset": short(dataset), "form": form, "method": method}
        rows.append(part.assign(**head, row=range(1, len(part) + 1)))
        figures = []
        for level in LEVELS:
            low, high = part[f"lo-{level}"], part[f"hi-{level}"]
            figures += [f"{100 * part['y'].between(low, high).mean():.1f}", digits((high - low).mean())]
        lines.append([f"{short(dataset)}, {form}, {METHODS[method]}", *figures])
    heads = [f"{what} {level} %" for level in LEVELS for what in ("inside (%),", "mean width,")]
    count = len(rows[0])
    text = markdown([f"first {count} rows of the test part, first trial", *heads], lines)
    columns = ["dataset", "form", "method", "row"]
    whole = pd.concat(rows, ignore_index=True)
    write_table(folder, "intervals", whole[columns + [name for name in whole if name not in columns]], text)
    for dataset in dict.fromkeys(dataset for dataset, _, _ in groups):
        write_figure(folder, f"intervals-{short(dataset)}", figure(dataset, groups))
