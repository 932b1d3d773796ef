"""Cells: pieces of work that are done once, stored as JSON, and never repeated."""

from __future__ import annotations

import json
import os
import platform
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from itocast.storage import write_bytes

Cell = dict[str, Any]
FOLDER = "cells"


class Task(NamedTuple):
    """One cell: where it is stored, what makes it and from which settings, which are plain values."""

    key: str  # such as "metro/paper-hnn-0"
    work: Callable[..., Cell]
    settings: dict[str, Any]
    data_dir: str | None = None  # not a setting: what was read there is told by its digest

    def file(self, folder: Path) -> Path:
        return folder / FOLDER / f"{self.key}.json"


def run(tasks: list[Task], folder: Path, jobs: int = 1) -> dict[str, Cell]:
    """The cells of all tasks: those in the folder as they are, the others made in `jobs` processes of one thread.

    A cell is written when it is done. Ctrl-C stops the processes and keeps what is finished.
    """
    cells = {task.key: found for task in tasks if (found := _read(task, folder)) is not None}
    missing = list({task.key: task for task in tasks if task.key not in cells}.values())
    if not missing:
        return {task.key: cells[task.key] for task in tasks}
    with _progress(len(missing), len(cells)) as report, _pool(min(jobs, len(missing))) as pool:
        work: dict[Future[Cell], Task] = {pool.submit(_make, task): task for task in missing}
        for future in as_completed(work):
            task, cell = work[future], future.result()
            write_bytes(task.file(folder), json.dumps(cell, indent=1).encode())
            cells[task.key] = cell
            report(task.key, cell)
    return {task.key: cells[task.key] for task in tasks}


def stored(folder: Path, group: str = "*") -> list[Cell]:
    """All cells of a folder, or those of one group, such as a dataset's; first trials first."""
    cells: list[Cell] = [json.loads(file.read_text()) for file in sorted((folder / FOLDER).glob(f"{group}/*.json"))]
    return sorted(cells, key=lambda cell: cell["settings"]["seed"])


def _read(task: Task, folder: Path) -> Cell | None:
    file = task.file(folder)
    if not file.exists():
        return None
    cell: Cell = json.loads(file.read_text())
    here = json.loads(json.dumps(task.settings))
    for name in here | cell["settings"]:
        there = cell["settings"].get(name)
        if there != here.get(name):
            raise ValueError(
                f"{file} was made with {name}={there!r}, here it is {here.get(name)!r}: "
                "name another --output, or delete the file to make it anew"
            )
    return cell


def _make(task: Task) -> Cell:
    """What a process does for one cell."""
    from itocast import __version__

    began = time.perf_counter()
    more = {"data_dir": task.data_dir} if task.data_dir else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the parent has opened every dataset, and warned of it
        result = task.work(**task.settings, **more)
    packages = {name: version(name) for name in ("torch", "numpy", "scipy", "pandas")}
    return {
        "settings": task.settings,
        "versions": {"itocast": __version__, "python": platform.python_version(), **packages},
        "seconds": round(time.perf_counter() - began, 1),
        **result,
    }


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes of one thread each, which leave Ctrl-C to their parent."""
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin)
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)


@contextmanager
def _progress(todo: int, done: int) -> Iterator[Callable[[str, Cell], None]]:
    """A bar in a terminal, and a line for each cell that is finished."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("cells"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("cells", total=todo)
        finished = 0
        if done:
            console.print(f"{done} cells are there already, {todo} to make", highlight=False)

        def report(key: str, cell: Cell) -> None:
            nonlocal finished
            finished += 1
            bar.update(task, completed=finished)
            scores = "".join(f", {name} {value:.4g}" for name, value in cell.get("shown", {}).items())
            console.print(f"{finished}/{todo} {key}: {cell['seconds']:.0f} s{scores}", highlight=False, soft_wrap=True)

        try:
            yield report
        except KeyboardInterrupt:
            console.print(f"Interrupted: {finished} of {todo} cells are finished; the same command goes on from there.")
            raise
