"""What the command line prints after a fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from itocast.fitted import Fitted
from itocast.forecaster import Forecaster
from itocast.metrics import chance_band
from itocast.training import History
from itocast.zero_shot import CONTEXT


def count(number: int, thing: str) -> str:
    """A number of things.

    >>> count(1, "epoch"), count(1200, "epoch")
    ('1 epoch', '1,200 epochs')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def summary(forecaster: Forecaster, frame: Any, output: Path, data: str, past: Sequence[str] = ()) -> None:
    """What was learned from, how it went, the scores of the newest rows, and what to do next.

    `past` are the past covariates that were given.
    """
    fitted = forecaster.fitted
    prepared, history = fitted.preparation, fitted.history
    console = Console()
    series, target = len(prepared.scales), ", ".join(prepared.columns.targets)
    console.print(
        f"{series:,} series of {target}, a row every {prepared.clock.freq}; {_reads(fitted)}, "
        f"{prepared.horizon} ahead; {fitted.parameters:,} parameters, {count(len(history.epochs), 'epoch')} "
        f"({history.stopped}, best {history.best}){_last(history)}, trained in {history.seconds:.0f} s.\n"
        f"Forecasts by {fitted.kind}{_shares(fitted)}.{_left_out(fitted, past)} Range: {_range(fitted)}. "
        f"Calibration {fitted.calibration}.",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    scores = forecaster.evaluate(frame)
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
        f"{_honest(fitted, scores)} Next:\n  itocast predict {output}{ahead} -o forecast.csv\n"
        f"  itocast backtest {output} {'DATA' if data == '-' else data} -o backtest.csv\n"
        f"  itocast report {output} {'DATA' if data == '-' else data} -o report.html",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip


def _reads(fitted: Fitted) -> str:
    """Which rows before it a forecast rests on."""
    if fitted.net is None:
        return f"up to {CONTEXT:,} rows back"
    prepared = fitted.preparation
    seasons = " and ".join(f"{echo:,}" for echo in prepared.echoes)
    longer = "seasons" if len(prepared.echoes) > 1 else "a season"
    return f"{prepared.window:,} rows back" + (f", {longer} of {seasons}" if seasons else "")


def _shares(fitted: Fitted) -> str:
    """Why the network or the prior forecasts, if there was a choice."""
    if not fitted.shares:
        return ""
    network, prior = fitted.shares[1.0], fitted.shares[0.0]
    others = f", another in {len(fitted.own)} of the series" if fitted.own else ""
    return (
        f", the network with a share of {100 * fitted.share:.0f} %{others} (CRPS of held-out rows: "
        f"network {network:.3g}, prior {prior:.3g})"
    )


def _left_out(fitted: Fitted, past: Sequence[str]) -> str:
    """Which covariates did not earn their place."""
    dropped = [name for name in past if name not in fitted.preparation.columns.past]
    if not dropped or fitted.net is None:
        return ""
    return f" Past covariates are left out, without which held-out rows were forecast better: {', '.join(dropped)}."


def _range(fitted: Fitted) -> str:
    return {"real": "unlimited", "positive": "0 and above", "unit": "0 to 1"}[fitted.support]


def _honest(fitted: Fitted, scores: Any) -> str:
    """What the scores are of, and what chance allows."""
    held = scores[scores["by"] == "all"].iloc[0]
    said = []
    for level in (80, 95):
        low, high = chance_band(level / 100, fitted.outcomes)
        share = f"{100 * held[f'coverage_{level}']:.1f} %"
        said.append(f"{level} % intervals held {share} (chance allows {100 * low:.0f} to {100 * high:.0f} %)")
    return (
        "Scores are of held-out rows: each was forecast by weights and corrected by a calibration that had not learned "
        f"from it; they did choose the epoch. They count as about {fitted.outcomes} independent outcomes: "
        f"{', '.join(said)}."
    )


def _last(history: History) -> str:
    return f" and {len(history.last)} with the newest rows" if history.last else ""


def _figure(name: str, value: float) -> str:
    if name.startswith("coverage"):
        return f"{100 * value:.1f} %"
    return f"{value:.2f}" if name in ("nll", "cwce") else f"{value:.4g}"
