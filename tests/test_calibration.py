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


EXPLICIT = [name for name in CALIBRATORS if name != "auto"]


def check_bounds(corrected: Forecast, y: torch.Tensor) -> None:
    """All that is asked of a law is finite."""
    for level in (50, 95, 99, 99.99):
        low, high = corrected.interval(level)
        assert (low <= high).all()
        assert (high - low).isfinite().all()
    assert corrected.log_prob(y).isfinite().all()
    assert corrected.crps(y).isfinite().all()


@pytest.mark.parametrize("name", EXPLICIT)
@pytest.mark.parametrize("rows", [1, 2, 5, 18])
def test_few_outcomes_are_warned_of_once_and_bounds_are_finite(name, rows):
    law, y = misjudged(rows, 2.0, seed=1)
    few = f"^{rows} independent outcomes? .* 95 % need at least 19: .*more rows would tell"
    with pytest.warns(UserWarning, match=few) as said:
        corrected = fitted(name, law, y).apply(law)
    assert len(said) == 1
    check_bounds(corrected, y)


@pytest.mark.parametrize("rows", [1, 2, 5, 18])
def test_auto_does_with_few_outcomes_and_says_nothing(rows):
    law, y = misjudged(rows, 2.0, seed=1)
    check_bounds(fitted("auto", law, y).apply(law), y)


@pytest.mark.parametrize("name", EXPLICIT)
def test_outcomes_that_overlap_are_counted_once(name, recwarn):
    """Of 200 forecasts of 12 steps, one row after the other, about 17 share no outcome."""
    law, y = misjudged(200, 2.0, seed=1)
    CALIBRATORS[name]().fit(law, y)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="^17 independent outcomes calibrate"):
        CALIBRATORS[name]().fit(law, y, overlap=12.0)


def test_how_many_outcomes_a_level_needs(recwarn):
    for level, needed in ((95, 19), (99, 99), (90, 9), (99.9, 999)):
        warn_of_few(needed, level)
        assert not recwarn.list
        few = f"^{needed - 1} independent outcomes .* {level} % need at least {needed}:"
        with pytest.warns(UserWarning, match=few):
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
def test_auto_picks_another_where_the_law_is_wrong_and_says_what_it_holds(factor):
    auto = Auto().fit(*misjudged(400, factor, seed=1))
    assert auto.kind != "none"
    assert set(auto.scores) == {"none", *CANDIDATES}
    chosen, plain = auto.scores[auto.kind], auto.scores["none"]
    with_it, without = (f"{100 * score['coverage_95']:.1f} %" for score in (chosen, plain))
    assert auto.why == (
        f"{auto.kind}: 95 % intervals held {with_it} of outcomes that it had not seen (without: {without})"
    )
    assert chosen["cwce"] < 0.5 * plain["cwce"]
    assert chosen["crps"] <= 1.015 * min(score["crps"] for score in auto.scores.values())


@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_what_auto_takes_holds_on_new_outcomes(factor, seed):
    """1,600 outcomes teach and 1,600 judge: 3.3 deviations of both."""
    auto = Auto().fit(*misjudged(400, factor, seed))
    law, y = misjudged(400, factor, seed + 10)
    for level in (80, 90, 95):
        share = level / 100
        noise = (share * (1 - share) * 2 / 1600) ** 0.5
        found = metrics.coverage(auto.apply(law), y, level)
        assert found == pytest.approx(share, abs=3.3 * noise)


def test_auto_says_what_is_held_where_it_corrects_nothing():
    auto = Auto().fit(*misjudged(400, 1.0, seed=0))
    assert auto.kind == "none"
    held = 100 * auto.scores["none"]["coverage_95"]
    assert auto.why == f"none: 95 % intervals held {held:.1f} % of outcomes that it had not seen"


def test_from_few_independent_outcomes_auto_corrects_the_width_alone():
    """400 rows are 100 independent ones where four count as one, and 98 where 4.1 do."""
    law, y = misjudged(400, 2.0, seed=1)
    assert set(Auto().fit(law, y, overlap=4.0).scores) == {"none", *CANDIDATES}
    few = Auto().fit(law, y, overlap=4.1)
    assert set(few.scores) == {"none", "variance"}
    assert few.kind == "variance"
    alone = CALIBRATORS["variance"]().fit(law, y, overlap=4.1)
    torch.testing.assert_close(few.chosen.factors, alone.factors, rtol=0.01, atol=0)


def test_a_choice_learns_again_from_other_rows():
    """The same way, with numbers of its own: what it learned first stays."""
    law, y = misjudged(400, 2.0, seed=1)
    auto = Auto().fit(law, y)
    before = auto.apply(law).quantile([0.1, 0.9])
    other = auto.again(law, 3 * y - 2 * law.mean, None, 1.0)
    assert other.way == auto.way
    low, high = other.apply(law).interval(80)
    assert (high - low).mean() > 2.5 * (before[1] - before[0]).mean()
    assert torch.equal(auto.apply(law).quantile([0.1, 0.9]), before)


NONE, VARIANCE, ISOTONIC = Way("none", False), Way("variance", False), Way("isotonic", False)
GROUPED = Way("isotonic", True)
RIGHT = (0.80, 0.90, 0.95)
NARROW, WIDE = (0.77, 0.87, 0.92), (0.83, 0.93, 0.98)  # as much too little as too much


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        pytest.param({NONE: (1.004, 0.3), ISOTONIC: (1.0, 0.1)}, NONE, id="right as it is, and level"),
        pytest.param({NONE: (1.02, 0.3), ISOTONIC: (1.0, 0.1)}, ISOTONIC, id="right as it is, but worse"),
        pytest.param({NONE: (1.0, 2.0), ISOTONIC: (1.01, 0.1)}, ISOTONIC, id="right at all levels, and cheap"),
        pytest.param({NONE: (1.0, 2.0), VARIANCE: (1.001, 1.5), ISOTONIC: (1.02, 0.1)}, NONE, id="too dear"),
        pytest.param({VARIANCE: (1.004, 0.3), GROUPED: (1.0, 0.1)}, VARIANCE, id="one for all rows is simpler"),
        pytest.param({VARIANCE: (1.01, 0.3), GROUPED: (1.0, 0.1)}, GROUPED, id="one for each group is better"),
        pytest.param({VARIANCE: (1.0, 0.3), ISOTONIC: (1.001, 0.2)}, ISOTONIC, id="the smaller error of equals"),
        pytest.param({NONE: (1.0, 0.1, NARROW), ISOTONIC: (1.1, 2.0)}, ISOTONIC, id="coverage before CRPS"),
        pytest.param({NONE: (1.0, 0.1, WIDE), ISOTONIC: (1.1, 2.0)}, ISOTONIC, id="too wide is wrong too"),
        pytest.param({NONE: (1.0, 0.1, NARROW), ISOTONIC: (1.1, 2.0, WIDE)}, ISOTONIC, id="rather too wide"),
        pytest.param({NONE: (1.1, 0.1, NARROW), ISOTONIC: (1.0, 2.0, NARROW)}, ISOTONIC, id="equally wrong"),
    ],
)  # fmt: skip
def test_the_rule_of_auto(scores, best):
    """CRPS, CWCE and coverage of each way; of 6,000 outcomes chance explains a CWCE of 0.4 and a point of coverage."""
    found = {}
    for way, (crps, cwce, *held) in scores.items():
        held = dict(zip((80, 90, 95), held[0] if held else RIGHT, strict=True))
        found[way] = {"crps": crps, "cwce": cwce} | {f"coverage_{level}": share for level, share in held.items()}
    assert best_way(found, independent=6000) == best


def test_chance_is_that_of_independent_outcomes():
    """Three points too few in 90 % are two deviations of 400 outcomes, and one of 100."""
    short = {"crps": 1.0, "cwce": 0.1, "coverage_80": 0.8, "coverage_90": 0.86, "coverage_95": 0.95}
    right = short | {"crps": 1.1, "coverage_90": 0.9}
    assert best_way({NONE: short, ISOTONIC: right}, independent=400) == ISOTONIC
    assert best_way({NONE: short, ISOTONIC: right}, independent=100) == NONE


# ---- scaling the width


def stretched(factor: float, rows: int = 999) -> tuple[Forecast, torch.Tensor]:
    """Standard normal laws and outcomes at evenly spaced ranks, so many times as far out."""
    law = Forecast(torch.zeros(1, rows, 1, 1), torch.ones(1, rows, 1, 1))
    ranks = torch.arange(1, rows + 1, dtype=torch.float64) / (rows + 1)
    return law, (factor * torch.special.ndtri(ranks)).reshape(-1, 1, 1)


@pytest.mark.parametrize(
    ("factor", "independent", "expected"),
    [
        (2.0, 20, 0.5 * 2 + 0.5 * 2 ** (1 - 0.5**2)),
        (2.0, 180, 0.9 * 2 + 0.1 * 2 ** (1 - 0.1**2)),
        (0.5, 60, 0.75 * 0.5 + 0.25 * 0.5 ** (1 - 0.5**2)),
        (0.5, 20, 0.5 * 0.5 + 0.5 * 0.5 ** (1 - 0.75**2)),
        (1.0, 20, 1.0),
    ],
)
def test_a_factor_is_shrunk_by_how_few_outcomes_there_are(factor, independent, expected):
    """A step's share is n / (n + 20), the rest is of all steps: f to the power of 1 - (c / (c + n))².

    c is 20 for a wider law, 60 for a narrower one.
    """
    law, y = stretched(factor)
    found = CALIBRATORS["variance"]().fit(law, y, overlap=len(y) / independent).factors.item()
    assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("independent", [20, 60])
def test_narrower_laws_are_doubted_more_than_wider_ones(independent):
    wider, narrower = (
        CALIBRATORS["variance"]().fit(law, y, overlap=len(y) / independent).factors.log().item()
        for law, y in (stretched(2.0), stretched(0.5))
    )
    assert wider > -narrower > 0


def test_steps_of_few_outcomes_borrow_from_all_steps():
    """Step 1 is right and step 2 three times too narrow: the fewer outcomes, the more alike they are."""
    y = torch.cat([stretched(factor)[1] for factor in (1.0, 3.0)], dim=1)
    law = Forecast(torch.zeros(1, 999, 2, 1), torch.ones(1, 999, 2, 1))
    ratios = []
    for independent in (20, 60, 200):
        near, away = CALIBRATORS["variance"]().fit(law, y, overlap=999 / independent).factors.flatten()
        ratios.append((away / near).item())
    assert 1 < ratios[0] < ratios[1] < ratios[2] < 3


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
        assert auto.why.startswith(f"{auto.kind}{' by group' if grouped else ''}: 95 % intervals held ")
