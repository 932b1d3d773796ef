"""One cell: one peer on one setting with one seed."""

from __future__ import annotations

import resource
import time
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from against import ours
from against.features import Rows, flat
from against.laws import Answer, score
from against.neural import MODELS
from against.neural import answer as neural_answer
from against.settings import Parts, Setting, load
from against.trees import MOST, TREE_PEERS
from itocast.data.sources import source_of
from itocast.paper.cells import Cell

UCI = "uci"
UCI_SETS = ("concrete", "energy", "wine-quality-red", "yacht")
HELD = 0.2  # of the training rows of a UCI set, for stopping and conformalisation
NEEDS = {
    **dict.fromkeys(TREE_PEERS, ("lightgbm",)), "lightgbm-mapie": ("lightgbm", "mapie"), "ngboost": ("ngboost",),
    **dict.fromkeys(MODELS, ("neuralforecast",)),
}  # fmt: skip
PEERS = (*ours.OURS, *ours.ABLATIONS, *TREE_PEERS, *MODELS)
TABULAR = (*ours.REGRESSORS, *(name for name in TREE_PEERS if "relative" not in name))  # also on UCI


def measure(dataset: str, protocol: str, peer: str, seed: int, quick: bool, data_dir: str | None = None) -> Cell:
    """Fit one peer and score it on the test part; on a UCI set the seed is the split too."""
    torch.set_num_threads(1)
    if protocol == UCI:
        rows, y, answer, about = _uci(dataset, peer, seed, data_dir)
        low = -np.inf
    else:
        setting = load(dataset, protocol, quick, data_dir)
        y, low = setting.parts.test.actuals().numpy(), 0.0  # no target can be below
        rows, answer, about = len(setting.frame), _forecast(setting, peer, seed), _about(setting, dataset)
    mean = None if answer.mean is None else np.maximum(answer.mean, low)
    scores = score(np.maximum(answer.quantiles, low), mean, y)
    scores |= {} if answer.nll is None else {"nll": answer.nll}
    costs = {
        "fit_seconds": answer.fit_seconds, "predict_seconds": 1000 * answer.predict_seconds / len(y),
        "size": answer.size, "memory": peak_memory(),
    }  # fmt: skip
    return {
        **about, "rows": rows, "tested": len(y), "horizon": y.shape[1], "targets": y.shape[2], "scores": scores | costs,
        "packages": {name: version(name) for name in NEEDS.get(peer, ())},
        "shown": {name: scores[name] for name in ("crps", "cwce", "coverage_90")} | {"fit": answer.fit_seconds},
    }  # fmt: skip


def _forecast(setting: Setting, peer: str, seed: int) -> Answer:
    if peer in ours.OURS | ours.ABLATIONS:
        return ours.answer(peer, setting, seed)
    if peer in MODELS:
        return neural_answer(peer, setting, seed)
    return fit_trees(peer, flattened(setting.parts), setting.protocol.horizon, seed)


def flattened(parts: Parts) -> list[list[Rows]]:
    """Rows to learn from, to stop on, oldest first because some peers halve them, and to be tested on, by target."""
    held = parts.validation.by_time(parts.table.times)
    return [flat(parts, parts.train, MOST), flat(parts, held, MOST // 3), flat(parts, parts.test)]


def fit_trees(peer: str, tables: list[list[Rows]], horizon: int, seed: int) -> Answer:
    """One peer for each target; tables to learn from, to stop on and to be tested on, each by target."""
    for package in NEEDS[peer]:
        import_module(package)  # is no part of a fit
    quantiles, means = [], []
    seconds, size = np.zeros(2), 0
    for learned, held, asked in zip(*tables, strict=True):
        model = TREE_PEERS[peer]()
        times = [time.process_time()]
        model.fit(learned.seen(), held.seen(), seed)
        times.append(time.process_time())
        values, mean = model.predict(asked)
        times.append(time.process_time())
        seconds, size = seconds + np.diff(times), size + model.size
        quantiles.append(values.reshape(99, -1, horizon))
        means.append(None if mean is None else mean.reshape(-1, horizon))
    mean = None if means[0] is None else np.stack(means, -1)  # type: ignore[arg-type]
    return Answer(np.stack(quantiles, -1), mean, float(seconds[0]), float(seconds[1]), size)


def _uci(dataset: str, peer: str, split: int, data_dir: str | None) -> tuple[int, np.ndarray, Answer, Cell]:
    from uci import read

    x, y, x_test, y_test = read(Path(data_dir or ".") / UCI / dataset, split)
    about = {"file": f"{UCI}/{dataset}", "digest": "", "unit": "its own unit"}
    if peer in ours.REGRESSORS:
        answer = ours.regress(peer, x, y, x_test, split)
    else:
        order, held = np.random.default_rng(split).permutation(len(x)), round(HELD * len(x))
        names = tuple(map(str, range(x.shape[1])))
        parts = [Rows(x[i], y[i], names) for i in (order[held:], order[:held])] + [Rows(x_test, y_test, names)]
        answer = fit_trees(peer, [[part] for part in parts], 1, split)
    return len(x) + len(x_test), y_test.reshape(-1, 1, 1), answer, about


def _about(setting: Setting, dataset: str) -> Cell:
    return {"file": setting.opened.file.name, "digest": setting.opened.digest, "unit": source_of(dataset).unit}


def peak_memory() -> float:
    """The most memory this process ever held, in megabytes."""
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage gives may be the parent's
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return float(lines["VmHWM"].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def lacking(peers: tuple[str, ...]) -> dict[str, list[str]]:
    """Packages that are not there, by peer."""

    def absent(package: str) -> bool:
        try:
            version(package)
        except PackageNotFoundError:
            return True
        return False

    found: dict[str, Any] = {peer: [name for name in NEEDS.get(peer, ()) if absent(name)] for peer in peers}
    return {peer: names for peer, names in found.items() if names}
