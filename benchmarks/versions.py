"""Two versions of itocast beside one another: fit, laws and quantiles on the embedded Metro data, through the public
interface, in turn, in one thread. Writes benchmarks/results/versions.md.

`git worktree add ../before REVISION`, then `python benchmarks/versions.py ../before .`
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

RESULT = Path(__file__).parent / "results" / "versions.md"
ROWS = 1000
EPOCHS = 2
JOBS = {
    "fit": f"fit: reading and {EPOCHS} epochs",
    "laws": f"laws of {ROWS:,} rows",
    "quantiles": "their 99 quantiles",
    "calibrated": "laws and 99 quantiles, `conformal_quantiles`",
}


def work(job: str) -> None:
    """Time a job as often as a line comes in, with whatever version can be imported."""
    import torch

    from itocast import Forecaster, datasets

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    frame = datasets.load("metro")
    levels = torch.arange(1, 100, dtype=torch.float64) / 100
    cut = frame["date_time"].iloc[-ROWS - 1]

    def fitted(calibration: str | None) -> Any:
        forecaster = Forecaster(
            1, window=24, data={"repeated": "last"}, training={"epochs": EPOCHS}, calibration=calibration
        )
        return forecaster.fit(frame, target="traffic_volume", time="date_time")

    jobs: dict[str, Callable[[], Any]] = {"fit": lambda: fitted(None)}
    if job != "fit":
        forecaster = fitted("conformal_quantiles" if job == "calibrated" else None)
        law = forecaster.backtest_distribution(frame, start=cut)[0]
        jobs["laws"] = lambda: forecaster.backtest_distribution(frame, start=cut)
        jobs["quantiles"] = lambda: law.quantile(levels)
        jobs["calibrated"] = lambda: jobs["laws"]()[0].quantile(levels)
        jobs[job]()
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.process_time()
        jobs[job]()
        print(time.process_time() - began, flush=True)


def start(folder: Path, job: str) -> subprocess.Popen[str]:
    """A process of a version that waits for lines."""
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--work", job]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def ask(process: subprocess.Popen[str]) -> float:
    """The seconds that one more run takes."""
    assert process.stdin
    assert process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def compare(folders: list[Path], job: str, rounds: int) -> list[str]:
    """A line of the table: milliseconds of both, and the middle of their ratios."""
    processes = [start(folder, job) for folder in folders]
    for process in processes:
        assert process.stdout
        if process.stdout.readline() != "ready\n":
            sys.exit(f"Error: {job} does not run in one of the folders")
    seconds = [[ask(process) for process in processes] for _ in range(rounds)]
    for process in processes:
        process.kill()
    before, after = (1000 * median(times) for times in zip(*seconds, strict=True))
    ratio = median(new / old for old, new in seconds)
    return [JOBS[job], f"{before:,.0f}", f"{after:,.0f}", f"{ratio:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, help="two checkouts: before, after")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--work", choices=JOBS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work)
        return
    if len(given.folders) != 2 or not all((folder / "src" / "itocast").is_dir() for folder in given.folders):
        sys.exit(f"Error: folders={[*map(str, given.folders)]}: expected two checkouts of itocast, before and after")
    from itocast.paper.outputs import markdown
    from itocast.storage import write_bytes

    folders = [folder.resolve() for folder in given.folders]
    names = [_revision(folder) for folder in folders]
    lines = [compare(folders, job, given.rounds) for job in JOBS]
    text = (
        f"# Before and after\n\n`python benchmarks/versions.py BEFORE AFTER`, revisions {' and '.join(names)}: "
        "processor milliseconds in one thread, medians of runs in turn, and the middle of their ratios.\n\n"
        f"{markdown(['', 'before, ms', 'after, ms', 'after / before'], lines)}\n"
    )
    write_bytes(RESULT, text.encode())
    print(text, f"Written: {RESULT}", sep="\n")


def _revision(folder: Path) -> str:
    command = ["git", "-C", str(folder), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
