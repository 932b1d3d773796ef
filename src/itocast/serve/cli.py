"""The command `itocast serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Models = Annotated[list[Path], typer.Argument(help="Folders that fit wrote; a model is called as its folder.")]


def serve(
    models: Models,
    host: Annotated[str, typer.Option(help="Where to listen; anywhere but this machine needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that requests must bring; or ITOCAST_TOKEN.")
    ] = None,
    max_body: Annotated[float, typer.Option(min=0.001, help="Megabytes of a request.")] = 16,
    max_rows: Annotated[int, typer.Option(min=1, help="Rows of a request.")] = 200_000,
    max_forecasts: Annotated[int, typer.Option(min=1, help="Rows of an answer.")] = 100_000,
    max_levels: Annotated[int, typer.Option(min=1, help="Levels and quantiles of a request.")] = 32,
    max_waiting: Annotated[int, typer.Option(min=1, help="Requests that wait; more are told to come back.")] = 512,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds until an answer.")] = 60,
    threads: Annotated[int, typer.Option(min=1, help="Processor threads to use.")] = 1,
) -> None:
    """Answer over HTTP, and show a page: forecasts of the models in some folders, read again when these change."""
    import torch

    try:
        from itocast.serve.limits import Limits
        from itocast.serve.server import serve, token_of
    except ImportError as error:
        raise ImportError(f"serving needs {error.name}: pip install 'itocast[serve]'") from None

    torch.set_num_threads(threads)
    limits = Limits(
        body=int(max_body * 1e6), rows=max_rows, forecasts=max_forecasts, levels=max_levels, seconds=timeout,
        waiting=max_waiting,
    )  # fmt: skip
    serve(models, host, port, token_of(token_file), limits)
