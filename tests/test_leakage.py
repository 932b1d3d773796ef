"""Nothing that is known later plays a part in a forecast: later values are changed, earlier forecasts stay the same."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import TINY_SDE, panel_frame, tiny, wave, wave_frame

from itocast.data.preparation import SCALINGS, Data, Preparation
from itocast.data.reading import read_table
from itocast.data.table import Columns

LATER = pd.Timestamp("2024-01-07 12:00")  # the first instant at which values are changed; the panel ends on the 9th


def changed(frame: pd.DataFrame, time: str = "ds", names: tuple[str, ...] = ("y", "heat")) -> pd.DataFrame:
    """The frame with other values from LATER on."""
    out = frame.copy()
    late = out[time] >= LATER
    random = np.random.default_rng(9)
    for name in names:
        out.loc[late, name] = 1e5 * random.standard_normal(late.sum())
    return out


def earlier(backtest: pd.DataFrame) -> pd.DataFrame:
    """The forecasts that were made before LATER, without the outcomes, which may be later."""
    return backtest[backtest["cutoff"] < LATER].drop(columns="y").reset_index(drop=True)


def assert_same(one: pd.DataFrame, two: pd.DataFrame) -> None:
    assert len(one) > 10
    pd.testing.assert_frame_equal(one, two, check_exact=True)


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_scales_and_features_see_nothing_later(scaling, local):
    table, other = wave(), wave()
    cut, row = table.cutoff(0.6), 420
    for name in other.values:
        other.values[name][row:] = np.random.default_rng(1).normal(1e6, 1e3, len(other) - row)
    data = Data(scaling=scaling, local=local)
    before, after = (Preparation.fit(t, 3, 4, data, until=cut) for t in (table, other))
    assert before.to_dict() == after.to_dict()
    one, two = before.windows(table), after.windows(other)
    origins = one.origins < row
    assert origins.sum() > 400
    for part, (x, y) in enumerate(zip(one.batch(origins)[0], two.batch(two.origins < row)[0], strict=True)):
        assert torch.equal(x, y), part
    assert not torch.equal(one.batch(~origins)[0].lags, two.batch(two.origins >= row)[0].lags)


def test_missing_values_are_never_filled_from_later_ones():
    frame = wave_frame(60)
    frame.loc[10:19, ["load", "heat"]] = np.nan
    columns = Columns(id=None, time="time", targets=("load",), past=("heat",))
    table = read_table(frame, columns)
    frame.loc[20:, ["load", "heat"]] = -1e6
    other = read_table(frame, columns)
    cut = int(table.times[9])
    one, two = (Preparation.fit(t, 2, 4, until=cut).windows(t) for t in (table, other))
    early = one.origins < 20
    for x, y in zip(one.batch(early)[0], two.batch(early)[0], strict=True):
        assert torch.equal(x, y)


@pytest.fixture(scope="module")
def forecaster():
    """Fitted on rows that all lie before LATER."""
    frame = panel_frame()
    early = frame[frame["ds"] < LATER - pd.Timedelta("1D")]
    return tiny(model=TINY_SDE).fit(early, past=["heat"], future=["promotion"], static=["place"])


@pytest.mark.parametrize("start", [0.3, "2024-01-05"])
def test_a_backtest_sees_nothing_after_its_cutoffs(forecaster, start):
    frame = panel_frame()
    one, two = (forecaster.backtest(f, start=start) for f in (frame, changed(frame)))
    assert_same(earlier(one), earlier(two))
    assert not np.allclose(one["mean"], two["mean"])


def test_covariates_that_are_known_ahead_count_up_to_the_horizon_and_no_further(forecaster):
    frame = panel_frame()
    other = frame.copy()
    other.loc[other["ds"] >= LATER, "promotion"] = 50.0
    one, two = (forecaster.backtest(f, start=0.5).set_index(["cutoff", "unique_id", "step"]) for f in (frame, other))
    differs = (one["mean"] != two["mean"]).groupby("cutoff").any()
    hour = pd.Timedelta("1h")
    assert not differs[differs.index < LATER - 3 * hour].any()
    assert differs[LATER - 3 * hour]  # its third step is the first hour that was changed


@pytest.mark.filterwarnings("ignore:intervals of")  # of fits on rows that were changed
@pytest.mark.parametrize("refit", [True, 20])
def test_a_backtest_that_fits_anew_sees_nothing_after_each_fit(refit):
    frame = wave_frame(240)[["time", "load", "heat"]]
    forecaster = tiny().fit(frame[:110], target="load", time="time", past=["heat"])
    start = frame["time"][140 if refit is True else 110]
    step = 3 if refit is True else 1
    one, two = (
        forecaster.backtest(f, start=start, refit=refit, step=step)
        for f in (frame, changed(frame, "time", ("load", "heat")))
    )
    assert_same(earlier(one), earlier(two))
    fixed = forecaster.backtest(frame, start=start, step=step)
    assert (fixed["cutoff"] == one["cutoff"]).all()
    assert not np.allclose(fixed["mean"], one["mean"])


@pytest.mark.parametrize("rows", [200, 40, 5])
def test_a_new_series_is_scaled_by_what_came_before_its_forecasts(rows):
    """The series was not in training; it is long, begins within the test part, or is shorter than a window."""
    frame = wave_frame(300, seed=5)[["time", "load"]].rename(columns={"time": "ds", "load": "y"})
    old = frame.assign(unique_id="old")
    new = frame.assign(unique_id="new", y=300 * frame["y"])[200 - rows : 200]
    forecaster = tiny().fit(old)
    first = new["ds"].iloc[max(rows // 2, 2)]  # the first hour of the new series that is changed
    other = new.copy()
    other.loc[other["ds"] >= first, "y"] = -7e6
    one, two = (
        forecaster.backtest(pd.concat([old, f]), start="2024-01-04").query("unique_id == 'new'") for f in (new, other)
    )
    early = (one["cutoff"] < first).to_numpy()
    assert early.any()
    numbers = one.columns.drop("y")
    pd.testing.assert_frame_equal(one[early][numbers], two[early][numbers], check_exact=True)


def test_scales_come_from_the_training_part_alone():
    """Validation rows stop and calibrate; what the model reads is scaled by the rows before them."""
    frame = wave_frame(300)[["time", "load"]]
    other = frame.copy()
    other.loc[240:, "load"] += 1000.0  # the newest fifth
    one, two = (tiny().fit(f, target="load", time="time").fitted.preparation for f in (frame, other))
    assert one.to_dict() == two.to_dict()
