"""SDE-Net: a diffusion that learns to tell strange inputs from those of training."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from itocast.forecast import Forecast
from itocast.head import GaussianHead
from itocast.models.base import Model, mixture
from itocast.models.hnn import PAPER_ENCODER
from itocast.nets import Encoder, Inputs, Sizes, initialise
from itocast.sde import Noise, count_steps, trajectory


class SDENet(Model):
    """Encoder, SDE, then mean and variance from z_T (Kong et al. 2020), which the paper argues against.

    f learns to forecast; g is one number a row, `strength` times the probability that its input is unlike training, and
    learns from nothing but telling inputs from copies with noise of `outside` times their deviation. Neither learns
    from the other's loss, so one run does what alternating steps do.

    Deviates: f does not depend on time, and the weights are chosen by the forecasts alone, as for all models.

    >>> sizes = Sizes(window=5, targets=1, covariates=0, known=0, horizon=2)
    >>> empty = torch.zeros(7, 0)
    >>> x = Inputs(lags=torch.zeros(7, 5, 1), past=torch.zeros(7, 5, 0), known=empty, anchor=torch.zeros(7, 2, 1))
    >>> SDENet(sizes).eval()(x, paths=8, noise=Noise(seed=0, shared=True))
    Forecast(paths=8, rows=7, horizon=2, targets=1, components=1)
    """

    validation_paths = 4
    paths = 32

    def __init__(
        self, sizes: Sizes, encoder: Encoder | dict[str, Any] = Encoder(), components: int = 1, relative: bool = True,
        T: float = 3.0, dt: float = 1.5, strength: float = 0.5, outside: float = 2.0, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        if not (0 < strength < math.inf and 0 < outside < math.inf):
            raise ValueError(f"strength={strength}, outside={outside}: expected positive numbers")
        self.sizes = sizes = Sizes(*sizes)
        encoder = Encoder.of(encoder).suited(sizes)
        self.config = {
            "sizes": list(sizes), "encoder": encoder.model_dump(), "components": components, "relative": relative,
            "T": T, "dt": dt, "strength": strength, "outside": outside, "seed": seed,
        }  # fmt: skip
        self.dt, self.steps, self.strength, self.outside = dt, count_steps(T, dt), strength, outside
        self.encoder = encoder.build(sizes)
        self.drift = nn.Sequential(nn.Linear(encoder.dim, encoder.dim), nn.Tanh())
        self.strange = nn.Sequential(nn.Linear(encoder.dim, encoder.dim), nn.ReLU(), nn.Linear(encoder.dim, 1))
        self.head = GaussianHead(encoder.dim, sizes, components, relative)
        initialise(self, seed)

    @classmethod
    def paper(cls, sizes: Sizes, seed: int = 0) -> SDENet:
        """The sizes of the paper's baselines and the steps of its SDE-HNN; it does not run SDE-Net."""
        return cls(sizes, encoder=PAPER_ENCODER, relative=False, T=3.0, dt=0.5, seed=seed)

    def forward(self, x: Inputs, paths: int, noise: Noise) -> Forecast:
        return self._law(self.encoder(x, noise), x, paths, noise)

    def loss(self, x: Inputs, y: Tensor, noise: Noise) -> Tensor:
        z = self.encoder(x, noise)
        with torch.no_grad():
            strange = self.encoder(x.changed(lambda part: self._moved(part, noise)), noise)
        inside, outside = self.strange(z.detach()), self.strange(strange)
        told = cross_entropy(inside, torch.zeros_like(inside)) + cross_entropy(outside, torch.ones_like(outside))
        law = self._law(z, x, self.training_paths, noise)
        return mixture(law, y) + told

    def _moved(self, part: Tensor, noise: Noise) -> Tensor:
        spread = (part - part.mean(0)).square().mean(0).sqrt()
        return part + self.outside * spread * noise.normal(1, len(part), tuple(part.shape[1:]))[0].to(part)

    def _law(self, z: Tensor, x: Inputs, paths: int, noise: Noise) -> Forecast:
        size = self.strength * self.strange(z).sigmoid().detach()  # (rows, 1)
        dW = noise.normal(paths, z.shape[0], (self.steps, z.shape[-1])).mul_(math.sqrt(self.dt)).movedim(2, 0)
        start = z.expand(paths, *z.shape)
        *_, end = trajectory(start, self.drift, lambda z: size, self.dt, dW.to(z))
        return self.head(end, end, x)
