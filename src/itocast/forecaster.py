"""Forecaster: a table in, a table of forecasts out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from itocast import folders, metrics, results
from itocast.arguments import choice, column_names, percentages, probabilities, share, whole
from itocast.calibration import CALIBRATORS
from itocast.calibration.base import warn_of_few
from itocast.cautions import warn_of_an_early_end, warn_of_new_levels, warn_of_new_values
from itocast.clipped import SUPPORTS
from itocast.data import frames
from itocast.data.preparation import Data
from itocast.data.reading import open_source, read_table
from itocast.data.table import Columns, Table
from itocast.data.windows import Windows
from itocast.doctor import Diagnosis, diagnose
from itocast.fitted import Fitted, Recipe
from itocast.forecast import Forecast
from itocast.metrics import Scored
from itocast.models import MODELS, SDEHNN, Model
from itocast.network import Build
from itocast.reader import Reader, check_support, instant
from itocast.schedule import EFFORTS, Training
from itocast.training import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHOICES: dict[str, tuple[Build | None, bool]] = {  # what makes the network, and whether the prior may forecast
    "auto": (SDEHNN, True),
    "prior": (None, True),
    **{name: (kind, False) for name, kind in MODELS.items()},
}


class Forecaster:
    """Forecasts of the next `horizon` steps of every series of a table, each with its whole law.

    - `horizon`: how many steps ahead.
    - `window`: how many rows back the network looks; by default from frequency and horizon.
    - `effort`: "fast", "balanced" or "best" trades time for quality. On small tables "fast" is the
      prior alone.
    - `support`: "positive" keeps forecasts at 0 and above, "unit" between 0 and 1, "real" leaves them
      anywhere. "auto" is "positive" where targets look like counts, or end at 0 (`support_of`).
    - `data`: how tables are read, and what the network sees of them.
    - `model`: "prior" was trained on many kinds of synthetic series and learns nothing from the table
      but its calibration. A name in MODELS is a network alone, as is what makes a model from sizes
      and seed. "auto" lets held-out rows decide between prior, SDE-HNN and a blend of both.
    - `training`: a dict replaces some of the settings that suit effort and number of rows; a
      `Training` replaces all of them.
    - `calibration`: a name in CALIBRATORS, or None.
    - `calibration_by`: "series" or a static column gives each series or category a correction of its
      own; "auto" lets calibration="auto" choose whether each series has one.
    - `seed`: the same seed gives the same numbers.

    >>> import pandas as pd
    >>> hours = pd.date_range("2024-01-01", periods=300, freq="h")
    >>> frame = pd.DataFrame({"ds": hours, "y": 10.0 + hours.hour})
    >>> forecaster = Forecaster(horizon=3, training=Training(epochs=1)).fit(frame)
    >>> forecaster.predict(level=95).columns.tolist()
    ['ds', 'mean', 'median', 'lo-95', 'hi-95', 'aleatoric', 'epistemic']
    """

    def __init__(
        self, horizon: int = 1, *, window: int | None = None, effort: Literal["fast", "balanced", "best"] = "balanced",
        support: Literal["auto", "real", "positive", "unit"] = "auto",
        data: Data | dict[str, Any] = Data(), model: str | Callable[..., Model] = "auto",
        training: Training | dict[str, Any] | None = None, calibration: str | None = "auto",
        calibration_by: str | None = "auto", seed: int = 0,
    ) -> None:  # fmt: skip
        horizon, seed = whole("horizon", horizon), whole("seed", seed, least=0)
        window = None if window is None else whole("window", window)
        choice("effort", effort, EFFORTS)
        choice("support", support, ("auto", *SUPPORTS))
        choice("calibration", calibration, (None, *CALIBRATORS))
        if isinstance(model, Model):
            raise TypeError("model is a model: expected a name, or what makes one from sizes and seed, as its class")
        if model not in CHOICES if isinstance(model, str) else not callable(model):
            raise ValueError(f"model={model!r}: expected one of {', '.join(CHOICES)}, or what makes a model")
        if not (training is None or isinstance(training, Training | dict)):
            raise TypeError(f"training={training!r}: expected Training(...), or a dict of some of its settings")
        training = training if isinstance(training, Training) else dict(training or {})
        Training.suited(1, effort, **dict(training))
        build, prior = CHOICES[model] if isinstance(model, str) else (model, False)
        self.recipe = Recipe(
            horizon, window, effort, support, Data.of(data), build, prior, training, calibration, calibration_by, seed
        )
        self._fitted: Fitted | None = None
        self._kind: frames.Kind | None = None  # of the table that it was fitted on

    @property
    def fitted(self) -> Fitted:
        """What was learned: model, scales, calibration, history."""
        if self._fitted is None:
            raise ValueError("the forecaster is not fitted: call fit(df) first, or Forecaster.load(folder)")
        return self._fitted

    @property
    def reader(self) -> Reader:
        """What makes windows of tables."""
        return Reader(self.fitted)

    def __repr__(self) -> str:
        if self._fitted is None:
            return f"Forecaster(horizon={self.recipe.horizon}), not fitted"
        prepared = self._fitted.preparation
        targets, series = ", ".join(prepared.columns.targets), len(prepared.scales)
        reads = f"window={prepared.window}" if self._fitted.net else "model='prior'"
        return (
            f"Forecaster(horizon={prepared.horizon}, {reads}), fitted on {series:,} series of {targets}, a row every "
            f"{prepared.clock.freq}"
        )

    def fit(
        self, df: Any, target: str | Sequence[str] = "y", time: str | None = "ds", id: str | None = "unique_id",
        past: Sequence[str] = (), future: Sequence[str] = (), static: Sequence[str] = (),
        checkpoint: str | Path | None = None,
    ) -> Self:  # fmt: skip
        """Learn from a frame (pandas, polars) or a file (CSV, Parquet); returns the forecaster.

        `id` tells series apart; a table of one series needs none. Without `time` rows are taken in their order.
        Covariates are numbers or categories: `past` ones are known up to now, `future` ones for the steps ahead too,
        `static` ones are the same in all rows of a series. `checkpoint` is a file from which a run that was cut short
        goes on.
        """
        table = self._table(df, target, time, id, past, future, static)
        self._kind = frames.kind_of(df)
        self._fitted = Fitted.train(table, self.recipe, checkpoint)
        if self._fitted.zero_shot is None:
            warn_of_an_early_end(self._fitted.history)
        return self

    def _table(
        self, df: Any, target: str | Sequence[str], time: str | None, id: str | None, past: Sequence[str],
        future: Sequence[str], static: Sequence[str],
    ) -> Table:  # fmt: skip
        """All observed rows to learn from, checked; the arguments are those of `fit`."""
        source = open_source(df)
        groups = {"past": past, "future": future, "static": static}
        names = {name: column_names(name, value) for name, value in groups.items()}
        columns = Columns(
            id=None if id == "unique_id" and id not in source.columns else id, time=time,
            targets=column_names("target", [target] if isinstance(target, str) else target), **names,
        )  # fmt: skip
        if not columns.targets:
            raise ValueError("target is empty: name at least one column to forecast")
        _check_groups(self.recipe.calibration_by, columns)
        for argument, name in (("id", columns.id), ("time", columns.time)):
            if name and results.is_reserved(name):
                raise ValueError(
                    f"{argument} names column {name!r}, but forecasts have columns {', '.join(results.NAMES)}, lo-, "
                    "hi- and q- of their own: rename it"
                )
        if time == "ds" and time not in source.columns:
            raise ValueError(
                f"time names column 'ds', which is not in the table: its columns are {', '.join(source.columns)}; "
                "pass time=, or time=None to take rows in their order"
            )
        data = self.recipe.data
        table = read_table(source, columns, freq=data.freq, repeated=data.repeated, gaps=data.gaps)
        check_support(table, self.recipe.support)
        return table.known()[0]

    def predict(
        self, df: Any = None, level: float | Sequence[float] = (80, 95), quantiles: float | Sequence[float] = (),
        paths: int | None = None, future: Any = None, abstain: float | None = None,
    ) -> Any:  # fmt: skip
        """Forecasts of the steps after the end of each series, of the training table or of another one.

        One row for each series, step and target: mean, median, the bounds of the central intervals of `level` percent
        as lo-L and hi-L, each of `quantiles` as q-P, and the standard deviations of both parts of the uncertainty.
        With `paths`, instead of all that, so many sampled courses, whose steps hang together as they did in validation:
        columns `path` and `y`. `future` holds the covariates that are known ahead, or they stand in rows of `df` that
        have no target yet. With `abstain`, a share such as 0.05, a column `abstain` marks the forecasts not to rely on:
        about so many if all is as it was in validation, more if inputs are strange. Their numbers stay.
        """
        kind = frames.kind_of(df) if df is not None else self._kind or frames.kind_of(future)
        parts = list(self._predicted(df, level, quantiles, paths, future, abstain))
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return frames.build(columns, kind, self.fitted.preparation.clock, (self._time,))

    def predict_file(
        self, df: Any, output: str | Path, level: float | Sequence[float] = (80, 95),
        quantiles: float | Sequence[float] = (), paths: int | None = None, future: Any = None,
        abstain: float | None = None,
    ) -> int:  # fmt: skip
        """Write what `predict` gives to a CSV, CSV.gz, Parquet or JSON file; returns the number of rows.

        Of a file (CSV, Parquet) that is larger than memory a part is read at a time, and forecasts of the series that
        are complete are written before the next.
        """
        clock = self.fitted.preparation.clock
        with frames.Writer(str(output)) as writer:
            for columns in self._predicted(df, level, quantiles, paths, future, abstain):
                writer.add(frames.build(columns, "pandas", clock, (self._time,)))
        return writer.rows

    def _predicted(
        self, df: Any, level: float | Sequence[float], quantiles: float | Sequence[float], paths: int | None,
        future: Any, abstain: float | None,
    ) -> Iterator[results.Frame]:  # fmt: skip
        """The columns of `predict`, some series at a time."""
        levels, shares = self._levels(level), probabilities("quantiles", quantiles)
        rate = None if abstain is None else share("abstain", abstain)
        for windows, table in self.reader.ahead(df, future, whole=paths is not None):
            columns = results.index(table, windows)
            self._warn(windows, table)
            if paths is None:
                columns |= results.summary(self.fitted.laws(windows), levels, shares)
                yield columns | _marks(self.fitted, windows, columns, rate)
            else:
                yield self._paths(windows, columns, paths, rate)

    def _warn(self, windows: Windows, table: Table) -> None:
        """Say where a network is asked about what it did not learn from."""
        if self.fitted.net is not None:
            warn_of_new_levels(windows, table)
            warn_of_new_values(self.fitted.preparation, windows, table)

    def predict_joined(
        self, df: Any, id: str, labels: np.ndarray, level: Sequence[float], quantiles: Sequence[float]
    ) -> results.Frame:
        """The columns of `predict` for the series of several tables that were put into one, each read by itself.

        The column `id` numbers the series of `df` in order of appearance; `labels` tell them apart, and the `name` of
        a label is what its series is called in its own table.
        """
        levels, shares = self._levels(level), probabilities("quantiles", quantiles)
        fitted = self.fitted.preparation
        columns = fitted.columns.model_copy(update={"id": id})
        known = {label: fitted.scales[label.name] for label in labels if label.name in fitted.scales}
        table, later = self.reader.read(df, columns, labels)
        preparation = replace(fitted, scales=known).meeting(table)
        windows, table = preparation.ahead(table, later if columns.future else None)
        return results.index(table, windows) | results.summary(self.fitted.laws(windows), levels, shares)

    def predict_distribution(self, df: Any = None, future: Any = None) -> Forecast:
        """The laws behind `predict`: one row a series, all steps and targets."""
        [(windows, _)] = self.reader.ahead(df, future, whole=True)
        return self.fitted.law(windows)

    def backtest(
        self, df: Any, start: Any = None, step: int = 1, refit: bool | int = False,
        level: float | Sequence[float] = (80, 95), quantiles: float | Sequence[float] = (),
        abstain: float | None = None,
    ) -> Any:  # fmt: skip
        """Forecasts from every `step`-th row after `start`, from true lags, beside what happened.

        `start` is a share of the rows or a time: all that comes after it is forecast. By default these are the rows
        that training held out and all later ones; each is forecast by weights and corrected by a calibration that had
        not seen it. With `refit` everything is fitted
        anew on the rows up to a cutoff, at each (True) or at every so many of them. Adds the columns cutoff, step and y
        to those of `predict`; `abstain` is as there.
        """
        levels, shares = self._levels(level), probabilities("quantiles", quantiles)
        rate = None if abstain is None else share("abstain", abstain)
        table = self.reader.read(df)[0]
        parts = []
        for fitted, windows in self.reader.tests(table, start, step, refit):
            summary = results.summary(fitted.laws(windows), levels, shares)
            summary |= _marks(fitted, windows, summary, rate)
            parts.append(results.index(table, windows) | results.outcome(table, windows) | summary)
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return frames.build(columns, frames.kind_of(df), table.clock, (self._time, "cutoff"))

    def backtest_distribution(self, df: Any, start: Any = None, step: int = 1) -> tuple[Forecast, Tensor]:
        """The laws behind `backtest` and what happened, (cutoffs, horizon, targets), nan where it is missing."""
        [(fitted, windows)] = self.reader.tests(self.reader.read(df)[0], start, step, refit=False)
        return fitted.law(windows), windows.actuals()

    def evaluate(
        self, df: Any, start: Any = None, step: int = 1, refit: bool | int = False, most: int = 10_000
    ) -> Any:  # fmt: skip
        """Every metric of a backtest: over all forecasts, for each horizon step and for each series.

        Columns: by ("all", "step", "series"), of, forecasts, and one for each metric. At most so many forecasts are
        scored, of cutoffs that are evenly spaced.
        """
        table = self.reader.read(df)[0]
        scored: list[Scored] = []
        series: list[np.ndarray] = []
        tests = list(self.reader.tests(table, start, step, refit))
        each = len(tests) * self.recipe.horizon * len(table.columns.targets)
        cutoffs = max(1, whole("most", most) // each)
        for fitted, windows in tests:
            for part in fitted.chunks(windows.thin(cutoffs)):
                scored.append(metrics.score(fitted.law(part), part.actuals(), first=sum(map(len, series))))
                series.append(table.ids[table.series[part.origins.numpy()]])
        columns = results.scores(Scored.cat(scored, [len(part) for part in series]), np.concatenate(series))
        return frames.build(columns, frames.kind_of(df), table.clock, ())

    def diagnose(self, df: Any, start: Any = None) -> Diagnosis:
        """Where intervals fail, told from noise, with the setting that addresses each fault: print it.

        Looks at forecasts of the rows after training, or, where there are fewer than 200, of those that training held
        out; with `start`, a share of the rows or a time, at all after it.
        """
        table = self.reader.read(df)[0]
        return diagnose(self.fitted, table, None if start is None else instant(table, start))

    def report(
        self, df: Any, path: str | Path, start: Any = None, beside: dict[str, Forecaster] | None = None, unit: str = ""
    ) -> Path:
        """Write a page about this model and a table, one HTML file that needs no network; returns its path.

        Tested are the rows that `diagnose` looks at, from `start` on if it is given. `beside` are other forecasters,
        scored on the same rows under their names; `unit` is that of the targets.
        """
        from itocast import report

        report.check_name(path)
        table, later = self.reader.read(df)
        begin = None if start is None else instant(table, start)
        others = {name: (other.fitted, other.reader.read(df)[0]) for name, other in (beside or {}).items()}
        return report.write(path, report.figures(self.fitted, table, later, begin, others, unit))

    def plot(
        self, df: Any = None, series: Any = None, target: str | None = None, rows: int | None = None,
        paths: int | None = None, future: Any = None, unit: str = "", ax: Axes | None = None,
    ) -> Axes:  # fmt: skip
        """The last rows of a series and the forecast of its next steps, on matplotlib axes that are given or made.

        `series` and `target` are the first ones unless named; with `paths` so many sampled courses are drawn instead of
        intervals. `df` and `future` are as in `predict`.
        """
        from itocast import plots

        [(windows, table)] = self.reader.ahead(df, future, whole=True)
        return plots.plot_ahead(self.fitted, table, windows, series, target, rows, paths, unit, ax)

    def update(self, df: Any) -> History:
        """Go on from the fitted state with new rows: forecasts then start after them.

        All but the newest fifth of the rows are trained on for a while; that fifth must hold a whole horizon. It
        calibrates anew, and weights that are worse on it are not taken. Scales and categories stay. Returns what
        happened: a history without epochs if there were too few rows to train on.
        """
        return self.fitted.update(self.reader.read(df)[0])

    def calibrate(self, df: Any, calibration: str | None = "auto", calibration_by: str | None = "auto") -> Self:
        """Exchange the calibration: learn it from the rows of `df` that training held out, and later ones.

        Nothing is trained, and forecasts start where they did; returns the forecaster.
        """
        choice("calibration", calibration, (None, *CALIBRATORS))
        _check_groups(calibration_by, self.fitted.preparation.columns)
        self.fitted.recalibrate(self.reader.read(df)[0], calibration, calibration_by)
        self.recipe = self.fitted.recipe
        return self

    def observe(self, df: Any) -> int:
        """Tell an adaptive calibration what happened in new rows: forecasts then start after them; nothing is trained.

        Needs `calibration="adaptive"`. Returns how many forecasts it learned from.
        """
        return self.fitted.observe(self.reader.read(df)[0])

    def save(self, folder: str | Path) -> None:
        """Write all that was learned to a folder."""
        folders.save(self.fitted, folder)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read from a folder that `save` wrote, here or on another machine."""
        fitted = folders.load(folder)
        self = cls()
        self.recipe, self._fitted = fitted.recipe, fitted
        return self

    def _levels(self, level: float | Sequence[float]) -> list[float]:
        """Percentages, after a word if the calibration knows too little of the widest; of 95 % `fit` has spoken."""
        levels = percentages("level", level)
        if self.fitted.calibrator is not None and max(levels, default=0) > 95:
            warn_of_few(self.fitted.outcomes, max(levels))
        return levels

    @property
    def _time(self) -> str:
        return self.fitted.preparation.columns.time or "ds"

    def _paths(self, windows: Windows, columns: results.Frame, paths: int, rate: float | None = None) -> results.Frame:
        paths, law = whole("paths", paths), self.fitted.law(windows)
        draws = self.fitted.dependence.sample(law, paths, self.recipe.seed).reshape(paths, -1)
        repeated = {name: np.tile(values, paths) for name, values in columns.items()}
        repeated |= {"path": np.repeat(np.arange(paths), draws.shape[1]), "y": draws.reshape(-1).numpy()}
        if rate is not None:  # each course has the marks of the forecasts that it was drawn from
            marks = self.fitted.doubts.marks(windows, law.variance, law.epistemic, rate)
            repeated["abstain"] = np.tile(marks.reshape(-1).numpy(), paths)
        return repeated


def _check_groups(by: str | None, columns: Columns) -> None:
    """Refuse groups of calibration that the table does not know."""
    if by not in (None, "auto") and by not in ((*columns.static, "series") if columns.id else columns.static):
        raise ValueError(
            f"calibration_by={by!r}: expected 'auto', None, 'series', for a table with an id, or one of the static "
            f"columns{', ' if columns.static else ''}{', '.join(columns.static)}"
        )


def _marks(fitted: Fitted, windows: Windows, columns: results.Frame, rate: float | None) -> results.Frame:
    """The column `abstain`, if it is wanted, from the deviations in a summary of all windows."""
    if rate is None:
        return {}
    shape = (len(windows), windows.horizon, windows.numbers.y.shape[1])
    aleatoric, epistemic = (torch.from_numpy(columns[n]).square().reshape(shape) for n in ("aleatoric", "epistemic"))
    return {"abstain": fitted.doubts.marks(windows, aleatoric + epistemic, epistemic, rate).reshape(-1).numpy()}
