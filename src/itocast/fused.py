"""The two places where training spends its time, each as one operation whose gradient is written out."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.nn.functional import linear


class Walk(Function):
    """All steps of Euler-Maruyama where f and g are one linear layer and tanh each, then g at the end.

    States are (paths, rows, dim), `weight` (2 dim, dim) and `bias` (2 dim,) are those of f, then of g, and `noise` is
    all that g is multiplied with but the gain, (steps, paths, rows or 1, dim). Gives z_T and g(z_T).
    """

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, weight: Tensor, bias: Tensor, gain: Tensor, noise: Tensor, dt: float
    ) -> tuple[Tensor, Tensor]:
        states, fields, dim = [z], [], z.shape[-1]
        double = 2 * weight, 2 * bias
        for driven in gain * noise:
            both = _tanh_of_half(linear(z, *double))
            z = torch.addcmul(z, both[..., dim:], driven).add_(both[..., :dim], alpha=dt)
            states.append(z)
            fields.append(both)
        end = _tanh_of_half(linear(z, *(part[dim:] for part in double)))
        ctx.save_for_backward(weight, gain, noise, end, *states, *fields)
        ctx.dt = dt
        return z, end

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_end: Tensor) -> Any:
        weight, gain, noise, end, *saved = ctx.saved_tensors
        states, fields = saved[: len(noise) + 1], saved[len(noise) + 1 :]
        dim, dt = end.shape[-1], ctx.dt
        to_weight, to_bias, to_gain = torch.zeros_like(weight), weight.new_zeros(2 * dim), torch.zeros_like(gain)
        inner = _through_tanh(grad_end, end)
        to_weight[dim:], to_bias[dim:] = inner.T @ states[-1].reshape(-1, dim), inner.sum(0)
        grad = grad + (inner @ weight[dim:]).view_as(grad)
        for state, both, normal in zip(reversed(states[:-1]), reversed(fields), reversed(noise), strict=True):
            driven = grad * normal
            if ctx.needs_input_grad[3]:
                to_gain += torch.dot(driven.flatten(), both[..., dim:].flatten())
            inner = _through_tanh(torch.cat([grad * dt, driven * gain], -1), both)
            to_weight.addmm_(inner.T, state.reshape(-1, dim))
            to_bias += inner.sum(0)
            grad = grad + (inner @ weight).view_as(grad)
        return grad, to_weight, to_bias, to_gain, None, None


def _tanh_of_half(x: Tensor) -> Tensor:
    """tanh(x / 2), in place, by way of the logistic function: in less than half the time."""
    return x.sigmoid_().mul_(2).sub_(1)


def _through_tanh(grad: Tensor, out: Tensor) -> Tensor:
    return torch.ops.aten.tanh_backward(grad, out).flatten(0, -2)


class MixtureLogDensity(Function):
    """The mean of log p(y) under mixtures whose parts are all (paths, rows, horizon, targets, components).

    p is the mean over paths of the sum over components of weight · normal density.
    """

    @staticmethod
    def forward(ctx: Any, means: Tensor, log_variances: Tensor, log_weights: Tensor, y: Tensor) -> Tensor:
        error = y[..., None] - means
        precision = (-log_variances).exp_()
        square = error.square().mul_(precision)
        logs = (square + log_variances).mul_(-0.5).add_(log_weights)
        total = logs.logsumexp((0, -1))  # (rows, horizon, targets)
        ctx.save_for_backward(logs.sub_(total[..., None]).exp_(), error.mul_(precision), square)
        return total.mean() - math.log(len(means)) - 0.5 * math.log(2 * math.pi)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        share, pull, square = ctx.saved_tensors
        share = share * (grad / share[0, ..., 0].numel())
        return share * pull, (square - 1).mul_(0.5).mul_(share), share, None
