"""BNN: a network whose every weight is a Gaussian, each draw of all weights a path."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import softplus

from itocast.forecast import Forecast
from itocast.models.base import Batches, Model
from itocast.models.hnn import HNN, PAPER_ENCODER
from itocast.nets import Encoder, Inputs, Sizes
from itocast.sde import Noise


class Bayesian(nn.Module):
    """Independent Gaussians over all weights of a network, which is any module, recurrent ones too.

    The network's own parameters are the means; `prior` is the deviation of the prior N(0, prior²), `spread` that at the
    start.

    >>> layer = Bayesian(nn.Linear(3, 2))
    >>> layer.draw(Noise(seed=0, shared=False))(torch.ones(5, 3)).shape, layer.kl().item() > 0
    (torch.Size([5, 2]), True)
    """

    def __init__(self, network: nn.Module, prior: float = 1.0, spread: float = 0.02) -> None:
        super().__init__()
        if not (0 < prior < math.inf and 0 < spread < math.inf):
            raise ValueError(f"prior={prior}, spread={spread}: expected positive deviations")
        self.network, self.prior = network, prior
        start = math.log(math.expm1(spread))
        self.rho = nn.ParameterList(torch.full_like(mean, start) for mean in network.parameters())

    def draw(self, noise: Noise) -> Callable[..., Any]:
        """The network with one draw of its weights, mean + log(1 + e^ρ) ε."""
        weights = {}
        for (name, mean), rho in zip(self.network.named_parameters(), self.rho, strict=True):
            weights[name] = mean + softplus(rho) * noise.normal(1, 1, tuple(mean.shape))[0, 0].to(mean)
        return lambda *inputs: functional_call(self.network, weights, inputs)

    def kl(self) -> Tensor:
        """The divergence from the prior, in nats, over all weights."""
        total = self.rho[0].new_zeros(())
        for mean, rho in zip(self.network.parameters(), self.rho, strict=True):
            ratio = softplus(rho) / self.prior
            total = total + (0.5 * (ratio.square() + (mean / self.prior).square() - 1) - ratio.log()).sum()
        return total


class BNN(Model):
    """HNN with Bayesian weights, learned by Bayes by Backprop (Blundell et al. 2015).

    The loss of a number is -log p(y | weights) of one draw, plus `kl_weight` times the divergence from the prior,
    shared evenly by all numbers that are learned from; 1 is the variational bound. Weights do not decay otherwise.

    Deviates: the prior is one Gaussian, whose divergence is exact, in place of a mixture of two.

    >>> sizes = Sizes(window=5, targets=1, covariates=0, known=0, horizon=2)
    >>> empty = torch.zeros(7, 0)
    >>> x = Inputs(lags=torch.zeros(7, 5, 1), past=torch.zeros(7, 5, 0), known=empty, anchor=torch.zeros(7, 2, 1))
    >>> BNN(sizes).eval()(x, paths=8, noise=Noise(seed=0, shared=True))
    Forecast(paths=8, rows=7, horizon=2, targets=1, components=1)
    """

    validation_paths = 8
    paths = 32
    learned: Tensor

    def __init__(
        self, sizes: Sizes, encoder: Encoder | dict[str, Any] = Encoder(dropout=0), components: int = 1,
        relative: bool = True, prior: float = 1.0, kl_weight: float = 1.0, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        if not 0 <= kl_weight < math.inf:
            raise ValueError(f"kl_weight={kl_weight}: expected 0 or more")
        self.sizes = sizes = Sizes(*sizes)
        encoder = Encoder.of(encoder).suited(sizes)
        self.config = {
            "sizes": list(sizes), "encoder": encoder.model_dump(), "components": components, "relative": relative,
            "prior": prior, "kl_weight": kl_weight, "seed": seed,
        }  # fmt: skip
        self.kl_weight = kl_weight
        self.network = Bayesian(HNN(sizes, encoder, components, relative, seed=seed), prior)
        self.register_buffer("learned", torch.tensor(0))  # how many numbers it learns from

    @classmethod
    def paper(cls, sizes: Sizes, seed: int = 0) -> BNN:
        """The paper's sizes, Sec. 5.2; it does not give the prior."""
        return cls(sizes, encoder=PAPER_ENCODER, relative=False, seed=seed)

    def prepare(self, rows: Batches) -> None:
        super().prepare(rows)
        if not self.learned:
            self.learned.fill_(len(rows) * self.sizes.horizon * self.sizes.targets)

    def decays(self, name: str) -> bool:
        return False

    def forward(self, x: Inputs, paths: int, noise: Noise) -> Forecast:
        return Forecast.beside([self.network.draw(noise)(x, 1, noise) for _ in range(paths)])

    def loss(self, x: Inputs, y: Tensor, noise: Noise) -> Tensor:
        return super().loss(x, y, noise) + self.kl_weight * self.network.kl() / self.learned.clamp(min=1)
