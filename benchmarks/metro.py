"""Metro in the paper's protocol: the default SDE-HNN held against its bars.

Window 5, horizon 1, rows in file order, five numeric columns, no calendar, the last 20 % as test part, one thread.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean

import torch

from itocast import Data, Forecaster, __version__, datasets, metrics
from itocast.models import HNN, SDEHNN, Model
from itocast.nets import Sizes
from itocast.schedule import Training
from itocast.storage import write_bytes

RESULTS = Path(__file__).parent / "results"
SHOWN = {
    "rmse": ".1f",
    "r2": ".4f",
    "crps": ".1f",
    "nll": ".3f",
    "cwce": ".2f",
    "r_cwce": ".3f",
    "epiw": ".0f",
    "coverage_95": ".3f",
}
Scores = dict[str, float]


class Metro:
    """The data, and one way to train and score a model on them."""

    def __init__(self) -> None:
        self.frame = datasets.load("metro")
        self.schema = datasets.schema("metro") | {"time": None}  # rows in the file's order, nothing of the calendar
        self.cut = round(0.8 * len(self.frame))

    def run(self, build: Callable[..., Model], training: Training, seed: int, scaling: str = "quantile") -> Scores:
        """Scores of the test part in vehicles per hour, with seconds of fit and number of parameters."""
        data = Data(scaling=scaling, local=False, validation=0.25)
        forecaster = Forecaster(
            1, window=5, data=data, model=build, training=training, calibration=None, seed=seed
        )  # fmt: skip
        began = time.process_time()  # of this one thread, so that other work on the machine does not count
        fitted = forecaster.fit(self.frame[: self.cut], **self.schema).fitted
        seconds = time.process_time() - began
        scores = metrics.evaluate(*forecaster.backtest_distribution(self.frame, start=self.cut - 1))
        scores |= {"epochs": len(fitted.history.epochs), "seconds": seconds, "parameters": fitted.parameters}
        shown = {name: round(value, 3) for name, value in scores.items()}
        print(type(fitted.network.model).__name__, f"{seed=}", shown, file=sys.stderr)
        return scores


def average(runs: list[Scores]) -> Scores:
    return {name: mean(run[name] for run in runs) for name in runs[0]}


def table(rows: dict[str, Scores]) -> str:
    """A Markdown table of scores, one row a model."""
    names = [*SHOWN, "parameters", "epochs", "seconds"]
    lines = [f"| model | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for model, scores in rows.items():
        cells = [format(scores[name], SHOWN.get(name, ",.0f")) for name in names]
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(lines)


def bars(seeds: int) -> str:
    """The default SDE-HNN, and the plain network with the same encoder and at least the same time."""
    metro = Metro()
    paper = metro.run(HNN.paper, Training.paper(epochs=20), seed=0, scaling="minmax")
    sde = [metro.run(SDEHNN, Training(), seed) for seed in range(seeds)]
    epoch = metro.run(HNN, Training(epochs=10), seed=0)["seconds"] / 10
    epochs = max(Training().epochs, round(1.1 * average(sde)["seconds"] / epoch))  # rather more time than less
    long = Training(epochs=epochs)
    hnn = average([metro.run(HNN, long, seed) for seed in range(seeds)])
    components = SDEHNN(Sizes(5, 1, 4, 0, 1)).config["components"]
    mixed = average([metro.run(partial(HNN, components=components), long, seed) for seed in range(seeds)])
    best = average(sde)
    rows = {
        "SDE-HNN": best,
        "HNN, same encoder and time": hnn,
        f"HNN with {components} components, same encoder and time": mixed,
        "HNN.paper, 20 epochs, 1 seed": paper,
    }
    checks = [("crps", "183", 183.0), ("rmse", "397", 397.0), ("cwce", "0.7", 0.7)]
    checks += [(name, "that of HNN", hnn[name]) for name in ("rmse", "crps", "nll", "cwce")]
    checks += [("seconds", "those of HNN", hnn["seconds"]), ("seconds", "those of HNN.paper", paper["seconds"])]
    bars = [f"- {verdict(best[name], bar)}: {name} of SDE-HNN against {what}" for name, what, bar in checks]
    beside = [f"- {verdict(best[name], mixed[name])}: {name}" for name in ("rmse", "crps", "nll", "cwce")]
    other = f"Beside that, no bar: SDE-HNN against HNN with {components} components."
    return "\n".join([table(rows), "", f"Means of {seeds} seeds. Bars:", "", *bars, "", other, "", *beside])


def verdict(value: float, bar: float) -> str:
    return f"{'below' if value < bar else 'ABOVE'}, {value / bar:.3f} of it"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    text = bars(arguments.seeds)
    head = (
        f"# Metro, paper protocol: bars\n\nMade by `python benchmarks/metro.py {' '.join(sys.argv[1:])}` "
        f"with itocast {__version__}, torch {torch.__version__}, Python {platform.python_version()}, one thread. "
        "Scores of the test part in vehicles per hour; processor seconds, which compare within this run alone.\n\n"
    )
    write_bytes(RESULTS / "metro-bars.md", f"{head}{text}\n".encode())
    print(text)
    sys.exit("a bar was missed" if "ABOVE" in text.split("no bar")[0] else 0)


if __name__ == "__main__":
    main()
