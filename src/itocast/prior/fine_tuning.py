"""The prior, trained a little further on the series of one table."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from itocast.prior.inputs import PATCH, read
from itocast.prior.loss import loss_of
from itocast.prior.network import Network
from itocast.prior.prior import Prior

STEPS = 100
ROWS = 64  # pasts of a step; half as many where they are long
LONG = 256  # values from which on they are
RATE = 4e-4  # the highest learning rate, a seventh of that of pretraining
WARM_UP = 10  # steps
MEMORY = (0.9, 0.98)  # of AdamW
CLIP = 1.0  # largest norm of the gradient
LEADS = 24  # steps ahead that a step of training looks at, at most
WAY = 0.5  # how far the weights go at most: what one period taught holds half in the next
FEWEST = 30  # independent outcomes below which there is nothing to learn, and which halve the way
LONGEST = 512  # values of the past that are read


class Examples(NamedTuple):
    """Pasts and what came after them."""

    values: Tensor  # (rows, length), nan where missing
    seasons: Tensor  # (rows, 2)
    y: Tensor  # (rows, horizon), nan where missing


Draw = Callable[[int, Generator], Examples]  # so many random ones
Report = Callable[[int, str], None]  # of the steps that were made


def fine_tuned(prior: Prior, draw: Draw, rows: int, independent: float, seed: int, report: Report) -> Prior:
    """The prior after `STEPS` steps of so many rows of a table; what it was given stays as it was.

    The weights stop between those before and after: near those before where few outcomes are
    `independent`. They are in half precision, in which they are saved.
    """
    way = WAY * independent / (independent + FEWEST)
    return between(prior, trained(prior, draw, rows, seed, report), way)


def trained(prior: Prior, draw: Draw, rows: int, seed: int, report: Report) -> Network:
    """The network of the prior after all steps."""
    network = copy.deepcopy(prior.network).train()
    optimiser = torch.optim.AdamW(network.parameters(), betas=MEMORY, weight_decay=0.0)
    generator = Generator().manual_seed(seed)
    for step in range(STEPS):
        for group in optimiser.param_groups:
            group["lr"] = rate(step)
        examples = observed(draw(rows, generator))
        if not len(examples.y):
            continue
        horizon = examples.y.shape[1]
        places = torch.randperm(horizon, generator=generator)[:LEADS].sort().values
        with torch.no_grad():
            context, units = read(padded(examples.values), examples.seasons)
        law = network(context, places + 1)
        loss = loss_of(law, examples.y[:, places], context, units, places + 1)
        optimiser.zero_grad()
        if loss.isfinite():
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), CLIP)
            optimiser.step()
        report(step + 1, "")
    return network


def between(prior: Prior, network: Network, way: float) -> Prior:
    """The prior with weights so far on the way to those of a network, from 0 to 1."""
    after = network.state_dict()
    weights = {name: old.lerp(after[name], way) for name, old in prior.network.state_dict().items()}
    return Prior.of({name: part.half() for name, part in weights.items()})


def batch_size(longest: int) -> int:
    """How many rows a step has, of series of up to so many values."""
    return ROWS // 2 if longest > LONG else ROWS


def rate(step: int) -> float:
    """The learning rate: up to the highest over the first steps, then down to 0 in a line."""
    return RATE * min(1.0, (step + 1) / WARM_UP) * (1 - step / STEPS)


def observed(examples: Examples) -> Examples:
    """Those with a value before and one after."""
    before, after = (part.isfinite().any(1) for part in (examples.values, examples.y))
    return Examples(*(part[before & after] for part in examples))


def padded(values: Tensor) -> Tensor:
    """The newest values, as many as any row has, in a length that is a multiple of `PATCH`."""
    longest = values.shape[1] - int(values.isfinite().any(0).int().argmax())
    values = values[:, -min(longest, LONGEST) :]
    return torch.nn.functional.pad(values, (-values.shape[1] % PATCH, 0), value=torch.nan)
