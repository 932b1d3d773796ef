"""The demonstration: SDE-HNN beside a plain heteroscedastic network on real traffic, one hour ahead."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table as Grid
from torch import Tensor

from itocast import metrics, plots
from itocast.data import sources
from itocast.data.preparation import Data
from itocast.forecast import Forecast
from itocast.forecaster import Forecaster
from itocast.storage import write_bytes

COMPARED = {"SDE-HNN": "sde_hnn", "HNN": "hnn"}


class Result(NamedTuple):
    """A trained model, its law of the test part, what happened there and the scores."""

    forecaster: Forecaster
    law: Forecast
    y: Tensor
    scores: dict[str, float]


def run(
    folder: Path, seed: int = 0, training: dict[str, Any] | None = None, rows: int | None = None
) -> dict[str, Result]:
    """Train both models on Metro, score them on the last 20 % and write everything to a folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"output={str(folder)!r} is not a folder: {error.strerror}; name another one") from None
    console = Console()
    source, schema = sources.DATASETS["metro"], sources.schema("metro")
    frame = sources.load("metro").drop_duplicates(schema["time"], keep="last")  # an hour whose weather changed is twice
    frame = frame.tail(rows or len(frame)).reset_index(drop=True)
    cut = round(0.8 * len(frame))
    console.print(f"{source.title}.", soft_wrap=True)
    console.print(f"{len(frame):,} rows, some hours missing. The next hour from 24 rows, its time and")
    console.print(f"the weather so far. Test part: the last {len(frame) - cut:,} rows.")
    results: dict[str, Result] = {}
    try:
        for name, model in COMPARED.items():
            console.print(f"Training {name} …")
            forecaster = Forecaster(
                1, window=24, support="positive", data=Data(validation=0.25), model=model, training=training, seed=seed
            )
            forecaster.fit(frame[:cut], **schema).save(folder / name.lower())
            console.print(f"Scoring {name} …")
            law, y = forecaster.backtest_distribution(frame, start=frame[schema["time"]][cut - 1])
            results[name] = Result(forecaster, law, y, metrics.evaluate(law, y))
            if forecaster.fitted.history.stopped == "interrupted":
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        if not results:
            raise
        console.print("Interrupted: what is finished follows.")
    console.print(scores_grid(results, source.unit))
    _write(folder, results, pd.to_datetime(frame[schema["time"]][cut:]).reset_index(drop=True), source.unit)
    console.print("Writing the report …")
    first, *others = results.items()
    beside = {name: result.forecaster for name, result in others}
    first[1].forecaster.report(frame, folder / "report.html", beside=beside, unit=source.unit)
    console.print(_where(folder, results), soft_wrap=True, markup=False)
    return results


def scores_grid(results: dict[str, Result], unit: str) -> Grid:
    """The scores of all models, one column each."""
    grid = Grid("test part", *results, title_justify="left")
    for column in grid.columns[1:]:
        column.justify = "right"
    for name, key, form in (
        (f"RMSE ({unit})", "rmse", ".1f"),
        ("R²", "r2", ".4f"),
        (f"CRPS ({unit})", "crps", ".1f"),
        ("NLL (nats)", "nll", ".3f"),
        ("CWCE", "cwce", ".2f"),
        ("R-CWCE", "r_cwce", ".3f"),
        (f"EPIW ({unit})", "epiw", ".0f"),
        ("inside the 95 % interval", "coverage_95", ".1%"),
    ):
        grid.add_row(name, *(format(result.scores[key], form) for result in results.values()))
    shares = (result.law.epistemic.mean() / result.law.variance.mean() for result in results.values())
    grid.add_row("epistemic share of the variance", *(f"{share:.2%}" for share in shares))
    grid.add_row("parameters", *(f"{result.forecaster.fitted.parameters:,}" for result in results.values()))
    grid.add_row("fit (seconds)", *(f"{result.forecaster.fitted.history.seconds:.0f}" for result in results.values()))
    return grid


def forecast_frame(law: Forecast, y: Tensor, times: pd.Series) -> pd.DataFrame:
    """One row a forecast of the first step and target: time, truth, mean, bounds, standard deviations."""
    columns = {"y": y, "mean": law.mean}
    for level in (50, 95):
        columns[f"lo-{level}"], columns[f"hi-{level}"] = law.interval(level)
    columns |= {"aleatoric": law.aleatoric.sqrt(), "epistemic": law.epistemic.sqrt()}
    return pd.DataFrame({"ds": times} | {name: values[:, 0, 0].numpy() for name, values in columns.items()})


def _write(folder: Path, results: dict[str, Result], times: pd.Series, unit: str) -> None:
    y = next(iter(results.values())).y
    for name, result in results.items():
        frame = forecast_frame(result.law, y, times)
        write_bytes(folder / f"{name.lower()}.csv", frame.to_csv(index=False, float_format="%.2f").encode())
    laws = {name: result.law for name, result in results.items()}
    figure = Figure(figsize=(5.2, 5.2), layout="constrained")
    plots.plot_calibration(laws, y, figure.subplots())
    _figure(folder / "calibration.png", figure)
    figure = Figure(figsize=(10, 5.4), layout="constrained")
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(2, 1))
    last_week = times > times.iloc[-1] - pd.Timedelta(days=7)
    hours = np.flatnonzero(last_week)
    law = results["SDE-HNN"].law[hours]
    plots.plot_intervals(law, y[hours], times[hours], unit, upper)
    upper.set_title("SDE-HNN, one hour ahead: the last week of the test part")
    plots.plot_uncertainty(law, times[hours], unit, lower)
    _figure(folder / "week.png", figure)


def _figure(path: Path, figure: Figure) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=150, format="png")
    write_bytes(path, buffer.getvalue())


def _where(folder: Path, results: dict[str, Result]) -> str:
    names = [name.lower() for name in results]
    tables, models = ", ".join(f"{name}.csv" for name in names), ", ".join(f"{name}/" for name in names)
    return (
        f"Written to {folder}/: report.html, to be opened in a browser; forecasts {tables}; plots calibration.png, "
        f"week.png; models {models}."
    )
