"""The command line. Nothing heavy is imported before a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Forecasts whose uncertainty can be trusted.", no_args_is_help=True, add_completion=False)


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
    threads: Annotated[int, typer.Option(min=1, help="Processor threads to use.")] = 1,
    quick: Annotated[bool, typer.Option(help="A few epochs on the newest rows: a look, not a result.")] = False,
) -> None:
    """Train SDE-HNN and a plain heteroscedastic network on real traffic, and compare them."""
    import torch

    from itocast import demo
    from itocast.training import Training

    torch.set_num_threads(threads)
    settings = Training(epochs=8) if quick else Training()
    demo.run(output, seed, settings, rows=8000 if quick else None)


def run() -> None:
    """The entry point: a user's mistake ends with its message, not with a traceback."""
    from rich.console import Console
    from rich.text import Text

    try:
        app()
    except SystemExit as stop:
        if stop.code == 130:
            Console(stderr=True).print("Interrupted.")
        raise
    except (ValueError, ArithmeticError, OSError) as error:
        Console(stderr=True).print(Text.assemble(("Error: ", "red"), str(error)), soft_wrap=True)
        raise SystemExit(1) from None
