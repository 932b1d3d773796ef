"""Reading a user's table: which columns, in what order, and what becomes of repeated and missing times."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import narwhals as nw
import numpy as np
import pandas as pd

from itocast.arguments import choice
from itocast.data import columns as read
from itocast.data.clock import Clock
from itocast.data.columns import places_text
from itocast.data.parts import Parts, Survey, counted, survey
from itocast.data.table import Columns, Table

Repeated = Literal["error", "first", "last", "mean", "keep"]
Gaps = Literal["auto", "fill", "keep"]
MOST_FILLED = 1_000_000  # rows that may be put in for missing times, or 20 for each that is there if that is more


def read_table(
    source: Any, columns: Columns, *, clock: Clock | None = None, freq: Any = None, repeated: Repeated = "error",
    gaps: Gaps = "auto", categories: Collection[str] | None = None,
) -> Table:  # fmt: skip
    """Read a frame (pandas, polars) or a file (CSV, Parquet) and check the columns that will be used.

    Rows are sorted by series and time. Repeated times within a series are refused unless `repeated` says which row
    counts ("first", "last"), that they are averaged ("mean"), or that each is a row of its own ("keep"). Missing
    times become rows without targets (`gaps="fill"`), or are left out and the time between rows is a feature
    ("keep"); "auto" fills where at most a fifth of the rows would be new. `clock` and `categories`, the covariates that
    are not of numbers, are those of an earlier table.

    >>> frame = pd.DataFrame({"day": ["2024-01-02", "2024-01-01"], "sales": [3, 4]})
    >>> table = read_table(frame, Columns(id=None, time="day", targets=("sales",)))
    >>> table.y[:, 0].tolist(), table.clock.freq
    ([4.0, 3.0], 'D')
    """
    choice("repeated", repeated, get_args(Repeated))
    choice("gaps", gaps, get_args(Gaps))
    rows = gather(open_source(source), columns, clock, categories)
    table, order = arranged(rows, columns, clock or Clock("D"))
    check_static(table)
    table = settle_repeated(table, repeated, order)
    if not clock:
        how = rows.zone, rows.dates
        named = Clock.named(freq, *how) if freq is not None else Clock.infer(table.times, table.starts, *how)
        table = replace(table, clock=replace(named, days=rows.days))
    return settle_gaps(table, gaps)


@dataclass
class Rows:
    """Columns of a table in the order of its rows."""

    ids: np.ndarray  # (series,)
    series: np.ndarray  # (rows,)
    times: np.ndarray
    values: dict[str, np.ndarray]
    zone: str | None
    dates: bool
    days: bool


def open_source(source: Any) -> Parts | nw.DataFrame:
    """A path as a file that is read in parts; all else as a frame."""
    if isinstance(source, Parts):
        return source
    return Parts(Path(source)) if isinstance(source, str | Path) else read.open_frame(source)


def gather(
    source: Parts | nw.DataFrame, columns: Columns, clock: Clock | None, categories: Collection[str] | None
) -> Rows:
    """The columns that will be used; of a file of several parts nothing else is ever in memory."""
    check_names(source.columns, columns)
    if isinstance(source, Parts):
        whole = source.whole(used(columns))
        if whole is None:
            try:
                return _join(source, columns, clock, categories)
            except read.NotInParts as reason:
                warnings.warn(f"{source.name} is read whole: {reason}", stacklevel=4)
                whole = read.open_frame(source.path)
        source = whole
    return from_frame(source, columns, clock, categories)


def used(columns: Columns) -> list[str]:
    """The names of all columns that are used."""
    first = [name for name in (columns.id, columns.time) if name is not None]
    return [*first, *columns.targets, *columns.covariates]


def from_frame(
    frame: nw.DataFrame, columns: Columns, clock: Clock | None, categories: Collection[str] | None, iso: bool = False
) -> Rows:
    """The columns of a frame, or of a part, whose dates must then be `iso`."""
    ids, series = read.labels(frame, columns.id)
    times, zone, dates = read.instants(frame, columns.time, series, clock, iso)
    values = {name: read.numbers(frame[name], "target") for name in columns.targets}
    values |= {name: read.covariate(frame[name], categories) for name in columns.covariates}
    days = columns.time is not None and frame[columns.time].dtype == nw.Date
    return Rows(ids, series, times, values, zone, dates, days)


def _join(parts: Parts, columns: Columns, clock: Clock | None, categories: Collection[str] | None) -> Rows:
    """All parts of a file, each in its compact form before the next is read."""
    known = survey(parts, columns, categories)
    read_so_far = list(in_parts(parts, columns, clock, known))
    kinds = {(rows.zone is None, rows.dates) for _, rows in read_so_far}
    if len(kinds) > 1:
        raise read.NotInParts(f"time column {columns.time!r} is not of one kind")
    zones = {rows.zone for _, rows in read_so_far}
    last = read_so_far[-1][1]
    out = Rows(
        known.ids, np.concatenate([rows.series for _, rows in read_so_far]),
        np.concatenate([rows.times for _, rows in read_so_far]), {},
        last.zone if len(zones) == 1 else "UTC", last.dates, last.days,
    )  # fmt: skip
    for name in list(last.values):
        out.values[name] = np.concatenate([rows.values.pop(name) for _, rows in read_so_far])
    return out


def in_parts(parts: Parts, columns: Columns, clock: Clock | None, known: Survey) -> Iterator[tuple[int, Rows]]:
    """Each part with the number of its first row; series are numbered, and rows counted, over the whole file."""
    places = {label: place for place, label in enumerate(known.ids.tolist())}
    counts = np.zeros(len(places), np.int64)
    for first, frame in parts.read(used(columns), known.types):
        with counted(first):
            rows = from_frame(frame, columns, clock, known.categories, iso=True)
        own = np.array([places[label] for label in rows.ids.tolist()], np.int32)
        if columns.time is None:
            rows.times += counts[own[rows.series]]
            counts[own] += np.bincount(rows.series, minlength=len(own))
        rows.series = own[rows.series]
        yield first, replace(rows, ids=known.ids)


def arranged(rows: Rows, columns: Columns, clock: Clock) -> tuple[Table, np.ndarray]:
    """A table in the order of series and time, and which row each of its rows was."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows.series, minlength=len(rows.ids)))])
    step = np.diff(rows.series)
    if ((step > 0) | ((step == 0) & (np.diff(rows.times) >= 0))).all():
        return Table(columns, clock, rows.ids, starts, rows.times, rows.values), np.arange(len(rows.times))
    order = np.lexsort((rows.times, rows.series))
    values = {}
    for name in list(rows.values):
        values[name] = rows.values.pop(name)[order]
    return Table(columns, clock, rows.ids, starts, rows.times[order], values), order


def long(frame: Any, time: str | None = "ds", id: str = "unique_id", target: str = "y") -> Any:
    """A wide table, one column a series, as a long one: each column's name becomes the id of its rows.

    >>> long(pd.DataFrame({"ds": [1, 2], "north": [3, 4], "south": [5, 6]})).values.tolist()
    [['north', 1, 3], ['north', 2, 4], ['south', 1, 5], ['south', 2, 6]]
    """
    wide = read.open_frame(frame)
    if time is not None and time not in wide.columns:
        raise ValueError(
            f"time names column {time!r}, which is not in the table: its columns are "
            f"{', '.join(map(str, wide.columns))}; pass time=, or "
            "time=None to count rows"
        )
    if time is None:
        wide, time = wide.with_row_index("ds"), "ds"
    melted = wide.unpivot(index=time, variable_name=" id", value_name=" target")  # a column may be called y
    return melted.rename({" id": id, " target": target}).select(id, time, target).to_native()


def check_names(present: list[str], columns: Columns) -> None:
    """Refuse names that are not there, or there for two things."""
    groups = {
        "id": () if columns.id is None else (columns.id,),
        "time": () if columns.time is None else (columns.time,),
        "target": columns.targets,
        **{name: getattr(columns, name) for name in ("past", "future", "static")},
    }
    owner: dict[str, str] = {}
    for argument, names in groups.items():
        for name in names:
            if name not in present:
                raise ValueError(
                    f"{argument} names column {name!r}, which is not in the table: its columns are "
                    f"{', '.join(map(str, present))}"
                )
            if name in owner:
                raise ValueError(f"column {name!r} is named in {owner[name]} and in {argument}: name it in one of them")
            owner[name] = argument


def check_static(table: Table) -> None:
    """Refuse static columns that are not."""
    for name in table.columns.static:
        codes = pd.factorize(table.values[name])[0]
        changes = np.diff(codes) != 0
        changes[table.starts[1:-1] - 1] = False
        if changes.any():
            label = table.ids[table.series[np.flatnonzero(changes)[0]]]
            raise ValueError(
                f"static column {name!r} changes within {int(changes.sum()):,} rows, the first in series {label!r}: "
                "name it in past or future"
            )


def settle_repeated(table: Table, repeated: Repeated, order: np.ndarray) -> Table:
    """One row for each time of a series; `order` says which row of the source each one was."""
    same = np.diff(table.times) == 0
    same[table.starts[1:-1] - 1] = False
    if not same.any() or repeated == "keep":
        return table
    if repeated == "error":
        places = np.sort(order[1:][same])
        hint = "" if table.columns.id else "; if the table holds several series, name their column with id="
        raise ValueError(
            f"time column {table.columns.time!r} repeats a time of its series in {places_text(places)}: pass "
            f"repeated='first', 'last' or 'mean', or 'keep' to take each as a row of its own{hint}"
        )
    if repeated in ("first", "last"):
        drop = np.append(False, same) if repeated == "first" else np.append(same, False)
        return table.take(~drop)
    groups = np.concatenate([[0], np.cumsum(~same)])
    kept = table.take(~np.append(False, same))
    means = {}
    for name, column in table.values.items():
        if column.dtype != object:
            seen = ~np.isnan(column)
            total = np.bincount(groups, np.where(seen, column, 0.0))
            with np.errstate(invalid="ignore"):
                means[name] = total / np.bincount(groups, seen)
    return replace(kept, values=kept.values | means)


def settle_gaps(table: Table, gaps: Gaps) -> Table:
    """Put rows on a grid of equal steps, those that were missing without targets."""
    counts = check_gaps(table, gaps)
    if counts is None:
        return table
    if not (counts > 1).any():
        return replace(table, regular=True)
    place = np.concatenate([[0], np.cumsum(counts)])  # where each row goes
    total = int(place[-1]) + 1
    source = np.full(total, -1)
    source[place] = np.arange(len(table))
    before = np.maximum.accumulate(source)
    times = table.clock.after(table.times[before], np.arange(total) - place[before])
    values = {}
    for name, column in table.values.items():
        new = column[before]
        if name not in table.columns.static:
            new[source < 0] = None if column.dtype == object else np.nan
        values[name] = new
    starts = np.append(place[table.starts[:-1]], total)
    return replace(table, starts=starts, times=times, values=values, regular=True)


def check_gaps(table: Table, gaps: Gaps) -> np.ndarray | None:
    """How many steps lie between a row and the next, if missing times are to become rows; refuses what cannot."""
    counts = _whole_steps(table)
    if counts is None and gaps == "fill":
        raise ValueError(
            f"gaps='fill' needs times that lie whole steps of freq={table.clock.freq!r} apart within a series: "
            "pass gaps='keep', or the freq"
        )
    missing = 0 if counts is None else int((counts - 1).sum())
    if counts is None or gaps == "keep" or (gaps == "auto" and missing > 0.2 * len(table)):
        return None
    if missing > max(MOST_FILLED, 20 * len(table)):
        raise ValueError(
            f"gaps between times would be filled with {missing:,} rows, for {len(table):,} that are there: "
            f"look for times far from the others, or for a step other than freq={table.clock.freq!r}"
        )
    return counts


def _whole_steps(table: Table) -> np.ndarray | None:
    """How many steps lie between a row and the next, 1 at the end of a series; None if some are not whole."""
    steps = np.diff(table.times)
    counts = np.rint(steps / table.clock.step).astype(np.int64)
    inner = np.ones(len(steps), bool)
    inner[table.starts[1:-1] - 1] = False
    counts[~inner] = 1
    if (counts < 1).any() or counts.max(initial=1) > 100_000:
        return None
    met = table.clock.after(table.times[:-1], counts) == table.times[1:]
    return counts if bool(met[inner].all()) else None
