"""How the steps of a forecast move together: sampled courses, and what is added up along them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import TINY, ahead_frame, tiny, wave_frame
from scipy.stats import binom, kstest, norm

from itocast.clipped import Clipped
from itocast.dependence import Dependence
from itocast.forecast import Forecast

STEPS = torch.tensor([[1.0, 0.8, 0.5], [0.8, 1.0, 0.7], [0.5, 0.7, 1.0]], dtype=torch.float64)
TARGETS = torch.tensor([[1.0, -0.6], [-0.6, 1.0]], dtype=torch.float64)


def outcomes(rows: int, seed: int = 0) -> torch.Tensor:
    """Standard normal outcomes (rows, 3, 2) whose correlations are products of STEPS and TARGETS."""
    random = np.random.default_rng(seed)
    drawn = random.multivariate_normal(np.zeros(6), np.kron(STEPS, TARGETS), rows)
    return torch.from_numpy(drawn.reshape(rows, 3, 2))


def standard(rows: int, horizon: int = 3, targets: int = 2) -> Forecast:
    return Forecast(torch.zeros(1, rows, horizon, targets), torch.ones(1, rows, horizon, targets))


def test_a_known_correlation_is_found():
    found = Dependence.fit(standard(20_000), outcomes(20_000))
    torch.testing.assert_close(found.steps, STEPS, atol=0.03, rtol=0)
    torch.testing.assert_close(found.targets, TARGETS, atol=0.03, rtol=0)


def test_the_unit_of_the_law_plays_no_part():
    """Correlations are those of ranks under the law: another location and scale for each cell changes nothing."""
    y = outcomes(500)
    random = torch.Generator().manual_seed(0)
    scale = torch.rand(y.shape, generator=random, dtype=torch.float64) + 0.1
    shift = 100 * torch.randn(y.shape, generator=random, dtype=torch.float64)
    one = Dependence.fit(standard(500), y)
    two = Dependence.fit(standard(500).affine(scale, shift), scale * y + shift)
    torch.testing.assert_close(one.steps, two.steps)
    torch.testing.assert_close(one.targets, two.targets)


def test_missing_outcomes_are_left_out():
    y = outcomes(20_000)
    y[torch.rand(y.shape, generator=torch.Generator().manual_seed(1)) < 0.3] = torch.nan
    found = Dependence.fit(standard(20_000), y)
    torch.testing.assert_close(found.steps, STEPS, atol=0.04, rtol=0)
    torch.testing.assert_close(found.targets, TARGETS, atol=0.04, rtol=0)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_few_rows_give_a_correlation_that_can_be_sampled(rows):
    found = Dependence.fit(standard(rows, 12, 1), torch.randn(rows, 12, 1, generator=torch.Generator().manual_seed(0)))
    assert torch.linalg.eigvalsh(found.steps).min() > 0
    torch.testing.assert_close(found.steps.diagonal(), torch.ones(12, dtype=torch.float64))
    off = found.steps - torch.eye(12, dtype=torch.float64)
    assert off.abs().max() < 0.5  # so few rows say little
    assert found.sample(standard(4, 12, 1), 3).isfinite().all()


def test_a_step_of_which_nothing_was_seen_is_independent():
    y = outcomes(400)
    y[:, 1] = torch.nan
    found = Dependence.fit(standard(400), y)
    assert found.steps[1].abs().sum() == pytest.approx(1.0, abs=1e-3)


def test_outcomes_far_outside_the_law_do_no_harm():
    found = Dependence.fit(standard(50), 1e6 * outcomes(50))
    assert found.steps.isfinite().all()
    assert torch.linalg.eigvalsh(found.steps).min() > 0


def test_draws_have_the_correlation_that_was_asked_for():
    draws = Dependence(STEPS, TARGETS).sample(standard(2), 40_000, seed=0)
    assert draws.shape == (40_000, 2, 3, 2)
    found = np.corrcoef(draws[:, 0].reshape(len(draws), -1).T)
    np.testing.assert_allclose(found, np.kron(STEPS, TARGETS), atol=0.03)
    across = np.corrcoef(draws[:, 0].reshape(len(draws), -1).T, draws[:, 1].reshape(len(draws), -1).T)[:6, 6:]
    assert np.abs(across).max() < 0.03  # rows are independent


@pytest.mark.parametrize("clipped", [False, True])
def test_each_cell_follows_its_own_law(clipped):
    random = torch.Generator().manual_seed(0)
    means = torch.randn(4, 2, 3, 2, 2, generator=random, dtype=torch.float64)
    law: Forecast = Forecast(means, 0.1 + means.square(), torch.full_like(means, 0.5))
    if clipped:
        law = Clipped(law, 0.0, 2.0)
    draws = Dependence(STEPS, TARGETS).sample(law, 20_000, seed=1)
    levels = torch.tensor([0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98], dtype=torch.float64)
    share = (draws <= law.quantile(levels)[:, None] + 1e-9).double().mean(1)  # (levels, rows, horizon, targets)
    expected = law.cdf(law.quantile(levels))  # at an end of a clipped law more than the level
    band = 4 * (0.25 / 20_000) ** 0.5 + 0.002
    torch.testing.assert_close(share, expected, atol=band, rtol=0)
    if not clipped:
        for cell in ((0, 0, 0), (1, 2, 1)):
            uniform = law.cdf(draws)[(slice(None), *cell)]
            assert kstest(uniform[:2000], "uniform").pvalue > 1e-3


def test_the_same_seed_gives_the_same_draws():
    one, two, other = (Dependence(STEPS, TARGETS).sample(standard(2), 5, seed) for seed in (0, 0, 1))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_none_is_independent():
    draws = Dependence.none(3, 2).sample(standard(1), 20_000)[:, 0].reshape(20_000, -1)
    np.testing.assert_allclose(np.corrcoef(draws.T), np.eye(6), atol=0.03)


# ---- through the Forecaster


def test_paths_have_a_row_for_each_step_of_each_path(panel, wave_forecaster):
    frame, forecaster = panel
    future = ahead_frame(frame)
    paths = forecaster.predict(future=future, paths=4)
    assert list(paths) == ["unique_id", "ds", "path", "y"]
    assert len(paths) == 4 * 3 * 3
    counts = paths.groupby(["path", "unique_id"])["ds"].agg(list)
    assert counts.index.get_level_values("path").unique().tolist() == [0, 1, 2, 3]
    assert all(times == forecaster.predict(future=future)["ds"].tolist()[:3] for times in counts)
    two = wave_forecaster.predict(paths=2)
    assert list(two) == ["time", "target", "path", "y"]
    assert len(two) == 2 * 3 * 2


def test_paths_follow_the_laws_and_the_seed(single):
    forecaster = single[1]
    paths = forecaster.predict(paths=4000).pivot_table(index="path", columns="ds", values="y")
    ahead = forecaster.predict(quantiles=[0.1, 0.5, 0.9]).set_index("ds")
    spread = ahead["hi-80"] - ahead["lo-80"]
    for p in (0.1, 0.5, 0.9):
        assert ((paths.quantile(p) - ahead[f"q-{p}"]).abs() < 0.06 * spread).all()
    pd.testing.assert_frame_equal(forecaster.predict(paths=3), forecaster.predict(paths=3))


@pytest.fixture(scope="module")
def autoregression() -> pd.DataFrame:
    """y = 0.95 y before + noise: errors of neighbouring steps are strongly correlated."""
    random = np.random.default_rng(7)
    y = np.zeros(4300)
    for i in range(1, len(y)):
        y[i] = 0.95 * y[i - 1] + random.standard_normal()
    return pd.DataFrame({"ds": np.arange(4000), "y": y[300:]})


def test_sums_along_paths_are_covered_as_they_should(autoregression):
    """The 80 % interval of the sum over ten steps holds the true sum about 80 % of the time; without dependence not.

    Errors of the ten steps ahead of an AR(1) have a known law, so the width of the interval is known too.
    """
    frame, horizon = autoregression, 10
    forecaster = tiny(horizon, model=TINY, window=3, training={"epochs": 6}).fit(frame[:2500])
    ends = range(2500, 4000 - horizon, horizon)  # windows that do not overlap
    tables = [frame[end - 20 : end].assign(unique_id=str(end)) for end in ends]
    sums, independent, truth = [], [], []
    for table, end in zip(tables, ends, strict=True):
        paths = forecaster.predict(table[["ds", "y"]], paths=500)
        sums.append(paths.groupby("path")["y"].sum().to_numpy())
        law = forecaster.predict_distribution(table[["ds", "y"]])
        independent.append(Dependence.none(horizon, 1).sample(law, 500).sum((1, 2, 3)).numpy())
        truth.append(frame["y"][end : end + horizon].sum())

    def covered(draws: list[np.ndarray]) -> int:
        low, high = np.quantile(np.array(draws), [0.1, 0.9], axis=1)
        return int(((low <= truth) & (truth <= high)).sum())

    low, high = binom.ppf([0.0005, 0.9995], len(truth), 0.8)
    assert low - 0.03 * len(truth) <= covered(sums) <= high + 0.03 * len(truth)
    assert covered(independent) < low
    exact = np.sqrt(sum(((1 - 0.95 ** (horizon - i)) / 0.05) ** 2 for i in range(horizon)))  # deviation of the sum
    width = np.mean([np.quantile(draws, 0.9) - np.quantile(draws, 0.1) for draws in sums])
    assert width == pytest.approx(2 * norm.ppf(0.9) * exact, rel=0.25)


def test_waves_of_one_table_keep_their_targets_together():
    """Load and price move against each other around their wave, so do their paths."""
    frame = wave_frame(800)
    random = np.random.default_rng(3)
    shock = random.standard_normal(len(frame))
    frame["load"] += 3 * shock
    frame["price"] -= 3 * shock
    forecaster = tiny(2, window=24, training={"epochs": 4}).fit(frame, target=["load", "price"], time="time")
    paths = forecaster.predict(paths=2000)
    first = paths[paths["time"] == paths["time"].min()].pivot_table(index="path", columns="target", values="y")
    assert first.corr().loc["load", "price"] < -0.5
