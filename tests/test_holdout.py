"""Which rows are held out: an instant for each series, by its label."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from itocast.data.holdout import NEVER, Cut, held_rows
from itocast.data.reading import read_table
from itocast.data.table import Columns, Table


def build(lengths: dict[str, int], begin: dict[str, int] | None = None) -> Table:
    """Series of some lengths, whose times count from 0 or from where each begins."""
    parts = []
    for label, rows in lengths.items():
        times = np.arange(rows) + (begin or {}).get(label, 0)
        parts.append(pd.DataFrame({"id": label, "t": times, "y": np.arange(rows) + 0.5}))
    return read_table(pd.concat(parts), Columns(id="id", time="t", targets=("y",)))


@pytest.mark.parametrize(
    ("rows", "share", "horizon", "held"),
    [
        (1000, 0.2, 12, 200),
        (100, 0.2, 12, 20),
        (48, 0.2, 12, 12),  # a fifth would be 10, less than a horizon
        (25, 0.2, 12, 12),  # 13 rows are left, one more than a horizon
        (24, 0.2, 12, 0),
        (12, 0.2, 12, 0),
        (1, 0.2, 1, 0),
        (2, 0.2, 1, 0),
        (3, 0.2, 1, 1),
        (10, 0.5, 1, 5),
        (10, 0.9, 2, 0),  # one row would be left
        (7, 0.2, 1, 1),  # 5.6 rows of seven are six
    ],
)
def test_how_many_rows_a_series_holds_out(rows, share, horizon, held):
    assert held_rows(np.array([rows]), share, horizon).tolist() == [held]


def test_each_series_holds_out_its_own_newest_rows():
    """One series ends long before the others begin, one is too short."""
    table = build({"a": 100, "b": 50, "c": 3}, begin={"b": 1000})
    cut = Cut.newest(table, held_rows(np.diff(table.starts), 0.2, 2))
    assert cut.at(["a", "b", "c"]).tolist() == [79, 1039, 2]
    later = table.times > cut.rows(table)
    assert np.add.reduceat(later, table.starts[:-1]).tolist() == [20, 10, 0]


def test_a_series_of_which_all_rows_are_held_out_is_not_known():
    table = build({"a": 5, "b": 9})
    cut = Cut.newest(table, np.array([5, 4]))
    assert cut.at(["a", "b"]).tolist() == [NEVER, 4]
    assert (table.times > cut.rows(table)).sum() == 5 + 4


def test_a_cut_goes_by_labels_whatever_their_order():
    cut = Cut.of_labels(["b", "a", 7], [20, 10, 70])
    assert cut.at(["a", "new", "7", "b"]).tolist() == [10, NEVER, 70, 20]
    lengths = {"b": 3, "z": 2, "a": 1}
    table = build(lengths)
    assert dict(zip(table.ids, cut.at(table.ids), strict=True)) == {"a": 10, "b": 20, "z": NEVER}
    assert cut.rows(table).tolist() == [t for label in table.ids for t in cut.at([label] * lengths[label])]


@pytest.mark.parametrize(
    ("instants", "typical"),
    [([10, 30, 20], 20), ([10, 20, NEVER, 30, NEVER], 20), ([NEVER, NEVER], NEVER), ([], NEVER)],
)
def test_one_date_to_tell_a_person(instants, typical):
    assert Cut.of_labels([str(i) for i in range(len(instants))], instants).typical == typical


def test_series_in_the_order_of_their_labels():
    table = build({"b": 3, "a": 2, "c": 1})
    ordered = table.sorted()
    assert ordered.ids.tolist() == ["a", "b", "c"]
    assert ordered.starts.tolist() == [0, 2, 5, 6]
    assert ordered.times.tolist() == [0, 1, 0, 1, 2, 0]
    assert ordered.values["y"].tolist() == [0.5, 1.5, 0.5, 1.5, 2.5, 0.5]
    assert ordered.sorted() is ordered
