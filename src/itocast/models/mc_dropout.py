"""MC-dropout: a network whose dropout stays on, each mask a path."""

from __future__ import annotations

from typing import Any

from itocast.forecast import Forecast
from itocast.models.hnn import HNN, PAPER_ENCODER
from itocast.nets import Encoder, Inputs, Sizes
from itocast.sde import Noise


class MCDropout(HNN):
    """HNN with dropout in prediction too (Gal and Ghahramani 2016): the masks of a path are one draw of the weights.

    Deviates: the noise of the data is learned for each input (Kendall and Gal 2017), as in HNN, not one constant. Masks
    act on what layers give, the same in all steps of time, and not on what a recurrent layer gives itself.

    >>> import torch
    >>> sizes = Sizes(window=5, targets=1, covariates=0, known=0, horizon=2)
    >>> empty = torch.zeros(7, 0)
    >>> x = Inputs(lags=torch.zeros(7, 5, 1), past=torch.zeros(7, 5, 0), known=empty, anchor=torch.zeros(7, 2, 1))
    >>> MCDropout(sizes).eval()(x, paths=8, noise=Noise(seed=0, shared=True))
    Forecast(paths=8, rows=7, horizon=2, targets=1, components=1)
    """

    validation_paths = 8
    paths = 32

    def __init__(
        self, sizes: Sizes, encoder: Encoder | dict[str, Any] = Encoder(), components: int = 1, relative: bool = True,
        direct: bool | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        encoder = Encoder.of(encoder).suited(Sizes(*sizes))
        if not encoder.dropout:
            raise ValueError("encoder dropout=0: MC-dropout draws its paths from dropout; give it a probability")
        super().__init__(sizes, encoder, components, relative, direct, seed)

    @classmethod
    def paper(cls, sizes: Sizes, seed: int = 0) -> MCDropout:
        """The paper's sizes, Sec. 5.2; it does not give the dropout."""
        return cls(sizes, encoder=PAPER_ENCODER.model_copy(update={"dropout": 0.2}), relative=False, seed=seed)

    def forward(self, x: Inputs, paths: int, noise: Noise) -> Forecast:
        z = self.encoder(x, noise, paths)  # (paths, rows, dim)
        return self.head(z, z, x)
