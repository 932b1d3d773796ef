import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr, ndtri
from scipy.stats import kstest, norm

import itocast.forecast as module
from itocast.forecast import Forecast, central

LEVELS = [1e-6, 1e-3, 0.05, 0.3, 0.5, 0.8, 0.99, 1 - 1e-6]


def random_parts(seed, paths=4, rows=5, horizon=2, targets=3, components=2):
    rng = np.random.default_rng(seed)
    shape = (paths, rows, horizon, targets, components)
    means = rng.normal(0, 1.5, shape)
    deviations = np.exp(rng.normal(0, 0.4, shape))
    weights = rng.dirichlet(np.full(components, 4.0), shape[:-1])
    return means, deviations, weights


def random_law(seed, **sizes):
    means, deviations, weights = random_parts(seed, **sizes)
    return Forecast(means, deviations**2, weights)


def normal_law(means, deviations):
    """One Gaussian a row: one path, one step, one target."""
    means = np.asarray(means, float)
    return Forecast(means[None, :, None, None], np.broadcast_to(deviations, means.shape)[None, :, None, None] ** 2)


def paths_law(means, deviations, dtype=np.float64):
    """One row whose paths have these means and deviations."""
    shape = (-1, 1, 1, 1)
    means, deviations = np.asarray(means, np.float64), np.asarray(deviations, np.float64)
    return Forecast(means.reshape(shape).astype(dtype), (deviations**2).reshape(shape).astype(dtype))


def points(part):
    """(paths, rows, horizon, targets, components) to one mixture a line."""
    return np.moveaxis(part, 0, -2).reshape(math.prod(part.shape[1:4]), -1)


def reference_quantile(p, means, deviations, weights):
    """brentq on the mixture's cdf, and on its survival function above the median; around 0 for the sake of rounding."""
    centre = means[0]
    means = means - centre

    def excess(x):
        z = (x - means) / deviations
        return (weights * ndtr(z)).sum() - p if p <= 0.5 else (1 - p) - (weights * ndtr(-z)).sum()

    ends = means + deviations * ndtri(p)
    slack = 1e-9 * deviations.max()
    return centre + brentq(excess, ends.min() - slack, ends.max() + slack, xtol=1e-300, rtol=1e-14, maxiter=500)


def reference_crps(cdf, y, low, high):
    """The integral of (F(x) - 1{x ≥ y})² by quadrature."""
    left = quad(lambda x: cdf(x) ** 2, low, y, limit=200, epsabs=1e-12)[0]
    return left + quad(lambda x: (1 - cdf(x)) ** 2, y, high, limit=200, epsabs=1e-12)[0]


# ---- what a law is made of


@pytest.mark.parametrize(
    ("means", "variances", "weights", "message"),
    [
        (np.zeros((2, 3, 1)), np.ones((2, 3, 1)), None, r"means has shape \(2, 3, 1\): expected \(paths, rows, hor"),
        (np.zeros((2, 3, 1, 1)), np.ones((2, 3, 1, 1)), np.ones((2, 3, 1, 1)), r"expected \(paths, .*, components\)"),
        (np.zeros((2, 3, 1, 1)), np.ones((2, 3, 1, 2)), None, r"variances has shape \(2, 3, 1, 2\): expected that of"),
        (np.zeros((1, 2, 1, 1, 2)), np.ones((1, 2, 1, 1, 2)), np.ones((1, 2, 1, 1)), r"weights has shape \(1, 2, 1, 1"),
        (np.full((1, 2, 1, 1), np.nan), np.ones((1, 2, 1, 1)), None, "not finite"),
        (np.zeros((1, 2, 1, 1)), np.full((1, 2, 1, 1), np.inf), None, "not finite"),
        (np.zeros((1, 2, 1, 1)), np.array([[[[1.0]], [[0.0]]]]), None, "smallest value of 0: expected all to be pos"),
        (np.zeros((1, 2, 1, 1)), np.array([[[[1.0]], [[-2.5]]]]), None, "variances has a smallest value of -2.5"),
        (np.zeros((0, 2, 1, 1)), np.ones((0, 2, 1, 1)), None, "at least one path"),
        (np.zeros((1, 1, 1, 1, 0)), np.ones((1, 1, 1, 1, 0)), np.ones((1, 1, 1, 1, 0)), "one component"),
        (np.zeros((1, 1, 1, 1, 2)), np.ones((1, 1, 1, 1, 2)), [[[[[1.5, -0.5]]]]], "weights must not be negative"),
        (np.zeros((1, 1, 1, 1, 2)), np.ones((1, 1, 1, 1, 2)), [[[[[0.5, 0.6]]]]], "sum to 1 over the last axis"),
        (np.zeros((1, 1, 1, 1, 2)), np.ones((1, 1, 1, 1, 2)), [[[[[0.5, np.nan]]]]], "sum to 1 over the last axis"),
    ],
)
def test_constructor_rejects(means, variances, weights, message):
    with pytest.raises(ValueError, match=message):
        Forecast(means, variances, weights)


@pytest.mark.parametrize("value", [[[[["a"]]]], [[1.0], [1.0, 2.0]], None, object()])
def test_constructor_rejects_what_is_not_numbers(value):
    ones = np.ones((1, 1, 1, 1))
    with pytest.raises(TypeError, match="means is not an array of numbers"):
        Forecast(value, ones)
    with pytest.raises(TypeError, match="variances is not an array of numbers"):
        Forecast(ones, value)


def test_shape_length_and_repr():
    law = random_law(0)
    assert law.shape == (5, 2, 3)
    assert len(law) == 5
    assert repr(law) == "Forecast(paths=4, rows=5, horizon=2, targets=3, components=2)"


def test_from_logs_is_the_same_law():
    means, deviations, weights = random_parts(1)
    law = Forecast(means, deviations**2, weights)
    other = Forecast.from_logs(*(torch.from_numpy(part) for part in (means, 2 * np.log(deviations), np.log(weights))))
    y = np.random.default_rng(2).normal(size=law.shape)
    torch.testing.assert_close(other.log_prob(y), law.log_prob(y))
    torch.testing.assert_close(other.crps(y), law.crps(y))
    torch.testing.assert_close(other.quantile(0.9), law.quantile(0.9))


def test_without_weights_is_one_component_of_weight_one():
    means, deviations, _ = random_parts(3, components=1)
    plain = Forecast(means[..., 0], deviations[..., 0] ** 2)
    weighted = Forecast(means, deviations**2, np.ones_like(means))
    torch.testing.assert_close(plain.quantile(LEVELS), weighted.quantile(LEVELS), rtol=0, atol=0)
    torch.testing.assert_close(plain.variance, weighted.variance, rtol=0, atol=0)


def test_component_of_weight_zero_counts_for_nothing():
    means, deviations, _ = random_parts(4)
    weights = np.zeros_like(means)
    weights[..., 1] = 1.0
    law = Forecast(means, deviations**2, weights)
    kept = Forecast(means[..., 1], deviations[..., 1] ** 2)
    y = np.random.default_rng(5).normal(size=law.shape)
    for name in ("log_prob", "cdf", "crps"):
        torch.testing.assert_close(getattr(law, name)(y), getattr(kept, name)(y))
    torch.testing.assert_close(law.quantile(LEVELS), kept.quantile(LEVELS))
    torch.testing.assert_close(law.variance, kept.variance)
    torch.testing.assert_close(law.sample(50).mean(0), kept.sample(50).mean(0))


# ---- one Gaussian


def test_single_gaussian_equals_scipy():
    rng = np.random.default_rng(6)
    means, deviations, y = rng.normal(0, 5, 30), np.exp(rng.normal(0, 1, 30)), rng.normal(0, 8, 30)
    law, oracle = normal_law(means, deviations), norm(means, deviations)
    np.testing.assert_allclose(law.cdf(y).flatten(), oracle.cdf(y), rtol=0, atol=1e-14)
    np.testing.assert_allclose(law.log_prob(y).flatten(), oracle.logpdf(y), rtol=1e-12)
    for p in LEVELS:
        np.testing.assert_allclose(law.quantile(p).flatten(), oracle.ppf(p), rtol=1e-11, atol=1e-11)
    for level in (1, 50, 95, 99.9):
        np.testing.assert_allclose(
            [bound.flatten() for bound in law.interval(level)], oracle.interval(level / 100), rtol=1e-11, atol=1e-11
        )


def test_interval_is_95_percent_unless_told():
    low, high = normal_law([0.0], 1.0).interval()
    assert (low.item(), high.item()) == pytest.approx((-1.959963984540054, 1.959963984540054), abs=1e-12)


# ---- mixtures


def test_mixture_cdf_is_the_weighted_sum_of_normal_cdfs():
    means, deviations, weights = random_parts(7)
    law = Forecast(means, deviations**2, weights)
    y = np.random.default_rng(8).normal(0, 3, law.shape)
    expected = (weights * norm.cdf(y[..., None], means, deviations)).sum(-1).mean(0)
    np.testing.assert_allclose(law.cdf(y), expected, rtol=0, atol=1e-14)


def test_cdf_takes_axes_in_front():
    law = random_law(9)
    y = np.random.default_rng(10).normal(0, 3, (2, 4, *law.shape))
    together = law.cdf(y)
    assert together.shape == y.shape
    for i in range(2):
        for j in range(4):
            torch.testing.assert_close(together[i, j], law.cdf(y[i, j]), rtol=0, atol=1e-15)


def test_mixture_log_prob_is_the_log_of_the_weighted_density():
    means, deviations, weights = random_parts(11)
    law = Forecast(means, deviations**2, weights)
    y = np.random.default_rng(12).normal(0, 3, law.shape)
    normal = norm.logpdf(y[..., None], means, deviations)
    np.testing.assert_allclose(law.path_log_prob(y), logsumexp(normal, axis=-1, b=weights), rtol=1e-12)
    np.testing.assert_allclose(law.log_prob(y), logsumexp(normal, axis=(0, -1), b=weights / 4), rtol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_mixture_quantile_equals_root_of_the_cdf(seed):
    means, deviations, weights = random_parts(100 + seed, paths=3 + 3 * seed, rows=4, horizon=1, targets=2)
    law = Forecast(means, deviations**2, weights)
    lines = zip(points(means), points(deviations), points(weights) / len(means), strict=True)
    expected = [[reference_quantile(p, *line) for p in LEVELS] for line in lines]
    np.testing.assert_allclose(law.quantile(LEVELS).reshape(len(LEVELS), -1).T, expected, rtol=1e-8, atol=1e-10)


HARD = {
    "deviations differ by 1e4": ([0.0, 0.3, 1.0, -0.4], [1.0, 1e-4, 1e-2, 1e-3]),
    "one spike inside a wide law": ([0.0, 0.123], [1e4, 1.0]),
    "far apart modes": ([-1e4, 1e4, 3e4], [1.0, 2.0, 0.5]),
    "modes that nearly touch": ([-4.0, 4.0, 4.5], [1.0, 1.0, 0.7]),
    "100 components": (np.random.default_rng(13).normal(0, 3, 100), np.random.default_rng(14).uniform(0.1, 2, 100)),
    "100 spikes": (np.random.default_rng(15).normal(0, 3, 100), np.full(100, 1e-3)),
    "identical components": ([2.0] * 5, [3.0] * 5),
    "huge shift": ([1e8, 1e8 + 3, 1e8 - 1], [1.0, 2.0, 0.5]),
    "tiny scale": ([0.0, 3e-8, -1e-8], [1e-8, 2e-8, 5e-9]),
    "tiny scale, large mean": ([1.0, 1 + 3e-8], [1e-8, 2e-8]),
}


@pytest.mark.parametrize("case", HARD)
def test_quantile_of_hard_mixtures_equals_root_of_the_cdf(case):
    means, deviations = (np.asarray(part, float) for part in HARD[case])
    weights = np.full(len(means), 1 / len(means))
    levels = [1e-6, 0.001, 0.113, 0.267, 0.404, 0.475, 0.608, 0.721, 0.903, 0.999, 1 - 1e-6]
    law = paths_law(means, deviations)
    found = law.quantile(levels).flatten().numpy()
    expected = np.array([reference_quantile(p, means, deviations, weights) for p in levels])
    resolution = 4 * np.spacing(np.abs(expected))
    assert (np.abs(found - expected) <= 1e-8 * deviations.max() + resolution).all()
    reached = law.cdf(found.reshape(-1, 1, 1, 1)).flatten().numpy()
    assert (np.abs(reached - levels) <= 1e-9 + resolution / deviations.min()).all()


def test_quantile_of_float32_law_is_that_of_its_rounded_parameters():
    means, deviations = np.float32([0.1, 3.3, -2.7]), np.float32([0.7, 1.9, 0.3])
    law = Forecast(means[:, None, None, None], np.square(deviations)[:, None, None, None])
    assert law.means.dtype == torch.float32
    exact = np.sqrt(np.exp(np.log(np.square(deviations)).astype(np.float64)))
    expected = [reference_quantile(p, means.astype(np.float64), exact, np.full(3, 1 / 3)) for p in LEVELS]
    found = law.quantile(LEVELS)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.flatten(), expected, rtol=1e-6)
    np.testing.assert_allclose(law.cdf(found).flatten(), LEVELS, rtol=0, atol=1e-9)


def test_quantile_in_the_gap_between_two_modes_lies_in_the_gap():
    law = paths_law([-1e4, 1e4], [1.0, 1.0])
    median = law.quantile(0.5)
    assert -1e4 + 7 < median.item() < 1e4 - 7
    assert law.cdf(median).item() == pytest.approx(0.5, abs=1e-12)
    beside = law.quantile([0.5 - 1e-9, 0.5 + 1e-9]).flatten().numpy()
    np.testing.assert_allclose(beside, [-1e4 + norm.isf(2e-9), 1e4 + norm.ppf(2e-9)], rtol=0, atol=1e-5)


@pytest.mark.parametrize("paths", [1, 2, 7])
def test_cdf_undoes_quantile(paths):
    law = random_law(16 + paths, paths=paths, rows=60)
    levels = torch.tensor([*LEVELS, *np.linspace(0.01, 0.99, 40)], dtype=torch.float64)
    reached = law.cdf(law.quantile(levels))
    torch.testing.assert_close(reached, levels.reshape(-1, 1, 1, 1).expand_as(reached), rtol=0, atol=1e-9)


def test_quantile_undoes_cdf():
    law = random_law(17)
    y = law.sample(1)[0]
    p = law.cdf(y).flatten()
    found = torch.stack([law.quantile(level).flatten()[i] for i, level in enumerate(p.tolist())])
    torch.testing.assert_close(found, y.flatten(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("case", HARD)
def test_quantiles_never_cross(case):
    levels = np.arange(1, 1000) / 1000
    assert (paths_law(*HARD[case]).quantile(levels).diff(dim=0) >= 0).all()


def test_unsorted_levels_give_the_same_answers_in_their_order():
    law, levels = random_law(18), np.array([0.9, 0.1, 0.5, 0.1, 1e-6, 0.99])
    found = law.quantile(levels)
    assert found.shape == (6, 5, 2, 3)
    order = np.argsort(levels)
    torch.testing.assert_close(found[order], law.quantile(levels[order]), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found[1], found[3], rtol=0, atol=0)
    for p, one in zip(levels, found, strict=True):
        torch.testing.assert_close(one, law.quantile(p), rtol=1e-9, atol=1e-10)


def test_scalar_level_has_no_first_axis():
    law = random_law(19)
    assert law.quantile(0.3).shape == (5, 2, 3)
    assert law.quantile([0.3]).shape == (1, 5, 2, 3)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, 1.5, math.nan, [0.5, 1.0], [[0.5]]])
def test_quantile_rejects_bad_levels(p):
    with pytest.raises(ValueError, match=r"p=.*: expected a number above 0 and below 1, or a list of such"):
        random_law(20).quantile(p)


def test_quantile_rejects_text():
    with pytest.raises(TypeError, match="p is not an array of numbers"):
        random_law(20).quantile("0.5")


@pytest.mark.parametrize("level", [0, 0.95, 100, -5, 101, math.nan])
def test_interval_rejects_bad_levels(level):
    with pytest.raises(ValueError, match=f"level={level}: expected a percentage from 1 to below 100, such as 95"):
        random_law(20).interval(level)


def test_central_probabilities_are_symmetric():
    assert central(80) == (0.1, 0.9)
    assert central(99.9) == pytest.approx((0.0005, 0.9995))


def test_answers_do_not_depend_on_the_chunks(monkeypatch):
    law = random_law(21)
    y = np.random.default_rng(22).normal(size=(3, *law.shape))
    whole = law.cdf(y), law.quantile(LEVELS), law.crps(y[0])
    monkeypatch.setattr(module, "CHUNK", 7)
    for one, other in zip(whole, (law.cdf(y), law.quantile(LEVELS), law.crps(y[0])), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def test_a_row_does_not_depend_on_the_other_rows():
    law, hard = random_law(23, rows=40), random_law(24, rows=10).affine(1e-4, 50.0)
    both = Forecast.cat([law, hard])
    for row in (0, 17, 39):
        rows = slice(row, row + 1)
        torch.testing.assert_close(both.quantile(LEVELS)[:, rows], law[rows].quantile(LEVELS), rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(both.crps(both.mean)[rows], law[rows].crps(law[rows].mean), rtol=1e-12, atol=0)


# ---- CRPS


def test_crps_of_single_gaussian_equals_closed_form():
    rng = np.random.default_rng(25)
    means, deviations, y = rng.normal(0, 3, 40), np.exp(rng.normal(0, 1, 40)), rng.normal(0, 6, 40)
    z = (y - means) / deviations  # Gneiting et al. 2005, Eq. 5
    expected = deviations * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / math.sqrt(math.pi))
    np.testing.assert_allclose(normal_law(means, deviations).crps(y).flatten(), expected, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("y", [-3.0, 0.0, 0.4, 9.0])
def test_crps_of_single_gaussian_equals_quadrature(y):
    expected = reference_crps(norm(0.4, 1.7).cdf, y, -25, 25)
    assert normal_law([0.4], 1.7).crps([y]).item() == pytest.approx(expected, abs=1e-8)


def test_crps_of_mixture_equals_quadrature():
    means, deviations, weights = random_parts(26, paths=3, rows=2, horizon=1, targets=2)
    law = Forecast(means, deviations**2, weights)
    y = np.random.default_rng(27).normal(0, 3, law.shape)
    expected = [
        reference_crps(lambda x, m=m, s=s, w=w: w @ ndtr((x - m) / s), at, min(m.min(), at) - 30, max(m.max(), at) + 30)
        for m, s, w, at in zip(points(means), points(deviations), points(weights) / 3, y.flatten(), strict=True)
    ]
    np.testing.assert_allclose(law.crps(y).flatten(), expected, rtol=0, atol=1e-8)


def test_crps_of_nearly_certain_law_is_the_absolute_error():
    means, y = np.array([1.0, -2.0, 1e6]), np.array([4.5, -2.25, 1e6 + 7])
    np.testing.assert_allclose(normal_law(means, 1e-9).crps(y).flatten(), np.abs(y - means), rtol=1e-8)


def test_crps_of_nearly_certain_paths_is_that_of_the_ensemble():
    members = np.array([0.0, 1.0, 4.0])
    expected = np.abs(2.5 - members).mean() - 0.5 * np.abs(members[:, None] - members).mean()
    assert paths_law(members, np.full(3, 1e-9)).crps([2.5]).item() == pytest.approx(expected, abs=1e-8)


# ---- moments and draws


def test_moments_by_hand():
    law = Forecast(
        means=[[[[[0.0, 4.0]]]], [[[[3.0, 3.0]]]]],
        variances=[[[[[1.0, 1.0]]]], [[[[2.0, 2.0]]]]],
        weights=[[[[[0.75, 0.25]]]], [[[[0.5, 0.5]]]]],
    )
    assert law.path_means.flatten().tolist() == pytest.approx([1.0, 3.0])
    assert law.mean.item() == pytest.approx(2.0)
    assert law.aleatoric.item() == pytest.approx(3.0)  # of 1 + ¾·1 + ¼·9 = 4 and 2
    assert law.epistemic.item() == pytest.approx(1.0)
    assert law.variance.item() == pytest.approx(4.0)


def test_one_path_has_no_epistemic_part():
    law = random_law(28, paths=1)
    assert (law.epistemic == 0).all()
    torch.testing.assert_close(law.variance, law.aleatoric, rtol=0, atol=0)


def test_moments_equal_those_of_a_large_sample():
    law = random_law(29, paths=3, rows=1, horizon=1, targets=2)
    n = 200_000
    draws = law.sample(n, seed=30)
    error = (law.variance / n).sqrt()
    assert ((draws.mean(0) - law.mean).abs() < 4 * error).all()
    torch.testing.assert_close(draws.var(0), law.variance, rtol=0.02, atol=0)


@pytest.mark.parametrize("seed", [31, 32])
def test_sample_follows_the_cdf(seed):
    law = random_law(seed, rows=1, horizon=1, targets=1, components=3)
    draws = law.sample(5000, seed=seed).flatten().numpy()
    assert kstest(draws, lambda x: law.cdf(x.reshape(-1, 1, 1, 1)).flatten().numpy()).pvalue > 0.01


def test_sample_shape_and_seed():
    law = random_law(33)
    draws = law.sample(6, seed=1)
    assert draws.shape == (6, 5, 2, 3)
    torch.testing.assert_close(law.sample(6, seed=1), draws, rtol=0, atol=0)
    torch.testing.assert_close(law.sample(6, seed=torch.Generator().manual_seed(1)), draws, rtol=0, atol=0)
    assert (law.sample(6, seed=2) != draws).all()


def test_sample_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    random_law(34).sample(5)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_draw_follows_one_path_over_all_rows():
    means = np.array([-100.0, 100.0])[:, None, None, None] * np.ones((2, 20, 3, 2))
    above = (Forecast(means, np.ones_like(means)).sample(400, seed=35) > 0).reshape(400, -1)
    assert (above.all(1) | ~above.any(1)).all()
    assert 150 < above.all(1).sum().item() < 250


def test_components_are_drawn_for_each_row_by_weight():
    means = np.array([-100.0, 100.0]) * np.ones((1, 3000, 1, 1, 2))
    weights = np.array([0.8, 0.2]) * np.ones_like(means)
    above = (Forecast(means, np.ones_like(means), weights).sample(2, seed=36) > 0).double().mean((1, 2, 3))
    np.testing.assert_allclose(above, [0.2, 0.2], rtol=0, atol=0.03)


# ---- rows and units


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (slice(1, 4), [1, 2, 3]),
        (slice(None, None, 2), [0, 2, 4]),
        (np.array([True, False, False, True, True]), [0, 3, 4]),
        (torch.tensor([False, True, False, False, False]), [1]),
        ([4, 0, 0], [4, 0, 0]),
        (np.array([-1, 2]), [4, 2]),
    ],
)
def test_rows_are_taken_by_slice_mask_or_list(rows, expected):
    law = random_law(37)
    part = law[rows]
    assert part.shape == (len(expected), 2, 3)
    torch.testing.assert_close(part.mean, law.mean[expected], rtol=0, atol=0)
    torch.testing.assert_close(part.epistemic, law.epistemic[expected], rtol=0, atol=0)
    torch.testing.assert_close(part.crps(law.mean[expected]), law.crps(law.mean)[expected])


@pytest.mark.parametrize(("step", "target"), [(0, 0), (1, 2), (0, 1)])
def test_select_is_the_law_of_one_step_and_target(step, target):
    law, part = random_law(56), random_law(56).select(step, target)
    assert part.shape == (5, 1, 1)
    torch.testing.assert_close(part.variance[:, 0, 0], law.variance[:, step, target], rtol=0, atol=0)
    torch.testing.assert_close(part.crps(np.ones(5))[:, 0, 0], law.crps(np.ones((5, 2, 3)))[:, step, target])
    torch.testing.assert_close(part.quantile(0.3)[:, 0, 0], law.quantile(0.3)[:, step, target], rtol=1e-9, atol=1e-10)


def test_cat_undoes_slicing():
    law = random_law(38)
    again = Forecast.cat([law[:2], law[2:3], law[3:]])
    for name in ("means", "log_variances", "log_weights"):
        torch.testing.assert_close(getattr(again, name), getattr(law, name), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("scale", "shift"),
    [
        (2.5, -3.0),
        (np.array([2.0, 0.5, 1e3]), np.array([1.0, -3.0, 1e4])),
        (np.linspace(0.5, 2, 5).reshape(5, 1, 1), np.arange(10.0).reshape(5, 2, 1)),
        (-0.7, 4.0),
    ],
)
def test_affine_law_is_the_law_of_scaled_and_shifted_values(scale, shift):
    law = random_law(39)
    y = np.random.default_rng(40).normal(0, 2, law.shape)
    moved, moved_y, size = law.affine(scale, shift), y * scale + shift, np.abs(scale)
    rises = bool(np.all(np.asarray(scale) > 0))
    np.testing.assert_allclose(moved.mean, law.mean.numpy() * scale + shift, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(moved.aleatoric, law.aleatoric.numpy() * size**2, rtol=1e-10)
    np.testing.assert_allclose(moved.epistemic, law.epistemic.numpy() * size**2, rtol=1e-8)
    np.testing.assert_allclose(moved.crps(moved_y), law.crps(y).numpy() * size, rtol=1e-8)
    np.testing.assert_allclose(moved.log_prob(moved_y), law.log_prob(y).numpy() - np.log(size), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(moved.cdf(moved_y), law.cdf(y) if rises else 1 - law.cdf(y), rtol=0, atol=1e-9)
    for p in (0.02, 0.5, 0.9):
        expected = law.quantile(p if rises else 1 - p).numpy() * scale + shift
        np.testing.assert_allclose(moved.quantile(p), expected, rtol=1e-8, atol=1e-8)


# ---- training on the density


def test_path_log_prob_is_the_papers_loss_up_to_a_constant():
    means, deviations, _ = random_parts(41, components=1)
    law = Forecast(means[..., 0], deviations[..., 0] ** 2)
    y = np.random.default_rng(42).normal(0, 3, law.shape)
    s = np.log(deviations[..., 0] ** 2)
    loss = 0.5 * (y - means[..., 0]) ** 2 * np.exp(-s) + 0.5 * s
    np.testing.assert_allclose(-law.path_log_prob(y).numpy() - loss, 0.5 * math.log(2 * math.pi), rtol=1e-10)


def test_log_of_the_mean_density_is_at_least_the_mean_of_the_logs():
    law = random_law(43)
    y = np.random.default_rng(44).normal(0, 5, law.shape)
    assert (law.log_prob(y) >= law.path_log_prob(y).mean(0)).all()
    alike = Forecast(np.zeros((4, 2, 1, 1)), np.ones((4, 2, 1, 1)))
    torch.testing.assert_close(alike.log_prob([0.3, 4.0]), alike.path_log_prob([0.3, 4.0]).mean(0))


def test_gradients_of_a_single_gaussian_by_hand():
    mean = torch.tensor([[[[[0.5]]]]], dtype=torch.float64, requires_grad=True)
    log_variance = torch.tensor([[[[[0.8]]]]], dtype=torch.float64, requires_grad=True)
    Forecast.from_logs(mean, log_variance, torch.zeros_like(mean)).log_prob([2.0]).sum().backward()
    assert mean.grad.item() == pytest.approx(1.5 * math.exp(-0.8))
    assert log_variance.grad.item() == pytest.approx(0.5 * (1.5**2 * math.exp(-0.8) - 1))


@pytest.mark.parametrize("name", ["log_prob", "path_log_prob"])
def test_gradients_equal_finite_differences(name):
    means, deviations, weights = random_parts(45, paths=2, rows=2, horizon=1, targets=2)
    y = np.random.default_rng(46).normal(size=(2, 1, 2))
    leaves = [torch.tensor(part, requires_grad=True) for part in (means, np.log(deviations), np.log(weights))]
    torch.autograd.gradcheck(lambda *parts: getattr(Forecast.from_logs(*parts), name)(y), leaves)


def test_gradients_flow_from_the_constructor():
    parts = [torch.tensor(part, requires_grad=True) for part in random_parts(47)]
    Forecast(*parts).log_prob(torch.zeros(5, 2, 3)).sum().backward()
    assert all(part.grad.isfinite().all() and (part.grad != 0).any() for part in parts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("log_variance", [-14.0, 14.0])
def test_log_prob_is_stable_for_extreme_variances_and_errors(dtype, log_variance):
    y = torch.tensor([0.0, 1e3, -1e3], dtype=dtype)
    means = torch.zeros(2, 3, 1, 1, 1, dtype=dtype, requires_grad=True)
    log_variances = torch.full_like(means, log_variance, requires_grad=True)
    found = Forecast.from_logs(means, log_variances, torch.zeros_like(means)).log_prob(y)
    expected = norm.logpdf(y.numpy().astype(np.float64), 0, math.exp(log_variance / 2))
    np.testing.assert_allclose(found.detach().flatten(), expected, rtol=1e-5)
    found.sum().backward()
    assert means.grad.isfinite().all()
    assert log_variances.grad.isfinite().all()


def test_log_prob_of_very_different_paths_is_that_of_the_likelier_one():
    log_variances = torch.tensor([-14.0, 14.0]).reshape(2, 1, 1, 1, 1)
    law = Forecast.from_logs(torch.zeros_like(log_variances), log_variances, torch.zeros_like(log_variances))
    expected = norm.logpdf(1e3, 0, math.exp(7)) - math.log(2)
    assert law.log_prob([1e3]).item() == pytest.approx(expected, rel=1e-6)


# ---- y


@pytest.mark.parametrize("name", ["log_prob", "path_log_prob", "cdf", "crps"])
@pytest.mark.parametrize("shape", [(5,), (5, 2), (4, 2, 3), (5, 3, 2), ()])
def test_y_of_wrong_shape_is_rejected(name, shape):
    with pytest.raises(ValueError, match=r"y has shape \(.*\): expected \(rows, horizon, targets\) = \(5, 2, 3\)"):
        getattr(random_law(48), name)(np.zeros(shape))


@pytest.mark.parametrize("name", ["log_prob", "crps"])
def test_axes_in_front_of_y_are_rejected_where_they_have_no_meaning(name):
    with pytest.raises(ValueError, match=r"y has shape \(7, 5, 2, 3\)"):
        getattr(random_law(48), name)(np.zeros((7, 5, 2, 3)))


def test_y_that_is_not_numbers_is_rejected():
    with pytest.raises(TypeError, match="y is not an array of numbers"):
        normal_law([0.0], 1.0).log_prob(["today"])


def test_one_value_a_row_is_enough_for_one_step_and_target():
    law, y = normal_law([0.0, 1.0, 2.0], 1.0), [1, 2, 4]
    for name in ("log_prob", "cdf", "crps"):
        short, full = getattr(law, name)(y), getattr(law, name)(np.array(y, float).reshape(3, 1, 1))
        assert short.shape == (3, 1, 1)
        torch.testing.assert_close(short, full, rtol=0, atol=0)


def test_python_numbers_keep_double_precision():
    law = Forecast([[[[0.1]]]], [[[[1.0]]]])
    assert law.mean.item() == 0.1
    assert law.cdf([0.3]).item() == pytest.approx(norm.cdf(0.2), abs=1e-14)
    assert law.quantile(1 - 1e-6).item() == pytest.approx(0.1 + norm.ppf(1 - 1e-6), abs=1e-9)
    assert law.affine(0.1, 0.7).mean.item() == pytest.approx(0.71, abs=1e-14)


def frozen(values):
    values.flags.writeable = False
    return values


def backwards(values):
    return values[::-1].copy()[::-1]


@pytest.mark.parametrize("layout", [frozen, backwards])
def test_numpy_arrays_of_any_layout_are_taken(layout):
    values = np.array([0.5, -1.0, 2.0])  # pandas 3 hands out read-only arrays
    expected = norm.logpdf(values)
    np.testing.assert_allclose(normal_law(np.zeros(3), 1.0).log_prob(layout(values)).flatten(), expected)


def test_rows_by_position():
    law = random_law(70)
    rows = list(law)
    assert len(rows) == len(law)
    torch.testing.assert_close(Forecast.cat(rows).mean, law.mean)
    torch.testing.assert_close(law[np.int64(-1)].mean, law.mean[-1:])
    torch.testing.assert_close(law.select(-1, 0).mean, law.mean[:, -1:, :1])
    with pytest.raises(IndexError, match="row 99: there are"):
        law[99]
    assert law.interval(np.int64(90))[0].shape == law.shape


def test_tables_of_quantiles_are_right_where_laws_are_peaked():
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(4, 50, 1, 1, 5, generator=generator, dtype=torch.float64)
    variances = 10 ** (
        4 * torch.rand(means.shape, generator=generator, dtype=torch.float64) - 4
    )  # deviations 0.01 to 1
    weights = torch.rand(means.shape, generator=generator, dtype=torch.float64)
    law = Forecast(means, variances, weights / weights.sum(-1, keepdim=True))
    levels = torch.arange(1, 200, dtype=torch.float64) / 200
    wrong = (law.cdf(law.tabulate(levels)) - levels.reshape(-1, 1, 1, 1)).abs()
    assert wrong.max() < 0.01
    assert wrong.mean() < 1e-4


def test_a_table_is_right_where_single_levels_lie_in_gaps_of_the_law():
    """A small far mode has its quantiles between those of two levels: none may be taken from beyond it."""
    far = torch.tensor([0.0, 40.0]).expand(50, 2)[None, :, None, None, :]
    shares = torch.linspace(0.005, 0.05, 50)
    weights = torch.stack([1 - shares, shares], -1)[None, :, None, None, :]
    law = Forecast(far, torch.ones_like(far), weights)
    exact, table = law.quantile(module.LEVELS), law.tabulate(module.LEVELS)
    near = (law.cdf(table) - module.LEVELS[:, None, None, None]).abs() < 1e-3
    assert (near | ((table - exact).abs() < 0.05)).all()
