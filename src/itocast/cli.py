"""The command line. Nothing heavy is imported before a command runs; results go to files or standard output alone."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from itocast.options import Calibration, CalibrationBy, Source, Threads, read, settings, use, with_settings, words
from itocast.paper.cli import app as paper_app
from itocast.serve.cli import serve
from itocast.tuning.cli import tune

app = typer.Typer(help="Forecasts whose uncertainty can be trusted.", no_args_is_help=True, add_completion=False)
datasets_app = typer.Typer(help="Named datasets.", no_args_is_help=True)
app.add_typer(datasets_app, name="datasets")
app.add_typer(paper_app, name="paper")
app.command()(serve)

Model = Annotated[Path, typer.Argument(help="The folder that fit wrote.")]
Output = Annotated[str, typer.Option("--output", "-o", help="A .csv, .csv.gz, .parquet or .json file; - for CSV here.")]
Levels = Annotated[str, typer.Option(help="Central intervals in percent, separated by commas.")]
Quantiles = Annotated[str, typer.Option(help="Probabilities, separated by commas.")]
Start = Annotated[
    str | None,
    typer.Option(help="What comes after it is forecast: a share of the rows, or a time; by default what fit held out."),
]
Step = Annotated[int, typer.Option(min=1, help="Rows from one cutoff to the next.")]
Refit = Annotated[int, typer.Option(min=0, help="Fit anew after so many cutoffs; 0: never.")]
Dataset = Annotated[str, typer.Argument(help="A name of datasets list, or name=file, a path from the data folder.")]
Abstain = Annotated[float | None, typer.Option(help="Mark so large a share of forecasts, such as 0.05, in a column.")]
ZERO_SHOT = ", with --zero-shot."  # the end of the help of what a fitted model knows by itself
DataDir = Annotated[Path | None, typer.Option(help="Folder with files of datasets; then comes the cache.")]


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False) -> None:
    """What is common to all commands."""
    if version:
        from itocast import __version__

        print(__version__)
        raise typer.Exit


@app.command()
def demo(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for forecasts, plots and models: demo, or demo-quick if quick."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed on as many threads gives the same numbers.")] = 0,
    threads: Threads = 1,
    quick: Annotated[bool, typer.Option(help="A few epochs on the newest rows: a look, not a result.")] = False,
) -> None:
    """Train SDE-HNN and a plain heteroscedastic network on real traffic, and compare them."""
    from itocast import demo

    use(threads)
    folder = output or Path("demo-quick" if quick else "demo")
    demo.run(folder, seed, {"epochs": 8} if quick else {}, rows=8000 if quick else None)


@app.command()
@with_settings
def fit(
    data: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model.")] = Path("model"),
    resume: Annotated[bool, typer.Option(help="Keep a checkpoint, and go on from it if there is one.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write a report to this .html file at the end.")] = None,
    threads: Threads = 1,
    **options: Any,
) -> None:
    """Learn from a table, write the model, and say how well it did on the newest rows."""
    from itocast import console
    from itocast.report import check_name
    from itocast.storage import check_folder

    check_folder(output)
    if report is not None:
        check_name(report)
    config = settings(**options)
    use(threads)
    forecaster = config.forecaster()
    frame = read(data)
    checkpoint = output / "checkpoint" if resume else None
    forecaster.fit(frame, **config.columns(), checkpoint=checkpoint)
    forecaster.save(output)
    if checkpoint:
        checkpoint.unlink(missing_ok=True)
    console.summary(forecaster, frame, output, data, config.columns().get("past", ()))
    if report is not None:
        print(f"Report: {forecaster.report(frame, report)}")


app.command()(tune)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="The folder that fit wrote; with --zero-shot, a table.")],
    data: Annotated[str | None, typer.Argument(help="Rows to forecast from; by default those of fit.")] = None,
    output: Output = "-",
    level: Levels = "80,95",
    quantiles: Quantiles = "",
    paths: Annotated[int | None, typer.Option(min=1, help="Sampled courses instead of bounds.")] = None,
    future: Annotated[str | None, typer.Option(help="Table of the covariates that are known ahead.")] = None,
    abstain: Abstain = None,
    zero_shot: Annotated[bool, typer.Option("--zero-shot", help="Forecast a table by the prior, without fit.")] = False,
    horizon: Annotated[int | None, typer.Option("--horizon", "-h", min=1, help=f"Steps to forecast{ZERO_SHOT}")] = None,
    target: Annotated[
        str | None, typer.Option(help=f"Columns to forecast, with commas{ZERO_SHOT} [default: y]")
    ] = None,
    time: Annotated[str | None, typer.Option(help=f"Column of times, '' for none{ZERO_SHOT} [default: ds]")] = None,
    id: Annotated[str | None, typer.Option(help=f"Tells series apart{ZERO_SHOT} [default: unique_id]")] = None,
    freq: Annotated[str | None, typer.Option(help=f"The step between rows, such as MS{ZERO_SHOT}")] = None,
    support: Annotated[str | None, typer.Option(help=f"auto, real, positive or unit{ZERO_SHOT}")] = None,
    threads: Threads = 1,
) -> None:
    """Forecast the steps after the end of each series."""
    from itocast.data import frames

    use(threads)
    frames.check_name(output)
    named = {"horizon": horizon, "target": target, "time": time, "id": id, "freq": freq, "support": support}
    forecaster = _zero_shot(model, data, future, named) if zero_shot else _fitted(model, named)
    rows, ahead = (None if source is None else read(source) for source in (data, future))
    levels, probabilities = _numbers("level", level), _numbers("quantiles", quantiles)
    forecaster.predict_file(rows, output, levels, probabilities, paths, ahead, abstain)


@app.command()
def backtest(
    model: Model, data: Source, output: Output = "-", start: Start = None, step: Step = 1, refit: Refit = 0,
    level: Levels = "80,95", quantiles: Quantiles = "", abstain: Abstain = None, threads: Threads = 1,
) -> None:  # fmt: skip
    """Forecast from every cutoff of the newest rows, beside what happened."""
    from itocast.data import frames

    use(threads)
    frames.check_name(output)
    levels, probabilities = _numbers("level", level), _numbers("quantiles", quantiles)
    forecaster = _load(model)
    frames.write(forecaster.backtest(read(data), _start(start), step, refit, levels, probabilities, abstain), output)


@app.command()
def evaluate(
    model: Model, data: Source, output: Output = "-", start: Start = None, step: Step = 1, refit: Refit = 0,
    threads: Threads = 1,
) -> None:  # fmt: skip
    """Every metric of a backtest: over all forecasts, by step and by series."""
    from itocast.data import frames

    use(threads)
    frames.check_name(output)
    frames.write(_load(model).evaluate(read(data), _start(start), step, refit), output)


@app.command()
def doctor(
    model: Model, data: Source,
    start: Annotated[str | None, typer.Option(help="Share of the rows, or a time; by default the end of fit.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Everything, for machines.")] = False, threads: Threads = 1,
) -> None:  # fmt: skip
    """Say where intervals fail, and which setting addresses it."""
    from json import dumps

    from rich.console import Console

    use(threads)
    with Console(stderr=True).status("Forecasting, and trying what would help"):
        diagnosis = _load(model).diagnose(read(data), _start(start))
    print(dumps(diagnosis.to_dict(), indent=1) if json else diagnosis)


@app.command()
def report(
    model: Model, data: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="An .html file.")] = Path("report.html"),
    start: Annotated[str | None, typer.Option(help="Share of the rows, or a time; by default the end of fit.")] = None,
    beside: Annotated[list[Path] | None, typer.Option(help="A model to compare with; can be repeated.")] = None,
    unit: Annotated[str, typer.Option(help="Unit of the target, such as 'vehicles per hour'.")] = "",
    threads: Threads = 1,
) -> None:  # fmt: skip
    """Write a page about a model and a table: forecasts, calibration, scores, findings; one file, no network."""
    from rich.console import Console

    from itocast.report import check_name

    use(threads)
    check_name(output)
    names = [folder.name for folder in beside or []]
    others = {f.name if names.count(f.name) == 1 else str(f): _load(f) for f in beside or []}
    with Console(stderr=True).status("Forecasting, and looking at what happened"):
        first = _start(start)
        written = _load(model).report(read(data), output, first, others, unit)
    print(f"Report: {written} ({written.stat().st_size / 1e6:.1f} MB)")


@app.command()
def update(model: Model, data: Source, threads: Threads = 1) -> None:
    """Go on from a model with new rows, and write it in place."""
    from itocast.console import count

    use(threads)
    forecaster = _load(model)
    history = forecaster.update(read(data))
    forecaster.save(model)
    done = f"trained on for {count(len(history.epochs), 'epoch')}" if history.epochs else "too few new rows to train on"
    print(f"{model}: forecasts now start after the new rows; {done}")


@app.command()
def calibrate(
    model: Model, data: Source, calibration: Calibration = "auto", calibration_by: CalibrationBy = "auto",
    threads: Threads = 1,
) -> None:  # fmt: skip
    """Exchange the calibration of a model, learned from the newest rows, and write it in place; nothing is trained."""
    use(threads)
    forecaster = _load(model)
    asked = (None if word == "none" else word for word in (calibration, calibration_by))
    forecaster.calibrate(read(data), *asked)
    forecaster.save(model)
    print(f"{model}: calibration {forecaster.fitted.calibration}")


@app.command()
def observe(model: Model, data: Source, threads: Threads = 1) -> None:
    """Tell an adaptive calibration what happened in new rows, and write the model in place."""
    use(threads)
    forecaster = _load(model)
    count = forecaster.observe(read(data))
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

    use(threads)
    check_output(output)
    forecaster = _load(model)
    described = to_onnx(forecaster, output, _numbers("levels", levels))
    print(
        f"{output}: reads {', '.join(one['name'] for one in described['inputs'])}; gives "
        f"{', '.join(described['outputs'])} at {', '.join(map(str, described['levels']))}; differs from PyTorch by at "
        f"most {described['difference']:.0e} of a number or the law's deviation"
    )


@app.command()
def long(
    data: Source, output: Output = "-", time: Annotated[str, typer.Option(help="Column of times; '' for none.")] = "ds"
) -> None:
    """Turn a wide table, one column a series, into a long one: unique_id, the column of times, and y."""
    from itocast.data import frames, reading

    frames.check_name(output)
    frames.write(reading.long(read(data), time or None), output)


@datasets_app.command("list")
def datasetswords(data_dir: DataDir = None) -> None:
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


def _zero_shot(table: Path, data: str | None, future: str | None, named: dict[str, Any]) -> Any:
    """The prior on a table; it reads the targets alone."""
    for name, value in {"DATA": data, "--future": future}.items():
        if value is not None:
            raise ValueError(
                f"{name} {value} does not go with --zero-shot: it forecasts the one table that it is given"
            )
    chosen = settings(**named, model="prior")
    return chosen.forecaster().fit(read(str(table)), **chosen.columns())


def _fitted(folder: Path, named: dict[str, Any]) -> Any:
    """A model that was fitted, which has settings of its own."""
    for name, value in named.items():
        if value is not None:
            raise ValueError(
                f"--{name} {value} goes with --zero-shot alone: a model of fit has a {name} of its own; leave it "
                "out, or add --zero-shot to forecast a table"
            )
    return _load(folder)


def _load(folder: Path) -> Any:
    from itocast.forecaster import Forecaster

    return Forecaster.load(folder)


def _few(names: list[str]) -> str:
    """All names, or the first ones and the last where they are many."""
    return ", ".join(names) if len(names) < 15 else f"{', '.join(names[:5])}, …, {names[-1]} ({len(names)} columns)"


def _numbers(option: str, text: str) -> list[float]:
    try:
        return [float(word) for word in words(text) or []]
    except ValueError:
        raise ValueError(f"{option}={text!r}: expected numbers separated by commas") from None


def _start(text: str | None) -> float | str | None:
    if text is None:
        return None
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
