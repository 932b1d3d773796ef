"""Laws given by their quantiles: against the Gaussian that they are exact for, and against what they are made of."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import gamma, norm

from itocast.clipped import Clipped, clip
from itocast.forecast import Forecast
from itocast.tabulated import LEVELS, NODES, Tabulated

MEANS = torch.tensor([[[0.0, 5.0]], [[-3.0, 1e6]]], dtype=torch.float64)  # (rows, horizon, targets)
DEVIATIONS = torch.tensor([[[1.0, 0.1]], [[2.0, 1e3]]], dtype=torch.float64)
SHARE = torch.tensor([[[0.0, 0.25]], [[0.5, 1.0]]], dtype=torch.float64)
OFFSETS = (-3.0, -0.7, 0.0, 0.31, 2.5)


@pytest.fixture
def law() -> Tabulated:
    return Tabulated(MEANS + DEVIATIONS * NODES.reshape(-1, 1, 1, 1), SHARE)


@pytest.fixture
def gaussian() -> Forecast:
    return Forecast(MEANS[None], DEVIATIONS[None].square())


def skewed(rows: int = 2) -> Tabulated:
    """A gamma law of shape 3."""
    values = torch.from_numpy(gamma.ppf(LEVELS.numpy(), 3)).reshape(-1, 1, 1, 1).expand(-1, rows, 1, 1)
    return Tabulated(values, torch.zeros(rows, 1, 1))


def test_a_gaussian_is_exact(law, gaussian):
    torch.testing.assert_close(law.mean, MEANS)
    torch.testing.assert_close(law.variance, DEVIATIONS.square())
    torch.testing.assert_close(law.epistemic, DEVIATIONS.square() * SHARE)
    torch.testing.assert_close(law.aleatoric, DEVIATIONS.square() * (1 - SHARE))
    levels = [1e-6, 0.0025, 0.1, 0.3337, 0.5, 0.975, 0.99999]  # beyond, at and between the nodes
    torch.testing.assert_close(law.quantile(levels), gaussian.quantile(levels))
    for offset in OFFSETS:
        y = MEANS + offset * DEVIATIONS
        torch.testing.assert_close(law.cdf(y), gaussian.cdf(y))
        torch.testing.assert_close(law.log_prob(y), gaussian.log_prob(y))
        torch.testing.assert_close(law.scores(y), torch.full_like(y, offset))
        torch.testing.assert_close(law.crps(y), gaussian.crps(y), rtol=1e-3, atol=0.0)


def test_draws_follow_the_law(law):
    draws = law.sample(20_000, seed=1)
    torch.testing.assert_close(draws.mean(0), MEANS, rtol=0.0, atol=40.0)
    standard = (draws - MEANS) / DEVIATIONS
    assert standard.mean(0).abs().max() < 4 / math.sqrt(20_000)
    assert (standard.var(0) - 1).abs().max() < 4 * math.sqrt(2 / 20_000)
    assert torch.equal(draws, law.sample(20_000, seed=1))
    assert not torch.equal(draws, law.sample(20_000, seed=2))


def test_a_skewed_law_is_nearly_exact():
    law, y = skewed(), torch.tensor([0.8, 5.0], dtype=torch.float64)
    torch.testing.assert_close(law.mean.flatten(), torch.full((2,), 3.0, dtype=torch.float64), rtol=1e-3, atol=0.0)
    torch.testing.assert_close(law.variance.flatten(), torch.full((2,), 3.0, dtype=torch.float64), rtol=5e-3, atol=0.0)
    torch.testing.assert_close(law.cdf(y).flatten(), torch.from_numpy(gamma.cdf(y.numpy(), 3)), rtol=1e-3, atol=0.0)
    log_density = torch.from_numpy(gamma.logpdf(y.numpy(), 3))
    torch.testing.assert_close(law.log_prob(y).flatten(), log_density, rtol=0.0, atol=0.03)
    for row, point in enumerate(y.tolist()):
        below = quad(lambda x: gamma.cdf(x, 3) ** 2, 0, point)[0]
        above = quad(lambda x: gamma.sf(x, 3) ** 2, point, 60)[0]
        assert law.crps(y)[row].item() == pytest.approx(below + above, rel=1e-3)


def test_the_variance_grows_evenly_with_the_share_of_a_rare_wide_component():
    shape = (1, 40, 1, 1, 3)
    rare = 0.0002 + 2e-9 * torch.arange(40, dtype=torch.float64)
    weights = torch.stack([torch.full_like(rare, 0.4), 0.6 - rare, rare], -1).reshape(shape)
    variances = torch.tensor([1.0, 0.2, 3000.0], dtype=torch.float64).expand(shape)
    means = torch.tensor([0.3, -0.2, 1.0], dtype=torch.float64).expand(shape)
    variance = Tabulated.of(Forecast(means, variances, weights)).variance.flatten()
    assert variance.diff().diff().abs().max() / variance[0] < 1e-6


def test_the_density_is_one_even_if_quantiles_come_in_steps():
    """Quantiles from ten outcomes: the density integrates to 1 and is not far from that of the smooth law."""
    values = (NODES * 4).round() / 4
    law = Tabulated(values.reshape(-1, 1, 1, 1), torch.zeros(1, 1, 1))
    points = torch.linspace(-9, 9, 20_001, dtype=torch.float64)
    rows = Tabulated(law.values.expand(-1, len(points), 1, 1), torch.zeros(1, 1, 1))
    logs = rows.log_prob(points).flatten()
    assert torch.trapezoid(logs.exp(), points).item() == pytest.approx(1.0, abs=2e-3)
    inside = points.abs() < 2.5
    assert (logs - torch.from_numpy(norm.logpdf(points.numpy())))[inside].abs().max() < 0.6


def test_small_units_do_not_matter(law):
    y = MEANS + 0.7 * DEVIATIONS
    small = law.affine(1e-14, 0.0)
    torch.testing.assert_close(small.cdf(y * 1e-14), law.cdf(y))


def test_affine_select_join_and_rows(law):
    y = MEANS + 0.31 * DEVIATIONS
    moved = law.affine(torch.tensor([2.0, 3.0]), 7.0)
    factor = torch.tensor([2.0, 3.0], dtype=torch.float64)
    torch.testing.assert_close(moved.quantile([0.1, 0.6]), law.quantile([0.1, 0.6]) * factor + 7)
    torch.testing.assert_close(moved.epistemic / moved.variance, SHARE)
    part = law.select(0, 1)
    assert part.shape == (2, 1, 1)
    torch.testing.assert_close(part.cdf(y[..., 1:]), law.cdf(y)[..., 1:])
    again = Forecast.cat([law[0], law[[1]], law[torch.tensor([True, False])]])
    assert again.shape == (3, 1, 2)
    torch.testing.assert_close(again.mean, MEANS[[0, 1, 0]])
    torch.testing.assert_close(again.epistemic, law.epistemic[[0, 1, 0]])


@pytest.mark.parametrize("support", ["positive", "unit"])
def test_clipped_it_is_the_clipped_gaussian(support):
    """Moments, bounds, probabilities and scores agree with those of a Gaussian that is clipped in closed form."""
    means, deviations = torch.tensor([-0.2, 0.3, 0.9]).double().reshape(3, 1, 1), 0.5
    table = clip(Tabulated(means + deviations * NODES.reshape(-1, 1, 1, 1), torch.zeros(3, 1, 1)), support)
    exact = clip(Forecast(means[None], torch.full_like(means, deviations**2)[None]), support)
    assert isinstance(table, Clipped)
    torch.testing.assert_close(table.mean, exact.mean, rtol=0.0, atol=2e-4)
    torch.testing.assert_close(table.variance, exact.variance, rtol=0.0, atol=2e-4)
    torch.testing.assert_close(table.quantile([0.01, 0.4, 0.99]), exact.quantile([0.01, 0.4, 0.99]))
    for point in (0.0, 0.2, 0.7, 1.0):
        y = torch.full_like(means, point)
        torch.testing.assert_close(table.cdf(y), exact.cdf(y))
        torch.testing.assert_close(table.log_prob(y), exact.log_prob(y))
        torch.testing.assert_close(table.crps(y), exact.crps(y), rtol=0.0, atol=2e-4)
    assert table.sample(100).min() == 0.0
    assert table[1:].shape == (2, 1, 1)
    assert torch.equal(Forecast.cat([table[:1], table[1:]]).mean, table.mean)
    assert torch.equal(table.select(0, 0).mean, table.mean)


def test_a_law_that_is_a_point_has_numbers():
    law = Tabulated(torch.full((len(NODES), 1, 1, 1), 5.0), torch.zeros(1, 1, 1))
    assert law.mean.item() == pytest.approx(5.0)
    assert law.variance.item() == pytest.approx(0.0, abs=1e-12)
    assert law.crps([7.0]).item() == pytest.approx(2.0)
    assert law.cdf([4.9]).item() == 0.0
    assert law.cdf([5.1]).item() == 1.0


def test_bad_tables_are_refused(law):
    with pytest.raises(ValueError, match=r"values has shape \(3, 1, 1, 1\): expected \(227, rows, horizon, targets\)"):
        Tabulated(torch.zeros(3, 1, 1, 1), torch.zeros(1, 1, 1))
    with pytest.raises(ValueError, match=r"values holds nan.*lower the learning rate"):
        Tabulated(torch.full((len(NODES), 1, 1, 1), torch.nan), torch.zeros(1, 1, 1))
    with pytest.raises(ValueError, match="scale holds numbers that are not positive"):
        law.affine(-1.0, 0.0)
    with pytest.raises(ValueError, match=r"p=1\.0: expected a number above 0 and below 1"):
        law.quantile(1.0)
