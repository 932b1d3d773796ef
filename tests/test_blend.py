"""Two laws as one: weighted means of quantiles, and which share held-out rows ask for."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import norm

from itocast.blend import SHARES, best_share, blended
from itocast.clipped import Clipped, clip, tabulated
from itocast.forecast import Forecast

LEVELS = [0.001, 0.05, 0.3, 0.5, 0.8, 0.975, 0.999]


def gaussian(mean: float, deviation: float, rows: int = 3) -> Forecast:
    """Rows of one step and target."""
    return Forecast(torch.full((1, rows, 1, 1), mean), torch.full((1, rows, 1, 1), deviation**2))


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
@pytest.mark.parametrize(("one", "other"), [((0.0, 1.0), (0.0, 3.0)), ((-5.0, 2.0), (40.0, 0.5))])
def test_gaussians_blend_to_a_gaussian_of_mean_mean_and_mean_deviation(one, other, share):
    mean, deviation = (share * a + (1 - share) * b for a, b in zip(one, other, strict=True))
    law = blended(gaussian(*one), gaussian(*other), share)
    assert law.shape == (3, 1, 1)
    torch.testing.assert_close(law.mean, torch.full((3, 1, 1), mean).double(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(law.variance.sqrt(), torch.full((3, 1, 1), deviation).double(), rtol=2e-3, atol=0)
    expected = norm.ppf(LEVELS, mean, deviation)
    assert law.quantile(LEVELS)[:, 1, 0, 0].numpy() == pytest.approx(expected, abs=2e-3 * deviation)
    y = mean + 0.7 * deviation
    z = (y - mean) / deviation
    crps = deviation * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - torch.pi**-0.5)
    assert law.crps(torch.full((3, 1, 1), y).double())[0].item() == pytest.approx(crps, rel=2e-3)


@pytest.mark.parametrize(("share", "whole"), [(0.0, "other"), (1.0, "one")])
def test_a_share_of_all_is_the_law_itself(share, whole):
    laws = {"one": gaussian(1.0, 2.0), "other": gaussian(-3.0, 0.5)}
    law = blended(laws["one"], laws["other"], share)
    torch.testing.assert_close(law.quantile(LEVELS), tabulated(laws[whole]).quantile(LEVELS))
    torch.testing.assert_close(law.mean, laws[whole].mean.double(), rtol=1e-4, atol=1e-4)


def test_what_two_laws_disagree_about_is_not_known():
    """Neither knows of any doubt; half of each differs from the mean of both by half their distance."""
    law = blended(gaussian(-1.0, 2.0), gaussian(1.0, 2.0), 0.5)
    assert law.epistemic[0].item() == pytest.approx(1.0, rel=1e-3)
    assert law.variance[0].item() == pytest.approx(4.0, rel=5e-3)
    assert (law.aleatoric + law.epistemic)[0].item() == pytest.approx(law.variance[0].item())
    far = blended(gaussian(-100.0, 2.0), gaussian(100.0, 2.0), 0.5)
    assert (far.epistemic <= far.variance).all()


def test_doubts_of_both_count_by_their_share():
    paths = torch.tensor([-1.0, 1.0]).reshape(2, 1, 1, 1)
    doubting = Forecast(paths, torch.ones(2, 1, 1, 1))
    law = blended(doubting, gaussian(0.0, 2**0.5, rows=1), 0.25)
    assert law.epistemic.item() == pytest.approx(0.25, rel=5e-3)


def test_a_blend_stays_inside_the_range():
    one, other = (clip(gaussian(mean, 2.0), "positive") for mean in (-1.0, 2.0))
    law = blended(one, other, 0.5)
    assert isinstance(law, Clipped)
    expected = norm.ppf(LEVELS, 0.5, 2.0).clip(min=0)
    assert law.quantile(LEVELS)[:, 0, 0, 0].numpy() == pytest.approx(expected, abs=5e-3)


# ---- which share

TRUTH = torch.special.ndtri(torch.arange(1, 400) / 400).double().reshape(-1, 1, 1)  # a standard normal
ONE = torch.ones(399, 1, 1)


def judged(network: Forecast, prior: Forecast, independent: float = 399.0, blend: bool = True) -> float:
    return best_share(network, prior, TRUTH, ONE, independent, blend)[0]


@pytest.mark.parametrize(
    ("network", "prior", "share"),
    [
        ((0.0, 1.0), (3.0, 1.0), 1.0),
        ((3.0, 1.0), (0.0, 1.0), 0.0),
        ((1.0, 1.0), (-1.0, 1.0), 0.5),
        ((1.0, 1.0), (-3.0, 1.0), 0.75),
        ((3.0, 1.0), (-1.0, 1.0), 0.25),
        ((0.0, 1.0), (0.0, 1.0), 1.0),  # one forecasts as well as both
    ],
)
def test_the_share_is_that_of_the_best_law(network, prior, share):
    network, prior = gaussian(*network, rows=399), gaussian(*prior, rows=399)
    assert judged(network, prior) == share


def test_without_a_blend_it_is_all_or_none():
    network, prior = gaussian(1.0, 1.0, rows=399), gaussian(-1.1, 1.0, rows=399)
    share, scores = best_share(network, prior, TRUTH, ONE, 399.0, blend=False)
    assert share == 1.0
    assert set(scores) == {0.0, 1.0}
    assert set(best_share(network, prior, TRUTH, ONE, 399.0, blend=True)[1]) == set(SHARES)


def test_few_independent_outcomes_say_little():
    """The law of the network is right, that of the prior off by a quarter of a deviation: 3 % in CRPS."""
    network, prior = gaussian(0.0, 1.0, rows=399), gaussian(0.25, 1.0, rows=399)
    _, scores = best_share(network, prior, TRUTH, ONE, 399.0, blend=False)
    assert scores[0.0] / scores[1.0] == pytest.approx(1.031, abs=2e-3)
    assert judged(network, prior, 100.0, blend=False) == 1.0
    assert judged(network, prior, 10.0, blend=False) == 0.0
    shares = [judged(network, prior, independent) for independent in (400.0, 10.0, 1.0)]
    assert shares[0] == 1.0
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.5


def test_each_series_counts_in_its_own_unit():
    """The network is right in a small series, the prior in one a thousand times as large."""
    scale = torch.where(torch.arange(399) % 2 == 0, 1.0, 1000.0).reshape(-1, 1, 1)
    small = (scale == 1).double()
    y = scale * TRUTH
    laws = [
        Forecast((scale * (3 * wrong))[None].float(), (scale**2)[None]) for wrong in (1 - small, 2 * small)
    ]  # the prior errs twice as far, in its unit
    assert best_share(*laws, y, scale, 399.0, blend=False)[0] == 1.0
    assert best_share(*laws, y, torch.ones_like(scale), 399.0, blend=False)[0] == 0.0


def test_missing_outcomes_do_not_count():
    network, prior = gaussian(0.0, 1.0, rows=399), gaussian(1.0, 1.0, rows=399)
    y = TRUTH.clone()
    y[200:] = torch.nan
    share, scores = best_share(network, prior, y, ONE, 200.0, blend=True)
    cut = best_share(network[:200], prior[:200], TRUTH[:200], ONE[:200], 200.0, blend=True)
    assert (share, scores) == (cut[0], pytest.approx(cut[1]))
