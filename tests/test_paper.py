"""The paper's experiments: cells that are made once, tables and figures of known cells, and the command line."""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from concurrent.futures import Future
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cell_work import perish, square

from itocast import cli as itocast_cli
from itocast import datasets, metrics
from itocast.models import MODELS
from itocast.nets import Sizes
from itocast.paper import (
    calibration,
    cells,
    cli,
    efficiency,
    experiments,
    intervals,
    literal,
    outputs,
    page,
    printed,
    protocol,
    solver,
    table,
)
from itocast.paper.cells import Task
from itocast.paper.protocol import Options

PNG = b"\x89PNG\r\n"


def task(seed: int, **settings) -> Task:
    return Task(f"squares/{seed}", square, {"seed": seed, **settings})


@pytest.fixture
def inline(monkeypatch):
    """Work is done in this process, which spares the start of another."""

    class Pool:
        def submit(self, work, *arguments):
            future = Future()
            try:
                future.set_result(work(*arguments))
            except BaseException as error:
                future.set_exception(error)
            return future

    @contextmanager
    def pool(jobs, fresh=False):
        yield Pool()

    monkeypatch.setattr(cells, "_pool", pool)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


# ---- cells


def test_a_finished_cell_is_not_made_again_and_one_that_fails_takes_no_other_with_it(tmp_path, capsys):
    """In processes of their own: two cells, one that fails, then the same without it and with a new one."""
    with pytest.raises(
        ArithmeticError, match="squares/-1 failed: seed=-1: expected 0 or more; finished cells are kept"
    ):
        cells.run([task(3), task(4), task(-1)], tmp_path)
    files = sorted((tmp_path / "cells" / "squares").iterdir())
    assert [file.name for file in files] == ["3.json", "4.json"]
    times = [file.stat().st_mtime_ns for file in files]
    found = cells.run([task(4), task(5)._replace(data_dir="here"), task(3)], tmp_path, jobs=4)
    assert list(found) == ["squares/4", "squares/5", "squares/3"]
    assert [cell["square"] for cell in found.values()] == [16, 25, 9]
    assert times == [file.stat().st_mtime_ns for file in files]
    assert found["squares/3"]["process"] == found["squares/4"]["process"] != found["squares/5"]["process"]
    assert os.getpid() not in {cell["process"] for cell in found.values()}
    assert {cell["threads"] for cell in found.values()} == {"1"}
    assert [found[f"squares/{seed}"]["read"] for seed in (3, 5)] == [None, "here"]
    assert found["squares/5"]["settings"] == {"seed": 5}  # where data were is not a setting
    assert found["squares/5"]["versions"].keys() == {"itocast", "python", "torch", "numpy", "scipy", "pandas"}
    assert json.loads((tmp_path / "cells" / "squares" / "5.json").read_text()) == found["squares/5"]
    said = capsys.readouterr().err
    assert "2 cells are there already, 1 to make" in said
    assert "1/1 squares/5: 0 s" in said


def test_finished_cells_need_no_process(tmp_path, inline, monkeypatch):
    made = cells.run([task(1), task(2)], tmp_path)
    monkeypatch.setattr(cells, "_pool", lambda *_: pytest.fail("a process was started"))
    assert cells.run([task(2), task(1)], tmp_path) == made


def test_a_cell_of_other_settings_is_refused_with_its_file_and_the_remedy(tmp_path, inline):
    cells.run([task(1)], tmp_path)
    for settings, message in (
        ({"seed": 1, "quick": True}, "was made with quick=None, here it is True"),
        ({}, "was made with seed=1, here it is None"),
        ({"seed": 2}, "was made with seed=1, here it is 2"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            cells.run([Task("squares/1", square, settings), task(7)], tmp_path)
        assert str(caught.value).startswith(str(tmp_path / "cells" / "squares" / "1.json"))
        assert str(caught.value).endswith("name another --output, or delete the file to make it anew")
    assert not (tmp_path / "cells" / "squares" / "7.json").exists()  # before any work


def test_settings_are_compared_as_json_keeps_them(tmp_path, inline):
    def nothing(seed, pair):
        return {}

    work = Task("a/0", nothing, {"seed": 0, "pair": (1, 2)})
    cells.run([work], tmp_path)
    assert cells.run([work], tmp_path)["a/0"]["settings"] == {"seed": 0, "pair": [1, 2]}


def test_a_write_that_fails_leaves_no_part_of_a_cell(tmp_path, inline, monkeypatch):
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            cells.run([task(1)], tmp_path)
    assert list((tmp_path / "cells" / "squares").iterdir()) == []
    assert cells.run([task(1)], tmp_path)["squares/1"]["square"] == 1


def test_stored_cells_come_first_trials_first(tmp_path, inline):
    cells.run([task(seed) for seed in (10, 9, 1)], tmp_path)
    assert [cell["settings"]["seed"] for cell in cells.stored(tmp_path)] == [1, 9, 10]
    assert cells.stored(tmp_path, "cubes") == []


def test_a_damaged_cell_is_named(tmp_path, inline):
    cells.run([task(1)], tmp_path)
    file = tmp_path / "cells" / "squares" / "1.json"
    file.write_text(file.read_text()[:20])
    with pytest.raises(ValueError, match=r"1\.json"):
        cells.run([task(1)], tmp_path)


def test_two_files_of_one_dataset_are_not_one_cell(tmp_path, inline):
    options = Options(datasets=("metro=a.csv", "metro=b.csv"), methods=("hnn",), forms=("paper",), trials=1)
    found = [one._replace(work=lambda **settings: {"read": settings["dataset"]}) for one in options.tasks()]
    try:
        made = cells.run(found, tmp_path)
    except ValueError:
        return
    assert {cell["read"] for cell in made.values()} == {"metro=a.csv", "metro=b.csv"}


# ---- known cells


def known(method: str, seed: int = 0, form: str = "paper", dataset: str = "metro", **changes) -> dict:
    """A cell as `protocol.train` makes them, with scores that are easy to reckon with."""
    settings = {"dataset": dataset, "method": method, "form": form, "seed": seed, "quick": False, "epochs": None}
    scores = dict.fromkeys(metrics.METRICS, 0.5) | {"aleatoric": 1.0, "epistemic": 0.25}
    y = np.arange(250.0)
    excerpt = {"y": y, "mean": y, "lo-65": y - 1, "hi-65": y + 1, "lo-95": y - 2, "hi-95": y + 2}
    cell = {
        "settings": settings | changes.pop("settings", {}), "versions": {"itocast": "1.0"}, "seconds": 3.0,
        "file": "metro.csv", "published": True, "digest": "sha256:0123456789abcdef", "rows": 48204, "targets": 1,
        "unit": "vehicles per hour", "parameters": 1000, "fit_seconds": 8.0, "seconds_to_best": 4.0, "best_epoch": 5,
        "training": {}, "model": {}, "history": {"validation": [1.0] * 9}, "curve": [p / 100 for p in range(1, 100)],
        "excerpt": {name: values.tolist() for name, values in excerpt.items()},
        "scores": scores | changes.pop("scores", {}),
    }  # fmt: skip
    return cell | changes


def store(folder: Path, *trials: dict, group: str | None = None) -> Path:
    for number, trial in enumerate(trials):
        settings = trial["settings"]
        name = f"{settings.get('form', number)}-{settings.get('method', number)}-{settings['seed']}-{number}.json"
        file = folder / "cells" / (group or protocol.short(settings["dataset"])) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(trial))
    return folder


def test_table_has_means_and_standard_deviations_of_the_trials(tmp_path):
    trials = [known("hnn", seed, scores={"rmse": rmse}) for seed, rmse in enumerate((2.0, 4.0, 9.0))]
    store(tmp_path, *trials, known("sde_hnn", form="itocast", scores={"rmse": 1.5}, parameters=12345))
    groups = table.group(tmp_path)
    assert list(groups) == [("metro", "paper", "hnn"), ("metro", "itocast", "sde_hnn")]
    frame = table.frame(groups).set_index(["dataset", "form", "method"])
    hnn = frame.loc["metro", "paper", "hnn"]
    assert (hnn["trials"], hnn["rmse"]) == (3, 5.0)
    assert hnn["rmse_std"] == pytest.approx(math.sqrt(13))  # (9 + 1 + 16) / 2
    assert (hnn["r2"], hnn["r2_std"], hnn["fit_seconds"], hnn["seconds_to_best"]) == (0.5, 0, 8, 4)
    assert hnn["printed_rmse"] == 559.354
    alone = frame.loc["metro", "itocast", "sde_hnn"]
    assert (alone["rmse"], alone["parameters"]) == (1.5, 12345)
    assert math.isnan(alone["rmse_std"])  # one trial has no spread


def test_table_is_in_the_order_of_the_paper(tmp_path):
    keys = [("pickups", "itocast"), ("pickups", "paper"), ("metro", "itocast"), ("metro", "paper")]
    methods = [*reversed(protocol.METHODS)]
    store(tmp_path, *(known(method, dataset=d, form=form) for d, form in keys for method in methods))
    store(tmp_path, {"settings": {"seed": 0, "dataset": "metro"}}, group="solver")  # has no method
    order = list(table.group(tmp_path))
    assert order == [(d, form, method) for d, form in reversed(keys) for method in protocol.METHODS]


def test_table_as_text(tmp_path):
    trials = [known("hnn", seed, scores={"rmse": rmse, "coverage_95": 0.9}) for seed, rmse in enumerate((2.0, 4.0))]
    store(tmp_path, *trials, known("bnn", published=False, file="part.csv", targets=3, fit_seconds=1234.5))
    table.write(tmp_path)
    text = (tmp_path / "table.md").read_text()
    assert text.startswith("### metro: 48,204 rows of `part.csv`, not the published data, 3 targets; vehicles per hour")
    heads = "| | RMSE | R² | CRPS | NLL | CWCE | R-CWCE | EPIW | in 95 % | parameters | fit (s) |".replace(
        "| |", "|  |"
    )
    assert heads in text
    row = "| HNN | 3.00 ± 1.41 |" + " 0.500 ± 0.000 |" * 6 + " 0.900 ± 0.000 | 1,000 | 8 |"
    assert row in text
    assert "| BNN | 0.500 | 0.500 | 0.500 | 0.500 | 0.500 | 0.500 | 0.500 | 0.500 | 1,000 | 1,234 |" in text
    assert "| SDE-HNN | 483.639 | 0.939 | 2.894 | 539.254 | 0.177 |" in text
    assert "SDE-Net |" not in text.split("Printed in the paper")[1]
    frame = pd.read_csv(tmp_path / "table.csv")
    assert frame["method"].tolist() == ["bnn", "hnn"]
    assert frame["rmse"].tolist() == [0.5, 3]


@pytest.mark.parametrize(
    "change", [{"settings": {"quick": True}}, {"settings": {"epochs": 3}}, {"digest": "sha256:other"}],
    ids=["quick", "epochs", "data"],
)  # fmt: skip
def test_trials_that_cannot_be_compared_are_not_averaged(tmp_path, change):
    store(tmp_path, known("hnn", 0), known("hnn", 1, **change))
    try:
        groups = table.group(tmp_path)
    except ValueError:
        return
    assert all(len(trials) == 1 for trials in groups.values())


def test_printed_figures_are_those_of_the_paper():
    assert printed.printed("metro", "rmse", "sde_hnn") == 483.639
    assert printed.printed("metro", "epiw", "mc_dropout") == 167.859
    assert printed.printed("pickups", "cwce", "deep_ensemble") == 4.878
    assert printed.printed("stock", "rmse", "hnn") == 1.903
    assert printed.printed("stock", "r2", "bnn") == 0.981
    assert printed.printed("electricity", "r_cwce", "deep_gp") == 2.405
    assert printed.printed("solar", "epiw", "sde_hnn") == 2.418
    assert printed.printed("traffic", "r_cwce", "mc_dropout") == 33.700
    assert printed.printed("traffic", "crps", "hnn") is None
    assert printed.printed("toy", "rmse", "hnn") is None


def test_printed_table_is_whole():
    assert set(printed.TABLE_1) == set(datasets.DATASETS)
    for figures in printed.TABLE_1.values():
        assert tuple(figures) == printed.METRICS
        assert {len(row) for row in figures.values()} == {len(printed.ORDER)}
        for share in figures["r2"]:
            assert 0 < share < 1
    for method in printed.ORDER:  # on other datasets not all of the printed figures fit together
        r2, cwce, both = (printed.printed("metro", name, method) for name in ("r2", "cwce", "r_cwce"))
        assert both == pytest.approx((1 - r2) * cwce, rel=0.01), method


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00"), (1.0, "1.00"), (-2.5, "-2.50"), (12.345, "12.3"), (99.94, "99.9"), (123.456, "123.5"),
        (1234.5678, "1,235"), (1e6, "1,000,000"), (0.1234, "0.123"), (0.01234, "0.0123"), (-0.01234, "-0.0123"),
        (math.nan, "–"), (math.inf, "–"),
    ],
)  # fmt: skip
def test_numbers_have_enough_figures(value, text):
    assert outputs.digits(value) == text


def test_spread_has_the_places_of_its_mean():
    assert outputs.spread([100.0, 110.0]) == "105.0 ± 7.1"
    assert outputs.spread([1000.0, 1100.0, 1200.0]) == "1,100 ± 100"
    assert outputs.spread([0.01, 0.02]) == "0.0150 ± 0.0071"
    assert outputs.spread([7.0]) == "7.00"


def test_summary_is_that_of_the_statistics_module():
    values = [1.0, 2.0, 4.0]
    assert outputs.summary(values) == (statistics.fmean(values), pytest.approx(statistics.stdev(values)))
    assert outputs.summary([2.0])[0] == 2
    assert math.isnan(outputs.summary([2.0])[1])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_score_that_is_not_finite_does_not_stop_a_table(bad):
    assert outputs.spread([1.0, bad]) == "–"
    assert not math.isfinite(outputs.summary([1.0, bad])[0])


def test_a_markdown_table_has_numbers_on_the_right():
    assert outputs.markdown(["a", "b", "c"], [["x", "1", "2"], ["y", "3", "4"]]).splitlines() == [
        "| a | b | c |", "|---|---:|---:|", "| x | 1 | 2 |", "| y | 3 | 4 |"
    ]  # fmt: skip


# ---- figures


def test_calibration_is_the_mean_curve_of_the_trials(tmp_path):
    low, high = [0.8 * p / 100 for p in range(1, 100)], [p / 100 for p in range(1, 100)]
    store(tmp_path, known("hnn", 0, curve=low, scores={"cwce": 2.0}), known("hnn", 1, curve=high, scores={"cwce": 4.0}))
    store(tmp_path, known("sde_hnn", 5, form="itocast"))
    calibration.write(tmp_path)
    frame = pd.read_csv(tmp_path / "calibration.csv")
    hnn = frame[frame["method"] == "hnn"]
    assert len(hnn) == 99
    np.testing.assert_allclose(hnn["observed"], 0.9 * hnn["expected"], rtol=1e-5)
    text = (tmp_path / "calibration.md").read_text()
    assert "| metro, paper, HNN | 45.0 | 72.0 | 81.0 | 85.5 |" in text
    assert "| metro, itocast, SDE-HNN | 50.0 | 80.0 | 90.0 | 95.0 |" in text
    assert (tmp_path / "calibration-metro.png").read_bytes().startswith(PNG)
    first, second = calibration.figure("metro", table.group(tmp_path)).axes
    assert [line.get_label() for line in first.lines[1:]] == ["HNN (3.00)"]
    assert [line.get_label() for line in second.lines[1:]] == ["SDE-HNN (0.500)"]
    np.testing.assert_allclose(first.lines[1].get_ydata(), 90 * np.arange(1, 100) / 100)


def test_every_method_has_a_colour_of_its_own():
    assert list(calibration.COLOURS) == list(protocol.METHODS)
    assert len(set(calibration.COLOURS.values())) == len(protocol.METHODS)


def test_intervals_count_what_is_inside(tmp_path):
    y = np.arange(200.0)
    low, high = np.full(200, 49.5), np.full(200, 99.5)  # hold 50 of 200
    excerpt = {"y": y, "mean": y, "lo-65": low, "hi-65": high, "lo-95": low - 50, "hi-95": high + 100}
    excerpt = {name: values.tolist() for name, values in excerpt.items()}
    store(tmp_path, known("hnn", excerpt=excerpt), known("hnn", 1), known("sde_hnn"), known("bnn"))
    intervals.write(tmp_path)
    text = (tmp_path / "intervals.md").read_text()
    assert "| metro, paper, HNN | 25.0 | 50.0 | 100.0 | 200.0 |" in text  # of the first trial alone
    assert "| metro, paper, SDE-HNN | 100.0 | 2.00 | 100.0 | 4.00 |" in text
    assert "BNN" not in text
    frame = pd.read_csv(tmp_path / "intervals.csv")
    assert list(frame)[:4] == ["dataset", "form", "method", "row"]
    assert frame.groupby("method")["row"].max().to_dict() == {"hnn": 200, "sde_hnn": 250}
    assert (tmp_path / "intervals-metro.png").read_bytes().startswith(PNG)
    groups = {key: trials for key, trials in table.group(tmp_path).items() if key[2] in intervals.PAIR}
    axes = intervals.figure("metro", groups).axes
    assert [ax.get_title().splitlines()[0] for ax in axes] == [
        "HNN, the paper's architecture and training", "SDE-HNN, the paper's architecture and training"
    ]  # fmt: skip
    assert [len(ax.lines[0].get_xdata()) for ax in axes] == [intervals.SHOWN] * 2


def test_efficiency_has_sizes_and_times(tmp_path):
    long = {"settings": {"epochs": 200, "patience": 20}}
    hnn = [known("hnn", i, seconds_to_best=2.0 + 2 * i, best_epoch=5 + 2 * i, **long) for i in range(2)]
    ensemble = known("deep_ensemble", parameters=5000, **long)
    store(tmp_path, ensemble, *hnn, group="efficiency")
    efficiency.write(tmp_path)
    line = "| metro, HNN, paper | 1,000 | 3.00 ± 1.41 | 8.00 ± 0.00 | 6 | 0.500 ± 0.000 | 0.500 ± 0.000 | 2 |"
    assert line in (tmp_path / "efficiency.md").read_text()
    assert table.group(tmp_path) == {}  # runs of another length are no cells of the table
    frame = pd.read_csv(tmp_path / "efficiency.csv").set_index("method")
    assert frame["parameters"].to_dict() == {"hnn": 1000, "deep_ensemble": 5000}
    assert frame["seconds_to_best"].to_dict() == {"hnn": 3, "deep_ensemble": 4}
    assert (tmp_path / "efficiency-metro.png").read_bytes().startswith(PNG)
    left, right = efficiency.figure({("deep_ensemble", "paper"): [ensemble], ("hnn", "paper"): hnn}, "metro").axes
    assert [bar.get_width() for bar in left.patches] == [5, 1]
    assert [bar.get_width() for bar in right.patches] == [4, 3]


def test_efficiency_trains_the_papers_form_until_it_gets_no_better():
    found = {one.key: one.settings for one in efficiency.tasks(Options(methods=("hnn", "bnn"), trials=1))}
    assert list(found) == [f"efficiency/metro-{name}-0" for name in ("paper-hnn", "paper-bnn", "itocast-sde_hnn")]
    assert [(one["epochs"], one["patience"]) for one in found.values()] == [(200, 20), (200, 20), (None, None)]


def solver_run(dropout: float, seed: int, nll: list[float], dataset: str = "metro") -> dict:
    curves = {f"{part} {score}": nll for part in solver.PARTS for score in solver.SCORES}
    return {"settings": {"dataset": dataset, "dropout": dropout, "seed": seed}, "curves": curves}


def test_solver_has_the_mean_curve_of_each(tmp_path):
    runs = [solver_run(0.0, 0, [3, 1, 2]), solver_run(0.0, 1, [5, 3, 6]), solver_run(0.5, 0, [2, 2, 1])]
    store(tmp_path, *runs, solver_run(0.5, 1, [2, 2, 1]), group="solver")
    solver.write(tmp_path)
    frame = pd.read_csv(tmp_path / "solver.csv").set_index(["solver", "epoch"])["validation NLL"]
    assert frame["Euler-Maruyama"].tolist() == [4, 2, 4]
    assert frame["with dropout of g"].tolist() == [2, 2, 1]
    text = (tmp_path / "solver.md").read_text()
    assert "means over the trials: 2" in text
    assert "| Euler-Maruyama, last epoch | 4.00 | 4.00 | 4.00 | 4.00 |" in text
    assert "| Euler-Maruyama, epoch 2, of the best NLL | 2.00 | 2.00 | 2.00 | 2.00 |" in text
    assert (tmp_path / "solver.png").read_bytes().startswith(PNG)


def literal_run(change: dict, rmse: float, dataset: str = "metro", seed: int = 0) -> dict:
    cell = known("", seed, dataset=dataset, scores={"rmse": rmse})
    cell["settings"] = {"dataset": dataset, "change": change, "seed": seed, "quick": False, "epochs": None}
    return cell


def test_literal_form_has_a_line_for_each_change(tmp_path):
    changes = {name: change for name, change in literal.CHANGES.items() if name not in literal.SAME}
    store(tmp_path, *(literal_run(change, 10.0 + i) for i, change in enumerate(changes.values())), group="literal")
    store(tmp_path, known("hnn", scores={"rmse": 1.0}), known("sde_hnn", scores={"rmse": 2.0}))
    store(tmp_path, known("sde_hnn", form="itocast", scores={"rmse": 3.0}))
    literal.write(tmp_path)
    frame = pd.read_csv(tmp_path / "literal.csv")
    assert frame["form"].tolist() == list(literal.CHANGES)
    assert frame["rmse"].tolist() == [1, 2, *(10 + i for i in range(len(changes))), 3]


def test_changes_of_the_literal_form_have_files_of_their_own():
    keys = [one.key for one in literal.tasks(Options(trials=2))]
    assert len(set(keys)) == len(keys) == 2 * len(literal.CHANGES)


def test_the_literal_form_without_changes_is_that_of_the_paper():
    sizes = Sizes(5, 1, 4, 0, 1)
    assert literal.build(sizes, 0, {}).config == MODELS["sde_hnn"].paper(sizes).config
    assert literal.build(sizes, 0, {"gain": 0.1, "kind": "linear"}).config["block"]["gain"] == 0.1


def test_solver_does_not_mix_datasets(tmp_path):
    runs = [solver_run(dropout, 0, [value], name) for dropout in (0.0, 0.5) for name, value in _TWO.items()]
    store(tmp_path, *runs, group="solver")
    solver.write(tmp_path)
    assert set(pd.read_csv(tmp_path / "solver.csv")["validation NLL"]) <= set(_TWO.values())


def test_literal_does_not_mix_datasets(tmp_path):
    store(tmp_path, *(literal_run({"gain": 0.3}, value, name) for name, value in _TWO.items()), group="literal")
    store(tmp_path, *(known(method, dataset=name) for name in _TWO for method in ("hnn", "sde_hnn")))
    literal.write(tmp_path)
    frame = pd.read_csv(tmp_path / "literal.csv").set_index("form")
    assert frame.loc["gain from 0.3", "rmse"] in _TWO.values()


_TWO = {"metro": 1.0, "pickups": 3.0}


def test_page_says_who_is_best(tmp_path):
    store(tmp_path / "paper", known("hnn", scores={"rmse": 4.0}), known("sde_hnn", scores={"rmse": 3.0}))
    store(tmp_path / "paper", known("hnn", form="itocast", scores={"rmse": 2.0, "crps": 0.2}))
    store(tmp_path / "paper", known("sde_hnn", form="itocast", scores={"rmse": 1.0, "crps": 0.3}))
    (tmp_path / "words.md").write_text("What we make of it.\n")
    written = page.write(tmp_path / "paper", tmp_path / "docs" / "page.md", tmp_path / "words.md")
    text = written.read_text()
    assert "| metro, RMSE | 1.00 | HNN 4.00 | 0.250 | HNN 2.00 | 0.500 | yes | 1 of 1 |" in text
    assert "| metro, CRPS | 0.300 | HNN 0.500 | 0.600 | HNN 0.200 | 1.500 | **no** | 0 of 1 |" in text
    assert "| metro, RMSE | 0.865 | 0.750 | 0.250 | 0.500 |" in text  # 483.639 / 559.354
    assert "What we make of it." in text
    assert "## Fig. 2" not in text  # there are no cells of it
    for link in ("calibration-metro.png", "intervals-metro.png"):
        assert f"(results/{link})" in text
        assert (tmp_path / "docs" / "results" / link).is_file()
    assert (tmp_path / "docs" / "results" / "table.csv").is_file()


def test_page_of_no_cells_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no cells of a table: run itocast paper table first"):
        page.write(tmp_path, tmp_path / "page.md")


@pytest.mark.parametrize(("method", "form"), [("sde_hnn", "itocast"), ("bnn", "paper")])
def test_page_of_one_method(tmp_path, method, form):
    store(tmp_path, known(method, form=form))
    assert page.write(tmp_path, tmp_path / "docs" / "page.md").is_file()


# ---- the protocol


def test_first_trials_come_first_and_every_cell_has_a_file_of_its_own():
    options = Options(datasets=("metro", "solar=a/b.txt"), methods=("hnn", "bnn"), trials=2, seed=3)
    keys = [one.key for one in options.tasks()]
    assert keys[:3] == ["metro/paper-hnn-3", "metro/paper-bnn-3", "metro/itocast-hnn-3"]
    assert keys[-1] == "solar/itocast-bnn-4"
    assert len(set(keys)) == len(keys) == 16
    assert [int(key[-1]) for key in keys] == [3] * 8 + [4] * 8


def test_epochs_of_the_papers_form_do_not_concern_the_other():
    some, other = (protocol.cell("metro", "hnn", "itocast", 0, Options(epochs=epochs)) for epochs in (None, 20))
    assert some == other


def test_the_papers_training_is_long_enough():
    for rows in (10_000, 30_000, 50_000):
        settings = protocol.paper_training(rows)
        assert settings.epochs * math.ceil(0.6 * rows / settings.batch_size) >= 3500
        assert settings.epochs >= 8
    assert protocol.paper_training(100).epochs == 200
    assert protocol.paper_training(100, epochs=4).epochs == 4
    assert (settings.optimiser, settings.learning_rate, settings.weight_decay) == ("adam", 1e-3, 1e-3)


def test_the_test_part_is_the_last_fifth():
    frame = pd.DataFrame({"y": range(1000)})
    start = protocol.cut(frame, {"time": None})
    assert protocol.until(frame, {"time": None}, start)["y"].tolist() == list(range(800))
    times = pd.date_range("2024-01-01", periods=100, freq="h")
    panel = pd.concat([pd.DataFrame({"id": one, "ds": times}) for one in "ab"])
    before = protocol.until(panel, {"time": "ds"}, protocol.cut(panel, {"time": "ds"}))
    assert before.groupby("id")["ds"].agg(["count", "max"]).to_numpy().tolist() == [[80, times[79]]] * 2


def test_every_model_is_a_method_with_a_form_of_the_paper():
    assert set(protocol.METHODS) == set(MODELS)
    assert all(hasattr(model, "paper") for model in MODELS.values())
    assert set(printed.ORDER) <= set(protocol.METHODS)


def test_methods_without_their_package_are_left_out(monkeypatch):
    assert protocol.available(("hnn", "deep_gp")) == (["hnn", "deep_gp"], [])
    monkeypatch.setattr(protocol, "find_spec", lambda package: None)
    assert protocol.available(("hnn", "deep_gp")) == (["hnn"], ["DGP needs pip install 'itocast[dgp]'"])


# ---- the command line


def test_commands_are_the_experiments(run):
    assert list(cli.NAMES) == list(experiments.EXPERIMENTS)
    help_text = run("paper", "--help").out
    assert all(name in help_text for name in (*cli.NAMES, "all", "page"))


@pytest.mark.parametrize(
    ("code", "line", "message"),
    [
        (1, "table --datasets weather", "name='weather': expected one of metro, pickups"),
        (1, "table --quick --methods hnn,arima", "methods='arima': expected one of mc_dropout, deep_gp, bnn"),
        (1, "table --quick --forms literal", "forms='literal': expected one of paper, itocast"),
        (1, "table --datasets metro=no.csv", "there is no file no.csv; give its path from data_dir"),
        (1, "page nowhere", "folder='nowhere' holds no cells of a table: run itocast paper table first"),
        (2, "table --trials 0", "--trials"),
        (2, "table --seed -1", "--seed"),
        (2, "table --epochs 0", "--epochs"),
        (2, "table --jobs 0", "--jobs"),
        (2, "figure", "No such command 'figure'"),
    ],
)
def test_a_mistake_is_a_message_and_an_exit_code(run, tmp_path, code, line, message):
    done = run("paper", *line.split())
    assert done.code == code
    assert message in done.error
    assert "Traceback" not in done.error
    assert list(tmp_path.iterdir()) == []


def test_a_method_that_is_named_needs_its_package(run, monkeypatch):
    monkeypatch.setattr(protocol, "find_spec", lambda package: None)
    done = run("paper", "table", "--quick", "--methods", "hnn,deep_gp")
    assert done.code == 1
    assert "DGP needs pip install 'itocast[dgp]'" in done.error


def test_methods_that_are_not_named_do_without_it(run, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(protocol, "find_spec", lambda package: None)
    monkeypatch.setattr(experiments, "perform", lambda names, options, *_: seen.append((names, options)) or [])
    done = run("paper", "all", "--quick")
    assert done.code == 0
    assert "Left out: DGP needs pip install 'itocast[dgp]'" in done.error
    [(names, options)] = seen
    assert names == list(cli.NAMES)
    assert options.methods == tuple(method for method in protocol.METHODS if method != "deep_gp")
    assert (options.datasets, options.trials, options.quick) == (("metro",), 1, True)


def test_a_dataset_is_refused_before_the_work(monkeypatch, tmp_path):
    monkeypatch.setattr(experiments, "run", lambda *_: pytest.fail("work was done"))
    with pytest.raises(ValueError, match="name='weather': expected one of"):
        experiments.perform(["table"], Options(datasets=("metro", "weather")), tmp_path)


def test_an_output_that_is_a_file_is_refused_before_the_work(run, monkeypatch, tmp_path):
    worked = []
    monkeypatch.setattr(experiments, "run", lambda *_: worked.append(1) or {})
    (tmp_path / "file").write_text("precious")
    done = run("paper", "table", "--quick", "-o", "file")
    assert (done.code, worked) == (1, [])
    assert "file" in done.error


def test_a_process_that_is_killed_ends_in_a_message(tmp_path):
    with pytest.raises(OSError, match=r"a process was killed.* at gone/0 or beside it: use fewer --jobs"):
        cells.run([Task("gone/0", perish, {"seed": 0})], tmp_path)


# ---- for real


@pytest.fixture(scope="module")
def cut_short(tmp_path_factory):
    """A quick table of two cells, stopped by Ctrl-C after the first, then run again."""
    folder = tmp_path_factory.mktemp("paper")
    line = f"paper table --quick --methods hnn --forms itocast --trials 2 --jobs 1 -o {folder / 'out'}"
    child = subprocess.Popen(
        [sys.executable, "-m", "itocast", *line.split()],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    cell = folder / "out" / "cells" / "metro" / "itocast-hnn-0.json"
    while not cell.exists():
        assert child.poll() is None, child.communicate()
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to all processes
    out, error = child.communicate()
    files = [str(path.relative_to(folder / "out")) for path in (folder / "out").rglob("*") if path.is_file()]
    first = {"code": child.returncode, "out": out, "error": error, "files": files, "time": cell.stat().st_mtime_ns}
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as said, redirect_stderr(StringIO()) as log:
        patch.setattr(sys, "argv", ["itocast", *line.split()])
        with pytest.raises(SystemExit) as stop:
            itocast_cli.run()
    return folder / "out", first, (stop.value.code, said.getvalue(), log.getvalue())


def test_ctrl_c_keeps_the_cells_that_are_finished(cut_short):
    _, first, _ = cut_short
    assert first["code"] == 130
    assert "1 of 2 cells are finished; the same command goes on from there." in first["error"]
    assert "Traceback" not in first["error"]
    assert first["out"] == ""
    assert first["files"] == ["cells/metro/itocast-hnn-0.json"]  # whole, and no part of another


def test_the_same_command_goes_on_and_writes_the_table(cut_short):
    folder, first, (code, said, log) = cut_short
    assert not code, log
    assert "1 cells are there already, 1 to make" in log
    assert "1/1 metro/itocast-hnn-1: " in log
    assert f"Written to {folder}/: table.csv, table.md; the cells are in {folder}/cells/." in said
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    one, two = (f"cells/metro/itocast-hnn-{seed}.json" for seed in (0, 1))
    assert files == [one, two, "table.csv", "table.md"]
    assert (folder / one).stat().st_mtime_ns == first["time"]


def test_a_cell_says_what_was_done(cut_short):
    folder, _, _ = cut_short
    trials = cells.stored(folder, "metro")
    assert [trial["settings"]["seed"] for trial in trials] == [0, 1]
    assert trials[0]["scores"] != trials[1]["scores"]
    y = datasets.load("metro")["traffic_volume"].tail(protocol.QUICK_ROWS).to_numpy()
    for trial in trials:
        assert trial["published"]
        assert (trial["rows"], trial["targets"], len(trial["curve"])) == (protocol.QUICK_ROWS, 1, 99)
        assert trial["excerpt"]["y"] == y[6400:6650].tolist()  # the first rows of the last fifth
        assert 0 < trial["seconds_to_best"] <= trial["fit_seconds"]
        assert len(trial["history"]["validation"]) == 8 >= trial["best_epoch"]
        assert trial["scores"].keys() == {*metrics.METRICS, "aleatoric", "epistemic"}
        assert trial["scores"]["r2"] > 0.5
        assert trial["scores"]["epistemic"] == 0  # HNN has one path
        assert trial["curve"] == sorted(trial["curve"])
        assert trial["curve"][89] == pytest.approx(trial["scores"]["coverage_90"], abs=1e-5)


def test_the_table_is_that_of_its_cells(cut_short):
    folder, _, _ = cut_short
    values = [trial["scores"]["rmse"] for trial in cells.stored(folder, "metro")]
    [row] = pd.read_csv(folder / "table.csv").to_dict("records")
    assert (row["dataset"], row["form"], row["method"], row["trials"]) == ("metro", "itocast", "hnn", 2)
    assert row["rmse"] == pytest.approx(statistics.fmean(values), rel=1e-5)
    assert row["rmse_std"] == pytest.approx(statistics.stdev(values), rel=1e-4)
    assert f"| HNN | {outputs.spread(values)} |" in (folder / "table.md").read_text()


def test_a_cell_says_how_its_training_ended(cut_short):
    assert {trial.get("stopped") for trial in cells.stored(cut_short[0], "metro")} == {"finished"}


def test_a_cell_has_the_settings_of_its_training(cut_short):
    for trial in cells.stored(cut_short[0], "metro"):
        assert trial["training"].keys() >= {"epochs", "batch_size", "learning_rate", "weight_decay"}
