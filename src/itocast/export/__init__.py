"""A fitted model as one ONNX graph, from raw numbers to quantiles, that runs without itocast and PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from itocast.forecaster import Forecaster

LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)


def to_onnx(forecaster: Forecaster, path: str | Path, levels: Sequence[float] = LEVELS) -> dict[str, Any]:
    """Write a graph to a file, after comparing it with PyTorch; returns its description, which it holds as well.

    `levels` are the probabilities of the quantiles it gives, in ascending order. Needs the extra `onnx`.
    """
    check_output(Path(path))
    from itocast.arguments import probabilities
    from itocast.export.writing import write

    return write(forecaster.fitted, Path(path), sorted(set(probabilities("levels", levels))))


def check_output(path: Path) -> None:
    """Refuse a name that cannot be written, before the work and not after it."""
    if path.suffix != ".onnx" or path.is_dir():
        raise ValueError(f"output={str(path)!r}: expected a file name that ends with .onnx")


def inputs(forecaster: Forecaster, df: Any = None, future: Any = None) -> dict[str, np.ndarray]:
    """The arrays that the graph reads to make the forecasts of `forecaster.predict(df, future=future)`.

    One row for each series, in the order of `predict`. They are for checks, and to see what a caller must pass.
    """
    from itocast.export.contract import arrays_of

    [(windows, table)] = forecaster.reader.ahead(df, future, whole=True)
    preparation = forecaster.fitted.preparation.meeting(table)
    return arrays_of(forecaster.fitted, table, windows, preparation)
