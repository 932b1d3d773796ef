"""Calibration as users meet it: in a Forecaster, saved and loaded, and on the command line."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import SETTINGS, panel_frame, tiny, wave_frame

from itocast import Forecaster
from itocast.calibration import CALIBRATORS, Adaptive

BOUNDS = ["mean", "lo-80", "hi-80", "lo-95", "hi-95"]
OLD = 400  # rows to learn from


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """A wave whose noise becomes larger after 400 rows."""
    frame = wave_frame(OLD + 100)[["time", "load"]].rename(columns={"time": "ds", "load": "y"})
    frame.loc[OLD:, "y"] += 5 * np.random.default_rng(1).standard_normal(100)
    return frame


@pytest.fixture
def adaptive(frame) -> Forecaster:
    return tiny(calibration="adaptive").fit(frame[:OLD])


# ---- Forecaster


@pytest.mark.parametrize("name", CALIBRATORS)
def test_every_calibration_is_saved_and_loaded(frame, tmp_path, name):
    forecaster = tiny(calibration=name).fit(frame[:OLD])
    forecaster.save(tmp_path)
    ahead, again = forecaster.predict(), Forecaster.load(tmp_path).predict()
    pd.testing.assert_frame_equal(ahead[BOUNDS], again[BOUNDS])
    assert (ahead["lo-95"] < ahead["lo-80"]).all()


def test_an_exchanged_calibration_is_that_of_a_fit_with_it(frame):
    later = tiny(calibration=None).fit(frame[:OLD])
    plain = later.predict()[BOUNDS]
    later.calibrate(frame[:OLD], "conformal")
    pd.testing.assert_frame_equal(
        later.predict()[BOUNDS], tiny(calibration="conformal").fit(frame[:OLD]).predict()[BOUNDS]
    )
    assert later.recipe.calibration == later.fitted.calibration == "conformal"
    later.calibrate(frame[:OLD], None)
    pd.testing.assert_frame_equal(later.predict()[BOUNDS], plain)
    later.calibrate(frame[:OLD])
    assert "95 % intervals held" in later.fitted.calibration


def test_what_cannot_be_calibrated_is_refused(frame):
    forecaster = tiny().fit(frame[:OLD])
    with pytest.raises(ValueError, match="calibration='luck': expected"):
        forecaster.calibrate(frame, "luck")
    with pytest.raises(ValueError, match="calibration_by='series': expected"):
        forecaster.calibrate(frame, "auto", "series")
    with pytest.raises(ValueError, match=r"no forecasts to learn from after .* pass the rows that training held out"):
        forecaster.calibrate(frame[:100])


def test_the_newer_half_counts(monkeypatch):
    """Noise was large and became small: corrections are those of the small one."""
    noise = np.random.default_rng(0).standard_normal(3000) * np.where(np.arange(3000) < 2600, 5, 0.5)
    table = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=3000, freq="h"), "y": noise})
    monkeypatch.setattr("itocast.fitted.FRESH", 100)
    forecaster = tiny(horizon=1, calibration="conformal", data={"validation": 0.25, "local": False}).fit(table)
    low, high = forecaster.predict(level=90)[["lo-90", "hi-90"]].to_numpy()[0]
    assert forecaster.fitted.outcomes == 375  # from row 2625 on
    assert 1 < high - low < 4  # 1.6 is right for the small noise, 16 for the large


def test_observing_goes_on_after_loading(adaptive, frame, tmp_path):
    adaptive.observe(frame[OLD : OLD + 30])
    adaptive.save(tmp_path)
    again = Forecaster.load(tmp_path)
    newer = frame[OLD + 30 : OLD + 60]
    assert adaptive.observe(newer) == again.observe(newer) == 30
    pd.testing.assert_frame_equal(adaptive.predict()[BOUNDS], again.predict()[BOUNDS])
    assert adaptive.predict()["ds"].iloc[0] == frame["ds"][OLD + 60]


def test_row_by_row_is_all_at_once(adaptive, frame, tmp_path):
    """Each forecast of three steps is learned from once, when its last step has come."""
    adaptive.save(tmp_path)
    slowly = Forecaster.load(tmp_path)
    assert [slowly.observe(frame[row : row + 1]) for row in range(OLD, OLD + 20)] == [1] * 20
    assert adaptive.observe(frame[OLD : OLD + 20]) == 20
    assert slowly.fitted.evidence == pytest.approx(adaptive.fitted.evidence)
    np.testing.assert_allclose(slowly.predict()[BOUNDS], adaptive.predict()[BOUNDS], rtol=1e-4)


def test_rows_that_were_seen_teach_nothing_again(adaptive, frame):
    adaptive.observe(frame[OLD : OLD + 20])
    before = copy.deepcopy(adaptive.fitted.calibrator.to_dict())
    assert adaptive.observe(frame[OLD + 10 : OLD + 20]) == 0
    torch.testing.assert_close(adaptive.fitted.calibrator.to_dict(), before, rtol=0, atol=0, equal_nan=True)


def test_intervals_grow_with_the_noise(adaptive, frame):
    before = adaptive.predict(frame)
    outcomes = adaptive.fitted.outcomes
    adaptive.observe(frame[OLD:])
    after = adaptive.predict(frame)
    new = 100 / 3  # forecasts whose third step is a new row; three that follow one another are as one
    assert adaptive.fitted.outcomes == pytest.approx(outcomes + new, abs=1)
    assert (after["hi-80"] - after["lo-80"]).sum() > 1.2 * (before["hi-80"] - before["lo-80"]).sum()
    np.testing.assert_allclose(after["mean"], before["mean"])


def test_a_panel_is_one_stream_in_the_order_of_time():
    frame = panel_frame(400)
    forecaster = tiny(calibration="adaptive").fit(frame)
    fitted = forecaster.fitted
    table = forecaster.reader.read(frame)[0]
    windows = fitted.preparation.windows(table)
    ordered = windows.by_time(table.times)
    times = table.times[ordered.origins.numpy()]
    assert (np.diff(times) >= 0).all()
    assert sorted(ordered.origins.tolist()) == windows.origins.tolist()
    recent = ordered.only(times >= times[-30])
    assert len(set(recent.numbers.series[recent.origins].tolist())) == 3
    assert isinstance(fitted.calibrator, Adaptive)


@pytest.mark.parametrize("by", ["series", "place"])
def test_groups_are_kept_and_new_series_take_the_correction_of_all(tmp_path, by):
    frame = panel_frame()
    forecaster = tiny(calibration="conformal", calibration_by=by).fit(frame, static=["place"])
    groups = {"series": ["a", "b", "c"], "place": ["hill", "sea"]}[by]
    assert forecaster.fitted.groups == groups
    assert len(forecaster.fitted.calibrator.factors) == 1 + len(groups)
    forecaster.save(tmp_path)
    again = Forecaster.load(tmp_path)
    pd.testing.assert_frame_equal(again.predict()[BOUNDS], forecaster.predict()[BOUNDS])
    unknown = frame[frame["unique_id"] == "a"].assign(unique_id="z")
    assert np.isfinite(again.predict(unknown)[BOUNDS].to_numpy()).all()


def test_each_series_has_its_own_correction_where_that_helps(tmp_path):
    """In the later half one series is level and another climbs."""
    frame = panel_frame(600)
    late = frame.groupby("unique_id").cumcount() >= 300
    away = frame["unique_id"].map({"a": -3.0, "b": 0.0, "c": 3.0}) * frame["y"].std()
    frame["y"] += np.where(late, away, 0.0)
    own, pooled = tiny(), tiny(calibration_by=None)
    for forecaster in (own, pooled):
        forecaster.fit(frame, static=["place"])
    assert (own.fitted.by, own.fitted.groups) == ("series", ["a", "b", "c"])
    assert " by group: 95 % intervals held" in own.fitted.calibration
    assert (pooled.fitted.by, pooled.fitted.groups) == (None, [])
    own.save(tmp_path)
    pd.testing.assert_frame_equal(Forecaster.load(tmp_path).predict()[BOUNDS], own.predict()[BOUNDS])
    for other in ("isotonic", None):
        assert own.calibrate(frame, other, "series" if other else None).fitted.by == ("series" if other else None)
    assert own.fitted.groups == []


def test_one_correction_serves_series_that_are_alike():
    generator = np.random.default_rng(0)
    names = ["a", "b", "c"]
    hours = pd.date_range("2024-01-01", periods=600, freq="h")
    frame = pd.concat([pd.DataFrame({"unique_id": n, "ds": hours, "y": generator.normal(size=600)}) for n in names])
    fitted = tiny().fit(frame).fitted
    assert "variance by group" in fitted.calibrator.scores
    assert (fitted.by, fitted.groups) == (None, [])


def test_calibration_by_must_name_a_group():
    with pytest.raises(
        ValueError, match=r"calibration_by='shop': expected 'auto', None, 'series', .* static columns, place"
    ):
        tiny(calibration_by="shop").fit(panel_frame(60), static=["place"])
    frame = wave_frame(60)[["time", "load"]]
    with pytest.raises(
        ValueError, match=r"calibration_by='series': expected 'auto', None, 'series', for a table with an id"
    ):
        tiny(calibration_by="series").fit(frame, target="load", time="time")


def test_few_outcomes_are_warned_of_in_fit_and_wide_levels_in_predict(frame, recwarn):
    """16 rows are held out: 14 forecasts of three steps, of which five share no outcome."""
    with pytest.warns(UserWarning, match=r"^5 independent outcomes .* 95 % need at least 19:") as said:
        forecaster = tiny(calibration="conformal").fit(frame[:80])
    assert len(said) == 1
    recwarn.clear()
    forecaster.predict()
    forecaster.backtest(frame[:80])
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"^5 independent outcomes .* 99 % need at least 99:") as said:
        ahead = forecaster.predict(level=[80, 99])
    assert len(said) == 1
    assert np.isfinite(ahead[["lo-99", "hi-99"]].to_numpy()).all()
    tiny(calibration=None).fit(frame[:80]).predict(level=99)
    assert not recwarn.list


def test_auto_does_with_few_outcomes_and_warns_of_wide_levels_alone(frame, recwarn):
    forecaster = tiny().fit(frame[:80])
    forecaster.predict()
    assert forecaster.fitted.outcomes == 5
    assert forecaster.fitted.calibrator.kind == "variance"
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"^5 independent outcomes .* 99 % need at least 99:"):
        forecaster.predict(level=[80, 99])


# ---- command line


@pytest.fixture
def files(frame, tmp_path, run):
    """In the folder where commands run."""
    frame[:OLD].to_csv(tmp_path / "table.csv", index=False)
    frame[OLD:].to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "settings.toml").write_text(SETTINGS)
    return run


def test_observe_on_the_command_line(files):
    done = files("fit", "table.csv", "-o", "model", "--config", "settings.toml", "--calibration", "adaptive")
    assert done.code == 0, done.error
    before = files("predict", "model").table
    done = files("observe", "model", "new.csv")
    assert done.code == 0, done.error
    assert "forecasts now start after the new rows; calibration learned from 100 forecasts" in done.out
    after = files("predict", "model").table
    assert after["ds"].min() > before["ds"].max()
    width = [(one["hi-95"] - one["lo-95"]).mean() for one in (before, after)]
    assert width[1] > 1.5 * width[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--calibration platt", "calibration='platt': expected one of None, auto, variance, isotonic, conformal,"),
        ("--calibration-by shop", "calibration_by='shop': expected 'auto', None, 'series', for a table with an id"),
    ],
)
def test_bad_calibrations_are_refused(files, arguments, message):
    done = files("fit", "table.csv", "-o", "model", "--config", "settings.toml", *arguments.split())
    assert done.code == 1
    assert message in done.error
    assert "Traceback" not in done.error
    assert done.out == ""


@pytest.mark.parametrize("name", ["auto", "conformal", "none"])
def test_observe_needs_an_adaptive_calibration(files, name):
    done = files("fit", "table.csv", "-o", "model", "--config", "settings.toml", "--calibration", name)
    assert done.code == 0, done.error
    done = files("observe", "model", "new.csv")
    assert done.code == 1
    given = None if name == "none" else name
    assert f"calibration={given!r} does not learn from outcomes: fit with calibration='adaptive'" in done.error
    assert "or use update" in done.error
    assert "Traceback" not in done.error
