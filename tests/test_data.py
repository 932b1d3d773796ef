"""Tables, splits, windows and datasets."""

from __future__ import annotations

import gzip
import hashlib
import json
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import wave

from itocast import datasets
from itocast.data.table import read_table
from itocast.data.windows import SCALINGS, Preparation, split
from itocast.forecast import Forecast


def test_metro_is_the_published_file():
    content = gzip.decompress((files("itocast.data") / "metro.csv.gz").read_bytes())
    assert len(content) == 3_237_208
    assert hashlib.sha256(content).hexdigest() == "749c90d720360a4215bb15345526073c079ba4cc95e3fa558796d083f85fce9e"


def test_metro_keeps_its_rows_and_words():
    metro = datasets.load("metro")
    assert len(metro) == 48204
    assert metro.frame["holiday"].eq("None").sum() == 48143
    assert metro.frame["date_time"].duplicated().sum() == 7629
    assert metro.frame["date_time"].is_monotonic_increasing
    assert metro.values(metro.targets).shape == (48204, 1)


@pytest.mark.parametrize("name", datasets.DATASETS)
def test_every_dataset_says_what_it_is(name):
    source = datasets.DATASETS[name]
    assert source.title
    assert source.unit
    assert source.credit
    assert len(datasets.load(name)) > 1000


def test_unknown_dataset_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="name='metr': expected one of metro"):
        datasets.load("metr")


def test_toy_follows_its_formula():
    toy = datasets.toy(seed=3)
    quiet = ~toy["x"].between(10, 20)
    assert len(toy) == 1000
    assert toy["x"].between(-30, 40).all()
    np.testing.assert_allclose(
        toy["y"][quiet], (0.4 * toy["x"] * np.sin(toy["x"]) + 0.7 * toy["x"] * np.cos(toy["x"] / 2))[quiet]
    )
    noise = (toy["y"] - toy["mean"])[~quiet] / (0.15 * toy["x"][~quiet])
    assert abs(noise.std() - 1) < 0.2
    pd.testing.assert_frame_equal(toy, datasets.toy(seed=3))
    assert not toy["y"].equals(datasets.toy(seed=4)["y"])


def test_split_covers_all_rows_in_order():
    for rows in (10, 11, 48204):
        train, validation, test = split(rows)
        assert [*train, *validation, *test] == list(range(rows))
    assert len(split(48204).test) == 9641
    with pytest.raises(ValueError, match="expected shares that sum to at most 1"):
        split(10, train=0.9, validation=0.2)


def test_windows_hold_the_rows_before_their_targets(table, parts):
    preparation = Preparation.fit(table, parts.train, window=4, horizon=3, scaling="minmax")
    windows = preparation.windows(table, parts.test)
    y, heat = table.values(table.targets), table.values(table.covariates)
    scaled = preparation.scalers["targets"].transform(y)
    x, target = windows.batch(torch.tensor([0, 5]))
    for i, row in enumerate((windows.rows[0], windows.rows[5])):
        np.testing.assert_allclose(x.lags[i], scaled[row - 4 : row], rtol=1e-5)
        np.testing.assert_allclose(target[i], scaled[row : row + 3], rtol=1e-5)
        np.testing.assert_allclose(x.anchor[i], np.tile(scaled[row - 1], (3, 1)), rtol=1e-5)
        past = preparation.scalers["past"].transform(heat)[row - 4 : row]
        np.testing.assert_allclose(x.past[i], past, rtol=1e-5)
        np.testing.assert_allclose(preparation.actuals(table, windows)[5 * i], y[row : row + 3])


def test_targets_of_a_part_are_all_in_it_and_none_is_left_out(table, parts, preparation):
    for part in parts:
        rows = preparation.windows(table, part).rows
        assert rows.start == max(part.start, 4)
        assert rows.stop + 3 - 1 == part.stop


def test_windows_are_views(table, parts, preparation):
    windows = preparation.windows(table, parts.train)
    lags = windows._lags
    assert lags.untyped_storage().nbytes() <= table.values(table.targets).astype(np.float32).nbytes
    assert lags.numel() > 3 * len(lags)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_the_future_changes_nothing_before_it(scaling):
    """Scalers see the training part alone; a window sees nothing at or after its first target but its targets."""
    table = wave()
    parts = split(len(table))
    changed = wave()
    cut = parts.validation.start + 50
    for name in (*table.targets, *table.covariates):
        changed.frame.loc[cut:, name] = 1e6
    before, after = (Preparation.fit(t, parts.train, window=4, horizon=3, scaling=scaling) for t in (table, changed))
    assert before.to_dict() == after.to_dict()
    until = slice(0, cut - parts.validation.start + 1)  # the first target may be the first changed row
    for one, two in zip(
        before.windows(table, parts.validation).batch(until)[0],
        after.windows(changed, parts.validation).batch(until)[0],
        strict=True,
    ):
        assert torch.equal(one, two)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_law_comes_back_in_the_tables_units(table, parts, scaling):
    preparation = Preparation.fit(table, parts.train, window=4, horizon=3, scaling=scaling)
    windows = preparation.windows(table, parts.test)
    scaled = windows.batch(slice(None))[1]
    law = preparation.unscale(Forecast(scaled[None], torch.full_like(scaled, 1e-8)[None]))
    torch.testing.assert_close(law.mean, preparation.actuals(table, windows), rtol=1e-4, atol=1e-4)


def test_preparation_survives_json(table, parts, preparation):
    again = Preparation.from_dict(json.loads(json.dumps(preparation.to_dict())))
    assert again.sizes == preparation.sizes
    for one, two in zip(
        preparation.windows(table, parts.test).batch(slice(None))[0],
        again.windows(table, parts.test).batch(slice(None))[0],
        strict=True,
    ):
        assert torch.equal(one, two)


SUMMER_TIME = ["2024-03-30T00:00+01:00", "2024-03-31T12:00+02:00", "2024-04-01T00:00+02:00"]


def frame(**columns):
    return pd.DataFrame(
        {"t": ["2024-01-01", "2024-01-02", "2024-01-03"], "y": [1.0, 2.0, 3.0], "x": [1, 2, 3], **columns}
    )


@pytest.mark.parametrize(
    ("source", "arguments", "message"),
    [
        (frame(), {"targets": []}, "targets is empty: name at least one column"),
        (frame(), {"targets": "y"}, r"targets='y': expected a list of column names, such as \['y'\]"),
        (frame(), {"targets": ["z"]}, "targets names column 'z', which is not in the table: its columns are t, y, x"),
        (frame(), {"targets": ["y"], "covariates": ["w"]}, "covariates names column 'w'"),
        (frame(), {"targets": ["y"], "time": "when"}, "time names column 'when'"),
        (frame(), {"targets": ["y", "y"]}, "a column is named twice"),
        (frame(), {"targets": ["y"], "covariates": ["y"]}, "column 'y' is named in targets and in covariates"),
        (frame(y=[1, None, None]), {"targets": ["y"]}, r"column 'y' is missing or infinite in 2 rows \(1, 2\)"),
        (frame(y=[1, np.inf, 2]), {"targets": ["y"]}, r"column 'y' is missing or infinite in 1 row \(1\)"),
        (frame(y=["a", "b", "c"]), {"targets": ["y"]}, r"holds text, not numbers, in 3 rows \(0, 1, 2\)"),
        (frame(t=["2024", "soon", "2025"]), {"targets": ["y"], "time": "t"}, r"readable time in 1 row \(1\).*'soon'"),
        (frame(t=[3, 2, 4]), {"targets": ["y"], "time": "t"}, r"goes back in 1 row \(1\): pass order='sort'"),
        (frame(), {"targets": ["y"], "time": "t", "order": "random"}, "order='random': expected 'check' or 'sort'"),
        (frame()[:0], {"targets": ["y"]}, "source holds no rows"),
        (pd.concat([frame(), frame()["y"]], axis=1), {"targets": ["y"]}, "column 'y' is there twice: rename one"),
        (frame(t=SUMMER_TIME), {"targets": ["y"], "time": "t"}, "mixes offsets from UTC: convert it"),
        ("no/such.csv", {"targets": ["y"]}, "source='no/such.csv': there is no such file"),
    ],
)  # fmt: skip
def test_bad_tables_are_refused_with_column_rows_and_remedy(source, arguments, message):
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=message):
        read_table(source, **arguments)


def test_order_sort_puts_rows_in_time_order_and_leaves_the_callers_frame_alone():
    mixed = frame(t=["2024-01-03", "2024-01-02", "2024-01-02"])
    table = read_table(mixed, targets=["y"], time="t", order="sort")
    assert table.frame["y"].tolist() == [2, 3, 1]
    assert mixed["t"].tolist() == ["2024-01-03", "2024-01-02", "2024-01-02"]


def test_csv_files_are_read_and_broken_ones_named(tmp_path):
    frame().to_csv(tmp_path / "good.csv.gz", index=False)
    assert len(read_table(tmp_path / "good.csv.gz", targets=["y"], time="t")) == 3
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "cut.csv.gz").write_bytes((tmp_path / "good.csv.gz").read_bytes()[:40])
    for name in ("empty.csv", "cut.csv.gz"):
        with pytest.raises(ValueError, match=f"{name}' is not a CSV file that can be read"):
            read_table(tmp_path / name, targets=["y"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window": 0}, "window=0: expected a whole number of rows, at least 1"),
        ({"horizon": -1}, "horizon=-1"),
        ({"scaling": "log"}, "scaling='log': expected one of quantile, rank, minmax"),
        ({"train": range(1)}, "train holds 1 rows"),
    ],
)
def test_bad_preparation_is_refused(table, parts, arguments, message):
    with pytest.raises(ValueError, match=message):
        Preparation.fit(table, **{"train": parts.train, **arguments})


def test_dates_and_times_may_stand_in_one_column():
    times = read_table(frame(t=["2024-01-01", "2024-01-01 01:00", "2024-01-02"]), targets=["y"], time="t").frame["t"]
    assert times.iloc[1] == pd.Timestamp("2024-01-01 01:00")


def test_a_table_without_a_column_is_refused(table, parts, preparation):
    other = read_table(table.frame, targets=["load", "price"])
    with pytest.raises(ValueError, match=r"table has no 'heat' in covariates: read it with covariates=\['heat'\]"):
        preparation.windows(other, parts.test)


@pytest.mark.parametrize("part", [range(500, 700), range(-5, 100), range(0, 100, 2)])
def test_a_part_outside_the_table_is_refused(table, preparation, part):
    with pytest.raises(ValueError, match=r"expected rows of the table, range\(0, 600\) or a part of it"):
        preparation.windows(table, part)


def test_split_wants_a_number(table):
    with pytest.raises(TypeError, match=r"rows is a Table: expected how many there are, such as len\(table\)"):
        split(table)


def test_a_part_without_a_window_is_refused(table, preparation):
    with pytest.raises(ValueError, match="rows 0 to 5 hold no window: window=4 and horizon=3 need 7 rows"):
        preparation.windows(table, range(5))
