"""Small, real data and models that tests share."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from itocast.data.table import Table, read_table
from itocast.data.windows import Preparation, split
from itocast.models import HNN, SDEHNN
from itocast.nets import Encoder

torch.set_num_threads(1)


def wave(rows: int = 600, seed: int = 0) -> Table:
    """A noisy daily wave with a covariate and a second target."""
    random = np.random.default_rng(seed)
    hours = np.arange(rows)
    y = np.sin(hours * 2 * np.pi / 24) * 10 + 50 + random.standard_normal(rows)
    frame = pd.DataFrame(
        {
            "time": pd.date_range("2024-01-01", periods=rows, freq="h"),
            "load": y,
            "price": 100 - y + random.standard_normal(rows),
            "heat": random.uniform(size=rows),
        }
    )
    return read_table(frame, targets=["load", "price"], covariates=["heat"], time="time")


@pytest.fixture
def table() -> Table:
    return wave()


@pytest.fixture
def parts(table):
    return split(len(table))


@pytest.fixture
def preparation(table, parts):
    return Preparation.fit(table, parts.train, window=4, horizon=3)


SMALL = Encoder(hidden=16, dim=8, frequencies=4, embedding=2)
BUILD = {
    "sde_hnn": lambda sizes, seed=0: SDEHNN(sizes, encoder=SMALL, seed=seed),
    "sde_hnn lstm": lambda sizes, seed=0: SDEHNN(sizes, encoder=Encoder(kind="lstm", dim=8, layers=1), seed=seed),
    "sde_hnn gru": lambda sizes, seed=0: SDEHNN(sizes, encoder=Encoder(kind="gru", dim=8, layers=1), seed=seed),
    "sde_hnn paper last": lambda sizes, seed=0: SDEHNN.paper(sizes, state="last", seed=seed),
    "sde_hnn paper sequence": lambda sizes, seed=0: SDEHNN.paper(sizes, state="sequence", seed=seed),
    "hnn": lambda sizes, seed=0: HNN(sizes, encoder=SMALL, seed=seed),
    "hnn mixture": lambda sizes, seed=0: HNN(sizes, encoder=SMALL, components=3, seed=seed),
    "hnn paper": lambda sizes, seed=0: HNN.paper(sizes, seed=seed),
}


@pytest.fixture(params=BUILD)
def build(request):
    """Every kind of model in turn, small where it can be."""
    return BUILD[request.param]
