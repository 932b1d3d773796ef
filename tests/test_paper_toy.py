"""The toy problem of the paper: what it knows to be true, what it gives, and that a short run makes sense."""

from __future__ import annotations

import json

import numpy as np
import pytest

from itocast.data import sources
from itocast.paper import toy


@pytest.fixture(scope="module")
def result():
    return toy.run(seed=0, quick=True)


def test_the_truth_is_that_of_the_data():
    frame = sources.toy(seed=5)
    mean, noise = sources.toy_truth(frame["x"].to_numpy())
    np.testing.assert_array_equal(mean, frame["mean"])
    np.testing.assert_array_equal(noise, frame["deviation"])


def test_known_noise():
    _, noise = sources.toy_truth(np.array([-15.0, 9.99, 10.0, 15.0, 20.0, 20.01]))
    np.testing.assert_allclose(noise, [0, 0, 1.5, 2.25, 3, 0])


def test_the_same_seed_gives_the_same_result(result):
    again = toy.run(seed=0, quick=True)
    assert {**again, "fit_seconds": None} == {**result, "fit_seconds": None}


def test_a_result_survives_json(result):
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_the_grid_goes_beyond_the_data(result):
    curves = result["curves"]
    assert (curves["x"][0], curves["x"][-1]) == (-45, 55)
    assert {len(values) for values in curves.values()} == {401}
    assert -30 <= min(result["data"]["x"]) <= max(result["data"]["x"]) <= 40
    assert len(result["data"]["x"]) == len(result["data"]["y"]) == 1000


def test_a_short_run_finds_the_noise(result):
    summary, curves = result["summary"], result["curves"]
    assert summary["true_noise_inside"] == pytest.approx(2.25)
    assert 1 < summary["aleatoric_inside"] < 4
    assert summary["aleatoric_outside"] < 1
    assert summary["rmse_outside"] < 2
    low, mean, high = (np.array(curves[name]) for name in ("low", "mean", "high"))
    assert ((low < mean) & (mean < high)).all()


def test_trajectories_start_together_and_end_as_wide_as_the_epistemic_deviation(result):
    shown, curves = result["trajectories"], result["curves"]
    assert shown["time"] == [0, 1, 2, 3]
    for place in ("quiet", "noisy"):
        paths = np.array(shown[place]["paths"])
        assert paths.shape == (10, 4)
        np.testing.assert_allclose(paths[:, 0], 0, atol=1e-5)
        assert (paths[:, 1:].std(0) > 0).all()
        at = curves["x"].index(shown[place]["x"])
        assert shown[place]["spread"][-1] == pytest.approx(curves["epistemic"][at], rel=1e-3)


def test_the_table_has_a_row_a_seed_and_their_mean(result):
    other = {**result, "seed": 1, "summary": {name: value + 2 for name, value in result["summary"].items()}}
    table = toy.table([result, other])
    assert table.index.tolist() == ["0", "1", "mean"]
    assert table.columns.tolist() == list(result["summary"])
    for name, value in result["summary"].items():
        assert table.loc["mean", name] == pytest.approx(value + 1)


def test_the_figure_shows_both_places_on_one_scale(result):
    drawing = toy.figure(json.loads(json.dumps(result)))
    drawing.canvas.draw()
    data, deviations, quiet, noisy = drawing.axes
    assert quiet.get_ylim() == noisy.get_ylim()
    assert [len(ax.lines) for ax in (quiet, noisy)] == [10, 10]
    assert deviations.get_yscale() == "log"
    assert all(ax.get_ylabel() for ax in drawing.axes)
    assert data.get_xlim() == deviations.get_xlim() == (-45, 55)
