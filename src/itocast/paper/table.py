"""Table 1: all methods, all metrics, mean ± standard deviation over the trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from itocast.data import sources
from itocast.paper.cells import Cell, stored
from itocast.paper.outputs import markdown, spread, summary, write_table
from itocast.paper.printed import METRICS, printed
from itocast.paper.protocol import FORMS, METHODS, short

SHOWN = {
    "rmse": "RMSE", "r2": "R²", "crps": "CRPS", "nll": "NLL", "cwce": "CWCE", "r_cwce": "R-CWCE", "epiw": "EPIW",
    "coverage_95": "in 95 %",
}  # fmt: skip
COSTS = {"parameters": "parameters", "fit_seconds": "fit (s)"}
Trials = list[Cell]
Groups = dict[tuple[str, str, str], Trials]  # by dataset, form and method


def group(folder: Path) -> Groups:
    """The trials of each dataset, form and method that are stored in a folder, in the order of Table 1."""
    found: Groups = {}
    for trial in stored(folder):
        settings = trial["settings"]
        if "method" in settings and "patience" not in settings:
            trials = found.setdefault((settings["dataset"], settings["form"], settings["method"]), [])
            trials.append(trial)
            _check_alike(trials[0], trial)
    places = [list(order) for order in (sources.DATASETS, FORMS, METHODS)]
    return dict(sorted(found.items(), key=lambda one: [p.index(short(k)) for p, k in zip(places, one[0], strict=True)]))


def _check_alike(one: Cell, other: Cell) -> None:
    """Refuse to average runs of different settings or data."""
    for name, a, b in (
        *((name, value, other["settings"].get(name)) for name, value in one["settings"].items() if name != "seed"),
        ("digest of the data", one["digest"], other["digest"]),
    ):
        if a != b:
            settings = one["settings"]
            raise ValueError(
                f"trials {settings['seed']} and {other['settings']['seed']} of {settings['method']} on "
                f"{settings['dataset']} cannot be averaged: their {name} is {a!r} and {b!r}; delete the cells of one"
            )


def scores(trials: Trials, name: str) -> list[float]:
    """One number of each trial."""
    return [trial["scores"][name] if name in trial["scores"] else trial[name] for trial in trials]


def frame(groups: Groups) -> pd.DataFrame:
    """One row for each dataset, form and method: means and standard deviations of everything, and what is printed."""
    rows = []
    for (dataset, form, method), trials in groups.items():
        row: dict[str, Any] = {"dataset": short(dataset), "form": form, "method": method, "trials": len(trials)}
        for name in (*trials[0]["scores"], "parameters", "fit_seconds", "seconds_to_best"):
            row[name], row[f"{name}_std"] = summary(scores(trials, name))
        row |= {f"printed_{name}": printed(short(dataset), name, method) for name in METRICS}
        rows.append(row)
    return pd.DataFrame(rows)


def text(dataset: str, groups: Groups) -> str:
    """The table of one dataset: one part a form, and the printed figures last."""
    own = {key: trials for key, trials in groups.items() if key[0] == dataset}
    first = next(iter(own.values()))[0]
    heads = [*SHOWN.values(), *COSTS.values()]
    lines = [f"### {short(dataset)}: {about(first)}", ""]
    for form in dict.fromkeys(key[1] for key in own):
        rows = [
            [METHODS[method], *(spread(scores(trials, name)) for name in SHOWN), *_costs(trials)]
            for (_, its_form, method), trials in own.items()
            if its_form == form
        ]
        lines += [f"{FORMS[form][0].upper()}{FORMS[form][1:]}:", "", markdown(["", *heads], rows), ""]
    return "\n".join([*lines, *_printed(short(dataset))])


def about(first: Cell) -> str:
    """What was read, in what unit."""
    part = "" if first["published"] else f" of `{first['file']}`, not the published data"
    targets = "" if first["targets"] == 1 else f", {first['targets']} targets"
    return f"{first['rows']:,} rows{part}{targets}; {first['unit']}"


def _costs(trials: Trials) -> list[str]:
    seconds = summary(scores(trials, "fit_seconds"))[0]
    return [f"{trials[0]['parameters']:,}", f"{seconds:,.0f}"]


def _printed(dataset: str) -> list[str]:
    rows = []
    for method, name in METHODS.items():
        figures = [printed(dataset, metric, method) for metric in METRICS]
        if figures[0] is not None:
            rows.append([name, *(f"{figure:,}" for figure in figures)])
    return ["Printed in the paper:", "", markdown(["", *(SHOWN[name] for name in METRICS)], rows), ""] if rows else []


def write(folder: Path) -> None:
    """table.csv and table.md."""
    groups = group(folder)
    datasets = dict.fromkeys(dataset for dataset, _, _ in groups)
    write_table(folder, "table", frame(groups), "\n".join(text(dataset, groups) for dataset in datasets))
