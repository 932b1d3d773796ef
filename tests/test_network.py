"""What is trained and by which stage of it a row is forecast: none by weights or a correction that know its outcome."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import TINY, TINY_SDE, panel_frame, tiny, wave_frame

from itocast import Forecaster, Training, export
from itocast import training as module
from itocast.data.holdout import NEVER
from itocast.data.windows import Windows
from itocast.fitted import FOLDS, Fitted

LONG = {"epochs": 4, "finish": 1.0}
WAVE = wave_frame(300)


def waves(horizon: int = 1, **settings) -> Forecaster:
    forecaster = tiny(horizon, **{"training": LONG} | settings)
    return forecaster.fit(WAVE[["time", "load"]], target="load", time="time")


def states(model) -> dict:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(states(one).values(), states(other).values(), strict=True))


def held_windows(forecaster: Forecaster, frame: pd.DataFrame) -> Windows:
    """The forecasts of rows that were held out."""
    fitted, table = forecaster.fitted, forecaster.reader.read(frame)[0]
    return fitted.preparation.windows(table, after=fitted.held.rows(table))


def ends(fitted: Fitted) -> list[list[int]]:
    """Where each part of the held-out rows ends, in each series."""
    return [stage.end.instants.tolist() for stage in fitted.network.stages]


# ---- stages


@pytest.mark.parametrize("horizon", [1, 3])
def test_each_part_is_forecast_by_the_stage_that_had_not_learned_from_it(horizon):
    forecaster = waves(horizon, calibration=None)
    fitted, net = forecaster.fitted, forecaster.fitted.network
    table = forecaster.reader.read(WAVE)[0]
    [begin], ([middle], [end]) = fitted.held.instants, ends(fitted)
    assert begin == table.times[239]
    assert begin < middle < end == table.times.max()
    held = held_windows(forecaster, WAVE)
    law, first = net.law(held), held.spans()[0]
    for after, until, stage in ((begin, middle, net.stages[0]), (middle, end, net.stages[1])):
        mask = ((first > after) & (first <= until)).numpy()
        assert mask.sum() > 20
        alone = net.changed(lambda _, model=stage.model: model).law(held.only(mask))
        torch.testing.assert_close(alone.means, law[torch.from_numpy(mask)].means, rtol=0, atol=0)
    ahead = fitted.preparation.ahead(table)[0]
    now = net.changed(lambda _: net.model).law(ahead)
    torch.testing.assert_close(net.law(ahead).means, now.means, rtol=0, atol=0)
    assert not same(net.stages[0].model, net.stages[1].model)
    assert not same(net.stages[1].model, net.model)


def test_a_series_that_ends_early_is_forecast_by_the_same_weights_as_the_others():
    """One series of 120 rows ends where the newest fifth of the other two has not begun."""
    frame = panel_frame(200)[["unique_id", "ds", "y"]]
    frame = frame[(frame["unique_id"] != "b") | (frame.groupby("unique_id").cumcount() < 120)]
    forecaster = tiny(1, training=LONG, calibration=None).fit(frame)
    fitted, net = forecaster.fitted, forecaster.fitted.network
    hours = forecaster.reader.read(frame)[0].times[:200]
    assert fitted.held.at(["a", "b", "c"]).tolist() == [hours[159], hours[95], hours[159]]
    assert [stage.end.at(["b"]).item() for stage in net.stages] == [hours[108], hours[119]]
    ahead = fitted.preparation.ahead(forecaster.reader.read(frame)[0])[0]
    now = net.changed(lambda _: net.model).law(ahead)
    torch.testing.assert_close(net.law(ahead).means, now.means, rtol=0, atol=0)


def test_a_part_that_comes_later_does_not_change_what_was_learned_before():
    """Outcomes of the last rows are exchanged: stages that had not learned from them are the same to the last digit."""
    settings = {"model": TINY, "calibration": None, "training": {"epochs": 4, "finish": 1.0, "learning_rate": 2e-3}}
    one = waves(**settings).fitted
    other_frame = WAVE.copy()
    other_frame.loc[290:, "load"] += 3.0
    other = tiny(1, **settings).fit(other_frame[["time", "load"]], target="load", time="time").fitted
    assert one.history.best == other.history.best == 4
    assert ends(one) == ends(other)
    stages = zip(one.network.stages, other.network.stages, strict=True)
    assert all(same(a.model, b.model) for a, b in stages)
    assert not same(one.network.model, other.network.model)


@pytest.mark.filterwarnings("ignore:intervals of")  # of a world that has changed
def test_it_learns_what_only_the_newest_rows_show():
    """A covariate counts three times as much from where the rows that are held out begin."""
    rows, random = 1500, np.random.default_rng(0)
    y, x = np.zeros(rows), random.standard_normal(rows)
    for i in range(1, rows):
        y[i] = 0.9 * y[i - 1] + random.standard_normal() + x[i] * (3 if i >= 0.8 * rows else 1)
    frame = pd.DataFrame({"time": np.arange(rows), "load": y, "x": x})
    errors = []
    for share in (0.0, 1.0):
        forecaster = tiny(1, training={"epochs": 20, "finish": share, "batch_size": 32}, calibration=None)
        fitted = forecaster.fit(frame, target="load", time="time", future=["x"]).fitted
        newest = held_windows(forecaster, frame)
        law = fitted.network.changed(lambda _, now=fitted.network.model: now).law(newest)
        errors.append((law.mean - newest.actuals()).square().mean().item())
    assert errors[1] < 0.7 * errors[0]


@pytest.mark.parametrize(
    "training", [{"epochs": 4, "finish": 0.0}, {"epochs": 1}, {"epochs": 4, "matching": 1}, Training.paper(epochs=4)]
)
def test_none_if_it_is_not_wanted_or_too_short_or_would_undo_matching(training):
    fitted = waves(training=training).fitted
    assert fitted.network.stages == fitted.history.last == []


@pytest.mark.parametrize(("best", "epochs"), [(20, 15), (10, 15), (5, 4), (1, 0)])
def test_how_long_it_lasts_follows_from_where_the_best_epoch_was(best, epochs):
    """Twenty epochs over 200 rows are 16 over 250 and 14.5 over 275: half of that each, times min(1, 2 · best / 20)².

    The newest 25 rows count twice: 200 and 50, then 225 and 50.
    """
    forecaster = waves(calibration=None)
    net, table = forecaster.fitted.network, forecaster.reader.read(WAVE[:254])[0]
    train = net.preparation.windows(table, until=table.times[203])
    later = net.preparation.windows(table, after=table.times[203], numbers=train.numbers)
    assert (len(train), len(later)) == (200, 50)
    net.history.epochs = [{"validation": 1.0 + abs(epoch - best)} for epoch in range(1, 21)]
    net.history.last = []
    net.finish(train, later, Training(epochs=20, finish=1.0), nested=False)
    assert len(net.history.last) == epochs


def test_backtests_and_forecasts_survive_saving(tmp_path):
    forecaster = waves(2, model=TINY_SDE)
    forecaster.save(tmp_path)
    again = Forecaster.load(tmp_path)
    assert ends(again.fitted) == ends(forecaster.fitted)
    assert again.fitted.history.last == forecaster.fitted.history.last
    for call in (lambda one: one.backtest(WAVE), lambda one: one.predict()):
        left, right = (call(one).drop(columns="time") for one in (forecaster, again))
        np.testing.assert_array_equal(left.select_dtypes("number"), right.select_dtypes("number"))


@pytest.mark.parametrize(("after", "kept"), [(0, 0), (1, 1)])
def test_interrupted_it_keeps_the_parts_that_were_done(monkeypatch, after, kept):
    """The first epoch of a part does not end: nothing of that part is kept."""
    real, seen = module.finish, []

    def finish(model, rows, settings, *rest):
        if len(seen) == after:
            monkeypatch.setattr(module, "_epoch", interrupt)
        seen.append(rows)
        return real(model, rows, settings, *rest)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("itocast.network.finish", finish)
    with pytest.warns(UserWarning, match="held-out rows were not learned from .interrupted"):
        net = waves().fitted.network
    assert len(net.stages) == kept
    monkeypatch.undo()
    assert same(net.model, waves().fitted.network.stages[kept].model)


def test_the_same_seed_gives_the_same_weights_and_another_one_others():
    one, again, other = (waves(seed=seed).fitted.network.model for seed in (0, 0, 1))
    assert same(one, again)
    assert not same(one, other)


@pytest.mark.parametrize("groups", [["c", "a", "b"], None], ids=["series", "rows"])
def test_the_order_of_rows_and_series_changes_no_digit(groups):
    """Weights, scales and forecasts are the same; forecasts come in the order of the table that was given."""
    frame = panel_frame(150)
    mixed = frame.sample(frac=1, random_state=2)
    if groups:
        mixed = pd.concat([frame[frame["unique_id"] == name] for name in groups])
    names = {"past": ["heat"], "static": ["place"]}
    one, two = (tiny(training=LONG).fit(part, **names) for part in (frame, mixed))
    assert same(one.fitted.network.model, two.fitted.network.model)
    assert one.fitted.preparation.to_dict() == two.fitted.preparation.to_dict()
    ahead = [forecaster.predict() for forecaster in (one, two)]
    assert list(ahead[1]["unique_id"].unique()) == list(mixed["unique_id"].unique()) != ["a", "b", "c"]
    left, right = (part.sort_values(["unique_id", "ds"], ignore_index=True) for part in ahead)
    pd.testing.assert_frame_equal(left, right, check_exact=True)


@pytest.mark.filterwarnings("ignore:intervals of")  # the last run is far too long
def test_an_update_learns_from_its_own_held_out_rows():
    frame = panel_frame(240)[["unique_id", "ds", "y"]]
    middle = frame["ds"].sort_values().iloc[len(frame) // 2]
    forecaster = tiny(1, training={"epochs": 20, "finish": 1.0}).fit(frame[frame["ds"] <= middle])
    before = ends(forecaster.fitted)
    history = forecaster.update(frame[frame["ds"] > middle])
    after = ends(forecaster.fitted)
    assert history.last
    assert set(after[-1]) == {forecaster.fitted.context.times.max()}
    assert min(after[-1]) > max(before[-1])
    assert max(forecaster.fitted.held.instants) < min(after[0])


def test_an_exported_graph_is_the_model_as_it_is_now(tmp_path):
    from onnxruntime import InferenceSession

    forecaster = waves(2)
    assert forecaster.fitted.network.stages
    export.to_onnx(forecaster, tmp_path / "model.onnx", levels=[0.5])
    arrays = export.inputs(forecaster, WAVE)
    mean = InferenceSession(tmp_path / "model.onnx").run(["mean"], arrays)[0]
    np.testing.assert_allclose(mean.reshape(-1), forecaster.predict()["mean"], rtol=1e-4)


def test_the_doctor_tries_changes_on_forecasts_of_every_stage():
    forecaster = waves(1, model=TINY_SDE)
    tried = forecaster.diagnose(WAVE).trials
    assert all(tried[name]["moves"]["mean"] > 0 for name in ("four times the paths", "half the step"))


def test_there_is_no_network_to_look_at_where_the_prior_forecasts_alone():
    fitted = replace(waves().fitted, net=None)
    with pytest.raises(ValueError, match="the prior forecasts alone: no network was trained"):
        _ = fitted.network
    assert fitted.history.epochs == []
    assert (fitted.parameters, fitted.kind) == (0, "prior")


# ---- corrections that had not seen what they correct


def with_outcomes(windows: Windows, rows: torch.Tensor) -> Windows:
    """The same forecasts of rows some of which turned out far off; nothing else is changed."""
    y = windows.numbers.y.clone()
    y[rows] += 40.0
    return replace(windows, numbers=replace(windows.numbers, y=y))


@pytest.mark.parametrize("horizon", [1, 3])
@pytest.mark.parametrize("fold", range(FOLDS))
@pytest.mark.parametrize("name", ["conformal", "auto"])
@pytest.mark.filterwarnings("ignore:intervals of")  # outcomes are changed
def test_a_forecast_is_corrected_by_what_other_outcomes_taught(name, fold, horizon):
    """All outcomes of one part are changed: its laws stay as they are, to the last digit, and later ones do not.

    Of so few outcomes auto has nothing to choose from: what it chooses, it chooses by all of them.
    """
    frame = wave_frame(400)[["time", "load"]]
    forecaster = tiny(horizon, calibration=name).fit(frame, target="load", time="time")
    fitted, table = forecaster.fitted, forecaster.reader.read(frame)[0]
    windows = held_windows(forecaster, frame)
    part = torch.arange(len(windows)) * FOLDS // len(windows) == fold
    other = with_outcomes(windows, windows.steps()[part].unique())
    ahead = fitted.preparation.ahead(table)[0]
    bounds = []
    for taught in (windows, other):
        fitted.calibrate(taught, table.times)
        bounds.append([fitted.law(one).quantile([0.05, 0.95]) for one in (windows, ahead)])
    (before, later), (after, moved) = bounds
    assert torch.equal(before[:, part], after[:, part])
    assert not torch.equal(before[:, ~part], after[:, ~part])
    assert not torch.equal(later, moved)


@pytest.mark.filterwarnings("ignore:intervals of")  # outcomes are changed
@pytest.mark.filterwarnings("ignore:.* independent outcomes calibrate the forecasts")
def test_where_blocks_of_time_share_all_outcomes_series_are_corrected_by_others():
    """Of 50 rows ten are held out: in each series five forecasts of six steps, each of which shares outcomes."""
    names = list("abcdefghijklmnop")
    parts = [wave_frame(50, seed)[["time", "load"]].assign(id=name) for seed, name in enumerate(names)]
    frame = pd.concat(parts)
    forecaster = tiny(6, calibration="conformal").fit(frame, target="load", time="time", id="id")
    fitted, table = forecaster.fitted, forecaster.reader.read(frame)[0]
    windows = held_windows(forecaster, frame)
    assert (len(windows), len(fitted.folds)) == (16 * 5, FOLDS)
    series = windows.numbers.series[windows.origins]
    for one in (0, 6, 15):
        mine = series == one
        before = fitted.law(windows).quantile(0.95)
        fitted.calibrate(with_outcomes(windows, windows.steps()[mine].unique()), table.times)
        after = fitted.law(windows).quantile(0.95)
        assert torch.equal(before[mine], after[mine])
        assert not torch.equal(before[~mine], after[~mine])
        fitted.calibrate(windows, table.times)


def test_parts_follow_one_another_in_each_series_and_survive_saving(tmp_path):
    frame = panel_frame(400)[["unique_id", "ds", "y"]]
    forecaster = tiny(1, calibration="conformal").fit(frame)
    fitted = forecaster.fitted
    assert (len(fitted.folds), len(fitted.edges)) == (FOLDS, FOLDS + 1)
    for label in "abc":
        assert (np.diff([edge.at([label])[0] for edge in fitted.edges]) > 0).all()
    forecaster.save(tmp_path)
    again = Forecaster.load(tmp_path)
    pd.testing.assert_frame_equal(again.backtest(frame), forecaster.backtest(frame), check_exact=True)
    whole = replace(fitted, folds=[], edges=[])
    held = held_windows(forecaster, frame)
    assert not torch.equal(whole.law(held).quantile(0.9), fitted.law(held).quantile(0.9))


def test_what_nothing_was_learned_from_has_the_correction_of_all():
    """Rows before those held out, rows after them, and a series that is new."""
    frame = panel_frame(400)[["unique_id", "ds", "y"]]
    forecaster = tiny(1, calibration="conformal").fit(frame)
    fitted, table = forecaster.fitted, forecaster.reader.read(frame)[0]
    whole = replace(fitted, folds=[], edges=[])
    early = fitted.preparation.windows(table, until=fitted.held.rows(table))
    ahead = fitted.preparation.ahead(table)[0]
    stranger = forecaster.reader.read(frame[frame["unique_id"] == "a"].assign(unique_id="z"))[0]
    assert set(fitted.held.rows(stranger)) == {NEVER}
    new = fitted.preparation.meeting(stranger).windows(stranger)
    for windows in (early, ahead, new):
        assert torch.equal(whole.law(windows).quantile(0.9), fitted.law(windows).quantile(0.9))


def test_few_outcomes_are_not_divided():
    """16 rows held out of 80 are 14 forecasts of 3 steps, of which five share none; of 60 rows they are four."""
    frame = wave_frame(80)[["time", "load"]]
    five = tiny(3).fit(frame, target="load", time="time").fitted
    four = tiny(3).fit(frame[:60], target="load", time="time").fitted
    assert (five.outcomes, len(five.folds)) == (5, FOLDS)
    assert (four.outcomes, len(four.folds)) == (4, 0)
