"""Proven upper bounds of the Lipschitz constant of a network, in the Euclidean norm.

A bound is the product of the bounds of the layers. Where no bound is known the answer is infinity together with the
name of the layer, never a guess. A module of your own takes part by having a method `lipschitz(length) -> float`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from itocast.spectral import SpectralNorm

ROUNDING = 1 + 1e-6  # float32 weights, norms taken in float64


class Lipschitz(NamedTuple):
    """Bounds for the drift f and the diffusion g, and the layers for which none is known."""

    f: float
    g: float
    unknown: tuple[str, ...] = ()

    @property
    def K(self) -> float:
        """The constant of Theorem 1: ‖f(m) - f(n)‖ + ‖g(m) - g(n)‖ ≤ K ‖m - n‖."""
        return self.f + self.g

    def __str__(self) -> str:
        bounds = f"f: {self.f:.3f}, g: {self.g:.3f}"
        if self.unknown:
            return f"{bounds}; no bound is known for {', '.join(self.unknown)}, so Theorem 1 is not shown to hold"
        return f"{bounds}; Theorem 1 holds with K = {self.K:.3f}"


class Bound(NamedTuple):
    """A bound for one network, and the layers for which none is known."""

    value: float
    unknown: tuple[str, ...] = ()

    def unknown_in(self, where: str) -> tuple[str, ...]:
        return tuple(f"{where}.{name}" for name in self.unknown)

    def then(self, other: Bound) -> Bound:
        unknown = (*self.unknown, *other.unknown)
        return Bound(math.inf if unknown else self.value * other.value, unknown)


def lipschitz_bound(module: nn.Module, length: int | None = None, name: str = "") -> Bound:
    """An upper bound for one network; a recurrent layer has one for a known `length` of its sequences.

    >>> lipschitz_bound(nn.Sequential(nn.Tanh(), nn.Sigmoid()))
    Bound(value=0.25, unknown=())
    >>> lipschitz_bound(nn.Sequential(nn.Tanh(), nn.LayerNorm(4)))
    Bound(value=inf, unknown=('1 (LayerNorm)',))
    """
    if isinstance(module, SpectralNorm):
        return lipschitz_bound(module.normalised(), length, name)
    if type(module) is nn.Sequential:
        bound = Bound(1.0)
        for child_name, child in zip(module._modules, module, strict=True):  # named_children skips a second use
            bound = bound.then(lipschitz_bound(child, length, f"{name}.{child_name}".lstrip(".")))
        return bound
    own = getattr(module, "lipschitz", None)
    rule = own if callable(own) else RULES.get(type(module))
    value = math.inf if rule is None else rule(length) if callable(own) else rule(module, length)
    if isinstance(value, Lipschitz) or not math.isfinite(value):  # an SDEBlock has bounds for f and g, not for itself
        remedy = ", pass length=" if isinstance(module, nn.LSTM) and length is None else ""
        return Bound(math.inf, (f"{name or 'itself'} ({type(module).__name__}{remedy})",))
    return Bound(float(value))


def _norm(weight: Tensor) -> float:
    return torch.linalg.matrix_norm(weight.detach().double().flatten(1), ord=2).item() * ROUNDING


def _convolution(layer: nn.Conv1d | nn.Conv2d, length: int | None) -> float:
    """Every input value stands in at most as many patches as the kernel has places."""
    if layer.padding_mode != "zeros" or layer.groups != 1:
        return math.inf
    return _norm(layer.weight) * math.sqrt(math.prod(layer.kernel_size))


def _lstm(layer: nn.LSTM, length: int | None) -> float:
    """Propagate ‖δx_s‖ through the cell equations; |c_t| ≤ t because every step adds at most 1.

    With δ for the change of each quantity, a = ¼ the slope of a gate, and t counted from 1:
    δc_t ≤ δc_{t-1} + (t - 1) a δF + a δI + δG and δh_t ≤ δc_t + tanh(t) a δO, where each of δF, δI, δG, δO is at
    most ‖W‖ δx_t + ‖U‖ δh_{t-1}. Row t of the matrix A holds the coefficients of δx_1 … δx_t in δh_t, so ‖A‖₂ bounds
    the layer.
    """
    if layer.bidirectional or layer.proj_size or length is None:
        return math.inf
    total = 1.0
    for k in range(layer.num_layers):
        W = [_norm(w) for w in getattr(layer, f"weight_ih_l{k}").chunk(4)]  # input, forget, cell, output
        U = [_norm(w) for w in getattr(layer, f"weight_hh_l{k}").chunk(4)]
        A, c, h = np.zeros((length, length)), np.zeros(length), np.zeros(length)
        for t in range(length):
            x = np.eye(length)[t]
            I, F, G, O = (w * x + u * h for w, u in zip(W, U, strict=True))  # noqa: E741
            c = c + t / 4 * F + I / 4 + G
            h = A[t] = c + math.tanh(t + 1) / 4 * O
        total *= float(np.linalg.norm(A, 2))
        if k and layer.training and layer.dropout < 1:
            total /= 1 - layer.dropout
    return total


def _slope(value: float) -> Callable[[nn.Module, int | None], float]:
    return lambda module, length: value


def _inside(module: nn.Dropout, length: int | None) -> float:
    return 1 / (1 - module.p) if module.training and module.p < 1 else 1.0


RULES: dict[type[nn.Module], Callable] = {
    nn.Linear: lambda layer, length: _norm(layer.weight),
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.LSTM: _lstm,
    nn.Dropout: _inside,
    nn.Identity: _slope(1.0),
    nn.Flatten: _slope(1.0),
    nn.Tanh: _slope(1.0),
    nn.ReLU: _slope(1.0),
    nn.ELU: lambda layer, length: max(1.0, abs(layer.alpha)),
    nn.LeakyReLU: lambda layer, length: max(1.0, abs(layer.negative_slope)),
    nn.Softplus: _slope(1.0),
    nn.Sigmoid: _slope(0.25),
    nn.SiLU: _slope(1.0999),  # the largest slope is 1.09984
    nn.GELU: _slope(1.1290),  # the largest slope is 1.12892
}
