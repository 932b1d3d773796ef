"""A trained model together with all it needs to forecast: what is trained, saved and loaded."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from itocast.abstention import Doubt
from itocast.calibration import CALIBRATORS, Adaptive, Auto, Calibrator
from itocast.clipped import Again, clip, support_of, tabulated
from itocast.data.preparation import Data, NoWindows, Preparation
from itocast.data.series import context
from itocast.data.table import Table
from itocast.data.targets import Apart, rows_of, together
from itocast.data.windows import Windows
from itocast.dependence import Dependence
from itocast.forecast import Forecast
from itocast.models import Model
from itocast.schedule import Training
from itocast.training import History, finish, fit, nll, predict

Build = Callable[..., Model]
MOST = 4000  # forecasts that early stopping looks at, of windows evenly spaced
LEAST = 1000  # windows of which they are, however many targets there are
CELLS = 24_000  # forecasts of one step and target that calibration looks at: what fits into memory
MEMORY = 8 << 20  # bytes of the numbers of the laws that are in memory at once
FRESH = 2000  # forecasts that calibration looks back at, even where that is more than half of those held out
PARTS = 2  # of the held-out rows, which are learned from one after the other
NEWEST = 2  # times that a row of the latest of them counts: what is newest says most about what comes next
ENOUGH = 50  # new windows without which an update leaves the calibration as it is


@dataclass(frozen=True)
class Recipe:
    """All choices that do not depend on the data."""

    horizon: int
    window: int | None
    effort: str
    support: str  # a name in SUPPORTS, or "auto"
    data: Data
    build: Build
    training: Training | dict[str, Any]  # all settings, or those that replace what suits the number of rows
    calibration: str | None
    calibration_by: str | None  # "series", a static column, or "auto": a correction for each
    seed: int
    watch: Callable[[Model, Windows, Windows], dict[str, float]] | None = None  # notes of each epoch, on both parts
    nested: bool = False  # a part of something longer, which has the bar and Ctrl-C

    def settings(self, rows: int) -> Training:
        """How to train on so many rows."""
        chosen = self.training
        return chosen if isinstance(chosen, Training) else Training.suited(rows, self.effort, **chosen)


class Earlier(NamedTuple):
    """A model as it was before it learned from a part of the held-out rows, and the instant at which that part ends."""

    model: Model
    end: int


@dataclass
class Fitted:
    """Scaling, model, calibration, the dependence between steps, and the last rows of every series.

    The model learns from the held-out rows too, once they have chosen the epoch, a part of them after the other. Each
    part is forecast by the model as it was before it learned from it, so that calibration, backtests and doctor see
    forecasts of rows that were not learned from, by a model that knew what came just before, as it will be later.
    """

    recipe: Recipe
    preparation: Preparation
    model: Model
    history: History
    calibrator: Calibrator | None
    dependence: Dependence
    context: Table
    doubt: Doubt
    by: str | None  # "series", or a static column: what groups go by
    groups: list[str]  # that have a correction of their own
    held: int  # the instant after which rows were held out from training
    support: str  # a name in SUPPORTS
    outcomes: int = 0  # of each step and target that the calibrator learned from
    earlier: list[Earlier] = field(default_factory=list)  # oldest first

    @classmethod
    def train(cls, table: Table, recipe: Recipe, checkpoint: str | Path | None = None) -> Fitted:
        """Fit on the earlier part of a table; the later part chooses the epoch, is learned from too, and calibrates."""
        cut = table.cutoff(1 - recipe.data.validation)
        preparation = Preparation.fit(table, recipe.horizon, recipe.window, recipe.data, until=cut).meeting(table, cut)
        train = preparation.windows(table, until=cut)
        later = preparation.windows(table, after=cut, numbers=train.numbers)
        validation = _checked(later)
        rows, held = (rows_of(part, recipe.data.apart) for part in (train, validation))
        model = recipe.build(rows.sizes, seed=recipe.seed)
        watch = recipe.watch
        noted = None if watch is None else lambda model: watch(model, train, validation)
        settings = recipe.settings(len(rows))
        history = fit(model, rows, held, settings, recipe.seed, checkpoint, noted, recipe.nested)
        independent = Dependence.none(recipe.horizon, len(table.columns.targets))
        last = context(table, preparation.window + recipe.horizon)
        support = support_of(table.y) if recipe.support == "auto" else recipe.support
        fitted = cls(
            recipe, preparation, model, history, None, independent, last, Doubt.of(train), None, [], cut, support
        )
        if history.stopped not in ("interrupted", "diverged"):
            fitted._finish(train, later, settings, history)
        fitted.calibrate(later, table.times)
        return fitted

    def _finish(self, train: Windows, later: Windows, settings: Training, history: History) -> None:
        """Learn from the rows that were held out and have chosen the epoch, one part of them after the other.

        Ctrl-C, or a loss that is not finite, ends it before the part that was under way.
        """
        self.earlier, known, begin = [], train.origins, self.held
        first, last = later.spans()
        inner = first.sort().values[[len(first) * part // PARTS for part in range(1, PARTS)]]
        for end in sorted({*inner.tolist(), int(last.max())}):
            new = later.origins[(last > begin) & (last <= end)]
            rows = replace(train, origins=torch.cat([known, *NEWEST * [new]]))
            short = settings.last(PARTS * len(rows) / len(train))
            before = copy.deepcopy(self.model)
            seed = self.recipe.seed + len(self.earlier)
            done = finish(self.model, rows_of(rows, self.apart), short, seed, self.recipe.nested)
            if not done:
                break
            self.earlier.append(Earlier(before, end))
            history.last, known, begin = history.last + done, torch.cat([known, new]), end

    def changed(self, change: Callable[[Model], Model]) -> Fitted:
        """The same with a change to its models."""
        earlier = [Earlier(change(one.model), one.end) for one in self.earlier]
        return replace(self, model=change(self.model), earlier=earlier)

    def calibrate(self, windows: Windows, times: np.ndarray) -> None:
        """Learn from forecasts that were not trained on how to correct later ones and how their steps move together.

        The newer half of them counts, if that is enough: the world moves on.
        """
        self.calibrator, self.by, self.groups = None, None, []
        most = max(ENOUGH, CELLS // (windows.horizon * len(self.preparation.columns.targets)))
        windows = windows.by_time(times).last(max(len(windows) // 2, FRESH)).thin(most)
        law, y = self.uncorrected(windows), windows.actuals()
        self.outcomes = int((~y.isnan()).sum(0).min())
        if self.recipe.calibration:
            law = tabulated(law)  # once, for fit and apply
            self.calibrator = self._calibrator(law, y, windows)
            law = self.calibrator.apply(law, self.groups_of(windows))
        self.dependence = Dependence.fit(law, y)
        self.doubt = self.doubt.learned(windows, law.variance, law.epistemic)

    def _calibrator(self, law: Forecast, y: Tensor, windows: Windows) -> Calibrator:
        """What was asked for, having learned; if it may choose, each series has its own correction where that helps."""
        name, free = str(self.recipe.calibration), self.recipe.calibration_by == "auto"
        several = len(windows.numbers.labels.get("series", ())) > 1
        self.by = ("series" if name == "auto" and several else None) if free else self.recipe.calibration_by
        self.groups = sorted(set(self._labels(windows)))
        calibrator = Auto(either=True) if name == "auto" and free else CALIBRATORS[name]()
        calibrator.fit(law, y, self.groups_of(windows))
        if free and isinstance(calibrator, Auto) and not calibrator.way.grouped:
            self.by, self.groups = None, []
        return calibrator

    def recalibrate(self, table: Table, calibration: str | None, by: str | None) -> None:
        """Another calibration, learned from the rows that training held out and all later ones; weights stay."""
        try:
            windows = self.preparation.meeting(table, self.held).windows(table, after=self.held)
        except NoWindows:
            end = table.clock.index(np.array([self.held]))[0]
            raise ValueError(
                f"the table has no forecasts to learn from after {end}, up to which the model was trained: pass the "
                "rows that training held out, or newer ones"
            ) from None
        self.recipe = replace(self.recipe, calibration=calibration, calibration_by=by)
        self.calibrate(windows, table.times)

    def law(self, windows: Windows, paths: int | None = None) -> Forecast:
        """The laws of some windows in the table's units, calibrated, and inside the support."""
        law = self.uncorrected(windows, paths)
        return self.calibrator.apply(law, self.groups_of(windows)) if self.calibrator else law

    def uncorrected(self, windows: Windows, paths: int | None = None) -> Forecast:
        """The same before calibration."""
        law, again = self.raw(windows, paths), windows.numbers.again
        if again is None or not self.model.repeats:
            return clip(law, self.support)
        law.log_weights = law.log_weights.double().log_softmax(-1)  # one of them may be 1 to all digits of float32
        return clip(law, self.support, Again.of(law, again[windows.origins][:, None]))

    @property
    def at_once(self) -> int:
        """How many rows have their laws in memory at a time: it does not grow with the rows."""
        forecasts = self.preparation.horizon * len(self.preparation.columns.targets)
        return max(1, MEMORY // (3 * 8 * self.model.gaussians * forecasts))

    def chunks(self, windows: Windows) -> Iterator[Windows]:
        """All windows, as many at a time as may be in memory."""
        return windows.chunks(self.at_once)

    def laws(self, windows: Windows) -> Iterator[Forecast]:
        """The laws of all windows, one chunk after another."""
        return map(self.law, self.chunks(windows))

    def raw(self, windows: Windows, paths: int | None = None) -> Forecast:
        """The laws of the model in the table's units, before all else."""
        place = torch.bucketize(windows.spans()[0], torch.tensor([one.end for one in self.earlier], dtype=torch.int64))
        models = [*(one.model for one in self.earlier), self.model]
        parts = [self._scaled(models[i], windows.only((place == i).numpy()), paths) for i in place.unique().tolist()]
        law = parts[0] if len(parts) == 1 else Forecast.cat(parts)[place.argsort(stable=True).argsort()]
        return self.preparation.unscale(law, windows)

    def _scaled(self, model: Model, windows: Windows, paths: int | None) -> Forecast:
        """The laws of a model in its own scale."""
        rows = rows_of(windows, self.apart)
        law = predict(model, rows, paths, self.recipe.seed)
        return together(law, rows.targets) if isinstance(rows, Apart) else law

    @property
    def apart(self) -> bool:
        """Whether the model forecasts one target at a time."""
        return self.model.sizes.targets < len(self.preparation.columns.targets)

    def _labels(self, windows: Windows) -> list[str]:
        """What groups of calibration go by, for each window."""
        if not self.by:
            return []
        series = windows.numbers.series[windows.origins].numpy()
        return windows.numbers.labels[self.by][series].tolist()

    def groups_of(self, windows: Windows) -> np.ndarray | None:
        """The number of each window's group, -1 where it was not learned."""
        if not self.by:
            return None
        numbers = {label: number for number, label in enumerate(self.groups)}
        return np.array([numbers.get(label, -1) for label in self._labels(windows)])

    def observe(self, new: Table) -> int:
        """Take new rows as what happened after the context: an adaptive calibrator learns, nothing else does.

        A forecast is learned from once, when its last step has come. Tells how many were.
        """
        if not isinstance(self.calibrator, Adaptive):
            raise ValueError(
                f"calibration={self.recipe.calibration!r} does not learn from outcomes: fit with "
                "calibration='adaptive', or use update to train on"
            )
        table = self.context.join(new)
        ends = dict(zip(self.context.ids.tolist(), self.context.times[self.context.starts[1:] - 1], strict=True))
        known = np.array([ends.get(label, table.times.min()) for label in table.ids.tolist()])
        self.preparation = self.preparation.meeting(table)
        self.context = context(table, self.preparation.window + self.recipe.horizon)
        try:
            windows = self.preparation.windows(table)
        except NoWindows:
            return 0
        last = windows.steps()[:, -1].numpy()
        windows = windows.only(table.times[last] > known[table.series[last]]).by_time(table.times)
        if len(windows):
            y = windows.actuals()
            self.calibrator.observe(self.uncorrected(windows), y)
            self.outcomes += int((~y.isnan()).sum(0).min())
        return len(windows)

    def update(self, new: Table) -> History:
        """Go on with new rows: train a little on all but the latest of them, and calibrate anew on those.

        Scales and categories stay. The old weights stay if they are better on the latest rows, and everything but the
        context stays if there are too few rows to tell.
        """
        table = self.context.join(new)
        begin = int(self.context.times[self.context.starts[1:] - 1].min())
        preparation = self.preparation = self.preparation.meeting(table)
        if self.recipe.support == "auto" and (new.y < 0).any():
            self.support = "real"
        cut = new.cutoff(1 - self.recipe.data.validation)
        self.context = context(table, preparation.window + self.recipe.horizon)
        try:
            train = preparation.windows(table, after=begin, until=cut)
            later = preparation.windows(table, after=cut, numbers=train.numbers)
        except NoWindows:
            return History()
        self.held = cut
        old, rows, held = copy.deepcopy(self.model), *(rows_of(part, self.apart) for part in (train, _checked(later)))
        settings = self.recipe.settings(len(rows)).shorter()
        history = fit(self.model, rows, held, settings, self.recipe.seed)
        if history.epochs[history.best - 1]["validation"] < nll(old, held):
            self._finish(train, later, settings, history)
        else:
            self.model = old
        if len(later) >= ENOUGH:
            self.doubt = self.doubt.extended(train)
            self.calibrate(later, table.times)
        return history

    @property
    def calibration(self) -> str:
        """What corrects the laws, and why it was picked if nobody asked for it."""
        return self.calibrator.why if isinstance(self.calibrator, Auto) else self.recipe.calibration or "none"

    @property
    def parameters(self) -> int:
        """How many numbers were learned."""
        return sum(parameter.numel() for parameter in self.model.parameters())


def _checked(windows: Windows) -> Windows:
    """Those that early stopping looks at."""
    return windows.thin(max(MOST // windows.sizes.targets, LEAST))
