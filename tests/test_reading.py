"""Reading a user's table: files and frames, names, order, repeated and missing times, categories."""

from __future__ import annotations

import datetime as dt
import io

import numpy as np
import pandas as pd
import polars as pl
import pytest
from conftest import tiny

from itocast import long
from itocast.data.columns import MISSING, open_frame
from itocast.data.reading import read_table
from itocast.data.table import Columns, extend

FRAME = pd.DataFrame(
    {
        "shop": ["b", "b", "b", "a", "a"],
        "day": pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-02", "2024-01-03"]),
        "sales": [1.0, 2.0, 3.0, 10.0, 20.0],
        "heat": [0.1, 0.2, 0.3, 0.4, 0.5],
        "sky": ["grey", "blue", "blue", "grey", "blue"],
        "town": ["X", "X", "X", "Y", "Y"],
    }
)
COLUMNS = Columns(id="shop", time="day", targets=("sales",), past=("heat", "sky"), static=("town",))
ONE = Columns(id=None, time="t", targets=("y",))


def assert_same_table(one, two) -> None:
    assert (one.columns, one.clock) == (two.columns, two.clock)
    assert one.ids.tolist() == two.ids.tolist()
    for name in ("starts", "times"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert set(one.values) == set(two.values)
    for name, column in one.values.items():
        np.testing.assert_array_equal(column, two.values[name])


def series(**columns) -> pd.DataFrame:
    """Three days of one series, some columns replaced."""
    return pd.DataFrame({"t": ["2024-01-01", "2024-01-02", "2024-01-03"], "y": [1.0, 2.0, 3.0], **columns})


# ---- sources


def test_a_table_by_hand():
    table = read_table(FRAME, COLUMNS)
    assert table.ids.tolist() == ["b", "a"]
    assert table.starts.tolist() == [0, 3, 5]
    assert table.series.tolist() == [0, 0, 0, 1, 1]
    assert table.y[:, 0].tolist() == [1, 2, 3, 10, 20]
    assert table.values["sky"].tolist() == ["grey", "blue", "blue", "grey", "blue"]
    assert table.clock.index(table.times).tolist() == FRAME["day"].tolist()
    assert table.clock.freq == "D"
    assert len(table) == 5


@pytest.mark.parametrize("kind", ["pandas", "polars", "csv", "csv.gz", "parquet", "pq", "file", "text", "index"])
def test_every_source_gives_the_same_table(tmp_path, kind):
    path = tmp_path / f"table.{kind}"
    source: object = path
    if kind in ("parquet", "pq"):
        FRAME.to_parquet(path)
    elif kind.startswith("csv"):
        FRAME.to_csv(path, index=False)
        source = str(path)
    elif kind == "polars":
        source = pl.from_pandas(FRAME)
    elif kind == "file":
        source = io.BytesIO(FRAME.to_csv(index=False).encode())
    elif kind == "text":
        source = io.StringIO(FRAME.to_csv(index=False))
    else:
        source = FRAME.set_index(np.array([9, 9, 3, 2, 1])) if kind == "index" else FRAME
    assert_same_table(read_table(source, COLUMNS), read_table(FRAME, COLUMNS))


def test_polars_categories_and_numbers():
    frame = pl.from_pandas(FRAME).with_columns(
        pl.col("shop", "sky").cast(pl.Categorical), pl.col("sales").cast(pl.Int32)
    )
    assert_same_table(read_table(frame, COLUMNS), read_table(FRAME, COLUMNS))


def test_pandas_categories_and_missing_kinds():
    frame = FRAME.astype({"shop": "category", "sky": "category", "sales": "Int64", "heat": "Float64"})
    assert_same_table(read_table(frame, COLUMNS), read_table(FRAME, COLUMNS))
    frame.loc[1, "sales"] = pd.NA
    table = read_table(frame, COLUMNS)
    assert np.isnan(table.y[1, 0])


@pytest.mark.parametrize("seed", range(3))
def test_order_changes_nothing_but_the_order_of_series(seed):
    mixed = FRAME.sample(frac=1, random_state=seed)
    one, two = read_table(FRAME, COLUMNS), read_table(mixed, COLUMNS)
    assert two.ids.tolist() == list(dict.fromkeys(mixed["shop"]))
    for label in "ab":
        rows = [table.series == table.ids.tolist().index(label) for table in (one, two)]
        np.testing.assert_array_equal(one.times[rows[0]], two.times[rows[1]])
        for name in one.values:
            np.testing.assert_array_equal(one.values[name][rows[0]], two.values[name][rows[1]])


def test_columns_that_are_not_named_are_not_looked_at():
    frame = FRAME.assign(junk=[object()] * 5, worse=[np.inf, "x", None, 3, []])
    assert_same_table(read_table(frame, COLUMNS), read_table(FRAME, COLUMNS))


def test_the_callers_frame_is_left_alone():
    before = FRAME.copy()
    read_table(FRAME, COLUMNS, repeated="mean", gaps="fill").values["sales"][:] = -1
    pd.testing.assert_frame_equal(FRAME, before)


# ---- times


DAYS = [dt.date(2024, 1, 1), dt.date(2024, 1, 2), dt.date(2024, 1, 3)]


@pytest.mark.parametrize(
    "times",
    [
        ["2024-01-01", "2024-01-02", "2024-01-03"],
        ["2024-01-01 00:00", "2024-01-02", "2024-01-03T00:00:00"],
        ["20240101", "20240102", "20240103"],
        DAYS,
        [dt.datetime(day.year, day.month, day.day) for day in DAYS],
        [pd.Timestamp(day) for day in DAYS],
        pd.DatetimeIndex(DAYS).as_unit("s"),
        pd.DatetimeIndex(DAYS).as_unit("ms"),
        pd.Series(DAYS, dtype="datetime64[ns]").astype("category"),
    ],
    ids=["dates", "mixed", "compact", "date", "datetime", "Timestamp", "seconds", "ms", "category"],
)
def test_dates_of_every_kind(times):
    table = read_table(series(t=times), ONE)
    assert table.times.tolist() == [1704067200_000_000 + 86_400_000_000 * i for i in range(3)]
    assert (table.clock.freq, table.clock.dates, table.clock.zone) == ("D", True, None)


def test_polars_dates():
    table = read_table(pl.DataFrame({"t": DAYS, "y": [1, 2, 3]}), ONE)
    assert table.times.tolist() == [1704067200_000_000 + 86_400_000_000 * i for i in range(3)]


@pytest.mark.parametrize("kind", ["pandas", "polars", "text"])
def test_times_with_a_zone_are_instants(kind):
    index = pd.date_range("2024-03-30 22:00", periods=5, freq="h", tz="Europe/Berlin")
    frame = pd.DataFrame({"t": index, "y": 1.0})
    if kind == "polars":
        table = read_table(pl.from_pandas(frame), ONE)
    elif kind == "text":
        table = read_table(frame.assign(t=index.tz_convert("UTC").strftime("%Y-%m-%dT%H:%M:%SZ")), ONE)
    else:
        table = read_table(frame, ONE)
    assert np.diff(table.times).tolist() == [3_600_000_000] * 4  # also where the clocks are put forward
    assert table.clock.zone == ("UTC" if kind == "text" else "Europe/Berlin")
    assert table.clock.index(table.times).equals(index.as_unit("us")) or kind == "text"


def test_whole_numbers_and_no_time_at_all():
    table = read_table(series(t=[30, 10, 20]), ONE)
    assert table.times.tolist() == [10, 20, 30]
    assert table.y[:, 0].tolist() == [2, 3, 1]
    assert (table.clock.freq, table.clock.dates) == ("10", False)
    assert read_table(series(t=[1.0, 2.0, 3.0]), ONE).times.tolist() == [1, 2, 3]
    rows = pd.DataFrame({"shop": ["b", "a", "b", "a", "b"], "y": [1.0, 2.0, 3.0, 4.0, 5.0]})
    table = read_table(rows, Columns(id="shop", time=None, targets=("y",)))
    assert table.times.tolist() == [0, 1, 2, 0, 1]
    assert table.y[:, 0].tolist() == [1, 3, 5, 2, 4]


# ---- names and words


def test_na_is_a_name_in_an_id_and_nothing_in_a_number(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("shop,t,y,x\nNA,1,3,NA\nNA,2,NA,5\nNone,1,null,6\nNone,2,4,\n")
    table = read_table(path, Columns(id="shop", time="t", targets=("y",), past=("x",)))
    assert table.ids.tolist() == ["NA", "None"]
    np.testing.assert_array_equal(table.y[:, 0], [3, np.nan, np.nan, 4])
    np.testing.assert_array_equal(table.values["x"], [np.nan, 5, 6, np.nan])


@pytest.mark.parametrize("word", [*sorted(MISSING), "NaN", " NA ", "NULL"])
def test_words_for_what_is_missing(word):
    table = read_table(series(y=["1.5", word, "3"]), ONE)
    np.testing.assert_array_equal(table.y[:, 0], [1.5, np.nan, 3])


def test_numbers_as_text_and_truth_values():
    assert read_table(series(y=["1", "2.5", "1e3"]), ONE).y[:, 0].tolist() == [1, 2.5, 1000]
    assert read_table(series(y=[True, False, True]), ONE).y[:, 0].tolist() == [1, 0, 1]


def test_ids_of_numbers_stay_numbers_and_other_things_become_text():
    assert read_table(FRAME.assign(shop=[7, 7, 7, 3, 3]), COLUMNS).ids.tolist() == [7, 3]
    days = [DAYS[0]] * 3 + [DAYS[1]] * 2
    assert read_table(FRAME.assign(shop=days), COLUMNS).ids.tolist() == ["2024-01-01", "2024-01-02"]


def test_categories_are_settled_once():
    """A column that was of words in training is one later on too, though only numbers are in it, and the reverse."""
    columns = Columns(id=None, time="t", targets=("y",), past=("x",))
    words = read_table(series(x=["7", "b", None]), columns)
    assert words.values["x"].tolist() == ["7", "b", None]
    later = read_table(series(x=[7, 8, 9]), columns, clock=words.clock, categories=["x"])
    assert later.values["x"].tolist() == ["7", "8", "9"]
    assert read_table(series(x=["7", "8", "NA"]), columns).values["x"].dtype == np.float64
    with pytest.raises(ValueError, match="covariate column 'x' holds text, not numbers"):
        read_table(series(x=["7", "8", "b"]), columns, clock=words.clock, categories=[])


def test_static_columns_stay_and_those_that_change_are_refused():
    assert read_table(FRAME, COLUMNS).values["town"].tolist() == ["X", "X", "X", "Y", "Y"]
    with pytest.raises(ValueError, match="static column 'town' changes within 1 rows, the first in series 'b'"):
        read_table(FRAME.assign(town=["X", "X", "Z", "Y", "Y"]), COLUMNS)


# ---- repeated times

TWICE = pd.DataFrame(
    {
        "t": ["2024-01-01", "2024-01-02", "2024-01-02", "2024-01-03", "2024-01-02"],
        "y": [1.0, 2.0, 4.0, 8.0, np.nan],
        "x": ["a", "b", "c", "d", "e"],
    }
)


@pytest.mark.parametrize(
    ("repeated", "y", "x"),
    [
        ("first", [1, 2, 8], ["a", "b", "d"]),
        ("last", [1, np.nan, 8], ["a", "e", "d"]),
        ("mean", [1, 3, 8], ["a", "b", "d"]),
        ("keep", [1, 2, 4, np.nan, 8], ["a", "b", "c", "e", "d"]),
    ],
)
def test_repeated_times_by_policy(repeated, y, x):
    table = read_table(TWICE, Columns(id=None, time="t", targets=("y",), past=("x",)), repeated=repeated)
    np.testing.assert_array_equal(table.y[:, 0], y)
    assert table.values["x"].tolist() == x
    assert table.clock.freq == "D"


def test_a_mean_of_nothing_is_missing():
    table = read_table(TWICE.assign(y=[1, np.nan, np.nan, 8, np.nan]), ONE, repeated="mean")
    np.testing.assert_array_equal(table.y[:, 0], [1, np.nan, 8])


def test_the_same_time_in_two_series_is_not_repeated():
    assert len(read_table(FRAME, COLUMNS)) == 5
    twice = pd.concat([FRAME, FRAME.tail(1)])
    with pytest.raises(ValueError, match=r"'day' repeats a time of its series in 1 row \(5\)"):
        read_table(twice, COLUMNS)


# ---- missing times

GAPS = pd.DataFrame({"t": [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 1, 2, 3], "y": np.arange(14.0)})
GAPS["shop"], GAPS["town"], GAPS["x"] = ["a"] * 11 + ["b"] * 3, ["X"] * 11 + ["Y"] * 3, np.arange(14.0)
GAP_COLUMNS = Columns(id="shop", time="t", targets=("y",), past=("x",), static=("town",))


@pytest.mark.parametrize("gaps", ["auto", "fill"])
def test_missing_times_become_rows_without_values(gaps):
    table = read_table(GAPS, GAP_COLUMNS, gaps=gaps)
    assert table.times.tolist() == [*range(1, 13), 1, 2, 3]
    assert table.starts.tolist() == [0, 12, 15]
    np.testing.assert_array_equal(table.y[:, 0], [0, 1, 2, 3, 4, 5, np.nan, *range(6, 14)])
    np.testing.assert_array_equal(table.values["x"], table.y[:, 0])
    assert table.values["town"].tolist() == ["X"] * 12 + ["Y"] * 3


def test_missing_times_are_kept_out_where_asked_or_where_they_are_many():
    assert len(read_table(GAPS, GAP_COLUMNS, gaps="keep")) == 14
    sparse = GAPS[GAPS["t"].isin([1, 2, 3, 8, 12])]
    assert len(read_table(sparse, GAP_COLUMNS, gaps="auto")) == len(sparse)
    assert len(read_table(sparse, GAP_COLUMNS, gaps="fill")) == 12 + 3


def test_the_night_on_which_the_clocks_change_is_no_gap():
    hours = pd.date_range("2024-03-30", "2024-04-01", freq="h", tz="Europe/Berlin")
    frame = pd.DataFrame({"t": hours, "y": 1.0})
    assert len(read_table(frame, ONE, gaps="fill")) == len(hours)


@pytest.mark.parametrize("gaps", ["auto", "fill"])
def test_missing_days_are_filled_where_the_clocks_change(gaps):
    days = pd.date_range("2024-03-01", periods=60, freq="D", tz="Europe/Berlin")
    table = read_table(pd.DataFrame({"t": days.delete([10, 40]), "y": 1.0}), ONE, gaps=gaps)
    assert table.clock.index(table.times).equals(days.as_unit("us"))
    assert np.flatnonzero(np.isnan(table.y[:, 0])).tolist() == [10, 40]


@pytest.mark.parametrize("gaps", ["auto", "fill"])
@pytest.mark.parametrize("freq", ["MS", "ME", "QS", "YS"])
def test_missing_steps_of_the_calendar_are_filled(freq, gaps):
    times = pd.date_range("2000-01-03", periods=40, freq=freq)
    whole = read_table(pd.DataFrame({"t": times, "y": 1.0}), ONE, gaps=gaps)
    assert len(whole) == 40
    table = read_table(pd.DataFrame({"t": times.delete([7, 20]), "y": 1.0}), ONE, gaps=gaps)
    assert table.clock.index(table.times).equals(times.as_unit("us"))
    assert np.flatnonzero(np.isnan(table.y[:, 0])).tolist() == [7, 20]


@pytest.mark.parametrize("gaps", ["auto", "keep"])
def test_months_and_working_days_are_no_gaps(gaps):
    for freq in ("MS", "ME", "B", "QS", "YS"):
        frame = pd.DataFrame({"t": pd.date_range("2020-01-01", periods=30, freq=freq), "y": 1.0})
        assert len(read_table(frame, ONE, gaps=gaps)) == 30


def test_a_stated_frequency_is_used():
    frame = pd.DataFrame({"t": ["2024-01-01 00:00", "2024-01-01 02:00", "2024-01-01 04:00"], "y": [1.0, 2.0, 3.0]})
    assert read_table(frame, ONE).clock.freq == "2h"
    table = read_table(frame, ONE, freq="h", gaps="fill")
    assert (table.clock.freq, len(table)) == ("h", 5)


# ---- parts of tables


def test_parts_of_a_table():
    table = read_table(FRAME, COLUMNS)
    assert table.head(2).y[:, 0].tolist() == [1, 2, 10, 20]
    first = int(table.times[0])
    assert table.until(first).ids.tolist() == ["b"]
    assert table.cutoff(0.5) == table.times[1]
    rest = table.take(table.y[:, 0] > 9)
    assert (rest.ids.tolist(), rest.starts.tolist()) == (["a"], [0, 2])


def test_rows_after_the_last_target_are_told_apart():
    frame = FRAME.assign(sales=[1.0, np.nan, 3.0, 10.0, np.nan])
    seen, later = read_table(frame, COLUMNS).known()
    np.testing.assert_array_equal(seen.y[:, 0], [1, np.nan, 3, 10])
    assert later.ids.tolist() == ["a"]
    assert read_table(FRAME, COLUMNS).known()[1] is None


def test_joined_tables_keep_the_newer_rows():
    old = read_table(FRAME, COLUMNS)
    new = FRAME.assign(
        shop=["a", "a", "c", "c", "c"],
        day=pd.to_datetime(["2024-01-03", "2024-01-04", "2024-01-01", "2024-01-02", "2024-01-03"]),
        sales=[21.0, 30.0, 7.0, 8.0, 9.0],
        town=["Y", "Y", "Z", "Z", "Z"],
    )
    both = old.join(read_table(new, COLUMNS, clock=old.clock, categories=["sky", "town"]))
    assert both.ids.tolist() == ["b", "a", "c"]
    assert both.y[:, 0].tolist() == [1, 2, 3, 10, 21, 30, 7, 8, 9]
    assert both.starts.tolist() == [0, 3, 6, 9]


def test_the_next_steps_have_no_targets_and_the_same_static_values():
    whole = extend(read_table(FRAME, COLUMNS), 2, None)
    np.testing.assert_array_equal(whole.y[:, 0], [1, 2, 3, np.nan, np.nan, 10, 20, np.nan, np.nan])
    assert whole.values["town"].tolist() == ["X"] * 5 + ["Y"] * 4
    assert whole.values["sky"][3:5].tolist() == [None, None]
    assert np.diff(whole.times[:5]).tolist() == [86_400_000_000] * 4


# ---- wide tables


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_wide_table_becomes_a_long_one(kind):
    wide = {"when": [1, 2], "north": [3.0, 4.0], "south": [5.0, None]}
    frame = pd.DataFrame(wide) if kind == "pandas" else pl.DataFrame(wide)
    found = long(frame, time="when", id="place", target="rain")
    assert type(found) is type(frame)
    assert list(found.columns) == ["place", "when", "rain"]
    assert found["place"].to_list() == ["north", "north", "south", "south"]
    assert found["rain"].to_list()[:3] == [3, 4, 5]


def test_a_wide_table_without_times_and_from_a_file(tmp_path):
    frame = pd.DataFrame({"north": [3, 4], "south": [5, 6]})
    assert long(frame, time=None)["ds"].tolist() == [0, 1, 0, 1]
    frame.assign(ds=[1, 2]).to_csv(tmp_path / "wide.csv", index=False)
    assert long(tmp_path / "wide.csv")["unique_id"].tolist() == ["north", "north", "south", "south"]


def test_a_series_may_be_called_like_the_target():
    found = long(pd.DataFrame({"ds": [1, 2], "y": [3, 4], "unique_id": [5, 6]}))
    assert found.to_numpy().tolist() == [["y", 1, 3], ["y", 2, 4], ["unique_id", 1, 5], ["unique_id", 2, 6]]


def test_an_open_file_that_is_no_table_is_refused():
    with pytest.raises(ValueError, match="the input is not a CSV file that can be read"):
        open_frame(io.StringIO(""))


def test_days_of_a_polars_frame_come_back_as_days():
    days = [dt.date(2024, 1, 1) + dt.timedelta(days=i) for i in range(60)]
    frame = pl.DataFrame({"ds": days, "y": [float(i % 7) for i in range(60)]})
    forecaster = tiny(horizon=2, calibration=None).fit(frame)
    assert forecaster.predict()["ds"].to_list() == [dt.date(2024, 3, 1), dt.date(2024, 3, 2)]
    assert forecaster.backtest(frame)["cutoff"].dtype == pl.Date


def test_offsets_that_change_are_taken_in_utc():
    """What pandas writes of a zone whose clocks change."""
    times = pd.date_range("2024-03-30", periods=72, freq="h", tz="Europe/Berlin")
    frame = pd.DataFrame({"t": times.astype(str), "y": np.arange(72.0)})
    table = read_table(frame, ONE)
    assert (table.clock.zone, table.clock.freq) == ("UTC", "h")
    assert table.clock.index(table.times)[0] == times[0]
    assert table.regular


def test_days_and_months_are_told_apart_or_refused():
    """13 can only be a day, and says so for the whole column; where both ways are possible neither is taken."""

    def days(texts):
        return read_table(pd.DataFrame({"t": texts, "y": np.arange(float(len(texts)))}), ONE)

    table = days([f"{day:02d}.01.2024" for day in range(1, 21)])
    assert (table.clock.freq, len(table)) == ("D", 20)
    assert table.clock.index(table.times)[1] == pd.Timestamp("2024-01-02")
    table = days([f"01/{day:02d}/2024" for day in range(1, 21)])
    assert table.clock.index(table.times)[1] == pd.Timestamp("2024-01-02")
    with pytest.raises(ValueError, match=r"'t' can be read with the day or the month first, as in '01.01.2005'"):
        days([f"01.{month:02d}.2005" for month in range(1, 13)])
