"""A trained model together with all it needs to forecast: what is saved and loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from itocast import storage
from itocast.data.table import Table
from itocast.data.windows import Preparation, Split
from itocast.forecast import Forecast
from itocast.models import MODELS, Model
from itocast.training import History, Training, fit, predict, predict_batch


@dataclass
class Fitted:
    """Scaling, model, how it was trained and what happened."""

    preparation: Preparation
    model: Model
    training: Training
    history: History
    seed: int

    @classmethod
    def train(
        cls, table: Table, parts: Split, preparation: Preparation, build: Callable[..., Model],
        training: Training = Training(), seed: int = 0, checkpoint: str | Path | None = None,
    ) -> Fitted:  # fmt: skip
        """Fit a new model on the training part, and keep the weights that are best on the validation part."""
        if isinstance(build, Model):
            raise TypeError("build is a model: expected what makes one from sizes and seed, such as the class SDEHNN")
        train, validation = preparation.windows(table, parts.train), preparation.windows(table, parts.validation)
        model = build(preparation.sizes, seed=seed)
        history = fit(model, train, validation, training, seed, checkpoint)
        return cls(preparation, model, training, history, seed)

    def forecast(self, table: Table, part: range, paths: int | None = None) -> tuple[Forecast, Tensor]:
        """The laws of a part's rows, from true lags, and what happened: both in the units of the table.

        A row counts by its first target: it needs a whole window before it, and a whole horizon inside the part.
        """
        windows = self.preparation.windows(table, part)
        law = predict(self.model, windows, paths, self.seed)
        return self.preparation.unscale(law), self.preparation.actuals(table, windows)

    def ahead(self, table: Table, paths: int | None = None) -> Forecast:
        """The law of the rows that will follow the table, in its units: one row, all horizon steps."""
        law = predict_batch(self.model, self.preparation.latest(table), paths, self.seed)
        return self.preparation.unscale(law)

    @property
    def parameters(self) -> int:
        """How many numbers were learned."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def save(self, folder: str | Path) -> None:
        """Write to a folder; see `itocast.storage`."""
        settings: dict[str, Any] = {
            "preparation": self.preparation.to_dict(),
            "model": {"kind": _kind(self.model), "config": self.model.config},
            "training": self.training.model_dump(),
            "history": asdict(self.history),
            "seed": self.seed,
        }
        storage.save(folder, settings, self.model.state_dict())

    @classmethod
    def load(cls, folder: str | Path) -> Fitted:
        """Read from a folder that `save` wrote."""
        manifest, weights = storage.load(folder)
        try:
            model = MODELS[manifest["model"]["kind"]](**manifest["model"]["config"])
            model.load_state_dict(weights)
            return cls(
                Preparation.from_dict(manifest["preparation"]), model.eval(), Training(**manifest["training"]),
                History(**manifest["history"]), manifest["seed"],
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            written = manifest["versions"]["itocast"]
            raise storage.StorageError(
                f"{folder} was written by itocast {written} and does not fit itocast {storage.version('itocast')} "
                f"({type(error).__name__}: {error}): use the version that wrote it"
            ) from None


def _kind(model: Model) -> str:
    for kind, cls in MODELS.items():
        if type(model) is cls:
            return kind
    raise ValueError(f"{type(model).__name__} cannot be saved: add it to itocast.models.MODELS")
