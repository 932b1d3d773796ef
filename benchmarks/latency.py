"""An exported model: milliseconds for one row and for many, beside PyTorch, and how far the two are apart.

A network on Metro, 24 lags and calendar, and the prior, nine quantiles, one thread. Weights do not
change the time, so that two epochs of training on the newest rows do.
"""

from __future__ import annotations

import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from itocast import Forecaster, __version__, datasets
from itocast.export import LEVELS, inputs, to_onnx
from itocast.storage import write_bytes

RESULTS = Path(__file__).parent / "results"
CALIBRATIONS = (None, "variance", "isotonic", "conformal", "conformal_quantiles", "adaptive")
FEW = (None, "conformal_quantiles")
CASES = (("sde_hnn", 1, CALIBRATIONS), ("sde_hnn", 24, FEW), ("prior", 1, FEW), ("prior", 24, FEW))


def median(work: Callable[[], object], times: int) -> float:
    """The median of so many runs in ms, after a few that do not count."""
    took = []
    for turn in range(times + 5):
        began = time.perf_counter()
        work()
        if turn >= 5:
            took.append(1000 * (time.perf_counter() - began))
    return statistics.median(took)


def measure(forecaster: Forecaster, path: Path) -> tuple[float, float, float, float]:
    """Largest difference, and ms for one row, for each of 64 rows, and of PyTorch for one row."""
    import onnxruntime

    difference = to_onnx(forecaster, path)["difference"]
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    one = inputs(forecaster)
    many = {name: np.repeat(array, 64, axis=0) for name, array in one.items()}
    [(windows, _)] = forecaster.reader.ahead(None, None)

    def library() -> None:
        law = forecaster.fitted.law(windows)
        assert law.mean is not None
        law.quantile(list(LEVELS))

    return (
        difference,
        median(lambda: session.run(None, one), 300),
        median(lambda: session.run(None, many), 20) / 64,
        median(library, 50),
    )


def main() -> None:
    torch.set_num_threads(1)
    metro = datasets.load("metro").tail(6000)
    names = (
        "model", "steps ahead", "calibration", "largest difference", "ONNX Runtime, one row (ms)",
        "a row of 64 (ms)", "PyTorch, one row (ms)",
    )  # fmt: skip
    lines = [f"| {' | '.join(names)} |", "|---|---:|---|---:|---:|---:|---:|"]
    for model, horizon, calibrations in CASES:
        forecaster = Forecaster(
            horizon, window=24, support="positive", data={"repeated": "last"}, model=model,
            training={"epochs": 2},
        )  # fmt: skip
        forecaster.fit(metro, target="traffic_volume", time="date_time")
        for calibration in calibrations:
            forecaster.calibrate(metro, calibration)
            with tempfile.TemporaryDirectory() as folder:
                difference, one, many, library = measure(forecaster, Path(folder) / "model.onnx")
            figures = f"{difference:.0e} | {one:.2f} | {many:.2f} | {library:.1f}"
            lines.append(f"| {model} | {horizon} | {calibration or 'none'} | {figures} |")
            print(lines[-1], flush=True)
    head = (
        f"# Exported models\n\nMade by `python benchmarks/latency.py` with itocast {__version__}, torch "
        f"{torch.__version__}, Python {platform.python_version()}, {platform.machine()}, one thread: Metro, a "
        "network with 24 lags and calendar, and the prior, nine quantiles; medians. Differences are from "
        "PyTorch, relative to the number or the law's deviation, the larger of the two.\n\n"
    )
    write_bytes(RESULTS / "latency.md", (head + "\n".join(lines) + "\n").encode())


if __name__ == "__main__":
    main()
