"""Large tables: time and peak memory of fit and predict from 10⁴ to 2·10⁶ rows, and 1,000 series in one command.

Tables are files, and each measurement runs in a process of its own, so that its peak memory is its own; one thread.
Times are of the processor, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from itocast import Forecaster, Training, __version__
from itocast.storage import write_bytes

RESULTS = Path(__file__).parent / "results"
SHAPES = ((20, 500), (200, 500), (200, 5000), (200, 10_000))  # series and rows of each


def table(series: int, rows: int) -> pd.DataFrame:
    """Noisy daily waves of different levels, hourly."""
    random = np.random.default_rng(0)
    hours = np.arange(rows)
    level = 10 ** random.uniform(0, 3, (series, 1))
    y = level * (3 + np.sin(hours * 2 * np.pi / 24) + 0.3 * random.standard_normal((series, rows)))
    return pd.DataFrame(
        {
            "unique_id": np.repeat(np.arange(series), rows),
            "ds": np.tile(pd.date_range("2020-01-01", periods=rows, freq="h").to_numpy(), series),
            "y": y.reshape(-1),
        }
    )


def write(path: str, series: int, rows: int, by_time: bool = False) -> dict[str, float]:
    """A table as a file, in the order of series or of time; its size in MB."""
    frame = table(series, rows)
    frame = frame.sort_values("ds", kind="stable") if by_time else frame
    if path.endswith(".parquet"):
        frame.to_parquet(path, index=False, row_group_size=100_000)
    else:
        frame.to_csv(path, index=False)
    return {"size": Path(path).stat().st_size / 1e6}


def fit(path: str, window: int, horizon: int, model: str) -> dict[str, float]:
    """Seconds to fit with one epoch and to predict, and memory in MB before and at its peak."""
    before, began = _peak(), time.process_time()
    forecaster = Forecaster(horizon, window=window, training=Training(epochs=1)).fit(path)
    fitted, peak = time.process_time(), _peak()
    forecaster.predict()
    done = time.process_time()
    forecaster.save(model)
    return {"fit": fitted - began, "predict": done - fitted, "before": before, "peak": peak}


def predict(path: str, model: str, output: str) -> dict[str, float]:
    """Seconds to forecast from a file into a file, and memory in MB with the model, and at its peak."""
    forecaster = Forecaster.load(model)
    before, began = _peak(), time.process_time()
    forecasts = forecaster.predict_file(path, output)
    return {"seconds": time.process_time() - began, "forecasts": forecasts, "before": before, "peak": _peak()}


def _peak() -> float:
    """The largest resident set so far in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def apart(work: str, **arguments: Any) -> dict[str, float]:
    """Do some work in a process of its own."""
    line = [sys.executable, __file__, "--one", json.dumps([work, arguments])]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{work} {arguments}: {done.stderr}")
    print(work, arguments, done.stdout, file=sys.stderr, flush=True)
    return json.loads(done.stdout)


def fits(folder: Path) -> list[str]:
    lines = ["| rows | series | window | horizon | fit, one epoch (s) | µs a row | rows, times the line above "
             "| time, times it | predict (s) | before (MB) | peak (MB) | bytes a row |",
             f"|{'---:|' * 12}"]  # fmt: skip
    last: tuple[float, float] | None = None
    for series, rows, window, horizon in (*((*shape, 48, 1) for shape in SHAPES), (1000, 400, 24, 24)):
        path, count = folder / f"{series}-{rows}.parquet", series * rows
        apart("write", path=str(path), series=series, rows=rows)
        model = str(folder / f"model-{series}-{rows}")
        out = apart("fit", path=str(path), model=model, window=window, horizon=horizon)
        ratios = f"{count / last[0]:.1f} | {out['fit'] / last[1]:.1f}" if last and horizon == 1 else " | "
        last = count, out["fit"]
        lines.append(
            f"| {count:,} | {series:,} | {window} | {horizon} | {out['fit']:.1f} | {1e6 * out['fit'] / count:.0f} | "
            f"{ratios} | {out['predict']:.2f} | {out['before']:.0f} | {out['peak']:.0f} | "
            f"{2**20 * (out['peak'] - out['before']) / count:,.0f} |"
        )
    return lines


def predictions(folder: Path) -> list[str]:
    lines = ["| rows | file | size (MB) | in the order of | predict (s) | µs a row | with the model (MB) | peak (MB) |",
             "|---:|---|---:|---|---:|---:|---:|---:|"]  # fmt: skip
    model, path = str(folder / "model"), folder / "small.parquet"
    apart("write", path=str(path), series=200, rows=500)
    apart("fit", path=str(path), model=model, window=48, horizon=1)
    for kind, by_time in ((".parquet", False), (".parquet", True), (".csv", False)):
        for series, rows in SHAPES[1:]:
            path = folder / f"table{kind}"
            size = apart("write", path=str(path), series=series, rows=rows, by_time=by_time)["size"]
            out = apart("predict", path=str(path), model=model, output=str(folder / "out.csv"))
            lines.append(
                f"| {series * rows:,} | {kind[1:]} | {size:.1f} | {'time' if by_time else 'series'} | "
                f"{out['seconds']:.2f} | {1e6 * out['seconds'] / (series * rows):.2f} | {out['before']:.0f} | "
                f"{out['peak']:.0f} |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        torch.set_num_threads(1)
        work, values = json.loads(arguments.one)
        works: dict[str, Callable[..., dict[str, float]]] = {"write": write, "fit": fit, "predict": predict}
        print(json.dumps(works[work](**values)))
        return
    with tempfile.TemporaryDirectory() as folder:
        predicted, fitted = "\n".join(predictions(Path(folder))), "\n".join(fits(Path(folder)))
    text = (
        f"# Large tables\n\nMade by `python benchmarks/scale.py` with itocast {__version__}, torch "
        f"{torch.__version__}, Python {platform.python_version()}, one thread. Memory is the largest resident set of "
        "the process, times are processor seconds.\n\n## Fit\n\nFrom Parquet files of hourly series. Bytes a row are "
        "the peak less what the process had before: of few rows it is mostly what every fit needs, training, "
        f"calibration and the libraries they load.\n\n{fitted}\n\n## Predict\n\nFrom the ends of "
        "200 series, by a model fitted on 100,000 rows of them, window 48, horizon 1; forecasts are written to a "
        f"file.\n\n{predicted}\n"
    )
    write_bytes(RESULTS / "scale.md", text.encode())
    print(text)


if __name__ == "__main__":
    main()
