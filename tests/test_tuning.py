"""The search for settings: what it scores, how it goes on, its time, what it searches, writes and refuses."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import panel_frame, wave_frame
from scipy import stats

from itocast import Forecaster, training, tune
from itocast.config import Config, model_from
from itocast.fitted import Fitted
from itocast.schedule import EFFORTS
from itocast.training import TrainingError
from itocast.tuning import guard, search, timing
from itocast.tuning.comparison import compare
from itocast.tuning.dials import SPACE, Dial, flat, point_of, settings_at, space_of

FRAME = wave_frame(200)[["time", "load"]].rename(columns={"time": "ds", "load": "y"})
MODEL = {"kind": "hnn", "encoder": {"hidden": 8, "dim": 4, "frequencies": 2, "embedding": 2}}
TINY = {"horizon": 2, "window": 4, "model": MODEL, "training": {"epochs": 1}, "calibration": "none"}
SETTINGS = Config(**TINY).text()


def tiny(folder: Path | None = None, frame: pd.DataFrame = FRAME, **changed):
    return tune(frame, folder=folder, **TINY | {"trials": 3} | changed)


def four(folder: Path | None = None, trials: int = 4):
    """A search with a seed with which all that it tries looks better than the defaults: the guard has work."""
    return tiny(folder, trials=trials, seed=4)


def without_seconds(found: search.Tuned) -> str:
    return found.table.drop(columns="seconds").to_csv(index=False)


class Spy:
    """Fits as ever, after or before something of the test's, and counts."""

    def __init__(self, monkeypatch, before=lambda number: None, after=lambda number: None):
        real, self.tables = Fitted.train, []

        def train(table, recipe, checkpoint=None):
            self.tables.append(table)
            before(len(self.tables))
            fitted = real(table, recipe, checkpoint)
            after(len(self.tables))
            return fitted

        monkeypatch.setattr(Fitted, "train", train)


@pytest.fixture(scope="module")
def straight():
    return four()


# ---- what is scored


def test_the_first_trial_is_the_defaults_scored_on_rows_that_nothing_saw(monkeypatch):
    frame = FRAME.copy()
    frame.loc[[30, 140, 141, 150, 185], "y"] = np.nan
    spy = Spy(monkeypatch)
    found = tiny(frame=frame, trials=1)
    assert [len(table) for table in spy.tables] == [128]
    assert found.table.loc[0, ["rank", "trial", "gain", "outcome", "settings"]].tolist() == [
        1, 0, 0, "finished", "defaults",
    ]  # fmt: skip
    assert found.since == (frame["ds"][127], frame["ds"][159])
    assert found.best == Config(**TINY)
    alone = Config(**TINY).forecaster().fit(frame[:128])
    known = alone.evaluate(frame[:160], start=str(frame["ds"][127]))["crps"][0]
    assert found.table["crps"][0] == pytest.approx(known, rel=1e-6)


def test_several_series_with_covariates():
    columns = {"past": ["heat"], "future": ["promotion"], "static": ["place"]}
    found = tiny(frame=panel_frame(80), trials=2, **columns)
    assert np.isfinite(found.table["crps"]).all()
    fitted = found.forecaster().fit(panel_frame(80), **found.best.columns())
    assert isinstance(fitted, Forecaster)


def test_trials_of_every_window_are_scored_on_the_same_rows(monkeypatch):
    monkeypatch.setattr("itocast.tuning.dials.SPACE", {"window": Dial((0.5, 1, 2), times=True)})
    monkeypatch.setattr(guard, "TOP", 0)
    real, seen = Fitted.law, []
    monkeypatch.setattr(Fitted, "law", lambda fitted, windows: (seen.append(windows), real(fitted, windows))[1])
    frame = pd.concat([FRAME.assign(unique_id="old"), FRAME[110:].assign(unique_id="new")])
    found = tiny(frame=frame, window=None, trials=3)
    assert sorted(windows.window for windows in seen) == [12, 24]
    assert all(windows.origins.equal(seen[0].origins) for windows in seen)
    assert len(found.table) == 2  # 48 is more than a series can spare: nothing else is left to try


def test_the_best_of_the_search_comes_first_and_gains_are_relative_to_the_defaults(straight):
    table = straight.table
    assert table["rank"].tolist() == [1, 2, 3, 4]
    assert table["crps"].is_monotonic_increasing
    default = table.loc[table["trial"] == 0, "crps"].item()
    np.testing.assert_allclose(table["gain"], 100 * (1 - table["crps"] / default), atol=1e-12)
    differs = {name: value for name, value in flat(straight.best.model_dump()).items() if name in SPACE}
    for part in table.set_index("trial")["settings"][straight.trial].split(", "):
        if part != "defaults":
            name, value = part.split("=")
            assert str(differs[name]) == value


# ---- the guard


LONG = TINY | {"window": None, "training": {"epochs": 8, "batch_size": 64, "learning_rate": 0.03}}


@pytest.fixture
def planted(monkeypatch) -> pd.DataFrame:
    """A value that comes back after 30 rows, more than the window of 24 that is the default and less than twice it."""
    monkeypatch.setattr("itocast.tuning.dials.SPACE", {"window": Dial((1, 2), times=True)})
    random = np.random.default_rng(0)
    y = random.standard_normal(1200)
    for row in range(30, len(y)):
        y[row] = 0.95 * y[row - 30] + 0.3 * y[row]
    return pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=len(y), freq="h"), "y": y})


@pytest.mark.filterwarnings("ignore:intervals of")  # of the settings that are worse
def test_settings_that_are_clearly_better_are_found_and_kept(planted, run):
    planted.to_csv("table.csv", index=False)
    Path("long.toml").write_text(Config(**LONG).text())
    done = run("tune", "table.csv", "--config", "long.toml", "--trials", 2)
    assert done.code == 0, done.error
    assert Config.read(Path("tuned/best.toml"), {}).window == 48
    assert re.search(
        r"Kept are settings whose CRPS is \d+\.\d % below that of the defaults on the newest 20 %", done.out
    )
    assert "window=48 (kept)" in done.out
    table = pd.read_csv("tuned/trials.csv")
    assert table["seeds"].tolist() == [3, 3]
    assert table["guard_gain"][0] > table["needed"][0] > 0
    for number, window in ((0, 48), (1, 24)):  # the guard's score: further seeds, all rows before its own
        forecasters = [Config(**LONG | {"window": window, "seed": seed}).forecaster() for seed in (1, 2, 3)]
        start = str(planted["ds"][959])
        known = [one.fit(planted[:960]).evaluate(planted, start=start)["crps"][0] for one in forecasters]
        assert table["guard"][number] == pytest.approx(np.mean(known), rel=1e-5)


def test_settings_that_differ_by_noise_are_not_kept(monkeypatch):
    monkeypatch.setattr("itocast.tuning.dials.SPACE", {"model.encoder.embedding": Dial((1, 2, 3, 5, 6, 7))})
    encoder = {name: value for name, value in MODEL["encoder"].items() if name != "embedding"}
    kept, compared = [], 0
    for seed in range(8):
        frame = FRAME.assign(y=np.random.default_rng(seed).standard_normal(len(FRAME)))
        found = tiny(frame=frame, model={"kind": "hnn", "encoder": encoder}, seed=10 * seed, trials=4)
        kept.append(found.trial)
        compared += int(found.table["needed"].notna().sum())
    assert compared > 8  # the search did find some of them better
    assert sum(trial != 0 for trial in kept) <= 1


def fits(random, settings: int, gain: float) -> dict[int, np.ndarray]:
    """Sums over 20 blocks of 50 forecasts, for three seeds of each setting; all but the first are better by a gain."""
    found = {}
    for number in range(settings + 1):
        mean = 1 - gain * (number > 0) + 0.02 * random.standard_normal(20) + 0.01 * random.standard_normal((3, 1))
        found[number] = 50 * (mean + 0.01 * random.standard_normal((3, 20)))
    return found


@pytest.mark.parametrize("settings", [1, 3])
def test_chance_is_kept_in_one_of_twenty_and_a_clear_gain_almost_always(settings):
    random, counts = np.random.default_rng(0), np.full(20, 50)
    shares = [
        np.mean([any(one.better for one in compare(fits(random, settings, gain), counts).values()) for _ in range(400)])
        for gain in (0, 0.05)
    ]
    assert shares[0] < 0.08  # 0.05, and three deviations of 400 draws
    assert shares[1] > 0.95


def test_the_rule_is_a_paired_test_of_blocks_where_seeds_agree_and_one_of_seeds_where_blocks_do():
    random, counts = np.random.default_rng(1), np.full(20, 4)
    blocks = {number: np.repeat(random.standard_normal((1, 20)), 3, 0) + 9 - number / 2 for number in (0, 1)}
    known = stats.ttest_rel(blocks[0][0], blocks[1][0], alternative="greater")
    one = compare(blocks, counts)[1]
    assert one.gain / one.error == pytest.approx(known.statistic)
    assert one.needed / one.error == pytest.approx(stats.t.isf(0.05, 19))
    seeds = {number: np.repeat(random.standard_normal((3, 1)), 20, 1) for number in (0, 1)}
    known = stats.ttest_ind(seeds[0][:, 0], seeds[1][:, 0])
    one = compare(seeds, counts)[1]
    assert one.gain / one.error == pytest.approx(known.statistic)
    assert one.needed / one.error == pytest.approx(stats.t.isf(0.05, 4))
    assert compare({0: seeds[0], 1: seeds[1][:1]}, counts) == {}  # one fit tells nothing of the seeds


def test_an_interrupted_guard_goes_on_and_repeats_no_fit(monkeypatch, tmp_path, straight):
    def stop(number):
        if number == 4 + 4:  # four trials, then the fourth fit of the guard
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        Spy(patch, before=stop)
        cut = four(tmp_path / "t")
    assert cut.interrupted
    assert cut.trial == 0
    assert cut.table["seeds"].sum() == 3
    spy = Spy(monkeypatch)
    after = four(tmp_path / "t")
    assert len(spy.tables) == straight.table["seeds"].sum() - 3
    assert without_seconds(after) == without_seconds(straight)


def test_settings_that_fail_in_the_guard_are_not_kept(monkeypatch, straight):
    def fail(number):
        if number == 4 + 2:  # after the defaults comes the best of the search
            raise TrainingError("the loss became inf")

    Spy(monkeypatch, before=fail)
    found = four()
    first = found.table.iloc[0]
    assert first["trial"] == straight.table["trial"][0] != found.trial
    assert (first["outcome"], first["seeds"]) == ("the loss became inf", 0)


# ---- again, and on


def test_the_same_seed_gives_the_same_trials(straight):
    again = four()
    assert without_seconds(again) == without_seconds(straight)
    assert again.best == straight.best
    other = tiny(trials=2, seed=1)
    assert set(other.table["settings"][1:]) != set(straight.table["settings"])


def test_a_search_goes_on_and_repeats_nothing(monkeypatch, tmp_path, straight):
    first = four(tmp_path / "t", trials=2)
    assert set(first.table["settings"]) < set(straight.table["settings"])
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == ["best.toml", "study.journal", "trials.csv"]
    second = four(tmp_path / "t")
    both = [found.table.set_index("trial") for found in (second, straight)]
    pd.testing.assert_frame_equal(*(table[["rank", "crps", "gain", "settings"]] for table in both))
    guarded = both[1].index[both[1]["seeds"] == 3]  # of the second run alone; the first has compared others too
    assert len(guarded) > 1
    pd.testing.assert_series_equal(*(table.loc[guarded, "guard"] for table in both))
    spy = Spy(monkeypatch)
    assert four(tmp_path / "t").table.equals(second.table)
    assert not spy.tables
    written = pd.read_csv(tmp_path / "t" / "trials.csv")
    assert written["settings"].tolist() == straight.table["settings"].tolist()


def test_an_interrupted_search_keeps_whole_trials_alone(monkeypatch, tmp_path):
    longer = {"training": {"epochs": 2}, "trials": 3}
    real, epochs = training._epoch, []

    def epoch(*args, **kwargs):
        epochs.append(kwargs["epoch"])
        if len(epochs) == 4:  # the second epoch of the second trial
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(training, "_epoch", epoch)
        cut = tiny(tmp_path / "t", **longer)
    assert cut.interrupted
    assert cut.table["trial"].tolist() == [0]
    assert cut.table["seeds"].tolist() == [0]  # what is interrupted does not go on with the guard
    with (tmp_path / "t" / "study.journal").open("ab") as file:
        file.write(b'{"op_code":4,"worker_id":"cut sh')  # a machine that went down while it wrote
    after = tiny(tmp_path / "t", **longer)
    assert not after.interrupted
    assert without_seconds(after) == without_seconds(tiny(**longer))


def test_an_interrupted_command_says_so_and_goes_on(run, monkeypatch, tmp_path):
    FRAME.to_csv("table.csv", index=False)
    Path("tiny.toml").write_text(SETTINGS)
    line = ("tune", "table.csv", "-o", "t", "--config", "tiny.toml", "--trials", 3)

    def stop(number):
        if number == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        Spy(patch, before=stop)
        done = run(*line)
    assert done.code == 130
    assert "2 trials, all of them in t/trials.csv. The defaults are kept: " in done.out
    assert "Interrupted: every finished fit is kept. The same command goes on from here" in done.out
    done = run(*line)
    assert done.code == 0, done.error
    assert "3 trials" in done.out
    assert "Interrupted" not in done.out


# ---- time


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until a test moves it on."""
    now = [1000.0]
    for module in (search, timing):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def test_the_guard_has_half_of_the_time_at_most(monkeypatch, clock):
    """Trials of a minute in 20. By the rows fits of the guard take 75 s: time for three seeds of two settings, and as
    they take a minute too, then for those of a third."""
    spy = Spy(monkeypatch, after=lambda number: clock.__setitem__(0, clock[0] + 60))
    found = tiny(trials=None, minutes=20)
    assert len(found.table) == 10
    assert sorted(found.table["seeds"])[-4:] == [0, 3, 3, 3]
    assert [len(table) for table in spy.tables] == [128] * 10 + [160] * 9
    assert found.table["seconds"].sum() == 19 * 60


def test_where_time_is_plenty_the_guard_has_what_it_needs(monkeypatch, clock):
    """Twelve fits of 75 s are 15 minutes of 34, so 19 are left for the search."""
    Spy(monkeypatch, after=lambda number: clock.__setitem__(0, clock[0] + 60))
    found = tiny(trials=None, minutes=34)
    assert len(found.table) == 19
    assert sorted(found.table["seeds"])[-5:] == [0, 3, 3, 3, 3]


def test_no_time_for_the_guard_keeps_the_defaults(monkeypatch, clock, planted, run):
    """Two trials of 130 s, and 340 s are left: four fits would take 650 s."""
    Spy(monkeypatch, after=lambda number: clock.__setitem__(0, clock[0] + 130))
    planted.to_csv("table.csv", index=False)
    Path("long.toml").write_text(Config(**LONG).text())
    done = run("tune", "table.csv", "--config", "long.toml", "--minutes", 10)
    assert done.code == 0, done.error
    table = pd.read_csv("tuned/trials.csv")
    assert table["trial"].tolist() == [1, 0]
    assert table["seeds"].tolist() == [0, 0]
    assert "The defaults are kept: the time was too short to compare others with them on the newest 20 %" in done.out
    assert Config.read(Path("tuned/best.toml"), {}) == Config(**LONG)


def test_a_trial_that_cannot_end_in_time_is_stopped(monkeypatch, clock, tmp_path):
    """Of ten minutes five are the guard's. The second needs 400 s, but others fit; the fourth comes too late."""
    real, fits = training._epoch, []

    def epoch(*args, **kwargs):
        fits.extend([1] * (kwargs["epoch"] == 0))
        clock[0] += 100 if len(fits) == 2 else 10
        return real(*args, **kwargs)

    monkeypatch.setattr(training, "_epoch", epoch)
    monkeypatch.setattr(guard.Guard, "lacking", lambda guard, seconds: [])
    longer = {"epochs": 4, "finish": 0}
    found = tiny(tmp_path / "t", trials=None, minutes=10, training=longer)
    table = found.table.sort_values("trial")
    assert table["outcome"].tolist() == ["finished", "too slow", "finished"]
    assert table["seconds"].tolist() == [40, 200, 40]
    assert table["rank"].isna().tolist() == [False, True, False]
    assert clock[0] == 1000 + 300
    again = tiny(tmp_path / "t", trials=4, training=longer)
    assert again.table["outcome"].tolist() == ["finished", "finished", "finished", "too slow"]
    assert len(fits) == 5


def test_defaults_that_take_too_long_are_told_with_the_time_they_need(monkeypatch, clock, tmp_path):
    real = training._epoch
    monkeypatch.setattr(training, "_epoch", lambda *a, **k: (clock.__setitem__(0, clock[0] + 60), real(*a, **k))[1])
    with pytest.raises(ValueError, match=r"minutes=3: the defaults alone would take about 16.0; allow at least thirty"):
        tiny(tmp_path / "t", minutes=3, training={"epochs": 10})


def test_a_trial_that_fails_is_kept_with_its_reason(monkeypatch):
    def fail(number):
        if number == 2:
            raise TrainingError("the loss became inf")

    Spy(monkeypatch, before=fail)
    table = tiny().table
    assert table["outcome"].tolist() == ["finished", "finished", "the loss became inf"]
    assert table["crps"].isna().tolist() == [False, False, True]


# ---- what is searched


def defaults(**settings) -> dict:
    config = Config(horizon=2, **settings)
    table = config.forecaster()._table(FRAME, **config.columns())
    return search._defaults(table, config.forecaster().recipe)[1]


def test_the_space_holds_the_defaults_and_no_setting_that_does_not_exist():
    known = defaults()
    space = space_of(known, {}, spare=100)
    assert set(space) == set(SPACE)
    assert space["window"] == [12, 24, 48, 72]
    assert settings_at(point_of(space, known), known) == {}
    for name, values in space.items():
        for value in values:
            settings = settings_at(point_of(space, known) | {name: value}, known)
            assert set(settings) <= {name, "model.block.dt"}
            search = Config.read(None, settings)
            search.forecaster()
            model_from(search.model)


def test_what_is_set_or_does_not_exist_is_not_searched():
    known = defaults(model={"encoder": {"kind": "lstm"}, "block": {"dt": 1.0}}, data={"local": False})
    space = space_of(known, {"model.block.dt": 1.0, "data.local": False, "model.encoder.kind": "lstm"}, spare=10)
    missing = {"model.block.dt", "model.block.T", "data.local", "model.encoder.hidden", "model.encoder.frequencies"}
    assert set(space) == set(SPACE) - missing
    assert space["window"] == [24]
    plain = space_of(defaults(model={"kind": "hnn"}), {}, spare=100)
    assert not [name for name in plain if name.startswith("model.block")]


# ---- what is written and printed


def test_the_command_writes_settings_that_fit_takes(run):
    FRAME.to_csv("table.csv", index=False)
    Path("tiny.toml").write_text(SETTINGS)
    done = run("tune", "table.csv", "-o", "t", "--config", "tiny.toml", "--trials", 3, "--seed", 3, "--freq", "h")
    assert done.code == 0, done.error
    assert done.error == ""
    known = tiny(trials=3, seed=3, data={"freq": "h"})
    written = Config.read(Path("t/best.toml"), {})
    assert written.model_dump() == known.best.model_dump()
    assert pd.read_csv("t/trials.csv")["crps"].tolist() == pytest.approx(known.table["crps"].tolist(), rel=1e-5)
    for word in (
        "CRPS in the search and by the guard",
        "needed",
        "seeds",
        "seconds",
        "defaults",
        "the newest 20 % of the rows, after 2024-01-07 15:00:00, which the search never looked at",
    ):
        assert word in done.out
    line = re.search(r"^ +itocast (fit .*)$", done.out, re.MULTILINE)[1]
    fit = run(*line.split())
    assert fit.code == 0, fit.error
    recipe = Forecaster.load("model").recipe
    assert (recipe.horizon, recipe.seed, recipe.data.freq, recipe.calibration) == (2, 3, "h", None)


def test_settings_of_every_kind_survive_a_file(tmp_path):
    config = Config(
        horizon=3, target=["a b", 'ü"\\\n\x7f'], time=None, id=None, past=("x",),
        data={"local": False, "holidays": "US"},
        model={"kind": "sde_hnn", "encoder": {"dropout": 1e-5}, "block": {"T": 1.5, "dt": 0.75}, "relative": False},
        training={"epochs": 3, "optimiser": "adam"},
    )  # fmt: skip
    (tmp_path / "settings.toml").write_text(config.text(), encoding="utf-8")
    assert Config.read(tmp_path / "settings.toml", {}) == config
    assert Config.read(None, {}).text() == ""
    assert Config(calibration=None).text() == 'calibration = "none"\n'
    with pytest.raises(ValueError, match=r"model.block.gain=None: a settings file cannot hold it"):
        tune(FRAME, trials=1, folder=tmp_path / "t", model={"block": {"gain": None}})


def test_the_example_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(EFFORTS, "balanced", (15, 8e-3))
    monkeypatch.setattr(search, "REPEATS", 0)  # the defaults alone
    page = (Path(__file__).parent.parent / "docs" / "tuning.md").read_text()
    names: dict = {}
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    exec(code.replace('"metro")', '"metro").tail(600)').replace("horizon=24", "horizon=2"), names)
    assert len(names["found"].table) == 1
    assert len(names["forecaster"].predict(level=95)) == 2
    for name in SPACE:
        assert f"`{name}`" in page, name


# ---- what is refused


def test_another_search_in_the_folder_is_refused(run, tmp_path):
    FRAME.to_csv("table.csv", index=False)
    FRAME.assign(y=FRAME["y"] + 1).to_csv("other.csv", index=False)
    FRAME[:150].to_csv("shorter.csv", index=False)
    Path("tiny.toml").write_text(SETTINGS)
    line = ("-o", "t", "--config", "tiny.toml", "--trials", 1)
    assert run("tune", "table.csv", *line).code == 0
    before = {path: path.read_bytes() for path in Path("t").iterdir()}
    for changed, message in (
        (("other.csv", *line), r"the table was 200 rows \(sha256 \w+\), here it is 200 rows"),
        (("shorter.csv", *line), r"the table was 200 rows \(sha256 \w+\), here it is 150 rows"),
        (
            ("table.csv", *line, "--horizon", 3),
            "holds another search: horizon was 2, here it is 3; name another folder",
        ),
        (("table.csv", *line, "--window", 5, "--seed", 1), "window was 4, here it is 5; seed was 0, here it is 1"),
        (("table.csv", *line, "--epochs", 2), "training.epochs was 1, here it is 2"),
    ):
        done = run("tune", *changed)
        assert done.code == 1
        assert re.search(message, done.error), done.error
        assert "Traceback" not in done.error
    assert {path: path.read_bytes() for path in Path("t").iterdir()} == before
    Path("t/study.journal").write_text("no journal\nof ours\n")
    assert "t/study.journal is not a study, or is damaged" in run("tune", "table.csv", *line).error


WRONG = [
    (1, "tune no.csv --trials 1", "='no.csv': there is no such file"),
    (1, "tune table.csv --trials 1 --target z", "target names column 'z', which is not in the table"),
    (1, "tune table.csv --minutes 0", "minutes=0.0: expected a number above 0"),
    (1, "tune table.csv --trials 1 -o table.csv", "'table.csv' is a file: name a folder"),
    (1, "tune table.csv --trials 1 --model prophet", "model.kind='prophet': expected one of auto, prior, sde_hnn"),
    (1, "tune table.csv --trials 1 --horizon 150", "no forecast fits"),
    (
        1,
        "tune table.csv --trials 1 --horizon 12",
        "horizon=12: the rows after 2024-01-06 07:00:00 hold forecasts from 21",
    ),
    (2, "tune table.csv --trials 0", "--trials"),
    (2, "tune table.csv --resume", "No such option"),
]


@pytest.mark.parametrize(("code", "line", "message"), WRONG, ids=[line for _, line, _ in WRONG])
def test_a_mistake_is_a_message(run, tmp_path, code, line, message):
    FRAME.to_csv("table.csv", index=False)
    done = run(*line.split())
    assert done.code == code
    assert message in done.error
    assert "Traceback" not in done.error
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_arguments_are_refused():
    for arguments, message in (
        ({"trials": 0}, "trials=0: expected a whole number, at least 1"),
        ({"minutes": -1}, "minutes=-1: expected a number above 0"),
        ({"minutes": "ten"}, "minutes='ten': expected a number above 0"),
        ({"horizn": 3}, "Config has no setting 'horizn': expected one of horizon"),
    ):
        with pytest.raises(ValueError, match=message):
            tune(FRAME, **arguments)


def test_without_optuna_the_extra_is_named(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    FRAME.to_csv("table.csv", index=False)
    done = run("tune", "table.csv", "--trials", 1)
    assert done.code == 1
    assert done.error == "Error: a search for settings needs optuna: pip install 'itocast[tune]'\n"


def test_nothing_to_search_is_said(monkeypatch):
    monkeypatch.setattr("itocast.tuning.dials.SPACE", {"window": SPACE["window"]})
    with pytest.raises(
        ValueError, match=r"all that could be searched is set \(horizon, window, .*\): leave some of it"
    ):
        tiny()
