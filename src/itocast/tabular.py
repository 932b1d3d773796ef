"""What the scikit-learn estimators share: settings, members that leave rows out in turn, storage."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from itocast import storage
from itocast.data.scaling import QuantileNormal
from itocast.models.base import Model
from itocast.nets import Encoder, Inputs
from itocast.schedule import Training
from itocast.training import History, fit, predict

STEPS = 1500  # of the optimiser, in a run of automatic length
FOLDS = 5  # a member leaves out a fifth of the rows, or less where there are more members
RANGES: list[tuple[str, Any, float, float, str]] = [
    ("members", Integral, 1, math.inf, "a whole number of networks, at least 1, such as 8"),
    ("hidden", Integral, 4, math.inf, "a whole number of units, at least 4, such as 64"),
    ("components", Integral, 1, math.inf, "a whole number of Gaussians a path, at least 1"),
    ("dropout", Real, 0, 0.95, "a probability from 0 to 0.95"),
    ("epochs", Integral, 1, math.inf, "a whole number, at least 1, or None for a length that suits the rows"),
    ("batch_size", Integral, 1, math.inf, "a whole number, at least 1, or None for a size that suits the rows"),
    ("learning_rate", Real, 1e-8, 10, "a positive number, such as 0.002"),
    ("weight_decay", Real, 0, math.inf, "a number that is not negative, such as 0.3"),
    ("paths", Integral, 1, math.inf, "a whole number of paths for each member, at least 1, such as 16"),
]


@dataclass
class Rows:
    """Scaled features and, for each member, the targets it learns from or is tested on."""

    features: Tensor  # (rows, features)
    targets: Tensor  # (rows, members, ...)

    def __len__(self) -> int:
        return len(self.features)

    def batch(self, index: Tensor | slice) -> tuple[Inputs, Tensor]:
        """Features take the place of lags; there are no covariates, no calendar and nothing to be relative to."""
        lags = self.features[index][..., None]
        count, features, _ = lags.shape
        past, known, anchor = (lags.new_zeros(shape) for shape in ((count, features, 0), (count, 0), (count, 0, 0)))
        return Inputs(lags, past, known, anchor), self.targets[index]


class Tabular(BaseEstimator):
    """A committee of networks around one SDE-block that learns from rows of numbers.

    A subclass says which `network` it trains, builds it in `_build`, and adds to `_more` what its network cannot tell.
    """

    network: type[Model]
    model_: Model

    def __init__(
        self, members: int = 8, hidden: int = 64, dropout: float = 0.2, epochs: int | None = None,
        batch_size: int | None = None, learning_rate: float = 2e-3, weight_decay: float = 0.3, paths: int = 16,
        random_state: Any = 0,
    ) -> None:  # fmt: skip
        self.members = members
        self.hidden = hidden
        self.dropout = dropout
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.paths = paths
        self.random_state = random_state

    def _check(self) -> None:
        """Every setting must be of its kind and in its range; scikit-learn wants this in `fit`, not before."""
        for name, kind, low, high, what in RANGES:
            value = getattr(self, name, 1)
            automatic = name in ("epochs", "batch_size") and value is None
            if not automatic and (isinstance(value, bool) or not (isinstance(value, kind) and low <= value <= high)):
                raise ValueError(f"{name}={value!r}: expected {what}")
        state = self.random_state
        if isinstance(state, Integral) and not 0 <= int(state) < 2**32:
            raise ValueError(f"random_state={state}: expected an integer from 0 to 2³² - 1, a RandomState or None")
        self.seed_ = int(state) if isinstance(state, Integral) else int(check_random_state(state).randint(2**31))

    def _train(self, x: np.ndarray, y: Tensor, missing: float) -> Rows:
        """Scale, build and train; y is (rows, 1, ...). Gives the rows that members left out, others as missing."""
        self.scaler_ = QuantileNormal.fit(x)
        features = torch.from_numpy(self.scaler_.transform(x)).float()
        generator = torch.Generator().manual_seed(self.seed_)
        part = (torch.arange(len(x)) % max(self.members, FOLDS))[torch.randperm(len(x), generator=generator)]
        out = (part[:, None] == torch.arange(self.members)).reshape(len(x), self.members, *[1] * (y.ndim - 2))
        nothing = torch.full_like(y, missing)
        learned, left = (Rows(features, torch.where(mask, y, nothing)) for mask in (~out, out))
        dim = max(4, self.hidden // 4)
        encoder = Encoder(hidden=self.hidden, dim=dim, frequencies=8, embedding=4, dropout=self.dropout)
        self.model_ = self._build(encoder)
        self.history_ = fit(self.model_, learned, left, self._training(len(x)), self.seed_)
        self.model_.double()  # so that a row's law does not depend on its batch, not even in the last digits
        return left

    def _build(self, encoder: Encoder) -> Model:
        raise TypeError(f"{type(self).__name__} has no network: use SDERegressor or SDEClassifier")

    def _training(self, rows: int) -> Training:
        batch = self.batch_size or min(max(rows // 32, 32), 512)
        epochs = self.epochs or min(max(math.ceil(STEPS / math.ceil(rows / batch)), 20), 500)
        return Training(
            epochs=epochs, batch_size=batch, learning_rate=self.learning_rate, weight_decay=self.weight_decay,
            memory=0.999, patience=max(10, epochs // 4), averaging=0,
        )  # fmt: skip

    def _law(self, X: Any) -> Any:
        """The network's law of new rows, in its scale."""
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, dtype=np.float64)
        features = torch.from_numpy(self.scaler_.transform(x))
        return predict(self.model_, Rows(features, features), self.paths, self.seed_)

    def save(self, folder: str | Path) -> None:
        """Write to a folder, as JSON and safetensors; see `itocast.storage`."""
        check_is_fitted(self)
        settings = {
            "estimator": type(self).__name__,
            "parameters": {**self.get_params(), "random_state": self.seed_},
            "model": self.model_.config,
            "scaler": self.scaler_.to_dict(),
            "history": asdict(self.history_),
            "columns": self.n_features_in_,
            "names": self.feature_names_in_.tolist() if hasattr(self, "feature_names_in_") else None,
            "more": self._more(),
        }
        weights = {name: weight.float() for name, weight in self.model_.state_dict().items()}  # as they were learned
        storage.save(folder, settings, weights)

    def _more(self) -> dict[str, Any]:
        return {}

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read from a folder that `save` wrote."""
        manifest, weights = storage.load(folder)
        kind = manifest.get("estimator", "a model that is no estimator")
        if kind != cls.__name__:
            raise storage.StorageError(f"{folder} holds {kind}: expected {cls.__name__}; load it with its own class")
        try:
            estimator = cls(**manifest["parameters"])
            estimator._restore(manifest, weights)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise storage.other_version(folder, manifest, error) from None
        return estimator

    def _restore(self, manifest: dict[str, Any], weights: dict[str, Tensor]) -> None:
        self.n_features_in_ = manifest["columns"]
        if manifest["names"]:
            self.feature_names_in_ = np.array(manifest["names"], dtype=object)
        self.seed_ = manifest["parameters"]["random_state"]
        self.scaler_ = QuantileNormal(**manifest["scaler"])
        self.history_ = History(**manifest["history"])
        self.model_ = self.network(**manifest["model"])
        self.model_.load_state_dict(weights)
        self.model_.eval().double()
