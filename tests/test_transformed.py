"""A law seen through an increasing map."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import kstest, lognorm
from test_forecast import LEVELS, normal_law, paths_law, random_law, reference_crps

from itocast.forecast import Forecast
from itocast.transformed import Transformed


class Log:
    """The map of positive targets to the real line."""

    def forward(self, y):
        return y.log()

    def inverse(self, u):
        return u.exp()

    def slope(self, y):
        return 1 / y

    def select(self, target):
        return self


LOG = Log()


def through_exp(base):
    return Transformed(base, LOG)


@pytest.fixture
def lognormal():
    means, deviations = np.array([0.3, -1.0, 2.0]), np.array([0.2, 0.5, 0.35])
    return through_exp(normal_law(means, deviations)), lognorm(deviations, scale=np.exp(means))


def test_transformed_law_equals_scipy_lognorm(lognormal):
    law, oracle = lognormal
    for p in LEVELS:
        y = oracle.ppf(p)
        np.testing.assert_allclose(law.quantile(p).flatten(), y, rtol=1e-9)
        np.testing.assert_allclose(law.cdf(y).flatten(), p, rtol=0, atol=1e-12)
        np.testing.assert_allclose(law.log_prob(y).flatten(), oracle.logpdf(y), rtol=1e-10, atol=1e-10)
    low, high = law.interval(80)
    np.testing.assert_allclose([low.flatten(), high.flatten()], oracle.interval(0.8), rtol=1e-9)


def test_transformed_mean_variance_and_crps_are_near_scipy_lognorm(lognormal):
    law, oracle = lognormal
    np.testing.assert_allclose(law.mean.flatten(), oracle.mean(), rtol=1e-9)
    np.testing.assert_allclose(law.variance.flatten(), oracle.var(), rtol=1e-9)
    for p in (0.01, 0.4, 0.9):
        y = oracle.ppf(p)
        expected = [
            reference_crps(lognorm(s, scale=scale).cdf, at, 0, 100 * scale)
            for s, scale, at in zip(*oracle.args, oracle.kwds["scale"], y, strict=True)
        ]
        np.testing.assert_allclose(law.crps(y).flatten(), expected, rtol=1e-3)


def test_transformed_mixture_is_the_mixture_of_the_transformed_paths():
    means, deviations = np.array([0.0, 1.5, -0.5]), np.array([0.3, 0.2, 0.6])
    law, y = through_exp(paths_law(means, deviations)), 1.7
    oracle = lognorm(deviations, scale=np.exp(means))
    assert law.cdf([y]).item() == pytest.approx(oracle.cdf(y).mean(), abs=1e-13)
    assert law.log_prob([y]).item() == pytest.approx(math.log(oracle.pdf(y).mean()), abs=1e-12)
    np.testing.assert_allclose(law.path_log_prob([y]).flatten(), oracle.logpdf(y), rtol=1e-12)
    assert law.epistemic.item() == pytest.approx(oracle.mean().var())
    assert law.aleatoric.item() == pytest.approx(oracle.var().mean())
    assert law.cdf(law.quantile(0.77)).item() == pytest.approx(0.77, abs=1e-9)


def test_transformed_variance_is_the_sum_of_its_parts():
    law = through_exp(random_law(49).affine(0.3, 0.0))
    torch.testing.assert_close(law.aleatoric + law.epistemic, law.variance)
    assert (law.aleatoric > 0).all()
    assert (law.epistemic > 0).all()


def test_transformed_sample_stays_in_the_support_and_follows_the_cdf():
    law = through_exp(random_law(50, rows=1, horizon=1, targets=1))
    draws = law.sample(4000, seed=51)
    assert draws.shape == (4000, 1, 1, 1)
    assert (draws > 0).all()
    assert kstest(draws.flatten().numpy(), lambda x: law.cdf(x.reshape(-1, 1, 1, 1)).flatten().numpy()).pvalue > 0.01
    torch.testing.assert_close(law.sample(5, seed=2), law.sample(5, seed=2), rtol=0, atol=0)


def test_rows_of_transformed_law():
    law = through_exp(random_law(52))
    part = law[[3, 1]]
    assert part.shape == (2, 2, 3)
    torch.testing.assert_close(part.quantile(0.9), law.quantile(0.9)[[3, 1]], rtol=1e-9, atol=0)
    torch.testing.assert_close(part.mean, law.mean[[3, 1]])


def test_cat_of_transformed_laws_keeps_the_map():
    law = through_exp(random_law(53))
    again = Forecast.cat([law[:2], law[2:]])
    torch.testing.assert_close(again.quantile(0.5), law.quantile(0.5), rtol=1e-9, atol=0)


def test_select_of_transformed_law_keeps_the_map():
    law = through_exp(random_law(57))
    torch.testing.assert_close(
        law.select(1, 2).quantile(0.3)[:, 0, 0], law.quantile(0.3)[:, 1, 2], rtol=1e-8, atol=1e-8
    )


@pytest.mark.parametrize(("scale", "shift"), [(2.0, 5.0), (np.array([2.0, 0.1, 30.0]), np.array([0.0, 1.0, -4.0]))])
def test_affine_of_transformed_law(scale, shift):
    law = through_exp(random_law(54).affine(0.3, 0.0))
    y = np.random.default_rng(55).lognormal(0, 0.5, law.shape)
    moved, moved_y = law.affine(scale, shift), y * scale + shift
    np.testing.assert_allclose(moved.cdf(moved_y), law.cdf(y), rtol=0, atol=1e-12)
    np.testing.assert_allclose(moved.log_prob(moved_y), law.log_prob(y).numpy() - np.log(scale), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(moved.quantile(0.2), law.quantile(0.2).numpy() * scale + shift, rtol=1e-9)
    np.testing.assert_allclose(moved.crps(moved_y), law.crps(y).numpy() * scale, rtol=1e-9)
    np.testing.assert_allclose(moved.mean, law.mean.numpy() * scale + shift, rtol=1e-9)
    np.testing.assert_allclose(moved.sample(3), law.sample(3).numpy() * scale + shift, rtol=1e-9)
    np.testing.assert_allclose(moved[:2].variance, law[:2].variance.numpy() * np.square(scale), rtol=1e-9)


def test_rows_of_transformed_law_with_a_shift_for_each_row():
    law = through_exp(random_law(58))
    shift = np.arange(30.0).reshape(law.shape)
    moved = law.affine(2.0, shift)
    torch.testing.assert_close(moved[[3, 1]].quantile(0.4), moved.quantile(0.4)[[3, 1]], rtol=1e-9, atol=0)


def test_transformed_law_rejects_y_of_wrong_shape(lognormal):
    law, _ = lognormal
    for name in ("log_prob", "cdf", "crps"):
        with pytest.raises(ValueError, match=r"y has shape \(2,\): expected \(rows, horizon, targets\) = \(3, 1, 1\)"):
            getattr(law, name)([1.0, 2.0])


def test_laws_of_different_maps_are_not_put_together():
    base = random_law(59)
    with pytest.raises(ValueError, match="laws differ in their warp"):
        Forecast.cat([through_exp(base), base])


def test_scale_must_be_positive():
    with pytest.raises(ValueError, match="scale has a smallest value of -1: expected all to be positive"):
        through_exp(random_law(60)).affine(-1.0, 0.0)
