"""Laws that stay inside a range: against quadrature, Monte Carlo and the laws of the ends."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import kstest, norm

from itocast.clipped import SUPPORTS, Clipped, clip
from itocast.data.scaling import QuantileNormal
from itocast.forecast import Forecast

ENDS = {"positive": (0.0, math.inf), "unit": (0.0, 1.0), "below": (-math.inf, 0.5), "both": (-1.0, 0.3)}
MEANS = np.array([[[-1.0, 0.4], [0.2, 0.9]], [[0.5, 3.0], [-0.3, 0.1]]])  # (paths, rows, components)
DEVIATIONS = np.array([[[1.0, 0.5], [0.2, 1.5]], [[0.7, 0.4], [2.0, 0.6]]])
WEIGHTS = np.array([[[0.3, 0.7], [0.5, 0.5]], [[0.9, 0.1], [0.2, 0.8]]])


@pytest.fixture
def base() -> Forecast:
    """Two paths, two rows, two weighted Gaussians each."""
    return Forecast(*(part[:, :, None, None, :] for part in (MEANS, DEVIATIONS**2, WEIGHTS)))


@pytest.fixture(params=ENDS)
def law(base, request) -> Clipped:
    return Clipped(base, *ENDS[request.param])


def mixture_cdf(y: float, row: int) -> float:
    return float((WEIGHTS[:, row] * norm.cdf(y, MEANS[:, row], DEVIATIONS[:, row])).sum(-1).mean())


def clipped_cdf(y: float, row: int, low: float, high: float) -> float:
    return 0.0 if y < low else 1.0 if y >= high else mixture_cdf(y, row)


def path_moments(path: int, row: int, low: float, high: float) -> tuple[float, float]:
    """Mean and variance of one clipped path, by quadrature over each of its Gaussians."""
    first = second = 0.0
    for mean, deviation, weight in zip(MEANS[path, row], DEVIATIONS[path, row], WEIGHTS[path, row], strict=True):
        for power in (1, 2):
            value = quad(
                lambda z, m=mean, d=deviation, p=power: np.clip(m + d * z, low, high) ** p * norm.pdf(z),
                -9, 9, points=sorted((end - mean) / deviation for end in (low, high) if math.isfinite(end)), limit=200,
            )[0]  # fmt: skip
            if power == 1:
                first += weight * value
            else:
                second += weight * value
    return first, second - first**2


def test_moments_and_their_split_by_quadrature(law):
    for row in range(2):
        means, variances = zip(*(path_moments(path, row, law.low, law.high) for path in range(2)), strict=True)
        assert law.mean[row].item() == pytest.approx(np.mean(means), abs=1e-7)
        assert law.aleatoric[row].item() == pytest.approx(np.mean(variances), abs=1e-7)
        assert law.epistemic[row].item() == pytest.approx(np.var(means), abs=1e-7)
        assert law.variance[row].item() == pytest.approx(np.mean(variances) + np.var(means), abs=1e-7)


def test_moments_by_monte_carlo(law, base):
    draws = np.clip(base.sample(200_000, seed=1)[:, :, 0, 0].numpy(), law.low, law.high)
    np.testing.assert_allclose(law.mean.reshape(-1), draws.mean(0), atol=0.01)
    np.testing.assert_allclose(law.variance.reshape(-1), draws.var(0), rtol=0.02)


def test_cdf_jumps_at_the_ends(law):
    for y in (-2.0, law.low, -0.5, 0.0, 0.2, 0.29, law.high, 0.5, 1.0, 4.0):
        if math.isfinite(y):
            found = law.cdf(torch.full((2,), y, dtype=torch.float64)).reshape(-1)
            np.testing.assert_allclose(found, [clipped_cdf(y, row, law.low, law.high) for row in range(2)], atol=1e-12)


def test_quantiles_are_those_of_the_base_inside_the_range(law, base):
    levels = [0.001, 0.05, 0.3, 0.5, 0.8, 0.999]
    inner, outer = law.quantile(levels), base.quantile(levels)
    assert inner.min() >= law.low
    assert inner.max() <= law.high
    inside = (outer > law.low) & (outer < law.high)
    torch.testing.assert_close(inner[inside], outer[inside])
    for p, values in zip(levels, inner, strict=True):
        assert (law.cdf(values) >= p - 1e-9).all()


@pytest.mark.parametrize("y", [-3.0, -0.2, 0.0, 0.25, 0.7, 1.0, 2.5])
def test_crps_by_integrating_the_clipped_cdf(law, y):
    found = law.crps(torch.full((2,), y, dtype=torch.float64)).reshape(-1)
    for row in range(2):

        def loss(x: float, row: int = row) -> float:
            return (clipped_cdf(x, row, law.low, law.high) - (x >= y)) ** 2

        points = sorted({p for p in (law.low, law.high, y) if math.isfinite(p)})
        edges = [-40.0, *points, 40.0]
        expected = sum(quad(loss, a, b, limit=300)[0] for a, b in pairwise(edges) if b > a)
        assert found[row].item() == pytest.approx(expected, abs=2e-5)


def test_clipping_never_makes_the_score_of_a_possible_outcome_worse(law, base):
    low, high = max(law.low, -2.0), min(law.high, 3.0)
    for y in np.linspace(low, high, 9):
        values = torch.full((2,), float(y), dtype=torch.float64)
        assert (law.crps(values) <= base.crps(values) + 1e-9).all()


def test_log_prob_is_a_probability_at_the_ends_and_a_density_between(law, base):
    for end, share in ((law.low, mixture_cdf), (law.high, lambda y, row: 1 - mixture_cdf(y, row))):
        if math.isfinite(end):
            found = law.log_prob(torch.full((2,), end, dtype=torch.float64)).reshape(-1)
            np.testing.assert_allclose(found, [math.log(share(end, row)) for row in range(2)], rtol=1e-9)
    middle = torch.full((2,), 0.1, dtype=torch.float64)
    torch.testing.assert_close(law.log_prob(middle), base.log_prob(middle))
    for beyond in (law.low - 1e-9, law.high + 1e-9):
        if math.isfinite(beyond):
            assert law.log_prob(torch.full((2,), beyond, dtype=torch.float64)).eq(-math.inf).all()


def test_all_probability_is_there(law):
    for row in range(2):

        def density(y: float, row: int = row) -> float:
            return law.log_prob(torch.full((2,), y, dtype=torch.float64)).exp()[row].item()

        low, high = max(law.low, -15.0), min(law.high, 20.0)
        inside = quad(density, low + 1e-12, high - 1e-12, limit=200, points=[min(0.1, high - 0.1)])[0]
        ends = sum(density(end) for end in (law.low, law.high) if math.isfinite(end))
        assert inside + ends == pytest.approx(1.0, abs=1e-6)


def test_samples_lie_inside_with_the_shares_of_the_ends(law):
    draws = law.sample(40_000, seed=0)
    assert draws.min() >= law.low
    assert draws.max() <= law.high
    for end, share in ((law.low, mixture_cdf), (law.high, lambda y, row: 1 - mixture_cdf(y, row))):
        if math.isfinite(end):
            found = (draws == end).double().mean(0).reshape(-1)
            np.testing.assert_allclose(found, [share(end, row) for row in range(2)], atol=0.012)


def test_a_law_far_inside_is_left_as_it_is():
    base = Forecast(torch.full((2, 3, 1, 1), 0.5), torch.full((2, 3, 1, 1), 1e-4))
    law, y = clip(base, "unit"), torch.full((3,), 0.51)
    for ask in (lambda f: f.mean, lambda f: f.aleatoric, lambda f: f.epistemic, lambda f: f.crps(y),
                lambda f: f.log_prob(y), lambda f: f.cdf(y), lambda f: f.quantile([0.1, 0.9])):  # fmt: skip
        torch.testing.assert_close(ask(law).double(), ask(base).double(), atol=1e-6, rtol=1e-5)


def test_a_law_far_outside_lies_on_the_end():
    law = clip(Forecast(torch.full((1, 2, 1, 1), -50.0), torch.ones(1, 2, 1, 1)), "positive")
    assert law.mean.abs().max() < 1e-9
    assert law.variance.abs().max() < 1e-9
    assert law.quantile(0.999).eq(0).all()
    assert law.log_prob([0.0, 0.0]).abs().max() < 1e-9
    torch.testing.assert_close(
        law.crps([0.0, 2.0]).reshape(-1), torch.tensor([0.0, 2.0], dtype=torch.float64), atol=1e-6, rtol=0
    )


def test_a_law_that_is_not_gaussian_is_clipped_too():
    """Seen through ranks of skewed values: mean and variance are those of its clipped draws."""
    values = np.random.default_rng(0).exponential(size=(500, 1)) ** 2 - 0.3
    means = torch.tensor([-1.5, 0.0, 1.0], dtype=torch.float64).reshape(1, 3, 1, 1)
    base = QuantileNormal.fit(values).unscale(Forecast(means, torch.full_like(means, 0.5)))
    law = Clipped(base, 0.0, math.inf)
    draws = base.sample(200_000, seed=0).clamp(min=0.0)
    torch.testing.assert_close(law.mean, draws.mean(0), atol=0.01, rtol=0.01)
    torch.testing.assert_close(law.variance, draws.var(0), atol=0.01, rtol=0.05)


def test_parts_of_a_law_and_laws_together(law):
    y = torch.tensor([0.1, 0.2], dtype=torch.float64)
    again = Forecast.cat([law[0], law[1]])
    assert isinstance(again, Clipped)
    torch.testing.assert_close(again.crps(y), law.crps(y))
    torch.testing.assert_close(law.select(0, 0).mean, law.mean)
    assert len(law[[1]]) == 1


def test_supports():
    base = Forecast(torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1))
    assert clip(base, "real") is base
    for support, (low, high) in SUPPORTS.items():
        values = clip(base, support).quantile([1e-6, 1 - 1e-6])
        assert values.min() >= low
        assert values.max() <= high


def test_ends_must_be_in_order_and_stay_where_they_are(base):
    with pytest.raises(ValueError, match=r"low=1\.0, high=1\.0: expected an upper end above the lower one"):
        Clipped(base, 1.0, 1.0)
    with pytest.raises(TypeError, match="fixed ends: scale and shift its base before clipping"):
        Clipped(base, 0.0, 1.0).affine(2.0, 0.0)


def test_an_outcome_at_an_end_has_a_place_in_what_lies_beyond(base):
    """Of laws that are right, so that places are uniform; and by the number of the row alone."""
    law = Clipped(Forecast(torch.zeros(1, 4000, 1, 1), torch.ones(1, 4000, 1, 1)), -0.5, 0.8)
    y = law.sample(1, seed=3)[0]
    places = law.pit(y)
    assert kstest(places.flatten().numpy(), "uniform").pvalue > 0.01
    low = y == -0.5
    assert 0 < places[low].min() < 0.001
    assert norm.cdf(-0.5) - 0.001 < places[low].max() < norm.cdf(-0.5)
    parts = torch.cat([law[:1500].pit(y[:1500]), law[1500:].pit(y[1500:], first=1500)])
    torch.testing.assert_close(parts, places, rtol=0, atol=1e-12)
    outside = Clipped(base, 0.0, 1.0).pit([-1.0, 2.0])
    assert outside.flatten().tolist() == [0.0, 1.0]


def test_unclipped_outcomes_follow_the_base():
    base = Forecast(torch.full((1, 4000, 1, 1), 0.3), torch.ones(1, 4000, 1, 1))
    law = Clipped(base, -0.5, 0.8)
    y = law.sample(1, seed=4)[0]
    y[7] = torch.nan
    inner, before = law.unclip(y)
    assert kstest(before[~before.isnan()].numpy(), norm(0.3, 1).cdf).pvalue > 0.01
    torch.testing.assert_close(before.clamp(-0.5, 0.8), y, equal_nan=True)
    torch.testing.assert_close(inner.quantile([0.1, 0.7]), base.quantile([0.1, 0.7]), rtol=1e-3, atol=1e-3)
    assert base.unclip(y) == (base, y)
