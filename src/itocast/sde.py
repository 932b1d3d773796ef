"""The stochastic differential equation: noise, one-step solvers, the solve loop and the SDE-block.

Everywhere: dz = f(z) dt + g(z) dB in the sense of Itô, with f and g functions of the state alone and
one independent Brownian motion for each component of the state (diagonal noise).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from itocast.fused import Walk
from itocast.lipschitz import Lipschitz, lipschitz_bound
from itocast.spectral import SpectralNorm

Field = Callable[[Tensor], Tensor]
Step = Callable[[Tensor, Field, Field, float, Tensor], Tensor]


class Noise:
    """A source of random numbers, either fresh for every row or shared by all rows.

    Shared noise belongs to a path: every row sees the same draw, so a row's forecast depends on the row and the
    seed, never on the batch it came in. Fresh noise is what training wants.

    >>> Noise(seed=0, shared=True).normal(paths=2, rows=1000, shape=(3,)).shape
    torch.Size([2, 1, 3])
    """

    def __init__(self, seed: int | torch.Generator, shared: bool) -> None:
        self.generator = seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)
        self.shared = shared

    def normal(self, paths: int, rows: int, shape: tuple[int, ...]) -> Tensor:
        """Standard normal numbers, (paths, rows or 1, *shape)."""
        return torch.randn(paths, 1 if self.shared else rows, *shape, generator=self.generator)

    def keep(self, drop: float, paths: int, rows: int, shape: tuple[int, ...]) -> Tensor:
        """A dropout mask with inverted scaling: 0 with probability `drop`, in steps of 1/256, else 1 / (1 - drop)."""
        size = (paths, 1 if self.shared else rows, *shape)
        count = math.prod(size)
        words = torch.empty(-(-count // 8), dtype=torch.int64).random_(-(2**63), 2**63 - 1, generator=self.generator)
        dropped = min(max(round(256 * drop), 1), 255)
        numbers = words.view(torch.int8)[:count]  # eight in a word
        kept = torch.ge(numbers, dropped - 128, out=torch.empty(count))  # far faster than by way of bool
        return kept.div_(1 - dropped / 256).view(size)


def euler_maruyama(z: Tensor, f: Field, g: Field, dt: float, dW: Tensor) -> Tensor:
    """One step of Euler-Maruyama, z + f dt + g dW, Eq. 11."""
    return z + f(z) * dt + g(z) * dW


def milstein(z: Tensor, f: Field, g: Field, dt: float, dW: Tensor) -> Tensor:
    """One step of Milstein without derivatives: Euler-Maruyama plus (g ∂g / 2)(dW² - dt).

    Of order 1 where the i-th component of g depends on the i-th component of z alone; otherwise 0.5.
    """
    gz = g(z)
    return z + f(z) * dt + gz * dW + _half_g_dg(z, gz, g, dt) * (dW.square() - dt)


def heun(z: Tensor, f: Field, g: Field, dt: float, dW: Tensor) -> Tensor:
    """One step of stochastic Heun: drift and diffusion averaged over the step's two ends.

    The average alone would solve the Stratonovich equation; subtracting g ∂g / 2 from the drift makes it solve
    the Itô equation that all solvers here share.
    """
    fz, gz = f(z), g(z)
    end = z + fz * dt + gz * dW
    return z + (fz + f(end)) * (dt / 2) + (gz + g(end)) * (dW / 2) - _half_g_dg(z, gz, g, dt) * dt


def _half_g_dg(z: Tensor, gz: Tensor, g: Field, dt: float) -> Tensor:
    """g ∂g / 2 by a finite difference of length √dt along g."""
    return (g(z + gz * math.sqrt(dt)) - gz) / (2 * math.sqrt(dt))


class Solver(NamedTuple):
    """A step function and its strong order of convergence for diagonal noise."""

    step: Step
    order: float


SOLVERS: dict[str, Solver] = {
    "euler_maruyama": Solver(euler_maruyama, 0.5),
    "milstein": Solver(milstein, 1.0),
    "heun": Solver(heun, 1.0),
}


def trajectory(
    z: Tensor, f: Field, g: Field, dt: float, increments: Tensor, masks: Tensor | None = None,
    step: Step = euler_maruyama,
) -> Iterator[Tensor]:  # fmt: skip
    """Walk through the states z_1 … z_M, one for each Brownian increment.

    With `masks`, g is replaced at step k by its masked self D(g(z)) = masks[k]·g(z): with Euler-Maruyama this is
    the paper's improved solver (Sec. 4.2); the other solvers take the same g.

    >>> one = torch.ones(1)
    >>> grow, still = (lambda z: z), (lambda z: 0 * z)
    >>> [z.item() for z in trajectory(one, grow, still, dt=0.5, increments=torch.zeros(2, 1))]
    [1.5, 2.25]
    """
    for k, dW in enumerate(increments):
        z = step(z, f, g if masks is None else _masked(g, masks[k]), dt, dW)
        yield z


def _masked(g: Field, mask: Tensor) -> Field:
    return lambda z: g(z) * mask


def solve(
    z: Tensor, f: Field, g: Field, dt: float, increments: Tensor, masks: Tensor | None = None,
    step: Step = euler_maruyama,
) -> Tensor:  # fmt: skip
    """The last state of `trajectory`, z_T."""
    return [z, *trajectory(z, f, g, dt, increments, masks, step)][-1]


class SDEBlock(nn.Module):
    """dz = f(z) dt + gain·g(z) dB from 0 to T: a layer that keeps its input's shape, Eq. 6.

    `drift` and `diffusion` are any networks that keep the shape of the state; their weights are shared by all
    steps and spectrally normalised. An `nn.LSTM` or `nn.GRU` (batch first) is taken as it is and sees a state
    without a time axis as a sequence of length one. `dropout` is the chance that a component of g is masked at a
    step; it is part of the noise and stays on in prediction. `gain` is where the learned, positive factor of g starts.

    Deviates: the paper has no gain, nor has the default SDE-HNN: `gain=None` takes g as it is. A small gain lets a
    block into a network that was not made for it without drowning its state, as |g| near 1 over T = 3 can.

    With `opposite` paths come in pairs, whose Brownian motions are each other's mirror image: each is as it was, and
    what is averaged over the paths is steadier than with twice as many of them.

    Inside a network, `block(z)` draws fresh noise while training and the same noise for all rows after `eval()`.
    Give each block of a network a `seed` of its own, or they share their noise. For several paths or a noise of your
    own, use `block.paths`.

    >>> block = SDEBlock(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Sequential(nn.Linear(8, 8), nn.Tanh()))
    >>> nn.Sequential(nn.Linear(3, 8), block, nn.Linear(8, 1))(torch.zeros(5, 3)).shape
    torch.Size([5, 1])
    """

    def __init__(
        self, drift: nn.Module, diffusion: nn.Module, T: float = 3.0, dt: float = 0.5, dropout: float = 0.2,
        gain: float | None = 0.1, solver: str = "euler_maruyama", seed: int = 0, opposite: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.steps = count_steps(T, dt)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout={dropout}: expected a probability at least 0 and below 1")
        if gain is not None and not 0 < gain < math.inf:
            raise ValueError(f"gain={gain}: expected a positive start value, or None for g as it is")
        if solver not in SOLVERS:
            raise ValueError(f"solver={solver!r}: expected one of {', '.join(SOLVERS)}")
        self.T, self.dt, self.dropout, self.solver, self.seed, self.opposite = T, dt, dropout, solver, seed, opposite
        self.drift, self.diffusion = SpectralNorm(drift), SpectralNorm(diffusion)
        self.log_gain = None if gain is None else nn.Parameter(torch.tensor(math.log(gain)))
        self._fresh = Noise(seed, shared=False)

    def extra_repr(self) -> str:
        return f"T={self.T}, dt={self.dt}, dropout={self.dropout}, solver={self.solver}"

    def forward(self, z: Tensor) -> Tensor:
        """One path, in the shape of z."""
        return self.paths(z, 1, self._fresh if self.training else Noise(self.seed, shared=True))[0]

    def paths(self, z: Tensor, paths: int, noise: Noise) -> Tensor:
        """The end states z_T of several paths that start at z, (paths, rows, *state)."""
        return self.ends(z, paths, noise)[0]

    def trajectories(self, z: Tensor, paths: int, noise: Noise) -> Iterator[Tensor]:
        """The states after each step of several paths that start at z, each (paths, rows, *state)."""
        rows, *state = z.shape
        dW, masks = self.draw(paths, rows, tuple(state), noise)
        dW, masks = dW.to(z), None if masks is None else masks.to(z)
        f, g = (self._field(name, z.shape[1:], follow=self.training) for name in ("drift", "diffusion"))
        gain = self._gain(z)
        start = z.expand(paths, *z.shape)  # (paths, rows, *state)
        return trajectory(start, f, lambda z: g(z) * gain, self.dt, dW, masks, SOLVERS[self.solver].step)

    def ends(self, z: Tensor, paths: int, noise: Noise) -> tuple[Tensor, Tensor]:
        """The end states z_T of several paths that start at z, and g(z_T) of `diffuse`, each (paths, rows, *state)."""
        layers = [_layer(part.network) for part in (self.drift, self.diffusion)]
        plain = all(layer and z.shape[1:] == (layer.in_features,) for layer in layers)
        if not plain or self.solver != "euler_maruyama":
            end = list(self.trajectories(z, paths, noise))[-1]
            return end, self.diffuse(end)
        dW, masks = self.draw(paths, z.shape[0], tuple(z.shape[1:]), noise)
        weight = torch.cat([part.weights(follow=self.training)["0.weight"] for part in (self.drift, self.diffusion)])
        bias = torch.cat([layer.bias for layer in layers if layer])
        driven = dW.to(z) if masks is None else dW.to(z) * masks.to(z)
        driven = driven if self.log_gain is None else driven * self._gain(z)
        end, g = Walk.apply(z, weight, bias, driven, self.dt)
        return end, g

    def _gain(self, z: Tensor) -> Tensor:
        return torch.ones((), dtype=z.dtype) if self.log_gain is None else self.log_gain.exp().to(z)

    def draw(self, paths: int, rows: int, state: tuple[int, ...], noise: Noise) -> tuple[Tensor, Tensor | None]:
        """Brownian increments and dropout masks for all steps, each (steps, paths, rows or 1, *state)."""
        shape = (self.steps, *state)
        dW = noise.normal(-(-paths // 2) if self.opposite else paths, rows, shape).mul_(math.sqrt(self.dt))
        dW = (torch.cat([dW, -dW])[:paths] if self.opposite else dW).movedim(2, 0)
        masks = noise.keep(self.dropout, paths, rows, shape).movedim(2, 0) if self.dropout else None
        return dW, masks

    def diffuse(self, z: Tensor) -> Tensor:
        """g(z) for states (paths, rows, *state), without gain and mask: what the variance layer reads, Eq. 7."""
        return self._field("diffusion", z.shape[2:], follow=False)(z)

    def lipschitz(self, length: int | None = None) -> Lipschitz:
        """Proven upper bounds for f and for gain·g, so that Theorem 1's condition can be checked.

        `length` is the number of time steps in the state, which LSTM layers need: 1 for a state without a time axis.

        >>> block = SDEBlock(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()), gain=0.5)
        >>> print(block.lipschitz())
        f: 1.000, g: 0.500; Theorem 1 holds with K = 1.500
        """
        gain = 1.0 if self.log_gain is None else self.log_gain.exp().item()
        f, g = lipschitz_bound(self.drift, length), lipschitz_bound(self.diffusion, length)
        return Lipschitz(f.value, gain * g.value, (*f.unknown_in("drift"), *g.unknown_in("diffusion")))

    def _field(self, name: str, state: torch.Size, follow: bool) -> Field:
        """One of the two networks with its weights normalised once, on states (paths, rows, *state)."""
        network = getattr(self, name).bind(follow)

        def field(z: Tensor) -> Tensor:
            out = network(z.flatten(0, 1))
            if not isinstance(out, Tensor):
                raise TypeError(
                    f"{name} gave a {type(out).__name__}: expected a tensor; pass an nn.LSTM itself, unwrapped"
                )
            if out.shape[1:] != state:
                raise ValueError(
                    f"{name} turned a state of shape {tuple(state)} into {tuple(out.shape[1:])}: "
                    "it must keep the shape; set its output size to its input size"
                )
            return out.unflatten(0, z.shape[:2])

        return field


def _layer(network: nn.Module) -> nn.Linear | None:
    """The layer of a network that is a linear layer and tanh and keeps the size of the state."""
    if isinstance(network, nn.Sequential) and [type(part) for part in network] == [nn.Linear, nn.Tanh]:
        layer = network[0]
        if isinstance(layer, nn.Linear) and layer.in_features == layer.out_features and layer.bias is not None:
            return layer
    return None


def count_steps(T: float, dt: float) -> int:
    """M = T / dt, which must be whole.

    >>> count_steps(3.0, 0.5)
    6
    """
    if not (math.isfinite(T) and math.isfinite(dt) and dt > 0 and T > 0):
        raise ValueError(f"T={T}, dt={dt}: expected a positive end time and a positive step")
    steps = round(T / dt)
    if steps < 1 or not math.isclose(steps * dt, T, rel_tol=1e-9):
        near = max(1, steps)
        raise ValueError(f"T={T} is not a multiple of dt={dt}: use dt={T / near} for {near} steps")
    return steps
