"""Metro and Pickups in the practical protocol, through the Forecaster: accuracy, coverage, and every calibrator.

24 lags, calendar, time gaps, weather of the past; fit on the first 60 % of the rows, early stopping and calibration on
the next 20 %, test on the last 20 % with true lags; one thread. Each model is trained once and calibrated in all ways;
"auto" is the default. Pickups is looked for in `--data-dir`, then in the cache.
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
from itocast.calibration import CALIBRATORS
from itocast.storage import write_bytes

RESULTS = Path(__file__).parent / "results"
SHOWN = {"rmse": ".1f", "crps": ".1f", "nll": ".4g", "cwce": ".2f", "coverage_50": ".3f", "coverage_90": ".3f",
         "coverage_95": ".3f", "seconds": ".0f"}  # fmt: skip
BARS = {"Metro": 97.0, "Pickups": 39.0}
WAYS = {"none": None} | {name: name for name in CALIBRATORS if name != "adaptive"}  # which needs to observe
Scores = dict[str, float]


def load(name: str, folder: Path) -> tuple[pd.DataFrame, dict[str, Any], Data]:
    if name == "Metro":  # every row counts, as in the paper: an hour whose weather changed is there more than once
        return datasets.load("metro"), datasets.schema("metro"), Data(repeated="keep", gaps="keep", validation=0.25)
    pickups = datasets.open_dataset("pickups", folder)
    schema = pickups.schema | {"future": []}  # the weather of the past alone
    return pickups.frame, schema, Data(validation=0.25)


def run(name: str, folder: Path, seed: int) -> dict[str, Scores]:
    """Scores of the test part for each way of calibration."""
    frame, schema, data = load(name, folder)
    times = pd.to_datetime(frame[schema["time"]])
    cut = times.sort_values().iloc[round(0.8 * len(frame)) - 1]
    forecaster = Forecaster(1, window=24, support="positive", data=data, calibration=None, seed=seed)
    began = time.process_time()
    forecaster.fit(frame[times <= cut], **schema)
    trained = time.process_time() - began
    out = {}
    for way, calibration in WAYS.items():
        began = time.process_time()
        forecaster.calibrate(frame[times <= cut], calibration)
        seconds = trained + time.process_time() - began
        out[way] = metrics.evaluate(*forecaster.backtest_distribution(frame, start=cut)) | {"seconds": seconds}
        shown = {key: round(out[way][key], 3) for key in SHOWN}
        print(name, f"{seed=}", forecaster.fitted.calibration, shown, file=sys.stderr, flush=True)
    return out


def bars(name: str, scores: dict[str, Scores]) -> list[str]:
    """What the default must reach."""
    auto, none = scores["auto"], scores["none"]
    held = {
        f"CRPS {auto['crps']:.1f}, at most {BARS[name]:g}": auto["crps"] <= BARS[name],
        f"in 90 %: {100 * auto['coverage_90']:.1f} %, 87 to 93": 0.87 <= auto["coverage_90"] <= 0.93,
        f"CWCE {auto['cwce']:.2f}, at most half of {none['cwce']:.2f} without calibration, or 0.8": auto["cwce"]
        <= max(0.5 * none["cwce"], 0.8),
        f"CRPS {100 * (auto['crps'] / none['crps'] - 1):+.2f} % by calibration, at most 0.5": auto["crps"]
        <= 1.005 * none["crps"],
    }
    return [f"- {'met' if met else 'MISSED'}: {name} {bar}" for bar, met in held.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = [f"| data | calibration | {' | '.join(SHOWN)} |", f"|---|---|{'---:|' * len(SHOWN)}"]
    held = []
    for name in BARS:
        runs = [run(name, arguments.data_dir, seed) for seed in range(arguments.seeds)]
        scores = {way: {key: mean(one[way][key] for one in runs) for key in SHOWN} for way in WAYS}
        for way, row in scores.items():
            lines.append(f"| {name} | {way} | {' | '.join(format(row[key], form) for key, form in SHOWN.items())} |")
        held += bars(name, scores)
    text = "\n".join(
        [*lines, "", f"Means over the seeds: {arguments.seeds}; processor seconds to fit and calibrate.", "", *held]
    )
    command = f"python benchmarks/practical.py --data-dir DATA --seeds {arguments.seeds}"
    head = (
        f"# Practical protocol\n\nMade by `{command}` with itocast {__version__}, torch {torch.__version__}, Python "
        f"{platform.python_version()}, one thread. Scores of the test part in vehicles and pickups per hour.\n\n"
    )
    write_bytes(RESULTS / "practical.md", f"{head}{text}\n".encode())
    print(text)
    sys.exit("a bar was missed" if "MISSED" in text else 0)


if __name__ == "__main__":
    main()
