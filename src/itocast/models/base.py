"""What every model is: a network from Inputs to a Forecast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from itocast.forecast import Forecast
from itocast.fused import MixtureLogDensity
from itocast.head import GaussianHead
from itocast.nets import Inputs, Sizes, tame
from itocast.sde import Noise

WORST = 20.0  # nats, as six deviations from a Gaussian's mean
MEASURED = 4096  # rows that output layers measure their units on, evenly spaced


class Batches(Protocol):
    """Rows to learn from: a length, and batches by position."""

    def __len__(self) -> int: ...
    def batch(self, index: Tensor | slice) -> tuple[Inputs, Tensor]: ...


def mixture(law: Forecast, y: Tensor) -> Tensor:
    """-log of the predictive density: of the mean over paths, which is the law that is reported."""
    if y.isnan().any():
        return -observed(law.log_prob, y)
    density: Tensor = MixtureLogDensity.apply(law.means, law.log_variances, law.log_weights, y)
    return -density


def paper(law: Forecast, y: Tensor) -> Tensor:
    """The mean over paths of ½(y - μ)² e^(-s) + ½ s, Eq. 9, plus the constant ½ log 2π."""
    return -observed(law.path_log_prob, y)


def observed(log_prob: Callable[[Tensor], Tensor], y: Tensor) -> Tensor:
    """The mean of a log-density over the targets that were observed; those that are missing are nan."""
    seen = ~y.isnan()
    if seen.all():
        return log_prob(y).mean()
    logs = log_prob(torch.where(seen, y, 0.0))
    return (logs * seen).sum() / (seen.expand_as(logs).sum().clamp(min=1))


OBJECTIVES: dict[str, Callable[[Forecast, Tensor], Tensor]] = {"mixture": mixture, "paper": paper}


class Model(nn.Module):
    """A network whose `forward(x, paths, noise)` is a Forecast.

    A subclass keeps in `config` the plain values it was built from, so that `type(self)(**config)` after a round trip
    through JSON is the same network, and says how many paths it wants in training, validation and prediction.
    """

    sizes: Sizes
    config: dict[str, Any]
    objective: str = "mixture"
    training_paths: int = 1
    validation_paths: int = 1
    paths: int = 1

    @property
    def gaussians(self) -> int:
        """Of how many a predicted law consists."""
        return self.paths * int(self.config.get("components", 1))

    @property
    def repeats(self) -> bool:
        """Whether the last component of a law is a point: the last value again."""
        return any(module.repeats for module in self.modules() if isinstance(module, GaussianHead))

    def forward(self, x: Inputs, paths: int, noise: Noise) -> Forecast:
        raise TypeError(f"{type(self).__name__} does not say how it forecasts: define forward")

    def prepare(self, rows: Batches) -> None:
        """Look at the rows to be trained on before the first step: output layers measure their units."""
        heads = [module for module in self.modules() if isinstance(module, GaussianHead)]
        if heads:
            x, y = rows.batch(torch.linspace(0, len(rows) - 1, min(len(rows), MEASURED)).round().long())
            for head in heads:
                head.measure(x, y)

    def parts(self) -> list[nn.Module]:
        """Networks that learn apart from one another: each has its gradient clipped by its own norm."""
        return [self]

    def decays(self, name: str) -> bool:
        """Whether weight decay is meant for a parameter: not where a model has a prior of its own."""
        return True

    def loss(self, x: Inputs, y: Tensor, noise: Noise) -> Tensor:
        """What training minimises."""
        return OBJECTIVES[self.objective](self(x, self.training_paths, noise), y)

    def score(self, x: Inputs, y: Tensor) -> tuple[float, int]:
        """What validation minimises: the sum of -log of the predictive density, and over how many values.

        Beyond `WORST` it is on a log scale: one outcome that nobody could foresee does not choose the epoch.
        """
        seen = ~y.isnan()
        law = self(x, self.validation_paths, Noise(0, shared=True))
        losses = -law.log_prob(torch.where(seen, y, 0.0))[seen]
        return tame(losses, WORST).sum().item(), int(seen.sum())
