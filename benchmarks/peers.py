"""itocast against the tools one would pick instead: the same rows, the same inputs, one thread, one rule of scoring.

Each peer on each setting with each seed is a cell, made in a process of its own and stored; the same command goes on
where a run was interrupted. With `--page` the stored cells are added to benchmarks/results/peers.csv, from which
docs/BENCHMARK.md is made. What is in that table is not run again: to measure it anew, delete its lines.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from against import page
from against.settings import DATASETS, PROTOCOLS
from against.table import Lines, key_of, read
from against.work import PEERS, TABULAR, UCI, UCI_SETS, lacking, measure
from itocast.arguments import choice
from itocast.data.sources import DATASETS as NAMES
from itocast.paper import cells
from itocast.paper.cells import Task
from itocast.paper.protocol import short

RUNS = Path(__file__).parent / "runs"
ENVIRONMENT = {  # of the processes: one thread, and memory that was freed is used again, not given back and asked for
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
}


def tasks(arguments: argparse.Namespace) -> list[Task]:
    """First seeds first, so that a cut run is of use."""
    found = []
    for seed in range(arguments.seeds):
        for protocol in arguments.protocols:
            for dataset in arguments.datasets:
                if protocol in PROTOCOLS and short(dataset) in NAMES:
                    found += [_task(dataset, protocol, peer, seed, arguments) for peer in arguments.peers]
    if UCI in arguments.protocols:
        sets = [name for name in arguments.datasets if name in UCI_SETS]
        tabular = [peer for peer in arguments.peers if peer in TABULAR]
        splits = range(arguments.splits)
        found += [_task(name, UCI, peer, split, arguments) for split in splits for name in sets for peer in tabular]
    return found


def lacked(found: list[Task], lines: Lines) -> list[Task]:
    """Those that the table has not."""
    seeds = {key: line.seeds for key, line in lines.items()}
    return [task for task in found if task.settings["seed"] not in seeds.get(key_of(task.settings), ())]


def _task(dataset: str, protocol: str, peer: str, seed: int, arguments: argparse.Namespace) -> Task:
    settings = {"dataset": dataset, "protocol": protocol, "peer": peer, "seed": seed, "quick": arguments.quick}
    return Task(f"{protocol}-{short(dataset)}/{peer}-{seed}", measure, settings, str(arguments.data_dir))


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """What is asked for, with all names checked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=Path("data"), help="a folder with the files of datasets")
    parser.add_argument("--datasets", default=",".join((*DATASETS, *UCI_SETS)), help="names, or name=file")
    parser.add_argument("--protocols", default=",".join((*PROTOCOLS, UCI)))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--splits", type=int, default=5, help="of UCI sets, up to 20")
    parser.add_argument("--jobs", type=int, default=1, help="processes of one thread each")
    parser.add_argument("--out", type=Path, default=None, help="folder of the cells (benchmarks/runs)")
    parser.add_argument("--quick", action="store_true", help="few rows: a look, not a result")
    parser.add_argument("--page", action="store_true", help="write the page from the stored cells, and run nothing")
    arguments = parser.parse_args(words)
    for name, allowed in (("datasets", (*NAMES, *UCI_SETS)), ("protocols", (*PROTOCOLS, UCI))):
        setattr(arguments, name, tuple(word.strip() for word in getattr(arguments, name).split(",")))
        for word in getattr(arguments, name):
            choice(name, short(word), allowed)
    arguments.peers = tuple(word.strip() for word in arguments.peers.split(","))
    for word in arguments.peers:
        choice("peers", word, PEERS)
    arguments.out = arguments.out or RUNS.with_name("runs-quick" if arguments.quick else "runs")
    return arguments


def main() -> None:
    arguments = parse()
    if arguments.page:
        print(f"Written: {', '.join(map(str, page.write(arguments.out)))}")
        return
    missing = lacking(arguments.peers)
    if missing:
        lines = [f"{peer} needs {', '.join(names)}" for peer, names in missing.items()]
        sys.exit("; ".join(lines) + ": pip install -c constraints.txt 'itocast[bench]', or name other --peers")
    os.environ |= ENVIRONMENT
    known = {} if arguments.quick else read(page.ROOT)
    cells.run(lacked(tasks(arguments), known), arguments.out, arguments.jobs, fresh=True)
    print(f"The cells are in {arguments.out}/; the same command with --page writes the page.")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError, ArithmeticError) as error:
        sys.exit(f"Error: {error}")
