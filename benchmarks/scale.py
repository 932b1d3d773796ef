"""Large tables: memory of 2,000,000 rows in 200 series, cost from 10⁴ to 10⁶ rows, and 1,000 series in one command.

Each measurement runs in a process of its own, so that its peak memory is its own; one thread.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from itocast import Forecaster, Training, __version__
from itocast.storage import write_bytes

RESULTS = Path(__file__).parent / "results"


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


def measure(series: int, rows: int, window: int, horizon: int, epochs: int | None) -> dict[str, float]:
    """Seconds to fit, to fit one epoch and to predict, and the peak of memory in GB."""
    torch.set_num_threads(1)
    frame = table(series, rows)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    training = Training(epochs=epochs) if epochs else None
    began = time.perf_counter()
    forecaster = Forecaster(horizon, window=window, training=training).fit(frame)
    fitted = time.perf_counter()
    forecast = forecaster.predict()
    done = time.perf_counter()
    assert len(forecast) == series * horizon
    return {
        "rows": series * rows, "series": series, "horizon": horizon, "epochs": len(forecaster.fitted.history.epochs),
        "fit": fitted - began, "epoch": forecaster.fitted.history.epochs[0]["seconds"], "predict": done - fitted,
        "table": before / 2**20, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(**json.loads(arguments.one))))
        return
    shapes = ((20, 500), (200, 500), (200, 5000), (200, 10_000))
    runs = [{"series": n, "rows": rows, "window": 48, "horizon": 1, "epochs": 1} for n, rows in shapes]
    runs.append({"series": 1000, "rows": 400, "window": 24, "horizon": 24, "epochs": None})  # type: ignore[dict-item]
    names = ("rows", "series", "horizon", "epochs", "fit", "epoch", "predict", "table", "peak")
    lines = ["| rows | series | horizon | epochs | fit (s) | one epoch (s) | µs a row and epoch | predict (s) "
             "| with the table (GB) | peak (GB) |", f"|{'---:|' * 10}"]  # fmt: skip
    for run in runs:
        out = subprocess.run(
            [sys.executable, __file__, "--one", json.dumps(run)], capture_output=True, text=True, check=True
        )
        result = json.loads(out.stdout)
        print(result, file=sys.stderr, flush=True)
        cells = [f"{result[name]:,.0f}" for name in names[:4]]
        cells += [f"{result['fit']:.1f}", f"{result['epoch']:.2f}", f"{1e6 * result['epoch'] / result['rows']:.1f}"]
        cells += [f"{result[name]:.2f}" for name in names[6:]]
        lines.append(f"| {' | '.join(cells)} |")
    head = (
        f"# Large tables\n\nMade by `python benchmarks/scale.py` with itocast {__version__}, torch "
        f"{torch.__version__}, Python {platform.python_version()}, one thread. Memory is the largest resident set of "
        "the process, before and after fit and predict.\n\n"
    )
    write_bytes(RESULTS / "scale.md", (head + "\n".join(lines) + "\n").encode())
    print("\n".join(lines))


if __name__ == "__main__":
    main()
