"""What users get wrong, and what they are told: argument or column, value, what was expected or the remedy."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from conftest import ahead_frame, panel_frame, tiny, wave_frame

from itocast import Forecaster, Training, long
from itocast.config import Config
from itocast.data.reading import read_table
from itocast.data.table import Columns
from itocast.storage import StorageError

FRAME = wave_frame(120)[["time", "load", "heat"]].rename(columns={"time": "ds", "load": "y"})
PANEL = panel_frame(60)
ERRORS = (ValueError, TypeError, OSError)


def put(column: str, row: int, value: object, frame: pd.DataFrame = FRAME) -> pd.DataFrame:
    """The frame with one value changed."""
    changed = frame.astype({column: object})
    changed.loc[row, column] = value
    return changed


def refused(what: str) -> pytest.RaisesExc:
    return pytest.raises(ERRORS, match=what)


FIT = [
    (None, {}, "is a NoneType: expected a pandas or polars DataFrame, or a path to CSV or Parquet"),
    ({"y": [1]}, {}, "is a dict: expected a pandas or polars DataFrame"),
    (np.zeros((5, 2)), {}, "is a ndarray: expected a pandas or polars DataFrame"),
    (FRAME["y"], {}, "is a Series: expected a pandas or polars DataFrame"),
    (pl.LazyFrame({"ds": [1], "y": [1]}), {}, "is a LazyFrame: expected a pandas or polars DataFrame"),
    (FRAME[:0], {}, "holds no rows: expected a table with at least one"),
    ("no/such.csv", {}, "='no/such.csv': there is no such file"),
    ("no/such.parquet", {}, "='no/such.parquet': there is no such file"),
    (pd.concat([FRAME, FRAME["y"]], axis=1), {}, r"a column name twice: rename one .*\n.*'y'"),
    (FRAME, {"target": "z"}, "target names column 'z', which is not in the table: its columns are ds, y, heat"),
    (FRAME, {"target": []}, "target is empty: name at least one column"),
    (FRAME, {"target": ["y", "y"]}, r"target=\['y', 'y'\]: a column is named twice"),
    (FRAME, {"target": None}, "target=None: expected a list of column names"),
    (FRAME, {"target": 3}, "target=3: expected a list of column names"),
    (FRAME, {"time": "when"}, "time names column 'when', which is not in the table: its columns are ds, y, heat"),
    (FRAME.rename(columns={"ds": "t"}), {}, "'ds', which is not in the table: .* t, y, heat; pass time=, or time=None"),
    (FRAME, {"id": "store"}, "id names column 'store', which is not in the table"),
    (FRAME, {"time": ""}, "time names column '', which is not in the table"),
    (FRAME, {"id": ""}, "id names column '', which is not in the table"),
    (FRAME, {"past": "heat"}, r"past='heat': expected a list of column names, such as \['heat'\]"),
    (FRAME, {"past": ["cold"]}, "past names column 'cold', which is not in the table"),
    (FRAME, {"future": ["cold"]}, "future names column 'cold', which is not in the table"),
    (FRAME, {"static": ["cold"]}, "static names column 'cold', which is not in the table"),
    (FRAME, {"past": ["y"]}, "column 'y' is named in target and in past: name it in one of them"),
    (FRAME, {"past": ["heat"], "future": ["heat"]}, "column 'heat' is named in past and in future"),
    (put("y", 3, "abc"), {}, r"target column 'y' holds text, not numbers, in 1 row \(3\); the first reads 'abc'"),
    (FRAME.assign(y="abc"), {}, r"holds text, not numbers, in 120 rows \(0, 1, 2, 3, 4, …\)"),
    (FRAME.assign(y=FRAME["ds"]), {}, "target column 'y' holds text, not numbers"),
    (put("y", 3, np.inf), {}, r"target column 'y' is infinite in 1 row \(3\): correct or drop them"),
    (FRAME.assign(y=np.nan), {}, "the table has no observed value in y: drop it"),
    (PANEL.assign(y=PANEL["y"].where(PANEL["unique_id"] != "b")), {}, "series 'b' has no observed value in y: drop it"),
    (put("heat", 3, -np.inf), {"past": ["heat"]}, r"covariate column 'heat' is infinite in 1 row \(3\)"),
    (put("ds", 3, "soon"), {}, r"time column 'ds' has no readable time in 1 row \(3\); the first reads 'soon'"),
    (put("ds", 3, None), {}, r"time column 'ds' has no readable time in 1 row \(3\)"),
    (FRAME.assign(ds=np.arange(120) + 0.5), {}, "'ds' holds numbers that are missing or not whole in 120 rows .*: use"),
    (FRAME[:3].assign(ds=[0, np.nan, 2]), {}, r"'ds' holds numbers that are missing or not whole in 1 row \(1\)"),
    (put("ds", 3, FRAME["ds"][2]), {}, r"'ds' repeats a time of its series in 1 row \(3\): pass repeated='first'"),
    (PANEL.drop(columns="unique_id"), {}, "repeats a time .* several series, name their column with id="),
    (put("unique_id", 3, None, PANEL), {}, r"id column 'unique_id' is missing in 1 row \(3\): fill or drop them"),
    (PANEL, {"static": ["heat"]}, "static column 'heat' changes within 177 rows, the first in series 'a': name it in"),
    (FRAME[:1], {}, "window=4 and horizon=3 need rows .*, and the longest series has 1 rows; use a smaller window or"),
    (FRAME[:5], {}, "window=4 and horizon=3 need rows .*, and the longest series has 5 rows; use a smaller window or"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "arguments", "message"), FIT, ids=[message[:40] for *_, message in FIT])
def test_fit_refuses(source, arguments, message):
    with refused(message):
        tiny().fit(source, **arguments)


WHOLE = FRAME.assign(ds=np.arange(120))
SETTINGS = [
    ({"horizon": 0}, "horizon=0: expected a whole number, at least 1"),
    ({"horizon": 1.5}, "horizon=1.5: expected a whole number"),
    ({"horizon": True}, "horizon=True: expected a whole number"),
    ({"horizon": "3"}, "horizon='3': expected a whole number"),
    ({"window": -1}, "window=-1: expected a whole number, at least 1"),
    ({"effort": "heroic"}, "effort='heroic': expected one of fast, balanced, best"),
    ({"support": "integer"}, "support='integer': expected one of auto, real, positive, unit"),
    ({"model": "prophet"}, "model='prophet': expected one of auto, prior, sde_hnn, hnn, .*, or what makes a model"),
    ({"model": 3}, "model=3: expected"),
    ({"calibration": "platt"}, "calibration='platt': expected one of None, "),
    ({"training": {"epoch": 3}}, "Training has no setting 'epoch': expected one of epochs, batch_size"),
    ({"training": {"epochs": 0}}, "epochs=0: input should be greater than or equal to 1"),
    ({"training": "fast"}, "(?i)training.*: expected"),
    ({"training": 3}, "(?i)training.*: expected"),
    ({"seed": "x"}, "seed='x': expected a whole number"),
    ({"seed": 1.5}, "seed=1.5: expected a whole number"),
    ({"data": ["US"]}, r"Data is a list: expected Data\(...\) or a dict"),
    ({"data": {"hollidays": "US"}}, "Data has no setting 'hollidays': expected one of freq, repeated, gaps, calendar"),
    ({"data": {"repeated": "max"}}, "repeated='max': input should be 'error', 'first', 'last', 'mean' or 'keep'"),
    ({"data": {"gaps": "no"}}, "gaps='no': input should be 'auto', 'fill' or 'keep'"),
    ({"data": {"scaling": "log"}}, "scaling='log': input should be 'quantile', 'rank' or 'minmax'"),
    ({"data": {"validation": 1.5}}, "validation=1.5: input should be less than 1"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "message"), SETTINGS, ids=[message[:40] for _, message in SETTINGS])
def test_a_forecaster_refuses(settings, message):
    with refused(message):
        Forecaster(**settings)


DATA = [
    (FRAME, {"freq": "hour"}, "freq='hour': expected a pandas offset such as 'h', '15min', 'D', 'B', 'W', 'MS'"),
    (WHOLE, {"freq": "h"}, "freq='h': expected a whole number"),
    (WHOLE, {"freq": -1}, "freq=-1: expected a whole number, at least 1"),
    (WHOLE, {"holidays": "US"}, "holidays='US' needs dates, and the table's times are whole numbers"),
    (FRAME, {"holidays": "Atlantis"}, "holidays='Atlantis': expected a country such as 'US', 'DE' or 'JP'"),
    (put("ds", 3, FRAME["ds"][3] + pd.Timedelta("7min")), {"gaps": "fill"},
     "gaps='fill' needs times that lie whole steps of freq='h' apart within a series: pass gaps='keep', or the freq"),
]  # fmt: skip


@pytest.mark.parametrize(("frame", "data", "message"), DATA, ids=[message[:40] for *_, message in DATA])
def test_fit_refuses_settings_that_do_not_suit_the_table(frame, data, message):
    with refused(message):
        tiny(data=data).fit(frame)


@pytest.mark.parametrize(
    ("support", "value", "message"),
    [
        ("positive", -2.0, r"support='positive' means 0 and above, but y is outside in 1 row \(3\)"),
        (
            "unit",
            1.5,
            r"support='unit' means 0 to 1, but y is outside in .* reads 1.5: correct them, or use another support",
        ),
    ],
)
def test_targets_outside_the_support_are_refused(support, value, message):
    with refused(message):
        tiny(support=support).fit(put("y", 3, value, FRAME.assign(y=0.5)))


PREDICT = [
    ({"level": 0.8}, "level=0.8: expected a percentage from 1 to below 100, such as 95"),
    ({"level": 100}, "level=100.0: expected a percentage"),
    ({"level": [80, -5]}, "level=-5.0: expected a percentage"),
    ({"level": np.nan}, "level=nan: expected a percentage"),
    ({"level": ["wide"]}, r"level=\['wide'\]: expected a number or a list of numbers"),
    ({"level": None}, "level=None: expected a number or a list of numbers"),
    ({"quantiles": 5}, "quantiles=5: expected numbers above 0 and below 1"),
    ({"quantiles": [0.5, 1.0]}, r"quantiles=\[0.5, 1.0\]: expected numbers above 0 and below 1"),
    ({"paths": 0}, "paths=0: expected a whole number, at least 1"),
    ({"paths": 2.5}, "paths=2.5: expected a whole number, at least 1"),
    ({"paths": True}, "paths=True: expected a whole number"),
    ({"df": FRAME.drop(columns="y")}, "target names column 'y', which is not in the table: its columns are ds, heat"),
    ({"df": WHOLE}, "time column 'ds' holds numbers, in training it held dates: convert it"),
    ({"df": FRAME.assign(ds=FRAME["ds"].dt.tz_localize("UTC"))}, "'ds' has zone UTC, in training it had no zone"),
    ({"df": FRAME[:0]}, "holds no rows"),
    ({"df": FRAME.assign(y=np.nan)}, "the table has no observed value in y"),
    ({"df": "nofile.csv"}, "='nofile.csv': there is no such file"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), PREDICT, ids=[message[:40] for _, message in PREDICT])
def test_predict_refuses(single, arguments, message):
    with refused(message):
        single[1].predict(**arguments)


def test_predict_refuses_dates_where_training_had_numbers():
    with refused("time column 'ds' holds dates, in training it held whole numbers: convert it"):
        tiny().fit(WHOLE).predict(FRAME)


AHEAD = ahead_frame(panel_frame())
FUTURE = [
    (None, "future is missing: pass a table of the next 3 steps, with promotion"),
    (ahead_frame(panel_frame(), 2), "future holds 2 rows of series 'a' after 2024-01-09 07:00:00: expected the next 3"),
    (AHEAD[AHEAD["unique_id"] != "b"], "future holds 0 rows of series 'b' after .*: expected the next 3 steps"),
    (panel_frame(), "future holds 0 rows of series 'a' after"),
    (AHEAD.drop(columns="promotion"), "future names column 'promotion', which is not in the table"),
    (AHEAD.drop(columns="unique_id"), "id names column 'unique_id', which is not in the table"),
    (AHEAD.assign(promotion="yes"), "'promotion' holds text, not numbers, in 9 rows .*; the first reads 'yes'"),
    (3, "is a int: expected a pandas or polars DataFrame"),
]  # fmt: skip


@pytest.mark.parametrize(("future", "message"), FUTURE, ids=[message[:40] for _, message in FUTURE])
def test_predict_refuses_a_future_that_does_not_hold_the_next_steps(panel, future, message):
    with refused(message):
        panel[1].predict(future=future)


def test_predict_refuses_a_future_that_nothing_asked_for(single):
    with refused("future"):
        single[1].predict(future=AHEAD)


def test_predict_refuses_other_kinds_of_columns(panel):
    frame, forecaster = panel
    with refused("covariate column 'heat' holds text, not numbers, in 600 rows"):
        forecaster.predict(frame.assign(heat="hot"), future=AHEAD)
    with refused("static names column 'place', which is not in the table"):
        forecaster.predict(frame.drop(columns="place"), future=AHEAD)


BACKTEST = [
    ({"start": "later"}, "start='later': expected a share of the rows above 0 and below 1, or a date"),
    ({"start": [0.5]}, r"start=\[0.5\]: expected a share"),
    ({"start": 0.0}, "start=0.0: expected a share"),
    ({"start": 1}, "start=1: expected a share"),
    ({"start": 1.5}, "start=1.5: expected a share"),
    ({"start": -0.5}, "start=-0.5: expected a share"),
    ({"start": "2024-01-03T00:00+01:00"}, "start='2024-01-03T00:00.01:00' has a zone and the table's times have none"),
    ({"start": "2030-01-01"}, "start='2030-01-01'"),
    ({"start": 0.999}, "start=0.999"),
    ({"step": 0}, "step=0: expected a whole number, at least 1"),
    ({"step": 1.5}, "step=1.5: expected a whole number"),
    ({"step": "1"}, "step='1': expected a whole number"),
    ({"refit": -1}, "refit=-1: expected"),
    ({"refit": 1.5}, "refit=1.5: expected"),
    ({"refit": "no"}, "refit='no': expected"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BACKTEST, ids=[message[:40] for _, message in BACKTEST])
def test_backtest_and_evaluate_refuse(single, arguments, message):
    frame, forecaster = single
    for ask in (forecaster.backtest, forecaster.evaluate):
        with refused(message):
            ask(frame, **arguments)


@pytest.mark.parametrize("value", [1.5, "x"])
def test_backtest_refuses_a_start_that_is_no_whole_number_where_times_are(value):
    with refused(f"start={value!r}: expected a share of the rows above 0 and below 1, or a whole number"):
        tiny().fit(WHOLE).backtest(WHOLE, start=value)


def test_backtest_refuses_too_few_rows(single):
    with refused(r"start=0\.8: no cutoff after it has 3 rows to be tested on"):
        single[1].backtest(single[0][:3], start=0.8)
    with refused(
        "the table has 240 rows: too few for a forecast of 3 steps whose outcomes .*; pass more rows, or start="
    ):
        single[1].backtest(single[0][:240])  # up to where training held out
    with refused("is a NoneType: expected a pandas or polars DataFrame"):
        single[1].backtest(None)


@pytest.mark.parametrize("ask", ["predict", "predict_distribution", "backtest", "evaluate", "update", "save"])
def test_nothing_is_forecast_before_fit(ask, tmp_path):
    arguments = {"save": [tmp_path], "predict": [], "predict_distribution": []}.get(ask, [FRAME])
    with refused(r"the forecaster is not fitted: call fit\(df\) first, or Forecaster.load\(folder\)"):
        getattr(tiny(), ask)(*arguments)
    assert not list(tmp_path.iterdir())


def test_load_refuses_what_save_did_not_write(tmp_path):
    with pytest.raises(StorageError, match="nowhere: there is no such folder; name the one given to save"):
        Forecaster.load(tmp_path / "nowhere")


FILES = {
    "empty.csv": (b"", "empty.csv' is not a CSV file that can be read"),
    "head.csv": (b"ds,y\n", "holds no rows"),
    "ragged.csv": (b"ds,y\n1,2\n1,2,3,4\n", "ragged.csv' is not a CSV file that can be read"),
    "binary.csv": (b"\xff\xfe\0\x81" * 50, "binary.csv' is not a CSV file in UTF-8"),
    "semi.csv": (b"ds;y\n1;2\n", "has one column, 'ds;y': fields must be separated by commas; read it with pandas"),
    "tab.csv": (b"ds\ty\n1\t2\n", "fields must be separated by commas"),
    "cut.csv.gz": (b"\x1f\x8b\x08\0\0\0\0\0\0\xffK)N", "cut.csv.gz' is not a CSV file that can be read"),
    "text.csv.gz": (b"ds,y\n1,2\n", "text.csv.gz' is not a CSV file that can be read"),
    "cut.parquet": (b"PAR1", "cut.parquet' is not a Parquet file that can be read"),
    "empty.parquet": (b"", "empty.parquet' is not a Parquet file that can be read"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_cannot_be_read_are_named(tmp_path, name):
    content, message = FILES[name]
    (tmp_path / name).write_bytes(content)
    with refused(message):
        tiny().fit(tmp_path / name)


def test_a_folder_is_no_table(tmp_path):
    with refused("there is no such file"):
        tiny().fit(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"repeated": "max"}, "repeated='max': expected one of error, first, last, mean, keep"),
        ({"gaps": "no"}, "gaps='no': expected one of auto, fill, keep"),
        ({"freq": "fortnight"}, "freq='fortnight': expected a pandas offset"),
    ],
)
def test_reading_refuses(arguments, message):
    with refused(message):
        read_table(FRAME, Columns(id=None, time="ds", targets=("y",)), **arguments)


def test_long_refuses_a_time_that_is_not_there():
    with refused("time names column 'when', which is not in the table: its columns are ds, y, heat"):
        long(FRAME, time="when")


TOML = {
    "horizn = 3": "Config has no setting 'horizn': expected one of horizon, window, effort, support",
    "horizon = 0": "horizon=0: input should be greater than or equal to 1",
    "horizon = 'x'": "horizon='x': input should be a valid integer",
    "[data]\nholidys = 'US'": "Data has no setting 'holidys': expected one of freq, repeated",
    "[model]\nkind = 'prophet'": "model.kind='prophet': expected one of auto, prior, sde_hnn, hnn, mc_dropout",
    "[model]\nwidth = 3": "model.width=3: sde_hnn has no such setting; expected one of encoder, block, components",
    "[model.encoder]\nhiden = 3": "Encoder has no setting 'hiden': expected one of kind, dim",
    "[model.encoder]\nhidden = 0": "hidden=0: input should be greater than or equal to 1",
    "[training]\nepoch = 3": "Training has no setting 'epoch': expected one of epochs",
    "[training]\nlearning_rate = -1": "learning_rate=-1: input should be greater than 0",
    "support = 'integer'": "support='integer': expected one of auto, real, positive, unit",
    "calibration = 'platt'": "calibration='platt': expected one of None, ",
    "data = 3": "data=3",
    "horizon": r"settings.toml' is not TOML",
}  # fmt: skip


@pytest.mark.parametrize("text", TOML)
def test_a_settings_file_is_refused(tmp_path, text):
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with refused(TOML[text]):
        Config.read(path, {}).forecaster()


def test_a_settings_file_that_is_not_there_is_refused(tmp_path):
    with refused("none.toml': there is no such file"):
        Config.read(tmp_path / "none.toml", {})


def test_training_settings_are_taken_whole_or_in_part():
    assert Forecaster(training=Training(epochs=7)).recipe.training.epochs == 7
    assert Forecaster(training={"epochs": 7}).recipe.training == {"epochs": 7}
