"""Two laws as one: weighted means of quantiles, and which share held-out rows ask for."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import norm

from itocast.blend import SHARES, best_share, blended, compared, own_shares
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
    """Neither knows of any doubt: beside a noise of 4 there is half their distance, squared."""
    law = blended(gaussian(-1.0, 2.0), gaussian(1.0, 2.0), 0.5)
    assert law.variance[0].item() == pytest.approx(4.0, rel=5e-3)
    assert (law.epistemic / law.variance)[0].item() == pytest.approx(1 / 5, rel=5e-3)
    assert (law.aleatoric + law.epistemic)[0].item() == pytest.approx(law.variance[0].item())
    far = blended(gaussian(-100.0, 2.0), gaussian(100.0, 2.0), 0.5)
    assert (far.epistemic < far.variance).all()
    assert (far.aleatoric > 0).all()


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
    return best_share(compared(network, prior, TRUTH, ONE, blend), independent)


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
    scores = compared(network, prior, TRUTH, ONE, blend=False)
    assert best_share(scores, 399.0) == 1.0
    assert set(scores) == {0.0, 1.0}
    assert set(compared(network, prior, TRUTH, ONE, blend=True)) == set(SHARES)


def test_few_independent_outcomes_say_little():
    """The law of the network is right, that of the prior off by a quarter of a deviation: 3 % in CRPS."""
    network, prior = gaussian(0.0, 1.0, rows=399), gaussian(0.25, 1.0, rows=399)
    scores = compared(network, prior, TRUTH, ONE, blend=False)
    assert (scores[0.0].mean() / scores[1.0].mean()).item() == pytest.approx(1.031, abs=2e-3)
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
    assert best_share(compared(*laws, y, scale, blend=False), 399.0) == 1.0
    assert best_share(compared(*laws, y, torch.ones_like(scale), blend=False), 399.0) == 0.0


def test_missing_outcomes_do_not_count():
    network, prior = gaussian(0.0, 1.0, rows=399), gaussian(1.0, 1.0, rows=399)
    y = TRUTH.clone()
    y[200:] = torch.nan
    scores = compared(network, prior, y, ONE, blend=True)
    cut = compared(network[:200], prior[:200], TRUTH[:200], ONE[:200], blend=True)
    assert best_share(scores, 200.0) == best_share(cut, 200.0)
    for share, score in scores.items():
        assert score.nanmean().item() == pytest.approx(cut[share].mean().item())


# ---- shares of single series

EACH = torch.arange(399) % 3  # the series of each row
PLENTY = torch.full((3,), 133.0)


def mixed(of_network: list[float], of_prior: list[float]) -> dict[float, torch.Tensor]:
    """Scores of two laws whose means are off by something else in each series."""
    laws = [
        Forecast(torch.tensor(means)[EACH].reshape(1, -1, 1, 1), torch.ones(1, 399, 1, 1))
        for means in (of_network, of_prior)
    ]
    return compared(*laws, TRUTH, ONE, blend=True)


def test_a_series_that_the_network_does_not_understand_is_left_to_the_prior():
    scores = mixed([0.0, 0.0, 5.0], [3.0, 3.0, 0.0])
    common = best_share(scores, 399.0)
    assert common in (0.5, 0.75)
    assert own_shares(scores, EACH, PLENTY, common).tolist() == [[1.0], [1.0], [0.0]]


def test_series_that_are_alike_have_the_common_share():
    scores = mixed([1.0, 1.0, 1.0], [-1.0, -1.0, -1.0])
    assert own_shares(scores, EACH, PLENTY, 0.5).tolist() == [[0.5]] * 3


def test_a_series_with_few_outcomes_has_the_common_share():
    scores = mixed([0.0, 0.0, 5.0], [3.0, 3.0, 0.0])
    shares = own_shares(scores, EACH, torch.tensor([133.0, 133.0, 9.0]), 0.75)
    assert shares[:, 0].tolist() == [1.0, 1.0, 0.75]


def test_a_series_of_which_nothing_was_seen_has_the_common_share():
    y = TRUTH.clone()
    y[EACH == 1] = torch.nan
    wrong, right = (Forecast(torch.full((1, 399, 1, 1), mean), torch.ones(1, 399, 1, 1)) for mean in (3.0, 0.0))
    scores = compared(wrong, right, y, ONE, blend=True)
    assert own_shares(scores, EACH, PLENTY, 0.5)[:, 0].tolist() == [0.0, 0.5, 0.0]
