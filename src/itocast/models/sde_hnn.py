"""SDE-HNN: a heteroscedastic network whose state runs through a stochastic differential equation."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from itocast.forecast import Forecast
from itocast.head import GaussianHead
from itocast.models.base import OBJECTIVES, Model
from itocast.nets import Encoder, Inputs, Sizes, initialise
from itocast.sde import Noise, SDEBlock
from itocast.settings import Settings


class Block(Settings):
    """The SDE-block between encoder and output: f and g are one layer each, of the state's size."""

    kind: Literal["linear", "lstm"] = Field("linear", description="linear: a linear layer and tanh")
    T: float = 3.0
    dt: float = 1.5
    dropout: float = 0.2
    gain: float | None = Field(None, description="where a learned factor of g starts; None for g as it is")
    solver: str = "euler_maruyama"
    state: Literal["last", "sequence"] = Field("last", description="what z is, for a recurrent encoder")
    opposite: bool = Field(True, description="paths in pairs whose Brownian motions are each other's mirror image")

    def build(self, dim: int) -> SDEBlock:
        def network() -> nn.Module:
            if self.kind == "lstm":
                return nn.LSTM(dim, dim, batch_first=True)
            return nn.Sequential(nn.Linear(dim, dim), nn.Tanh())

        return SDEBlock(
            network(), network(), self.T, self.dt, self.dropout, self.gain, self.solver, opposite=self.opposite
        )


class SDEHNN(Model):
    """Encoder, SDE-block, then means from z_T and variances from g(z_T), Eq. 6 and 7, Fig. 1.

    Deviates from the paper where measurements asked for it: f and g are linear layers with tanh, five weighted
    Gaussians a path, means relative to the last value, with a linear map of the lags (`direct`) where several steps are
    forecast, a probability of the last value itself where series often stay at it, and the likelihood of the mixture
    over paths. `SDEHNN.paper` is the literal form.

    >>> import torch
    >>> sizes = Sizes(window=5, targets=1, covariates=4, known=0, horizon=1)
    >>> empty = torch.zeros(7, 0)
    >>> x = Inputs(lags=torch.zeros(7, 5, 1), past=torch.zeros(7, 5, 4), known=empty, anchor=torch.zeros(7, 1, 1))
    >>> SDEHNN(sizes).eval()(x, paths=8, noise=Noise(seed=0, shared=True))
    Forecast(paths=8, rows=7, horizon=1, targets=1, components=5)
    """

    training_paths = 2
    validation_paths = 4
    paths = 16

    def __init__(
        self, sizes: Sizes, encoder: Encoder | dict[str, Any] = Encoder(), block: Block | dict[str, Any] = Block(),
        components: int = 5, relative: bool = True, direct: bool | None = None, objective: str = "mixture",
        seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.sizes = sizes = Sizes(*sizes)
        encoder, block = Encoder.of(encoder).suited(sizes), Block.of(block)
        self.config = {
            "sizes": list(sizes), "encoder": encoder.model_dump(), "block": block.model_dump(),
            "components": components, "relative": relative, "direct": direct, "objective": objective, "seed": seed,
        }  # fmt: skip
        if objective not in OBJECTIVES:
            raise ValueError(f"objective={objective!r}: expected one of {', '.join(OBJECTIVES)}")
        self.objective = objective
        self.encoder = encoder.build(sizes, keep_time=block.state == "sequence")
        self.block = block.build(encoder.dim)
        self.head = GaussianHead(encoder.dim, sizes, components, relative, direct)
        initialise(self, seed)

    @classmethod
    def paper(
        cls, sizes: Sizes, state: Literal["last", "sequence"] = "last", dropout: float = 0.5, seed: int = 0
    ) -> SDEHNN:
        """The literal form of Sec. 5.2: LSTM 64 for init, f and g, T = 3, dt = 0.5, no gain, one Gaussian a path.

        `state` settles what z is: the LSTM's last state, or the sequence of its states, of which the output layers
        read the last. The paper does not give the dropout.
        """
        return cls(
            sizes,
            encoder=Encoder(kind="lstm", dim=64, layers=1, dropout=0),
            block=Block(kind="lstm", dt=0.5, dropout=dropout, state=state, opposite=False),
            components=1, relative=False, objective="paper", seed=seed,
        )  # fmt: skip

    def forward(self, x: Inputs, paths: int, noise: Noise) -> Forecast:
        end, g = self.block.ends(self.encoder(x, noise), paths, noise)  # (paths, rows, dim) or (…, window, dim)
        if end.ndim == 4:
            end, g = end[:, :, -1], g[:, :, -1]
        return self.head(end, g, x)
