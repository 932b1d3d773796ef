"""Fig. 5: observed against expected coverage of all methods."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from itocast.metrics import LEVELS
from itocast.paper.outputs import digits, markdown, summary, write_figure, write_table
from itocast.paper.protocol import FORMS, METHODS, short
from itocast.paper.table import Groups, Trials, group, scores
from itocast.plots import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE

COLOURS = dict(zip(METHODS, (PURPLE, "#56B4E9", "#E69F00", GREEN, ORANGE, GREY, BLUE), strict=True))
P = LEVELS.numpy()


def curve(trials: Trials) -> np.ndarray:
    """The mean over trials of the observed coverage."""
    return np.mean([trial["curve"] for trial in trials], axis=0)


def figure(dataset: str, groups: Groups) -> Figure:
    """One panel a form, one curve a method."""
    forms = list(dict.fromkeys(form for its_dataset, form, _ in groups if its_dataset == dataset))
    out = Figure(figsize=(4.8 * len(forms), 5.0), layout="constrained")
    for ax, form in zip(out.subplots(1, len(forms), squeeze=False)[0], forms, strict=True):
        ax.plot([0, 100], [0, 100], color=BLACK, lw=0.8, ls="--")
        for (its_dataset, its_form, method), trials in groups.items():
            if (its_dataset, its_form) == (dataset, form):
                error = digits(summary(scores(trials, "cwce"))[0])
                width = 2.4 if method == "sde_hnn" else 1.4
                label = f"{METHODS[method]} ({error})"
                ax.plot(100 * P, 100 * curve(trials), color=COLOURS[method], lw=width, label=label)
        ax.set(xlabel="expected coverage (%)", ylabel="observed coverage (%)", xlim=(0, 100), ylim=(0, 100))
        ax.set_aspect("equal")
        ax.set_title(f"{short(dataset)}: {FORMS[form]}", fontsize=10)
        ax.legend(loc="upper left", frameon=False, fontsize=8, title="method (CWCE)", title_fontsize=8)
    return out


def write(folder: Path) -> None:
    """calibration.csv, calibration.md and a figure for each dataset."""
    groups = group(folder)
    rows = [
        {"dataset": short(dataset), "form": form, "method": method, "expected": p, "observed": observed}
        for (dataset, form, method), trials in groups.items()
        for p, observed in zip(P, curve(trials), strict=True)
    ]
    levels = (50, 80, 90, 95)
    lines = [
        [f"{short(dataset)}, {form}, {METHODS[method]}", *(f"{100 * curve(trials)[level - 1]:.1f}" for level in levels)]
        for (dataset, form, method), trials in groups.items()
    ]
    text = markdown(["observed coverage (%) of central intervals", *(f"{level} %" for level in levels)], lines)
    write_table(folder, "calibration", pd.DataFrame(rows), text)
    for dataset in dict.fromkeys(dataset for dataset, _, _ in groups):
        write_figure(folder, f"calibration-{short(dataset)}", figure(dataset, groups))
