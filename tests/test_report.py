"""Reports: figures against the backtest and answers known beforehand, the page, the command, and made again."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from conftest import panel_frame, tiny, wave_frame

from itocast import Forecaster
from itocast.config import Config
from itocast.reader import instant
from itocast.report import figures, render, write
from itocast.report import lines as lines_module
from itocast.report.lines import pack, pack_times
from itocast.report.page import MOST, embed

HELD = 240  # rows of `single` that training learned from first
EVIL = "</script><b>&amp;"


def figures_of(forecaster: Forecaster, frame: pd.DataFrame, **options) -> dict:
    return figures(forecaster.fitted, *forecaster.reader.read(frame), **options)


def decoded(line: dict, name: str) -> np.ndarray:
    shift, unit = line["scale"]
    return np.array([np.nan if k is None else (shift + k) * unit for k in line[name]])


def times(line: dict) -> list[pd.Timestamp]:
    first, steps = line["time"]
    hours = np.cumsum([first, *(step for step, count in steps for _ in range(count))])
    return list(pd.to_datetime(3_600_000_000 * hours, unit="us"))


@pytest.fixture(scope="module")
def report(single):
    frame, forecaster = single
    return figures_of(forecaster, frame)


@pytest.fixture(scope="module")
def backtest(single):
    """Every forecast of the held-out rows."""
    frame, forecaster = single
    return forecaster.backtest(frame, start=frame["ds"][HELD - 1])


# ---- figures


def test_coverage_is_that_of_the_backtest(report, backtest):
    inside = backtest["y"].between(backtest["lo-95"], backtest["hi-95"])
    assert report["forecasts"] == len(backtest)
    assert report["coverage"]["95"]["observed"] == pytest.approx(inside.mean())
    assert (
        report["headline"]
        == f"95 % intervals covered {100 * inside.mean():.1f} % of {len(backtest)} held-out forecasts"
    )
    assert report["calibration"]["observed"][94] == pytest.approx(100 * inside.mean())
    by_step = backtest.assign(inside=inside, width=backtest["hi-95"] - backtest["lo-95"]).groupby("step")
    np.testing.assert_allclose(report["by"]["step"]["observed_95"], 100 * by_step["inside"].mean())
    np.testing.assert_allclose(report["by"]["step"]["width_95"], by_step["width"].mean(), rtol=1e-5)
    by_hour = backtest.assign(inside=inside).groupby(backtest["ds"].dt.hour)["inside"].mean()
    np.testing.assert_allclose(report["by"]["hour"]["observed_95"], 100 * by_hour)


def test_rows_that_calibrated_are_named(report):
    assert any("they chose the epoch and the calibration" in sentence for sentence in report["says"])


def test_shares_add_up(report, backtest):
    assert sum(report["pit"]["observed"]) == pytest.approx(100)
    assert sum(report["by"]["hour"]["forecasts"]) == len(backtest)
    share = backtest["epistemic"] ** 2 / (backtest["epistemic"] ** 2 + backtest["aleatoric"] ** 2)
    assert np.mean(report["shares"]["epistemic"]) == pytest.approx(100 * share.mean(), rel=0.05, abs=1e-6)


def test_the_line_is_the_backtest_and_then_the_forecast_ahead(single, report, backtest):
    frame, forecaster = single
    [line] = report["lines"]["lines"]
    assert (line["name"], report["lines"]["tick"]) == ("y", 3_600_000_000)
    assert (np.diff(times(line)) > pd.Timedelta(0)).all()
    merged = pd.DataFrame({"ds": times(line)} | {n: decoded(line, n) for n in ("y", "mean", "lo-80", "hi-95")})
    unit = line["scale"][1]
    ahead = forecaster.predict(frame)
    np.testing.assert_allclose(merged["hi-95"][line["past"] :], ahead["hi-95"], atol=unit)
    assert merged["ds"][line["past"] :].tolist() == ahead["ds"].tolist()
    assert merged["y"][line["past"] :].isna().all()
    last = backtest["cutoff"].max()
    chosen = backtest[((last - backtest["cutoff"]) / pd.Timedelta(hours=1)) % 3 == 0]
    assert merged["ds"][: line["past"]].tolist() == chosen["ds"].tolist()
    for name in ("y", "mean", "lo-80", "hi-95"):
        np.testing.assert_allclose(merged[name][: line["past"]], chosen[name], atol=unit)
    assert unit < 0.01 * (backtest["hi-95"].max() - backtest["lo-95"].min())


def test_scores_are_those_of_evaluate_and_of_plain_arithmetic(single, report, backtest):
    frame, forecaster = single
    known = forecaster.evaluate(frame, start=frame["ds"][HELD - 1]).iloc[0]
    model, last, *_ = report["scores"]
    for name in ("rmse", "crps", "nll", "cwce", "coverage_80"):
        assert model[name] == pytest.approx(known[name], rel=1e-5)
    values = frame.set_index("ds")["y"]
    error = backtest["y"].to_numpy() - values[backtest["cutoff"]].to_numpy()
    assert last["name"] == "last value"
    assert last["rmse"] == pytest.approx(np.sqrt(np.square(error).mean()), rel=1e-5)
    assert last["crps"] == pytest.approx(np.abs(error).mean(), rel=1e-5)
    assert "cwce" not in last


@pytest.mark.parametrize("missing", [0, 40])
def test_the_value_one_cycle_before_is_exact_where_days_repeat(missing):
    hours = pd.date_range("2024-01-01", periods=600, freq="h")
    frame = pd.DataFrame({"ds": hours, "y": 10.0 + hours.hour**2})
    frame = frame.drop(index=range(100, 100 + missing))  # rows that are then not evenly spaced
    forecaster = tiny(30, data={"gaps": "keep"}).fit(frame)
    scores = {row["name"]: row for row in figures_of(forecaster, frame)["scores"]}
    assert scores["value one day before"]["rmse"] == 0
    assert scores["value one day before"]["r2"] == 1
    assert scores["last value"]["rmse"] > 1


def test_misses_are_the_outcomes_farthest_off(report, backtest):
    deviation = np.sqrt(backtest["aleatoric"] ** 2 + backtest["epistemic"] ** 2)
    far = ((backtest["y"] - backtest["mean"]).abs() / deviation).sort_values(ascending=False)
    worst = report["misses"][0]
    row = backtest.loc[far.index[0]]
    assert worst["deviations"] == pytest.approx(far.iloc[0], rel=1e-4)
    assert pd.Timestamp(worst["time"], unit="us") == row["ds"]
    assert (worst["step"], worst["y"]) == (row["step"], pytest.approx(row["y"], rel=1e-5))
    assert worst["high"] == pytest.approx(row["hi-95"], rel=1e-4)
    assert [miss["deviations"] for miss in report["misses"]] == pytest.approx(far.iloc[:12].tolist(), rel=1e-4)


def test_rows_after_training_and_after_start_are_tested():
    longer = wave_frame(700)[["time", "load"]].set_axis(["ds", "y"], axis=1)
    forecaster = tiny(1).fit(longer[:400])
    new = figures_of(forecaster, longer)
    assert new["headline"].endswith("of 300 test hours")
    assert not any("epoch was chosen" in sentence for sentence in new["says"])
    later = figures_of(forecaster, longer, start=instant(forecaster.reader.read(longer)[0], 0.9))
    assert later["headline"].endswith("of 70 test hours")


def test_several_series_and_targets_have_a_line_each(panel, wave_forecaster):
    frame, forecaster = panel
    lines = figures_of(forecaster, frame)["lines"]
    assert [line["name"] for line in lines["lines"]] == ["a", "b", "c"]
    assert not lines["ahead"]  # promotions of the next hours are not known
    both = figures_of(wave_forecaster, wave_frame())["lines"]["lines"]
    assert [line["name"] for line in both] == ["load", "price"]
    assert all(len(line["y"]) > line["past"] for line in both)


def test_lines_of_many_series_are_thinned(monkeypatch, panel):
    frame, forecaster = panel
    monkeypatch.setattr(lines_module, "POINTS", 30)
    lines = figures_of(forecaster, frame)["lines"]
    assert (lines["of"], [line["name"] for line in lines["lines"]]) == (3, ["a", "c"])
    assert all(len(line["y"]) <= 15 for line in lines["lines"])


def test_numbers_and_times_are_packed_without_loss_that_shows():
    values = np.array([1e9, 1e9 + 1, np.nan, 1e9 + 2e6])
    shift, unit = lines_module._scale(np.linspace(1e9, 1e9 + 2, 100))
    back = [None if k is None else (shift + k) * unit for k in pack(values, shift, unit)]
    assert back[2] is None
    np.testing.assert_allclose([back[i] for i in (0, 1, 3)], values[[0, 1, 3]], atol=unit)
    assert pack_times(np.array([7])) == [7, []]


def test_a_constant_series_and_missing_outcomes_make_a_report(tmp_path):
    frame = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=120, freq="D"), "y": 5.0})
    frame.loc[[100, 103, 110], "y"] = np.nan
    forecaster = tiny(2).fit(frame)
    forecaster.report(frame, tmp_path / "report.html")
    report = figures_of(forecaster, frame)
    assert report["clock"]["days"]
    assert report["scores"][0]["r2"] is None  # nothing varies
    json.dumps(report, allow_nan=False)


def test_a_target_that_was_not_observed_lately_has_no_scores(tmp_path):
    frame = wave_frame(300)
    frame.loc[200:, "price"] = np.nan
    forecaster = tiny(2).fit(frame, target=["load", "price"], time="time")
    load, price = figures_of(forecaster, frame)["lines"]["lines"]
    assert load["forecasts"] > 0
    assert (price["forecasts"], set(price["y"])) == (0, {None})
    assert "rmse" not in price


def test_rows_in_order_without_times(tmp_path):
    frame = pd.DataFrame({"y": np.random.default_rng(0).normal(size=200)})
    report = figures_of(tiny(2).fit(frame, time=None), frame)
    assert not report["clock"]["dates"]
    assert list(report["by"]) == ["step"]
    assert [row["name"] for row in report["scores"]] == ["this model", "last value"]


# ---- made again


def test_settings_make_the_same_model_again(single, report, tmp_path):
    frame, forecaster = single
    (tmp_path / "settings.toml").write_text(report["made"]["settings"])
    settings = Config.read(tmp_path / "settings.toml", {})
    again = settings.forecaster().fit(frame, **settings.columns())
    pd.testing.assert_frame_equal(again.predict(), forecaster.predict())
    assert report["made"]["versions"].keys() == {"itocast", "torch", "python"}


def test_the_same_rows_give_the_same_figures_and_digest(single, report):
    frame, forecaster = single
    assert figures_of(forecaster, frame) == report
    changed = frame.assign(y=frame["y"] + 1e-9)
    assert figures_of(forecaster, changed)["data"]["sha256"] != report["data"]["sha256"]


def test_other_models_are_scored_beside(single, tmp_path):
    frame, forecaster = single
    other = tiny(training={"epochs": 1}, seed=5).fit(frame)
    table = forecaster.reader.read(frame)[0]
    scores = figures_of(forecaster, frame, beside={"other": (other.fitted, other.reader.read(frame)[0])})["scores"]
    own = figures(other.fitted, table)["scores"][0]
    assert scores[1] == own | {"name": "other"}
    with pytest.raises(
        ValueError, match=r"beside names 'far', which forecasts other targets, steps or rows: .* horizon 3"
    ):
        forecaster.report(frame, tmp_path / "report.html", beside={"far": tiny(5).fit(frame)})
    assert not (tmp_path / "report.html").exists()


# ---- the page


def test_nothing_from_data_reaches_the_page_as_markup(tmp_path):
    frame = panel_frame(80)[["unique_id", "ds", "y"]].rename(columns={"unique_id": EVIL, "y": "<i>y"})
    frame[EVIL] = EVIL + frame[EVIL]
    forecaster = tiny().fit(frame, target="<i>y", id=EVIL)
    text = forecaster.report(frame, tmp_path / "report.html", unit="<u>kW").read_text()
    assert "<title>&lt;i&gt;y, 3 hours ahead</title>" in text
    assert text.count("</script>") == 4
    for markup in ("<b>", "<i>", "<u>"):
        assert markup not in text
    inside = re.search(r'<script id="figures" type="application/json">(.*?)</script>', text, re.S)[1]
    assert json.loads(inside)["lines"]["lines"][0]["name"] == f"{EVIL}a"


def test_embedded_json_survives_the_way():
    value = {"a": "</script>", "b": "<!-- & -->", "c": "\u2028\\u003c", "d": [1, None, 2.5]}
    assert json.loads(embed(value)) == value
    assert not set("<>&\u2028") & set(embed(value))


def test_the_page_asks_for_nothing(report):
    text = render(report)
    assert "default-src 'none'" in text
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text)
    assert "Permission is hereby granted" in text  # the licence of the charts
    assert len(text) < 500_000


def test_a_page_that_is_too_large_loses_lines(monkeypatch, panel, tmp_path):
    frame, forecaster = panel
    found = figures_of(forecaster, frame)
    monkeypatch.setattr("itocast.report.page.MOST", len(render(found).encode()) - 1)
    text = write(tmp_path / "report.html", found).read_text()
    inside = json.loads(re.search(r'type="application/json">(.*?)</script>', text, re.S)[1])
    assert [line["name"] for line in inside["lines"]["lines"]] == ["a", "c"]
    assert MOST == 5_000_000


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("report.pdf", "report='.*report.pdf': expected a name that ends with .html"),
        ("a.html", "is a folder: name a file"),
    ],
)
def test_a_name_that_cannot_be_written_is_refused_first(single, tmp_path, name, words):
    (tmp_path / "a.html").mkdir()
    with pytest.raises(ValueError, match=words):
        single[1].report(None, tmp_path / name)  # the table is not even looked at


# ---- the command line


def test_report_and_fit_on_the_command_line(run, single, tmp_path):
    frame, forecaster = single
    frame.to_csv("table.csv", index=False)
    forecaster.save("model")
    done = run("report", "model", "table.csv", "-o", "out.html", "--beside", "model", "--unit", "kW")
    assert (done.code, done.out) == (0, "Report: out.html (0.1 MB)\n"), done.error
    inside = json.loads(
        re.search(r'type="application/json">(.*?)</script>', (tmp_path / "out.html").read_text(), re.S)[1]
    )
    assert inside["unit"] == "kW"
    assert inside["scores"][1] == inside["scores"][0] | {"name": "model"}
    options = ("--horizon", 2, "--window", 4, "--epochs", 1, "--model", "hnn")
    fitted = run("fit", "table.csv", "-o", "fitted", *options, "--report", "fitted.html")
    assert fitted.code == 0, fitted.error
    assert "Report: fitted.html" in fitted.out
    assert (tmp_path / "fitted.html").stat().st_size > 100_000


def test_mistakes_on_the_command_line(run, single):
    frame, forecaster = single
    frame.to_csv("table.csv", index=False)
    forecaster.save("model")
    wrong = run("report", "model", "table.csv", "-o", "report.txt")
    assert (wrong.code, wrong.out) == (1, "")
    assert "report='report.txt': expected a name that ends with .html" in wrong.error
    assert "there is no such folder" in run("report", "nowhere", "table.csv").error
    late = run("report", "model", "table.csv", "--start", "2030-01-01")
    assert late.code == 1
    assert "no outcomes to look at" in late.error
    assert run("fit", "table.csv", "--report", "report.txt").code == 1
