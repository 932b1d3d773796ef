"""Tables: columns that were checked once, in the order of series and time, so that all later code can trust them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from itocast.data.clock import Clock
from itocast.settings import Settings


class Columns(Settings):
    """Which column is what. `id` and `time` may be None: one series, rows in the order of time."""

    id: str | None
    time: str | None
    targets: tuple[str, ...]
    past: tuple[str, ...] = ()
    future: tuple[str, ...] = ()
    static: tuple[str, ...] = ()

    @property
    def covariates(self) -> tuple[str, ...]:
        return (*self.past, *self.future, *self.static)


@dataclass(frozen=True)
class Table:
    """Rows sorted by series, then by time, with everything that is known of them.

    `values` holds each target and covariate: float64 with nan where it is missing, or objects for categories.
    """

    columns: Columns
    clock: Clock
    ids: np.ndarray  # (series,): labels as they came
    starts: np.ndarray  # (series + 1,): the first row of each series, and the number of rows
    times: np.ndarray  # (rows,): instants, see Clock
    values: dict[str, np.ndarray]
    regular: bool = False  # the rows of each series are on a grid of equal steps

    def __len__(self) -> int:
        return len(self.times)

    @property
    def series(self) -> np.ndarray:
        """The number of each row's series, (rows,)."""
        return np.repeat(np.arange(len(self.ids)), np.diff(self.starts))

    def numbers(self, names: Sequence[str]) -> np.ndarray:
        """Some columns as float64, (rows, columns)."""
        return np.stack([self.values[name] for name in names], 1) if names else np.zeros((len(self), 0))

    @property
    def y(self) -> np.ndarray:
        """The targets, (rows, targets), nan where they are missing."""
        return self.numbers(self.columns.targets)

    def take(self, rows: np.ndarray) -> Table:
        """Some rows, by a mask; series of which none is left are dropped."""
        counts = np.add.reduceat(rows, self.starts[:-1]).astype(int) if len(rows) else np.zeros(0, int)
        return replace(
            self,
            ids=self.ids[counts > 0],
            starts=np.concatenate([[0], np.cumsum(counts[counts > 0])]),
            times=self.times[rows],
            values={name: column[rows] for name, column in self.values.items()},
        )

    def head(self, rows: np.ndarray) -> Table:
        """The first so many rows of each series."""
        return self.take(np.arange(len(self)) < np.repeat(self.starts[:-1] + rows, np.diff(self.starts)))

    def until(self, instant: int | np.ndarray) -> Table:
        """The rows up to an instant, which may be one of each row's series, (rows,)."""
        return self.take(self.times <= instant)

    def without(self, *parts: str) -> Table:
        """The same without its covariates of some kinds: past, future, static."""
        columns = self.columns.model_copy(update=dict.fromkeys(parts, ()))
        left_out = {name for part in parts for name in getattr(self.columns, part)}
        kept = {name: v for name, v in self.values.items() if name not in left_out}
        return replace(self, columns=columns, values=kept)

    def sorted(self) -> Table:
        """The same with series in the order of their labels, whatever the order they came in."""
        order = np.argsort(np.array([str(label) for label in self.ids.tolist()]), kind="stable")
        if (np.diff(order) > 0).all():
            return self
        lengths = np.diff(self.starts)[order]
        starts = np.append(0, np.cumsum(lengths))
        moved = np.repeat(self.starts[:-1][order] - starts[:-1], lengths)
        rows = np.arange(len(self)) + moved
        return replace(
            self,
            ids=self.ids[order],
            starts=starts,
            times=self.times[rows],
            values={name: column[rows] for name, column in self.values.items()},
        )

    def known(self) -> tuple[Table, Table | None]:
        """The rows up to the last observed target of each series, and the later ones, if there are any."""
        seen = ~np.isnan(self.y).all(1)
        last = np.maximum.reduceat(np.where(seen, np.arange(len(self)), -1), self.starts[:-1])
        none = last < self.starts[:-1]
        if none.any():
            label = self.ids[np.flatnonzero(none)[0]]
            name = f"series {label!r}" if self.columns.id else "the table"
            raise ValueError(f"{name} has no observed value in {', '.join(self.columns.targets)}: drop it")
        observed = np.arange(len(self)) <= np.repeat(last, np.diff(self.starts))
        return (self, None) if observed.all() else (self.take(observed), self.take(~observed))

    def cutoff(self, share: float) -> int:
        """The instant up to which a share of all rows lies."""
        return int(np.partition(self.times, place := max(0, round(share * len(self)) - 1))[place])

    def join(self, other: Table) -> Table:
        """The rows of both, in order; of rows with the same series and time those of `other` are kept."""
        order = {label: i for i, label in enumerate(dict.fromkeys([*self.ids.tolist(), *other.ids.tolist()]))}
        series = np.concatenate([np.array([order[i] for i in t.ids.tolist()], int)[t.series] for t in (self, other)])
        times = np.concatenate([self.times, other.times])
        newer = np.repeat([0, 1], [len(self), len(other)])
        rows = np.lexsort((newer, times, series))
        same = (np.diff(series[rows]) == 0) & (np.diff(times[rows]) == 0) & (np.diff(newer[rows]) == 1)
        rows = rows[~np.append(same, False)]
        return replace(
            self,
            ids=objects(list(order)),
            starts=np.concatenate([[0], np.cumsum(np.bincount(series[rows], minlength=len(order)))]),
            times=times[rows],
            values={name: np.concatenate([self.values[name], other.values[name]])[rows] for name in self.values},
        )


def extend(table: Table, horizon: int, future: Table | None) -> Table:
    """The table with the next steps below each series: no targets, and the known covariates where `future` has them."""
    ends = table.starts[1:] - 1
    ahead = table.clock.ahead(table.times[ends], horizon)  # (series, horizon)
    values: dict[str, np.ndarray] = {}
    for name, column in table.values.items():
        blank = None if column.dtype == object else np.nan
        values[name] = np.full(ahead.size, blank, column.dtype)
        if name in table.columns.static:
            values[name] = np.repeat(column[ends], horizon)
    if future is not None:
        rows, ahead = _future_rows(table, future, ahead)
        for name in table.columns.future:
            values[name] = future.values[name][rows]
    starts = horizon * np.arange(len(table.ids) + 1)
    return table.join(replace(table, starts=starts, times=ahead.reshape(-1), values=values))


def _future_rows(table: Table, future: Table, ahead: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of `future` are the next steps of each series, and their times, by which they are taken."""
    horizon = ahead.shape[1]
    places = {label: i for i, label in enumerate(future.ids.tolist())}
    place = np.array([places.get(label, -1) for label in table.ids.tolist()])
    last = np.full(len(future.ids), np.iinfo(np.int64).max)
    last[place[place >= 0]] = table.times[table.starts[1:] - 1][place >= 0]
    over = np.append(0, np.cumsum(future.times <= last[future.series]))  # rows that are not ahead, from the start
    begin = future.starts[place] + over[future.starts[place + 1]] - over[future.starts[place]]
    there = np.where(place < 0, 0, future.starts[place + 1] - begin)
    if (there < horizon).any():
        i = int(np.flatnonzero(there < horizon)[0])
        name = f" of series {table.ids[i]!r}" if table.columns.id else ""
        raise ValueError(
            f"future holds {there[i]} rows{name} after {table.clock.index(table.times)[table.starts[i + 1] - 1]}: "
            f"expected the next {horizon} steps, with {', '.join(table.columns.future)}"
        )
    rows = begin[:, None] + np.arange(horizon)
    return rows.reshape(-1), future.times[rows]


def objects(labels: list[Any]) -> np.ndarray:
    """A list as an array of objects, whatever they are."""
    out = np.empty(len(labels), object)
    out[:] = labels
    return out
