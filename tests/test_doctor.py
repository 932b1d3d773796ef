"""The doctor finds faults that were planted, and none where there is none."""

import json
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
import torch

from itocast import Forecaster, cli
from itocast.clipped import clip
from itocast.data.clock import Clock
from itocast.doctor import faults
from itocast.doctor.evidence import LEVELS, Evidence, stretch
from itocast.doctor.remedies import remedy
from itocast.forecast import Forecast
from itocast.models import HNN, SDEHNN

SEEDS = range(5)
TRAIN, NEW, SERIES = 1200, 700, 5
HOURS = pd.date_range("2024-01-01", periods=TRAIN + NEW, freq="h")


def table(seed: int, fault: str = "") -> pd.DataFrame:
    """Five series: a wave of the day and an autoregression; a fault is in the rows after training."""
    rng = np.random.default_rng(seed)
    row = np.arange(len(HOURS))
    late = row >= TRAIN
    frames = []
    for number in range(SERIES):
        shock = rng.normal(size=len(HOURS))
        if fault == "heavy tails":  # with the quartiles of the normal law
            shock = np.where(late, rng.standard_t(2.5, size=len(HOURS)) * 0.6745 / 0.7811, shock)
        bad = {
            "series": late & (number == 3),
            "hour": late & (HOURS.hour == 7),
            "drift": row >= TRAIN + NEW // 2,
        }.get(fault, np.zeros(len(HOURS), bool))
        shock = np.where(bad, 3 * shock, shock)
        noise = np.zeros(len(HOURS))
        for i in range(1, len(HOURS)):
            noise[i] = 0.6 * noise[i - 1] + shock[i]
        y = 50 + 10 * number + 8 * np.sin(2 * np.pi * HOURS.hour / 24) + 2 * noise
        frames.append(pd.DataFrame({"unique_id": f"s{number}", "ds": HOURS, "y": y}))
    return pd.concat(frames)


@cache
def fitted(seed: int) -> Forecaster:
    frame = table(seed)
    model = partial(HNN, encoder={"hidden": 64}, components=1)
    forecaster = Forecaster(1, window=4, model=model, training={"epochs": 12}, seed=seed)
    return forecaster.fit(frame[frame["ds"] < HOURS[TRAIN]])


class Planted:
    """A calibrator that spoils a law: narrower, wider or shifted, by deviations."""

    def __init__(self, inner, factor: float = 1.0, shift: float = 0.0) -> None:
        self.inner, self.factor, self.shift = inner, factor, shift

    def apply(self, law, groups=None):
        law = self.inner.apply(law, groups)
        return law.affine(self.factor, law.mean * (1 - self.factor) + self.shift * law.variance.sqrt())


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_found_on_a_model_that_is_right(seed):
    diagnosis = fitted(seed).diagnose(table(seed))
    assert diagnosis.findings == []
    assert diagnosis.forecasts == SERIES * NEW
    assert diagnosis.rows == "rows after training"
    assert "Nothing stands out" in str(diagnosis)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("fault", "spoilt"), [("bias", {"shift": -0.5}), ("too narrow", {"factor": 0.6}), ("too wide", {"factor": 1.6})]
)
def test_faults_of_all_laws(seed, fault, spoilt, monkeypatch):
    forecaster = fitted(seed)
    monkeypatch.setattr(forecaster.fitted, "calibrator", Planted(forecaster.fitted.calibrator, **spoilt))
    findings = forecaster.diagnose(table(seed)).findings
    assert findings[0].fault == fault
    assert findings[0].where == "all"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("fault", "where"), [("series", "s3"), ("hour", "07:00"), ("drift", "2024-03-"), ("heavy tails", "all")]
)
def test_faults_of_some_rows(seed, fault, where):
    findings = fitted(seed).diagnose(table(seed, fault)).findings
    assert findings[0].fault == fault
    assert findings[0].where.startswith(where)
    assert findings[0].remedy


@cache
def with_step(dt: float, seed: int) -> Forecaster:
    frame = table(seed)
    model = partial(SDEHNN, encoder={"hidden": 64}, block={"T": max(3.0, dt), "dt": dt})
    forecaster = Forecaster(1, window=4, model=model, training={"epochs": 6, "batch_size": 256}, seed=seed)
    return forecaster.fit(frame[frame["ds"] < HOURS[TRAIN]])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_step_that_is_too_coarse(seed):
    diagnosis = with_step(24.0, seed).diagnose(table(seed))
    [finding] = [finding for finding in diagnosis.findings if finding.fault == "coarse step"]
    assert "6 instead of 24" in finding.remedy


@pytest.mark.parametrize("seed", SEEDS)
def test_a_step_that_is_fine_enough(seed):
    diagnosis = with_step(1.5, seed).diagnose(table(seed))
    assert diagnosis.findings == []
    [block] = diagnosis.trials["solver"]
    assert block["halved"]["mean"] < 0.25
    assert "Theorem 1 holds" in block["lipschitz"]


def evidence(score, epistemic=0.0, horizon: int = 1) -> Evidence:
    """Standard normal laws, and outcomes at some normal scores, an hour apart."""
    score = torch.as_tensor(score).double().reshape(-1, horizon, 1)
    variance = torch.ones(2, *score.shape, dtype=torch.float64)
    half = torch.as_tensor(epistemic, dtype=torch.float64).expand(len(score)).reshape(-1, 1, 1).sqrt()
    means = torch.stack([half.expand_as(score), -half.expand_as(score)])
    law = Forecast(means, variance - half.square())
    first = HOURS[0].value // 1000 + 3_600_000_000 * np.arange(len(score))
    times = first[:, None] + 3_600_000_000 * np.arange(horizon)
    names = {"series": ["one"], "target": ["y"]}
    return Evidence.of(law, score, times, np.zeros(len(score), int), Clock("h"), names)


def normal(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=count)


def test_coverage_has_a_binomial_band():
    seen = evidence(normal(10_000)).coverage(90)
    assert seen["high"] - 0.9 == pytest.approx(2.576 * (0.09 / 10_000) ** 0.5, rel=0.35)  # blocks say 1.0 to 1.8
    assert seen["low"] < seen["observed"] < seen["high"]


def test_outcomes_that_hang_together_widen_the_band():
    alike = evidence(np.repeat(normal(500), 20))
    apart = evidence(normal(10_000))
    assert alike.inflation(alike.inside(80)) == pytest.approx(20, rel=0.5)
    assert apart.inflation(apart.inside(80)) < 2
    assert faults.find(alike) == []


def test_a_slow_change_does_not_hide_behind_a_wider_band():
    seen = evidence(normal(10_000) * np.linspace(1, 3, 10_000))
    assert seen.inflation(seen.inside(80)) < 2
    assert faults.find(seen)[0].fault == "drift"


def test_scores_are_standard_normal_under_the_law():
    seen = evidence(normal(2000))
    assert np.allclose(seen.score, normal(2000), atol=1e-6)
    assert [round(stretch(2 * seen.score, level), 1) for level in (50, 90)] == [2.0, 2.0]


def test_a_lump_at_the_edge_of_the_support_is_no_fault():
    y = normal(4000)
    law = clip(Forecast(torch.zeros(1, 4000, 1, 1), torch.ones(1, 4000, 1, 1)), "positive")
    times = HOURS[0].value // 1000 + 3_600_000_000 * np.arange(4000)[:, None]
    outcomes = torch.from_numpy(y.clip(0)).reshape(-1, 1, 1)
    seen = Evidence.of(law, outcomes, times, np.zeros(4000, int), Clock("h"), {"series": ["one"], "target": ["y"]})
    assert abs(np.median(seen.score)) < 0.06
    assert faults.find(seen) == []


def test_which_part_of_the_variance_is_wrong():
    share = np.random.default_rng(1).uniform(0.1, 0.9, 20_000)
    wrong = evidence(normal(20_000) * np.sqrt((1 - share) + 4 * share), share)  # the epistemic part is a quarter of it
    told = faults.driver(wrong)
    assert told["epistemic_factor"] == pytest.approx(4, rel=0.15)
    assert told["aleatoric_factor"] == pytest.approx(1, abs=0.2)
    assert "The epistemic part drives it" in told["says"]
    assert "aleatoric part drives it" in faults.driver(evidence(normal(1000)))["says"]


def test_missing_outcomes_are_left_out():
    score = normal(1000)
    score[::3] = np.nan
    assert len(evidence(score)) == 666


def test_steps_are_told_apart():
    score = normal(6000).reshape(-1, 3)
    score[:, 2] *= 2.5
    finding = faults.find(evidence(score, horizon=3))[0]
    assert (finding.fault, finding.where) == ("step", "3")
    assert finding.says.startswith("Step 3 ahead: intervals are too narrow: those of 80 % hold")


def test_at_most_five_findings_each_with_a_remedy(monkeypatch):
    forecaster = fitted(0)
    monkeypatch.setattr(forecaster.fitted, "calibrator", Planted(forecaster.fitted.calibrator, 0.4, 1.0))
    frame = table(0, "heavy tails")
    frame.loc[(frame["unique_id"] == "s1") & (frame["ds"] >= HOURS[TRAIN]), "y"] += 30
    diagnosis = forecaster.diagnose(frame)
    assert 2 <= len(diagnosis.findings) <= 5
    assert all(finding.remedy and finding.evidence for finding in diagnosis.findings)
    severities = [finding.severity for finding in diagnosis.findings]
    assert severities == sorted(severities, reverse=True)


def test_without_new_rows_those_held_out_are_looked_at():
    frame = table(0)
    diagnosis = fitted(0).diagnose(frame[frame["ds"] < HOURS[TRAIN + 10]])
    assert diagnosis.rows == "rows that training held out"
    assert diagnosis.forecasts == SERIES * TRAIN // 5
    assert set(diagnosis.coverage) == {str(level) for level in LEVELS}
    assert set(diagnosis.tables) == {"series", "hour", "weekday", "size", "time"}


def test_start_says_where_to_look():
    diagnosis = fitted(0).diagnose(table(0), start=HOURS[TRAIN + 499])
    assert (diagnosis.rows, diagnosis.forecasts) == ("rows after start", SERIES * 200)
    with pytest.raises(ValueError, match="no outcomes to look at"):
        fitted(0).diagnose(table(0), start="2030-01-01")


def test_new_rows_alone_will_do():
    frame = table(0)
    diagnosis = fitted(0).diagnose(frame[frame["ds"] >= HOURS[TRAIN]])
    assert diagnosis.rows == "rows after training"
    assert diagnosis.findings == []


def test_a_table_without_dates_several_steps_and_targets():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=900), "b": rng.normal(size=900)})
    model = partial(HNN, encoder={"hidden": 16}, components=1)
    forecaster = Forecaster(3, window=2, model=model, training={"epochs": 3}).fit(frame, target=["a", "b"], time=None)
    tables = forecaster.diagnose(frame).tables
    assert set(tables) == {"target", "step", "size", "time"}
    assert [part["part"] for part in tables["target"]] == ["a", "b"]


def test_remedies_follow_the_settings():
    forecaster = fitted(0)
    finding = faults.Finding("too narrow", "all", "", {}, 0.1)
    tried = {"calibrators": {"none": {"crps": 1.0, "cwce": 3.0}, "isotonic": {"crps": 1.0, "cwce": 0.5}}}
    assert remedy(finding, forecaster.fitted, tried).startswith("update(df)")
    recipe = replace(forecaster.fitted.recipe, calibration=None)
    assert "isotonic takes the calibration error (CWCE) from 3.00 to 0.50" in remedy(
        finding, replace(forecaster.fitted, recipe=recipe), tried
    )


def test_on_the_command_line(tmp_path, capsys, monkeypatch):
    fitted(0).save(tmp_path / "model")
    table(0).to_csv(tmp_path / "table.csv", index=False)
    arguments = ["itocast", "doctor", str(tmp_path / "model"), str(tmp_path / "table.csv")]

    def run(*options: str) -> str:
        monkeypatch.setattr("sys.argv", [*arguments, *options])
        with pytest.raises(SystemExit):
            cli.run()
        return capsys.readouterr().out

    text = run()
    assert "3,500 forecasts of rows after training" in text
    assert "calibrators, CRPS / CWCE: none" in text
    told = json.loads(run("--json"))
    assert told["findings"] == []
    assert set(told["trials"]["calibrators"]) >= {"none", "variance", "isotonic", "conformal"}
