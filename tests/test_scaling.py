import json

import numpy as np
import pytest
import torch
from scipy.special import ndtri
from scipy.stats import kstest, norm, rankdata

from itocast.data.scaling import SCALERS, MinMax, QuantileNormal, Standard
from itocast.forecast import Forecast

every_scaler = pytest.mark.parametrize("scaler", SCALERS.values(), ids=SCALERS)


def columns(rows=200, seed=0):
    """A bell, a heavy tail of large numbers, and a column of ties."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.normal(5, 2, rows), 1e3 * rng.lognormal(0, 1, rows), rng.integers(0, 4, rows)], axis=1)


def law_around(scaled, deviation):
    """One path, one step: a row of `scaled` (rows, columns) is the mean of a row of targets."""
    means = np.asarray(scaled, float)[None, :, None, :]
    return Forecast(means, np.full_like(means, deviation**2))


# ---- what every scaler promises


@every_scaler
def test_fit_uses_nothing_but_the_training_rows(scaler):
    train, later = columns(), columns(50, seed=1) * 100
    fitted = scaler.fit(train)
    before = json.dumps(fitted.to_dict())
    together = fitted.transform(np.concatenate([train, later]))
    np.testing.assert_array_equal(together[: len(train)], fitted.transform(train))
    assert json.dumps(fitted.to_dict()) == before
    assert scaler.fit(np.concatenate([train, later])).to_dict() != fitted.to_dict()


@every_scaler
def test_unscale_returns_the_values_of_a_nearly_certain_law(scaler):
    train = columns()
    values = np.concatenate([train, [[-20.0, -500.0, -3.0], [40.0, 1e6, 9.0]]])
    fitted = scaler.fit(train)
    law = fitted.unscale(law_around(fitted.transform(values), 1e-9))
    assert law.shape == (len(values), 1, 3)
    np.testing.assert_allclose(law.quantile(0.5)[:, 0], values, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(law.mean[:, 0], values, rtol=1e-6, atol=1e-6)
    assert (law.variance < 1e-6).all()


@every_scaler
def test_transform_is_increasing_and_never_clips(scaler):
    train = columns()
    fitted = scaler.fit(train)
    low, high = train.min(0), train.max(0)
    grid = np.linspace(low - 10 * (high - low), high + 10 * (high - low), 5001)
    assert (np.diff(fitted.transform(grid), axis=0) > 0).all()


@every_scaler
def test_each_column_is_scaled_on_its_own(scaler):
    train, values = columns(), columns(30, seed=2)
    together = scaler.fit(train).transform(values)
    for i in range(3):
        np.testing.assert_allclose(scaler.fit(train[:, [i]]).transform(values[:, [i]])[:, 0], together[:, i])


@every_scaler
@pytest.mark.parametrize("rows", [1, 7, 1000])
@pytest.mark.parametrize("constant", [5.0, 0.1, -1e9 - 0.1, 0.0])
def test_constant_column_becomes_zero_with_scale_one(scaler, rows, constant):
    values = np.full((rows, 1), constant)
    fitted = scaler.fit(values)
    np.testing.assert_array_equal(fitted.transform(values), np.zeros((rows, 1)))
    assert fitted.transform(values[:1] + 0.5).item() == pytest.approx(0.5, abs=1e-6)
    law = fitted.unscale(law_around([[0.0]], 1.0))
    low, high = law.interval(95)
    np.testing.assert_allclose([low.item() - constant, high.item() - constant], [-1.959964, 1.959964], atol=1e-5)
    assert law.log_prob([constant]).item() == pytest.approx(norm.logpdf(0), abs=1e-6)


@every_scaler
def test_stored_as_json_and_read_back_is_the_same_scaler(scaler):
    fitted, values = scaler.fit(columns()), columns(40, seed=3)
    again = scaler(**json.loads(json.dumps(fitted.to_dict())))
    np.testing.assert_array_equal(again.transform(values), fitted.transform(values))
    law = law_around(fitted.transform(values), 0.3)
    torch.testing.assert_close(again.unscale(law).quantile(0.9), fitted.unscale(law).quantile(0.9), rtol=0, atol=0)


@every_scaler
def test_unscaled_law_agrees_with_transform(scaler):
    train, values = columns(), columns(40, seed=4)
    fitted = scaler.fit(train)
    law = fitted.unscale(law_around(np.full((40, 3), 0.2), 0.7))
    expected = norm.cdf(fitted.transform(values), 0.2, 0.7)
    np.testing.assert_allclose(law.cdf(values[:, None])[:, 0], expected, rtol=0, atol=1e-9)
    for p in (0.001, 0.3, 0.95):
        bound = law.quantile(p)
        np.testing.assert_allclose(law.cdf(bound), p, rtol=0, atol=1e-9)
        np.testing.assert_allclose(fitted.transform(bound[:, 0].numpy()), norm.ppf(p, 0.2, 0.7), atol=1e-8)


@every_scaler
def test_unscale_takes_several_steps_and_paths(scaler):
    fitted = scaler.fit(columns())
    means = np.random.default_rng(5).normal(0, 1, (4, 6, 2, 3))
    law = Forecast(means, np.full_like(means, 0.1))
    whole = fitted.unscale(law)
    assert whole.shape == (6, 2, 3)
    for step in range(2):
        alone = fitted.unscale(Forecast(means[:, :, [step]], np.full_like(means[:, :, [step]], 0.1)))
        torch.testing.assert_close(whole.quantile(0.7)[:, [step]], alone.quantile(0.7), rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(whole.mean[:, [step]], alone.mean, rtol=1e-8, atol=1e-8)


@every_scaler
def test_one_target_of_unscaled_law_keeps_its_scale(scaler):
    law = scaler.fit(columns()).unscale(law_around(np.random.default_rng(10).normal(0, 1, (6, 3)), 0.5))
    for target in range(3):
        part = law.select(0, target)
        assert part.shape == (6, 1, 1)
        torch.testing.assert_close(part.quantile(0.8)[..., 0], law.quantile(0.8)[..., target], rtol=1e-8, atol=1e-8)


@every_scaler
def test_density_of_unscaled_law_integrates_to_its_cdf(scaler):
    train = np.random.default_rng(6).lognormal(0, 1, (9, 2)) * [1.0, 50.0]
    fitted = scaler.fit(train)
    nodes, weights = np.polynomial.legendre.leggauss(24)
    spread = train.max(0) - train.min(0)
    outer = np.linspace(0, 20, 60)[1:, None] * spread
    edges = np.concatenate([train.min(0) - outer[::-1], np.sort(train, axis=0), train.max(0) + outer])  # (edges, 2)
    middle, half = (edges[1:] + edges[:-1]) / 2, (edges[1:] - edges[:-1]) / 2
    y = (middle[:, None] + half[:, None] * nodes[:, None]).reshape(-1, 1, 2)
    density = fitted.unscale(law_around(np.full((len(y), 2), 0.4), 0.8)).log_prob(y).exp().numpy()
    masses = (density.reshape(-1, len(nodes), 2) * weights[:, None]).sum(1) * half
    law = fitted.unscale(law_around(np.full((len(edges), 2), 0.4), 0.8))
    np.testing.assert_allclose(masses, np.diff(law.cdf(edges[:, None])[:, 0], axis=0), rtol=0, atol=1e-8)
    np.testing.assert_allclose(masses.sum(0), 1, rtol=0, atol=1e-6)


# ---- each on its own


def test_minmax_takes_the_training_range_to_zero_and_one():
    train = columns()
    scaled = MinMax.fit(train).transform(train)
    np.testing.assert_allclose(scaled.min(0), 0, atol=1e-15)
    np.testing.assert_allclose(scaled.max(0), 1, atol=1e-12)
    fitted = MinMax.fit(np.array([[2.0, 10.0], [4.0, -10.0]]))
    np.testing.assert_allclose(fitted.transform(np.array([[3.0, 30.0]])), [[0.5, 2.0]])


def test_standard_takes_the_training_values_to_mean_zero_and_deviation_one():
    train = columns()
    scaled = Standard.fit(train).transform(train)
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.std(0), 1, rtol=1e-12)
    np.testing.assert_allclose(Standard.fit(np.array([[1.0], [3.0]])).transform(np.array([[6.0]])), [[4.0]])


@pytest.mark.parametrize("scaler", [MinMax, Standard])
def test_affine_scalers_unscale_moments_by_hand(scaler):
    fitted = scaler.fit(np.array([[-10.0], [10.0]]))
    width = {MinMax: 20.0, Standard: 10.0}[scaler]
    law = fitted.unscale(Forecast([[[[0.2]]], [[[0.4]]]], [[[[0.01]]], [[[0.03]]]]))
    assert law.mean.item() == pytest.approx(0.3 * width + {MinMax: -10.0, Standard: 0.0}[scaler])
    assert law.aleatoric.item() == pytest.approx(0.02 * width**2)
    assert law.epistemic.item() == pytest.approx(0.01 * width**2)


@pytest.mark.parametrize("rows", [300, 4000])
def test_quantile_scores_of_training_values_are_standard_normal(rows):
    rng = np.random.default_rng(7)
    train = np.stack([rng.lognormal(3, 2, rows), rng.exponential(1, rows), rng.standard_t(2, rows)], axis=1)
    scaled = QuantileNormal.fit(train).transform(train)
    np.testing.assert_allclose(scaled.mean(0), 0, atol=0.005)
    np.testing.assert_allclose(scaled.std(0), 1, atol=0.01)
    for column in scaled.T:
        assert kstest(column, norm.cdf).statistic < 0.005


def test_quantile_scores_are_those_of_the_middle_rank_with_ties():
    train = np.array([3.0, 0.0, 0.0, 1.0, 0.0, 1.0, 7.5, 3.0])[:, None]
    expected = ndtri((rankdata(train[:, 0]) - 0.5) / len(train))
    np.testing.assert_allclose(QuantileNormal.fit(train).transform(train)[:, 0], expected, rtol=1e-12)


def test_quantile_scores_keep_their_rank_where_knots_are_thinned():
    train = np.concatenate([np.zeros(3000), np.random.default_rng(8).exponential(1, 3000)])[:, None]
    fitted = QuantileNormal.fit(train)
    assert len(fitted.knots[0]) <= 1000
    expected = ndtri((rankdata(train[:, 0]) - 0.5) / len(train))
    assert np.abs(fitted.transform(train)[:, 0] - expected).mean() < 1e-3
    assert fitted.transform(np.array([[0.0]])).item() == pytest.approx(norm.ppf(0.25), abs=1e-9)


def test_quantile_scores_go_on_with_the_slope_of_the_standardised_column():
    train = columns()
    fitted, deviation = QuantileNormal.fit(train), train.std(0)
    ends = fitted.transform(np.stack([train.min(0), train.max(0)]))
    for steps in (0.1, 3.0, 1000.0):
        beyond = fitted.transform(np.stack([train.min(0) - steps * deviation, train.max(0) + steps * deviation]))
        np.testing.assert_allclose(beyond - ends, [[-steps] * 3, [steps] * 3], rtol=1e-9)


def test_standard_normal_scores_become_the_training_distribution():
    train = np.random.default_rng(9).gamma(2.0, 3.0, (5000, 1))
    law = QuantileNormal.fit(train).unscale(law_around([[0.0]], 1.0))
    for p in (0.01, 0.2, 0.5, 0.9, 0.99):
        assert law.quantile(p).item() == pytest.approx(np.quantile(train, p), rel=0.02)
    assert law.mean.item() == pytest.approx(train.mean(), rel=5e-3)
    assert law.variance.item() == pytest.approx(train.var(), rel=0.03)


def test_quantile_scores_are_those_of_the_ranks_where_many_values_repeat():
    random = np.random.default_rng(0)
    values = np.concatenate([random.integers(0, 10, 20_000), random.uniform(10, 1e4, 30_000)])
    scores = SCALERS["quantile"].fit(values[:, None]).transform(values[:, None])[:, 0]
    expected = norm.ppf((rankdata(values) - 0.5) / len(values))
    assert np.abs(scores - expected).max() < 0.2
    assert np.abs(scores - expected).mean() < 0.005
