"""After the epoch is chosen the held-out rows are learned from too, and none is forecast by weights that know it."""

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import TINY, TINY_SDE, panel_frame, tiny, wave_frame

from itocast import Forecaster, Training, export
from itocast import training as module

LONG = {"epochs": 4, "finish": 1.0}
WAVE = wave_frame(300)


def waves(horizon: int = 1, **settings) -> Forecaster:
    forecaster = tiny(horizon, **{"training": LONG} | settings)
    return forecaster.fit(WAVE[["time", "load"]], target="load", time="time")


def states(model) -> dict:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(states(one).values(), states(other).values(), strict=True))


@pytest.mark.parametrize("horizon", [1, 3])
def test_each_part_is_forecast_by_the_model_that_had_not_learned_from_it(horizon):
    forecaster = waves(horizon, calibration=None)
    fitted = forecaster.fitted
    table = forecaster.reader.read(WAVE)[0]
    ends = [one.end for one in fitted.earlier]
    assert fitted.held < ends[0] < ends[1] == table.times.max()
    held = fitted.preparation.windows(table, after=fitted.held)
    law, first = fitted.raw(held), held.spans()[0]
    for begin, (model, end) in zip((fitted.held, ends[0]), fitted.earlier, strict=True):
        mask = ((first > begin) & (first <= end)).numpy()
        assert mask.sum() > 20
        alone = fitted.changed(lambda _, model=model: model).raw(held.only(mask))
        torch.testing.assert_close(alone.means, law[torch.from_numpy(mask)].means, rtol=0, atol=0)
    ahead = fitted.preparation.ahead(table)[0]
    now = fitted.changed(lambda _: fitted.model).raw(ahead)
    torch.testing.assert_close(fitted.raw(ahead).means, now.means, rtol=0, atol=0)
    assert not same(fitted.earlier[0].model, fitted.earlier[1].model)
    assert not same(fitted.earlier[1].model, fitted.model)


def test_a_part_that_comes_later_does_not_change_what_was_learned_before():
    """Outcomes of the last rows are exchanged: models that had not learned from them are the same to the last digit."""
    settings = {"model": TINY, "calibration": None, "training": {"epochs": 4, "finish": 1.0, "learning_rate": 2e-3}}
    one = waves(**settings).fitted
    other_frame = WAVE.copy()
    other_frame.loc[290:, "load"] += 3.0
    other = tiny(1, **settings).fit(other_frame[["time", "load"]], target="load", time="time").fitted
    assert one.history.best == other.history.best == 4
    assert [a.end for a in one.earlier] == [a.end for a in other.earlier]
    assert all(same(a.model, b.model) for a, b in zip(one.earlier, other.earlier, strict=True))
    assert not same(one.model, other.model)


def test_it_learns_what_only_the_newest_rows_show():
    """Each value is the opposite of the one before, from where the rows that are held out begin on."""
    rows, random = 1500, np.random.default_rng(0)
    y = np.zeros(rows)
    for i in range(1, rows):
        y[i] = (0.9 if i < 0.8 * rows else -0.9) * y[i - 1] + random.standard_normal()
    frame = pd.DataFrame({"time": np.arange(rows), "load": y})
    errors = []
    for share in (0.0, 1.0):
        forecaster = tiny(1, training={"epochs": 20, "finish": share}, calibration=None)
        fitted = forecaster.fit(frame, target="load", time="time").fitted
        newest = fitted.preparation.windows(forecaster.reader.read(frame)[0], after=fitted.held)
        law = fitted.changed(lambda _, now=fitted.model: now).raw(newest)
        errors.append((law.mean - newest.actuals()).square().mean().item())
    assert errors[1] < 0.7 * errors[0]


@pytest.mark.parametrize(
    "training", [{"epochs": 4, "finish": 0.0}, {"epochs": 1}, {"epochs": 4, "matching": 1}, Training.paper(epochs=4)]
)
def test_none_if_it_is_not_wanted_or_too_short_or_would_undo_matching(training):
    fitted = waves(training=training).fitted
    assert fitted.earlier == fitted.history.last == []


def test_backtests_and_forecasts_survive_saving(tmp_path):
    forecaster = waves(2, model=TINY_SDE)
    forecaster.save(tmp_path)
    again = Forecaster.load(tmp_path)
    assert [one.end for one in again.fitted.earlier] == [one.end for one in forecaster.fitted.earlier]
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

    monkeypatch.setattr("itocast.fitted.finish", finish)
    with pytest.warns(UserWarning, match="held-out rows were not learned from .interrupted"):
        fitted = waves().fitted
    assert len(fitted.earlier) == kept
    assert same(fitted.model, waves_without_interruption(monkeypatch, kept))


def waves_without_interruption(monkeypatch, parts: int):
    """The model after so many parts of the held-out rows."""
    monkeypatch.undo()
    fitted = waves().fitted
    return fitted.earlier[parts].model


def test_the_same_seed_gives_the_same_weights_and_another_one_others():
    one, again, other = (waves(seed=seed).fitted for seed in (0, 0, 1))
    assert same(one.model, again.model)
    assert not same(one.model, other.model)


def test_an_update_learns_from_its_own_held_out_rows():
    frame = panel_frame(240)[["unique_id", "ds", "y"]]
    middle = frame["ds"].sort_values().iloc[len(frame) // 2]
    forecaster = tiny(1, training={"epochs": 20, "finish": 1.0}).fit(frame[frame["ds"] <= middle])
    before = [one.end for one in forecaster.fitted.earlier]
    history = forecaster.update(frame[frame["ds"] > middle])
    ends = [one.end for one in forecaster.fitted.earlier]
    assert history.last
    assert ends[-1] == forecaster.fitted.context.times.max() > before[-1]
    assert forecaster.fitted.held < ends[0]


def test_an_exported_graph_is_the_model_as_it_is_now(tmp_path):
    from onnxruntime import InferenceSession

    forecaster = waves(2, model=TINY_SDE)
    assert forecaster.fitted.earlier
    export.to_onnx(forecaster, tmp_path / "model.onnx", levels=[0.5])
    arrays = export.inputs(forecaster, WAVE)
    mean = InferenceSession(tmp_path / "model.onnx").run(["mean"], arrays)[0]
    np.testing.assert_allclose(mean.reshape(-1), forecaster.predict()["mean"], rtol=1e-4)


def test_the_doctor_tries_changes_on_forecasts_of_every_model():
    forecaster = waves(1, model=TINY_SDE)
    tried = forecaster.diagnose(WAVE).trials
    assert all(tried[name]["moves"]["mean"] > 0 for name in ("four times the paths", "half the step"))
