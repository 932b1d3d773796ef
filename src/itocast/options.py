"""What commands share: options, settings from them, the table, threads. Nothing heavy is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

Source = Annotated[str, typer.Argument(help="A CSV (also .gz) or Parquet file; - reads CSV from standard input.")]
Model = Annotated[
    str | None,
    typer.Option(help="auto (the default), prior, sde_hnn, hnn, mc_dropout, deep_ensemble, bnn, deep_gp or sde_net."),
]
Calibration = Annotated[
    str | None, typer.Option(help="auto, variance, isotonic, conformal, conformal_quantiles, adaptive or none.")
]
CalibrationBy = Annotated[
    str | None, typer.Option(help="auto, none, series, or a static column: a correction for each.")
]
Threads = Annotated[int, typer.Option(min=1, help="Processor threads to use.")]


def settings(
    horizon: Annotated[
        int | None, typer.Option("--horizon", "-h", min=1, help="Steps to forecast. [default: 1]")
    ] = None,
    window: Annotated[int | None, typer.Option(min=1, help="Rows to look back; by default from the data.")] = None,
    target: Annotated[str | None, typer.Option(help="Column to forecast, or several with commas. [default: y]")] = None,
    time: Annotated[str | None, typer.Option(help="Column of times; '' for rows in order. [default: ds]")] = None,
    id: Annotated[str | None, typer.Option(help="Column that tells series apart. [default: unique_id]")] = None,
    past: Annotated[str | None, typer.Option(help="Covariates known up to now, with commas.")] = None,
    future: Annotated[str | None, typer.Option(help="Covariates known ahead, with commas.")] = None,
    static: Annotated[str | None, typer.Option(help="Covariates that do not change in a series.")] = None,
    effort: Annotated[str | None, typer.Option(help="fast, balanced or best. [default: balanced]")] = None,
    support: Annotated[str | None, typer.Option(help="auto, real, positive or unit. [default: auto]")] = None,
    freq: Annotated[str | None, typer.Option(help="Step between rows, such as h, D, MS; by default inferred.")] = None,
    repeated: Annotated[str | None, typer.Option(help="Repeated times: error, first, last, mean or keep.")] = None,
    gaps: Annotated[str | None, typer.Option(help="Missing times: auto, fill or keep.")] = None,
    holidays: Annotated[str | None, typer.Option(help="Country whose holidays are marked, such as US.")] = None,
    model: Model = None,
    calibration: Calibration = None,
    calibration_by: CalibrationBy = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="At most so many; by default from the data.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed on as many threads gives the same model.")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings; options replace them.")] = None,
) -> Any:
    """The settings of a file and the options that replace them."""
    from itocast.config import Config

    named = {
        "horizon": horizon, "window": window, "target": words(target) if "," in (target or "") else target,
        "time": time, "id": id, "past": words(past), "future": words(future), "static": words(static),
        "effort": effort, "support": support, "data.freq": freq, "data.repeated": repeated, "data.gaps": gaps,
        "data.holidays": holidays, "model.kind": model, "calibration": calibration, "calibration_by": calibration_by,
        "training.epochs": epochs, "seed": seed,
    }  # fmt: skip
    return Config.read(config, named)


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `settings`, which it takes as keywords."""
    own = [one for one in signature(command, eval_str=True).parameters.values() if one.kind != Parameter.VAR_KEYWORD]
    shared = signature(settings, eval_str=True).parameters.values()
    command.__signature__ = signature(command).replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
    return command


def use(threads: int) -> None:
    """Compute with so many threads."""
    import torch

    torch.set_num_threads(threads)


def read(source: str) -> Any:
    """A file's path as it is, to be read in parts, or the table of standard input."""
    if source != "-":
        return source
    from itocast.data.columns import open_frame

    return open_frame(sys.stdin).to_native()


def words(text: str | None) -> list[str] | None:
    """What commas separate."""
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]
