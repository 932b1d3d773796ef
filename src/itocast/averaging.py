"""The running mean of a model's weights, which forecasts better than any of the weights it is the mean of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from itocast.models.base import Model
from itocast.spectral import SpectralNorm


class Average:
    """An exponential mean of the weights over the last `span` steps, shorter while there are few; 0 for no mean.

    >>> from itocast.models import HNN
    >>> from itocast.nets import Sizes
    >>> model = HNN(Sizes(window=2, targets=1, covariates=0, known=0, horizon=1))
    >>> average = Average(model, span=10)
    >>> bias = model.head.mean.bias.data.fill_(4.0)
    >>> average.update()
    >>> with average.in_use():
    ...     0 < bias.item() < 4
    True
    >>> bias.item()
    4.0
    """

    def __init__(self, model: Model, span: float) -> None:
        self.model, self.span, self.steps = model, span, 0
        self.weights = {name: p.detach().clone() for name, p in model.named_parameters()} if span else {}

    @torch.no_grad()
    def update(self) -> None:
        """Take a step of training into the mean."""
        if self.weights:
            self.steps += 1
            share = max(1 / max(self.span, 1), 9 / (9 + self.steps))
            torch._foreach_lerp_(list(self.weights.values()), list(self.model.parameters()), share)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The model with the mean for its weights, for a while."""
        if not self.weights:
            yield
            return
        before = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self.model.load_state_dict(before | self.weights)
        for module in self.model.modules():
            if isinstance(module, SpectralNorm):
                module.restart()
        try:
            yield
        finally:
            self.model.load_state_dict(before)
