"""Reading a user's table: which columns, in what order, and what becomes of repeated and missing times."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Literal, get_args

import narwhals as nw
import numpy as np
import pandas as pd

from itocast.arguments import choice
from itocast.data import columns as read
from itocast.data.clock import Clock
from itocast.data.columns import rows_text
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
    frame = read.open_frame(source)
    _check_names(frame, columns)
    ids, series = read.labels(frame, columns.id)
    times, zone, dates = read.instants(frame, columns.time, series, clock)
    order = np.lexsort((times, series))
    values = {name: read.numbers(frame[name], "target")[order] for name in columns.targets}
    values |= {name: read.covariate(frame[name], categories)[order] for name in columns.covariates}
    starts = np.concatenate([[0], np.cumsum(np.bincount(series, minlength=len(ids)))])
    table = Table(columns, clock or Clock("D"), ids, starts, times[order], values)
    _check_static(table)
    table = _settle_repeated(table, repeated, order)
    if not clock:
        named = (
            Clock.named(freq, zone, dates) if freq is not None else Clock.infer(table.times, table.starts, zone, dates)
        )
        days = columns.time is not None and frame[columns.time].dtype == nw.Date
        table = replace(table, clock=replace(named, days=days))
    return _settle_gaps(table, gaps)


def long(frame: Any, time: str | None = "ds", id: str = "unique_id", target: str = "y") -> Any:
    """A wide table, one column a series, as a long one: each column's name becomes the id of its rows.

    >>> long(pd.DataFrame({"ds": [1, 2], "north": [3, 4], "south": [5, 6]})).values.tolist()
    [['north', 1, 3], ['north', 2, 4], ['south', 1, 5], ['south', 2, 6]]
    """
    wide = read.open_frame(frame)
    if time is not None and time not in wide.columns:
        raise ValueError(
            f"time names column {time!r}, which is not in the table: its columns are {_list(wide)}; pass time=, or "
            "time=None to count rows"
        )
    if time is None:
        wide, time = wide.with_row_index("ds"), "ds"
    melted = wide.unpivot(index=time, variable_name=" id", value_name=" target")  # a column may be called y
    return melted.rename({" id": id, " target": target}).select(id, time, target).to_native()


def _list(frame: nw.DataFrame) -> str:
    return ", ".join(map(str, frame.columns))


def _check_names(frame: nw.DataFrame, columns: Columns) -> None:
    groups = {
        "id": () if columns.id is None else (columns.id,),
        "time": () if columns.time is None else (columns.time,),
        "target": columns.targets,
        **{name: getattr(columns, name) for name in ("past", "future", "static")},
    }
    owner: dict[str, str] = {}
    for argument, names in groups.items():
        for name in names:
            if name not in frame.columns:
                raise ValueError(
                    f"{argument} names column {name!r}, which is not in the table: its columns are {_list(frame)}"
                )
            if name in owner:
                raise ValueError(f"column {name!r} is named in {owner[name]} and in {argument}: name it in one of them")
            owner[name] = argument


def _check_static(table: Table) -> None:
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


def _settle_repeated(table: Table, repeated: Repeated, order: np.ndarray) -> Table:
    same = np.diff(table.times) == 0
    same[table.starts[1:-1] - 1] = False
    if not same.any() or repeated == "keep":
        return table
    if repeated == "error":
        mask = np.zeros(len(table), bool)
        mask[order[1:][same]] = True
        hint = "" if table.columns.id else "; if the table holds several series, name their column with id="
        raise ValueError(
            f"time column {table.columns.time!r} repeats a time of its series in {rows_text(mask)}: pass "
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


def _settle_gaps(table: Table, gaps: Gaps) -> Table:
    """Put rows on a grid of equal steps, those that were missing without targets."""
    counts = _whole_steps(table)
    if counts is None and gaps == "fill":
        raise ValueError(
            f"gaps='fill' needs times that lie whole steps of freq={table.clock.freq!r} apart within a series: "
            "pass gaps='keep', or the freq"
        )
    missing = 0 if counts is None else int((counts - 1).sum())
    if counts is None or gaps == "keep" or (gaps == "auto" and missing > 0.2 * len(table)):
        return table
    if not missing:
        return replace(table, regular=True)
    if missing > max(MOST_FILLED, 20 * len(table)):
        raise ValueError(
            f"gaps between times would be filled with {missing:,} rows, for {len(table):,} that are there: "
            f"look for times far from the others, or for a step other than freq={table.clock.freq!r}"
        )
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
