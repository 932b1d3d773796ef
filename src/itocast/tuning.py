"""A search for settings that are better than the defaults: trials within a time, kept in a folder and resumed there."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pandas as pd

from itocast.arguments import whole
from itocast.config import Config
from itocast.data.preparation import Preparation
from itocast.data.table import Table
from itocast.data.windows import Windows
from itocast.dials import flat, point_of, settings_at, space_of
from itocast.fitted import Fitted, Recipe
from itocast.forecaster import CHUNK, Forecaster
from itocast.storage import check_folder, write_bytes
from itocast.studies import finished_trial, open_study, optuna_at_hand, propose

STUDY, BEST, TRIALS = "study.journal", "best.toml", "trials.csv"
MINUTES = 10.0  # of a search that is given neither a time nor a number of trials
HELD = 0.2  # the newest share of the rows: they score trials and are seen by nothing else
SCORED = 10_000  # forecasts of one step and target that score a trial, evenly spaced
REPEATS = 50  # proposals that were all tried before: then nothing is left to try

Report = Callable[[str, float], None]


@dataclass(frozen=True)
class Tuned:
    """What a search found. `table` has a row for each trial, the best first; the first trial is the defaults."""

    best: Config
    table: pd.DataFrame  # rank, trial, crps, gain (percent below the defaults), seconds, outcome, settings
    since: Any  # the rows after it scored the trials
    interrupted: bool

    @property
    def gain(self) -> float:
        """By how many percent the CRPS of the best is below that of the defaults; 0 if these are the best."""
        return float(self.table["gain"].iloc[0])

    def forecaster(self) -> Forecaster:
        """A forecaster of the best settings, not fitted; `best.columns()` are the arguments of its `fit`."""
        return self.best.forecaster()


def tune(
    df: Any, minutes: float | None = None, trials: int | None = None, folder: str | Path | None = None, **settings: Any
) -> Tuned:
    """Try other settings than the defaults, for some minutes or up to a number of trials, whichever ends first.

    `settings` are those of a settings file: horizon, seed, target, time, data={...}, training={...}; what is set stays
    as it is, the rest is searched. The newest fifth of the rows scores each trial by its CRPS; training, stopping and
    calibration have the rows before. With `folder` every trial is kept there, and the same call goes on from them;
    Ctrl-C ends the search and keeps what is finished. Needs the extra `tune`.

    >>> hours = pd.date_range("2024-01-01", periods=200, freq="h")
    >>> frame = pd.DataFrame({"ds": hours, "y": 10.0 + hours.hour})
    >>> found = tune(frame, trials=2, horizon=2, training={"epochs": 1, "batch_size": 32})
    >>> found.table["settings"][found.table["trial"] == 0].item()
    'defaults'
    >>> found.gain >= 0
    True
    >>> found.forecaster().fit(frame, **found.best.columns())
    Forecaster(horizon=2, window=24), fitted on 1 series of y, a row every h
    """
    most = math.inf if trials is None else whole("trials", trials)
    if minutes is not None and not (isinstance(minutes, int | float) and 0 < minutes < math.inf):
        raise ValueError(f"minutes={minutes!r}: expected a number above 0, or None for no limit but that of trials")
    minutes = MINUTES if minutes is None and trials is None else minutes
    with optuna_at_hand():
        search = Search(df, Config(**settings), None if folder is None else Path(folder))
        return search.run(math.inf if minutes is None else 60 * minutes, most)


class OutOfTime(Exception):
    """A trial that would not end in time; `args` hold the seconds that it would take."""


class Search:
    """Trials of one table and one set of fixed settings."""

    def __init__(self, df: Any, config: Config, folder: Path | None) -> None:
        self.began = monotonic()
        if folder:
            check_folder(folder)
            config.text()  # settings that a file cannot hold are refused before the work
        self.config, self.folder = config, folder
        forecaster = config.forecaster()
        recipe = forecaster.recipe
        self.table = forecaster._table(df, **config.columns())
        self.cut = self.table.cutoff(1 - HELD)
        self.train = self.table.until(self.cut)
        self.fixed = config.model_dump(
            mode="json", exclude_unset=True, exclude={"window"} if not config.window else None
        )
        preparation, self.defaults = _defaults(self.train, recipe)
        learned = self.train.until(self.train.cutoff(1 - recipe.data.validation))
        spare = (int(np.median(np.diff(learned.starts))) - recipe.horizon) // 2
        self.space = space_of(self.defaults, flat(self.fixed), spare)
        widest = replace(preparation, window=int(max(self.space.get("window", [preparation.window]))))
        scored = widest.meeting(self.table, self.cut).windows(self.table, after=self.cut)
        each = recipe.horizon * len(self.table.columns.targets)
        self.origins = scored.thin(max(1, SCORED // each)).origins.numpy()  # the same rows, however long the window
        self.after = 0.0  # the most seconds that a trial took after its last epoch
        self.kept = None if folder is None else open_study(folder / STUDY, self._identity())
        self.trials: list[Any] = [] if self.kept is None else self.kept.trials

    def _identity(self) -> dict[str, str]:
        """What must be the same for a search to go on."""
        table = hashlib.sha256()
        for column in (self.table.times, self.table.starts, self.table.ids, *self.table.values.values()):
            table.update(repr(column.tolist()).encode() if column.dtype == object else column.tobytes())
        known = {"the table": f"{len(self.table):,} rows (sha256 {table.hexdigest()[:12]})"}
        known |= {name: repr(value) for name, value in flat(self.config.model_dump(mode="json")).items()}
        return known | {f"the range of {name}": repr(values) for name, values in self.space.items()}

    def run(self, seconds: float, most: float) -> Tuned:
        """Try until the time is over, there are so many trials, or nothing is left to try."""
        deadline, interrupted = self.began + seconds, False
        with _progress(self.began, seconds, most) as report:
            try:
                while len(self.trials) < most and monotonic() < deadline and (proposal := self._propose()):
                    self._try(*proposal, deadline, report)
            except OutOfTime as late:
                if not self.trials:
                    raise ValueError(
                        f"minutes={seconds / 60:g}: the defaults alone would take about {late.args[0] / 60:.1f}; allow "
                        "at least ten times that, or use effort='fast'"
                    ) from None
            except KeyboardInterrupt:
                if not self.trials:
                    raise
                interrupted = True
        return self._found(interrupted)

    def _propose(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The next point of the space and its settings, which follow from seed and earlier trials alone.

        First the defaults; None if nothing new can be found.
        """
        tried = [trial.user_attrs["settings"] for trial in self.trials]
        if not tried:
            return point_of(self.space, self.defaults), {}
        for attempt in range(REPEATS):
            point = propose(self.trials, self.space, [self.config.seed, len(tried), attempt])
            if (settings := settings_at(point, self.defaults)) not in tried:
                return point, settings
        return None

    def _try(self, point: dict[str, Any], settings: dict[str, Any], deadline: float, report: Report) -> None:
        """Score a trial and keep it, unless the time is over and the next search had better start with it."""
        began, score, outcome = monotonic(), None, "finished"
        try:
            score = self._score(settings, deadline, report)
        except OutOfTime:
            if not self.trials or deadline - monotonic() < self.trials[0].user_attrs["seconds"]:
                raise
            outcome = "too slow"
        except (ArithmeticError, ValueError) as error:
            if not self.trials:
                raise
            outcome = str(error)
        notes = {"settings": settings, "outcome": outcome, "seconds": round(monotonic() - began, 2)}
        trial = finished_trial(point, self.space, score, notes)
        self.trials.append(trial)
        if self.kept is not None:
            self.kept.add_trial(trial)  # one line of the journal: a trial is there whole or not at all
            self._found(False)

    def _score(self, settings: dict[str, Any], deadline: float, report: Report) -> float:
        """The CRPS of the held-out rows, of a forecaster that knows those before."""
        recipe = replace(self._config(settings).forecaster().recipe, nested=True)
        ends: list[float] = []  # of the epochs

        def watch(model: Any, train: Any, validation: Any) -> dict[str, float]:
            ends.append(monotonic())
            training, done = recipe.settings(len(train)), len(ends)
            epochs = training.epochs + training.matching
            each = (ends[-1] - ends[0]) / max(done - 1, 1)  # the first one is not timed: it begins with preparations
            report(f"trial {len(self.trials)}, epoch {done} of {epochs}{self._so_far()}", len(self.trials))
            if ends[-1] + each * (epochs - done) + self.after > deadline:
                raise OutOfTime(each * epochs + self.after)
            return {}

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a fit warns of, the fit of the best will say again
            fitted = Fitted.train(self.train, replace(recipe, watch=watch))
            windows = fitted.preparation.meeting(self.table, self.cut).windows(self.table, after=self.cut)
            score = _crps(fitted, windows.only(np.isin(windows.origins.numpy(), self.origins)))
        self.after = max(self.after, monotonic() - ends[-1])
        if not math.isfinite(score):
            raise ArithmeticError(f"its CRPS is {score}")
        return score

    def _config(self, settings: dict[str, Any]) -> Config:
        """What is fixed, and settings such as {"model.encoder.hidden": 128}."""
        values = deepcopy(self.fixed)
        for name, value in settings.items():
            *parents, last = name.split(".")
            inner = values
            for parent in parents:
                inner = inner.setdefault(parent, {})
            inner[last] = value
        return Config(**values)

    def _so_far(self) -> str:
        scores = [trial.value for trial in self.trials if trial.value is not None]
        return f"; best CRPS {min(scores):.4g}, defaults {scores[0]:.4g}" if scores else ""

    def _found(self, interrupted: bool) -> Tuned:
        """The table of all trials and the best settings, in the folder too if there is one."""
        best = min((trial for trial in self.trials if trial.value is not None), key=lambda trial: trial.value)
        default = self.trials[0].value
        table = pd.DataFrame(
            {
                "trial": number, "crps": trial.value,
                "gain": None if trial.value is None else 100 * (default - trial.value) / (default or 1),
                "seconds": trial.user_attrs["seconds"], "outcome": trial.user_attrs["outcome"],
                "settings": ", ".join(f"{n}={v}" for n, v in trial.user_attrs["settings"].items()) or "defaults",
            }
            for number, trial in enumerate(self.trials)
        )  # fmt: skip
        table = table.astype({"crps": float, "gain": float}).sort_values("crps", kind="stable", ignore_index=True)
        table.insert(0, "rank", table["crps"].rank(method="first").astype("Int64"))
        since = self.table.clock.index(np.array([self.cut]))[0]
        found = Tuned(self._config(best.user_attrs["settings"]), table, since, interrupted)
        if self.folder:
            write_bytes(self.folder / BEST, found.best.text().encode())
            write_bytes(self.folder / TRIALS, table.to_csv(index=False, float_format="%.6g").encode())
        return found


def _defaults(table: Table, recipe: Recipe) -> tuple[Preparation, dict[str, Any]]:
    """What a fit with no setting changed would use, each setting by its name."""
    cut = table.cutoff(1 - recipe.data.validation)
    preparation = Preparation.fit(table, recipe.horizon, recipe.window, recipe.data, until=cut)
    train = preparation.meeting(table, cut).windows(table, until=cut)
    model, training = recipe.build(train.sizes, seed=recipe.seed).config, recipe.settings(len(train)).model_dump()
    values = {"window": preparation.window, "data": recipe.data.model_dump(), "model": model, "training": training}
    return preparation, flat(values)


def _crps(fitted: Fitted, windows: Windows) -> float:
    """The mean over all forecasts that can be checked, in the table's unit."""
    total = count = 0.0
    for part in windows.chunks(max(1, CHUNK // (windows.horizon * windows.numbers.y.shape[1]))):
        law, y = fitted.law(part), part.actuals()
        scores = law.crps(y.where(~y.isnan(), law.mean.double()))[~y.isnan()]
        total, count = total + scores.sum().item(), count + len(scores)
    return total / count


@contextmanager
def _progress(began: float, seconds: float, most: float) -> Iterator[Report]:
    """A bar over the time, or over the trials where time has no limit, in a terminal alone."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("tuning"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        timed = seconds < math.inf
        task = bar.add_task("trial 0, the defaults", total=seconds if timed else most)
        yield lambda text, done: bar.update(task, description=text, completed=monotonic() - began if timed else done)
