"""All experiments by name, and what runs some of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from itocast.data import sources
from itocast.paper import calibration, efficiency, intervals, literal, solver, table, toy
from itocast.paper.cells import Task, run, stored
from itocast.paper.outputs import write_figure, write_table
from itocast.paper.protocol import Options


class Experiment(NamedTuple):
    """The cells it needs, and what writes its outputs from all cells of a folder."""

    tasks: Callable[[Options], list[Task]]
    write: Callable[[Path], None]


def perform(names: list[str], options: Options, folder: Path, jobs: int = 1) -> list[Path]:
    """Make the cells that some experiments lack, write their outputs, and tell which files there are."""
    chosen = [EXPERIMENTS[name] for name in names]
    if any(task.data_dir or "dataset" in task.settings for one in chosen for task in one.tasks(options)):
        for dataset in options.datasets:
            sources.open_dataset(dataset, options.data_dir)  # refused or warned of before the work begins
    run([task for one in chosen for task in one.tasks(options)], folder, jobs)
    for one in chosen:
        one.write(folder)
    return sorted(path for path in folder.iterdir() if path.is_file())


def _toy_tasks(options: Options) -> list[Task]:
    return [Task(f"toy/{seed}", toy.run, {"seed": seed, "quick": options.quick}) for seed in options.seeds]


def _toy_write(folder: Path) -> None:
    results = stored(folder, "toy")
    frame = toy.table(results)
    write_table(folder, "toy", frame, toy.text(frame))
    write_figure(folder, "toy", toy.figure(results[0]))


EXPERIMENTS: dict[str, Experiment] = {
    "toy": Experiment(_toy_tasks, _toy_write),
    "solver": Experiment(solver.tasks, solver.write),
    "table": Experiment(Options.tasks, table.write),
    "calibration": Experiment(Options.tasks, calibration.write),
    "intervals": Experiment(Options.tasks, intervals.write),
    "efficiency": Experiment(Options.tasks, efficiency.write),
    "literal": Experiment(literal.tasks, literal.write),
}
