"""The parts networks are made of: what they read, layers and encoders."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Literal, NamedTuple, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from itocast.fused import Waves
from itocast.sde import Noise
from itocast.settings import Settings
from itocast.spectral import SpectralNorm

SMALLEST_VARIANCE = 1e-6  # of a Gaussian, in the scale of the model: no law shrinks to a point
FEWEST = 3  # lags that are embedded: what comes hangs on the latest values, and others are learned by heart
MANY = 100_000  # rows to learn from, from which on a network is wide


class Inputs(NamedTuple):
    """What a model reads of a batch of rows."""

    lags: Tensor  # (rows, window, targets): scaled past values of the targets, oldest first
    past: Tensor  # (rows, window, covariates): scaled past values of the covariates
    known: Tensor  # (rows, known): all else that is known at the origin, such as the calendar of the time forecast
    anchor: Tensor  # (rows, horizon, targets): what predicted means are relative to, in the target's scale

    def changed(self, change: Callable[[Tensor], Tensor]) -> Inputs:
        """The same with each part that networks read changed."""
        return Inputs(change(self.lags), change(self.past), change(self.known), self.anchor)


class Sizes(NamedTuple):
    """The sizes that data dictate to a model."""

    window: int
    targets: int
    covariates: int
    known: int
    horizon: int
    rows: int = 0  # to learn from
    repeats: bool = False  # outcomes often are the last value again
    before: int = 0  # columns of what is known that stand before those of the steps
    ahead: int = 0  # columns of each of several steps, if their times are irregular: how late it is, then all else


class Encoder(Settings):
    """How an input becomes a state: the init layer of Fig. 1.

    `mlp` embeds the latest lags, adds all lags, the last value of each covariate and what is known, and runs `layers`
    hidden layers of `hidden` units to a state of `dim`; `lstm` and `gru` run `layers` layers of `dim` units over all
    columns of the window, and a linear layer joins what is known to their states.
    """

    kind: Literal["mlp", "lstm", "gru"] = "mlp"
    dim: int = Field(64, ge=1)
    hidden: int = Field(256, ge=1, description=f"512 from {MANY:,} rows on, unless it was set")
    layers: int = Field(2, ge=1)
    frequencies: int = Field(16, ge=0, description="of the periodic embedding of the latest lags; 0 for none")
    recent: int | None = Field(
        None, ge=1, description="how many lags are embedded; None for as many as steps are forecast, at least 3"
    )
    embedding: int = Field(8, ge=1)
    dropout: float = Field(
        0.15, ge=0, lt=1,
        description=f"of the units of every hidden layer, in training; 0.05 from {MANY:,} rows on, unless it was set",
    )  # fmt: skip

    def suited(self, sizes: Sizes) -> Self:
        """The same for a number of rows to learn from: many teach a wide network, and need less dropout.

        >>> sizes = Sizes(window=5, targets=1, covariates=0, known=0, horizon=1, rows=1_000_000)
        >>> Encoder().suited(sizes).hidden, Encoder(hidden=64).suited(sizes).hidden
        (512, 64)
        """
        many = {"hidden": 512, "dropout": 0.05} if sizes.rows >= MANY else {}
        return self.model_copy(update={name: many[name] for name in many if name not in self.model_fields_set})

    def build(self, sizes: Sizes, keep_time: bool = False) -> nn.Module:
        """A network from Inputs to (rows, dim), or to (rows, window, dim) where a recurrent one keeps the time axis.

        Called with `paths` its dropout stays on, each path has masks of its own, and states are (paths, rows, …).
        """
        if self.kind == "mlp":
            if keep_time:
                raise ValueError("encoder kind='mlp' has no time axis to keep: use kind='lstm' or 'gru'")
            return MLP(self, sizes)
        return Recurrent(self, sizes, keep_time)


class Periodic(nn.Module):
    """Each number as sines and cosines of learned frequencies, then a linear layer of its own and ReLU."""

    def __init__(self, features: int, frequencies: int, dim: int) -> None:
        super().__init__()
        self.frequencies = nn.Parameter(torch.empty(features, frequencies))
        self.weight = nn.Parameter(torch.empty(features, 2 * frequencies, dim))
        self.bias = nn.Parameter(torch.empty(features, dim))

    def reset(self, generator: torch.Generator) -> None:
        width = self.weight.shape[1]
        self.frequencies.normal_(0, 0.5, generator=generator)
        self.weight.uniform_(-(width**-0.5), width**-0.5, generator=generator)
        self.bias.uniform_(-(width**-0.5), width**-0.5, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = Waves.apply(x, self.frequencies, self.weight, self.bias)
        return out


class MemberLinear(nn.Module):
    """A linear layer for each member of a committee, (members, rows, inputs) to (members, rows, outputs), in one go."""

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs))

    def reset(self, generator: torch.Generator) -> None:
        fan = self.weight.shape[1]
        for parameter in (self.weight, self.bias):
            parameter.uniform_(-(fan**-0.5), fan**-0.5, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class Direct(nn.Linear):
    """A linear layer that starts at zero."""

    def reset(self, generator: torch.Generator) -> None:
        for parameter in self.parameters():
            parameter.zero_()


class MLP(nn.Module):
    """Lags with embeddings, the last covariates and what is known, through hidden layers to a state (rows, dim)."""

    def __init__(self, settings: Encoder, sizes: Sizes) -> None:
        super().__init__()
        lags = sizes.window * sizes.targets
        self.recent = min(sizes.window, settings.recent or max(FEWEST, sizes.horizon)) * sizes.targets
        self.embed = Periodic(self.recent, settings.frequencies, settings.embedding) if settings.frequencies else None
        width = lags + sizes.covariates + sizes.known + (self.recent * settings.embedding if self.embed else 0)
        widths = [width, *[settings.hidden] * settings.layers]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.out = nn.Linear(widths[-1], settings.dim)
        self.dropout = settings.dropout

    def forward(self, x: Inputs, noise: Noise, paths: int | None = None) -> Tensor:
        lags = x.lags.flatten(1)
        waves = [self.embed(lags[:, -self.recent :])] if self.embed else []
        z = torch.cat([lags, x.past[:, -1], x.known, *waves], dim=1)
        for layer in self.hidden:
            z = torch.relu(layer(z))
            if self.dropout and (paths or self.training):
                z = z * _keep(self.dropout, noise, paths, lags.shape[0], z.shape[-1:])
        z = self.out(z)
        return z.expand(paths, *z.shape) if paths and z.ndim == 2 else z


def _keep(drop: float, noise: Noise, paths: int | None, rows: int, shape: tuple[int, ...]) -> Tensor:
    """A mask (rows, *shape), or one for each path, (paths, rows, *shape)."""
    mask = noise.keep(drop, paths or 1, rows, shape)
    return mask if paths else mask[0]


class Recurrent(nn.Module):
    """An LSTM or GRU over the window: the last state (rows, dim), or all of them (rows, window, dim)."""

    def __init__(self, settings: Encoder, sizes: Sizes, keep_time: bool) -> None:
        super().__init__()
        kind = {"lstm": nn.LSTM, "gru": nn.GRU}[settings.kind]
        widths = [sizes.targets + sizes.covariates, *[settings.dim] * settings.layers]
        self.layers = nn.ModuleList(kind(a, b, batch_first=True) for a, b in pairwise(widths))
        self.join = nn.Linear(settings.dim + sizes.known, settings.dim) if sizes.known else None
        self.dropout = settings.dropout
        self.keep_time = keep_time

    def forward(self, x: Inputs, noise: Noise, paths: int | None = None) -> Tensor:
        states = torch.cat([x.lags, x.past], dim=-1)
        for layer in self.layers:
            states, lead = layer(states.flatten(0, -3))[0], states.shape[:-2]
            states = states.unflatten(0, lead)
            if self.dropout and (paths or self.training):  # one mask for all steps of time
                states = states * _keep(self.dropout, noise, paths, x.lags.shape[0], (1, states.shape[-1]))
        states = states if self.keep_time else states[..., -1:, :]
        if self.join:
            known = x.known[:, None].expand(*states.shape[:-1], -1)
            states = torch.tanh(self.join(torch.cat([states, known], dim=-1)))
        states = states if self.keep_time else states[..., 0, :]
        return states.expand(paths, *states.shape) if paths and not self.dropout else states


@torch.no_grad()
def initialise(network: nn.Module, seed: int) -> None:
    """Draw all weights anew from a seed: uniform within ±1/√inputs, recurrent layers within ±1/√units."""
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, Periodic | MemberLinear | Direct):
            module.reset(generator)
        elif isinstance(module, nn.Linear | nn.RNNBase):
            fan = module.in_features if isinstance(module, nn.Linear) else module.hidden_size
            for parameter in module.parameters(recurse=False):
                parameter.uniform_(-(fan**-0.5), fan**-0.5, generator=generator)
    for module in network.modules():
        if isinstance(module, SpectralNorm):
            module.restart()


def tame(values: Tensor, end: float) -> Tensor:
    """The same up to ±end, and beyond it on a log scale: however large a value is, it is not all that counts.

    >>> tame(torch.tensor([-2.0, 5.0, 1000.0]), end=5)
    tensor([-2.0000,  5.0000, 11.9037])
    """
    return values.clamp(-end, end) + values.sign() * (values.abs() - end).clamp(min=0).log1p()
