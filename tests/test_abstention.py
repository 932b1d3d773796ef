"""Abstention: the rate is kept, strange inputs are marked, and the rule travels with the model."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from conftest import TINY, TINY_SDE, ahead_frame, panel_frame, tiny, wave_frame

from itocast import Forecaster, folders
from itocast.abstention import POINTS, Doubt
from itocast.calibration import CALIBRATORS

RATES = (0.01, 0.05, 0.2, 0.5)


def draws(windows, seed: int, factor=1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Variances of forecasts, independent of one another, and an epistemic part of each."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(windows), windows.horizon, windows.numbers.y.shape[1])
    variance = torch.randn(shape, generator=generator, dtype=torch.float64).exp() * factor
    return variance, variance * torch.rand(shape, generator=generator, dtype=torch.float64)


def series(rows: int = 900, seed: int = 0, factor: float = 1.0) -> pd.DataFrame:
    """One wave with the usual names."""
    frame = wave_frame(rows, seed)[["time", "load"]].rename(columns={"time": "ds", "load": "y"})
    return frame.assign(y=factor * frame["y"])


def later(frame: pd.DataFrame, rows: int) -> pd.DataFrame:
    """The same frame, its times some hours later."""
    return frame.assign(ds=frame["ds"] + pd.Timedelta(hours=rows))


def share(forecaster: Forecaster, frame: pd.DataFrame, rate: float = 0.05) -> float:
    """How much is marked from a table's fifth part on."""
    return forecaster.backtest(frame, start=0.2, abstain=rate)["abstain"].mean()


@pytest.fixture(scope="module", params=[TINY_SDE, TINY], ids=["sde_hnn", "hnn"])
def fitted(request) -> Forecaster:
    """A model with an epistemic part, and one without."""
    return tiny(model=request.param, training={"epochs": 3}).fit(series())


# ---- the rule


def test_a_share_of_validation_is_marked_and_as_much_of_what_is_like_it(rows):
    train, validation = rows
    doubt = Doubt.of(train).learned(validation, *draws(validation, 0))
    for rate in RATES:
        marks = doubt.marks(validation, *draws(validation, 0), rate)
        count = marks.numel()
        assert marks.double().mean().item() == pytest.approx(rate, abs=2 / count + 1e-3)
        new = doubt.marks(validation, *draws(validation, 1), rate).double().mean().item()
        assert new == pytest.approx(rate, abs=3.3 * (2 * rate * (1 - rate) / count) ** 0.5)


def test_what_is_marked_at_a_rate_is_marked_at_higher_ones(rows):
    train, validation = rows
    doubt = Doubt.of(train).learned(validation, *draws(validation, 0))
    marks = [doubt.marks(validation, *draws(validation, 1), rate) for rate in RATES]
    for few, more in pairwise(marks):
        assert (few <= more).all()


def test_doubt_grows_with_the_variance_and_with_its_epistemic_part(rows):
    train, validation = rows
    doubt = Doubt.of(train).learned(validation, *draws(validation, 0))
    variance, epistemic = draws(validation, 1)
    base = doubt.score(validation, variance, epistemic)
    for more in ((4 * variance, epistemic), (variance, epistemic + 0.5 * (variance - epistemic))):
        score = doubt.score(validation, *more)
        assert (score >= base).all()
        assert (score > base).double().mean() > 0.9
    assert (doubt.score(validation, 1e6 * variance, epistemic) > doubt.doubts[-1]).all()


def test_a_large_series_is_not_doubted_more_than_a_small_one(panel):
    frame, forecaster = panel
    table = forecaster.reader.read(frame)[0]
    windows = forecaster.fitted.preparation.windows(table)
    number = windows.numbers.series[windows.origins]
    factor = torch.tensor([1.0, 1e6, 1e-3], dtype=torch.float64)[number][:, None, None]
    doubt = Doubt.of(windows).learned(windows, *draws(windows, 0, factor))
    marks = doubt.marks(windows, *draws(windows, 1, factor), 0.2)
    for one in range(3):
        part = marks[number == one].double()
        assert part.mean().item() == pytest.approx(0.2, abs=4 * (2 * 0.16 / part.numel()) ** 0.5)


def test_distances_are_those_of_a_search_without_projection_where_inputs_have_few_features(table):
    """With as many directions as features nothing is left over, and distances are those of scikit-learn."""
    from sklearn.neighbors import NearestNeighbors

    from itocast import Data
    from itocast.abstention import _inputs
    from itocast.data.preparation import Preparation

    windows = Preparation.fit(table, horizon=1, window=1, data=Data(calendar=False, local=False)).windows(table)
    inputs = torch.cat(list(_inputs(windows)))
    assert inputs.shape[1] == 3  # two targets and a covariate
    scaled = ((inputs - inputs.mean(0)) / inputs.std(0, correction=0)).double().numpy()
    expected = NearestNeighbors(n_neighbors=5).fit(scaled).kneighbors(scaled)[0].mean(1)
    np.testing.assert_allclose(Doubt.of(windows).distance(windows), expected, atol=5e-3)  # a product in float32


# ---- a forecaster's rows


def test_strange_inputs_are_marked_far_more_often_than_the_rate(fitted):
    odd = series(900, seed=5)  # a fifth is more than a week: as in training, what was a week ago is known
    assert share(fitted, odd) < 0.12
    assert share(fitted, odd.assign(y=3 * odd["y"])) > 0.9
    swings = odd.assign(y=50 + 30 * (-1.0) ** np.arange(len(odd)))  # no wave at all
    assert share(fitted, swings) > 0.9


def test_one_path_has_no_epistemic_part_and_abstains_all_the_same():
    forecaster = tiny(model="hnn", training={"epochs": 1}).fit(series(400))
    assert (forecaster.fitted.doubt.ladders[1] == 0).all()
    assert 0 < share(forecaster, series(400, seed=1), 0.3) < 0.9


def test_without_abstain_nothing_is_added_and_with_it_only_a_column(fitted):
    frame = series(300, seed=2)
    for ask in (fitted.predict, lambda **options: fitted.backtest(frame, start=0.8, **options)):
        plain, marked = ask(), ask(abstain=0.2)
        assert "abstain" not in plain
        assert list(marked) == [*plain, "abstain"]
        assert marked["abstain"].dtype == bool
        pd.testing.assert_frame_equal(marked.drop(columns="abstain"), plain)


def test_predict_and_backtest_agree(fitted):
    frame = series(300, seed=2)
    test = fitted.backtest(frame, start=0.8, abstain=0.5)
    for cutoff in test["cutoff"].iloc[[0, 30, 60, 90]]:
        ahead = fitted.predict(frame[frame["ds"] <= cutoff], abstain=0.5)
        assert ahead["abstain"].tolist() == test.loc[test["cutoff"] == cutoff, "abstain"].tolist()


def test_refitted_models_have_rules_of_their_own():
    frame = series(200)
    test = tiny().fit(frame).backtest(frame, start=0.95, refit=4, abstain=0.5)
    assert test["abstain"].dtype == bool


def test_courses_have_the_marks_of_their_forecasts(fitted):
    for rate in RATES:
        courses, ahead = fitted.predict(paths=4, abstain=rate), fitted.predict(abstain=rate)
        assert list(courses) == ["ds", "path", "y", "abstain"]
        assert courses["abstain"].tolist() == 4 * ahead["abstain"].tolist()


def test_many_targets_steps_and_covariates(wave_forecaster, panel):
    test = wave_forecaster.backtest(wave_frame(), abstain=0.3)
    by = test.groupby(["target", "step"])["abstain"].mean()
    assert len(by) == 6
    assert by.between(0.05, 0.95).all()  # none is given up, and none is always trusted
    assert by.mean() == pytest.approx(0.3, abs=0.1)
    frame, forecaster = panel
    ahead = forecaster.predict(future=ahead_frame(frame), abstain=0.1)
    assert len(ahead) == 9
    with pytest.warns(UserWarning, match="covariate 'promotion' reads 1000 where training saw 0 to 1: 3 of 3 series"):
        strange = forecaster.predict(future=ahead_frame(frame, value=1000.0), abstain=0.1)
    assert strange["abstain"].all()
    new = pd.concat([frame, panel_frame(seed=3).query("unique_id == 'a'").assign(unique_id="new")])
    assert share(forecaster, new, 0.1) < 1


@pytest.mark.parametrize("calibration", [None, *CALIBRATORS])
def test_every_calibration_and_support(calibration):
    frame = series(500)
    forecaster = tiny(2, model=TINY_SDE, calibration=calibration, support="positive").fit(frame)
    assert 0.1 < forecaster.backtest(frame, abstain=0.25)["abstain"].mean() < 0.4
    assert share(forecaster, frame.assign(y=3 * frame["y"]), 0.25) > 0.9


def test_constant_series_are_marked_without_a_warning():
    frame = series(300).assign(y=7.0)
    forecaster = tiny().fit(frame)
    assert forecaster.predict(abstain=0.05)["abstain"].dtype == bool
    assert share(forecaster, frame) <= 0.5


def test_polars_has_a_boolean_column():
    forecaster = tiny().fit(pl.from_pandas(series(200)))
    assert forecaster.predict(abstain=0.05)["abstain"].dtype == pl.Boolean


# ---- storage and updates


def test_a_loaded_model_abstains_alike(fitted, panel, tmp_path):
    fitted.save(tmp_path / "one")
    frame = series(300, seed=2)
    loaded = Forecaster.load(tmp_path / "one")
    marked, again = (one.backtest(frame, start=0.8, abstain=0.2) for one in (fitted, loaded))
    pd.testing.assert_frame_equal(again, marked)
    frame, forecaster = panel
    forecaster.save(tmp_path / "many")
    loaded = folders.load(tmp_path / "many").doubt
    assert loaded.series == ["a", "b", "c"]
    for name, tensor in forecaster.fitted.doubt.tensors().items():
        assert torch.equal(tensor, loaded.tensors()[name]), name


def test_the_folder_hardly_grows():
    doubt = tiny().fit(series(4000)).fitted.doubt
    assert len(doubt.points) == POINTS
    assert sum(tensor.nbytes for tensor in doubt.tensors().values()) < 300_000


def test_an_update_makes_new_inputs_familiar():
    forecaster = tiny(model=TINY_SDE).fit(series(600))
    new = series(600, seed=1).assign(y=lambda frame: 3 * frame["y"])
    new = later(new, 600)
    before = forecaster.fitted.doubt
    assert share(forecaster, new) > 0.9
    forecaster.update(new)
    after = forecaster.fitted.doubt
    assert share(forecaster, later(new, 600)) < 0.3
    assert len(after.points) > len(before.points)
    assert torch.equal(after.axes, before.axes)  # scales stay


# ---- documents


def test_the_page_runs():
    page = (Path(__file__).parent.parent / "docs" / "abstention.md").read_text()
    names: dict = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(code, names)  # asserts are its own
    assert "forecaster" in names


# ---- refused


@pytest.mark.parametrize("value", [0, 1, -0.1, 5, "0.1", float("nan"), True, [0.1]])
def test_a_rate_that_is_none_is_refused(fitted, value):
    for ask in (fitted.predict, lambda **options: fitted.backtest(series(300), **options)):
        with pytest.raises(ValueError, match=r"abstain=.*: expected a share of forecasts above 0 and below 1, such as"):
            ask(abstain=value)


def test_no_column_of_times_may_be_called_abstain():
    with pytest.raises(ValueError, match="time names column 'abstain'"):
        tiny().fit(series(200).rename(columns={"ds": "abstain"}), time="abstain")


def test_the_command_line(run, tmp_path):
    frame = series(300)
    frame.to_csv("table.csv", index=False)
    tiny().fit(frame).save("model")
    assert "abstain" not in run("predict", "model").table
    assert run("predict", "model", "--abstain", 0.2).table["abstain"].isin([True, False]).all()
    test = run("backtest", "model", "table.csv", "--abstain", 0.3).table
    assert 0.05 < test["abstain"].mean() < 0.6
    refused = run("predict", "model", "--abstain", 5)
    assert refused.code == 1
    assert "abstain=5.0: expected a share of forecasts above 0 and below 1, such as 0.05" in refused.error
