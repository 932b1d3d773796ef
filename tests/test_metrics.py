import math
from dataclasses import fields

import numpy as np
import pytest
from scipy.stats import binom, kstest, norm

from itocast import metrics
from itocast.forecast import Forecast

SCALED = {"rmse", "crps", "epiw", "pinball"}  # in the target's unit
GRID = np.arange(1, 100) / 100


def normal_law(means, deviations):
    """One Gaussian a row: one path, one step, one target."""
    means = np.asarray(means, float)
    return Forecast(means[None, :, None, None], np.broadcast_to(deviations, means.shape)[None, :, None, None] ** 2)


def standard_law(rows):
    return normal_law(np.zeros(rows), 1.0)


@pytest.fixture(scope="module")
def case():
    """A mixture over paths and components with several steps and targets, and what happened."""
    rng = np.random.default_rng(0)
    shape = (3, 30, 2, 2, 2)
    means, variances = rng.normal(size=shape), np.exp(rng.normal(size=shape))
    law = Forecast(means, variances, rng.dirichlet([2.0, 3.0], shape[:-1]))
    return law, rng.normal(0, 1.5, law.shape)


@pytest.fixture(scope="module")
def honest():
    """Rows of known two-component laws, and values drawn from them by numpy."""
    rng = np.random.default_rng(1)
    shape = (1, 3000, 1, 1, 2)
    means, deviations = rng.normal(0, 2, shape), np.exp(rng.normal(0, 0.5, shape))
    weights = rng.dirichlet([2.0, 2.0], shape[:-1])
    second = rng.random(shape[:-1]) < weights[..., 1]
    chosen = [np.where(second, part[..., 1], part[..., 0])[0] for part in (means, deviations)]
    return means, deviations, weights, rng.normal(*chosen)


# ---- what every metric promises


@pytest.mark.parametrize("name", metrics.METRICS)
def test_metric_is_a_finite_number(case, name):
    value = metrics.METRICS[name](metrics.score(*case))
    assert type(value) is float
    assert math.isfinite(value)


def test_evaluate_is_what_the_functions_of_the_same_names_give(case):
    found = metrics.evaluate(*case)
    assert list(found) == list(metrics.METRICS)
    named = {name: getattr(metrics, name)(*case) for name in found if name != "epiw" and hasattr(metrics, name)}
    named |= {f"coverage_{level}": metrics.coverage(*case, level) for level in (50, 80, 90, 95)}
    named |= {"epiw": metrics.epiw(case[0]), "cwce_one_sided": metrics.cwce(*case, sided="one")}
    assert set(named) == set(found)
    for name, value in named.items():
        assert found[name] == pytest.approx(value, rel=1e-12), name


@pytest.mark.parametrize("name", metrics.METRICS)
def test_metric_does_not_depend_on_the_order_of_rows(case, name):
    law, y = case
    order = np.random.default_rng(2).permutation(len(law))
    assert metrics.evaluate(law[order], y[order])[name] == pytest.approx(metrics.evaluate(law, y)[name], rel=1e-9)


@pytest.mark.parametrize("name", metrics.METRICS)
def test_metric_follows_the_unit_of_the_target(case, name):
    law, y = case
    before, after = metrics.evaluate(law, y)[name], metrics.evaluate(law.affine(20.0, -7.0), 20 * y - 7)[name]
    expected = {"nll": before + math.log(20)}.get(name, before * (20 if name in SCALED else 1))
    assert after == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize(
    "metric",
    [
        metrics.evaluate,
        metrics.score,
        metrics.rmse,
        metrics.r2,
        metrics.nll,
        metrics.crps,
        metrics.pinball,
        metrics.cwce,
        metrics.r_cwce,
        metrics.ecpe,
    ],
)
def test_metric_rejects_y_of_wrong_shape(case, metric):
    with pytest.raises(ValueError, match=r"y has shape \(30, 2\): expected \(rows, horizon, targets\) = \(30, 2, 2\)"):
        metric(case[0], np.zeros((30, 2)))


# ---- outcomes that are missing


@pytest.fixture(scope="module")
def holes(case):
    """The case with a third of its outcomes missing, and where they are there."""
    law, y = case
    seen = np.random.default_rng(3).random(y.shape) > 1 / 3
    return law, np.where(seen, y, np.nan), seen


def test_missing_outcomes_are_left_out_and_the_others_keep_their_scores(case, holes):
    law, y, seen = holes
    scored, whole = metrics.score(law, y), metrics.score(*case)
    assert len(scored) == seen.sum()
    kept = whole[seen.reshape(-1)]
    for field in fields(scored):
        np.testing.assert_allclose(getattr(scored, field.name), getattr(kept, field.name), rtol=1e-12)
    assert (np.stack([scored.row, scored.step, scored.target]) == np.stack(seen.nonzero())).all()


def test_metrics_with_missing_outcomes_are_those_of_the_rows_that_have_them(case):
    law, y = case
    y = y.copy()
    y[10:] = np.nan
    for name, value in metrics.evaluate(law[:10], y[:10]).items():
        assert metrics.evaluate(law, y)[name] == pytest.approx(value, rel=1e-12), name


def test_scores_of_a_row_do_not_depend_on_other_rows(case):
    law, y = case
    parts = [metrics.score(law[rows], y[rows]) for rows in (slice(0, 7), slice(7, 30))]
    joined, whole = metrics.Scored.cat(parts, [7, 23]), metrics.score(law, y)
    for field in fields(joined):
        np.testing.assert_allclose(getattr(joined, field.name), getattr(whole, field.name), rtol=1e-12)
    assert joined.metrics() == pytest.approx(whole.metrics())


def test_scores_by_hand_where_one_outcome_is_missing():
    scored = metrics.score(standard_law(3), [0.0, math.nan, 2.0])
    assert scored.row.tolist() == [0, 2]
    np.testing.assert_allclose(scored.y, [0.0, 2.0])
    np.testing.assert_allclose(scored.mean, 0.0)
    np.testing.assert_allclose(scored.pit, norm.cdf([0.0, 2.0]))
    np.testing.assert_allclose(scored.log_prob, norm.logpdf([0.0, 2.0]))
    np.testing.assert_allclose(scored.crps[0], (math.sqrt(2) - 1) / math.sqrt(math.pi))
    assert scored.metrics()["rmse"] == pytest.approx(math.sqrt(2))


def test_no_outcome_at_all_is_refused():
    with pytest.raises(ValueError, match="y holds no outcome"):
        metrics.evaluate(standard_law(3), [math.nan] * 3)


def test_a_frame_in_the_place_of_a_forecast_is_refused():
    with pytest.raises(TypeError, match="forecast is a list: expected a Forecast, then the outcomes"):
        metrics.evaluate([1.0], standard_law(1))


def test_one_value_a_row_is_enough_for_one_step_and_target():
    law, y = normal_law([0.0, 1.0, 2.0, 3.0], 0.5), [0.1, 1.5, 1.0, 3.3]
    assert metrics.evaluate(law, y) == pytest.approx(metrics.evaluate(law, np.reshape(y, (4, 1, 1))))


# ---- the mean


def test_rmse_by_hand():
    law = Forecast([[[[1.0, 2.0]], [[3.0, 4.0]]], [[[3.0, 2.0]], [[3.0, 0.0]]]], np.ones((2, 2, 1, 2)))
    y = [[[2.0, 5.0]], [[3.0, 1.0]]]  # the means are 2, 2, 3, 2
    assert metrics.rmse(law, y) == pytest.approx(math.sqrt((0 + 9 + 0 + 1) / 4))


def test_r2_is_the_mean_over_targets_by_hand():
    means = np.array([[1.0, 0.0], [2.0, 20.0], [4.0, 40.0]])
    y = np.array([[1.0, 0.0], [2.0, 20.0], [3.0, 40.0]])
    law = Forecast(means[None, :, None, :], np.ones((1, 3, 1, 2)))
    assert metrics.r2(law, y[:, None, :]) == pytest.approx((0.5 + 1.0) / 2)


def test_r2_pools_the_steps_by_hand():
    law = Forecast([[[[0.0], [2.0]], [[4.0], [6.0]]]], np.ones((1, 2, 2, 1)))
    y = [[[1.0], [2.0]], [[4.0], [9.0]]]  # mean 4: Σ (y - ŷ)² = 1 + 9, Σ (y - 4)² = 9 + 4 + 0 + 25
    assert metrics.r2(law, y) == pytest.approx(1 - 10 / 38)


def test_r2_of_the_mean_of_y_is_zero():
    y = np.random.default_rng(3).normal(4, 2, 50)
    assert metrics.r2(normal_law(np.full(50, y.mean()), 1.0), y) == pytest.approx(0.0, abs=1e-12)


# ---- the whole law


def test_nll_of_standard_normal():
    y = np.array([0.0, 1.0, -3.0])
    assert metrics.nll(standard_law(3), y) == pytest.approx(0.5 * math.log(2 * math.pi) + 0.5 * 10 / 3)


def test_crps_is_the_mean_over_all_rows_steps_and_targets(case):
    law, y = case
    assert metrics.crps(law, y) == pytest.approx(np.mean([law[i : i + 1].crps(y[i : i + 1]).mean() for i in range(30)]))
    assert metrics.crps(standard_law(1), [0.0]) == pytest.approx((math.sqrt(2) - 1) / math.sqrt(math.pi))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.93])
def test_pinball_at_one_level_by_its_definition(p):
    rng = np.random.default_rng(4)
    means, deviations, y = rng.normal(size=40), rng.uniform(0.5, 2, 40), rng.normal(0, 2, 40)
    error = y - norm.ppf(p, means, deviations)
    expected = np.where(error >= 0, p * error, (1 - p) * -error).mean()
    assert metrics.pinball(normal_law(means, deviations), y, quantiles=p) == pytest.approx(expected, rel=1e-8)


def test_pinball_is_the_mean_over_19_levels_unless_told(case):
    law, y = case
    one_by_one = [metrics.pinball(law, y, quantiles=[p]) for p in GRID]
    assert metrics.pinball(law, y) == pytest.approx(np.mean(one_by_one[4::5]), rel=1e-8)
    assert metrics.pinball(law, y, quantiles=[0.2, 0.7]) == pytest.approx((one_by_one[19] + one_by_one[69]) / 2)


def test_twice_the_pinball_loss_over_a_fine_grid_is_the_crps(case):
    law, y = case[0][:5], case[1][:5]
    levels = (np.arange(2000) + 0.5) / 2000
    assert 2 * metrics.pinball(law, y, quantiles=levels) == pytest.approx(metrics.crps(law, y), rel=1e-4)


def test_pit_is_the_cdf_at_y():
    y = np.array([-1.0, 0.0, 2.5])
    np.testing.assert_allclose(metrics.pit(standard_law(3), y).flatten(), norm.cdf(y), atol=1e-14)


# ---- calibration


@pytest.mark.parametrize(
    ("y", "sided", "expected"),
    [
        ([0.0, 0.0], "two", 16.665),  # E(p) = 1: Σ p (1 - p)
        ([50.0, -50.0], "two", 32.835),  # E(p) = 0: Σ p²
        ([0.0, 50.0], "two", 12.25),  # E(p) = ½: Σ p |½ - p|
        ([0.0, 0.0], "one", 12.5),  # E(p) = 0 below the median, 1 from there on
        ([50.0, 50.0], "one", 32.835),
        ([-50.0, -50.0], "one", 16.665),
        ([50.0, -50.0], "one", 12.25),
    ],
)
def test_cwce_by_hand(y, sided, expected):
    assert metrics.cwce(standard_law(2), y, sided=sided) == pytest.approx(expected, abs=1e-9)
    assert metrics.cwce(standard_law(2), y, sided=sided, unit="percent") == pytest.approx(100 * expected / 49.5)


def test_largest_cwce_in_percent():
    assert metrics.cwce(standard_law(2), [50.0, -50.0], unit="percent") == pytest.approx(66.3333, abs=1e-4)


def test_cwce_is_two_sided_unless_told(case):
    found = metrics.evaluate(*case)
    assert metrics.cwce(*case) == metrics.cwce(*case, sided="two") == found["cwce"]
    assert metrics.cwce(*case, sided="one") == found["cwce_one_sided"]


@pytest.mark.parametrize(
    ("y", "sided", "expected"),
    [
        ([0.0, 0.0], "two", 0.5),
        ([50.0, 50.0], "two", 0.5),
        ([0.0, 50.0], "two", 24.5 / 99),
        ([0.0] * 2, "one", 25 / 99),
    ],
)
def test_ecpe_by_hand(y, sided, expected):
    assert metrics.ecpe(standard_law(2), y, sided=sided) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("sided", ["one", "two"])
def test_r_cwce_is_cwce_times_the_unexplained_share(case, sided):
    expected = (1 - metrics.r2(*case)) * metrics.cwce(*case, sided=sided)
    assert metrics.r_cwce(*case, sided=sided) == pytest.approx(expected, rel=1e-12)
    y = np.array([0.0, 1.0, 2.0])
    assert metrics.r_cwce(normal_law(y, 1.0), y, sided=sided) == 0


def test_calibration_curve_counts_the_intervals_that_hold_y(case):
    law, y = case
    for sided in ("one", "two"):
        expected, observed = metrics.calibration_curve(law, y, sided)
        np.testing.assert_allclose(expected, GRID)
        for p, share in zip(GRID[::14], observed[::14].tolist(), strict=True):
            low, high = (-math.inf, law.quantile(p).numpy()) if sided == "one" else law.interval(100 * p)
            inside = (y >= np.asarray(low)) & (y <= np.asarray(high))
            assert share == pytest.approx(inside.mean())


def test_calibration_curve_counts_y_on_the_bound_as_inside():
    _, observed = metrics.calibration_curve(standard_law(2), [0.0, 0.0], sided="one")
    assert observed.tolist() == [0.0] * 49 + [1.0] * 50


def test_coverage_by_hand():
    y = [0.0, 1.95, -1.95, 1.97]
    assert metrics.coverage(standard_law(4), y) == 0.75
    assert metrics.coverage(standard_law(4), y, level=96) == 1.0
    assert metrics.coverage(standard_law(4), y, level=10) == 0.25
    found = metrics.evaluate(normal_law(np.zeros(4), 1.0), [0.5, 1.0, 1.5, 1.8])  # bounds 0.674, 1.282, 1.645, 1.960
    assert [found[f"coverage_{level}"] for level in (50, 80, 90, 95)] == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("level", [50, 80, 95, 99])
def test_coverage_of_the_true_law_is_inside_its_binomial_band(honest, level):
    means, deviations, weights, y = honest
    low, high = binom.interval(0.999, len(y), level / 100)
    assert low <= len(y) * metrics.coverage(Forecast(means, deviations**2, weights), y, level) <= high


def test_true_law_is_calibrated(honest):
    means, deviations, weights, y = honest
    law = Forecast(means, deviations**2, weights)
    assert kstest(metrics.pit(law, y).flatten().numpy(), "uniform").pvalue > 0.001
    for sided in ("one", "two"):
        expected, observed = metrics.calibration_curve(law, y, sided)
        assert (observed - expected).abs().max().item() < 1.95 / math.sqrt(len(y))  # Kolmogorov's band of 99.9 %
        assert (observed.diff() >= 0).all()


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_law_of_wrong_width_is_worse_by_every_measure_of_calibration(honest, factor):
    means, deviations, weights, y = honest
    shrunk = means.mean(-1, keepdims=True) + factor * (means - means.mean(-1, keepdims=True))
    true, wrong = Forecast(means, deviations**2, weights), Forecast(shrunk, (factor * deviations) ** 2, weights)
    for metric in (metrics.cwce, metrics.ecpe, metrics.crps, metrics.nll):
        assert metric(wrong, y) > metric(true, y)
    assert metrics.cwce(wrong, y) > 5 * metrics.cwce(true, y)
    assert (metrics.coverage(wrong, y, 80) < 0.7) == (factor < 1)
    assert (metrics.coverage(wrong, y, 80) > 0.9) == (factor > 1)
    assert metrics.epiw(wrong) == pytest.approx(factor * metrics.epiw(true), rel=1e-7)


# ---- width


@pytest.mark.parametrize("level", [5, 50, 95, 99.9])
def test_epiw_at_one_level_is_twice_the_normal_quantile(level):
    deviations = np.array([0.5, 1.0, 3.0])
    expected = 2 * norm.ppf(0.5 + level / 200) * deviations.mean()
    assert metrics.epiw(normal_law([0.0, 10.0, -1e3], deviations), level=level) == pytest.approx(expected, rel=1e-9)


def test_epiw_is_the_mean_over_99_levels_unless_told(case):
    expected = np.mean(2 * norm.ppf((1 + GRID) / 2))
    assert metrics.epiw(normal_law([3.0], 1.7)) == pytest.approx(1.7 * expected, rel=1e-9)
    law = case[0][:4]
    assert metrics.epiw(law) == pytest.approx(np.mean([metrics.epiw(law, level=k) for k in range(1, 100)]), rel=1e-7)


# ---- bad choices


@pytest.mark.parametrize("metric", [metrics.cwce, metrics.r_cwce, metrics.ecpe, metrics.calibration_curve])
@pytest.mark.parametrize("sided", ["both", "", None, 2])
def test_unknown_side_is_rejected(case, metric, sided):
    with pytest.raises(ValueError, match=f"sided={sided!r}: expected 'one' or 'two'"):
        metric(*case, sided=sided)


def test_unknown_unit_is_rejected(case):
    with pytest.raises(ValueError, match="unit='share': expected 'sum' or 'percent'"):
        metrics.cwce(*case, unit="share")


@pytest.mark.parametrize("level", [0, 100, -1, 120])
def test_bad_level_is_rejected(case, level):
    with pytest.raises(ValueError, match=f"level={level}: expected a percentage from 1 to below 100"):
        metrics.coverage(*case, level)
    with pytest.raises(ValueError, match=f"level={level}: expected a percentage from 1 to below 100"):
        metrics.epiw(case[0], level)


@pytest.mark.parametrize("quantiles", [0.0, [0.5, 1.0], [-0.2]])
def test_bad_quantiles_are_rejected(case, quantiles):
    with pytest.raises(ValueError, match="expected a number above 0 and below 1, or a list of such"):
        metrics.pinball(*case, quantiles=quantiles)
