"""Metro and Pickups in the practical protocol, through the Forecaster: bars for accuracy and coverage.

24 lags, calendar, time gaps, weather of the past; fit on the first 60 % of the rows, early stopping and calibration on
the next 20 %, test on the last 20 % with true lags; one thread. Pickups is looked for in `--data-dir`,
then in the cache.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd
import torch

from itocast import Data, Forecaster, __version__, datasets, metrics
from itocast.storage import write_bytes

RESULTS = Path(__file__).parent / "results"
SHOWN = {"rmse": ".1f", "crps": ".1f", "nll": ".3f", "cwce": ".2f", "coverage_50": ".3f", "coverage_90": ".3f",
         "coverage_95": ".3f", "seconds": ".0f"}  # fmt: skip
BARS = {"Metro": 97.0, "Pickups": 39.0}


def load(name: str, folder: Path) -> tuple[pd.DataFrame, dict[str, Any], Data]:
    if name == "Metro":  # every row counts, as in the paper: an hour whose weather changed is there more than once
        return datasets.load("metro"), datasets.schema("metro"), Data(repeated="keep", gaps="keep", validation=0.25)
    pickups = datasets.open_dataset("pickups", folder)
    schema = pickups.schema | {"future": []}  # the weather of the past alone
    return pickups.frame, schema, Data(validation=0.25)


def run(name: str, folder: Path, seed: int) -> dict[str, float]:
    frame, schema, data = load(name, folder)
    times = pd.to_datetime(frame[schema["time"]])
    cut = times.sort_values().iloc[round(0.8 * len(frame)) - 1]
    forecaster = Forecaster(1, window=24, support="positive", data=data, seed=seed)
    began = time.process_time()
    forecaster.fit(frame[times <= cut], **schema)
    seconds = time.process_time() - began
    law, y = forecaster.backtest_distribution(frame, start=cut)
    scores = metrics.evaluate(law, y) | {"seconds": seconds, "forecasts": len(y)}
    print(name, f"{seed=}", {k: round(v, 3) for k, v in scores.items()}, file=sys.stderr, flush=True)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = [f"| data | {' | '.join(SHOWN)} |", f"|---|{'---:|' * len(SHOWN)}"]
    bars = []
    for name, bar in BARS.items():
        runs = [run(name, arguments.data_dir, seed) for seed in range(arguments.seeds)]
        scores = {key: mean(one[key] for one in runs) for key in runs[0]}
        lines.append(f"| {name} | {' | '.join(format(scores[key], form) for key, form in SHOWN.items())} |")
        met = scores["crps"] <= bar
        bars.append(f"- {'met' if met else 'MISSED'}: {name} CRPS {scores['crps']:.1f}, at most {bar:g}")
        met = 0.87 <= scores["coverage_90"] <= 0.93
        bars.append(f"- {'met' if met else 'MISSED'}: {name} in 90 %: {100 * scores['coverage_90']:.1f} %, 87 to 93")
    text = "\n".join([*lines, "", f"Means of {arguments.seeds} seeds; processor seconds to fit.", "", *bars])
    head = (
        f"# Practical protocol\n\nMade by `python benchmarks/practical.py --data-dir DATA` with itocast {__version__}, "
        f"torch {torch.__version__}, Python {platform.python_version()}, one thread. Scores of the test part in "
        "vehicles and pickups per hour.\n\n"
    )
    write_bytes(RESULTS / "practical.md", f"{head}{text}\n".encode())
    print(text)
    sys.exit("a bar was missed" if "MISSED" in text else 0)


if __name__ == "__main__":
    main()
