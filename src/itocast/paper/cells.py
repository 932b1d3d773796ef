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
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from itocast.data.sources import NotPublished
from itocast.storage import check_folder, write_bytes

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


def run(tasks: list[Task], folder: Path, jobs: int = 1, fresh: bool = False) -> dict[str, Cell]:
    """The cells of all tasks: those in the folder as they are, the others made in `jobs` processes of one thread.

    A cell is written when it is done. Ctrl-C stops the processes and keeps what is finished. With `fresh` each cell
    has a process of its own, so that its memory can be measured.
    """
    check_folder(folder)
    wanted = _by_key(tasks)
    cells = {key: found for key, task in wanted.items() if (found := _read(task, folder)) is not None}
    missing = [task for key, task in wanted.items() if key not in cells]
    if not missing:
        return {key: cells[key] for key in wanted}
    with _progress(len(missing), len(cells)) as report, _pool(min(jobs, len(missing)), fresh) as pool:
        work: dict[Future[Cell], Task] = {pool.submit(_make, task): task for task in missing}
        for future in as_completed(work):
            task = work[future]
            cell = _result(task, future)
            write_bytes(task.file(folder), json.dumps(cell, indent=1).encode())
            cells[task.key] = cell
            report(task.key, cell)
    return {key: cells[key] for key in wanted}


def _by_key(tasks: list[Task]) -> dict[str, Task]:
    wanted: dict[str, Task] = {}
    for task in tasks:
        if (other := wanted.setdefault(task.key, task)).settings != task.settings:
            raise ValueError(
                f"two cells would be {task.key}: {other.settings} and {task.settings}; give each an --output of its own"
            )
    return wanted


def _result(task: Task, future: Future[Cell]) -> Cell:
    """What a process made, or an error that says of which cell it is."""
    try:
        return future.result()
    except BrokenProcessPool:
        raise OSError(
            f"a process was killed, perhaps for want of memory, at {task.key} or beside it: use fewer --jobs; finished "
            "cells are kept, and the same command goes on from there"
        ) from None
    except Exception as error:
        raise ArithmeticError(f"{task.key} failed: {error}; finished cells are kept") from error


def stored(folder: Path, group: str = "*") -> list[Cell]:
    """All cells of a folder, or those of one group, such as a dataset's; first trials first."""
    cells = [_load(file) for file in sorted((folder / FOLDER).glob(f"{group}/*.json"))]
    return sorted(cells, key=lambda cell: cell["settings"]["seed"])


def _load(file: Path) -> Cell:
    try:
        cell: Cell = json.loads(file.read_text())
        cell["settings"]["seed"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{file} is damaged: delete it, and the same command makes it anew") from None
    return cell


def _read(task: Task, folder: Path) -> Cell | None:
    file = task.file(folder)
    if not file.exists():
        return None
    cell = _load(file)
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
        warnings.simplefilter("ignore", NotPublished)  # the parent has warned of it
        result = task.work(**task.settings, **more)
    packages = {name: version(name) for name in ("torch", "numpy", "scipy", "pandas")}
    return {
        "settings": task.settings,
        "versions": {"itocast": __version__, "python": platform.python_version(), **packages},
        "seconds": round(time.perf_counter() - began, 1),
        **result,
    }


@contextmanager
def _pool(jobs: int, fresh: bool = False) -> Iterator[ProcessPoolExecutor]:
    """Processes of one thread each, which leave Ctrl-C to their parent."""
    most = 1 if fresh else None
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin, max_tasks_per_child=most)
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
            ended = ", training diverged" if cell.get("stopped") == "diverged" else ""
            scores = ended + "".join(f", {name} {value:.4g}" for name, value in cell.get("shown", {}).items())
            console.print(f"{finished}/{todo} {key}: {cell['seconds']:.0f} s{scores}", highlight=False, soft_wrap=True)

        try:
            yield report
        except KeyboardInterrupt:
            console.print(f"{finished} of {todo} cells are finished; the same command goes on from there.")
            raise
