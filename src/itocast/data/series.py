"""Along each series: the last value seen, the time between rows, and the scale of its targets."""

from __future__ import annotations

from typing import Any

import numpy as np

from itocast.data.table import Table

Scales = dict[Any, tuple[list[float], list[float], list[float]]]
ZEROS = 0.01  # the share of zeros from which on 0 is taken for an end of the range
NEAR = 10  # values within a usual step of 0, none of which was followed by one below it, that say the same
OFTEN = 0.05  # the share of targets that repeat the last value from which on a law has a point there


def last_seen(table: Table, column: np.ndarray) -> np.ndarray:
    """For each row the latest row of its series, itself included, at which a column is not nan; -1 if there is none."""
    row = np.arange(len(column))
    seen = np.maximum.accumulate(np.where(np.isnan(column), -1, row))
    return np.where(seen >= np.repeat(table.starts[:-1], np.diff(table.starts)), seen, -1)


def carried(table: Table, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns (rows, columns) with missing values replaced by the last one seen in the series, and its age in steps.

    What has no value before it stays nan, with an age of 0.
    """
    out, age = np.empty_like(values), np.zeros_like(values)
    for i, column in enumerate(values.T):
        seen = last_seen(table, column)
        out[:, i] = np.where(seen < 0, np.nan, column[seen])
        age[:, i] = np.where(seen < 0, 0.0, (table.times - table.times[seen]) / table.clock.step)
    return out, age


def changes(table: Table) -> np.ndarray:
    """How far each target is from the last value seen before it in its series, (rows, targets); nan without one."""
    before = np.full_like(table.y, np.nan)
    before[1:] = carried(table, table.y)[0][:-1]
    before[table.starts[:-1]] = np.nan
    return np.abs(table.y - before)


def usual_steps(table: Table) -> np.ndarray:
    """The root of the mean square of how far each target moves in a step, (series, targets); 0 if that is unknown."""
    squares, first = changes(table) ** 2, table.starts[:-1]
    known = ~np.isnan(squares)
    total = np.add.reduceat(np.where(known, squares, 0.0), first)
    return np.sqrt(total / np.maximum(np.add.reduceat(known.astype(int), first), 1))


def stays(table: Table, rounding: np.ndarray) -> bool:
    """Whether targets often are the last value again, by more than rounding explains; `rounding` is (series, targets).

    What rounding brings together is as often one step apart on either side. Zeros do not count: a law that ends there
    has a probability of 0 itself.
    """
    change, other = changes(table), table.y != 0
    near = (change > 0) & (change <= 1.5 * rounding[table.series])
    excess = (other & (change == 0)).sum() - (other & near).sum() / 2
    return bool(excess >= OFTEN * max(1, (~np.isnan(change)).sum()))


def support_of(table: Table) -> tuple[str, str]:
    """The range that targets have, "positive" or "real", and what says so.

    Never negative is not enough: a temperature in summer is not. Whole numbers are taken for counts;
    others must end at 0 often, or come near it often without ever going below.
    """
    y = table.y
    seen = y[~np.isnan(y)]
    if (seen < 0).any():
        return "real", "some values are below 0"
    if (seen == np.round(seen)).all():
        return "positive", "all values are whole numbers, none below 0"
    if (seen == 0).mean() >= ZEROS:
        return "positive", "some values are 0, none below"
    near = int((y < usual_steps(table)[table.series]).sum())
    if near >= NEAR:
        return "positive", f"{near} values are within a usual step of 0, none below"
    return "real", "no value shows that 0 is an end"


def context(table: Table, rows: int) -> Table:
    """The last rows of each series, and as many more as it takes to hold the last value seen of every column."""
    first = np.maximum(table.starts[1:] - rows, table.starts[:-1])
    begin = first
    for column in table.values.values():
        if column.dtype != object:
            seen = last_seen(table, column)[first]
            begin = np.where(seen < 0, begin, np.minimum(begin, seen))
    return table.take(np.arange(len(table)) >= np.repeat(begin, np.diff(table.starts)))


def steps_between(table: Table) -> np.ndarray:
    """The time from the row before in steps, (rows,); 1 for the first row of a series."""
    steps = np.diff(table.times, prepend=table.times[:1]) / table.clock.step
    steps[table.starts[:-1]] = 1.0
    return steps


def scales(table: Table, own: bool = True) -> Scales:
    """Centre, standard deviation and rounding of every target in each series.

    The deviation is 1 where a target does not vary; a series of which nothing was observed has no scale. Unless each
    is to have its own, all have the centre 0 and the deviation 1.
    """
    y, starts = table.y, table.starts[:-1]
    seen = ~np.isnan(y)
    count = np.add.reduceat(seen, starts, axis=0)
    filled = np.where(seen, y, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.add.reduceat(filled, starts, axis=0) / count
        rows = table.series
        spread = np.sqrt(np.add.reduceat(np.where(seen, y - mean[rows], 0.0) ** 2, starts, axis=0) / count)
    low = np.minimum.reduceat(np.where(seen, y, np.inf), starts, axis=0)
    high = np.maximum.reduceat(np.where(seen, y, -np.inf), starts, axis=0)
    spread = np.where(high > low, spread, 1.0)
    mean = np.where(high > low, mean, low)
    if not own:
        mean, spread = np.zeros_like(mean), np.ones_like(spread)
    steps = np.stack([_rounding(table, column) for column in y.T], 1)
    whole = np.all(count > 0, axis=1)
    return {
        label: (mean[i].tolist(), spread[i].tolist(), steps[i].tolist())
        for i, label in enumerate(table.ids.tolist())
        if whole[i]
    }


def _rounding(table: Table, column: np.ndarray) -> np.ndarray:
    """The smallest difference between values of a series in which values repeat, else 0, (series,): 1 for counts."""
    series = table.series
    order = np.lexsort((column, series))
    steps = np.append(np.diff(column[order]), np.nan)
    steps[table.starts[1:] - 1] = np.nan  # from one series to the next
    repeats = np.logical_or.reduceat(steps == 0, table.starts[:-1])
    smallest = np.minimum.reduceat(np.where(steps > 0, steps, np.inf), table.starts[:-1])
    return np.where(repeats & np.isfinite(smallest), smallest, 0.0)
