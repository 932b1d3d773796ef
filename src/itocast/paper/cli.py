"""The commands of `itocast paper`, one for each experiment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(help="Every experiment of the paper: tables, figures and the numbers behind them.")

Datasets = Annotated[str | None, typer.Option(help="Names, or name=file, separated by commas (metro,pickups).")]
Methods = Annotated[str | None, typer.Option(help="Models, separated by commas (all).")]
Forms = Annotated[str | None, typer.Option(help="paper or itocast (both).")]
Trials = Annotated[int | None, typer.Option(min=1, help="Runs of each cell (5; with --quick 1).")]
Seed = Annotated[int, typer.Option(min=0, help="Of the first trial; the others follow.")]
Epochs = Annotated[int | None, typer.Option(min=1, help="Of the paper's form (at least 8, and 3,500 steps).")]
Quick = Annotated[bool, typer.Option("--quick", help="Few rows and epochs of Metro: a look, not a result.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes of one thread each.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder with the files of datasets.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Folder (paper; with --quick paper-quick).")]


def _command(names: list[str]) -> Any:
    def command(
        datasets: Datasets = None, methods: Methods = None, forms: Forms = None, trials: Trials = None,
        seed: Seed = 0, epochs: Epochs = None, quick: Quick = False, jobs: Jobs = os.cpu_count() or 1,
        data_dir: DataDir = None, output: Output = None,
    ) -> None:  # fmt: skip
        from itocast.paper.experiments import perform

        options = _options(datasets, methods, forms, trials, seed, epochs, quick, data_dir)
        folder = output or Path("paper-quick" if quick else "paper")
        files = perform(names, options, folder, jobs)
        print(f"Written to {folder}/: {', '.join(path.name for path in files)}; the cells are in {folder}/cells/.")

    return command


def _options(
    datasets: str | None, methods: str | None, forms: str | None, trials: int | None, seed: int, epochs: int | None,
    quick: bool, data_dir: Path | None,
) -> Any:  # fmt: skip
    """Options from words, with those methods whose packages are there unless some are named."""
    from itocast.arguments import choice
    from itocast.paper.protocol import FORMS, METHODS, Options, available

    there, lacking = available(tuple(_words(methods) or METHODS))
    if lacking and methods:
        raise ImportError("; ".join(lacking))
    for line in lacking:
        typer.echo(f"Left out: {line}", err=True)
    for method in there:
        choice("methods", method, METHODS)
    chosen = _words(forms) or list(FORMS)
    for form in chosen:
        choice("forms", form, FORMS)
    names = _words(datasets) or (["metro"] if quick else ["metro", "pickups"])
    return Options(
        datasets=tuple(names), methods=tuple(there), forms=tuple(chosen), trials=trials or (1 if quick else 5),
        seed=seed, epochs=epochs, quick=quick, data_dir=None if data_dir is None else str(data_dir),
    )  # fmt: skip


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


NAMES = {  # of experiments.EXPERIMENTS, here so that help needs no heavy import
    "toy": "Fig. 3: both uncertainties and the trajectories on the toy problem",
    "solver": "Fig. 2: NLL and CWCE by epoch for both solvers",
    "table": "Table 1: all methods and metrics",
    "calibration": "Fig. 5: calibration curves of all methods",
    "intervals": "Fig. 4 and 6: intervals of HNN and SDE-HNN",
    "efficiency": "Fig. 7: parameters and training time",
    "literal": "The literal form taken apart: z, dropout and gain",
}
for _name, _title in NAMES.items():
    app.command(_name, help=f"{_title}.")(_command([_name]))
app.command("all", help="All of them.")(_command(list(NAMES)))


@app.command("page")
def page(
    folder: Annotated[Path, typer.Argument(help="The folder that the experiments wrote.")] = Path("paper"),
    output: Annotated[Path, typer.Option("--output", "-o", help="The Markdown file; figures go beside it.")] = Path(
        "docs/RESULTS.md"
    ),
    reading: Annotated[Path | None, typer.Option(help="A Markdown file of words that go near the top.")] = None,
) -> None:
    """Write one page of all results beside the printed ones."""
    from itocast.paper.page import write

    print(f"Written: {write(folder, output, reading)}")
