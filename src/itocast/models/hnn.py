"""HNN: the plain heteroscedastic network, mean and variance from one state."""

from __future__ import annotations

from typing import Any

from itocast.forecast import Forecast
from itocast.head import GaussianHead
from itocast.models.base import Model
from itocast.nets import Encoder, Inputs, Sizes, initialise
from itocast.sde import Noise

PAPER_ENCODER = Encoder(kind="lstm", dim=128, layers=2, dropout=0)  # of all baselines, Sec. 5.2


class HNN(Model):
    """Encoder, then mean and variance layers: one path, one Gaussian (Nix and Weigend 1994), Eq. 1.

    >>> import torch
    >>> sizes = Sizes(window=5, targets=1, covariates=0, known=0, horizon=2)
    >>> empty = torch.zeros(7, 0)
    >>> x = Inputs(lags=torch.zeros(7, 5, 1), past=torch.zeros(7, 5, 0), known=empty, anchor=torch.zeros(7, 2, 1))
    >>> HNN(sizes)(x, paths=1, noise=Noise(seed=0, shared=True))
    Forecast(paths=1, rows=7, horizon=2, targets=1, components=1)
    """

    def __init__(
        self, sizes: Sizes, encoder: Encoder | dict[str, Any] = Encoder(), components: int = 1, relative: bool = True,
        direct: bool | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.sizes = sizes = Sizes(*sizes)
        encoder = Encoder.of(encoder).suited(sizes)
        self.config = {
            "sizes": list(sizes), "encoder": encoder.model_dump(), "components": components,
            "relative": relative, "direct": direct, "seed": seed,
        }  # fmt: skip
        self.encoder = encoder.build(sizes)
        self.head = GaussianHead(encoder.dim, sizes, components, relative, direct)
        initialise(self, seed)

    @classmethod
    def paper(cls, sizes: Sizes, seed: int = 0) -> HNN:
        """The paper's baseline, Sec. 5.2: two LSTM layers of 128 units and two linear output layers."""
        return cls(sizes, encoder=PAPER_ENCODER, relative=False, seed=seed)

    def forward(self, x: Inputs, paths: int, noise: Noise) -> Forecast:
        z = self.encoder(x, noise)[None]  # (1, rows, dim)
        return self.head(z, z, x)
