"""From the tables that a fitted forecaster is given to the windows that it forecasts."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from itocast.arguments import whole
from itocast.clipped import SUPPORTS
from itocast.data.columns import NotInParts, rows_text
from itocast.data.parts import Parts
from itocast.data.reading import Gaps, check_names, open_source, read_table, used
from itocast.data.table import Columns, Table
from itocast.data.tails import Tails
from itocast.data.windows import Windows
from itocast.fitted import Fitted


class Reader:
    """Reads tables like that of training: the same columns, times, categories and support."""

    def __init__(self, fitted: Fitted) -> None:
        self.fitted, self.preparation, self.recipe = fitted, fitted.preparation, fitted.recipe

    def read(
        self, df: Any, columns: Columns | None = None, labels: np.ndarray | None = None
    ) -> tuple[Table, Table | None]:
        """A table, and the rows after the last target of each series, if there are any.

        `columns` are those of training and `labels` those in the table unless others are given.
        """
        table = self._table(df, columns or self.preparation.columns, "fill" if self.preparation.regular else "keep")
        table = table if labels is None else replace(table, ids=labels)
        check_support(table, self.recipe.support)
        return table.known()

    def _table(self, df: Any, columns: Columns, gaps: Gaps) -> Table:
        clock, categories, repeated = self.preparation.clock, self.preparation.categories, self.recipe.data.repeated
        return read_table(df, columns, clock=clock, repeated=repeated, gaps=gaps, categories=categories)

    def ahead(self, df: Any, future: Any, whole: bool = False) -> Iterator[tuple[Windows, Table]]:
        """The forecasts from the end of each series, with the table of their steps, some series at a time or all."""
        names = self.preparation.columns.future
        if future is not None and not names:
            raise ValueError("future is given, but fit was told of no covariates known ahead: leave it out")
        known = None
        if future is not None:
            columns = self.preparation.columns.model_copy(update={"targets": (), "past": (), "static": ()})
            known = self._table(future, columns, "keep")
        for table, later in [(self.fitted.context, None)] if df is None else self._ends(df, whole):
            later = later if future is None else known
            if names and later is None:
                raise ValueError(
                    f"future is missing: pass a table of the next {self.recipe.horizon} steps, with {', '.join(names)}"
                )
            yield self.preparation.meeting(table).ahead(table, later if names else None)

    def _ends(self, df: Any, whole: bool) -> Iterator[tuple[Table, Table | None]]:
        """The ends of all series as `read` gives them; of a file of several parts, only what forecasts need."""
        columns, source = self.preparation.columns, open_source(df)
        if isinstance(source, Parts):
            check_names(source.columns, columns)
            frame = source.whole(used(columns))
            if frame is None:
                yield from self._tails(source, whole)
                return
            source = frame
        yield self.read(source)

    def _tails(self, parts: Parts, whole: bool) -> Iterator[tuple[Table, Table | None]]:
        done = 0
        try:
            tails = Tails(parts, self.preparation, lambda table: check_support(table, self.recipe.support))
            for table in tails.tables(len(tails) if whole else self.fitted.at_once):
                yield table.known()
                done += len(table.ids)
        except NotInParts as reason:
            warnings.warn(f"all rows of {parts.name} are held in memory: {reason}", stacklevel=4)
            table, later = self.read(parts)
            yield table.take(table.series >= done), later

    def tests(self, table: Table, start: Any, step: int, refit: bool | int) -> Iterator[tuple[Fitted, Windows]]:
        """What forecasts, and the windows it forecasts, from every `step`-th row after `start`.

        Without a start they are all forecasts of rows after those that training learned from first.
        """
        step = whole("step", step)
        if not isinstance(refit, int) or refit < 0:
            raise ValueError(f"refit={refit!r}: expected True, False or a whole number of cutoffs")
        begin = self.fitted.held.rows(table) if start is None else instant(table, start)
        last = table.times[np.maximum(table.starts[1:] - self.recipe.horizon, table.starts[:-1])].max()
        if np.min(begin) >= last:
            if start is None:
                raise ValueError(
                    f"the table has {len(table)} rows: too few for a forecast of {self.recipe.horizon} steps whose "
                    "outcomes are known and were not learned from first; pass more rows, or start="
                )
            raise ValueError(
                f"start={start!r}: no cutoff after it has {self.recipe.horizon} rows to be tested on; the latest "
                f"possible start is before {table.clock.index(np.array([last]))[0]}"
            )
        windows = self.preparation.meeting(table, begin).windows(table, after=begin).every(step)
        if not refit:
            yield self.fitted, windows
            return
        cutoffs = table.times[windows.origins.numpy()]
        distinct = np.unique(cutoffs)
        for chunk in np.split(distinct, range(int(refit), len(distinct), int(refit))):
            until = int(chunk[0])
            fitted = Fitted.train(table.until(until), self.recipe)
            windows = fitted.preparation.meeting(table, until).windows(table, after=begin).every(step)
            yield fitted, windows.only(np.isin(table.times[windows.origins.numpy()], chunk))


def instant(table: Table, start: Any) -> int:
    """A share of the rows, or a time."""
    if isinstance(start, float | np.floating) and 0 < start < 1:
        return table.cutoff(float(start))
    return table.clock.instant(start)


def check_support(table: Table, support: str) -> None:
    """Refuse targets that the support rules out."""
    low, high = SUPPORTS["real" if support == "auto" else support]
    outside = np.any((table.y < low) | (table.y > high), axis=1)
    if outside.any():
        value = table.y[outside][0]
        raise ValueError(
            f"support={support!r} means {'0 and above' if high > 1 else '0 to 1'}, but "
            f"{', '.join(table.columns.targets)} is outside in {rows_text(outside)} (in the order of series and "
            f"time); the first reads {', '.join(f'{one:g}' for one in value)}: correct them, or use another support"
        )
