"""Small, real data and models that tests share."""

from __future__ import annotations

import io
import os
import shutil
import sys
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from itocast import Data, Forecaster, cli
from itocast.data.preparation import Preparation
from itocast.data.reading import read_table
from itocast.data.table import Columns, Table
from itocast.models import BNN, HNN, SDEHNN, DeepEnsemble, DeepGP, MCDropout, SDENet
from itocast.nets import Encoder

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit.script, which linear_operator still uses
    import gpytorch  # noqa: F401

torch.set_num_threads(1)

SMALL = Encoder(hidden=16, dim=8, frequencies=4, embedding=2)
LSTM = Encoder(kind="lstm", dim=8, layers=2)
TINY = partial(HNN, encoder=SMALL)
TINY_SDE = partial(SDEHNN, encoder=SMALL)
BUILD = {
    "sde_hnn": lambda sizes, seed=0: SDEHNN(sizes, encoder=SMALL, seed=seed),
    "sde_hnn lstm": lambda sizes, seed=0: SDEHNN(sizes, encoder=Encoder(kind="lstm", dim=8, layers=1), seed=seed),
    "sde_hnn gru": lambda sizes, seed=0: SDEHNN(sizes, encoder=Encoder(kind="gru", dim=8, layers=1), seed=seed),
    "sde_hnn paper last": lambda sizes, seed=0: SDEHNN.paper(sizes, state="last", seed=seed),
    "sde_hnn paper sequence": lambda sizes, seed=0: SDEHNN.paper(sizes, state="sequence", seed=seed),
    "hnn": lambda sizes, seed=0: HNN(sizes, encoder=SMALL, seed=seed),
    "hnn mixture": lambda sizes, seed=0: HNN(sizes, encoder=SMALL, components=3, seed=seed),
    "hnn paper": lambda sizes, seed=0: HNN.paper(sizes, seed=seed),
    "hnn gru": lambda sizes, seed=0: HNN(sizes, encoder=Encoder(kind="gru", dim=8, layers=2), seed=seed),
    "mc_dropout": lambda sizes, seed=0: MCDropout(sizes, encoder=SMALL, seed=seed),
    "mc_dropout lstm": lambda sizes, seed=0: MCDropout(sizes, encoder=LSTM, seed=seed),
    "mc_dropout paper": lambda sizes, seed=0: MCDropout.paper(sizes, seed=seed),
    "deep_ensemble": lambda sizes, seed=0: DeepEnsemble(sizes, encoder=SMALL, members=3, seed=seed),
    "deep_ensemble adversarial": lambda sizes, seed=0: DeepEnsemble(
        sizes, encoder=SMALL, members=2, adversarial=0.01, seed=seed
    ),
    "deep_ensemble lstm": lambda sizes, seed=0: DeepEnsemble(sizes, encoder=LSTM, members=2, seed=seed),
    "deep_ensemble paper": lambda sizes, seed=0: DeepEnsemble.paper(sizes, seed=seed),
    "bnn": lambda sizes, seed=0: BNN(sizes, encoder=SMALL, seed=seed),
    "bnn lstm": lambda sizes, seed=0: BNN(sizes, encoder=LSTM, seed=seed),
    "bnn paper": lambda sizes, seed=0: BNN.paper(sizes, seed=seed),
    "deep_gp": lambda sizes, seed=0: DeepGP(sizes, encoder=SMALL, width=3, inducing=8, seed=seed),
    "deep_gp lstm": lambda sizes, seed=0: DeepGP(sizes, encoder=LSTM, width=3, inducing=8, seed=seed),
    "deep_gp paper": lambda sizes, seed=0: DeepGP.paper(sizes, seed=seed),
    "sde_net": lambda sizes, seed=0: SDENet(sizes, encoder=SMALL, seed=seed),
    "sde_net lstm": lambda sizes, seed=0: SDENet(sizes, encoder=LSTM, seed=seed),
    "sde_net paper": lambda sizes, seed=0: SDENet.paper(sizes, seed=seed),
}


SETTINGS = """
horizon = 2
window = 4
[model]
kind = "hnn"
encoder = { hidden = 16, dim = 8, frequencies = 4, embedding = 2 }
[training]
epochs = 1
"""


def tiny(horizon: int = 3, **settings) -> Forecaster:
    """A forecaster that is fitted in a moment."""
    return Forecaster(horizon, **{"window": 4, "model": TINY, "training": {"epochs": 1}} | settings)


def wave_frame(rows: int = 600, seed: int = 0) -> pd.DataFrame:
    """A noisy daily wave with a covariate and a second target."""
    random = np.random.default_rng(seed)
    hours = np.arange(rows)
    y = np.sin(hours * 2 * np.pi / 24) * 10 + 50 + random.standard_normal(rows)
    return pd.DataFrame(
        {
            "time": pd.date_range("2024-01-01", periods=rows, freq="h"),
            "load": y,
            "price": 100 - y + random.standard_normal(rows),
            "heat": random.uniform(size=rows),
        }
    )


def panel_frame(rows: int = 200, seed: int = 0) -> pd.DataFrame:
    """Three hourly series of very different scales: a past covariate, one known ahead, and a category that stays."""
    random = np.random.default_rng(seed)
    hours = np.arange(rows)
    parts = []
    for name, scale, place in (("a", 1.0, "sea"), ("b", 1000.0, "hill"), ("c", 0.001, "sea")):
        promotion = (random.uniform(size=rows) < 0.2).astype(float)
        y = scale * (10 + np.sin(hours * 2 * np.pi / 24) + promotion + 0.1 * random.standard_normal(rows))
        parts.append(
            pd.DataFrame(
                {
                    "unique_id": name,
                    "ds": pd.date_range("2024-01-01", periods=rows, freq="h"),
                    "y": y,
                    "heat": random.uniform(size=rows),
                    "promotion": promotion,
                    "place": place,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def ahead_frame(frame: pd.DataFrame, horizon: int = 3, value: float = 0.0) -> pd.DataFrame:
    """The next hours of every series of a panel, with what is known of them."""
    last = frame.groupby("unique_id", sort=False)["ds"].max()
    parts = [
        pd.DataFrame({"unique_id": name, "ds": pd.date_range(end, periods=horizon + 1, freq="h")[1:]})
        for name, end in last.items()
    ]
    return pd.concat(parts, ignore_index=True).assign(promotion=value)


def wave(rows: int = 600, seed: int = 0) -> Table:
    """The wave, read."""
    columns = Columns(id=None, time="time", targets=("load", "price"), past=("heat",))
    return read_table(wave_frame(rows, seed), columns)


@pytest.fixture
def table() -> Table:
    return wave()


@pytest.fixture
def cut(table) -> int:
    """The end of the training part: 60 % of the rows."""
    return table.cutoff(0.6)


@pytest.fixture
def preparation(table, cut) -> Preparation:
    return Preparation.fit(table, horizon=3, window=4, until=cut)


@pytest.fixture
def rows(table, cut, preparation):
    """Windows to train on, and later ones to validate on."""
    return preparation.windows(table, until=cut), preparation.windows(table, after=cut, until=table.cutoff(0.8))


@pytest.fixture(params=BUILD)
def build(request):
    """Every kind of model in turn, small where it can be."""
    return BUILD[request.param]


@pytest.fixture(scope="session")
def wave_forecaster() -> Forecaster:
    """One series, two targets, a past covariate, names of its own."""
    return tiny(model=TINY_SDE, data=Data()).fit(wave_frame(), target=["load", "price"], time="time", past=["heat"])


@pytest.fixture(scope="session")
def single() -> tuple[pd.DataFrame, Forecaster]:
    """One series, one target, the usual names, no covariates."""
    frame = wave_frame(300)[["time", "load"]].rename(columns={"time": "ds", "load": "y"})
    return frame, tiny(training={"epochs": 2}).fit(frame)


@pytest.fixture(scope="session")
def panel() -> tuple[pd.DataFrame, Forecaster]:
    """Three series with covariates of every kind."""
    frame = panel_frame()
    return frame, tiny(model=TINY_SDE).fit(frame, past=["heat"], future=["promotion"], static=["place"])


@pytest.fixture(scope="module")
def browser():
    """Debian's chromium, or another one that the variable CHROMIUM names."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    assert path, "no chromium found: apt-get install chromium, or name one by the variable CHROMIUM"
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Ran:
    """Exit code, standard output and standard error of a command."""

    def __init__(self, code: int, out: str, error: str) -> None:
        self.code, self.out, self.error = code, out, error

    @property
    def table(self) -> pd.DataFrame:
        """Standard output, all of it, as a table."""
        assert self.code == 0, self.error
        return pd.read_csv(io.StringIO(self.out), keep_default_na=False)


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run a command in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def command(*arguments: object, stdin: str = "") -> Ran:
        monkeypatch.setattr(sys, "argv", ["itocast", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        try:
            cli.run()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        return Ran(code, *capsys.readouterr())

    return command
