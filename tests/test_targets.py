"""Several targets by one network: rows of one target each hold what is theirs, and their laws come back in order."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from conftest import TINY, tiny, wave_frame

from itocast import Forecaster, export
from itocast.data import targets
from itocast.data.preparation import Data, Preparation
from itocast.data.reading import read_table
from itocast.data.scaling import Faint
from itocast.data.table import Columns
from itocast.data.targets import Apart, every_target, together
from itocast.data.windows import Windows
from itocast.forecast import Forecast
from itocast.models import MODELS

TARGETS = ("load", "price")
OWN = 3 + 1 + 3 + 4  # columns of a target: a day ago and whether it was seen, its level, lags by rank
NAMES = {"target": list(TARGETS), "time": "time", "past": ["heat"]}


@pytest.fixture(params=[True, False], ids=["local", "not local"])
def windows(request) -> Windows:
    """Of two targets: four lags, three steps ahead."""
    table = read_table(wave_frame(60), Columns(id=None, time="time", targets=TARGETS, past=("heat",)))
    preparation = Preparation.fit(table, 3, 4, Data(local=request.param))
    early = preparation.windows(table, until=table.times[40])
    return preparation.seen(early)[0].windows(table)


def test_a_row_has_the_lags_and_outcomes_of_its_target_and_what_all_share(windows):
    rows = Apart(windows)
    assert len(rows) == 2 * len(windows)
    x, y = windows.batch(slice(None))
    one, outcome = rows.batch(slice(None))
    for target in range(2):
        mine = slice(target, None, 2)
        torch.testing.assert_close(one.lags[mine, :, 0], x.lags[:, :, target])
        torch.testing.assert_close(one.anchor[mine, :, 0], x.anchor[:, :, target])
        torch.testing.assert_close(outcome[mine, :, 0], y[:, :, target], equal_nan=True)
        torch.testing.assert_close(one.past[mine], x.past)
        shared = windows.sizes.known - 2 * OWN * windows.local
        torch.testing.assert_close(one.known[mine, :shared], x.known[:, :shared])
        assert one.known[mine, -2:].eq(torch.eye(2)[target]).all()
        others = one.known[mine, shared : shared + 8].unflatten(1, (4, 2))
        if windows.local:
            each = x.known[:, shared:].unflatten(1, (OWN, 2))  # (windows, columns, targets)
            lags = windows.numbers.lags[windows.back(slice(None))]  # (windows, window, targets)
            shown = each[:, -7:-6]
            assert shown[:, 0].eq(1).any()
            assert shown[:, 0].eq(0).any()
            torch.testing.assert_close(others, Faint.deviation * shown * lags)
            own = one.known[mine, shared + 8 : -2]
            assert own.shape[1] == OWN
            torch.testing.assert_close(own, each[..., target])
            torch.testing.assert_close(own[:, -4:], (shown * lags)[..., target])
        else:
            torch.testing.assert_close(others, Faint.deviation * x.lags)


def test_sizes_are_those_of_the_batches_and_rows_are_taken_in_any_order(windows):
    rows = Apart(windows)
    x, y = rows.batch(slice(2, 9))
    sizes = rows.sizes
    assert (sizes.targets, sizes.rows) == (1, len(rows))
    assert x.lags.shape == (7, sizes.window, 1)
    assert x.past.shape == (7, sizes.window, sizes.covariates)
    assert x.known.shape == (7, sizes.known)
    assert x.anchor.shape == y.shape == (7, sizes.horizon, 1)
    order = torch.tensor([6, 0, 3])
    again, outcome = rows.batch(order + 2)
    for part, whole in zip((*again, outcome), (*x, y), strict=True):
        torch.testing.assert_close(part, whole[order], equal_nan=True)
    everything = every_target(windows.batch(slice(1, 4))[0], windows.own)
    for part, whole in zip(everything, rows.batch(slice(2, 8))[0], strict=True):
        torch.testing.assert_close(part, whole)


def test_of_many_targets_the_latest_values_alone_are_shown(windows, monkeypatch):
    monkeypatch.setattr(targets, "SHOWN", 7)
    x, _ = Apart(windows).batch(slice(None))
    assert x.known.shape[1] == Apart(windows).sizes.known
    shared = windows.sizes.known - 2 * OWN * windows.local
    several = windows.batch(slice(None))[0]
    latest = several.known[:, -2:] if windows.local else several.lags[:, -1]
    torch.testing.assert_close(x.known[::2, shared : shared + 2], Faint.deviation * latest)


def test_laws_come_back_to_their_rows_and_targets():
    means = torch.arange(2 * 6 * 4 * 1 * 3.0).reshape(2, 6, 4, 1, 3)  # 3 rows of 2 targets
    law = together(Forecast.from_logs(means, means / 100, means.log_softmax(-1)), targets=2)
    assert law.shape == (3, 4, 2)
    for row in range(3):
        for target in range(2):
            torch.testing.assert_close(law.means[:, row, :, target], means[:, 2 * row + target, :, 0])


def test_each_target_is_forecast_as_itself():
    """Two targets that move against one another, at other levels: the law of each lies where it does."""
    frame = wave_frame()
    forecaster = Forecaster(1, window=24, effort="fast", model="sde_hnn").fit(frame[:500], **NAMES)
    assert forecaster.fitted.network.model.sizes.targets == 1
    law, y = forecaster.backtest_distribution(frame, start=0.8)
    error = (law.mean - y).square().mean((0, 1)).sqrt()
    assert (error < 0.35 * y.std((0, 1))).all(), error
    inside = ((y >= law.quantile(0.05)) & (y <= law.quantile(0.95))).double().mean((0, 1))
    assert ((inside > 0.8) & (inside < 0.98)).all(), inside


@pytest.mark.parametrize("apart", [True, False])
def test_saved_updated_and_asked_row_by_row(apart, tmp_path):
    frame = wave_frame()
    forecaster = tiny(data={"apart": apart}).fit(frame[:400], **NAMES)
    assert forecaster.fitted.network.model.sizes.targets == (1 if apart else 2)
    whole, _ = forecaster.backtest_distribution(frame[:450], start=frame["time"][399])
    forecaster.save(tmp_path / "model")
    again = Forecaster.load(tmp_path / "model")
    assert again.predict().equals(forecaster.predict())
    few, _ = again.backtest_distribution(frame[:404], start=frame["time"][399])
    torch.testing.assert_close(few.mean, whole[: len(few)].mean, rtol=0, atol=0)
    again.update(frame[400:])
    assert again.predict()["target"].tolist() == list(TARGETS) * 3


@pytest.mark.filterwarnings("ignore:intervals of")  # after one epoch on 120 rows
@pytest.mark.parametrize("name", MODELS)
def test_every_model_forecasts_several_targets(name):
    if name == "deep_gp":
        pytest.importorskip("gpytorch")
    law, y = tiny(model=name).fit(wave_frame(120), **NAMES).backtest_distribution(wave_frame(140), start=0.8)
    assert law.shape == tuple(y.shape)
    assert law.quantile([0.05, 0.95]).isfinite().all()


def test_the_graph_has_every_target_for_any_number_of_rows(tmp_path):
    frame = wave_frame(200)
    forecaster = tiny(model=TINY).fit(frame, **NAMES)
    export.to_onnx(forecaster, tmp_path / "model.onnx", [0.1, 0.9])
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    arrays = export.inputs(forecaster, frame)
    expected = forecaster.predict(frame, level=(), quantiles=[0.1, 0.9])
    for rows in (1, 3):
        mean, *_, quantiles = session.run(None, {name: np.repeat(array, rows, 0) for name, array in arrays.items()})
        assert mean.shape == (rows, 3, 2)
        for one in range(rows):
            np.testing.assert_allclose(mean[one].reshape(-1), expected["mean"], rtol=1e-4)
            np.testing.assert_allclose(quantiles[one, ..., 0].reshape(-1), expected["q-0.1"], rtol=1e-4)
