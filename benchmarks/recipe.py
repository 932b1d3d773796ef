"""What each ingredient of the default recipe is worth: taken out or exchanged one at a time, the rest as it is.

Of every dataset only the rows before the test part are used, their last part to be tested on. Each fit is a stored
cell; the same command goes on where a run was interrupted, and writes benchmarks/results/recipe.md at its end.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch

from against.ours import LONGER, longer, still
from against.settings import DATASETS, load
from itocast import HNN, SDEHNN, Data, Forecaster, Training, fitted, metrics
from itocast.data import preparation
from itocast.data.preparation import Preparation
from itocast.data.table import Table
from itocast.data.windows import Windows
from itocast.models.base import Batches
from itocast.models.sde_hnn import Block
from itocast.nets import Encoder
from itocast.paper import cells
from itocast.paper.cells import Cell, Task
from itocast.paper.outputs import digits, markdown
from itocast.paper.protocol import short
from itocast.storage import write_bytes

HERE = Path(__file__).parent
DEFAULT, WITHOUT = "the default recipe", f"no block, {LONGER:g} times the epochs"


class Unmeasured(SDEHNN):
    """The default, but that the unit of its outputs is a deviation of the series."""

    def prepare(self, rows: Batches) -> None:
        """Nothing is measured."""


def own_lags(self: Preparation, table: Table, part: str) -> np.ndarray:
    """The numbers of one part before they are scaled, lags in deviations of their series."""
    values = VALUES(self, table, part)
    return self._standard(table, values) if part == "lags" else values


VALUES, SIZES = Preparation._values, Windows.sizes
ALIKE = property(lambda windows: SIZES.__get__(windows)._replace(ahead=0))  # steps whose own times nothing reads
LOUD = preparation.SCALINGS | {"quantile": preparation.SCALINGS["quantile"] | {"past": "standard"}}
# arguments of Forecaster; `data` changes the protocol's, `patch` our code, `longer` is how many times as many epochs
CHANGES: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "no noise: g = 0": {"model": still},
    WITHOUT: {"model": partial(HNN, components=5), "longer": LONGER},
    "a learned gain of g, from 0.1": {"model": partial(SDEHNN, block=Block(gain=0.1))},
    "no dropout in the encoder": {"model": partial(SDEHNN, encoder=Encoder(dropout=0))},
    "one Gaussian a path, not five": {"model": partial(SDEHNN, components=1)},
    "the loss of Eq. 9, not the mixture's": {"model": partial(SDEHNN, objective="paper")},
    "no periodic embedding of lags": {"model": partial(SDEHNN, encoder=Encoder(frequencies=0))},
    "an embedding of all lags, not of three": {"model": partial(SDEHNN, encoder=Encoder(recent=1000))},
    "means not relative to the last value": {"model": partial(SDEHNN, relative=False)},
    "means and deviations not in units of the usual change": {"model": Unmeasured},
    "half the hidden units": {"model": partial(SDEHNN, encoder=Encoder(hidden=128))},
    "no averaging of weights": {"training": {"averaging": 0}},
    "a constant learning rate of 0.001": {"training": {"schedule": "constant", "learning_rate": 1e-3}},
    "a weight decay of 0.01, not 0.3": {"training": {"weight_decay": 0.01}},
    "β₂ of 0.999, not 0.98": {"training": {"memory": 0.999}},
    "lags not relative to their window": {"data": {"local": False}},
    "all scaled to 0 … 1, not by quantiles": {"data": {"scaling": "minmax"}},
    "past covariates five times as large": {"patch": patch.multiple(preparation, SCALINGS=LOUD)},
    "lags made normal series by series": {"patch": patch.multiple(Preparation, _values=own_lags)},
    "no probability of the last value itself": {"patch": patch.multiple(preparation, stays=lambda *_: False)},
    "no calibration": {"calibration": None},
}
AHEAD: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "no linear map of lags to means": {"model": partial(SDEHNN, direct=False)},
    "no layer for the times of steps": {"patch": patch.multiple(Windows, sizes=ALIKE)},
}
SEVERAL: dict[str, dict[str, Any]] = {  # without what is patched: of covariates, series and repeated values
    **{name: change for name, change in CHANGES.items() if "patch" not in change},
    "all targets at once, not each by the same weights": {"data": {"apart": False}},
}


WHOLE = 1 + Training().finish  # the length of a run with that on held-out rows, in epochs of the first
NEWEST: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "held-out rows never learned from": {"training": {"finish": 0}},
    f"never, and {WHOLE:g} times the epochs": {"training": {"finish": 0}, "longer": WHOLE},
    "learned from at once, not in two halves": {"patch": patch.multiple(fitted, PARTS=1)},
    "counting once, not twice": {"patch": patch.multiple(fitted, NEWEST=1)},
}


class Kind(NamedTuple):
    """A table of ingredients."""

    protocols: tuple[str, ...]
    datasets: tuple[str, ...]
    changes: dict[str, dict[str, Any]]


ONE = tuple(name for name in DATASETS if name != "traffic")  # of one target
TABLES = {
    "recipe": Kind(("paper", "practical"), ONE, CHANGES),
    "recipe-24": Kind(("practical-24",), ONE, AHEAD),  # 24 steps ahead
    "recipe-several": Kind(("paper",), ("traffic",), SEVERAL),  # several targets
    "recipe-newest": Kind(("paper", "practical"), ONE, NEWEST),  # rows that are held out at first
}


def measure(dataset: str, protocol: str, change: str, seed: int, data_dir: str | None = None) -> Cell:
    """Fit the recipe with one change and score it on the last rows before the test part."""
    torch.set_num_threads(1)
    setting = load(dataset, protocol, data_dir=data_dir).earlier
    arguments = dict((CHANGES | AHEAD | SEVERAL | NEWEST)[change])
    data = Data(**setting.data.model_dump() | arguments.pop("data", {}))
    patched = arguments.pop("patch", nullcontext())
    if times := arguments.pop("longer", None):
        arguments["training"] = arguments.get("training", {}) | longer(setting, times)
    horizon, window = setting.protocol.horizon, setting.protocol.window
    forecaster = Forecaster(horizon, window=window, data=data, seed=seed, **arguments)
    began = time.process_time()
    with patched:
        forecaster.fit(setting.known, **setting.schema)
        seconds = time.process_time() - began
        law, y = forecaster.backtest_distribution(setting.frame, start=setting.start, step=setting.protocol.every)
    found = metrics.evaluate(law, y)
    scores = {name: found[name] for name in ("crps", "nll", "cwce", "coverage_90")}
    return {"scores": scores | {"fit_seconds": seconds}, "shown": scores | {"fit": seconds}}


def write(found: dict[str, Cell], changes: dict[str, dict[str, Any]], name: str, options: str) -> Path:
    """One row for each change, one column for each dataset and protocol."""
    settings = sorted(
        {(cell["settings"]["protocol"], cell["settings"]["dataset"]) for cell in found.values()},
        key=lambda one: (one[0], DATASETS.index(one[1])),
    )

    def scores(change: str, score: str) -> list[float]:
        """The mean over seeds for each setting."""
        keys = [[c["scores"][score] for c in found.values() if _alike(c, change, *setting)] for setting in settings]
        return [mean(values) for values in keys]

    crps, seconds = (scores(DEFAULT, score) for score in ("crps", "fit_seconds"))
    rows = [[DEFAULT, *map(digits, crps), "", digits(mean(scores(DEFAULT, "cwce"))), "1.00"]]
    for change in list(changes)[1:]:
        ratios = [own / other for own, other in zip(scores(change, "crps"), crps, strict=True)]
        times = [own / other for own, other in zip(scores(change, "fit_seconds"), seconds, strict=True)]
        worse = [f"{100 * (ratio - 1):+.1f} %" for ratio in [*ratios, mean(ratios)]]
        rows.append([change, *worse, digits(mean(scores(change, "cwce"))), f"{mean(times):.2f}"])
    heads = ["", *(f"{short(name)}, {protocol}" for protocol, name in settings), "mean", "CWCE, mean", "fit time"]
    seeds = len({cell["settings"]["seed"] for cell in found.values()})
    text = (
        "# What each ingredient of the default recipe is worth\n\n"
        f"`python benchmarks/recipe.py --data-dir DATA{options}`. CRPS of the default, in the unit of each dataset, "
        "then by how much it changes when one thing is changed: above zero, the ingredient helps. On the last fifth of "
        f"the rows before the test part; nothing of the test part is seen. Seeds: {seeds}; differences below 1 to 2 % "
        "are within what another seed changes. The time of a fit is relative to that of the default, one thread.\n\n"
        f"{markdown(heads, rows)}\n"
    )
    file = HERE / "results" / f"{name}.md"
    write_bytes(file, text.encode())
    return file


def _alike(cell: Cell, change: str, protocol: str, dataset: str) -> bool:
    alike = {"change": change, "protocol": protocol, "dataset": dataset}
    return bool(alike.items() <= cell["settings"].items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=Path("data"), help="a folder with the files of datasets")
    parser.add_argument("--table", choices=TABLES, default="recipe", help="of which ingredients")
    parser.add_argument("--datasets", help="names, or name=file")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes of one thread each")
    parser.add_argument("--out", type=Path, default=HERE / "runs-recipe", help="folder of the cells")
    given = parser.parse_args()
    kind = TABLES[given.table]
    tasks = []
    for seed in range(given.seeds):
        for protocol in kind.protocols:
            for dataset in given.datasets.split(",") if given.datasets else kind.datasets:
                for number, change in enumerate(kind.changes):
                    settings = {"dataset": dataset, "protocol": protocol, "change": change, "seed": seed}
                    key = f"{given.table}/{protocol}-{short(dataset)}/{number}-{seed}"
                    tasks.append(Task(key, measure, settings, str(given.data_dir)))
    told = {"table": given.table if given.table != "recipe" else None, "datasets": given.datasets}
    options = "".join(f" --{name} {value}" for name, value in told.items() if value)
    found = cells.run(tasks, given.out, given.jobs)
    print(f"Written: {write(found, kind.changes, given.table, options)}")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError, ArithmeticError) as error:
        sys.exit(f"Error: {error}")
