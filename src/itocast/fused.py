"""The places where training spends its time, each as one operation whose gradient is written out."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.nn.functional import linear


class Waves(Function):
    """Each of some numbers x (rows, features) as sines and cosines of its own frequencies, a linear layer and ReLU.

    `frequencies` are (features, waves), `weight` (features, 2 waves, dim) and `bias` (features, dim). Gives (rows,
    features · dim). Rows are the last axis inside: all but the first and the last operation run along memory.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, frequencies: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        x = x.T.contiguous()
        angle = (2 * math.pi * frequencies)[:, :, None] * x[:, None, :]  # (features, waves, rows)
        waves = torch.cat([angle.sin(), angle.cos()], 1)
        out = torch.baddbmm(bias[:, :, None], weight.mT, waves).relu_()  # (features, dim, rows)
        ctx.save_for_backward(x, frequencies, weight, waves, out)
        return out.flatten(0, 1).T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, frequencies, weight, waves, out = ctx.saved_tensors
        inner = torch.ops.aten.threshold_backward(grad.T.contiguous().view_as(out), out, 0)
        sines, cosines = waves.chunk(2, 1)
        to_sines, to_cosines = torch.bmm(weight, inner).chunk(2, 1)
        to_angle = to_sines.mul_(cosines).sub_(to_cosines.mul_(sines)).mul_(2 * math.pi)
        to_x = (to_angle * frequencies[:, :, None]).sum(1).T if ctx.needs_input_grad[0] else None
        to_weight = torch.bmm(inner, waves.mT).mT
        return to_x, to_angle.mul_(x[:, None, :]).sum(-1), to_weight, inner.sum(-1)


class Walk(Function):
    """All steps of Euler-Maruyama where f and g are one linear layer and tanh each, then g at the end.

    All paths start at z (rows, dim). `weight` (2 dim, dim) and `bias` (2 dim,) are those of f, then of g, and `noise`
    is all that g is multiplied with, (steps, paths, rows or 1, dim). Gives z_T and g(z_T), each (paths, rows, dim).
    The first step needs f and g once for all paths.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, weight: Tensor, bias: Tensor, noise: Tensor, dt: float) -> tuple[Tensor, Tensor]:
        states, fields, dim = [z], [], z.shape[-1]
        double = 2 * weight, 2 * bias
        for driven in noise:
            both = _tanh_of_half(linear(z, *double))
            z = torch.addcmul(z, both[..., dim:], driven).add_(both[..., :dim], alpha=dt)
            states.append(z)
            fields.append(both)
        end = _tanh_of_half(linear(z, *(part[dim:] for part in double)))
        ctx.save_for_backward(weight, noise, end, *states, *fields)
        ctx.dt = dt
        return z, end

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_end: Tensor) -> Any:
        weight, noise, end, *saved = ctx.saved_tensors
        states, fields = saved[: len(noise) + 1], saved[len(noise) + 1 :]
        dim, to_noise = end.shape[-1], torch.empty_like(noise) if ctx.needs_input_grad[3] else None
        to_weight, to_bias = torch.zeros_like(weight), weight.new_zeros(2 * dim)
        inner = _through_tanh(grad_end, end)
        to_weight[dim:], to_bias[dim:] = inner.T @ states[-1].flatten(0, -2), inner.sum(0)
        grad = grad + (inner @ weight[dim:]).view_as(grad)
        for k in reversed(range(len(noise))):
            state, both, driven = states[k], fields[k], grad * noise[k]
            if to_noise is not None:
                to_noise[k] = (grad * both[..., dim:]).sum_to_size(noise[k].shape)
            if k == 0:
                grad, driven = grad.sum(0), driven.sum(0)
            inner = _through_tanh(torch.cat([grad * ctx.dt, driven], -1), both)
            to_weight.addmm_(inner.T, state.flatten(0, -2))
            to_bias += inner.sum(0)
            grad = grad.add_((inner @ weight).view_as(grad))
        return grad, to_weight, to_bias, to_noise, None


def _tanh_of_half(x: Tensor) -> Tensor:
    """tanh(x / 2), in place, by way of the logistic function: in less than half the time."""
    return torch.add(x.new_tensor(-1.0), x.sigmoid_(), alpha=2, out=x)


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
