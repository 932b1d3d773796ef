"""The ends of all series of a file that is read in parts: all that forecasts from there need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from itocast.data.columns import NotInParts
from itocast.data.parts import Parts, Survey, counted, survey
from itocast.data.preparation import Preparation
from itocast.data.reading import Gaps, Rows, check_gaps, check_static, in_parts, settle_gaps, settle_repeated
from itocast.data.series import last_seen
from itocast.data.table import Table


class Held(NamedTuple):
    """Rows of series that are not yet complete."""

    table: Table
    numbers: np.ndarray  # (series,): among all series of the file
    places: np.ndarray  # (rows,): in the file

    def take(self, rows: np.ndarray) -> Held:
        """Some rows, by a mask."""
        left = np.unique(self.table.series[rows])
        return Held(self.table.take(rows), self.numbers[left], self.places[rows])


class Tails:
    """Reads a file once and gives tables of whole series, in the order in which these appear.

    Of a series that training knew, the rows that its forecast reads are kept: at least a window and a horizon, and back
    to the last value seen of each column. One that it did not know is kept whole, since its scale is that of all its
    rows. As soon as the last row of a series was read it can be given away, so what is in memory grows with the number
    of series that are open at a time, and not with rows. Rows of a series must come in the order of time.
    """

    def __init__(self, parts: Parts, like: Preparation, check: Callable[[Table], object]) -> None:
        self.parts, self.like, self.check = parts, like, check
        self.gaps: Gaps = "fill" if like.regular else "keep"
        self.known: Survey = survey(parts, like.columns, like.categories)

    def __len__(self) -> int:
        return len(self.known.ids)

    def tables(self, size: int) -> Iterator[Table]:
        """So many series at a time, as `read_table` would give them; the last table may have fewer."""
        held, given = None, 0  # the first so many series were given away
        for first, rows in in_parts(self.parts, self.like.columns, self.like.clock, self.known):
            with counted(first):
                held = self._append(held, rows, first)
                check_static(held.table)
                check_gaps(self._once(held), self.gaps)
            open_ = np.flatnonzero(self.known.last >= first + len(rows.times))
            done = int(open_[0]) if len(open_) else len(self)
            while done - given >= size or given < done == len(self):
                given = min(given + size, len(self))
                ready = held.table.series < np.searchsorted(held.numbers, given)
                yield settle_gaps(self._once(held.take(ready)), self.gaps)
                held = held.take(~ready)
            held = held.take(self._needed(held.table))

    def _append(self, held: Held | None, rows: Rows, first: int) -> Held:
        """Rows of a part behind those that are held, checked."""
        series, times, values, places = rows.series, rows.times, rows.values, first + np.arange(len(rows.times))
        if held is not None:
            before = held.table
            series = np.concatenate([held.numbers[before.series], series])
            times, places = np.concatenate([before.times, times]), np.concatenate([held.places, places])
            values = {name: np.concatenate([before.values[name], column]) for name, column in values.items()}
        order = np.argsort(series, kind="stable")
        times, (numbers, starts) = times[order], np.unique(series[order], return_index=True)
        table = Table(
            self.like.columns, self.like.clock, self.known.ids[numbers], np.append(starts, len(times)), times,
            {name: column[order] for name, column in values.items()},
        )  # fmt: skip
        early = np.diff(times) < 0
        early[starts[1:] - 1] = False
        if early.any():
            label = table.ids[table.series[np.flatnonzero(early)[0]]]
            name = f"rows of series {label!r}" if table.columns.id else "rows"
            raise NotInParts(f"{name} are not in the order of time; sort the file to have it read in parts")
        self.check(table)
        return Held(table, numbers, places[order])

    def _once(self, held: Held) -> Table:
        """Repeated times as in training, or refused."""
        return settle_repeated(held.table, self.like.data.repeated, held.places)

    def _needed(self, table: Table) -> np.ndarray:
        """Which rows a forecast from the end of each series reads, or may read once more rows have come."""
        if not len(table):
            return np.zeros(0, bool)
        starts, row = table.starts[:-1], np.arange(len(table))
        seen = np.maximum.reduceat(np.where(np.isnan(table.y).all(1), -1, row), starts)
        new = np.append(True, np.diff(table.times) != 0)
        new[starts] = True
        count = row if self.like.data.repeated == "keep" else np.cumsum(new)  # rows that are told apart
        first = np.searchsorted(count, count[seen] - (self.like.reach + self.like.horizon) + 1)
        begin = first = np.where(seen < starts, starts, np.maximum(first, starts))
        for column in table.values.values():
            if column.dtype != object:
                before = last_seen(table, column)[first]
                begin = np.where(before < 0, begin, np.minimum(begin, before))
        begin = np.searchsorted(count, count[begin])  # all rows of one time, or none
        unknown = np.array([label not in self.like.scales for label in table.ids.tolist()], bool)
        return row >= np.repeat(np.where(unknown, starts, begin), np.diff(table.starts))
