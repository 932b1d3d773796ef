"""Strong order of every solver, measured: the slope of the error at T over the step size, on one Brownian path.

Geometric Brownian motion has multiplicative noise, Ornstein-Uhlenbeck additive noise; both have exact solutions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from itocast.sde import SOLVERS, Field, Step, solve

SAMPLES = 4000


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def strong_order(step: Step, f: Field, g: Field, dW: Tensor, dt: float, exact: Tensor) -> float:
    """The slope of the root mean square error at T on one path seen at dt, 2dt, 4dt …, from z = 1."""
    errors, widths = [], []
    for k in range(5):
        coarse = dW.unflatten(0, (-1, 2**k)).sum(1)
        widths.append(dt * 2**k)
        errors.append((solve(torch.ones_like(exact), f, g, widths[-1], coarse, step=step) - exact).square().mean())
    x, y = torch.tensor(widths).double().log(), 0.5 * torch.stack(errors).log()
    x, y = x - x.mean(), y - y.mean()
    return (x @ y / (x @ x)).item()


def on_geometric_brownian_motion(step: Step) -> float:
    mu, sigma, dt = 0.5, 0.6, 2**-9
    dW = normal(512, SAMPLES) * math.sqrt(dt)
    exact = torch.exp((mu - sigma**2 / 2) + sigma * dW.sum(0))
    return strong_order(step, lambda z: mu * z, lambda z: sigma * z, dW, dt, exact)


def on_ornstein_uhlenbeck(step: Step) -> float:
    """dW and ∫ exp(-a(h-s)) dB are drawn from their joint Gaussian law, so the answer is exact."""
    a, sigma, dt = 1.0, 0.7, 2**-8
    decay = math.exp(-a * dt)
    covariance = torch.tensor([[dt, (1 - decay) / a], [(1 - decay) / a, (1 - decay**2) / (2 * a)]], dtype=torch.float64)
    dW, integral = (torch.linalg.cholesky(covariance) @ normal(256, 2, SAMPLES)).unbind(1)
    exact = torch.ones(SAMPLES, dtype=torch.float64)
    for noise in integral:
        exact = decay * exact + sigma * noise
    return strong_order(step, lambda z: -a * z, lambda z: torch.full_like(z, sigma), dW, dt, exact)


def main() -> None:
    print("| solver | stated order | on geometric Brownian motion | on Ornstein-Uhlenbeck | bars |")
    print("|---|---:|---:|---:|---|")
    for name, (step, order) in SOLVERS.items():
        multiplicative, additive = on_geometric_brownian_motion(step), on_ornstein_uhlenbeck(step)
        met = abs(multiplicative - order) <= (0.1 if order == 0.5 else 0.15) and abs(additive - 1) <= 0.1
        print(f"| {name} | {order} | {multiplicative:.2f} | {additive:.2f} | {'met' if met else 'MISSED'} |")


if __name__ == "__main__":
    main()
