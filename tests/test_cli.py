"""The command line: pipelines of files, exit codes, messages, and nothing on standard output but the table."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import SETTINGS, ahead_frame, panel_frame, wave_frame

from itocast import Forecaster, cli, datasets, training
from itocast.models import MODELS

LAW = ["mean", "median", "lo-80", "hi-80", "lo-95", "hi-95", "aleatoric", "epistemic"]


def command(*arguments: str, **options) -> subprocess.CompletedProcess:
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "itocast", *arguments], capture_output=True, text=True, check=False, **options
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table in every format, settings, and a model that was fitted on the command line."""
    folder = tmp_path_factory.mktemp("cli")
    frame = wave_frame(200)[["time", "load"]].rename(columns={"time": "ds", "load": "y"})
    frame.to_csv(folder / "table.csv", index=False)
    frame.to_csv(folder / "table.csv.gz", index=False)
    frame.to_parquet(folder / "table.parquet")
    (folder / "settings.toml").write_text(SETTINGS)
    done = command("fit", "table.csv", "-o", "model", "--config", "settings.toml", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (folder / "report.txt").write_text(done.stdout)
    return folder


# ---- what works


def test_fit_says_what_it_did_and_what_comes_next(folder):
    report = (folder / "report.txt").read_text()
    assert "1 series of y, a row every h; 4 rows back, a season of 24, 2 ahead" in report
    for word in ("RMSE", "CRPS", "CWCE", "in 80 %", "step 1", "step 2", "itocast predict model -o forecast.csv"):
        assert word in report
    assert sorted(os.listdir(folder / "model")) == ["manifest.json", "weights.safetensors"]


def test_predict_goes_on_from_the_end_of_the_table(run, folder):
    ahead = run("predict", folder / "model")
    assert list(ahead.table) == ["ds", *LAW]
    assert ahead.table["ds"].tolist() == ["2024-01-09 08:00:00", "2024-01-09 09:00:00"]
    assert ahead.error == ""
    known = Forecaster.load(folder / "model").predict()
    np.testing.assert_allclose(ahead.table[LAW], known[LAW], rtol=1e-5)
    again = run("predict", folder / "model", folder / "table.csv", "--level", "90", "--quantiles", "0.1, 0.5")
    assert list(again.table) == ["ds", "mean", "median", "lo-90", "hi-90", "q-0.1", "q-0.5", "aleatoric", "epistemic"]
    np.testing.assert_allclose(again.table["mean"], known["mean"], rtol=1e-5)


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz", "table.parquet"])
def test_tables_of_every_format_give_the_same(run, folder, name):
    one = run("backtest", folder / "model", folder / name, "--start", "0.9").table
    two = Forecaster.load(folder / "model").backtest(pd.read_csv(folder / "table.csv"), start=0.9)
    assert list(one) == list(two)
    assert one["cutoff"].tolist() == two["cutoff"].astype(str).tolist()
    np.testing.assert_allclose(one[LAW], two[LAW], rtol=1e-5)


READ = {
    "out.csv": pd.read_csv,
    "out.csv.gz": pd.read_csv,
    "out.parquet": pd.read_parquet,
    "out.json": lambda path: pd.DataFrame(json.loads(path.read_text())),
}


@pytest.mark.parametrize("name", READ)
def test_results_are_written_in_every_format(run, folder, tmp_path, name):
    done = run("predict", folder / "model", "-o", name)
    assert (done.code, done.out) == (0, "")
    assert f"2 rows written to {name}" in done.error
    found = READ[name](tmp_path / name)
    known = Forecaster.load(folder / "model").predict()
    np.testing.assert_allclose(found[LAW], known[LAW], rtol=1e-5)
    assert pd.to_datetime(found["ds"]).tolist() == known["ds"].tolist()
    assert os.listdir(tmp_path) == [name]


def test_a_pipeline_of_processes(run, folder):
    """Fit from standard input, predict from standard input, backtest to standard output; a reader that stops early."""
    text = (folder / "table.csv").read_text()
    fit = command("fit", "-", "-o", "piped", "--config", "settings.toml", input=text, cwd=folder)
    assert fit.returncode == 0, fit.stderr
    ahead = command("predict", "piped", "-", input=text, cwd=folder)
    assert ahead.returncode == 0, ahead.stderr
    assert ahead.stdout == run("predict", folder / "model").out
    assert ahead.stderr == ""
    shell = f"{sys.executable} -m itocast datasets get metro | head -n 2"
    head = subprocess.run(["bash", "-o", "pipefail", "-c", shell], capture_output=True, text=True, check=False)
    assert head.stdout.startswith("holiday,temp")
    assert head.stderr == ""


def test_backtest_by_share_time_step_and_refit(run, folder):
    model, table = folder / "model", folder / "table.csv"
    by_time = run("backtest", model, table, "--start", "2024-01-09", "--step", "2").table
    assert by_time["cutoff"].min() == "2024-01-09 00:00:00"
    assert by_time["cutoff"].nunique() == 3
    fixed, anew = (
        run("backtest", model, table, "--start", "0.97", "--refit", refit, "--level", "50").table for refit in (0, 2)
    )
    assert fixed["cutoff"].tolist() == anew["cutoff"].tolist()
    assert "lo-50" in fixed
    assert not np.allclose(fixed["mean"], anew["mean"])


def test_evaluate_scores_all_and_each_step(run, folder):
    scores = run("evaluate", folder / "model", folder / "table.csv", "--start", "0.9").table
    assert scores["by"].tolist() == ["all", "step", "step"]
    known = Forecaster.load(folder / "model").evaluate(pd.read_csv(folder / "table.csv"), start=0.9)
    np.testing.assert_allclose(scores["crps"], known["crps"], rtol=1e-5)


def test_paths_on_the_command_line(run, folder):
    paths = run("predict", folder / "model", "--paths", "3").table
    assert list(paths) == ["ds", "path", "y"]
    assert paths["path"].tolist() == [0, 0, 1, 1, 2, 2]


def test_covariates_and_several_series(run, folder, tmp_path):
    frame = panel_frame(80)
    frame.to_csv("panel.csv", index=False)
    ahead_frame(frame, 2).to_csv("future.csv", index=False)
    fit = run(
        "fit", "panel.csv", "-o", "m", "--config", folder / "settings.toml", "--past", "heat", "--future", "promotion",
        "--static", "place",
    )  # fmt: skip
    assert fit.code == 0, fit.error
    assert "3 series of y" in fit.out
    ahead = run("predict", "m", "--future", "future.csv").table
    assert ahead["unique_id"].tolist() == ["a", "a", "b", "b", "c", "c"]
    short = run("predict", "m")
    assert short.code == 1
    assert "future is missing: pass a table of the next 2 steps, with promotion" in short.error
    scores = run("evaluate", "m", "panel.csv").table
    assert scores["of"].tolist() == ["", "1", "2", "a", "b", "c"]


def test_two_targets_and_names_of_their_own(run, folder):
    wave_frame(120).to_csv("wave.csv", index=False)
    options = ("--target", "load,price", "--time", "time", "--past", "heat", "--config", folder / "settings.toml")
    assert run("fit", "wave.csv", *options, "-o", "m").code == 0
    assert run("predict", "m").table["target"].tolist() == ["load", "price"] * 2


def test_rows_in_their_order(run, folder):
    pd.read_csv(folder / "table.csv")[["y"]].to_csv("bare.csv", index=False)
    fit = run("fit", "bare.csv", "--time", "", "-o", "m", "--config", folder / "settings.toml")
    assert fit.code == 0, fit.error
    assert run("predict", "m").table["ds"].tolist() == [200, 201]


def test_wide_tables(run, folder):
    """One command makes a long table; what fit says comes next works with it."""
    frame = pd.read_csv(folder / "table.csv")
    pd.DataFrame({"ds": frame["ds"], "north": frame["y"], "south": 2 * frame["y"]}).to_csv("wide.csv", index=False)
    assert run("long", "wide.csv", "-o", "long.csv").code == 0
    fit = run("fit", "long.csv", "-o", "m", "--config", folder / "settings.toml")
    assert fit.code == 0, fit.error
    assert run("predict", "m").table["unique_id"].tolist() == ["north", "north", "south", "south"]
    lines = re.findall(r"^\s+itocast (.*)$", fit.out, re.MULTILINE)
    assert len(lines) >= 2
    for line in lines:
        done = run(*line.split())
        assert done.code == 0, (line, done.error)
    assert len(run("long", "-", stdin=Path("wide.csv").read_text()).table) == 400


def test_numbers_keep_their_digits(run, folder):
    frame = pd.read_csv(folder / "table.csv")
    frame["y"] = (1234567 + 1000 * frame["y"]).round(2)
    frame.to_csv("large.csv", index=False)
    assert run("fit", "large.csv", "-o", "m", "--config", folder / "settings.toml").code == 0
    test = run("backtest", "m", "large.csv", "--start", "0.95").table
    truth = frame.set_index("ds")["y"]
    np.testing.assert_allclose(test["y"], truth[test["ds"]], rtol=1e-9)


def test_datasets(run):
    listed = run("datasets", "list").out.splitlines()
    assert re.split(r"  +", listed[0])[:3] == ["metro", "48,204 × 9", "in the package"]
    assert len(listed) == len(datasets.DATASETS)
    shown = run("datasets", "show", "metro").out
    assert "48,204 rows; target in vehicles per hour" in shown
    assert "CC BY 4.0" in shown
    assert run("datasets", "get", "metro", "-o", "metro.csv.gz").code == 0
    assert len(pd.read_csv("metro.csv.gz")) == 48204


@pytest.mark.filterwarnings("default")
def test_datasets_from_a_folder(run, tmp_path, monkeypatch):
    """A file that is not the published one is used with one line on standard error; what is not here is asked for."""
    monkeypatch.setenv("ITOCAST_DATA", str(tmp_path / "cache"))
    folder = tmp_path / "data" / "traffic"
    folder.mkdir(parents=True)
    (folder / "few.txt").write_text("0.1 0.2\n0.3 0.4\n")
    listed = run("datasets", "list", "--data-dir", "data").out
    assert re.search(r"traffic +17,544 × 862 +in data ", listed)
    assert re.search(r"pickups +29,101 × 13 +by hand ", listed)
    done = run("datasets", "get", "traffic", "--data-dir", "data")
    assert done.out == "1,2\n0.1,0.2\n0.3,0.4\n"
    assert done.error.startswith("Warning: data/traffic/few.txt (2 × 2) cannot be shown to be the published traffic")
    assert len(done.error.splitlines()) == 1
    assert "target: 1, 2\ntime: None" in run("datasets", "show", "traffic=traffic/few.txt", "--data-dir", "data").out
    done = run("datasets", "get", "pickups", "--data-dir", "data")
    assert done.code == 1
    assert done.error.startswith("Error: uber_nyc_enriched.csv is not here, and its page asks for a login: get")
    assert done.error.strip().endswith(f"put it into {tmp_path / 'cache' / 'pickups'} or data/pickups")


def test_many_names_are_shortened():
    assert cli._few(["a", "b"]) == "a, b"
    assert cli._few([str(number) for number in range(1, 322)]) == "1, 2, 3, 4, 5, …, 321 (321 columns)"


# ---- settings


def test_options_replace_what_a_file_says(run, folder):
    fit = run("fit", folder / "table.csv", "-o", "m", "--config", folder / "settings.toml", "--horizon", 3, "--seed", 5)
    assert fit.code == 0, fit.error
    fitted = Forecaster.load("m").fitted
    assert (fitted.recipe.horizon, fitted.preparation.window, fitted.recipe.seed) == (3, 4, 5)
    assert fitted.network.model.config["encoder"]["hidden"] == 16
    assert len(fitted.history.epochs) == 1


def test_every_option_reaches_the_forecaster(run, folder):
    fit = run(
        "fit", folder / "table.csv", "-o", "m", "--config", folder / "settings.toml", "--support", "positive", "--freq",
        "h", "--repeated", "last", "--gaps", "keep", "--holidays", "US", "--calibration", "none", "--epochs", "2",
    )  # fmt: skip
    assert fit.code == 0, fit.error
    recipe = Forecaster.load("m").recipe
    assert (recipe.support, recipe.calibration) == ("positive", None)
    assert (recipe.data.freq, recipe.data.repeated, recipe.data.gaps, recipe.data.holidays) == (
        "h",
        "last",
        "keep",
        "US",
    )
    assert len(Forecaster.load("m").fitted.history.epochs) == 2


def test_the_same_seed_gives_the_same_model(run, folder):
    for name in ("one", "two"):
        assert run("fit", folder / "table.csv", "-o", name, "--config", folder / "settings.toml").code == 0
    assert run("predict", "one").out == run("predict", "two").out == run("predict", folder / "model").out


def test_resume_goes_on_from_a_run_that_was_cut_short(run, folder, monkeypatch):
    options = ("--config", folder / "settings.toml", "--epochs", 4)
    assert run("fit", folder / "table.csv", "-o", "straight", *options).code == 0
    real, done = training._epoch, []

    def epoch(*args, epoch, **kwargs):
        done.append(epoch)
        if len(done) == 3:
            raise OSError("the disk is gone")
        return real(*args, epoch=epoch, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(training, "_epoch", epoch)
        cut = run("fit", folder / "table.csv", "-o", "m", *options, "--resume")
    assert cut.code == 1
    assert "the disk is gone" in cut.error
    assert os.listdir("m") == ["checkpoint"]
    with monkeypatch.context() as patch:
        done.clear()
        patch.setattr(
            training,
            "_epoch",
            lambda *args, epoch, **kwargs: (done.append(epoch), real(*args, epoch=epoch, **kwargs))[1],
        )
        assert run("fit", folder / "table.csv", "-o", "m", *options, "--resume").code == 0
    assert done == [2, 3, 0, 0]  # then an epoch on each half of the rows held out
    assert sorted(os.listdir("m")) == ["manifest.json", "weights.safetensors"]
    assert run("predict", "m").out == run("predict", "straight").out


# ---- what is refused


WRONG = [
    (1, "fit no.csv", "='no.csv': there is no such file"),
    (1, "fit {table} --target z", "target names column 'z', which is not in the table: its columns are ds, y"),
    (1, "fit {table} --time when", "time names column 'when'"),
    (1, "fit {table} --past heat", "past names column 'heat'"),
    (1, "fit {table} --model prophet", "model.kind='prophet': expected one of auto, prior, sde_hnn, hnn, mc_dropout"),
    (1, "fit {table} --support integer", "support='integer': expected one of auto, real, positive, unit"),
    (1, "fit {table} --calibration platt", "calibration='platt': expected"),
    (1, "fit {table} --repeated max", "repeated='max': input should be 'error', 'first', 'last', 'mean' or 'keep'"),
    (1, "fit {table} --gaps no", "gaps='no': input should be 'auto', 'fill' or 'keep'"),
    (1, "fit {table} --freq hour", "freq='hour': expected a pandas offset"),
    (1, "fit {table} --config no.toml", "config='no.toml': there is no such file"),
    (1, "predict nowhere", "nowhere: there is no such folder"),
    (1, "predict {model} -o out.xlsx", "output='out.xlsx': expected a name that ends with .csv, .csv.gz, .parquet"),
    (1, "predict {model} --level wide", "level='wide': expected numbers separated by commas"),
    (1, "predict {model} --level 0.8", "level=0.8: expected a percentage from 1 to below 100"),
    (1, "predict {model} --quantiles 5", "quantiles=[5.0]: expected numbers above 0 and below 1"),
    (1, "predict {model} no.csv", "='no.csv': there is no such file"),
    (1, "predict {model} -", "the input is not a CSV file that can be read"),
    (1, "backtest {model} {table} --start later", "start='later': expected a share of the rows above 0 and below 1"),
    (1, "backtest {model} {table} --start 1.5", "start='1.5': expected a share of the rows above 0 and below 1"),
    (1, "evaluate {model} {table} -o out.txt", "output='out.txt': expected a name that ends with"),
    (1, "datasets show nope", "name='nope': expected one of metro"),
    (1, "datasets get nope", "name='nope': expected one of metro"),
    (2, "forecast", "No such command 'forecast'"),
    (2, "fit", "Missing argument"),
    (2, "fit {table} --horizn 3", "No such option: --horizn"),
    (2, "fit {table} --horizon 0", "--horizon"),
    (2, "fit {table} --horizon many", "'--horizon'"),
    (2, "fit {table} --threads 0", "--threads"),
    (2, "backtest {model} {table} --step 0", "--step"),
    (2, "backtest {model} {table} --refit -1", "--refit"),
    (2, "predict {model} --paths 0", "--paths"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "line", "message"), WRONG, ids=[line for _, line, _ in WRONG])
def test_a_mistake_is_a_message_and_an_exit_code(run, folder, tmp_path, code, line, message):
    done = run(*line.format(table=folder / "table.csv", model=folder / "model").split())
    assert done.code == code, done.error
    assert message in done.error
    assert "Traceback" not in done.error
    assert done.out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("horizn = 3", "Config has no setting 'horizn': expected one of horizon, window, effort, support"),
        ("[training]\nepoch = 3", "Training has no setting 'epoch': expected one of epochs, batch_size"),
        ("[data]\nholidys = 'US'", "Data has no setting 'holidys': expected one of freq, repeated"),
        ("[model.encoder]\nhiden = 3", "Encoder has no setting 'hiden': expected one of kind, dim, hidden"),
        ("horizon = ", "settings.toml' is not TOML"),
    ],
)
def test_unknown_settings_are_refused_with_the_valid_ones(run, folder, tmp_path, text, message):
    (tmp_path / "settings.toml").write_text(text)
    done = run("fit", folder / "table.csv", "--config", "settings.toml", "-o", "m")
    assert done.code == 1
    assert message in done.error
    assert not (tmp_path / "m").exists()


def test_a_mistake_in_a_process_of_its_own_has_no_traceback(folder):
    done = command("predict", "model", "table.csv", "--level", "200", cwd=folder)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: level=200.0: expected a percentage")
    assert done.stdout == ""


def test_a_name_that_cannot_be_written_is_refused_before_the_work(run, folder, monkeypatch):
    monkeypatch.setattr(Forecaster, "load", lambda folder: pytest.fail("work was done"))
    assert run("predict", folder / "model", "-o", "out.xlsx").code == 1


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(run, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(Forecaster, "fit", lambda *_, **__: pytest.fail("work was done"))
    (tmp_path / "file").write_text("precious")
    done = run("fit", folder / "table.csv", "-o", "file", "--config", folder / "settings.toml")
    assert done.code == 1
    assert "'file' is a file: name a folder" in done.error
    assert (tmp_path / "file").read_text() == "precious"


def test_a_write_that_fails_leaves_the_old_file_whole(run, folder, tmp_path, monkeypatch):
    (tmp_path / "out.csv").write_text("old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = run("predict", folder / "model", "-o", "out.csv")
    assert done.code == 1
    assert "No space left on device" in done.error
    assert (tmp_path / "out.csv").read_text() == "old"
    assert os.listdir(tmp_path) == ["out.csv"]


def test_a_file_in_the_place_of_a_folder_is_refused(run, folder, tmp_path):
    (tmp_path / "file").write_text("")
    done = run("predict", folder / "model", "-o", "file/out.csv")
    assert done.code == 1
    assert "file" in done.error
    assert os.listdir(tmp_path) == ["file"]


def test_help_names_every_command_and_option(run):
    for arguments, words in (
        ((), ["fit", "tune", "predict", "backtest", "evaluate", "export", "datasets", "demo", "long"]),
        (("fit",), ["--horizon", "--target", "--config", "--resume", *MODELS]),
        (("tune",), ["--minutes", "--trials", "--horizon", "--target", "--config"]),
        (("predict",), ["--level", "--quantiles", "--paths", "--future"]),
    ):
        done = run(*arguments, "--help")
        assert done.code == 0
        assert all(word in done.out for word in words)


def test_version(run):
    import itocast

    assert run("--version").out.strip() == itocast.__version__


def test_update_moves_the_model_on(run, folder):
    frame = pd.read_csv(folder / "table.csv")
    old, new, few = frame[: len(frame) // 2], frame[len(frame) // 2 :], frame[len(frame) // 2 :][:1]
    for name, part in (("old", old), ("new", new), ("few", few)):
        part.to_csv(f"{name}.csv", index=False)
    assert run("fit", "old.csv", "-o", "m", "--config", folder / "settings.toml").code == 0
    assert "too few new rows to train on" in run("update", "m", "few.csv").out
    assert run("predict", "m").table["ds"][0] > few["ds"].iloc[0]
    assert "trained on for 1 epoch" in run("update", "m", "new.csv").out
    assert run("predict", "m").table["ds"][0] > frame["ds"].iloc[-1]
