"""A search for settings that are better than the defaults: trials within a time, kept in a folder and resumed there."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pandas as pd

from itocast.arguments import whole
from itocast.config import Config
from itocast.data.holdout import Cut, held_rows
from itocast.data.preparation import Preparation
from itocast.data.table import Table
from itocast.fitted import Recipe
from itocast.forecaster import Forecaster
from itocast.storage import check_folder, write_bytes
from itocast.tuning.dials import flat, point_of, settings_at, space_of
from itocast.tuning.guard import SEEDS, TOP, Guard
from itocast.tuning.parts import Part
from itocast.tuning.results import results
from itocast.tuning.studies import Study, finished_trial, optuna_at_hand, propose
from itocast.tuning.timing import OutOfTime, Report, Timed, progress

STUDY, BEST, TRIALS = "study.journal", "best.toml", "trials.csv"
MINUTES = 10.0  # of a search that is given neither a time nor a number of trials
HELD = 0.2  # the newest share of the rows, for the guard, and the newest share of the others, for the scores of trials
REPEATS = 50  # proposals that were all tried before: then nothing is left to try

Say = Callable[[str, int], None]  # the epoch, and how many fits are finished


@dataclass(frozen=True)
class Tuned:
    """What a search found. `table` has a row for each trial, the best of the search first; trial 0 is the defaults.

    Its columns: rank, trial, crps and gain of the search (percent below the defaults), guard and guard_gain on the
    rows that the search did not look at, needed (what guard_gain must exceed), seeds of the guard, seconds of all fits,
    outcome, settings.
    """

    best: Config  # what is kept
    trial: int  # that it is of: 0 if the defaults are kept
    table: pd.DataFrame
    since: tuple[Any, Any]  # the rows after the first scored the trials, those after the second are the guard's
    interrupted: bool

    @property
    def gain(self) -> float:
        """By how many percent the CRPS of what is kept is below that of the defaults, by the guard; of these 0."""
        return float(self.table.set_index("trial")["guard_gain"][self.trial]) if self.trial else 0.0

    def forecaster(self) -> Forecaster:
        """A forecaster of what is kept, not fitted; `best.columns()` are the arguments of its `fit`."""
        return self.best.forecaster()


def tune(
    df: Any, minutes: float | None = None, trials: int | None = None, folder: str | Path | None = None, **settings: Any
) -> Tuned:
    """Try other settings than the defaults, for some minutes or up to a number of trials, whichever ends first.

    `settings` are those of a settings file: horizon, seed, target, time, data={...}, training={...}; what is set stays
    as it is, the rest is searched. The newest fifth of the rows is the guard's, the newest fifth of the others scores
    trials by their CRPS; training, stopping and calibration have the rows before. The guard fits the best trials and
    the defaults anew with other seeds, and keeps the defaults unless a trial is better by more than chance. With
    `folder` every fit is kept there, and the same call goes on from them; Ctrl-C ends the search and keeps what is
    finished. Needs the extra `tune`.

    >>> hours = pd.date_range("2024-01-01", periods=200, freq="h")
    >>> frame = pd.DataFrame({"ds": hours, "y": 10.0 + hours.hour})
    >>> network = {"model": {"kind": "sde_hnn"}, "training": {"epochs": 1, "batch_size": 32}}
    >>> found = tune(frame, trials=2, horizon=2, **network)
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


class Search:
    """Trials and guard of one table and one set of fixed settings."""

    def __init__(self, df: Any, config: Config, folder: Path | None) -> None:
        self.began = monotonic()
        if folder:
            check_folder(folder)
            config.text()  # settings that a file cannot hold are refused before the work
        self.config, self.folder = config, folder
        forecaster = config.forecaster()
        recipe = replace(forecaster.recipe, prior=False)  # settings of a network are searched
        table = forecaster._table(df, **config.columns())
        newest = table.cutoff(1 - HELD)
        older = table.until(newest)
        cut = older.cutoff(1 - HELD)
        learned = older.until(cut)
        self.fixed = config.model_dump(
            mode="json", exclude_unset=True, exclude={"window"} if not config.window else None
        )
        preparation, self.defaults = _defaults(learned, recipe)
        train = learned.until(_held(learned, recipe))
        spare = (int(np.median(np.diff(train.starts))) - recipe.horizon) // 2
        self.space = space_of(self.defaults, flat(self.fixed), spare)
        widest = replace(preparation, window=int(max(self.space.get("window", [preparation.window]))))
        self.scored, guarded = Part.of(older, cut, widest), Part.of(table, newest, widest)
        self.study = Study(None if folder is None else folder / STUDY, self._identity(table))
        self.guard = Guard(self.study, guarded, len(older) / len(learned))
        self.timed = Timed()

    def _identity(self, table: Table) -> dict[str, str]:
        """What must be the same for a search to go on."""
        digest = hashlib.sha256()
        for column in (table.times, table.starts, table.ids, *table.values.values()):
            digest.update(repr(column.tolist()).encode() if column.dtype == object else column.tobytes())
        known = {"the table": f"{len(table):,} rows (sha256 {digest.hexdigest()[:12]})"}
        known |= {name: repr(value) for name, value in flat(self.config.model_dump(mode="json")).items()}
        return known | {f"the range of {name}": repr(values) for name, values in self.space.items()}

    def run(self, seconds: float, most: float) -> Tuned:
        """Try until the guard needs the rest of the time, there are so many trials or nothing is left; then guard."""
        deadline, interrupted = self.began + seconds, False
        with progress(self.began, seconds, most + SEEDS * (1 + TOP)) as report:
            try:
                while len(self.study.trials) < most and monotonic() < (end := deadline - self.guard.reserve(seconds)):
                    proposal = self._propose()
                    if not proposal or not self._try(*proposal, end, report):
                        break
                self._guard(deadline, report)
            except OutOfTime as late:
                raise ValueError(
                    f"minutes={seconds / 60:g}: the defaults alone would take about {late.args[0] / 60:.1f}; allow at "
                    "least thirty times that, or use effort='fast'"
                ) from None
            except KeyboardInterrupt:
                if not self.study.trials:
                    raise
                interrupted = True
        return self._found(interrupted)

    def _propose(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The next point of the space and its settings, which follow from seed and earlier trials alone.

        First the defaults; None if nothing new can be found.
        """
        tried = [trial.user_attrs["settings"] for trial in self.study.trials]
        if not tried:
            return point_of(self.space, self.defaults), {}
        for attempt in range(REPEATS):
            point = propose(self.study.trials, self.space, [self.config.seed, len(tried), attempt])
            if (settings := settings_at(point, self.defaults)) not in tried:
                return point, settings
        return None

    def _try(self, point: dict[str, Any], settings: dict[str, Any], deadline: float, report: Report) -> bool:
        """Score a trial and keep it; False if the time is over and the next search had better start with it."""
        began, trials = monotonic(), self.study.trials
        known = [trial.value for trial in trials if trial.value is not None]
        words = f"best CRPS {min(known):.4g}, defaults {known[0]:.4g}, " if known else ""
        say = partial(report, f"{words}trial {len(trials)}")
        try:
            fit = self._fit(self.scored, settings, self.config.seed, deadline, say)
        except OutOfTime:
            if not trials:
                raise
            if deadline - monotonic() < trials[0].user_attrs["seconds"]:
                return False
            fit = {"outcome": "too slow", "seconds": round(monotonic() - began, 2)}
        score = float(np.sum(fit.pop("sums")) / self.scored.counts.sum()) if "sums" in fit else None
        self.study.add(finished_trial(point, self.space, score, fit | {"settings": settings}))
        self._found(False)
        return True

    def _guard(self, deadline: float, report: Report) -> None:
        """Fit the best trials and the defaults anew, with other seeds, on all rows before the guard's."""
        while lacking := self.guard.lacking(deadline - monotonic()):  # again, as time may be left for more
            for place, (number, seed) in enumerate(lacking, 1):
                settings = self.study.trials[number].user_attrs["settings"]
                say = partial(report, f"guard, fit {place} of {len(lacking)}")
                try:
                    fit = self._fit(self.guard.part, settings, self.config.seed + seed, deadline, say)
                except OutOfTime:
                    return
                self.study.add_fit(number, seed, fit)
                self._found(False)

    def _fit(self, part: Part, settings: dict[str, Any], seed: int, deadline: float, say: Say) -> dict[str, Any]:
        """The sums of its scores if it went well, which the defaults must, its outcome and its seconds."""
        began, fit = monotonic(), dict[str, Any](outcome="finished")
        done = len(self.study.trials) + len(self.study.fits)
        try:
            recipe = replace(self._config(settings).forecaster().recipe, seed=seed, prior=False)
            fit["sums"] = self.timed.crps(part, recipe, deadline, lambda epoch: say(epoch, done)).tolist()
        except (ArithmeticError, ValueError) as error:
            if not settings:
                raise
            fit["outcome"] = str(error)
        return fit | {"seconds": round(monotonic() - began, 2)}

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

    def _found(self, interrupted: bool) -> Tuned:
        """The table of all trials and the settings that are kept, in the folder too if there is one."""
        table, kept = results(self.guard), self.guard.kept()
        since = self.guard.part.table.clock.index(np.array([self.scored.cut, self.guard.part.cut]))
        settings = self.study.trials[kept].user_attrs["settings"]
        found = Tuned(self._config(settings), kept, table, (since[0], since[1]), interrupted)
        if self.folder:
            write_bytes(self.folder / BEST, found.best.text().encode())
            write_bytes(self.folder / TRIALS, table.to_csv(index=False, float_format="%.6g").encode())
        return found


def _held(table: Table, recipe: Recipe) -> np.ndarray:
    """The instant of each row's series after which a fit holds rows out, (rows,)."""
    rows = held_rows(np.diff(table.starts), recipe.data.validation, recipe.horizon)
    return Cut.newest(table, rows).rows(table)


def _defaults(table: Table, recipe: Recipe) -> tuple[Preparation, dict[str, Any]]:
    """What a fit with no setting changed would use, each setting by its name."""
    if recipe.build is None:
        raise ValueError("model.kind='prior': it has no settings to search; leave it out, or name a network")
    cut = _held(table, recipe)
    preparation = Preparation.fit(table, recipe.horizon, recipe.window, recipe.data, until=cut)
    train = preparation.meeting(table, cut).windows(table, until=cut)
    model, training = recipe.build(train.sizes, seed=recipe.seed).config, recipe.settings(len(train)).model_dump()
    values = {"window": preparation.window, "data": recipe.data.model_dump(), "model": model, "training": training}
    return preparation, flat(values)
