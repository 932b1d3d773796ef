"""The network of the prior: a small transformer over patches of the past and single steps of the future."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from itocast.forecast import Forecast
from itocast.prior.inputs import CANDIDATES, FUTURE, POSITION, STATISTICS, Context, ahead

WIDTH, LAYERS, HEADS, HIDDEN = 96, 4, 4, 288
PATCHES = 128  # context tokens at most
COMPONENTS = 5  # Gaussians of a law
ALIKE = 8  # copies of a row where it is a single token: few rows take other ways through matrix products
NARROWEST = -9.0  # log deviation of a Gaussian, in units


class Layer(nn.Module):
    """Pre-norm attention to the tokens of the past, then two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.pair = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.join = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def remember(self, past: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the past, (rows, heads, tokens, width of a head)."""
        keys, values = self.pair(self.before(past)).chunk(2, -1)
        return split_heads(keys), split_heads(values)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Tokens x (rows, tokens, width) after reading the past, of which the mask hides the empty."""
        query = split_heads(self.query(self.before(x))) / math.sqrt(WIDTH // HEADS)
        shares = (query @ keys.mT + mask).softmax(-1)
        x = x + self.join((shares @ values).transpose(1, 2).flatten(2))
        return x + self.down(torch.relu(self.up(self.between(x))))


class Network(nn.Module):
    """From the past of rows and steps ahead to their law, in each row's own units.

    Tokens of the future read the past and not one another: the law of a step is the same, whatever else is asked.
    """

    def __init__(self) -> None:
        super().__init__()
        self.statistics = nn.Sequential(nn.Linear(STATISTICS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.patch = nn.Linear(POSITION, WIDTH)
        self.place = nn.Parameter(torch.zeros(PATCHES, WIDTH))  # counted from the end
        self.step = nn.Sequential(nn.Linear(FUTURE, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.last = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CANDIDATES + 1 + 3 * COMPONENTS)
        with torch.no_grad():
            self.head.weight.mul_(0.1)
            self.head.bias.zero_()
            self.head.bias[-COMPONENTS:] = torch.linspace(-1, 1, COMPONENTS)

    def encode(self, context: Context) -> tuple[Tensor, list[tuple[Tensor, Tensor]], Tensor]:
        """The statistics' token, keys and values of each layer, and the mask of empty patches."""
        alike = context.statistics[:, None].expand(-1, ALIKE, -1)
        whole = self.statistics(alike)[:, :1]
        places = self.place[-context.tokens.shape[1] :]
        x = torch.cat([whole, self.patch(context.tokens) + places + whole], 1)
        hidden = nn.functional.pad(context.empty, (1, 0))
        mask = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)[:, None, None]
        memory = []
        for layer in self.layers:
            assert isinstance(layer, Layer)
            memory.append(layer.remember(x))
            if layer is not self.layers[-1]:
                x = layer(x, *memory[-1], mask)
        return whole, memory, mask

    def decode(self, context: Context, leads: Tensor, encoded: tuple) -> Forecast:
        """The law of some steps ahead, one path, (rows, steps, 1)."""
        whole, memory, mask = encoded
        simple, tokens = ahead(context, leads)
        x = self.step(tokens) + whole
        for layer, pair in zip(self.layers, memory, strict=True):
            x = layer(x, *pair, mask)
        return read_out(self.head(self.last(x)).float(), simple)

    def forward(self, context: Context, leads: Tensor) -> Forecast:
        """The law of some steps ahead, (steps,) or (rows, steps), in units: one path, (rows, steps, 1)."""
        return self.decode(context, leads, self.encode(context))


def read_out(out: Tensor, simple: Tensor) -> Forecast:
    """The law that the head's numbers stand for, around a mix of simple forecasts."""
    sizes = [CANDIDATES, 1, COMPONENTS, COMPONENTS, COMPONENTS]
    mix, scale, log_weights, widths, offsets = out.split(sizes, -1)
    centre = (mix.softmax(-1) * simple).sum(-1, keepdim=True)
    scale = 10 * torch.tanh(scale / 10)
    means = centre + scale.exp() * offsets
    log_deviations = (scale + 6 * torch.tanh(widths / 6)).clamp(min=NARROWEST)
    parts = (means, 2 * log_deviations, log_weights.log_softmax(-1))
    return Forecast.from_logs(*(part[None, :, :, None] for part in parts))


def split_heads(x: Tensor) -> Tensor:
    """(rows, tokens, width) as (rows, heads, tokens, width of a head)."""
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)
