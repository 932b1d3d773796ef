"""Train the prior on synthetic series: `python -m itocast.prior.pretraining --folder DIR --hours H`.

The data of a step depend on the seed and its number alone, so that a run goes on from its checkpoint to the bit.
The learning rate rises, stays, and falls only in `--export`: in a copy, from any checkpoint.
"""

from __future__ import annotations

import argparse
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.random import SFC64, Generator, SeedSequence
from torch import Tensor

from itocast.prior import generators
from itocast.prior.inputs import read
from itocast.prior.loss import loss_of
from itocast.prior.network import Network
from itocast.prior.prior import WEIGHTS, write_weights
from itocast.storage import read_checkpoint, write_checkpoint

SEED = 31
RATE = 3e-3  # the highest learning rate
WARM_UP = 500  # steps
DECAY = 0.05  # of the weights
MEMORY = (0.9, 0.98)  # of AdamW
MOMENTUM = 0.95  # of Muon
CLIP = 1.0  # largest norm of the gradient
LEADS = 24  # future steps of a series that are learned from


class Shape(NamedTuple):
    """How long the series of some batches are."""

    past: int
    future: int
    rows: int


SHORT, USUAL, FAR_AHEAD = Shape(64, 24, 512), Shape(256, 64, 256), Shape(256, 256, 256)
LONG, FURTHEST = Shape(1024, 256, 64), Shape(256, 1024, 128)
TURNS = [USUAL, SHORT, USUAL, LONG, USUAL, FAR_AHEAD, SHORT, USUAL, USUAL, LONG, USUAL, SHORT, FURTHEST]
SHARED = 8  # batches of one shape that are drawn at once


class Batch(NamedTuple):
    """Series cut into past and future."""

    values: Tensor  # (rows, past), nan where missing
    seasons: Tensor  # (rows, 2), as told
    leads: Tensor  # (leads,)
    y: Tensor  # (rows, leads)


def random_source(*numbers: int) -> Generator:
    """A generator of its own for each tuple of numbers."""
    return Generator(SFC64(SeedSequence(numbers)))


def batches(seed: int, block: int) -> list[Batch]:
    """A block of the training data: `SHARED` batches of one shape."""
    rng = random_source(seed, block)
    shape = TURNS[block % len(TURNS)]
    rows = shape.rows * SHARED
    world = generators.draw(rng, rows, shape.past, shape.future)
    values, future = hide(rng, world.values, shape.past)
    seasons = tell(rng, world.seasons)
    out = []
    for start in range(0, rows, shape.rows):
        some = slice(start, start + shape.rows)
        leads = np.sort(rng.permutation(shape.future)[:LEADS]) + 1
        parts = (values[some], seasons[some], leads, future[some][:, leads - 1])
        out.append(Batch(*(torch.from_numpy(np.ascontiguousarray(part)) for part in parts)))
    return out


def hide(rng: Generator, values: np.ndarray, past: int) -> tuple[np.ndarray, np.ndarray]:
    """The past, of random lengths and with gaps in a fifth of the series, and the future."""
    series = len(values)
    before, future = values[:, :past].copy(), values[:, past:]
    spans = np.exp(rng.uniform(0, np.log(past + 1), series)).astype(int)
    longer = rng.random(series) < 0.5
    spans = np.where(longer, rng.integers(1, past + 1, series), spans)
    age = np.arange(past, 0, -1)[None]
    before[age > spans[:, None]] = np.nan
    gaps = rng.random(series) < 0.12
    share = rng.uniform(0, 0.5, (series, 1)) * gaps[:, None]
    before[rng.random(before.shape) < share] = np.nan
    holes = (rng.random(series) < 0.08)[:, None]
    start = rng.integers(0, past, (series, 1))
    width = (spans[:, None] * rng.uniform(0, 0.5, (series, 1))).astype(int)
    place = np.arange(past)[None]
    before[holes & (place >= start) & (place < start + width)] = np.nan
    unseen = ~np.isfinite(before).any(1)
    before[unseen, -1] = values[unseen, past - 1]
    return before, future


def tell(rng: Generator, seasons: np.ndarray) -> np.ndarray:
    """The seasons as a user tells them: mostly right; not at all, only one of two, or wrong in a share.

    A third of the series without a season are told one: that of a calendar which they do not follow.
    """
    series = len(seasons)
    told = seasons.copy()
    luck = rng.random(series)
    none = (seasons == 0).all(1) & (rng.random(series) < 0.35)
    told[none] = generators.draw_seasons(rng, int(none.sum()), 400)
    told[luck < 0.05] = 0
    only_first = (luck >= 0.05) & (luck < 0.08)
    told[only_first, 1] = 0
    wrong = (luck >= 0.08) & (luck < 0.14)
    told[wrong] = generators.draw_seasons(rng, int(wrong.sum()), 400)
    return told


def fresh_network(seed: int) -> Network:
    """A network with first weights by a seed; the global generator stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed)
        return Network()


def optimisers_of(network: Network) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, whose steps are orthogonal; AdamW for all other weights."""
    matrices = [p for p in network.layers.parameters() if p.ndim > 1]
    inside = {id(p) for p in matrices}
    others = [p for p in network.parameters() if id(p) not in inside]
    groups = [
        {"params": [p for p in others if p.ndim > 1], "weight_decay": DECAY},
        {"params": [p for p in others if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return [
        torch.optim.Muon(matrices, lr=RATE, weight_decay=DECAY, momentum=MOMENTUM, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(groups, lr=RATE, betas=MEMORY, fused=True),
    ]


class Run:
    """A network, its optimisers and the number of steps it made."""

    def __init__(self, seed: int) -> None:
        self.seed, self.steps = seed, 0
        self.network = fresh_network(seed)
        self.optimisers = optimisers_of(self.network)
        self.block: tuple[int, list[Batch]] = (-1, [])

    def batch(self) -> Batch:
        """The batch of this step."""
        block, place = divmod(self.steps, SHARED)
        if self.block[0] != block:
            self.block = (block, batches(self.seed, block))
        return self.block[1][place]

    def step(self, rate: float) -> float:
        """One step of training; gives the loss."""
        batch = self.batch()
        with torch.no_grad():
            context, units = read(batch.values, batch.seasons)
        with torch.autocast("cpu", torch.bfloat16):
            law = self.network(context, batch.leads)
        loss = loss_of(law, batch.y, context, units, batch.leads)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), CLIP)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate
            if norm.isfinite():
                optimiser.step()
            optimiser.zero_grad()
        self.steps += 1
        return loss.item()

    def save(self, path: Path) -> None:
        """Weights, optimiser and step as one file."""
        tensors = {f"network/{name}": part for name, part in self.network.state_dict().items()}
        for place, optimiser in enumerate(self.optimisers):
            for number, state in optimiser.state_dict()["state"].items():
                tensors |= {f"optimiser/{place}/{number}/{name}": part for name, part in state.items()}
        write_checkpoint(path, tensors, {"seed": self.seed, "steps": self.steps})

    @classmethod
    def load(cls, path: Path) -> Run:
        """The run that `save` wrote."""
        tensors, notes = read_checkpoint(path)
        run = cls(notes["seed"])
        run.steps = notes["steps"]
        weights = {name[8:]: part for name, part in tensors.items() if name.startswith("network/")}
        run.network.load_state_dict(weights)
        states: list[dict[int, dict[str, Any]]] = [{} for _ in run.optimisers]
        for name, part in tensors.items():
            if name.startswith("optimiser/"):
                _, place, number, key = name.split("/")
                states[int(place)].setdefault(int(number), {})[key] = part
        for optimiser, state in zip(run.optimisers, states, strict=True):
            optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
        return run


def stable_rate(step: int) -> float:
    """The learning rate of the long run: it rises and stays."""
    return RATE * min(1.0, (step + 1) / WARM_UP)


def train(folder: Path, hours: float, seed: int = SEED) -> None:
    """Go on from the checkpoint in the folder, for so many hours, with a line and a checkpoint a minute.

    Ctrl-C and SIGTERM end the run after the step at hand, with a checkpoint.
    """
    path = folder / "checkpoint"
    run = Run.load(path) if path.exists() else Run(seed)
    stops: list[int] = []
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, lambda number, _: stops.append(number))
    began, noted, first, losses = time.time(), time.time(), run.steps, []
    while time.time() - began < 3600 * hours and not stops:
        losses.append(run.step(stable_rate(run.steps)))
        if time.time() - noted > 60:
            pace = 60 * (run.steps - first) / (time.time() - began)
            mean = sum(losses) / len(losses)
            clock = time.strftime("%H:%M:%S")
            print(f"{clock} step {run.steps} loss {mean:.4f} {pace:.0f} steps a minute", flush=True)
            run.save(path)
            noted, losses = time.time(), []
    run.save(path)
    print(f"stopped at step {run.steps}", flush=True)


def export(folder: Path, steps: int, target: Path) -> None:
    """Decay the learning rate to 0 over some steps, in a copy of the run, and write its weights in half precision."""
    run = Run.load(folder / "checkpoint")
    for k in range(steps):
        run.step(stable_rate(run.steps) * (1 - (k + 1) / steps))
    write_weights(run.network, target, run.steps)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="of the checkpoint")
    parser.add_argument("--hours", type=float, default=1.0, help="how long to train")
    parser.add_argument("--export", type=int, metavar="STEPS", help="decay for so many steps and write weights")
    parser.add_argument("--to", type=Path, default=WEIGHTS, help="where --export writes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.export is not None:
        export(options.folder, options.export, options.to)
    else:
        train(options.folder, options.hours)


if __name__ == "__main__":
    main()
