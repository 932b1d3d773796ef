"""Plots: what they draw, where, and with which words."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import ahead_frame
from matplotlib.figure import Figure

from itocast import metrics, plots
from itocast.forecast import Forecast

ROWS = 48


@pytest.fixture
def law():
    means = torch.stack([torch.zeros(ROWS, 1, 1), torch.ones(ROWS, 1, 1)])
    return Forecast(means, torch.ones_like(means))


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_intervals_hold_the_mean_and_show_the_truth(law):
    ax = plots.plot_intervals(law, torch.zeros(ROWS), np.arange(ROWS), unit="kW")
    assert labels(ax) == ["95 % interval", "50 % interval", "mean", "observed"]
    assert ax.get_ylabel() == "kW"
    mean, observed = ax.get_lines()
    np.testing.assert_allclose(mean.get_ydata(), 0.5)
    np.testing.assert_allclose(observed.get_ydata(), 0.0)
    low, high = law.interval(95)
    wide = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert wide.min() == pytest.approx(low.min().item())
    assert wide.max() == pytest.approx(high.max().item())


def test_uncertainty_shows_both_deviations(law):
    ax = plots.plot_uncertainty(law, pd.date_range("2024-01-01", periods=ROWS, freq="h"), unit="kW")
    assert labels(ax) == ["aleatoric", "epistemic"]
    aleatoric, epistemic = (line.get_ydata() for line in ax.get_lines())
    np.testing.assert_allclose(aleatoric, 1.0)
    np.testing.assert_allclose(epistemic, 0.5)
    assert ax.get_yscale() == "log"
    ax.figure.savefig(io.BytesIO(), format="png")
    assert "02 Jan" in [label.get_text() for label in ax.get_xticklabels()]


def test_calibration_names_every_forecast_with_its_error(law):
    y = law.sample(1, seed=0)[0]
    ax = plots.plot_calibration({"one": law, "two": law.affine(3.0, 0.0)}, y)
    chance, one, two = labels(ax)
    assert chance == "calibrated, 95 % of the time"
    assert one.startswith("one (CWCE ")
    assert two.startswith("two (CWCE ")
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 100), (0, 100))


def test_one_law_needs_no_name(law):
    ax = plots.plot_calibration(law, law.sample(1, seed=0)[0])
    low, high = metrics.chance_band(metrics.LEVELS.numpy(), ROWS)
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (pytest.approx(100 * low.min()), pytest.approx(100 * high.max()))
    assert labels(ax)[1].startswith("forecast (CWCE ")


def test_intervals_of_several_steps_follow_one_another_and_need_no_outcome():
    means = torch.arange(6.0).reshape(1, 2, 3, 1)
    law = Forecast(means, torch.ones_like(means))
    ax = plots.plot_intervals(law)
    assert labels(ax) == ["95 % interval", "50 % interval", "mean"]
    [mean] = ax.get_lines()
    np.testing.assert_allclose(mean.get_xydata(), np.stack([np.arange(1, 7), np.arange(6)], 1))
    with pytest.raises(ValueError, match=r"x has 2 values: expected 6, one for each row and step; law.select\(0, 0\)"):
        plots.plot_intervals(law, x=[0, 1])


def test_trajectories_show_courses_and_their_mean():
    draws = np.random.default_rng(0).normal(100, 1, (80, 12))
    ax = plots.plot_trajectories(draws, y=np.full(12, 100.0), unit="kW")
    assert labels(ax) == ["sampled courses", "mean of 80", "observed"]
    *courses, mean, observed = ax.get_lines()
    assert len(courses) == 50
    np.testing.assert_allclose(mean.get_ydata(), draws.mean(0))
    np.testing.assert_allclose(observed.get_ydata(), 100.0)
    low, high = ax.get_ylim()
    assert low < draws[:50].min() < draws[:50].max() < high < low + 3 * np.ptp(draws)
    with pytest.raises(ValueError, match=r"draws has shape \(12,\): expected \(paths, points\)"):
        plots.plot_trajectories(draws[0])


def test_a_forecaster_draws_the_end_of_a_series_and_its_forecast(panel, wave_forecaster):
    frame, forecaster = panel
    future = ahead_frame(frame)
    ax = forecaster.plot(frame, series="b", rows=20, future=future, unit="kW")
    assert labels(ax) == ["observed", "95 % interval", "50 % interval", "mean"]
    assert ax.get_ylabel() == "kW"
    observed, mean = ax.get_lines()
    one = frame[frame["unique_id"] == "b"]
    np.testing.assert_allclose(observed.get_ydata(), one["y"][-20:])
    known = forecaster.predict(frame, future=future)
    np.testing.assert_allclose(mean.get_ydata(), known[known["unique_id"] == "b"]["mean"], rtol=1e-6)
    with pytest.raises(ValueError, match="series='d': expected one of a, b, c"):
        forecaster.plot(frame, series="d", future=future)
    both = wave_forecaster.plot(target="price", paths=7)
    assert labels(both) == ["observed", "sampled courses", "mean of 7"]
    assert both.get_ylabel() == "price"
    draws = wave_forecaster.predict(paths=7).query("target == 'price'")
    courses = np.stack([line.get_ydata() for line in both.get_lines()[1:8]])
    np.testing.assert_allclose(courses, draws["y"].to_numpy().reshape(7, -1), rtol=1e-6)
    ax = Figure().subplots()
    assert wave_forecaster.plot(ax=ax) is ax


@pytest.mark.parametrize("draw", ["intervals", "uncertainty", "calibration", "trajectories"])
def test_given_axes_are_drawn_on_and_returned(law, draw):
    ax = Figure().subplots()
    y, x = torch.zeros(ROWS), np.arange(ROWS)
    made = {
        "intervals": lambda: plots.plot_intervals(law, y, x, ax=ax),
        "uncertainty": lambda: plots.plot_uncertainty(law, x, ax=ax),
        "trajectories": lambda: plots.plot_trajectories(law.sample(3)[..., 0, 0], ax=ax),
        "calibration": lambda: plots.plot_calibration({"law": law}, y, ax=ax),
    }[draw]()
    assert made is ax
