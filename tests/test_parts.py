"""Files that are read in parts: the same tables and forecasts whatever the size of a part, and nothing half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from conftest import tiny

from itocast import Forecaster
from itocast.data import frames, parts
from itocast.data.reading import read_table
from itocast.data.table import Columns

KNOWN = {"past": ["heat", "sky"], "static": ["town"]}


def panel(rows: int = 90, names=("a", "b", "c", "d", "e")) -> pd.DataFrame:
    """Series of different lengths and scales, with categories, gaps and missing values."""
    random = np.random.default_rng(0)
    out = []
    for number, name in enumerate(names):
        times = pd.date_range("2024-01-01", periods=rows - 5 * number, freq="h")
        y = (number + 1) * (10 + np.sin(times.hour.to_numpy() / 4) + 0.2 * random.standard_normal(len(times)))
        part = pd.DataFrame({"unique_id": name, "ds": times, "y": y, "town": f"{name}-town"})
        part["heat"] = np.where(random.random(len(times)) < 0.7, np.nan, random.standard_normal(len(times)))
        part["sky"] = random.choice(["1", "2", "fog"], len(times))
        part.loc[part.index[random.random(len(times)) < 0.05], "y"] = np.nan
        out.append(part[random.random(len(times)) > 0.05])
    return pd.concat(out, ignore_index=True)


ORDERS = {
    "by series": lambda frame: frame,
    "by time": lambda frame: frame.sort_values("ds", kind="stable"),
}


@pytest.fixture(scope="module")
def forecaster() -> Forecaster:
    return tiny(2).fit(panel(names=("a", "b", "c", "d")), **KNOWN)


@pytest.fixture(params=["csv", "csv.gz", "parquet"])
def path(request, tmp_path):
    return tmp_path / f"table.{request.param}"


def write(frame: pd.DataFrame, path) -> None:
    if path.suffix == ".parquet":
        frame.to_parquet(path, row_group_size=37)
    else:
        frame.to_csv(path, index=False)


def same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(one, other, rtol=1e-6, check_dtype=False)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rows", [1, 7, 100, 1000])
def test_forecasts_do_not_depend_on_the_size_of_a_part(forecaster, path, order, rows, monkeypatch):
    frame = ORDERS[order](panel())  # series e was not in training
    write(frame, path)
    expected = forecaster.predict(frame, abstain=0.1)
    monkeypatch.setattr(parts, "ROWS", rows)
    monkeypatch.setattr("itocast.fitted.Fitted.at_once", 2)  # series at a time
    same(forecaster.predict(path, abstain=0.1), expected)


def test_sampled_courses_do_not_depend_on_it_either(forecaster, tmp_path, monkeypatch):
    panel().to_csv(tmp_path / "table.csv", index=False)
    expected = forecaster.predict(panel(), paths=3)
    monkeypatch.setattr(parts, "ROWS", 20)
    same(forecaster.predict(tmp_path / "table.csv", paths=3), expected)


@pytest.mark.parametrize("repeated", ["first", "last", "mean", "keep"])
@pytest.mark.parametrize("gaps", ["fill", "keep"])
def test_repeated_times_at_the_edge_of_a_part(tmp_path, repeated, gaps, monkeypatch):
    frame = panel(60, ("a", "b"))
    more = frame.assign(y=frame["y"] + 1, heat=frame["heat"] - 1)
    frame = pd.concat([frame, more]).sort_values(["unique_id", "ds"], kind="stable")
    if repeated == "keep" and gaps == "fill":
        gaps = "auto"
    model = tiny(2, data={"repeated": repeated, "gaps": gaps}).fit(frame, **KNOWN)
    frame.to_csv(tmp_path / "table.csv", index=False)
    expected = model.predict(frame)
    for rows in (1, 5, 50):
        monkeypatch.setattr(parts, "ROWS", rows)
        same(model.predict(tmp_path / "table.csv"), expected)


def test_rows_ahead_and_a_table_of_them(tmp_path, monkeypatch):
    frame = panel(60, ("a", "b", "c")).assign(price=lambda f: np.arange(len(f)) % 7)
    model = tiny(2).fit(frame, future=["price"])
    last = frame.groupby("unique_id").tail(1)
    ahead = pd.concat([last.assign(ds=last["ds"] + pd.Timedelta(hours=h), price=h, y=np.nan) for h in (1, 2)])
    whole = pd.concat([frame, ahead]).sort_values(["unique_id", "ds"], kind="stable")
    whole.to_csv(tmp_path / "whole.csv", index=False)
    frame.to_csv(tmp_path / "table.csv", index=False)
    expected = model.predict(frame, future=ahead)
    monkeypatch.setattr(parts, "ROWS", 11)
    monkeypatch.setattr("itocast.fitted.Fitted.at_once", 1)
    same(model.predict(tmp_path / "whole.csv"), expected)
    same(model.predict(tmp_path / "table.csv", future=ahead), expected)


def test_rows_without_times_are_counted_over_parts(tmp_path, monkeypatch):
    frame = panel(60, ("a", "b")).drop(columns="ds").sample(frac=1, random_state=0)
    model = tiny(2).fit(frame, time=None)
    frame.to_csv(tmp_path / "table.csv", index=False)
    expected = model.predict(frame)
    monkeypatch.setattr(parts, "ROWS", 13)
    same(model.predict(tmp_path / "table.csv"), expected)


@pytest.mark.parametrize("order", [*ORDERS, "mixed"])
@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_a_table_does_not_depend_on_the_size_of_a_part(path, order, rows, monkeypatch):
    frame = panel()
    frame = frame.sample(frac=1, random_state=0) if order == "mixed" else ORDERS[order](frame)
    frame["unique_id"] = frame["unique_id"].map({"a": "1", "b": "2", "c": "x3", "d": "007", "e": "5"})
    write(frame, path)
    columns = Columns(id="unique_id", time="ds", targets=("y",), past=("heat", "sky"), static=("town",))
    expected = read_table(frame, columns)
    monkeypatch.setattr(parts, "ROWS", rows)
    table = read_table(path, columns)
    assert table.ids.tolist() == expected.ids.tolist()
    assert table.clock == expected.clock
    assert table.regular == expected.regular
    for name in ("starts", "times"):
        np.testing.assert_array_equal(getattr(table, name), getattr(expected, name))
    for name, column in expected.values.items():
        assert table.values[name].dtype == column.dtype
        if column.dtype == object:
            assert table.values[name].tolist() == column.tolist()
        else:
            np.testing.assert_allclose(table.values[name], column, rtol=1e-12)


def test_a_model_fitted_on_a_file_is_that_of_its_frame(tmp_path, monkeypatch):
    panel().to_parquet(tmp_path / "table.parquet")
    expected = tiny(2).fit(panel(), **KNOWN).predict()
    monkeypatch.setattr(parts, "ROWS", 17)
    same(tiny(2).fit(tmp_path / "table.parquet", **KNOWN).predict(), expected)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda f: f.sample(frac=1, random_state=0), "not in the order of time; sort the file"),
        (
            lambda f: f.assign(ds=(f["ds"] + pd.Timedelta("20D")).dt.strftime("%m/%d/%Y %H:%M")),
            "not written as in 2024-12-31",
        ),
    ],
)
def test_what_cannot_be_read_in_parts_is_read_whole(forecaster, tmp_path, monkeypatch, change, reason):
    frame = change(panel())
    frame.to_csv(tmp_path / "table.csv", index=False)
    expected = forecaster.predict(frame)
    monkeypatch.setattr(parts, "ROWS", 60)
    monkeypatch.setattr("itocast.fitted.Fitted.at_once", 1)
    with pytest.warns(UserWarning, match=reason):
        same(forecaster.predict(tmp_path / "table.csv"), expected)


def test_memory_holds_the_ends_of_open_series_alone(forecaster, tmp_path, monkeypatch):
    from itocast.data.tails import Tails

    frame = panel(2000, ("a", "b", "c", "d")).assign(heat=0.0)
    held = []
    needed = Tails._needed
    monkeypatch.setattr(Tails, "_needed", lambda self, t: held.append(int((rows := needed(self, t)).sum())) or rows)
    monkeypatch.setattr(parts, "ROWS", 100)
    for order, open_ in (("by series", 1), ("by time", 4)):
        held.clear()
        ORDERS[order](frame).to_csv(tmp_path / "table.csv", index=False)
        monkeypatch.setattr("itocast.fitted.Fitted.at_once", 1)
        forecaster.predict(tmp_path / "table.csv")
        assert len(held) > 50
        assert max(held) <= open_ * (24 + 2 + 10)  # a day ago, horizon, and back to the last value seen


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.assign(y=f["y"].astype(object).where(f.index != 150, "many")), r"holds text.*row 100 of the file"),
        (lambda f: pd.concat([f, f.tail(1)]), r"repeats a time of its series in 1 row \(\d+\)"),
        (lambda f: f.assign(town=np.where(f.index == 150, "elsewhere", f["town"])), "static column 'town' changes"),
        (lambda f: f.assign(unique_id=f["unique_id"].where(f.index != 150)), "id column 'unique_id' is missing"),
        (lambda f: f.rename(columns={"heat": "warmth"}), "past names column 'heat', which is not in the table"),
    ],
)
def test_mistakes_in_a_later_part_are_refused_with_their_row(forecaster, tmp_path, monkeypatch, change, message):
    change(panel()).to_csv(tmp_path / "table.csv", index=False)
    monkeypatch.setattr(parts, "ROWS", 100)
    with pytest.raises(ValueError, match=message):
        forecaster.predict(tmp_path / "table.csv")


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet", "out.json"])
def test_results_that_are_added_are_those_written_at_once(tmp_path, name):
    frame = pd.DataFrame({"id": ["a", "b", "c"], "x": [1.5, np.nan, 1 / 3], "at": pd.date_range("2024", periods=3)})
    readers = {"csv": pd.read_csv, "gz": pd.read_csv, "parquet": pd.read_parquet, "json": pd.read_json}
    frames.write(frame, str(tmp_path / f"whole.{name}"))
    with frames.Writer(str(tmp_path / name)) as writer:
        for start in range(3):
            writer.add(frame[start : start + 1])
    read = readers[name.rsplit(".", 1)[1]]
    pd.testing.assert_frame_equal(read(tmp_path / name), read(tmp_path / f"whole.{name}"))
    assert writer.rows == 3


def test_an_error_on_the_way_leaves_the_old_file(forecaster, tmp_path, monkeypatch):
    frame = panel(300, ("a", "b", "c", "d"))
    frame["y"] = frame["y"].astype(object).where(frame.index != len(frame) - 1, "many")
    frame.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "out.csv").write_text("old")
    monkeypatch.setattr(parts, "ROWS", 100)
    monkeypatch.setattr("itocast.fitted.Fitted.at_once", 1)
    with pytest.raises(ValueError, match="holds text"):
        forecaster.predict_file(tmp_path / "table.csv", tmp_path / "out.csv")
    assert sorted(os.listdir(tmp_path)) == ["out.csv", "table.csv"]
    assert (tmp_path / "out.csv").read_text() == "old"


def test_an_interrupt_leaves_no_half_written_file(forecaster, tmp_path):
    forecaster.save(tmp_path / "model")
    big = pd.concat([panel(400, ("a", "b", "c", "d")).assign(unique_id=f"s{i}") for i in range(150)])
    big = big.drop_duplicates(["unique_id", "ds"])
    big.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "out.csv").write_text("old")
    code = (
        "import sys; from itocast.data import parts; parts.ROWS = 500\n"
        "from itocast import cli, fitted; fitted.Fitted.at_once = 1\n"
        f"sys.argv = ['itocast', 'predict', {str(tmp_path / 'model')!r}, {str(tmp_path / 'table.csv')!r}, "
        f"'-o', {str(tmp_path / 'out.csv')!r}]\ncli.run()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while not list(tmp_path.glob(".out.csv.*")) and child.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=60)
    assert child.returncode == 130, error
    assert sorted(os.listdir(tmp_path)) == ["model", "out.csv", "table.csv"]
    assert (tmp_path / "out.csv").read_text() == "old"
