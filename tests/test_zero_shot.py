"""Forecasts without a fit: `itocast predict TABLE --zero-shot`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from itocast import Forecaster

MONTHS = pd.DataFrame(
    {
        "month": pd.date_range("2021-01-01", periods=30, freq="MS").strftime("%Y-%m-%d"),
        "shop": ["north"] * 15 + ["south"] * 15,
        "sales": np.round(100 + 20 * np.sin(np.arange(30) * np.pi / 6), 1),
    }
)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    file = tmp_path_factory.mktemp("zero-shot") / "sales.csv"
    MONTHS.to_csv(file, index=False)
    return file


NAMED = ("--target", "sales", "--time", "month", "--id", "shop")


def test_a_table_is_forecast_without_a_model(run, table):
    ahead = run("predict", table, "--zero-shot", "-h", 3, *NAMED).table
    forecaster = Forecaster(3, model="prior").fit(MONTHS, "sales", "month", "shop")
    same = forecaster.predict().drop(columns="month")
    assert ahead["shop"].tolist() == ["north"] * 3 + ["south"] * 3
    pd.testing.assert_frame_equal(ahead.drop(columns="month"), same, check_dtype=False)


@pytest.mark.parametrize("extra", [("other.csv",), ("--future", "ahead.csv")])
def test_the_table_alone_is_read(run, table, extra):
    refused = run("predict", table, *extra, "--zero-shot", "-h", 3, *NAMED)
    assert refused.code == 1
    message = "does not go with --zero-shot: it forecasts the one table that it is given"
    assert message in refused.error


def test_a_fitted_model_has_settings_of_its_own(run, table):
    refused = run("predict", table, "-h", 3)
    assert refused.code == 1
    assert "--horizon 3 goes with --zero-shot alone" in refused.error
    assert "add --zero-shot to forecast a table" in refused.error
