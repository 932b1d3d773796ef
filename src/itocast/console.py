"""What the command line prints after a fit and after a search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from itocast.forecaster import Forecaster
from itocast.tuning import BEST, HELD, TRIALS, Tuned

SHOWN = 10  # trials of a search, the defaults among them


def count(number: int, thing: str) -> str:
    """A number of things.

    >>> count(1, "epoch"), count(1200, "epoch")
    ('1 epoch', '1,200 epochs')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def report(forecaster: Forecaster, frame: Any, output: Path, data: str) -> None:
    """What was learned from, how it went, the scores of the newest rows, and what to do next."""
    fitted = forecaster.fitted
    prepared, history = fitted.preparation, fitted.history
    console = Console()
    series, target = len(prepared.scales), ", ".join(prepared.columns.targets)
    console.print(
        f"{series:,} series of {target}, a row every {prepared.clock.freq}; {prepared.window} rows back, "
        f"{prepared.horizon} ahead; {fitted.parameters:,} parameters, {count(len(history.epochs), 'epoch')} "
        f"({history.stopped}, best {history.best}), trained in {history.seconds:.0f} s.\n"
        f"Calibration {fitted.calibration}.",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    scores = forecaster.evaluate(frame, start=1 - prepared.data.validation, most=4000)
    shown = {
        "RMSE": "rmse", "CRPS": "crps", "NLL": "nll", "CWCE": "cwce", "EPIW": "epiw", "in 80 %": "coverage_80",
        "in 95 %": "coverage_95",
    }  # fmt: skip
    grid = Table("held out")
    for name in shown:
        grid.add_column(name, justify="right")
    for row in scores.to_dict("records")[: 1 + (prepared.horizon if prepared.horizon > 1 else 0)]:
        if row["by"] == "step" and int(row["of"]) not in (1, prepared.horizon):
            continue
        name = "all" if row["by"] == "all" else f"step {row['of']}"
        grid.add_row(name, *(_figure(name, row[name]) for name in shown.values()))
    console.print(grid)
    ahead = " --future FUTURE" if prepared.columns.future else ""
    console.print(
        f"The newest {100 * prepared.data.validation:.0f} % of the rows: not trained on, but they chose the epoch and "
        f"the calibration. Next:\n  itocast predict {output}{ahead} -o forecast.csv\n"
        f"  itocast backtest {output} {'DATA' if data == '-' else data} -o backtest.csv",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip


def report_tuned(found: Tuned, output: Path, data: str) -> None:
    """What was tried, the best of it, by how much it beats the defaults, and what to do next."""
    console, table = Console(), found.table
    grid = Table("rank", "CRPS", "gain", "seconds", "settings that differ")
    for row in table[(table.index < SHOWN - 1) | (table["trial"] == 0)].to_dict("records"):
        score = (f"{row['rank']}", f"{row['crps']:.4g}", f"{row['gain']:.1f} %")
        score = score if row["outcome"] == "finished" else ("", row["outcome"], "")
        grid.add_row(*score, f"{row['seconds']:.0f}", row["settings"])
    console.print(grid)
    held = f"the newest {100 * HELD:.0f} % of the rows, after {found.since}, which no trial learned from"
    verdict = (
        f"The best has a CRPS {found.gain:.1f} % below that of the defaults on {held}. They chose it, so expect less "
        "of it on others, and compare both there before you rely on it."
        if found.gain > 0
        else f"Nothing was better than the defaults on {held}."
    )
    interrupted = "Interrupted: every finished trial is kept. " if found.interrupted else ""
    console.print(
        f"{count(len(table), 'trial')}, all of them in {output / TRIALS}. {verdict}\n{interrupted}The same command "
        f"goes on from here. Next:\n  itocast fit {'DATA' if data == '-' else data} --config {output / BEST} -o model",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip


def _figure(name: str, value: float) -> str:
    if name.startswith("coverage"):
        return f"{100 * value:.1f} %"
    return f"{value:.2f}" if name in ("nll", "cwce") else f"{value:.4g}"
