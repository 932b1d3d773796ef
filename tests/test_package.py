"""The package as a user meets it: imports, command line, demo, examples, documents."""

from __future__ import annotations

import os
import re
import runpy
import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import itocast
from itocast import cli, folders
from itocast.calibration import CALIBRATORS
from itocast.data.preparation import SCALINGS
from itocast.lipschitz import RULES
from itocast.metrics import METRICS
from itocast.models import MODELS, OBJECTIVES
from itocast.schedule import Training
from itocast.sde import SOLVERS

ROOT = Path(__file__).parent.parent


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_and_help_do_not_import_torch():
    assert python("import itocast, sys; print('torch' in sys.modules)").strip() == "False"
    code = (
        "import sys; sys.argv = ['itocast', '--help']\n"
        "from itocast import cli\n"
        "try: cli.run()\nexcept SystemExit: pass\n"
        "print('torch' in sys.modules, 'pandas' in sys.modules, 'matplotlib' in sys.modules)"
    )
    out = python(code)
    assert "demo" in out
    assert out.splitlines()[-1] == "False False False"


def test_every_public_name_is_there():
    for name in itocast.__all__:
        assert getattr(itocast, name) is not None
        assert name in dir(itocast)
    with pytest.raises(AttributeError, match="has no attribute 'Prophet'"):
        itocast.Prophet  # noqa: B018


def test_quick_demo_writes_forecasts_plots_and_models(tmp_path):
    result = CliRunner().invoke(cli.app, ["demo", "--quick", "-o", str(tmp_path / "out")], env={"COLUMNS": "140"})
    assert result.exit_code == 0, result.output
    for column in ("RMSE", "R²", "CRPS", "NLL", "CWCE", "R-CWCE", "EPIW", "inside the 95 %", "parameters", "seconds"):
        assert column in result.output
    assert sorted(os.listdir(tmp_path / "out")) == [
        "calibration.png", "hnn", "hnn.csv", "report.html", "sde-hnn", "sde-hnn.csv", "week.png"
    ]  # fmt: skip
    frame = pd.read_csv(tmp_path / "out" / "sde-hnn.csv")
    assert list(frame) == ["ds", "y", "mean", "lo-50", "hi-50", "lo-95", "hi-95", "aleatoric", "epistemic"]
    assert len(frame) == 1600
    assert (frame["lo-95"] < frame["lo-50"]).all()
    assert frame["y"].between(frame["lo-95"], frame["hi-95"]).mean() > 0.85
    assert folders.load(tmp_path / "out" / "sde-hnn").parameters > 10_000


def command(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "itocast", *arguments], capture_output=True, text=True, check=False)


def test_a_users_mistake_is_a_message_and_an_exit_code(tmp_path):
    (tmp_path / "file").write_text("")
    run = command("demo", "--quick", "-o", str(tmp_path / "file"))
    assert run.returncode == 1
    assert "is not a folder" in run.stderr
    assert "Traceback" not in run.stderr
    assert command("demo", "--threads", "0").returncode == 2
    assert command("forecast").returncode == 2


@pytest.mark.parametrize(("line", "code"), [("Training SDE-HNN", 130), ("Training HNN", 0)])
def test_an_interrupted_demo_says_so_and_keeps_what_was_finished(tmp_path, line, code):
    child = subprocess.Popen(
        [sys.executable, "-m", "itocast", "demo", "-o", str(tmp_path / "out"), *([] if code else ["--quick"])],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    for said in child.stdout:
        if line in said:
            break
    child.send_signal(signal.SIGINT)
    out, error = child.communicate()
    assert child.returncode == code
    assert "Interrupted" in (error if code else out)
    assert "Traceback" not in error
    assert "training" not in error  # no progress bar where there is no terminal
    assert (tmp_path / "out" / "sde-hnn.csv").exists() == (code == 0)


def test_version():
    assert command("--version").stdout.strip() == itocast.__version__


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_examples_run(example, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("document", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")], ids=lambda path: path.name)
def test_links_lead_to_files(document):
    for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
        assert (document.parent / link).exists(), link


def test_the_map_from_equations_to_code_names_files_that_exist():
    text = (ROOT / "docs" / "equations.md").read_text()
    for path in {word.strip("`") for word in text.replace("|", " ").split() if word.strip("`").endswith(".py")}:
        assert (ROOT / "src" / "itocast" / path).is_file(), path


def test_documents_list_every_registered_name():
    text = (ROOT / "docs" / "reference.md").read_text()
    registries = (SOLVERS, METRICS, itocast.datasets.DATASETS, MODELS, CALIBRATORS, OBJECTIVES, SCALINGS)
    for name in (*chain(*registries), *Training.model_fields):
        assert f"`{name}`" in text, name
    for layer in RULES:
        assert layer.__name__ in text, layer
