"""Deep Gaussian process: two sparse GP layers behind an encoder, each draw of both a path."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from itocast.forecast import Forecast
from itocast.models.base import Batches, Model, observed
from itocast.models.hnn import PAPER_ENCODER
from itocast.nets import SMALLEST_VARIANCE, Encoder, Inputs, Sizes, initialise
from itocast.sde import Noise


class DeepGP(Model):
    """Encoder, then two GP layers, learned by doubly stochastic variational inference (Salimbeni, Deisenroth 2017).

    The hidden layer has a linear mean; the noise of the data is one variance a step and target. A path draws both
    layers, so what lies within a path is the noise, and what lies between paths is what the processes do not know.

    Deviates: the GP layers take the place of the two linear layers behind the paper's LSTM, which learns with them.
    Needs the extra `dgp`.
    """

    training_paths = 1
    validation_paths = 8
    paths = 32
    learned: Tensor

    def __init__(
        self, sizes: Sizes, encoder: Encoder | dict[str, Any] = Encoder(), relative: bool = True, width: int = 8,
        inducing: int = 64, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        try:
            from itocast.models.gp_layer import GPLayer
        except ImportError as error:
            raise ImportError("the model 'deep_gp' needs gpytorch: pip install 'itocast[dgp]'") from error
        if width < 1 or inducing < 2:
            raise ValueError(f"width={width}, inducing={inducing}: expected at least 1, and at least 2")
        self.sizes = sizes = Sizes(*sizes)
        encoder = Encoder.of(encoder).suited(sizes)
        self.config = {
            "sizes": list(sizes), "encoder": encoder.model_dump(), "relative": relative, "width": width,
            "inducing": inducing, "seed": seed,
        }  # fmt: skip
        self.relative, self.shape = relative, (sizes.horizon, sizes.targets)
        self.encoder = encoder.build(sizes)
        self.linear = nn.Linear(encoder.dim, width)
        initialise(self, seed)
        generator = torch.Generator().manual_seed(seed + 2**32)  # not that of the weights
        self.hidden = GPLayer(encoder.dim, width, inducing, spread=0.3, generator=generator)
        self.out = GPLayer(width, math.prod(self.shape), inducing, spread=1.0, generator=generator)
        self.log_noise = nn.Parameter(torch.full(self.shape, math.log(0.1)))
        self.register_buffer("learned", torch.tensor(0))  # how many numbers it learns from

    @classmethod
    def paper(cls, sizes: Sizes, seed: int = 0) -> DeepGP:
        """Behind the LSTM of the paper's baselines, Sec. 5.2; it does not say more of its DGP."""
        return cls(sizes, encoder=PAPER_ENCODER, relative=False, seed=seed)

    @torch.no_grad()
    def prepare(self, rows: Batches) -> None:
        """Count, and begin with a noise of a tenth of the variance: a logarithm learns slowly."""
        if self.learned:
            return
        self.learned.fill_(len(rows) * math.prod(self.shape))
        x, y = rows.batch(torch.linspace(0, len(rows) - 1, min(len(rows), 2000)).long())
        error = y - x.anchor if self.relative else y
        variance = (error - error.nanmean(0)).square().nanmean(0).nan_to_num(1.0)
        self.log_noise.copy_((0.1 * variance + SMALLEST_VARIANCE).log())

    def decays(self, name: str) -> bool:
        return name.startswith(("encoder.", "linear."))

    def forward(self, x: Inputs, paths: int, noise: Noise) -> Forecast:
        means, variances = self._processes(x, paths, noise)
        deviations = variances.sqrt()
        means = means + deviations * noise.normal(paths, means.shape[1], self.shape).to(means)
        log_noise = self._log_noise().expand_as(means)
        return Forecast.from_logs(*(part[..., None] for part in (means, log_noise, torch.zeros_like(means))))

    def loss(self, x: Inputs, y: Tensor, noise: Noise) -> Tensor:
        """-E log p(y | f) under the last layer's own law, plus the divergences, shared by all numbers learned from."""
        means, variances = self._processes(x, self.training_paths, noise)
        log_noise = self._log_noise()

        def expected(y: Tensor) -> Tensor:
            error = (y - means).square() + variances
            return -0.5 * (error * (-log_noise).exp() + log_noise + math.log(2 * math.pi))

        return -observed(expected, y) + (self.hidden.kl() + self.out.kl()) / self.learned.clamp(min=1)

    def _log_noise(self) -> Tensor:
        return torch.logaddexp(self.log_noise, self.log_noise.new_tensor(math.log(SMALLEST_VARIANCE)))

    def _processes(self, x: Inputs, paths: int, noise: Noise) -> tuple[Tensor, Tensor]:
        """Means and variances of the last layer given draws of the hidden one, (paths, rows, horizon, targets)."""
        z = self.encoder(x, noise)
        mean, variance = self.hidden.marginals(z)  # (rows, width)
        draw = noise.normal(paths, len(z), mean.shape[1:]).to(z)
        state = self.linear(z) + mean + variance.sqrt() * draw  # (paths, rows, width)
        means, variances = (part.unflatten(0, state.shape[:2]) for part in self.out.marginals(state.flatten(0, 1)))
        means, variances = means.unflatten(-1, self.shape), variances.unflatten(-1, self.shape)
        return (means + x.anchor if self.relative else means), variances
