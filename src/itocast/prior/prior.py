"""The prior as it is used: weights from the package, laws for any rows, in the units of their values."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor

from itocast.forecast import Forecast
from itocast.prior.inputs import PATCH, Units, read
from itocast.prior.network import COMPONENTS, PATCHES, Network
from itocast.storage import write_bytes

WEIGHTS = Path(__file__).parent / "prior.safetensors"
LONGEST = PATCH * PATCHES  # values of the past that are read
TOGETHER = 32  # rows that are computed together, at most
TILE = 4  # rows are filled up to a multiple of it, and steps to one of `STEPS`: fewer would round otherwise
STEPS = 16
SHORTEST = 64  # length of the shortest rows, filled up


class Prior:
    """Forecasts series that it never saw, without being fitted.

    >>> prior = Prior.load()
    >>> months = torch.arange(48.0).double()
    >>> law = prior.law(months[None], torch.tensor([[12, 0]]), horizon=6)
    >>> law.shape
    (1, 6, 1)
    """

    def __init__(self, network: Network) -> None:
        self.network = network.eval()

    @classmethod
    def load(cls, path: Path = WEIGHTS) -> Prior:
        """The weights of the package, read once, or those of a file."""
        return cls(network_of(path))

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> Prior:
        """From what `tensors` gave."""
        network = Network()
        network.load_state_dict({name: part.float() for name, part in tensors.items()})
        return cls(network)

    def tensors(self) -> dict[str, Tensor]:
        """The weights in half precision, to be saved."""
        return {name: part.half() for name, part in self.network.state_dict().items()}

    @torch.no_grad()
    def law(self, values: Tensor, seasons: Tensor, horizon: int) -> Forecast:
        """The law of the steps 1 … `horizon` after the last column, one path, (rows, horizon, 1).

        `values` (rows, length) are nan where missing; `seasons` (rows, 2) are up to two season lengths in steps, the
        shorter first, 0 for none. A row's digits depend on that row alone.
        """
        values, seasons = check(values, seasons, horizon)
        out = torch.empty(3, len(values), horizon, COMPONENTS, dtype=torch.float64)
        for rows, length in tiles(values):
            out[:, rows] = self.tile(values[rows, -length:], seasons[rows], length, horizon)
        means, log_variances, log_weights = (part[None, :, :, None] for part in out)
        return Forecast.from_logs(means, log_variances, log_weights)

    def tile(self, values: Tensor, seasons: Tensor, length: int, horizon: int) -> Tensor:
        """Means, log variances and log weights of rows of one length, (3, rows, horizon, components)."""
        count = len(values)
        rows = torch.arange(count + -count % TILE).clamp(max=count - 1)  # the last one fills up
        values, exponent = shrink(values[rows])
        values = torch.nn.functional.pad(values, (length - values.shape[1], 0), value=torch.nan)
        law, units = self.standard(values, seasons[rows], horizon + -horizon % STEPS)
        return in_units_of(law, units, exponent)[:, :count, :horizon]

    def standard(self, values: Tensor, seasons: Tensor, horizon: int) -> tuple[Forecast, Units]:
        """The law of rows of one length in units of their own, and these units.

        Values are of a size of at most 1, and each row has one that was seen.
        """
        context, units = read(values, seasons)
        encoded = self.network.encode(context)
        steps = torch.arange(1, horizon + 1)
        laws = [self.network.decode(context, leads, encoded) for leads in steps.split(4 * STEPS)]
        names = ("means", "log_variances", "log_weights")
        parts = (torch.cat([getattr(law, name) for law in laws], 2) for name in names)
        return Forecast.from_logs(*parts), units


@cache
def network_of(path: Path) -> Network:
    """The network with the weights of a file."""
    network = Network()
    network.load_state_dict({name: part.float() for name, part in load_file(path).items()})
    return network


def write_weights(network: Network, path: Path, steps: int) -> None:
    """The weights in half precision, in place of the file there was."""
    weights = {name: part.half() for name, part in copy.deepcopy(network).state_dict().items()}
    write_bytes(path, to_bytes(weights, {"steps": str(steps)}))


def check(values: Tensor, seasons: Tensor, horizon: int) -> tuple[Tensor, Tensor]:
    """The values that are read, and seasons, or an error that says what is wrong."""
    if values.ndim != 2 or values.shape[1] == 0:
        raise ValueError(f"values has shape {tuple(values.shape)}: expected (rows, length) with a length of at least 1")
    if seasons.shape != (len(values), 2):
        raise ValueError(f"seasons has shape {tuple(seasons.shape)}: expected (rows, 2) = ({len(values)}, 2)")
    if (seasons < 0).any():
        raise ValueError(f"seasons has a smallest value of {int(seasons.min())}: expected steps, or 0 for none")
    if horizon < 1:
        raise ValueError(f"horizon={horizon}: expected at least 1")
    values = values[:, -LONGEST:].double()
    unseen = (~values.isfinite().any(1)).nonzero().flatten().tolist()
    if unseen:
        raise ValueError(f"values has no observed value in row {unseen[0]}: drop such rows ({len(unseen)} in all)")
    return values, seasons


def tiles(values: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Rows that are computed together, and the length that is read of them: a power of two, by each row alone."""
    seen = values.isfinite().to(torch.int8)
    spans = values.shape[1] - seen.argmax(1)
    lengths = 2 ** spans.clamp(min=SHORTEST).double().log2().ceil().long()
    for length in lengths.unique().tolist():
        for rows in (lengths == length).nonzero().flatten().split(TOGETHER):
            yield rows, length


def shrink(values: Tensor) -> tuple[Tensor, Tensor]:
    """Values of at most 1, and the powers of two that they were divided by, (rows, 1)."""
    largest = torch.where(values.isfinite(), values.abs(), 0).amax(1, keepdim=True)
    exponent = largest.frexp().exponent
    return times_power(values, -exponent), exponent


def times_power(values: Tensor, exponent: Tensor) -> Tensor:
    """values · 2^exponent, exactly."""
    return torch.from_numpy(np.ldexp(values.numpy(), exponent.numpy()))


def in_units_of(law: Forecast, units: Units, exponent: Tensor) -> Tensor:
    """Means, log variances and log weights in the units of the values, (3, rows, steps, components)."""
    level, unit = units.level[..., None].double(), units.unit[..., None].double()
    exponent = exponent[..., None]
    means = times_power(law.means[0, :, :, 0].double() * unit + level, exponent)
    log_unit = unit.log() + exponent * math.log(2)
    log_variances = law.log_variances[0, :, :, 0].double() + 2 * log_unit
    log_weights = law.log_weights[0, :, :, 0].double().log_softmax(-1)  # sum to 1 to all digits
    return torch.stack([means, log_variances, log_weights])
