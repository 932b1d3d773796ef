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


def test_levels_jump_as_often_as_they_should() -> None:
    """A level's difference over a row has the variance of a jump times its chance."""
    law = Shifts()
    random = np.random.default_rng(0)
    start = law.begin(DRAWS, random)
    state, _ = law.run(start, 12, random)
    moved = state["level"] - start["level"]
    assert (moved == 0).mean() == pytest.approx(0.99**12, abs=0.01)
    assert moved.std() == pytest.approx(law.jump * (12 * law.chance) ** 0.5, rel=0.05)


def ahead(law: Law, state: dict[str, float], horizon: int) -> np.ndarray:
    start = {name: np.array([value]) for name, value in state.items()}
    return futures(law, start, horizon, DRAWS, np.random.default_rng(1))[:, 0]


def test_futures_of_an_autoregression_have_its_mean_and_variance_at_each_step() -> None:
    law, steps = Autoregression(), np.arange(1, 13)
    found = ahead(law, {"x": 20.0}, 12)
    np.testing.assert_allclose(found.mean(0), 57 + 20 * 0.8**steps, atol=0.4)
    np.testing.assert_allclose(found.std(0), 10 * np.sqrt(1 - 0.8 ** (2 * steps)), rtol=0.03)


def test_futures_of_a_walk_widen_with_the_root_of_the_step() -> None:
    found = ahead(Walk(deviation=2.0), {"y": 50.0}, 9)
    np.testing.assert_allclose(found.mean(0), 50.0, atol=0.2)
    np.testing.assert_allclose(found.std(0), 2 * np.sqrt(np.arange(1, 10)), rtol=0.03)


def test_futures_of_sales_go_on_where_the_past_ended() -> None:
    """Without noise the future is the next piece of one curve."""
    law = Seasonal(deviation=0.0)
    random = np.random.default_rng(0)
    _, whole = law.run(law.begin(1, random), 48, random)
    found = draw(law, 36, 12, seed=0, draws=3)
    np.testing.assert_allclose(found.frame["y"], whole[0, :36])
    np.testing.assert_allclose(found.futures[2, 0], whole[0, 36:])


def test_the_same_seed_draws_the_same() -> None:
    one, same, other = (draw(Shifts(), 30, 4, seed, draws=5) for seed in (3, 3, 4))
    pd.testing.assert_frame_equal(one.frame, same.frame)
    np.testing.assert_array_equal(one.futures, same.futures)
    assert not np.array_equal(one.futures, other.futures)
    assert one.futures.shape == (5, 10, 4)
    assert one.frame.groupby("unique_id").size().tolist() == 10 * [30]


# ---- judged


def truth(drawn: Drawn, horizon: int) -> pd.DataFrame:
    """The forecasts of one who knows the law."""
    named = {f"q-{p:g}": p for p in PERCENTS} | {"lo-90": 0.05, "hi-90": 0.95}
    found = {name: np.quantile(drawn.reference, p, axis=0).reshape(-1) for name, p in named.items()}
    return pd.DataFrame(found)


def test_who_knows_the_law_holds_what_it_says() -> None:
    drawn = draw(Shifts(), 30, 4, seed=0, draws=1500)
    forecasts = truth(drawn, 4)
    held = judged.held(drawn.futures, forecasts, (90,))
    assert held["in_90"] == pytest.approx(0.9, abs=0.02)
    assert held["last_in_90"] == pytest.approx(0.9, abs=0.02)
    assert judged.loss(drawn, forecasts) == 1.0
    wide = forecasts.assign(**{"lo-90": -1e9, "hi-90": 1e9})
    assert judged.held(drawn.futures, wide, (90,))["in_90"] == 1.0


class Knows:
    """In the place of a Forecaster, one that says 0 ± 1 or, of less than 10 rows, nothing."""

    def __init__(self, horizon: int, seed: int) -> None:
        self.horizon = horizon

    def fit(self, frame: pd.DataFrame) -> Knows:
        if len(frame) < 10:
            raise RuntimeError("too few")
        return self

    def predict(self, level: list[int], quantiles: list[float]) -> pd.DataFrame:
        bounds = {f"lo-{each}": -1.0 for each in level} | {f"hi-{each}": 1.0 for each in level}
        named = {f"q-{p:g}": norm.ppf(p) for p in quantiles}
        return pd.DataFrame({"mean": 0.0} | bounds | named, index=range(self.horizon))

    def evaluate(self, frame: pd.DataFrame) -> pd.DataFrame:
        scores = {f"coverage_{level}": [0.5, 0.1] for level in (80, 95)}
        return pd.DataFrame({"by": ["all", "step"]} | scores)


def test_an_experiment_is_run_told_and_taken_up_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("itocast.Forecaster", Knows)
    law = Autoregression(phi=0.0, mean=0.0, deviation=1.0)
    shapes = (Shape(5, 2), Shape(20, 2))
    experiment = Experiment("a try", "", {"noise": always(law)}, shapes, (80, 95), runs=3)
    rows = Rows(tmp_path / "a.csv", experiments.KEY)
    experiments.run(experiment, rows, 2, missing=False, settings={})
    again = Rows(tmp_path / "a.csv", experiments.KEY)
    assert len(again.frame) == 4
    monkeypatch.setattr(experiments, "judge", lambda *a: {"refused": "was asked again"})
    experiments.run(experiment, again, 2, missing=True, settings={})
    text = "\n".join(experiments.summary(experiment, again.frame))
    assert "| itocast | noise | MS | 5 | 2 | 2 | 2 |" in text
    assert "2 times: RuntimeError: too few" in text
    done = again.frame[again.frame["rows"] == 20]
    assert done["in_80"].mean() == pytest.approx(0.683, abs=0.02)
    assert done["said_95"].tolist() == [0.5, 0.5]
    assert done["crps_ratio"].mean() == pytest.approx(1.0, abs=0.02)


# ---- files


def test_a_row_that_is_made_again_takes_the_place_of_the_old_one(tmp_path) -> None:
    rows = Rows(tmp_path / "a.csv", ("task", "seed"))
    rows.add({"task": "x", "seed": 0, "WQL": 1.0})
    rows.add({"task": "y", "seed": 0, "WQL": 2.0})
    rows.add({"task": "x", "seed": 0, "WQL": 3.0})
    again = Rows(tmp_path / "a.csv", ("task", "seed"))
    assert again.frame["WQL"].tolist() == [3.0, 2.0]
    assert {"task": "y", "seed": 0} in again
    assert {"task": "y", "seed": 1} not in again


def test_a_cut_run_keeps_its_rows_and_goes_on(tmp_path) -> None:
    rows, made = Rows(tmp_path / "a.csv", ("seed",)), []

    def make(seed: int) -> dict[str, float]:
        if seed == 2 and len(made) == 2:
            raise KeyboardInterrupt
        made.append(seed)
        return {"score": float(seed)}

    keys = [{"seed": seed} for seed in range(4)]
    with pytest.raises(KeyboardInterrupt):
        rows.fill(keys, make)
    rows = Rows(tmp_path / "a.csv", ("seed",))
    made.append(-1)
    rows.fill(keys, make, missing=True)
    assert made == [0, 1, -1, 2, 3]
    assert [file.name for file in tmp_path.iterdir()] == ["a.csv"]


def test_a_table_leaves_empty_what_is_not_there() -> None:
    text = table(pd.DataFrame({"a": ["x"], "b": [np.nan]}), {"a": "", "b": ".2f"})
    assert text == "| a | b |\n|---|---:|\n| x |  |"


def test_page_of_tasks_compares_with_naive_and_with_what_is_published(tmp_path) -> None:
    task = tiny({"other": (0.1, 2.0)})
    rows = Rows(tmp_path / "a.csv", published.KEY)
    scored = score(task, seasonal_naive(task))
    for seed in range(2):
        mine = scored | {"WQL": scored["WQL"] * (0.4 + 0.2 * seed), "made": "here"}
        rows.add({"task": "tiny", "method": "itocast", "seed": seed} | mine)
    text = published.write([task], rows, pd.DataFrame(), tmp_path / "a.md", "a command")
    assert "| itocast | 0.500 | 1.000 | 1 |" in text
    ratios = f"{0.1 / scored['WQL']:.3f} | {2 / scored['MASE']:.3f}"
    assert f"| other | 0.1000 | 2.000 | {ratios} |" in text


# ---- what is asked for


def test_words_become_settings_and_a_line_that_makes_the_same() -> None:
    asked = short.parse(["tasks", "--model", "hnn", "--subset", "4", "--only", "nn5,m1_yearly"])
    assert asked.only == ("nn5", "m1_yearly")
    assert asked.out == short.LOOKS
    assert short.settings_of(asked) == {"model": "hnn"}
    line = "python benchmarks/short.py tasks --data-dir DATA --model hnn --subset 4"
    assert short.command(asked) == line
    assert short.beside(short.parse(["months"]), "-months.md").name == "short-months.md"
    assert set(EXPERIMENTS) <= set(short.TABLES)


def test_every_law_of_every_experiment_draws_its_tables() -> None:
    for experiment in EXPERIMENTS.values():
        for make in experiment.laws.values():
            for shape in experiment.shapes[:: max(1, len(experiment.shapes) - 1)]:
                rows, horizon = shape.rows, shape.horizon
                drawn = draw(make(shape, 0), rows, horizon, 0, draws=2)
                assert np.isfinite(drawn.futures).all()
                assert drawn.futures.shape[2] == horizon


def test_settings_are_compared_with_the_same_seeds_or_with_the_table(tmp_path) -> None:
    key = {"protocol": "paper", "dataset": "metro", "part": "test"}
    scores = {"crps": 100.0, "coverage_90": 0.9, "fit_seconds": 1.0}
    before = Rows(tmp_path / "before.csv", nothing_lost.KEY)
    for seed in (0, 1):
        before.add(key | {"seed": seed} | scores)
    now = pd.DataFrame([key | {"seed": seed} | scores | {"crps": 101.0 + 2 * seed} for seed in (0, 1)])
    [found] = nothing_lost.compared(now, tmp_path / "before.csv").to_dict("records")
    assert (found["seeds"], found["CRPS"], found["compared with"]) == (2, 102.0, "same seed")
    assert found["ratio"] == pytest.approx(1.02)
    assert "worst 1.0200, paper/metro" in nothing_lost.summary(pd.DataFrame([found]))
    [other] = nothing_lost.compared(now, None).to_dict("records")
    assert other["compared with"] == "mean of 3"
