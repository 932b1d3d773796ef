"""What the command line prints after a fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from itocast.calibration import Auto
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
    prepared = fitted.preparation
    console = Console()
    series, target = len(prepared.scales), ", ".join(prepared.columns.targets)
    console.print(
        f"{series:,} series of {target}, a row every {prepared.clock.freq}; {_reads(fitted)}, "
        f"{prepared.horizon} ahead; {_training(fitted)}.\n"
        f"Forecasts by {fitted.kind}{_shares(fitted)}.{_left_out(fitted, past)} Range: {_range(fitted)}. "
        f"Calibration: {_way(fitted)}.",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    ahead = " --future FUTURE" if prepared.columns.future else ""
    following = f"Next:\n  itocast predict {output}{ahead} -o forecast.csv"
    if not fitted.outcomes:
        said = "No outcome was left to tell how well these forecasts hold: there are too few rows."
        console.print(f"{said} {following}", highlight=False, markup=False, soft_wrap=True)
        return
    scores = forecaster.evaluate(frame)
    console.print(_grid(scores, prepared.horizon))
    console.print(
        f"{_honest(fitted, scores)} {following}\n"
        f"  itocast backtest {output} {'DATA' if data == '-' else data} -o backtest.csv\n"
        f"  itocast report {output} {'DATA' if data == '-' else data} -o report.html",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip


def _grid(scores: Any, horizon: int) -> Table:
    """Scores of all held-out forecasts, of the first step and of the last."""
    shown = {
        "RMSE": "rmse", "CRPS": "crps", "NLL": "nll", "CWCE": "cwce", "EPIW": "epiw", "in 80 %": "coverage_80",
        "in 95 %": "coverage_95",
    }  # fmt: skip
    grid = Table("held out")
    for name in shown:
        grid.add_column(name, justify="right")
    for row in scores.to_dict("records")[: 1 + (horizon if horizon > 1 else 0)]:
        if row["by"] == "step" and int(row["of"]) not in (1, horizon):
            continue
        name = "all" if row["by"] == "all" else f"step {row['of']}"
        grid.add_row(name, *(_figure(name, row[name]) for name in shown.values()))
    return grid


def _training(fitted: Fitted) -> str:
    """What was learned, and how long it took."""
    if fitted.net is None:
        return "nothing was trained"
    history = fitted.history
    return (
        f"{fitted.parameters:,} parameters, {count(len(history.epochs), 'epoch')} ({history.stopped}, best "
        f"{history.best}){_last(history)}, trained in {history.seconds:.0f} s"
    )


def _way(fitted: Fitted) -> str:
    """What corrects the laws; what that holds is said once, of the held-out rows."""
    calibrator = fitted.calibrator
    if calibrator is None:
        return "none"
    return str(calibrator.way) if isinstance(calibrator, Auto) else fitted.calibration


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
        f", the network with a share of {100 * fitted.share:.0f} %{others} (CRPS of held-out rows, in "
        f"deviations of each series: network {network:.3g}, prior {prior:.3g})"
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
    chosen = [name for name, was in (("the epoch", fitted.net), ("what forecasts", fitted.shares)) if was]
    chose = f"; they did choose {' and '.join(chosen)}" if chosen else ""
    return (
        "Scores are of held-out rows: each was forecast by weights and corrected by a calibration that had not learned "
        f"from it{chose}. They count as about {fitted.outcomes} independent outcomes: {', '.join(said)}."
    )


def _last(history: History) -> str:
    return f" and {len(history.last)} with the newest rows" if history.last else ""


def _figure(name: str, value: float) -> str:
    if name.startswith("coverage"):
        return f"{100 * value:.1f} %"
    return f"{value:.2f}" if name in ("nll", "cwce") else f"{value:.4g}"
