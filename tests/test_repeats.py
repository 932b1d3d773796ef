"""Series whose values often stay exactly as they were: a probability of the last value itself, from law to graph."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kstest, norm

from itocast import Forecaster, export, metrics
from itocast.calibration import CALIBRATORS
from itocast.clipped import Again, Clipped, tabulated
from itocast.config import model_from
from itocast.data.preparation import Data, Preparation
from itocast.data.reading import read_table
from itocast.data.series import stays
from itocast.data.table import Columns
from itocast.export.contract import arrays_of
from itocast.export.graph import Graph
from itocast.forecast import Forecast
from itocast.models import HNN, SDEHNN
from itocast.nets import Encoder, Inputs, Sizes
from itocast.sde import Noise

SHARE, VALUE, POINT = 0.3, 1.5, 1e-5
SMALL = {"encoder": Encoder(dim=8, hidden=32, layers=1)}


def table_of(y: np.ndarray):
    return read_table(pd.DataFrame({"t": np.arange(len(y)), "y": y}), Columns(id=None, time="t", targets=("y",)))


def staying(rows: int = 3000, share: float = 0.2, seed: int = 0) -> np.ndarray:
    """Whole numbers around 1,000 that stay as they are one time in five, whatever else happens."""
    random = np.random.default_rng(seed)
    y = [1000.0]
    for stay, noise in zip(random.random(rows - 1) < share, random.standard_normal(rows - 1), strict=True):
        y.append(y[-1] if stay else float(np.rint(1000 + 0.8 * (y[-1] - 1000) + 60 * noise)))
    return np.array(y)


def pointed(rows: int) -> Clipped:
    """Rows of a standard normal, and a share of probability at one value."""
    parts = [0.0, VALUE], [1.0, POINT**2], [1 - SHARE, SHARE]
    base = Forecast(*(torch.tensor(part).expand(1, rows, 1, 1, 2).double() for part in parts))
    return Clipped(base, -math.inf, math.inf, Again.of(base, torch.full((rows, 1, 1), VALUE).double()))


def drawn(rows: int, seed: int) -> np.ndarray:
    """Outcomes that follow it."""
    random = np.random.default_rng(seed)
    return np.where(random.random(rows) < SHARE, VALUE, random.standard_normal(rows))


@pytest.fixture(params=["mixture", "table"])
def law(request) -> Clipped:
    return tabulated(pointed(4)) if request.param == "table" else pointed(4)


def test_the_cdf_jumps_and_quantiles_stay_at_the_value(law):
    below = (1 - SHARE) * norm.cdf(VALUE)
    just_below, upto = (law.cdf(torch.full((4, 1, 1), value).double()).numpy() for value in (VALUE - 1e-3, VALUE))
    assert just_below == pytest.approx(below, abs=5e-3)
    assert upto == pytest.approx(below + SHARE, abs=5e-3)
    inside = law.quantile([below + 0.01, below + SHARE / 2, below + SHARE - 0.01])
    assert (inside == VALUE).all()
    other = (below - 0.05) / (1 - SHARE)
    assert law.quantile(below - 0.05).numpy() == pytest.approx(norm.ppf(other), abs=0.02)
    levels = torch.linspace(0.001, 0.999, 500, dtype=torch.float64)
    assert (law.quantile(levels).diff(dim=0) >= 0).all()


def test_the_probability_of_the_value_is_its_score_and_others_have_a_density(law):
    at = law.log_prob(torch.full((4, 1, 1), VALUE, dtype=torch.float64))
    assert at.exp().numpy() == pytest.approx(SHARE, abs=5e-3)
    beside = law.log_prob(torch.full((4, 1, 1), -0.5, dtype=torch.float64))
    assert beside.exp().numpy() == pytest.approx((1 - SHARE) * norm.pdf(-0.5), rel=0.05)


def test_places_of_outcomes_that_follow_the_law_are_uniform():
    law, y = pointed(4000), drawn(4000, seed=0)
    assert kstest(law.pit(y).flatten(), "uniform").pvalue > 0.01
    assert metrics.cwce(law, y) < 0.5
    assert metrics.cwce(law.base, y) > 2  # without a place within it, the value is always in the middle
    table, spread = law.unclip(torch.from_numpy(y)[:, None, None])
    scores = torch.special.ndtr(table.scores(spread)).flatten()
    assert scores.numpy() == pytest.approx(law.pit(y).flatten().numpy(), abs=0.01)
    samples = law.sample(50, seed=1)
    assert (samples == VALUE).double().mean().item() == pytest.approx(SHARE, abs=0.01)


def test_parts_of_a_law_keep_the_value(law):
    whole = law.quantile([0.2, 0.8])
    assert torch.equal(law[[1, 3]].quantile([0.2, 0.8]), whole[:, [1, 3]])
    assert torch.equal(law[2].quantile([0.2, 0.8]), whole[:, [2]])
    assert torch.equal(law.select(0, 0).quantile([0.2, 0.8]), whole)
    assert torch.equal(Forecast.cat([law[:1], law[1:]]).quantile([0.2, 0.8]), whole)


@pytest.mark.parametrize("name", ["isotonic", "auto"])
def test_calibration_leaves_a_right_law_with_a_point_as_it_is(name):
    law, y = pointed(3000), torch.from_numpy(drawn(3000, seed=1))[:, None, None]
    corrector = CALIBRATORS[name]().fit(law, y)
    corrected = corrector.apply(law)
    assert corrected.crps(y).mean().item() == pytest.approx(law.crps(y).mean().item(), rel=5e-3)
    assert (corrected.quantile(0.8) == VALUE).all()
    if name == "auto":
        assert set(corrector.scores) == {"none", "isotonic"}  # what stretches a law would move the point


def test_from_few_outcomes_a_law_with_a_point_is_not_corrected():
    """What is known of few outcomes is the width alone, and to scale it would move the point."""
    law, y = pointed(100), torch.from_numpy(drawn(100, seed=1)).reshape(-1, 1, 1)
    auto = CALIBRATORS["auto"]().fit(law, 3 * y, overlap=2.0)
    assert auto.kind == "none"
    assert auto.apply(law) is law


def test_only_what_rounding_does_not_explain_counts_as_staying():
    random = np.random.default_rng(0)
    still, moving = np.ones((1, 1)), np.zeros((1, 1))
    assert stays(table_of(staying()), still)
    assert not stays(table_of(staying(share=0.0)), still)
    assert not stays(table_of(random.poisson(3, 2000).astype(float)), still)  # often the same, and as often one apart
    assert not stays(table_of(np.where(random.random(2000) < 0.5, 0.0, random.random(2000))), moving)  # zeros


def test_targets_that_repeat_are_learned_as_they_are():
    table = table_of(staying())
    windows = Preparation.fit(table, 1, 4).windows(table)
    x, y = windows.batch(slice(None))
    same = windows.actuals()[:, 0, 0] == windows.numbers.y[windows.origins, 0]
    assert windows.sizes.repeats
    assert 0.15 < same.double().mean() < 0.25
    assert torch.equal((y == x.anchor).flatten(), same)
    plain = Preparation.fit(table, 1, 4, Data(scaling="minmax")).windows(table)
    assert not plain.sizes.repeats


def test_a_network_has_a_point_where_values_stay_and_several_gaussians():
    sizes = Sizes(window=4, targets=2, covariates=0, known=0, horizon=3, repeats=True)
    x = HNN(sizes._replace(repeats=False)), HNN(sizes), HNN(sizes, components=3), SDEHNN(sizes, relative=False)
    assert [model.repeats for model in x] == [False, False, True, False]
    empty, anchor = torch.zeros(5, 0), torch.randn(5, 3, 2, generator=torch.Generator().manual_seed(0))
    inputs = Inputs(torch.zeros(5, 4, 2), torch.zeros(5, 4, 0), empty, anchor)
    law = SDEHNN(sizes)(inputs, 2, Noise(0, shared=True))
    assert law.means.shape == (2, 5, 3, 2, 6)
    assert torch.equal(law.means[..., -1], anchor.expand(2, -1, -1, -1))
    assert law.log_variances[..., -1].exp().max() < 1e-9
    assert law.log_weights.exp().sum(-1).detach().numpy() == pytest.approx(1, abs=1e-5)


def hourly(told: bool) -> pd.DataFrame:
    """A series that stays; if that is told, a value that comes again has the time of the row before it."""
    y = staying()
    later = np.append(1, np.diff(y) != 0) if told else np.ones(len(y), int)
    return pd.DataFrame({"ds": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.cumsum(later), "h"), "y": y})


@pytest.fixture(scope="module", params=[False, True], ids=["by chance", "told"])
def trained(request) -> tuple[Forecaster, pd.DataFrame]:
    frame = hourly(request.param)
    forecaster = Forecaster(
        1, window=4, model=model_from({"kind": "sde_hnn", **SMALL}), training={"epochs": 12},
        data={"repeated": "keep", "gaps": "keep"},
    )  # fmt: skip
    return forecaster.fit(frame[:2400]), frame


def test_a_forecaster_knows_how_often_values_stay(trained):
    forecaster, frame = trained
    law, y = forecaster.backtest_distribution(frame, start=0.8)
    before = frame["y"].to_numpy()[-len(y) - 1 : -1]
    assert isinstance(law, Clipped)
    again = (law.cdf(before) - law.cdf(before - 1)).flatten()
    assert again.mean().item() == pytest.approx(0.2, abs=0.06)
    assert metrics.cwce(law, y) < 1.5
    if not frame["ds"].is_unique:  # it is told
        same = torch.from_numpy(before == y.flatten().numpy())
        assert again[same].median() > 0.9 > 0.1 > again[~same].median()
    rows = forecaster.backtest(frame, start=0.8, level=20)
    exact = (rows["lo-20"].to_numpy() == before) & (rows["hi-20"].to_numpy() == before)
    assert exact.mean() > 0.02


def test_a_saved_forecaster_has_the_point_too(trained, tmp_path):
    forecaster, frame = trained
    forecaster.save(tmp_path / "model")
    pd.testing.assert_frame_equal(Forecaster.load(tmp_path / "model").predict(frame), forecaster.predict(frame))


@pytest.mark.parametrize("calibration", [None, *CALIBRATORS])
def test_graphs_say_what_the_library_says_of_it(trained, calibration):
    forecaster, frame = trained
    forecaster.calibrate(frame[:2400], calibration)
    table = forecaster.reader.read(frame)[0]
    [(fitted, windows)] = forecaster.reader.tests(table, 0.8, 5, refit=False)
    arrays = arrays_of(fitted, table, windows, fitted.preparation)
    with torch.no_grad():
        mean, aleatoric, _, quantiles = Graph(fitted, [0.1, 0.5, 0.9])(*map(torch.from_numpy, arrays.values()))
    law = fitted.law(windows)
    assert mean.numpy() == pytest.approx(law.mean.numpy(), rel=1e-4)
    assert aleatoric.numpy() == pytest.approx(law.aleatoric.sqrt().numpy(), rel=1e-3, abs=1e-3)
    assert quantiles.movedim(-1, 0).numpy() == pytest.approx(law.quantile([0.1, 0.5, 0.9]).numpy(), rel=1e-4)
    places = law.pit(windows.actuals())  # which the quantiles agree with
    inside = (windows.actuals() >= law.quantile(0.1)) & (windows.actuals() <= law.quantile(0.9))
    assert inside.double().mean() >= ((places >= 0.1) & (places <= 0.9)).double().mean() - 0.01


def test_an_exported_file_has_been_compared(trained, tmp_path):
    forecaster, frame = trained
    forecaster.calibrate(frame[:2400], "isotonic")
    assert export.to_onnx(forecaster, tmp_path / "model.onnx")["difference"] < 1e-4
