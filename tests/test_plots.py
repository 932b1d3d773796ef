"""Plots: what they draw, where, and with which words."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

from itocast import plots
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


@pytest.mark.parametrize("draw", ["intervals", "uncertainty", "calibration"])
def test_given_axes_are_drawn_on_and_returned(law, draw):
    ax = Figure().subplots()
    y, x = torch.zeros(ROWS), np.arange(ROWS)
    made = {
        "intervals": lambda: plots.plot_intervals(law, y, x, ax=ax),
        "uncertainty": lambda: plots.plot_uncertainty(law, x, ax=ax),
        "calibration": lambda: plots.plot_calibration({"law": law}, y, ax=ax),
    }[draw]()
    assert made is ax
