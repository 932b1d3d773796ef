"""The only loops over batches: `fit` and `predict`."""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from itocast.forecast import Forecast
from itocast.matching import check_matching, matching_loss
from itocast.metrics import cwce_of
from itocast.models.base import Batches, Model
from itocast.nets import Inputs
from itocast.optimiser import Optimiser
from itocast.schedule import Training
from itocast.sde import Noise
from itocast.storage import read_checkpoint, write_checkpoint

Weights = dict[str, Tensor]
GATHERED = 4096  # rows of several batches that are gathered at once
MATCHING_RATE = 0.1  # the learning rate of matching, as a share of the highest before
TILE = 32  # rows of a prediction are a multiple of it
BAR = {"loss": "train", "validation": "validation"}  # what a progress bar calls the entries of an epoch
TOLERANCE = 1.005  # how many times the CRPS from before matching a matched law may have


@dataclass
class History:
    """What happened in a run: one entry an epoch, why it ended, and the settings it had.

    Epochs of matching follow the others; they, and the one they start from, have the validation's crps and cwce too.
    """

    epochs: list[dict[str, float]] = field(default_factory=list)  # train (loss), validation (NLL), seconds
    stopped: Literal["finished", "early", "interrupted", "diverged"] = "finished"
    settings: dict[str, Any] = field(default_factory=dict)
    before: int | None = None  # epochs before those of matching, once these have begun
    last: list[dict[str, float]] = field(default_factory=list)  # train and seconds of epochs with held-out rows

    @property
    def best(self) -> int:
        """The epoch, counted from 1, whose weights were kept; 0 before the first.

        That of the best validation law; of it and the epochs of matching, the best calibrated one whose CRPS is within
        0.5 % of where matching began.
        """
        scores = [epoch["validation"] for epoch in self.epochs[: self.before]]
        start = scores.index(min(scores)) if scores else -1
        if self.before is None:
            return 1 + start
        most = TOLERANCE * self.epochs[start]["crps"]
        matched = [i for i in range(self.before, len(self.epochs)) if self.epochs[i]["crps"] <= most]
        return 1 + min([start, *matched], key=lambda i: self.epochs[i]["cwce"])

    @property
    def seconds(self) -> float:
        return sum(epoch["seconds"] for epoch in (*self.epochs, *self.last))


class TrainingError(ArithmeticError):
    """Training cannot go on."""


def fit(
    model: Model, train: Batches, validation: Batches, settings: Training = Training(), seed: int = 0,
    checkpoint: str | Path | None = None, watch: Callable[[Model], dict[str, float]] | None = None,
    nested: bool = False,
) -> History:  # fmt: skip
    """Train a model in place and leave it with the weights whose validation law was best; see `History.best`.

    With `checkpoint` the run is written there after every epoch; a run that was killed goes on from it and ends with
    the same weights as one that was not. Ctrl-C ends the run and keeps the best weights so far; so does a loss that is
    not finite, with a warning. The numbers drawn in an epoch depend on the seed and the epoch alone. What `watch` says
    of the model after an epoch is kept in the history. A `nested` run shows no bar and leaves Ctrl-C to its caller.
    """
    history = History(settings=settings.model_dump())
    model.prepare(train)
    if settings.matching:
        check_matching(model, train, settings.matching)
    optimiser = _optimiser(model, settings, len(train))
    best = _copy(model)
    run = _fingerprint(model, settings, seed, train, validation) if checkpoint else {}
    if checkpoint and Path(checkpoint).exists():
        history, best = _resume(Path(checkpoint), run, model, optimiser)
    try:
        with progress("training", settings.epochs + settings.matching, len(history.epochs), nested) as report:
            while (phase := _phase(history, settings)) != "over":
                if phase == "matching" and history.before is None:
                    model.load_state_dict(best)
                    optimiser = _optimiser(model, settings, len(train))
                    history.epochs[history.best - 1] |= calibration(model, validation)
                    history.before = len(history.epochs)
                began, matching = time.perf_counter(), phase == "matching"
                loss = _epoch(model, optimiser, train, settings, seed, epoch=len(history.epochs), matching=matching)
                with optimiser.mean_in_use():
                    score = nll(model, validation)
                    if not math.isfinite(score):
                        raise TrainingError(
                            _diverged(f"the validation loss became {score}", len(history.epochs), settings)
                        )
                    record = {"train": loss, "validation": score} | (calibration(model, validation) if matching else {})
                    record["seconds"] = time.perf_counter() - began
                    history.epochs.append((watch(model) if watch else {}) | record)
                    if history.best == len(history.epochs):
                        best = _copy(model)
                if checkpoint:
                    _save(Path(checkpoint), run, model, optimiser, history, best)
                report(len(history.epochs), f"{_loss(record)}, best in epoch {history.best}")
            if (history.before or len(history.epochs)) < settings.epochs:
                history.stopped = "early"
    except (KeyboardInterrupt, TrainingError) as stop:
        if not history.epochs or (nested and isinstance(stop, KeyboardInterrupt)):
            raise
        history.stopped = "interrupted" if isinstance(stop, KeyboardInterrupt) else "diverged"
        if history.stopped == "diverged":
            warnings.warn(f"{stop}. The weights of epoch {history.best} are kept.", stacklevel=2)
    finally:
        model.load_state_dict(best)
        optimiser.release()
        model.eval()
    return history


def finish(
    model: Model, rows: Batches, settings: Training, seed: int = 0, nested: bool = False
) -> list[dict[str, float]]:  # fmt: skip
    """Train on, now with no rows held out to choose an epoch by: the weights after the last are kept.

    Gives what `History.last` holds. Ctrl-C and a loss that is not finite undo all of it, with a warning, and give
    nothing; a `nested` run leaves Ctrl-C to its caller.
    """
    model.prepare(rows)
    optimiser, start, done = _optimiser(model, settings, len(rows)), _copy(model), []
    try:
        with progress("newest rows", settings.epochs, 0, nested) as report:
            for epoch in range(settings.epochs):
                began = time.perf_counter()
                loss = _epoch(model, optimiser, rows, settings, _mix(seed, -1), epoch=epoch, matching=False)
                done.append({"train": loss, "seconds": time.perf_counter() - began})
                report(len(done), _loss(done[-1]))
        with optimiser.mean_in_use():
            start = _copy(model)
        return done
    except (KeyboardInterrupt, TrainingError) as stop:
        if nested and isinstance(stop, KeyboardInterrupt):
            raise
        why = "interrupted" if isinstance(stop, KeyboardInterrupt) else str(stop)
        warnings.warn(f"the held-out rows were not learned from ({why}): the model is as before it", stacklevel=2)
        return []
    finally:
        model.load_state_dict(start)
        optimiser.release()
        model.eval()


def predict(model: Model, rows: Batches, paths: int | None = None, seed: int = 0, batch_size: int = 256) -> Forecast:
    """The law of every row, in the model's scale. Paths are shared by all rows: the batch size changes no digit."""
    starts = range(0, len(rows), batch_size)
    batches = (rows.batch(slice(start, start + batch_size))[0] for start in starts)
    return Forecast.cat([predict_batch(model, x, paths, seed) for x in batches])


@torch.no_grad()
def predict_batch(model: Model, x: Inputs, paths: int | None = None, seed: int = 0) -> Forecast:
    """The law of the rows of one batch, over the model's own number of paths if none is given.

    Few rows take other ways through matrix products than many, and round otherwise: they are filled up to `TILE`.
    """
    if paths is not None and paths < 1:
        raise ValueError(f"paths={paths}: expected at least 1")
    rows = len(x.lags)
    missing = -rows % TILE
    if missing:
        x = Inputs(*(torch.cat([part, part[-1:].expand(missing, *part.shape[1:])]) for part in x))
    law = model.eval()(x, paths or model.paths, Noise(seed, shared=True))
    return law[:rows] if missing else law


@torch.no_grad()
def nll(model: Model, rows: Batches, batch_size: int = 1024) -> float:
    """The validation score: mean -log of the predictive density over all observed targets, in the model's scale."""
    model.eval()
    parts = [model.score(*rows.batch(slice(i, i + batch_size))) for i in range(0, len(rows), batch_size)]
    return sum(total for total, _ in parts) / max(sum(count for _, count in parts), 1)


@torch.no_grad()
def calibration(model: Model, rows: Batches, batch_size: int = 1024) -> dict[str, float]:
    """CRPS in the model's scale, and CWCE, over all observed targets and as many paths as in validation."""
    parts = []
    for start in range(0, len(rows), batch_size):
        x, y = rows.batch(slice(start, start + batch_size))
        law, seen = predict_batch(model, x, model.validation_paths), ~y.isnan()
        y = torch.where(seen, y, 0.0)
        parts.append((law.crps(y)[seen], law.cdf(y)[seen]))
    crps, pit = (torch.cat(part) for part in zip(*parts, strict=True))
    return {"crps": crps.mean().item(), "cwce": cwce_of(pit)}


def _phase(history: History, settings: Training) -> Literal["learning", "matching", "over"]:
    """What the next epoch is of; those of matching begin after the last of the others or where these stop early."""
    done = len(history.epochs)
    early = done - history.best >= settings.waits
    if history.before is None and done < settings.epochs and not early:
        return "learning"
    before = done if history.before is None else history.before
    return "matching" if done < before + settings.matching else "over"


def _epoch(
    model: Model, optimiser: Optimiser, rows: Batches, settings: Training, seed: int, epoch: int, matching: bool
) -> float:  # fmt: skip
    """One pass over the rows in random order; the mean loss."""
    model.train()
    generator = torch.Generator().manual_seed(_mix(seed, epoch))
    noise = Noise(generator, shared=False)
    order = torch.randperm(len(rows), generator=generator)
    steps = math.ceil(len(rows) / settings.batch_size)
    total = 0.0
    for step, (x, y) in enumerate(batches(rows, order, settings.batch_size)):
        rate = settings.rate((epoch + step / steps) / settings.epochs)
        rate = MATCHING_RATE * settings.learning_rate if matching else rate
        loss = matching_loss(model, x, y, noise) if matching else model.loss(x, y, noise)
        loss.backward()
        value, norm = loss.item(), optimiser.clip(settings.clip)
        if not (math.isfinite(value) and math.isfinite(norm)):
            what = f"the loss became {value:g} with a gradient of norm {norm:g}"
            raise TrainingError(_diverged(what, epoch, settings))
        optimiser.step(rate)
        total += value * len(y)
    return total / len(rows)


def batches(rows: Batches, order: Tensor, size: int) -> Iterator[tuple[Inputs, Tensor]]:
    """Rows in some order, so many at a time, gathered for several batches at once."""
    for some in order.split(size * max(1, GATHERED // size)):
        x, y = rows.batch(some)
        for *parts, target in zip(*(part.split(size) for part in (*x, y)), strict=True):
            yield Inputs(*parts), target


def _diverged(what: str, epoch: int, settings: Training) -> str:
    remedy = f"use a smaller learning_rate than {settings.learning_rate:g}, and look for extreme values in the targets"
    return f"{what} in epoch {epoch + 1}: {remedy}"


def _mix(seed: int, epoch: int) -> int:
    """A seed for each epoch, far from those of its neighbours."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{epoch}".encode()).digest()[:7], "big")


def _optimiser(model: Model, settings: Training, rows: int) -> Optimiser:
    steps = settings.epochs * math.ceil(rows / settings.batch_size)
    span = settings.averaging * steps
    return Optimiser(model, settings.optimiser, settings.weight_decay, span, settings.memory)


def _copy(model: Model) -> Weights:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def _fingerprint(model: Model, settings: Training, seed: int, *parts: Batches) -> dict[str, Any]:
    """What must be the same for a checkpoint to be this run's."""
    data = hashlib.sha256()
    for rows in parts:
        for start in range(0, len(rows), 4096):
            x, y = rows.batch(slice(start, start + 4096))
            for tensor in (*x, y):
                data.update(tensor.contiguous().numpy().tobytes())
    return {
        "model": type(model).__name__,
        "config": model.config,
        "training": settings.model_dump(),
        "seed": seed,
        "rows": [len(rows) for rows in parts],
        "data": data.hexdigest()[:16],
    }


def _save(path: Path, run: dict[str, Any], model: Model, optimiser: Optimiser, history: History, best: Weights) -> None:
    groups = {"model": _copy(model), "best": best, "optimiser": optimiser.tensors()}
    tensors = {f"{group}/{name}": tensor for group, part in groups.items() for name, tensor in part.items()}
    write_checkpoint(path, tensors, {"run": run, "history": asdict(history)})


def _resume(path: Path, run: dict[str, Any], model: Model, optimiser: Optimiser) -> tuple[History, Weights]:
    tensors, notes = read_checkpoint(path)
    for key, value in json.loads(json.dumps(run)).items():
        if (other := notes["run"].get(key)) != value:
            raise ValueError(
                f"checkpoint={str(path)!r} is of another run: its {key} is {other}, here it is {value}; "
                "delete it or name another file"
            )
    groups: dict[str, Weights] = {"model": {}, "best": {}, "optimiser": {}}
    for name, tensor in tensors.items():
        group, rest = name.split("/", 1)
        groups[group][rest] = tensor
    model.load_state_dict(groups["model"])
    optimiser.restore(groups["optimiser"])
    return History(**notes["history"]), groups["best"]


def _loss(record: dict[str, float]) -> str:
    """What a bar says of an epoch."""
    return ", ".join(f"{name} {record[key]:.3f}" for name, key in BAR.items() if key in record)


@contextmanager
def progress(what: str, epochs: int, done: int, nested: bool) -> Iterator[Callable[[int, str], None]]:
    """A bar on standard error that is shown in a terminal alone; yields what reports epochs and a text."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=nested or not console.is_terminal) as bar:
        task = bar.add_task(what, total=epochs, completed=done, loss="")
        yield lambda done, text: bar.update(task, completed=done, loss=text)
