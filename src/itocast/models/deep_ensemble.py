"""Deep Ensembles: several HNNs from different starts, each a path."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from itocast.forecast import Forecast
from itocast.models.base import Model, mixture
from itocast.models.hnn import HNN, PAPER_ENCODER
from itocast.nets import Encoder, Inputs, Sizes
from itocast.sde import Noise


class DeepEnsemble(Model):
    """Members that learn apart from one another and forecast together (Lakshminarayanan et al. 2017).

    They see the same batches; what differs is where their weights start. With `adversarial`, each learns from a second
    copy of every batch too, whose inputs are moved by that much along the sign of its gradient.

    >>> sizes = Sizes(window=5, targets=1, covariates=0, known=0, horizon=2)
    >>> empty = torch.zeros(7, 0)
    >>> x = Inputs(lags=torch.zeros(7, 5, 1), past=torch.zeros(7, 5, 0), known=empty, anchor=torch.zeros(7, 2, 1))
    >>> DeepEnsemble(sizes).eval()(x, paths=1, noise=Noise(seed=0, shared=True))
    Forecast(paths=5, rows=7, horizon=2, targets=1, components=1)
    """

    def __init__(
        self, sizes: Sizes, encoder: Encoder | dict[str, Any] = Encoder(), components: int = 1, relative: bool = True,
        members: int = 5, adversarial: float = 0.0, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        if members < 1 or not 0 <= adversarial < math.inf:
            raise ValueError(f"members={members}, adversarial={adversarial}: expected at least 1, and 0 or more")
        self.sizes = sizes = Sizes(*sizes)
        encoder = Encoder.of(encoder).suited(sizes)
        self.config = {
            "sizes": list(sizes), "encoder": encoder.model_dump(), "components": components, "relative": relative,
            "members": members, "adversarial": adversarial, "seed": seed,
        }  # fmt: skip
        self.paths, self.adversarial = members, adversarial
        seeds = range(members * seed, members * (seed + 1))
        self.members = nn.ModuleList(HNN(sizes, encoder, components, relative, seed=one) for one in seeds)

    @classmethod
    def paper(cls, sizes: Sizes, seed: int = 0) -> DeepEnsemble:
        """Five of the paper's HNNs, Sec. 5.2."""
        return cls(sizes, encoder=PAPER_ENCODER, relative=False, seed=seed)

    def forward(self, x: Inputs, paths: int, noise: Noise) -> Forecast:
        """The law of all members, however many paths are asked for."""
        return Forecast.beside([member(x, 1, noise) for member in self.members])

    def loss(self, x: Inputs, y: Tensor, noise: Noise) -> Tensor:
        """The mean over members, with the gradient of the sum: each learns as it would alone."""
        losses = torch.stack([self._member_loss(member, x, y, noise) for member in self.members])
        return losses.sum() + (losses.mean() - losses.sum()).detach()

    def parts(self) -> list[nn.Module]:
        return list(self.members)

    def _member_loss(self, member: nn.Module, x: Inputs, y: Tensor, noise: Noise) -> Tensor:
        if not self.adversarial:
            return mixture(member(x, 1, noise), y)
        free = x.changed(lambda part: part.detach().requires_grad_())
        loss = mixture(member(free, 1, noise), y)
        gradients = torch.autograd.grad(loss, free[:3], retain_graph=True, allow_unused=True, materialize_grads=True)
        slopes = iter(gradients)
        moved = x.changed(lambda part: part + self.adversarial * next(slopes).sign())
        return loss + mixture(member(moved, 1, noise), y)
