"""Which of network and prior forecasts a series: the same share for all, or one of its own."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from itocast import Forecaster
from itocast.blend import blended
from itocast.clipped import tabulated

ROWS = 240
SETTINGS = {"horizon": 2, "calibration": None, "training": {"epochs": 2}, "support": "real"}


def frame() -> pd.DataFrame:
    """Three series of which only a covariate tells one."""
    random = np.random.default_rng(0)
    hours = pd.date_range("2024-01-01", periods=ROWS, freq="h")
    price = random.uniform(-1, 1, (3, ROWS))
    wave = np.sin(np.arange(ROWS) * np.pi / 12)
    y = {"told": 30 * price[0], "wave": 10 * wave + random.normal(size=ROWS), "noise": random.normal(size=ROWS)}
    parts = [
        pd.DataFrame({"unique_id": name, "ds": hours, "y": y[name], "price": price[i]}) for i, name in enumerate(y)
    ]
    return pd.concat(parts, ignore_index=True)


@pytest.fixture
def forced(monkeypatch):
    """A forecaster whose series have shares of their own: all, three quarters and nothing by the network."""
    monkeypatch.setattr("itocast.fitted.best_share", lambda *_: 0.75)
    own = torch.tensor([[0.0], [1.0], [0.75]]).double()  # noise, told, wave
    monkeypatch.setattr("itocast.fitted.own_shares", lambda *_: own)
    return Forecaster(**SETTINGS).fit(frame(), future=["price"])


@pytest.fixture
def ahead():
    return (
        frame()
        .groupby("unique_id")
        .head(2)
        .assign(ds=lambda part: part["ds"] + pd.Timedelta(hours=ROWS))
        .drop(columns="y")
    )


def laws(forecaster, future):
    [(windows, table)] = forecaster.reader.ahead(None, future, whole=True)
    fitted = forecaster.fitted
    return table.ids.tolist(), fitted.uncorrected(windows), fitted._of_network(windows), fitted._of_prior_law(windows)


def test_each_series_is_forecast_by_its_own_share(forced, ahead):
    assert forced.fitted.own == {"noise": [0.0], "told": [1.0]}
    ids, law, network, prior = laws(forced, ahead)
    levels = [0.05, 0.5, 0.95]
    expected = {
        "noise": tabulated(prior), "told": tabulated(network), "wave": blended(network, prior, 0.75),
    }  # fmt: skip
    for place, name in enumerate(ids):
        torch.testing.assert_close(law.quantile(levels)[:, place], expected[name].quantile(levels)[:, place])


def test_a_forecast_does_not_hang_on_which_others_are_asked_for(forced, ahead):
    together = forced.predict(future=ahead).set_index("unique_id")
    for name in ("noise", "told", "wave"):
        rows, alone = frame(), ahead[ahead["unique_id"] == name]
        single = forced.predict(rows[rows["unique_id"] == name], future=alone).set_index("unique_id")
        pd.testing.assert_frame_equal(single, together.loc[[name]])


def test_shares_of_series_are_kept_in_a_folder(forced, ahead, tmp_path):
    forced.save(tmp_path / "model")
    loaded = Forecaster.load(tmp_path / "model")
    assert loaded.fitted.own == forced.fitted.own
    pd.testing.assert_frame_equal(loaded.predict(future=ahead), forced.predict(future=ahead))


def test_a_new_series_has_the_common_share(forced):
    new = frame()[frame()["unique_id"] == "noise"].assign(unique_id="new")
    known, future = new.iloc[:-2], new.iloc[-2:].drop(columns="y")
    [(windows, _)] = forced.reader.ahead(known, future, whole=True)
    assert forced.fitted._shares(windows).tolist() == [[[0.75]]]


def test_a_series_that_only_a_covariate_tells_is_left_to_the_network():
    fitted = Forecaster(1, training={"epochs": 20}, calibration=None).fit(frame(), future=["price"]).fitted
    assert fitted.net is not None
    shares = {name: fitted.own.get(name, [fitted.share])[0] for name in ("told", "noise")}
    assert shares["told"] >= 0.75 > shares["noise"]


def test_a_series_of_zeros_is_not_forecast_with_certainty():
    """One taxi in thirty hours: what was seen before is not impossible."""
    hours = pd.date_range("2024-01-01", periods=300, freq="h")
    y = (np.arange(300) % 30 == 7).astype(float)
    forecaster = Forecaster(6, model="prior", calibration=None).fit(pd.DataFrame({"ds": hours, "y": y}))
    law = forecaster.predict_distribution()
    assert (law.quantile(0.99) >= 0.1).all()
    assert (-law.log_prob(torch.ones(1, 6, 1).double()) < 60).all()


def test_the_prior_needs_no_covariates_ahead(tmp_path):
    rows = frame()
    forecaster = Forecaster(3, model="prior").fit(rows, past=["price"])
    ahead = Forecaster(3, model="prior").fit(rows, future=["price"])
    pd.testing.assert_frame_equal(ahead.predict(), forecaster.predict())
    pd.testing.assert_frame_equal(ahead.predict(rows.drop(columns="price")), forecaster.predict())
    ahead.save(tmp_path / "model")
    pd.testing.assert_frame_equal(Forecaster.load(tmp_path / "model").predict(), forecaster.predict())
    assert len(ahead.evaluate(rows)) > 1
