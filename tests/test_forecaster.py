"""Forecaster: what comes out, and that it is the same whichever way one asks."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from conftest import TINY, TINY_SDE, ahead_frame, tiny, wave_frame

from itocast import Data, Forecaster, metrics
from itocast.schedule import EFFORTS, Training
from itocast.training import nll

BOUNDS = ["lo-80", "hi-80", "lo-95", "hi-95"]
LAW = ["mean", "median", *BOUNDS, "aleatoric", "epistemic"]
HOUR = pd.Timedelta("1h")


def numbers(frame) -> np.ndarray:
    """The forecasts of a frame as one array."""
    return pd.DataFrame({name: frame[name] for name in LAW}).to_numpy(float)


def shorter(frame: pd.DataFrame, end: pd.Timestamp, ahead: int = 0) -> pd.DataFrame:
    """The rows up to a time, and some later ones without their target."""
    out = frame[frame["ds"] <= end + ahead * HOUR].copy()
    out.loc[out["ds"] > end, ["y", *({"heat"} & set(out))]] = np.nan
    return out


# ---- columns and rows


def test_one_series_has_neither_id_nor_target(single):
    frame, forecaster = single
    ahead = forecaster.predict()
    assert list(ahead) == ["ds", *LAW]
    assert ahead["ds"].tolist() == [frame["ds"].iloc[-1] + h * HOUR for h in (1, 2, 3)]
    test = forecaster.backtest(frame, level=90, quantiles=0.05)
    assert list(test) == [
        "ds",
        "cutoff",
        "step",
        "y",
        "mean",
        "median",
        "lo-90",
        "hi-90",
        "q-0.05",
        "aleatoric",
        "epistemic",
    ]
    np.testing.assert_allclose(test["lo-90"], test["q-0.05"])


def test_many_series_have_an_id_and_many_targets_a_name(panel, wave_forecaster):
    frame, forecaster = panel
    ahead = forecaster.predict(future=ahead_frame(frame), level=(), quantiles=[0.1, 0.9])
    assert list(ahead) == ["unique_id", "ds", "mean", "median", "q-0.1", "q-0.9", "aleatoric", "epistemic"]
    assert ahead["unique_id"].tolist() == [name for name in "abc" for _ in range(3)]
    test = wave_forecaster.backtest(wave_frame())
    assert list(test) == ["time", "target", "cutoff", "step", "y", *LAW]
    ahead = wave_forecaster.predict()
    assert list(ahead) == ["time", "target", *LAW]
    assert ahead["target"].tolist() == ["load", "price"] * 3
    assert (ahead["time"].diff()[2::2] == HOUR).all()


def test_polars_in_polars_out_with_the_same_numbers(panel):
    frame, forecaster = panel
    future = ahead_frame(frame)
    polars = tiny(model=TINY_SDE).fit(pl.from_pandas(frame), past=["heat"], future=["promotion"], static=["place"])
    ahead = polars.predict(future=pl.from_pandas(future))
    assert isinstance(ahead, pl.DataFrame)
    assert ahead.columns == ["unique_id", "ds", *LAW]
    assert isinstance(ahead.schema["ds"], pl.Datetime)
    assert ahead.schema["unique_id"] == pl.String
    np.testing.assert_array_equal(numbers(ahead), numbers(forecaster.predict(future=future)))
    test = polars.backtest(pl.from_pandas(frame), start=0.9)
    assert isinstance(test, pl.DataFrame)
    assert test.columns == ["unique_id", "ds", "cutoff", "step", "y", *LAW]
    same = forecaster.backtest(frame, start=0.9)
    np.testing.assert_array_equal(test["cutoff"].to_numpy(), same["cutoff"].to_numpy())
    np.testing.assert_array_equal(numbers(test), numbers(same))
    scores = polars.evaluate(pl.from_pandas(frame), start=0.9)
    assert isinstance(scores, pl.DataFrame)
    assert scores.columns == ["by", "of", "forecasts", *metrics.METRICS]
    paths = polars.predict(future=future, paths=2)
    assert isinstance(paths, pl.DataFrame)
    assert paths.columns == ["unique_id", "ds", "path", "y"]


def test_zones_come_back(single):
    frame = single[0].assign(ds=single[0]["ds"].dt.tz_localize("Europe/Berlin"))
    zoned = tiny().fit(frame)
    assert zoned.predict()["ds"].tolist() == [frame["ds"].iloc[-1] + h * HOUR for h in (1, 2, 3)]
    assert str(zoned.predict()["ds"].dt.tz) == "Europe/Berlin"
    assert str(zoned.backtest(frame)["cutoff"].dt.tz) == "Europe/Berlin"
    polars = zoned.predict(pl.from_pandas(frame))
    assert polars.schema["ds"].time_zone == "Europe/Berlin"
    assert polars["ds"].to_list() == zoned.predict()["ds"].tolist()


@pytest.mark.filterwarnings("ignore:intervals of 95 % held")  # after one epoch, without calibration
@pytest.mark.parametrize("labels", [[7, 3], [7.5, 3.0], ["NA", "None"], ["x", "X"]])
def test_ids_come_back_as_they_were(tmp_path, labels):
    frame = pd.concat([wave_frame(40)[["time", "load"]].assign(shop=label) for label in labels])
    forecaster = tiny(calibration=None).fit(frame, target="load", time="time", id="shop")
    forecaster.save(tmp_path)
    for one in (forecaster, Forecaster.load(tmp_path)):
        assert one.predict()["shop"].drop_duplicates().tolist() == labels
        assert one.predict(frame)["shop"].drop_duplicates().tolist() == labels


def test_whole_numbers_as_times_and_rows_in_their_order(single):
    frame = single[0]
    steps = tiny().fit(frame.assign(ds=5 * np.arange(len(frame)) + 2))
    assert steps.predict()["ds"].tolist() == [1502, 1507, 1512]
    order = tiny().fit(frame[["y"]], time=None)
    assert order.predict()["ds"].tolist() == [300, 301, 302]
    np.testing.assert_allclose(numbers(steps.predict()), numbers(order.predict()))


@pytest.mark.parametrize("name", ["mean", "y", "ds", "cutoff", "step", "path", "lo-80"])
def test_names_of_a_users_columns_do_not_hide_results(name):
    frame = wave_frame(60)[["time", "load"]].assign(**{name: "shop"})
    if name == "ds":  # not a name of results where the time has a name of its own
        forecaster = tiny(calibration=None).fit(frame, target="load", time="time", id=name)
        assert (forecaster.predict()["ds"] == "shop").all()
        return
    with pytest.raises(ValueError, match=f"column {name!r}.*rename"):
        tiny().fit(frame, target="load", time="time", id=name)


# ---- laws


def test_bounds_are_ordered_and_hold_the_median(panel):
    frame, forecaster = panel
    with pytest.warns(UserWarning, match="independent outcomes .* intervals of 99 % need at least 99"):
        test = forecaster.backtest(frame, start=0.7, level=[50, 80, 95, 99], quantiles=[0.01, 0.3, 0.7])
    order = ["lo-99", "lo-95", "lo-80", "lo-50", "q-0.3", "median", "q-0.7", "hi-50", "hi-80", "hi-95", "hi-99"]
    values = test[order].to_numpy()
    assert (np.diff(values, axis=1) >= 0).all()
    assert np.isfinite(test[LAW].to_numpy(float)).all()
    assert (test["epistemic"] > 0).all()
    assert (test["aleatoric"] > 0).all()


def test_the_frame_is_a_summary_of_the_laws(panel):
    frame, forecaster = panel
    future = ahead_frame(frame)
    law, ahead = forecaster.predict_distribution(future=future), forecaster.predict(future=future)
    assert law.shape == (3, 3, 1)
    np.testing.assert_allclose(ahead["mean"], law.mean.reshape(-1))
    np.testing.assert_allclose(ahead["median"], law.quantile(0.5).reshape(-1))
    np.testing.assert_allclose(ahead["hi-95"], law.quantile(0.975).reshape(-1))
    variance = ahead["aleatoric"] ** 2 + ahead["epistemic"] ** 2
    np.testing.assert_allclose(variance, law.variance.reshape(-1))


def test_series_of_very_different_scales_are_forecast_alike(panel):
    frame, forecaster = panel
    test = forecaster.backtest(frame)
    level = frame.groupby("unique_id")["y"].mean()
    relative = test.assign(
        miss=(test["mean"] - test["y"]).abs() / test["unique_id"].map(level),
        width=(test["hi-80"] - test["lo-80"]) / test["unique_id"].map(level),
    ).groupby("unique_id")
    assert (relative["miss"].mean() < 0.2).all()
    assert relative["width"].mean().max() < 3 * relative["width"].mean().min()


def test_constant_series_are_forecast_as_constant():
    frame = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=120, freq="D"), "y": 5.0})
    ahead = tiny(training={"epochs": 20}).fit(frame).predict()
    assert np.isfinite(numbers(ahead)).all()
    np.testing.assert_allclose(ahead["mean"], 5.0, atol=0.5)


def test_it_learns_a_wave():
    """After some epochs most of a wave's variance is explained and the 80 % intervals hold about as much."""
    frame = wave_frame(700)[["time", "load"]]
    forecaster = tiny(2, window=24, training={"epochs": 12}).fit(frame[:560], target="load", time="time")
    scores = forecaster.evaluate(frame, start=0.8).iloc[0]
    assert scores["r2"] > 0.9
    assert 0.65 < scores["coverage_80"] < 0.93


@pytest.mark.parametrize("support", ["positive", "unit"])
def test_bounds_stay_inside_the_support(support):
    random = np.random.default_rng(0)
    y = random.beta(0.3, 1.0, 200) * (1 if support == "unit" else 5)
    y[::7] = 0.0
    frame = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=200, freq="D"), "y": y})
    forecaster = tiny(support=support, model=TINY_SDE).fit(frame)
    high = {"positive": np.inf, "unit": 1.0}[support]
    with pytest.warns(UserWarning, match=r"13 independent outcomes .* 99\.9 % need at least 999"):
        both = forecaster.predict(level=99.9), forecaster.backtest(frame, level=99.9)
    for found in both:
        values = found[["mean", "median", "lo-99.9", "hi-99.9"]].to_numpy()
        assert values.min() >= 0
        assert values.max() <= high
        assert (found["lo-99.9"] == 0).any()  # it would have gone below
    paths = forecaster.predict(paths=200)["y"]
    assert paths.between(0, high).all()
    assert np.isfinite(forecaster.evaluate(frame)["crps"]).all()


# ---- the same numbers, whichever way


@pytest.mark.parametrize("cut", [150, 163, 196])
def test_a_backtest_is_what_predict_said_at_the_time(panel, cut):
    frame, forecaster = panel
    end = frame["ds"][cut]
    then = forecaster.predict(shorter(frame, end, ahead=3))
    test = forecaster.backtest(frame, start=0.5).query("cutoff == @end")
    assert then["ds"].tolist() == test["ds"].tolist()
    np.testing.assert_allclose(numbers(then), numbers(test), rtol=2e-4)


def test_the_outcomes_of_a_backtest_are_those_of_the_table(panel):
    frame, forecaster = panel
    test = forecaster.backtest(frame, start=0.5, step=4)
    truth = test.merge(frame, on=["unique_id", "ds"], suffixes=("", "_true"))
    assert len(truth) == len(test)
    np.testing.assert_array_equal(truth["y"], truth["y_true"])
    assert (test["ds"] == test["cutoff"] + test["step"] * HOUR).all()
    cutoffs = test.groupby("unique_id")["cutoff"].unique()
    for found in cutoffs:
        assert (np.diff(found) == 4 * HOUR).all()
        assert found[0] == frame["ds"][99]
        assert found[-1] <= frame["ds"].max() - 3 * HOUR


def test_start_as_a_share_and_as_a_time(single):
    frame, forecaster = single
    share, time = forecaster.backtest(frame, start=0.9), forecaster.backtest(frame, start=str(frame["ds"][269]))
    pd.testing.assert_frame_equal(share, time)
    assert share["ds"].min() == frame["ds"][270]
    assert share["ds"].max() == frame["ds"].max()
    pd.testing.assert_frame_equal(share, forecaster.backtest(frame, start=np.float32(0.9)))


def test_predict_without_a_table_goes_on_from_the_end_of_training(panel, single, wave_forecaster):
    frame, forecaster = panel
    future = ahead_frame(frame)
    np.testing.assert_allclose(
        numbers(forecaster.predict(future=future)), numbers(forecaster.predict(frame, future=future)), rtol=2e-4
    )
    np.testing.assert_allclose(numbers(single[1].predict()), numbers(single[1].predict(single[0])), rtol=2e-4)
    again = wave_forecaster.predict(wave_frame())
    np.testing.assert_allclose(numbers(wave_forecaster.predict()), numbers(again), rtol=2e-4)


def test_future_covariates_in_a_table_of_their_own_or_in_rows_without_target(panel):
    frame, forecaster = panel
    future = ahead_frame(frame, value=1.0)
    one = forecaster.predict(frame, future=future)
    two = forecaster.predict(pd.concat([frame, future.assign(place=future["unique_id"].map(PLACES))]))
    np.testing.assert_array_equal(numbers(one), numbers(two))
    more = forecaster.predict(frame, future=ahead_frame(frame, 30, value=1.0).sample(frac=1, random_state=0))
    np.testing.assert_array_equal(numbers(one), numbers(more))
    other = forecaster.predict(frame, future=ahead_frame(frame, value=0.0))
    assert not np.allclose(one["mean"], other["mean"], rtol=1e-6)


PLACES = {"a": "sea", "b": "hill", "c": "sea"}


def test_future_covariates_that_came_with_training(panel):
    frame, forecaster = panel
    train = pd.concat([frame, ahead_frame(frame).assign(place=ahead_frame(frame)["unique_id"].map(PLACES))])
    fitted = tiny(model=TINY_SDE).fit(train, past=["heat"], future=["promotion"], static=["place"])
    assert fitted.fitted.context.times.max() == frame["ds"].max().value // 1000  # rows without targets are no context
    np.testing.assert_array_equal(
        numbers(fitted.predict(future=ahead_frame(frame))), numbers(forecaster.predict(future=ahead_frame(frame)))
    )


def test_the_order_of_rows_and_of_series_changes_nothing(panel):
    frame, forecaster = panel
    mixed = frame.sample(frac=1, random_state=1)
    future = ahead_frame(frame)
    one = forecaster.predict(frame, future=future).sort_values(["unique_id", "ds"])
    two = forecaster.predict(mixed, future=future).sort_values(["unique_id", "ds"])
    np.testing.assert_allclose(numbers(one), numbers(two), rtol=2e-4)
    single_series = frame[frame["unique_id"] == "b"]
    alone = forecaster.predict(single_series, future=future)
    np.testing.assert_allclose(numbers(alone), numbers(one[one["unique_id"] == "b"]), rtol=2e-4)


def test_a_forecast_needs_no_more_than_the_last_window_and_what_was_a_day_ago(single):
    frame, forecaster = single
    assert forecaster.fitted.preparation.reach == 24
    whole = forecaster.predict(frame)
    np.testing.assert_allclose(numbers(forecaster.predict(frame.tail(24))), numbers(whole), rtol=2e-4)
    assert not np.allclose(numbers(forecaster.predict(frame.tail(23))), numbers(whole), rtol=2e-4)


@pytest.mark.parametrize("size", [1, 100])
def test_the_size_of_chunks_changes_nothing(panel, monkeypatch, size):
    frame, forecaster_ = panel
    test, scores = forecaster_.backtest(frame, start=0.9), forecaster_.evaluate(frame, start=0.9)
    monkeypatch.setattr("itocast.fitted.Fitted.at_once", size)
    np.testing.assert_allclose(numbers(forecaster_.backtest(frame, start=0.9)), numbers(test), rtol=2e-4)
    small = forecaster_.evaluate(frame, start=0.9)
    assert (small["of"] == scores["of"]).all()
    np.testing.assert_allclose(small.iloc[:, 2:].to_numpy(float), scores.iloc[:, 2:].to_numpy(float), rtol=1e-4)


def test_the_same_seed_gives_the_same_numbers_and_another_does_not(single):
    frame = single[0]
    one, two, other = (tiny(model=TINY_SDE, seed=seed).fit(frame).predict() for seed in (3, 3, 4))
    np.testing.assert_array_equal(numbers(one), numbers(two))
    assert not np.allclose(numbers(one), numbers(other))


def test_the_callers_frame_is_left_alone(panel):
    frame, forecaster = panel
    before = frame.copy()
    forecaster.backtest(frame)
    forecaster.predict(frame, future=ahead_frame(frame))
    pd.testing.assert_frame_equal(frame, before)


# ---- scores


def test_evaluate_scores_the_laws_of_the_backtest(panel):
    frame, forecaster = panel
    scores = forecaster.evaluate(frame, start=0.9)
    assert list(scores) == ["by", "of", "forecasts", *metrics.METRICS]
    assert scores["by"].tolist() == ["all"] + ["step"] * 3 + ["series"] * 3
    assert scores["of"].tolist() == ["", "1", "2", "3", "a", "b", "c"]
    table = forecaster.reader.read(frame)[0]
    windows = forecaster.fitted.preparation.windows(table, after=table.cutoff(0.9))
    law, y = forecaster.fitted.law(windows), windows.actuals()
    series = windows.numbers.series[windows.origins].numpy()
    expected = [metrics.evaluate(law, y)]
    expected += [metrics.evaluate(law.select(step, 0), y[:, [step]]) for step in range(3)]
    expected += [metrics.evaluate(law[series == i], y[series == i]) for i in range(3)]
    for row, want in zip(scores.to_dict("records"), expected, strict=True):
        assert {name: row[name] for name in want} == pytest.approx(want, rel=1e-5), (row["by"], row["of"])
    assert scores["forecasts"].tolist() == [3 * len(y), *[len(y)] * 3, *[len(y)] * 3]


def test_scores_agree_with_the_columns_of_the_backtest(single):
    frame, forecaster = single
    test, scores = forecaster.backtest(frame), forecaster.evaluate(frame)
    whole = scores.iloc[0]
    assert whole["forecasts"] == len(test)
    assert whole["rmse"] == pytest.approx(np.sqrt(((test["y"] - test["mean"]) ** 2).mean()), rel=1e-6)
    inside = test["y"].between(test["lo-80"], test["hi-80"])
    assert whole["coverage_80"] == pytest.approx(inside.mean(), abs=1e-9)
    for step in (1, 2, 3):
        share = inside[test["step"] == step].mean()
        assert scores[scores["of"] == str(step)]["coverage_80"].item() == pytest.approx(share)


def test_a_long_evaluation_looks_at_evenly_spaced_cutoffs(single):
    frame, fc = single
    scores = fc.evaluate(frame, start=0.2, most=60)
    assert scores["forecasts"].tolist() == [60, 20, 20, 20]


# ---- fitting anew


def test_refit_is_a_fit_on_the_rows_up_to_each_cutoff(single):
    frame, forecaster = single
    start = frame["ds"][281]
    test = forecaster.backtest(frame, start=start, step=8, refit=True)
    cutoffs = test["cutoff"].unique()
    assert cutoffs.tolist() == [frame["ds"][281], frame["ds"][289]]
    for cutoff in cutoffs:
        again = Forecaster(3, window=4, model=forecaster.recipe.build, training={"epochs": 2})
        ahead = again.fit(frame[frame["ds"] <= cutoff]).predict()
        np.testing.assert_allclose(numbers(ahead), numbers(test[test["cutoff"] == cutoff]), rtol=2e-4)


def test_refit_at_every_so_many_cutoffs(single):
    frame, forecaster = single
    often, seldom = (forecaster.backtest(frame, start=0.93, step=5, refit=refit) for refit in (1, 2))
    assert often["cutoff"].tolist() == seldom["cutoff"].tolist()
    same = np.isclose(often["mean"], seldom["mean"], rtol=1e-6).reshape(-1, 3).all(1)
    assert same[::2].all()
    assert not same[1::2].any()


def test_refit_leaves_the_forecaster_as_it_was(single):
    frame, forecaster = single
    before = numbers(forecaster.predict())
    forecaster.evaluate(frame, start=0.95, refit=10)
    np.testing.assert_array_equal(numbers(forecaster.predict()), before)


# ---- going on with new rows


@pytest.fixture
def half(panel):
    """Fitted on the first 120 hours of the panel."""
    frame = panel[0]
    early = frame[frame["ds"] <= frame["ds"][119]]
    return frame, tiny(model=TINY_SDE).fit(early, past=["heat"], future=["promotion"], static=["place"])


def weights(forecaster: Forecaster) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in forecaster.fitted.network.model.state_dict().values()]


def test_update_moves_the_context_and_trains_on(half):
    frame, forecaster = half
    scales = forecaster.fitted.preparation.to_dict()
    new = frame[frame["ds"] > frame["ds"][119]]
    history = forecaster.update(new)
    assert len(history.epochs) >= 1
    assert forecaster.fitted.preparation.to_dict() == scales
    ahead = forecaster.predict(future=ahead_frame(frame))
    assert ahead["ds"].min() == frame["ds"].max() + HOUR
    np.testing.assert_allclose(numbers(ahead), numbers(forecaster.predict(frame, future=ahead_frame(frame))), rtol=2e-4)


@pytest.mark.parametrize("rate", [2e-3, 3.0])
def test_update_is_never_worse_on_the_newest_rows(single, rate):
    """A learning rate that spoils the network is undone."""
    frame = single[0]
    forecaster = tiny(training={"epochs": 3, "learning_rate": rate}, calibration=None).fit(frame[:200])
    if rate > 1:
        longer = tiny(training={"epochs": 5}).fit(frame[:200]).fitted.network.model
        forecaster.fitted.network.model.load_state_dict(longer.state_dict())
    before = weights(forecaster)
    fitted = forecaster.fitted
    table = forecaster.reader.read(frame)[0]
    newest = fitted.preparation.windows(table, after=forecaster.reader.read(frame[200:])[0].cutoff(0.8))
    score = nll(fitted.network.model, newest)
    forecaster.update(frame[200:])
    assert nll(fitted.network.model, newest) <= score + 1e-6
    assert all(map(torch.equal, before, weights(forecaster))) == (rate > 1)


def test_update_with_too_few_rows_moves_the_context_alone(half):
    frame, forecaster = half
    before, laws = weights(forecaster), forecaster.fitted.calibrator.to_dict()
    two = frame[(frame["ds"] > frame["ds"][119]) & (frame["ds"] <= frame["ds"][121])]
    assert forecaster.update(two).epochs == []
    assert all(map(torch.equal, before, weights(forecaster)))
    assert forecaster.fitted.calibrator.to_dict() == laws
    future = ahead_frame(frame[frame["ds"] <= frame["ds"][121]])
    ahead = forecaster.predict(future=future)
    assert ahead["ds"].min() == frame["ds"][122]
    known = forecaster.predict(frame[frame["ds"] <= frame["ds"][121]], future=future)
    np.testing.assert_allclose(numbers(ahead), numbers(known), rtol=2e-4)


def test_update_with_rows_that_are_known_already_changes_nothing(single):
    frame = single[0]
    forecaster = tiny().fit(frame)
    before = numbers(forecaster.predict())
    forecaster.update(frame.tail(3))
    np.testing.assert_allclose(numbers(forecaster.predict()), before, rtol=2e-4)
    forecaster.update(frame.head(50))
    np.testing.assert_allclose(numbers(forecaster.predict()), before, rtol=2e-4)


def test_update_brings_new_series(half):
    frame, forecaster = half
    new = frame[frame["unique_id"] == "a"].assign(unique_id="d", y=lambda f: 7 * f["y"])
    forecaster.update(new)
    assert forecaster.predict(future=ahead_frame(pd.concat([frame[frame["ds"] <= frame["ds"][119]], new])))[
        "unique_id"
    ].unique().tolist() == ["a", "b", "c", "d"]


def test_update_survives_saving(half, tmp_path):
    frame, forecaster = half
    forecaster.update(frame[frame["ds"] > frame["ds"][119]])
    forecaster.save(tmp_path)
    future = ahead_frame(frame)
    again = Forecaster.load(tmp_path).predict(future=future)
    np.testing.assert_array_equal(numbers(again), numbers(forecaster.predict(future=future)))


# ---- new series and categories


def test_new_series_and_categories_are_forecast(panel):
    frame, forecaster = panel
    new = frame[frame["unique_id"] == "b"].assign(unique_id="z", place="moon", y=lambda f: f["y"] * 50)
    ahead = forecaster.predict(new, future=ahead_frame(new))
    assert ahead["unique_id"].unique().tolist() == ["z"]
    assert ahead["mean"].between(new["y"].min() * 0.5, new["y"].max() * 2).all()
    test = forecaster.backtest(new)
    assert np.isfinite(numbers(test)).all()


# ---- what is missing


def test_missing_targets_covariates_and_times(panel):
    frame, _ = panel
    random = np.random.default_rng(4)
    holes = frame.copy()
    for name in ("y", "heat", "promotion"):
        holes.loc[random.uniform(size=len(frame)) < 0.1, name] = np.nan
    holes.loc[random.uniform(size=len(frame)) < 0.1, "place"] = holes["place"]
    holes = holes[(random.uniform(size=len(frame)) > 0.05) | (frame["ds"] == frame["ds"].max())]
    last = holes["ds"] == frame["ds"].max()
    holes.loc[last, "y"] = frame["y"][holes.index[last]]
    forecaster = tiny(model=TINY_SDE).fit(holes, past=["heat"], future=["promotion"], static=["place"])
    ahead = forecaster.predict(future=ahead_frame(frame))
    assert np.isfinite(numbers(ahead)).all()
    assert ahead["ds"].min() == frame["ds"].max() + HOUR
    test = forecaster.backtest(holes)
    assert np.isfinite(numbers(test)).all()
    assert test["y"].isna().any()  # hours that are not in the table are forecast, and have no outcome
    scores = forecaster.evaluate(holes)
    assert scores["forecasts"][0] == test["y"].notna().sum()
    assert np.isfinite(scores["crps"]).all()


def test_what_was_last_seen_long_ago_is_the_same_with_and_without_the_table():
    """A covariate and one of two targets have been missing for longer than the window."""
    frame = wave_frame(200)
    frame.loc[185:, ["heat", "price"]] = np.nan
    frame.loc[40:60, ["heat", "price"]] = np.nan
    forecaster = tiny(model=TINY_SDE).fit(frame, target=["load", "price"], time="time", past=["heat"])
    np.testing.assert_allclose(numbers(forecaster.predict()), numbers(forecaster.predict(frame)), rtol=2e-4)


@pytest.mark.parametrize("gaps", ["auto", "fill", "keep"])
def test_missing_hours_near_the_end_count_the_same_in_a_short_table(single, gaps):
    """Whether missing times become rows was settled in training, not by the rows that a forecast is made from."""
    frame = single[0].drop(index=[100, 292, 296, 297])
    forecaster = tiny(data={"gaps": gaps}).fit(frame)
    whole = forecaster.predict(frame)
    assert whole["ds"].min() == frame["ds"].max() + HOUR
    few = frame.tail(8 if gaps == "keep" else 24)  # where rows are even, what was a day ago is read too
    np.testing.assert_allclose(numbers(forecaster.predict(few)), numbers(whole), rtol=2e-4)
    np.testing.assert_allclose(numbers(forecaster.predict()), numbers(whole), rtol=2e-4)


def test_irregular_times_are_taken_as_they_are():
    random = np.random.default_rng(0)
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.cumsum(random.integers(1, 600, 300)), unit="min")
    frame = pd.DataFrame({"ds": times, "y": random.standard_normal(300)})
    forecaster = tiny().fit(frame)
    assert forecaster.fitted.preparation.irregular
    test = forecaster.backtest(frame)
    assert set(test["ds"]) <= set(times)
    assert np.isfinite(numbers(test)).all()
    assert len(forecaster.predict()) == 3


def test_repeated_times_by_policy(single):
    frame = pd.concat([single[0], single[0].tail(5).assign(y=0.0)])
    last = tiny(data=Data(repeated="last")).fit(frame).fitted.context
    assert last.y[-1].item() == 0.0
    first = tiny(data=Data(repeated="first")).fit(frame).fitted.context
    assert first.y[-1].item() == single[0]["y"].iloc[-1]


# ---- saved and read back


def test_a_saved_forecaster_says_the_same_in_another_process(panel, tmp_path):
    frame, forecaster = panel
    forecaster.save(tmp_path / "model")
    frame.to_parquet(tmp_path / "table.parquet")
    ahead_frame(frame).to_csv(tmp_path / "future.csv", index=False)
    code = (
        "import json, torch, itocast\n"
        "torch.set_num_threads(1)\n"
        "f = itocast.Forecaster.load('model')\n"
        "table = 'table.parquet'\n"
        "ahead = f.predict(future='future.csv')\n"
        "paths = f.predict(future='future.csv', paths=2)\n"
        "test = f.backtest(table, start=0.9)\n"
        f"print(json.dumps([ahead[{LAW}].values.tolist(), test[{LAW}].values.tolist(), paths['y'].tolist()]))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ahead, test, paths = json.loads(done.stdout)
    future = ahead_frame(frame)
    np.testing.assert_array_equal(ahead, numbers(forecaster.predict(future=future)))
    np.testing.assert_array_equal(test, numbers(forecaster.backtest(frame, start=0.9)))
    np.testing.assert_array_equal(paths, forecaster.predict(future=future, paths=2)["y"])


def test_a_forecaster_that_was_read_back_can_be_fitted_anew_and_updated(panel, tmp_path):
    frame, forecaster = panel
    forecaster.save(tmp_path)
    again = Forecaster.load(tmp_path)
    refitted = again.backtest(frame, start=0.97, refit=True, step=2)
    np.testing.assert_allclose(
        numbers(refitted), numbers(forecaster.backtest(frame, start=0.97, refit=True, step=2)), rtol=2e-4
    )
    assert again.recipe.data == forecaster.recipe.data
    assert dict(again.recipe.training) == dict(forecaster.recipe.training)


def test_saving_twice_gives_the_same_bytes(single, tmp_path):
    for name in ("one", "two"):
        single[1].save(tmp_path / name)
    for file in ("manifest.json", "weights.safetensors"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_a_range_is_taken_from_the_targets_until_they_leave_it():
    """Rain: half of the hours are dry, none is below 0."""
    hours = np.arange(400)
    rain = np.maximum(np.sin(hours * 2 * np.pi / 24) + 0.3 * np.random.default_rng(0).standard_normal(400), 0)
    frame = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=400, freq="h"), "y": rain})
    forecaster = tiny().fit(frame[:300])
    assert (forecaster.recipe.support, forecaster.fitted.support) == ("auto", "positive")
    assert (forecaster.predict(level=95)["lo-95"] >= 0).all()
    assert tiny().fit(frame[:300].assign(y=rain[:300] + 1)).fitted.support == "real"
    assert tiny(support="real").fit(frame[:300]).fitted.support == "real"
    forecaster.update(frame[300:].assign(y=rain[300:] - 0.5))
    assert forecaster.fitted.support == "real"
    assert forecaster.predict(level=95)["lo-95"].min() < 0


def test_more_effort_is_a_longer_run():
    epochs = {effort: Training.suited(10_000, effort).epochs for effort in EFFORTS}
    assert epochs["fast"] < epochs["balanced"] < epochs["best"]
    assert Training.suited(10_000, "best", epochs=3).epochs == 3
    frame = wave_frame(300)
    runs = {
        effort: Forecaster(window=4, effort=effort, model=TINY).fit(frame, target="load", time="time").fitted.history
        for effort in ("fast", "balanced")
    }
    assert len(runs["fast"].epochs) < len(runs["balanced"].epochs)
