"""What every calibrator promises."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from itocast import metrics, storage
from itocast.calibration import CALIBRATORS, Auto, Calibrator
from itocast.calibration.adaptive import RECENT
from itocast.calibration.auto import CANDIDATES, Way
from itocast.calibration.auto import _best as best_way
from itocast.calibration.base import warn_of_few
from itocast.clipped import clip
from itocast.forecast import Forecast


def misjudged(rows: int, factor: Any, seed: int) -> tuple[Forecast, torch.Tensor]:
    """A two-step, two-target law of two paths whose deviations are `factor` times too small, and outcomes."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(2, rows, 2, 2, generator=generator, dtype=torch.float64)
    law = Forecast(means, torch.full_like(means, 0.3))
    truth = law.sample(1, seed)[0]
    return law, law.mean + factor * (truth - law.mean)


FACTORS = torch.tensor([[0.5, 1.0], [2.0, 3.0]], dtype=torch.float64)  # (horizon, targets)
SYMMETRIC = ("variance", "conformal", "adaptive")  # those that leave the mean as it is


def fitted(name: str, law: Forecast, y: torch.Tensor, groups: Any = None) -> Calibrator:
    return CALIBRATORS[name]().fit(law, y, groups)


@pytest.mark.parametrize("name", CALIBRATORS)
def test_a_forecast_stays_a_forecast(name):
    law, y = misjudged(500, 2.0, seed=1)
    corrected = fitted(name, law, y).apply(law)
    assert isinstance(corrected, Forecast)
    assert corrected.shape == law.shape
    assert set(metrics.evaluate(corrected, y)) == set(metrics.METRICS)
    assert metrics.nll(corrected, y) < metrics.nll(law, y)
    assert metrics.crps(corrected, y) < metrics.crps(law, y)
    assert corrected.log_prob(y).isfinite().all()
    assert corrected.crps(y).isfinite().all()
    levels = torch.tensor([1e-4, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1 - 1e-4], dtype=torch.float64)
    quantiles = corrected.quantile(levels)
    assert (quantiles.diff(dim=0) > 0).all()
    expected = levels.reshape(-1, 1, 1, 1).expand_as(quantiles)
    torch.testing.assert_close(corrected.cdf(quantiles), expected, rtol=0.0, atol=1e-6)
    low, high = corrected.interval(80)
    torch.testing.assert_close(torch.stack([low, high]), quantiles[[2, 6]])
    draws = corrected.sample(400, seed=3)
    assert draws.shape == (400, *law.shape)
    assert ((draws >= low) & (draws <= high)).double().mean().item() == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("name", CALIBRATORS)
def test_the_split_is_kept_and_the_mean_where_it_is_promised(name):
    law, y = misjudged(500, 2.0, seed=1)
    corrected = fitted(name, law, y).apply(law)
    torch.testing.assert_close(corrected.aleatoric + corrected.epistemic, corrected.variance)
    torch.testing.assert_close(corrected.epistemic / corrected.variance, law.epistemic / law.variance)
    if name in SYMMETRIC:
        torch.testing.assert_close(corrected.mean, law.mean)


@pytest.mark.parametrize("name", CALIBRATORS)
def test_each_step_and_target_is_corrected_by_itself(name):
    """Deviations are too small by another factor at each; the band is for 1500 new outcomes and those learned from."""
    calibrator = fitted(name, *misjudged(1500, FACTORS, seed=1))
    law, y = misjudged(1500, FACTORS, seed=2)
    low, high = calibrator.apply(law).interval(90)
    inside = ((y >= low) & (y <= high)).double().mean(0)
    learned = RECENT if name == "adaptive" else 1500
    assert (inside - 0.9).abs().max() < 3.3 * (0.09 * (1 / 1500 + 1 / learned)) ** 0.5


@pytest.mark.parametrize("name", [name for name in CALIBRATORS if name != "adaptive"])
def test_each_group_is_corrected_by_itself_and_an_unknown_one_as_all(name):
    """Small groups are drawn towards all rows: with 1000 outcomes each that moves coverage by less than 2 points."""
    groups = torch.arange(2000) % 2
    factor = torch.where(groups == 0, 0.5, 2.0).double().reshape(-1, 1, 1)
    learned, (law, y) = misjudged(2000, factor, seed=1), misjudged(2000, factor, seed=2)
    calibrator = fitted(name, *learned, groups)
    corrected = calibrator.apply(law, groups)
    for group in (0, 1):
        rows = groups == group
        assert metrics.coverage(corrected[rows], y[rows], 90) == pytest.approx(0.9, abs=0.03)
    kind = calibrator.kind if isinstance(calibrator, Auto) else name
    together = fitted(kind, *learned).apply(law[:3])
    for unknown in (torch.tensor([-1, -1, -1]), torch.tensor([2, 7, -1]), None):
        found = calibrator.apply(law[:3], unknown)
        torch.testing.assert_close(found.quantile([0.1, 0.9]), together.quantile([0.1, 0.9]), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", CALIBRATORS)
def test_groups_of_few_or_no_outcomes_have_finite_bounds(name):
    law, y = misjudged(100, 2.0, seed=1)
    groups = torch.zeros(100, dtype=torch.long)
    groups[:3], groups[3] = 2, 3  # of group 1 there is no row, of group 3 no outcome
    y[3] = torch.nan
    corrected = fitted(name, law, y, groups).apply(law[:4], torch.tensor([0, 1, 2, 3]))
    for level in (50, 95, 99.9):
        low, high = corrected.interval(level)
        assert (high > low).all()
        assert (high - low).isfinite().all()


@pytest.mark.parametrize("name", CALIBRATORS)
def test_no_rows_are_refused(name):
    law, y = misjudged(5, 1.0, seed=1)
    with pytest.raises(ValueError, match="y has no rows"):
        CALIBRATORS[name]().fit(law[:0], y[:0])


@pytest.mark.parametrize("name", CALIBRATORS)
def test_missing_outcomes_are_left_out(name):
    """Those of half of the rows are missing: the correction is that of the other half."""
    law, y = misjudged(600, 2.0, seed=1)
    holes = y.clone()
    holes[300:] = torch.nan
    one, two = CALIBRATORS[name]().fit(law, holes).apply(law), CALIBRATORS[name]().fit(law[:300], y[:300]).apply(law)
    torch.testing.assert_close(one.quantile([0.1, 0.9]), two.quantile([0.1, 0.9]))
    nothing = CALIBRATORS[name]().fit(law, torch.full_like(y, torch.nan)).apply(law)
    torch.testing.assert_close(nothing.mean, law.mean, rtol=1e-4, atol=1e-4)  # tables are of single precision
    assert nothing.variance.isfinite().all()


@pytest.mark.parametrize("name", CALIBRATORS)
def test_a_calibrator_survives_storage(name):
    law, y = misjudged(200, 2.0, seed=1)
    y[:20, 1, 0] = torch.nan
    groups = torch.arange(200) % 3
    calibrator = fitted(name, law, y, groups)
    weights: dict[str, torch.Tensor] = {}
    plain = json.dumps(storage.pack(calibrator.to_dict(), "calibrator", weights), allow_nan=False)
    assert len(plain) < 1000
    again = CALIBRATORS[name](**storage.unpack(json.loads(plain), weights))
    levels = [0.001, 0.1, 0.9, 0.999]
    assert torch.equal(again.apply(law, groups).quantile(levels), calibrator.apply(law, groups).quantile(levels))


def test_groups_must_be_one_for_each_row():
    law, y = misjudged(30, 1.0, seed=1)
    with pytest.raises(ValueError, match=r"groups has shape \(2,\): expected one number for each of 30 rows"):
        fitted("conformal", law, y, torch.tensor([0, 1]))


@pytest.mark.parametrize("name", CALIBRATORS)
@pytest.mark.parametrize("rows", [1, 2, 5, 18])
def test_few_outcomes_are_warned_of_once_and_bounds_are_finite(name, rows):
    law, y = misjudged(rows, 2.0, seed=1)
    with pytest.warns(
        UserWarning, match=f"^{rows} outcomes .* 95 % need at least 19: .*calibrate on more rows"
    ) as said:
        corrected = fitted(name, law, y).apply(law)
    assert len(said) == 1
    for level in (50, 95, 99, 99.99):
        low, high = corrected.interval(level)
        assert (low <= high).all()
        assert (high - low).isfinite().all()
    assert corrected.log_prob(y).isfinite().all()
    assert corrected.crps(y).isfinite().all()


def test_how_many_outcomes_a_level_needs(recwarn):
    for level, needed in ((95, 19), (99, 99), (90, 9), (99.9, 999)):
        warn_of_few(needed, level)
        assert not recwarn.list
        with pytest.warns(UserWarning, match=f"^{needed - 1} outcomes .* {level} % need at least {needed}:"):
            warn_of_few(needed - 1, level)


def test_auto_picks_none_where_the_law_is_right():
    """At least 4 times in 6: 19 in 20 are the odds of each, if CRPS does not decide."""
    picks = []
    for seed in range(6):
        auto = Auto().fit(*misjudged(400, 1.0, seed))
        law = misjudged(3, 1.0, seed=9)[0]
        assert (auto.apply(law) is law) == (auto.kind == "none")
        picks.append(auto.kind)
    assert picks.count("none") >= 4


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_auto_picks_another_where_the_law_is_wrong_and_says_why(factor):
    auto = Auto().fit(*misjudged(400, factor, seed=1))
    assert auto.kind != "none"
    assert set(auto.scores) == {"none", *CANDIDATES}
    assert auto.why.startswith(f"{auto.kind}: the best CRPS of those whose CWCE may be chance")
    for name, score in auto.scores.items():
        assert f"{name} {score['crps']:.4g} / {score['cwce']:.2f}" in auto.why
    assert auto.scores[auto.kind]["cwce"] < 0.5 * auto.scores["none"]["cwce"]
    best = min(score["crps"] for score in auto.scores.values())
    assert auto.scores[auto.kind]["crps"] <= 1.0025 * best


@pytest.mark.parametrize("seed", range(4))
def test_auto_takes_the_smallest_error_of_those_with_a_good_crps(seed):
    """However small the others are: chance speaks for leaving a law as it is, not for one correction or another."""
    auto = Auto().fit(*misjudged(400, 2.0, seed))
    best = min(score["crps"] for score in auto.scores.values())
    near = {name: score["cwce"] for name, score in auto.scores.items() if score["crps"] <= 1.005 * best}
    assert "none" not in near
    assert auto.kind == min(near, key=near.__getitem__)


NONE, VARIANCE, ISOTONIC = Way("none", False), Way("variance", False), Way("isotonic", False)
GROUPED = Way("isotonic", True)


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        pytest.param({NONE: (1.004, 0.3), ISOTONIC: (1.0, 0.1)}, NONE, id="right as it is, and level"),
        pytest.param({NONE: (1.02, 0.3), ISOTONIC: (1.0, 0.1)}, ISOTONIC, id="right as it is, but worse"),
        pytest.param({NONE: (1.0, 2.0), ISOTONIC: (1.01, 0.1)}, ISOTONIC, id="right, and worth one percent"),
        pytest.param({NONE: (1.0, 2.0), VARIANCE: (1.001, 1.5), ISOTONIC: (1.02, 0.1)}, VARIANCE, id="too dear"),
        pytest.param({VARIANCE: (1.004, 0.3), GROUPED: (1.0, 0.1)}, VARIANCE, id="one for all rows is simpler"),
        pytest.param({VARIANCE: (1.01, 0.3), GROUPED: (1.0, 0.1)}, GROUPED, id="one for each group is better"),
        pytest.param({VARIANCE: (1.0, 0.3), ISOTONIC: (1.001, 0.2)}, ISOTONIC, id="the smaller error of equals"),
    ],
)
def test_the_rule_of_auto(scores, best):
    """CRPS and CWCE of each way; chance explains a CWCE of 0.4."""
    found = {way: {"crps": crps, "cwce": cwce} for way, (crps, cwce) in scores.items()}
    assert best_way(found, chance=0.4) == best


@pytest.mark.parametrize("name", CALIBRATORS)
def test_laws_with_an_end_are_corrected_before_they_are_cut_off(name):
    """One in 18 outcomes is 0, and deviations are half of what they should be."""
    (law, y), (later, outcomes) = (misjudged(2000, 2.0, seed) for seed in (1, 2))
    law, later, y, outcomes = law.affine(1, 3), later.affine(1, 3), y + 3, outcomes + 3
    calibrator = fitted(name, clip(law, "positive"), y.clamp(min=0))
    corrected = calibrator.apply(clip(later, "positive"))
    assert (corrected.quantile([0.01, 0.5]) >= 0).all()
    found = [metrics.coverage(corrected, outcomes.clamp(min=0), level) for level in (50, 80, 90)]
    assert found == pytest.approx([0.5, 0.8, 0.9], abs=0.05)
    assert metrics.crps(corrected, outcomes.clamp(min=0)) < metrics.crps(clip(later, "positive"), outcomes.clamp(min=0))


def test_auto_chooses_between_all_rows_and_each_group():
    groups = torch.arange(2000) % 2
    same, apart = torch.tensor(2.0), torch.where(groups == 0, 0.5, 2.0).double().reshape(-1, 1, 1)
    for factor, grouped in ((same, False), (apart, True)):
        auto = Auto(either=True).fit(*misjudged(2000, factor, seed=1), groups)
        assert set(auto.scores) == {"none", *CANDIDATES, *(f"{name} by group" for name in CANDIDATES)}
        assert auto.way.grouped == grouped
        assert auto.why.startswith(f"{auto.kind}{' by group' if grouped else ''}: ")
