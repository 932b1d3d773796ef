"""How to train: settings, those that suit a number of rows, and the learning rate over a run."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from itocast.nets import MANY as WIDE
from itocast.settings import Settings

EFFORTS = {"fast": (330, 6e-3), "balanced": (750, 4e-3), "best": (2500, 2e-3)}  # steps, and the highest learning rate
MANY = 20_000  # rows from which on a run grows with them, as their square root
WIDE_LONGER = 1.7  # times as long is a run of so many rows that the network is wide
FINISH_RATE = 0.5  # the highest learning rate of the last run, as a share of that before


class Training(Settings):
    """How to train; the defaults are those of the default SDE-HNN."""

    epochs: int = Field(20, ge=1)
    batch_size: int = Field(512, ge=1)
    learning_rate: float = Field(4e-3, gt=0, description="the highest of the schedule")
    weight_decay: float = Field(0.3, ge=0)
    memory: float = Field(0.98, ge=0, lt=1, description="β₂ of Adam: how much of the squared gradients a step keeps")
    optimiser: Literal["adamw", "adam"] = "adamw"
    schedule: Literal["one-cycle", "constant"] = "one-cycle"
    clip: float = Field(10.0, gt=0, description="largest norm of the gradient")
    patience: int | None = Field(
        None,
        ge=1,
        description="epochs without a better validation law before stopping; None for a third of them, at least 5",
    )
    averaging: float = Field(0.05, ge=0, le=1, description="share of a run over which weights are averaged, 0 for none")
    matching: int = Field(0, ge=0, description="epochs of distribution matching after the others")
    finish: float = Field(
        0.6, ge=0, le=1, description="how long held-out rows are then learned from too, as a share of the run; 0: not"
    )

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if self.matching and self.batch_size < 2:
            raise ValueError(
                f"matching={self.matching} with batch_size={self.batch_size}: matching compares the rows of a batch "
                "with one another; expected a batch_size of 2 or more, better hundreds, or matching=0"
            )
        return self

    @classmethod
    def paper(cls, epochs: int = 200) -> Training:
        """Adam at 1e-3 with weight decay 1e-3, Sec. 5.2; the paper leaves batch size, epochs and stopping open."""
        return cls(
            epochs=epochs, batch_size=1024, learning_rate=1e-3, weight_decay=1e-3, memory=0.999,
            optimiser="adam", schedule="constant", patience=20, averaging=0, finish=0,
        )  # fmt: skip

    @classmethod
    def suited(cls, rows: int, effort: str = "balanced", **chosen: Any) -> Training:
        """Settings for a number of rows: small batches for few, a longer run for many, the more so for a wide network.

        `chosen` ones are kept.

        >>> [(t.batch_size, t.epochs) for t in (Training.suited(rows) for rows in (500, 30_000, 1_000_000))]
        [(32, 48), (512, 16), (512, 5)]
        >>> [(t.epochs, t.learning_rate) for t in (Training.suited(30_000, effort) for effort in ("fast", "best"))]
        [(7, 0.006), (52, 0.002)]
        """
        steps, rate = EFFORTS[effort]
        batch = min(512, max(32, 2 ** math.floor(math.log2(max(rows, 1) / 30))))
        longer = math.sqrt(max(1, rows / MANY)) * (WIDE_LONGER if rows >= WIDE else 1)
        epochs = max(1, round(steps * longer * batch / max(rows, 1)))
        return cls(**{"batch_size": batch, "epochs": min(epochs, steps // 15), "learning_rate": rate} | chosen)

    def shorter(self) -> Training:
        """Those of a run that goes on with new rows: a fifth of the epochs at a fifth of the learning rate."""
        short: dict[str, Any] = {name: -(-getattr(self, name) // 5) for name in ("epochs", "matching")}
        return self.model_copy(update=short | {"learning_rate": self.learning_rate / 5})

    @property
    def waits(self) -> int:
        """How many epochs without a better validation law end a run."""
        return self.patience or max(5, self.epochs // 3)

    def last(self, longer: float, best: float = 1.0) -> Training:
        """Those of the run that learns from held-out rows too, whose epochs are so many times as long.

        `best` is the place of the best epoch in the run, from 0 to 1. Where it comes early the network
        learns by heart soon after it, and would do so with the held-out rows: the run is shorter there.

        >>> last = Training(epochs=20, learning_rate=4e-3, finish=0.35).last(longer=1.4)
        >>> last.epochs, last.learning_rate
        (5, 0.002)
        >>> [Training(epochs=48).last(1.4, best).epochs for best in (0.5, 0.25, 0.05)]
        [21, 5, 0]
        """
        share = self.finish * min(1.0, 2 * best) ** 2
        epochs = 0 if self.matching else round(share * self.epochs / longer)  # it would undo matching
        return self.model_copy(update={"epochs": epochs, "learning_rate": FINISH_RATE * self.learning_rate})

    def rate(self, progress: float) -> float:
        """The learning rate at a share of the run: up to the highest over the first 30 %, then down along a cosine.

        >>> [round(Training(learning_rate=1.0).rate(share), 2) for share in (0, 0.15, 0.3, 0.65, 1)]
        [0.04, 0.52, 1.0, 0.5, 0.0]
        """
        if self.schedule == "constant":
            return self.learning_rate
        start, end, peak = 1 / 25, 1e-4, 0.3
        if progress < peak:
            share = start + (1 - start) * (1 - math.cos(math.pi * progress / peak)) / 2
        else:
            share = end + (1 - end) * (1 + math.cos(math.pi * (progress - peak) / (1 - peak))) / 2
        return self.learning_rate * share
