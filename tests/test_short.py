"""The benchmark of short series: its scores, its laws, and its files; nothing is trained."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import nothing_lost
import short
from short_series import experiments, judged, published
from short_series.experiments import EXPERIMENTS, Experiment, Shape, always
from short_series.laws import (
    Autoregression,
    Drawn,
    Gamma,
    Heteroscedastic,
    Law,
    Seasonal,
    Shifts,
    Walk,
    draw,
    futures,
    heavy,
)
from short_series.rows import Rows, table
from short_series.scores import (
    PERCENTS,
    TENTHS,
    coverage,
    crps,
    geometric,
    mase,
    naive,
    seasonal_error,
    wql,
)
from short_series.tasks import Task, answer_of, checked, score, seasonal_naive

DRAWS = 20_000


# ---- scores, by hand


def test_wql_by_hand() -> None:
    """All quantiles at 8 where 10 came: the pinball loss of p is 2 p, whose mean over p is 1."""
    y = np.array([10.0])
    assert wql(y, np.full((1, 9), 8.0)) == pytest.approx(2 * 1.0 / 10)


def test_wql_weighs_by_size_and_leaves_out_what_is_missing() -> None:
    y = np.array([[10.0, -30.0, np.nan]])
    quantiles = np.stack([np.full((1, 3), 8.0 - 30 * p) for p in TENTHS], axis=-1)
    loss = [p * (2 + 30 * p) for p in TENTHS]  # below the first
    loss += [(1 - p) * (38 - 30 * p) for p in TENTHS]  # above the second
    assert wql(y, quantiles) == pytest.approx(2 * sum(loss) / 9 / 40)


def test_a_forecast_without_a_number_has_no_score() -> None:
    quantiles = np.full((1, 2, 9), np.nan)
    assert np.isnan(wql(np.ones((1, 2)), quantiles))
    assert np.isnan(mase(np.ones((1, 2)), quantiles[..., 4], np.ones(1)))


def test_mase_by_hand() -> None:
    y = np.array([[1.0, 2.0], [10.0, np.nan]])
    median = np.array([[2.0, 4.0], [16.0, 0.0]])
    assert mase(y, median, np.array([1.0, 3.0])) == pytest.approx((1 + 2 + 2) / 3)


def test_unit_of_mase_is_the_mean_seasonal_difference() -> None:
    assert seasonal_error(np.array([1.0, 5.0, 2.0, 9.0, np.nan]), 2) == pytest.approx((1 + 4) / 2)


def test_coverage_counts_the_ends_and_what_is_known() -> None:
    y = np.array([1.0, 2.0, 3.0, np.nan])
    assert coverage(y, (np.full(4, 2.0), np.full(4, 2.5))) == pytest.approx(1 / 3)


def test_crps_of_a_standard_normal() -> None:
    """At 0 it is (√2 - 1) / √π, but for what 99 quantiles leave out."""
    quantiles = norm.ppf(PERCENTS)[None]
    assert crps(np.zeros(1), quantiles) == pytest.approx((2**0.5 - 1) / np.pi**0.5, rel=0.02)


def test_geometric_mean() -> None:
    assert geometric(np.array([0.5, 8.0])) == pytest.approx(2.0)


# ---- tasks


def tiny(published: dict[str, tuple[float, float]] | None = None) -> Task:
    """Two series with seasons of two rows."""
    values = {"a": [1.0, 2, 3, 4, 5, 6], "b": [10.0, 20, 15, 20, 10, 30]}
    times = pd.date_range("2020-01-01", periods=6, freq="MS")
    frames = [pd.DataFrame({"unique_id": k, "ds": times, "y": v}) for k, v in values.items()]
    frame = pd.concat(frames, ignore_index=True)
    return Task("tiny", frame, 2, 2, "MS", {}, published or {})


def test_naive_repeats_the_last_season_that_was_seen() -> None:
    assert naive(np.array([5.0, 1.0, np.nan, 2.0]), 3, 2).tolist() == [1.0, 2.0, 1.0]


def test_seasonal_naive_on_a_tiny_frame() -> None:
    """Errors are 2 and 2 in units of 2, then 5 and 10 in units of (5 + 0) / 2."""
    task = tiny()
    assert task.outcomes.tolist() == [[5.0, 6.0], [10.0, 30.0]]
    answer = seasonal_naive(task)
    assert answer.quantiles[..., 0].tolist() == [[3.0, 4.0], [15.0, 20.0]]
    found = score(task, answer)
    assert found["WQL"] == pytest.approx((2 + 2 + 5 + 10) / (5 + 6 + 10 + 30))
    assert found["MASE"] == pytest.approx((1 + 1 + 2 + 4) / 4)
    assert found["in_80"] == 0.0


def test_a_harness_that_scores_otherwise_refuses(tmp_path) -> None:
    task = tiny()
    good = score(task, seasonal_naive(task))
    about = {"horizon": 2, "season": 2, "freq": "MS", "published": {}}
    folder = tmp_path / "short"
    folder.mkdir()
    task.frame.to_csv(folder / "tiny.csv.gz", index=False)

    def publish(wql: float) -> None:
        figures = {"WQL": wql, "MASE": good["MASE"]}
        text = json.dumps({"tiny": about | {"check_seasonal_naive": figures}})
        (folder / "tasks.json").write_text(text)

    publish(good["WQL"])
    [same] = checked(tmp_path)
    pd.testing.assert_frame_equal(same.frame, task.frame)
    publish(1.01 * good["WQL"])
    with pytest.raises(ValueError, match="other scores would not compare"):
        checked(tmp_path)
    with pytest.raises(ValueError, match="tasks=no: expected some of tiny"):
        checked(tmp_path, ("no",))


def test_forecasts_are_put_in_the_order_of_the_test_part() -> None:
    task = tiny()
    names = [f"q-{level:g}" for level in TENTHS]
    bounds = ["lo-80", "hi-80", "lo-95", "hi-95"]
    forecasts = task.test[["unique_id", "ds"]].assign(**dict.fromkeys(names + bounds, 0.0))
    forecasts["q-0.5"] = task.test["y"]
    answer = answer_of(task, forecasts.iloc[::-1])
    assert answer.quantiles[..., 4].tolist() == task.outcomes.tolist()
    with pytest.raises(ValueError, match="no forecast of series b at 2020-06"):
        answer_of(task, forecasts.iloc[:-1])


def test_every_so_many_th_series_is_compared_with_nothing_published() -> None:
    part = tiny({"other": (0.1, 2.0)}).some(2)
    assert part.frame["unique_id"].unique().tolist() == ["a"]
    assert not part.published


# ---- laws


def values(law: Law, rows: int = 40_000) -> np.ndarray:
    random = np.random.default_rng(0)
    state, _ = law.run(law.begin(1, random), 200, random)
    return law.run(state, rows, random)[1][0]


@pytest.mark.parametrize(
    ("law", "mean", "deviation"),
    [
        (Autoregression(), 57, 10),
        (Autoregression(shock=heavy), 57, 10),
        (Gamma(), 57, 2**0.5 * 5.7 / 0.6),
    ],
)
def test_moments_of_stationary_laws(law: Law, mean: float, deviation: float) -> None:
    found = values(law)
    assert found.mean() == pytest.approx(mean, abs=1.0)
    assert found.std() == pytest.approx(deviation, rel=0.06)


def test_values_of_the_gamma_law_are_positive_and_skewed() -> None:
    found = values(Gamma())
    standard = (found - found.mean()) / found.std()
    assert found.min() > 0
    assert (standard**3).mean() > 0.3


def test_shocks_follow_the_time_of_day() -> None:
    law = Heteroscedastic()
    x = values(law) - law.mean
    shocks = (x[1:] - law.phi * x[:-1]).reshape(-1)
    sizes = np.array([shocks[hour::24].std() for hour in range(24)]) / law.scale
    sizes = np.roll(sizes, 6 - sizes.argmax())  # the run begins at any hour
    assert sizes[6] == pytest.approx(1.8, rel=0.05)
    assert sizes[18] == pytest.approx(0.2, rel=0.05)
