"""All experiments by name, and what runs some of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from itocast.data import sources
from itocast.paper import calibration, efficiency, intervals, literal, solver, table, toy
from itocast.paper.cells import Task, run
from itocast.paper.protocol import Options
from itocast.storage import check_folder


class Experiment(NamedTuple):
    """The cells it needs, and what writes its outputs from all cells of a folder."""

    tasks: Callable[[Options], list[Task]]
    write: Callable[[Path], None]


def perform(names: list[str], options: Options, folder: Path, jobs: int = 1) -> list[Path]:
    """Make the cells that some experiments lack, write their outputs, and tell which files there are."""
    check_folder(folder)
    chosen = [EXPERIMENTS[name] for name in names]
    tasks = [task for one in chosen for task in one.tasks(options)]
    for dataset in dict.fromkeys(task.settings["dataset"] for task in tasks if "dataset" in task.settings):
        sources.open_dataset(dataset, options.data_dir)  # refused or warned of before the work begins
    run(tasks, folder, jobs)
    for one in chosen:
        one.write(folder)
    return sorted(path for path in folder.iterdir() if path.is_file())


EXPERIMENTS: dict[str, Experiment] = {
    "toy": Experiment(toy.tasks, toy.write),
    "solver": Experiment(solver.tasks, solver.write),
    "table": Experiment(Options.tasks, table.write),
    "calibration": Experiment(Options.tasks, calibration.write),
    "intervals": Experiment(intervals.tasks, intervals.write),
    "efficiency": Experiment(efficiency.tasks, efficiency.write),
    "literal": Experiment(literal.tasks, literal.write),
}
