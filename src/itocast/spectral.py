"""Spectral normalisation of every weight of a network, computed once per use rather than once per layer call."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call

SMALLEST_NORM = (
    1e-4  # weights that decay to nothing, because nothing uses them, stay below norm 1 with finite gradients
)


class SpectralNorm(nn.Module):
    """A network whose every weight matrix W acts as W / ‖W‖₂, Sec. 4.1.

    ‖W‖₂ starts exact and follows W by one power iteration a training step, which leaves the norm that acts within a
    few percent of 1. Biases and other vectors are left as they are; a convolution's kernel counts as the matrix
    (out, everything else).

    >>> layer = SpectralNorm(nn.Linear(4, 4))
    >>> round(torch.linalg.matrix_norm(layer.weights()["weight"], ord=2).item(), 4)
    1.0
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        if isinstance(network, nn.RNNBase) and not network.batch_first:
            raise ValueError("a recurrent drift or diffusion needs batch_first=True: rows are the first axis")
        self.network = network
        self.names = [name for name, p in network.named_parameters() if p.ndim > 1]
        self.restart()

    def restart(self) -> None:
        """Set the singular vectors exactly; needed after weights were set from outside."""
        for i, name in enumerate(self.names):
            if not self.network.get_parameter(name).any():
                raise ValueError(f"weight {name!r} is all zero, so it cannot be normalised: give it random values")
            left, _, right = torch.linalg.svd(self.network.get_parameter(name).detach().flatten(1), full_matrices=False)
            self.register_buffer(f"u{i}", left[:, 0].clone())
            self.register_buffer(f"v{i}", right[0].clone())

    def weights(self, follow: bool = False) -> dict[str, Tensor]:
        """The normalised weights by name; `follow` takes a power iteration first."""
        return {name: self._scaled(i, self.network.get_parameter(name), follow) for i, name in enumerate(self.names)}

    @torch.no_grad()
    def normalised(self) -> nn.Module:
        """A copy of the network that holds the normalised weights."""
        network = copy.deepcopy(self.network)
        for name, weight in self.weights().items():
            network.get_parameter(name).copy_(weight)
        return network

    def _scaled(self, i: int, weight: Tensor, follow: bool) -> Tensor:
        u, v = self.get_buffer(f"u{i}"), self.get_buffer(f"v{i}")
        matrix = weight.flatten(1)
        if follow:
            with torch.no_grad():
                torch.nn.functional.normalize(matrix.mT @ u, dim=0, out=v)
                torch.nn.functional.normalize(matrix @ v, dim=0, out=u)
            u, v = u.clone(), v.clone()  # the next update must not reach into this step's backward pass
        return weight / torch.dot(u, matrix @ v).clamp(min=SMALLEST_NORM)

    def bind(self, follow: bool = False) -> Callable[[Tensor], Tensor]:
        """The network as a function that shares one normalisation between its calls."""
        weights = self.weights(follow)
        recurrent = isinstance(self.network, nn.RNNBase)

        def call(z: Tensor) -> Tensor:
            single = recurrent and z.ndim == 2  # a state without time axis is a sequence of length one
            out = functional_call(self.network, weights, (z.unsqueeze(1) if single else z,))
            out = out[0] if recurrent else out
            return out.squeeze(1) if single else out

        return call

    def forward(self, z: Tensor) -> Tensor:
        return self.bind(follow=self.training)(z)
