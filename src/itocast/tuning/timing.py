"""Fits within a time: they report each epoch, and stop once they cannot end in time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import Any

import numpy as np

from itocast.fitted import Recipe
from itocast.tuning.parts import Part

Report = Callable[[str, str, int], None]  # what is under way, its epoch, and how many fits are finished


class OutOfTime(Exception):
    """A fit that would not end in time; `args` hold the seconds that it would take."""


class Timed:
    """Fits of which each tells the next how long it takes to learn from held-out rows, to calibrate and to score."""

    def __init__(self) -> None:
        self.after = 0.0  # the most seconds that a fit took after its last epoch

    def crps(self, part: Part, recipe: Recipe, deadline: float, say: Callable[[str], None]) -> np.ndarray:
        """The sums of `Part.crps`; OutOfTime as soon as it shows that they will be late."""
        ends: list[float] = []  # of the epochs

        def watch(model: Any, train: Any, validation: Any) -> dict[str, float]:
            ends.append(monotonic())
            training, done = recipe.settings(len(train)), len(ends)
            epochs = training.epochs + training.matching
            each = (ends[-1] - ends[0]) / max(done - 1, 1)  # the first one is not timed: it begins with preparations
            say(f"epoch {done} of {epochs}")
            after = max(self.after, each * training.finish * training.epochs)
            if ends[-1] + each * (epochs - done) + after > deadline:
                raise OutOfTime(each * epochs + after)
            return {}

        sums = part.crps(replace(recipe, nested=True, watch=watch))
        self.after = max(self.after, monotonic() - ends[-1])
        return sums


@contextmanager
def progress(began: float, seconds: float, most: float) -> Iterator[Report]:
    """A bar over the time, or over the fits where time has no limit, in a terminal alone."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("tuning"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        timed = seconds < math.inf
        task = bar.add_task("trial 0, the defaults", total=seconds if timed else most)
        yield lambda what, epoch, done: bar.update(
            task, description=f"{what}, {epoch}", completed=monotonic() - began if timed else done
        )
