"""What the values of a series say about the range that they have."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from conftest import tiny

from itocast.data.reading import read_table
from itocast.data.series import support_of, usual_steps
from itocast.data.table import Columns, Table

RANDOM = np.random.default_rng(0)
WAVE = np.sin(np.arange(300) / 4)
NOISE = RANDOM.standard_normal(300)


def build(*series: np.ndarray) -> Table:
    """A table of some series of one target."""
    parts = [pd.DataFrame({"id": i, "t": np.arange(len(y)), "y": y}) for i, y in enumerate(series)]
    return read_table(pd.concat(parts), Columns(id="id", time="t", targets=("y",)))


def some_zeros(share: float) -> np.ndarray:
    return np.where(np.arange(300) < share * 300, 0.0, 30 + WAVE)


@pytest.mark.parametrize(
    ("series", "support", "why"),
    [
        ([RANDOM.poisson(3, 300) + 5.0], "positive", "whole numbers"),
        ([RANDOM.poisson(3, 300) - 5.0], "real", "below 0"),
        ([some_zeros(0.02)], "positive", "some values are 0"),
        ([some_zeros(0.005)], "real", "no value shows"),
        ([5 + 4.9 * WAVE], "positive", r"\d+ values are within a usual step of 0"),
        ([np.abs(NOISE) + 1e-3], "positive", r"\d+ values are within a usual step of 0"),
        ([20 + 5 * WAVE + NOISE], "real", "no value shows"),  # a temperature in summer
        ([20 + 5 * WAVE + NOISE, 1e4 * (20 + 5 * WAVE + NOISE)], "real", "no value shows"),
        ([np.array([3.5])], "real", "no value shows"),
    ],
    ids=["counts", "negative", "zeros", "a zero", "down to 0", "sizes", "far from 0", "far from 0 each", "one row"],
)
def test_a_range_ends_at_0_where_values_say_so(series, support, why):
    found, reason = support_of(build(*series))
    assert found == support
    assert pd.Series([reason]).str.contains(why).all(), reason


def test_usual_steps_are_those_of_each_series():
    table = build(np.array([0.0, 3.0, 3.0, -1.0]), np.array([7.0]), np.array([1.0, np.nan, 5.0]))
    expected = [((9 + 0 + 16) / 3) ** 0.5, 0.0, 4.0]
    np.testing.assert_allclose(usual_steps(table)[:, 0], expected)


def test_forecasts_stay_where_the_range_ends_until_a_value_leaves_it():
    hours = pd.date_range("2024-01-01", periods=300, freq="h")
    frame = pd.DataFrame({"ds": hours, "y": RANDOM.poisson(0.7, 300).astype(float)})
    forecaster = tiny().fit(frame[:250])
    assert forecaster.fitted.support == "positive"
    assert (forecaster.predict()[["mean", "lo-95"]] >= 0).all(axis=None)
    assert tiny(support="real").fit(frame[:250]).predict()["lo-95"].min() < 0
    forecaster.update(frame[250:].assign(y=lambda new: new["y"] - 0.5))
    assert forecaster.fitted.support == "real"
