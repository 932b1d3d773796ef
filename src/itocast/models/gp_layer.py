"""One layer of a deep Gaussian process; needs gpytorch."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit, which one of its packages still uses
    import gpytorch
    from gpytorch.utils.memoize import clear_cache_hook
    from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy


class GPLayer(gpytorch.models.ApproximateGP):
    """Independent sparse Gaussian processes of mean zero that share inducing inputs and an RBF kernel.

    `spread` is the deviation that its inputs are expected to have: of the inducing inputs at the start, and of what the
    kernel calls near. Whitened: at the start the posterior is the prior, but for a smaller deviation.
    """

    def __init__(self, inputs: int, outputs: int, inducing: int, spread: float, generator: torch.Generator) -> None:
        batch = torch.Size([outputs])
        distribution = CholeskyVariationalDistribution(inducing, batch_shape=batch)
        distribution.chol_variational_covar.data.mul_(0.01)
        strategy = VariationalStrategy(self, spread * torch.randn(inducing, inputs, generator=generator), distribution)
        strategy.variational_params_initialized.fill_(1)  # otherwise the first call draws from the global generator
        super().__init__(strategy)
        self.mean = gpytorch.means.ZeroMean(batch_shape=batch)
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=inputs))
        self.kernel.base_kernel.lengthscale = spread * inputs**0.5

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    def marginals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances at (rows, inputs), both (rows, outputs)."""
        clear_cache_hook(self.variational_strategy)  # it would keep what belongs to weights of before
        law = self(x)
        return law.mean.mT, law.variance.mT

    def kl(self) -> Tensor:
        """The divergence from the prior, over all outputs."""
        return self.variational_strategy.kl_divergence().sum()
