"""The steps of training: Adam on all weights laid end to end, and their running mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from itocast.models.base import Model
from itocast.spectral import SpectralNorm

RULES: dict[str, Callable[..., None]] = {"adamw": adamw, "adam": adam}
WAYS: dict[str, Any] = {"beta1": 0.9, "eps": 1e-8, "amsgrad": False, "maximize": False, "fused": True}


class Optimiser:
    """Holds a model's weights and gradients as two vectors, so that a step is a handful of operations on each.

    The mean of the weights forecasts better than any weights it is the mean of: it is exponential over the last `span`
    steps, shorter while there are few; 0 for none.

    >>> from itocast.models import HNN
    >>> from itocast.nets import Sizes
    >>> model = HNN(Sizes(window=2, targets=1, covariates=0, known=0, horizon=1))
    >>> optimiser = Optimiser(model, span=10)
    >>> bias = model.head.mean.bias.data.fill_(4.0)
    >>> optimiser.step(rate=0.0)
    >>> with optimiser.mean_in_use():
    ...     0 < bias.item() < 4
    True
    >>> bias.item()
    4.0
    """

    def __init__(
        self, model: Model, rule: str = "adamw", decay: float = 0.0, span: float = 0.0, memory: float = 0.999
    ) -> None:
        self.model, self.rule, self.span, self.memory, self.steps = model, RULES[rule], span, memory, 0
        parts = [[p for p in part.parameters() if p.requires_grad] for part in model.parts()]
        learned = [parameter for part in parts for parameter in part]
        sizes = [parameter.numel() for parameter in learned]
        self.weights = torch.cat([parameter.detach().flatten() for parameter in learned])
        self.gradient = torch.zeros_like(self.weights)
        views = (vector.split(sizes) for vector in (self.weights, self.gradient))
        for parameter, weight, gradient in zip(learned, *views, strict=True):
            parameter.data, parameter.grad = weight.view_as(parameter), gradient.view_as(parameter)
        self.parts = self.gradient.split([sum(p.numel() for p in part) for part in parts])
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        decays = groupby(zip(sizes, learned, strict=True), lambda pair: decay * model.decays(names[id(pair[1])]))
        self.decays = [(share, sum(size for size, _ in group)) for share, group in decays]
        self.state = torch.zeros(2, len(self.weights), dtype=self.weights.dtype)  # moments of the gradient
        self.mean = self.weights.clone() if span else None

    def clip(self, most: float) -> float:
        """Shorten the gradient of each part of the model to at most this norm; gives the largest norm before."""
        norms = [part.norm().item() for part in self.parts]
        for part, norm in zip(self.parts, norms, strict=True):
            if norm > most:
                part.mul_(most / norm)
        return max(norms)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Change the weights, take them into the mean, and forget the gradient."""
        self.steps += 1
        sizes = [size for _, size in self.decays]
        vectors = (self.weights, self.gradient, *self.state)
        for (decay, _), *lists in zip(self.decays, *(vector.split(sizes) for vector in vectors), strict=True):
            count = torch.tensor(float(self.steps - 1))
            self.rule(*([part] for part in lists), [], [count], lr=rate, weight_decay=decay, beta2=self.memory, **WAYS)
        self.gradient.zero_()
        if self.mean is not None:
            self.mean.lerp_(self.weights, max(1 / max(self.span, 1), 9 / (9 + self.steps)))

    @contextmanager
    def mean_in_use(self) -> Iterator[None]:
        """The model with the mean for its weights, for a while."""
        if self.mean is None:
            yield
            return
        before = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self.weights.copy_(self.mean)
        for module in self.model.modules():
            if isinstance(module, SpectralNorm):
                module.restart()
        try:
            yield
        finally:
            self.model.load_state_dict(before)

    def release(self) -> None:
        """Give each parameter memory of its own again, and no gradient."""
        for parameter in self.model.parameters():
            parameter.data, parameter.grad = parameter.data.clone(), None

    def tensors(self) -> dict[str, Tensor]:
        """All that a run needs to go on, beside the model's own weights."""
        return {"state": self.state, "steps": torch.tensor(self.steps)} | (
            {} if self.mean is None else {"mean": self.mean}
        )

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Go on from what `tensors` gave, after the model's weights were loaded."""
        self.state, self.steps = tensors["state"], int(tensors["steps"])
        self.mean = tensors.get("mean")
