"""A network of one table: how it is trained, and which of its stages forecasts a row."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from itocast.data.holdout import Cut
from itocast.data.preparation import Preparation
from itocast.data.targets import Apart, rows_of, together
from itocast.data.windows import Masked, Windows
from itocast.forecast import Forecast
from itocast.models import Model
from itocast.schedule import Training
from itocast.training import History, finish, fit, predict

Build = Callable[..., Model]
Watch = Callable[[Model, Windows, Windows], dict[str, float]]
MOST = 4000  # forecasts that early stopping looks at, of windows evenly spaced
LEAST = 1000  # windows of which they are, however many targets there are
PARTS = 2  # of the held-out rows, which are learned from one after the other
MASKED = 2000  # copies of windows whose level is not shown
NEWEST = 2  # times that a row of the latest of them counts: what is newest says most about what comes next


class Stage(NamedTuple):
    """A model as it was before it learned from a part of the held-out rows, and where that part ends."""

    model: Model
    end: Cut


@dataclass
class Network:
    """A model with the stages it went through.

    The model learns from the held-out rows too, once they have chosen the epoch: one part of them
    after the other. Each part is forecast by the stage that had not learned from it, so that
    calibration, backtests and doctor see forecasts of rows that were not learned from, by a model
    that knew what came just before, as it will be later.
    """

    preparation: Preparation
    model: Model
    history: History
    seed: int
    stages: list[Stage] = field(default_factory=list)  # oldest first

    @property
    def apart(self) -> bool:
        """Whether the model forecasts one target at a time."""
        return self.model.sizes.targets < len(self.preparation.columns.targets)

    def law(self, windows: Windows, paths: int | None = None) -> Forecast:
        """The laws of some windows in the table's units, each by the stage that had not seen it."""
        stage = self._stage(windows)
        models = [*(one.model for one in self.stages), self.model]
        numbers = stage.unique().tolist()
        parts = [self._scaled(models[i], windows.only((stage == i).numpy()), paths) for i in numbers]
        if len(parts) > 1:
            parts = [Forecast.cat(parts)[stage.argsort(stable=True).argsort()]]
        return self.preparation.unscale(parts[0], windows)

    def _stage(self, windows: Windows) -> Tensor:
        """How many parts of the held-out rows lie before the first step of each window, (windows,)."""
        first = windows.spans()[0]
        stage = torch.zeros(len(windows), dtype=torch.int64)
        for one in self.stages:
            stage += first > windows.instants(one.end)
        return stage

    def _scaled(self, model: Model, windows: Windows, paths: int | None) -> Forecast:
        """The laws of a model in its own scale."""
        rows = rows_of(windows, self.apart)
        law = predict(model, rows, paths, self.seed)
        return together(law, rows.targets) if isinstance(rows, Apart) else law

    def changed(self, change: Callable[[Model], Model]) -> Network:
        """The same with a change to its models."""
        stages = [Stage(change(one.model), one.end) for one in self.stages]
        return replace(self, model=change(self.model), stages=stages)

    def finish(self, train: Windows, later: Windows, settings: Training, nested: bool) -> None:
        """Learn from the rows that were held out, one part after the other.

        It lasts as the best epoch tells: where the first epochs were the best, more training harms.
        Ctrl-C, or a loss that is not finite, ends it before the part that was under way; a run
        that ended so has no last one.
        """
        if self.history.stopped in ("interrupted", "diverged"):
            return
        self.stages, known = [], train.origins
        learned = torch.zeros(len(later), dtype=torch.bool)
        best = self.history.best / settings.epochs
        for end in _ends(later):
            part = later.spans()[1] <= later.instants(end)
            new = later.origins[part & ~learned]
            rows = replace(train, origins=torch.cat([known, *NEWEST * [new]]))
            short = settings.last(PARTS * len(rows) / len(train), best)
            before = copy.deepcopy(self.model)
            seed = self.seed + len(self.stages)
            learned_from = rows_of(Masked.of(rows, MASKED), self.apart)
            done = finish(self.model, learned_from, short, seed, nested)
            if not done:
                break
            self.stages.append(Stage(before, end))
            self.history.last = self.history.last + done
            known, learned = torch.cat([known, new]), learned | part


def train_network(
    preparation: Preparation,
    build: Build,
    train: Windows,
    later: Windows,
    training: Callable[[int], Training],
    seed: int,
    checkpoint: str | Path | None = None,
    watch: Watch | None = None,
    nested: bool = False,
) -> tuple[Network, Training]:
    """Train on the windows before the cut, of which those after it choose the epoch; and how.

    `Network.finish` then learns from these too.
    """
    validation = checked(later)
    apart = preparation.data.apart
    rows, held = rows_of(Masked.of(train, MASKED), apart), rows_of(validation, apart)
    model = build(rows.sizes, seed=seed)
    settings = training(len(rows))
    noted: Any = None if watch is None else lambda model: watch(model, train, validation)
    history = fit(model, rows, held, settings, seed, checkpoint, noted, nested)
    return Network(preparation, model, history, seed), settings


def checked(windows: Windows) -> Windows:
    """Those that early stopping looks at."""
    return windows.thin(max(MOST // windows.sizes.targets, LEAST))


def _ends(later: Windows) -> list[Cut]:
    """Where each part of the held-out rows ends, in each series: after its share of the windows."""
    n = later.numbers
    first, last = later.spans()
    series = n.series[later.origins].long()
    labels, counts = n.labels["series"], torch.bincount(series, minlength=len(n.starts))
    start = torch.searchsorted(series.contiguous(), torch.arange(len(counts)))
    there = counts > 0
    ends = []
    for part in range(1, PARTS):
        place = (start + counts * part // PARTS).clamp(max=len(series) - 1)
        ends.append(Cut.of_labels(labels[there.numpy()], first[place][there]))
    final = torch.full((len(counts),), torch.iinfo(torch.int64).min)
    final = final.scatter_reduce(0, series, last, "amax")
    ends.append(Cut.of_labels(labels[there.numpy()], final[there]))
    return ends
