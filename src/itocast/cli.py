"""The command line. Nothing heavy is imported before a command runs; results go to files or standard output alone."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from itocast.paper.cli import app as paper_app

app = typer.Typer(help="Forecasts whose uncertainty can be trusted.", no_args_is_help=True, add_completion=False)
datasets_app = typer.Typer(help="Named datasets.", no_args_is_help=True)
app.add_typer(datasets_app, name="datasets")
app.add_typer(paper_app, name="paper")

Source = Annotated[str, typer.Argument(help="A CSV (also .gz) or Parquet file; - reads CSV from standard input.")]
Model = Annotated[Path, typer.Argument(help="The folder that fit wrote.")]
Output = Annotated[str, typer.Option("--output", "-o", help="A .csv, .csv.gz, .parquet or .json file; - for CSV here.")]
Levels = Annotated[str, typer.Option(help="Central intervals in percent, separated by commas.")]
Quantiles = Annotated[str, typer.Option(help="Probabilities, separated by commas.")]
Start = Annotated[str, typer.Option(help="What comes after it is forecast: a share of the rows, or a time.")]
Step = Annotated[int, typer.Option(min=1, help="Rows from one cutoff to the next.")]
Refit = Annotated[int, typer.Option(min=0, help="Fit anew after so many cutoffs; 0: never.")]
Dataset = Annotated[str, typer.Argument(help="A name of datasets list, or name=file, a path from the data folder.")]
Abstain = Annotated[float | None, typer.Option(help="Mark so large a share of forecasts, such as 0.05, in a column.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder with files of datasets; then comes the cache.")]
Calibration = Annotated[
    str | None, typer.Option(help="auto, variance, isotonic, conformal, conformal_quantiles, adaptive or none.")
]
CalibrationBy = Annotated[str | None, typer.Option(help="series, or a static column: a correction for each.")]
Threads = Annotated[int, typer.Option(min=1, help="Processor threads to use.")]


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False) -> None:
    """What is common to all commands."""
    if version:
        from itocast import __version__

        print(__version__)
        raise typer.Exit


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for forecasts, plots and models.")] = Path(
        "demo"
    ),
    seed: Annotated[int, typer.Option(help="The same seed on as many threads gives the same numbers.")] = 0,
    threads: Threads = 1,
    quick: Annotated[bool, typer.Option(help="A few epochs on the newest rows: a look, not a result.")] = False,
) -> None:
    """Train SDE-HNN and a plain heteroscedastic network on real traffic, and compare them."""
    from itocast import demo

    _use(threads)
    demo.run(output, seed, {"epochs": 8} if quick else {}, rows=8000 if quick else None)


@app.command()
def fit(
    data: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model.")] = Path("model"),
    horizon: Annotated[int | None, typer.Option(min=1, help="Steps to forecast. [default: 1]")] = None,
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
    model: Annotated[str | None, typer.Option(help="sde_hnn or hnn.")] = None,
    calibration: Calibration = None,
    calibration_by: CalibrationBy = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="At most so many; by default from the data.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed on as many threads gives the same model.")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings; options replace them.")] = None,
    resume: Annotated[bool, typer.Option(help="Keep a checkpoint, and go on from it if there is one.")] = False,
    threads: Threads = 1,
) -> None:
    """Learn from a table, write the model, and say how well it did on the newest rows."""
    from itocast.config import Config
    from itocast.console import report
    from itocast.storage import check_folder

    check_folder(output)
    options = {
        "horizon": horizon, "window": window, "target": _list(target) if target and "," in target else target,
        "id": id, "past": _list(past), "future": _list(future), "static": _list(static), "effort": effort,
        "support": support,
        "data.freq": freq, "data.repeated": repeated, "data.gaps": gaps, "data.holidays": holidays,
        "model.kind": model, "calibration": calibration, "calibration_by": calibration_by, "training.epochs": epochs,
        "seed": seed, "time": time,
    }  # fmt: skip
    settings = Config.read(config, options)
    _use(threads)
    forecaster = settings.forecaster()
    frame = _source(data)
    checkpoint = output / "checkpoint" if resume else None
    forecaster.fit(frame, **settings.columns(), checkpoint=checkpoint)
    forecaster.save(output)
    if checkpoint:
        checkpoint.unlink(missing_ok=True)
    report(forecaster, frame, output, data)


@app.command()
def predict(
    model: Model,
    data: Annotated[str | None, typer.Argument(help="Rows to forecast from; by default those of fit.")] = None,
    output: Output = "-",
    level: Levels = "80,95",
    quantiles: Quantiles = "",
    paths: Annotated[int | None, typer.Option(min=1, help="Sampled courses instead of bounds.")] = None,
    future: Annotated[str | None, typer.Option(help="Table of the covariates that are known ahead.")] = None,
    abstain: Abstain = None,
    threads: Threads = 1,
) -> None:
    """Forecast the steps after the end of each series."""
    from itocast.data import frames

    _use(threads)
    frames.check_name(output)
    forecaster = _load(model)
    rows, ahead = (None if source is None else _source(source) for source in (data, future))
    levels, probabilities = _numbers("level", level), _numbers("quantiles", quantiles)
    forecaster.predict_file(rows, output, levels, probabilities, paths, ahead, abstain)


@app.command()
def backtest(
    model: Model, data: Source, output: Output = "-", start: Start = "0.8", step: Step = 1, refit: Refit = 0,
    level: Levels = "80,95", quantiles: Quantiles = "", abstain: Abstain = None, threads: Threads = 1,
) -> None:  # fmt: skip
    """Forecast from every cutoff of the newest rows, beside what happened."""
    from itocast.data import frames

    _use(threads)
    frames.check_name(output)
    levels, probabilities = _numbers("level", level), _numbers("quantiles", quantiles)
    forecaster = _load(model)
    frames.write(forecaster.backtest(_source(data), _start(start), step, refit, levels, probabilities, abstain), output)


@app.command()
def evaluate(
    model: Model, data: Source, output: Output = "-", start: Start = "0.8", step: Step = 1, refit: Refit = 0,
    threads: Threads = 1,
) -> None:  # fmt: skip
    """Every metric of a backtest: over all forecasts, by step and by series."""
    from itocast.data import frames

    _use(threads)
    frames.check_name(output)
    frames.write(_load(model).evaluate(_source(data), _start(start), step, refit), output)


@app.command()
def doctor(
    model: Model, data: Source,
    start: Annotated[str | None, typer.Option(help="Share of the rows, or a time; by default the end of fit.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Everything, for machines.")] = False, threads: Threads = 1,
) -> None:  # fmt: skip
    """Say where intervals fail, and which setting addresses it."""
    from json import dumps

    from rich.console import Console

    _use(threads)
    with Console(stderr=True).status("Forecasting, and trying what would help"):
        diagnosis = _load(model).diagnose(_source(data), None if start is None else _start(start))
    print(dumps(diagnosis.to_dict(), indent=1) if json else diagnosis)


@app.command()
def update(model: Model, data: Source, threads: Threads = 1) -> None:
    """Go on from a model with new rows, and write it in place."""
    from itocast.console import count

    _use(threads)
    forecaster = _load(model)
    history = forecaster.update(_source(data))
    forecaster.save(model)
    done = f"trained on for {count(len(history.epochs), 'epoch')}" if history.epochs else "too few new rows to train on"
    print(f"{model}: forecasts now start after the new rows; {done}")


@app.command()
def calibrate(
    model: Model, data: Source, calibration: Calibration = "auto", calibration_by: CalibrationBy = None,
    threads: Threads = 1,
) -> None:  # fmt: skip
    """Exchange the calibration of a model, learned from the newest rows, and write it in place; nothing is trained."""
    _use(threads)
    forecaster = _load(model)
    forecaster.calibrate(_source(data), None if calibration == "none" else calibration, calibration_by)
    forecaster.save(model)
    print(f"{model}: calibration {forecaster.fitted.calibration}")


@app.command()
def observe(model: Model, data: Source, threads: Threads = 1) -> None:
    """Tell an adaptive calibration what happened in new rows, and write the model in place."""
    _use(threads)
    forecaster = _load(model)
    count = forecaster.observe(_source(data))
    forecaster.save(model)
    print(f"{model}: forecasts now start after the new rows; calibration learned from {count:,} forecasts")


@app.command()
def export(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="A .onnx file.")] = Path("model.onnx"),
    levels: Annotated[str, typer.Option(help="Probabilities of the quantiles it gives, with commas.")] = (
        "0.025,0.05,0.1,0.25,0.5,0.75,0.9,0.95,0.975"
    ),
    threads: Threads = 1,
) -> None:
    """Write a model as an ONNX graph that runs without itocast, after comparing it with PyTorch."""
    from itocast.export import check_output, to_onnx

    _use(threads)
    check_output(output)
    forecaster = _load(model)
    described = to_onnx(forecaster, output, _numbers("levels", levels))
    print(
        f"{output}: reads {', '.join(one['name'] for one in described['inputs'])}; gives "
        f"{', '.join(described['outputs'])} at {levels}; differs from PyTorch by at most {described['difference']:.0e}"
    )


@app.command()
def long(
    data: Source, output: Output = "-", time: Annotated[str, typer.Option(help="Column of times; '' for none.")] = "ds"
) -> None:
    """Turn a wide table, one column a series, into a long one: unique_id, the column of times, and y."""
    from itocast.data import frames, reading

    frames.check_name(output)
    frames.write(reading.long(_source(data), time or None), output)


@datasets_app.command("list")
def datasets_list(data_dir: DataDir = None) -> None:
    """The names of all datasets, rows × columns, where they are, and what they are."""
    from itocast.data import sources

    places = {name: sources.where(name, data_dir) for name in sources.DATASETS}
    width = max(map(len, places.values()))
    for name, source in sources.DATASETS.items():
        print(f"{name:<12} {sources.size_text(source.size):<13} {places[name]:<{width}}  {source.title}")


@datasets_app.command("show")
def datasets_show(name: Dataset, data_dir: DataDir = None) -> None:
    """What a dataset holds, how to fit it, and whom to credit."""
    from itocast.data import sources

    source, data = sources.source_of(name), sources.open_dataset(name, data_dir)
    print(f"{source.title}\n{source.credit}\n{source.file.page}\n{data.file}: {data.digest}")
    print(f"{len(data.frame):,} rows; target in {source.unit}")
    for key, value in data.schema.items():
        print(f"{key}: {_few(value) if isinstance(value, list) else value}")
    print(data.frame.head().to_string(max_cols=14))


@datasets_app.command("get")
def datasets_get(name: Dataset, output: Output = "-", data_dir: DataDir = None) -> None:
    """Write a dataset as a table, downloaded if need be."""
    from itocast.data import frames, sources

    frames.check_name(output)
    frames.write(sources.load(name, data_dir), output)


def _use(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


def _load(folder: Path) -> Any:
    from itocast.forecaster import Forecaster

    return Forecaster.load(folder)


def _source(source: str) -> Any:
    """A path as it is: it is read in parts; standard input is read whole."""
    if source != "-":
        return source
    from itocast.data.columns import open_frame

    return open_frame(sys.stdin).to_native()


def _list(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _few(names: list[str]) -> str:
    """All names, or the first ones and the last where they are many."""
    return ", ".join(names) if len(names) < 15 else f"{', '.join(names[:5])}, …, {names[-1]} ({len(names)} columns)"


def _numbers(option: str, text: str) -> list[float]:
    try:
        return [float(word) for word in _list(text) or []]
    except ValueError:
        raise ValueError(f"{option}={text!r}: expected numbers separated by commas") from None


def _start(text: str) -> float | str:
    try:
        share = float(text)
    except ValueError:
        return text
    return share if 0 < share < 1 else text


def _options(message: str) -> str:
    """What an argument of Python that a message names is called here."""
    named = re.search(r"(?:pass|with) (\w+)=", message)
    return f" (here an option: --{named[1]})" if named else ""


def run() -> None:
    """The entry point: a user's mistake ends with its message, not with a traceback; a warning is one line."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _say("Warning: ", "yellow", str(message))
        try:
            app()
        except SystemExit as stop:
            if stop.code == 130:
                _say("Interrupted.")
            raise
        except BrokenPipeError:  # the reader of standard output has seen enough
            sys.stderr.close()
        except (ValueError, TypeError, ArithmeticError, OSError, ImportError) as error:
            message = str(error)
            if isinstance(error, OSError) and error.filename:
                message = f"{error.filename}: {error.strerror}; name another file or folder"
            _say("Error: ", "red", message + _options(message))
            raise SystemExit(1) from None


def _say(head: str, style: str = "", text: str = "") -> None:
    """A line on standard error."""
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True).print(Text.assemble((head, style), text), soft_wrap=True)
