"""A committee: members with encoders and output layers of their own around one SDE-block, trained side by side."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import nll_loss

from itocast.categorical import Categorical
from itocast.forecast import Forecast
from itocast.models.base import Model
from itocast.models.sde_hnn import Block
from itocast.nets import SMALLEST_VARIANCE, Encoder, Inputs, MemberLinear, Periodic, Sizes, initialise
from itocast.sde import Noise


class Trunk(nn.Module):
    """From Inputs to the end states of all members and paths.

    Each member embeds and encodes the lags with weights of its own; one SDE-block moves the states of all.
    """

    def __init__(self, encoder: Encoder, block: Block | dict[str, Any] | None, features: int, members: int) -> None:
        super().__init__()
        block = None if block is None else Block.of(block)
        self.config = {"encoder": encoder.model_dump(), "block": block and block.model_dump()}
        if encoder.kind != "mlp":
            raise ValueError(f"encoder kind={encoder.kind!r}: a committee has encoders of kind 'mlp' alone")
        self.members, self.dropout = members, encoder.dropout
        many = members * features
        self.embed = Periodic(many, encoder.frequencies, encoder.embedding) if encoder.frequencies else None
        width = features * (1 + (encoder.embedding if self.embed else 0))
        widths = [width, *[encoder.hidden] * encoder.layers]
        self.hidden = nn.ModuleList(MemberLinear(members, a, b) for a, b in pairwise(widths))
        self.out = MemberLinear(members, widths[-1], encoder.dim)
        self.block = block.build(encoder.dim) if block else None

    def encode(self, x: Inputs, noise: Noise) -> Tensor:
        """The states where the paths start, (rows, members, dim)."""
        lags = x.lags.flatten(1)
        z = lags.expand(self.members, *lags.shape)  # (members, rows, features)
        if self.embed:
            waves = self.embed(lags.repeat(1, self.members)).unflatten(1, (self.members, -1))
            z = torch.cat([z, waves.movedim(1, 0)], dim=-1)
        for layer in self.hidden:
            z = torch.relu(layer(z))
            if self.training and self.dropout:
                z = z * noise.keep(self.dropout, self.members, z.shape[1], z.shape[2:])
        return self.out(z).movedim(0, 1)

    def forward(self, x: Inputs, paths: int, noise: Noise) -> tuple[Tensor, Tensor]:
        """z_T and g(z_T), both (members, paths, rows, dim); without a block, the one state for both."""
        z = self.encode(x, noise)
        if self.block is None:
            z = z.movedim(1, 0)[:, None]
            return z, z
        end, g = self.block.ends(z, paths, noise)  # (paths, rows, members, dim)
        return end.movedim(2, 0), g.movedim(2, 0)


def _apply(layer: MemberLinear, z: Tensor) -> Tensor:
    """(members, paths, rows, dim) to (paths, rows, members, outputs)."""
    return layer(z.flatten(1, 2)).unflatten(1, z.shape[1:3]).movedim(0, 2)


class Committee(Model):
    """SDE-HNNs that share the block of Eq. 6 and are trained in one run: the law of a member is a step of the horizon.

    So `sizes.horizon` is the number of members, and a target that is nan for a member is one it does not learn from:
    with a left-out part for each member, all rows serve both training and validation, and the block alone has seen
    them all. Members cost little beside one another, since small networks leave a processor waiting. `pool` makes the
    members paths of one law.

    >>> sizes = Sizes(window=8, targets=1, covariates=0, known=0, horizon=5)
    >>> x = Inputs(torch.zeros(7, 8, 1), torch.zeros(7, 8, 0), torch.zeros(7, 0), torch.zeros(7, 5, 1))
    >>> law = Committee(sizes).eval()(x, paths=4, noise=Noise(seed=0, shared=True))
    >>> law, pool(law)  # doctest: +NORMALIZE_WHITESPACE
    (Forecast(paths=4, rows=7, horizon=5, targets=1, components=1),
     Forecast(paths=20, rows=7, horizon=1, targets=1, components=1))
    """

    training_paths = 2
    validation_paths = 4
    paths = 16

    def __init__(
        self, sizes: Sizes, encoder: Encoder | dict[str, Any] = Encoder(),
        block: Block | dict[str, Any] | None = Block(), components: int = 1, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.sizes = sizes = Sizes(*sizes)
        encoder = Encoder.of(encoder).suited(sizes)
        self.trunk = Trunk(encoder, block, sizes.window, sizes.horizon)
        self.config = self.trunk.config | {"sizes": list(sizes), "components": components, "seed": seed}
        self.shape = (sizes.targets, components)
        layer = (sizes.horizon, encoder.dim, sizes.targets * components)
        self.mean, self.log_variance = MemberLinear(*layer), MemberLinear(*layer)
        self.weight = MemberLinear(*layer) if components > 1 else None
        initialise(self, seed)

    def forward(self, x: Inputs, paths: int, noise: Noise) -> Forecast:
        z, g = self.trunk(x, paths, noise)
        means = self._parts(self.mean, z)
        floor = means.new_tensor(math.log(SMALLEST_VARIANCE))
        log_variances = torch.logaddexp(self._parts(self.log_variance, g), floor)
        if self.weight is None:
            return Forecast.from_logs(means, log_variances, torch.zeros_like(means))
        return Forecast.from_logs(means, log_variances, self._parts(self.weight, z).log_softmax(-1))

    def _parts(self, layer: MemberLinear, z: Tensor) -> Tensor:
        """(paths, rows, members, targets, components)."""
        return _apply(layer, z).unflatten(-1, self.shape)


def pool(law: Forecast) -> Forecast:
    """The law of a committee with its members as paths beside one another: (members · paths, rows, 1, targets)."""
    parts = (law.means, law.log_variances, law.log_weights)
    return Forecast.from_logs(*(part.movedim(2, 0).flatten(0, 1)[:, :, None] for part in parts))


class ClassCommittee(Model):
    """A committee before a softmax: `sizes.targets` classes, and probabilities that are averaged over paths.

    Deviates: the paper leaves classification open (Sec. 6). There is no variance layer: the noise of a class is in its
    probabilities. `y` is (rows, members) of class numbers, -1 where a member does not learn from a row.
    """

    training_paths = 2
    validation_paths = 4
    paths = 16

    def __init__(
        self, sizes: Sizes, encoder: Encoder | dict[str, Any] = Encoder(),
        block: Block | dict[str, Any] | None = Block(), seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.sizes = sizes = Sizes(*sizes)
        encoder = Encoder.of(encoder).suited(sizes)
        self.trunk = Trunk(encoder, block, sizes.window, sizes.horizon)
        self.config = self.trunk.config | {"sizes": list(sizes), "seed": seed}
        self.logits = MemberLinear(sizes.horizon, encoder.dim, sizes.targets)
        initialise(self, seed)

    def forward(self, x: Inputs, paths: int, noise: Noise) -> Categorical:  # type: ignore[override]
        return Categorical(_apply(self.logits, self.trunk(x, paths, noise)[0]).log_softmax(-1))

    def loss(self, x: Inputs, y: Tensor, noise: Noise) -> Tensor:
        return self._log_loss(self(x, self.training_paths, noise), y) / (y >= 0).sum().clamp(min=1)

    def score(self, x: Inputs, y: Tensor) -> tuple[float, int]:
        return self._log_loss(self(x, self.validation_paths, Noise(0, shared=True)), y).item(), int((y >= 0).sum())

    def _log_loss(self, law: Categorical, y: Tensor) -> Tensor:
        """The sum of -log of the probability of each class that was observed."""
        return nll_loss(law.member_log_probabilities.flatten(0, 1), y.flatten(), ignore_index=-1, reduction="sum")
