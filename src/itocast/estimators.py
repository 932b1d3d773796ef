"""Regression and classification of rows of numbers, as scikit-learn estimators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import Tensor

from itocast.arguments import probabilities
from itocast.categorical import Categorical
from itocast.data.scaling import Standard
from itocast.forecast import Forecast
from itocast.models.base import Model
from itocast.models.committee import ClassCommittee, Committee, pool
from itocast.models.sde_hnn import Block
from itocast.nets import Encoder, Sizes
from itocast.tabular import Rows, Tabular
from itocast.training import predict

BLOCK = Block(gain=0.3, dropout=0.2)


class SDERegressor(RegressorMixin, Tabular):
    """Regression with a whole law for every row: mean, intervals, quantiles, and two kinds of uncertainty.

    `members` networks of `hidden` units, each with its own encoder and output layers, share one SDE-block and are
    trained together. Each member leaves out a part of the rows; the left-out rows choose the epoch, and how far the
    variances may shrink. The law pools `members` · `paths` paths, each a mixture of `components` Gaussians.

    `epochs` and `batch_size` suit the number of rows if None. An integer `random_state` fixes all numbers.

    >>> x = np.linspace(0, 1, 200)[:, None]
    >>> y = 3 * x[:, 0] + np.random.default_rng(0).normal(0, 0.1, 200)
    >>> model = SDERegressor(members=2, hidden=16, epochs=30, learning_rate=0.01).fit(x, y)
    >>> lower, upper = model.predict_interval(x, level=90)
    >>> lower.shape, bool((lower < upper).all()), model.score(x, y) > 0.9
    ((200,), True, True)
    """

    network = Committee

    def __init__(
        self, members: int = 8, hidden: int = 128, components: int = 3, dropout: float = 0.05,
        epochs: int | None = None, batch_size: int | None = None, learning_rate: float = 2e-3,
        weight_decay: float = 0.1, paths: int = 16, random_state: Any = 0,
    ) -> None:  # fmt: skip
        super().__init__(members, hidden, dropout, epochs, batch_size, learning_rate, weight_decay, paths, random_state)
        self.components = components

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from features (rows, features) and targets (rows,) or (rows, targets)."""
        self._check()
        settings = {"dtype": np.float64, "multi_output": True, "y_numeric": True, "ensure_min_samples": 2}
        x, y = validate_data(self, X, y, **settings)
        self.single_ = y.ndim == 1
        y = np.asarray(y, np.float64).reshape(len(x), -1)
        self.target_scaler_, self.targets_ = Standard.fit(y), y.shape[1]
        left = self._train(x, torch.from_numpy(self.target_scaler_.transform(y)).float()[:, None], math.nan)
        left = Rows(left.features.double(), left.targets.double())
        self.log_factors_ = log_factors(predict(self.model_, left, self.paths, self.seed_), left.targets)
        return self

    def _build(self, encoder: Encoder) -> Model:
        sizes = Sizes(self.n_features_in_, self.targets_, covariates=0, known=0, horizon=self.members)
        return Committee(sizes, encoder, BLOCK, self.components, self.seed_)

    def predict_distribution(self, X: Any) -> Forecast:
        """The law of each row in the units of y, (rows, 1, targets), with its aleatoric and epistemic variance."""
        law = pool(self._law(X))
        log_variances = law.log_variances + torch.tensor(self.log_factors_, dtype=torch.float64)[:, None]
        return self.target_scaler_.unscale(Forecast.from_logs(law.means, log_variances, law.log_weights))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of each row's law; with `return_std` its standard deviation as well."""
        law = self.predict_distribution(X)
        mean = self._array(law.mean)
        return (mean, self._array(law.variance.sqrt())) if return_std else mean

    def predict_interval(self, X: Any, level: float = 90) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bound of the central interval that holds `level` percent."""
        lower, upper = self.predict_distribution(X).interval(level)
        return self._array(lower), self._array(upper)

    def predict_quantiles(self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> np.ndarray:
        """The quantiles of each row's law on a last axis: (rows, quantiles) or (rows, targets, quantiles)."""
        levels = probabilities("quantiles", quantiles)
        law = self.predict_distribution(X)
        return np.stack([self._array(part) for part in law.quantile(levels)], axis=-1)

    def _array(self, part: Tensor) -> np.ndarray:
        """(rows, 1, targets) in the shape of the y that was learned from."""
        return part[:, 0, 0].numpy() if self.single_ else part[:, 0].numpy()

    def _more(self) -> dict[str, Any]:
        return {"targets": self.target_scaler_.to_dict(), "single": self.single_, "log_factors": self.log_factors_}

    def _restore(self, manifest: dict[str, Any], weights: dict[str, Tensor]) -> None:
        super()._restore(manifest, weights)
        more = manifest["more"]
        self.single_, self.log_factors_, self.targets_ = more["single"], more["log_factors"], len(more["log_factors"])
        self.target_scaler_ = Standard(**more["targets"])


def log_factors(law: Forecast, y: Tensor) -> list[float]:
    """The log of the factor of the variances under which left-out rows are most likely, at most 0; one a target.

    Dropout makes a network see more noise in training than when it predicts, so its variances can be too wide. They
    are never widened: one member errs more than the committee that will be asked.
    """
    seen = ~y.isnan()
    y = torch.where(seen, y, 0.0)
    steps = torch.linspace(-4, 0, 81, dtype=torch.float64)
    laws = (Forecast.from_logs(law.means, law.log_variances + step, law.log_weights) for step in steps)
    scores = torch.stack([(one.log_prob(y) * seen).sum((0, 1)) for one in laws])  # (steps, targets)
    return steps[scores.argmax(0)].tolist()


class Uncertainty(NamedTuple):
    """Entropies in nats, (rows,)."""

    total: np.ndarray
    epistemic: np.ndarray


class SDEClassifier(ClassifierMixin, Tabular):
    """Classification whose probabilities are averaged over paths: the committee of SDERegressor before a softmax.

    The settings are those of SDERegressor, by default with fewer units, more dropout and more weight decay. Deviates:
    the paper names classification as future work (Sec. 6).

    >>> x = np.linspace(0, 1, 200)[:, None]
    >>> model = SDEClassifier(members=2, hidden=16, epochs=30).fit(x, np.where(x[:, 0] > 0.5, "high", "low"))
    >>> model.predict([[0.1], [0.9]]).tolist(), model.predict_proba([[0.1]]).shape
    (['low', 'high'], (1, 2))
    >>> uncertainty = model.predict_uncertainty([[0.1], [0.5]])
    >>> bool(uncertainty.total[0] < uncertainty.total[1])
    True
    """

    network = ClassCommittee

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from features (rows, features) and the class of each row, of any type."""
        self._check()
        x, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y holds one class, {y[:1].tolist()[0]!r}: expected at least two; add rows of another class"
            )
        self._train(x, torch.from_numpy(codes)[:, None], -1)
        return self

    def _build(self, encoder: Encoder) -> Model:
        sizes = Sizes(self.n_features_in_, len(self.classes_), covariates=0, known=0, horizon=self.members)
        return ClassCommittee(sizes, encoder, BLOCK, self.seed_)

    def predict_distribution(self, X: Any) -> Categorical:
        """The law of each row, path by path."""
        law: Categorical = self._law(X)
        return law

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, (rows, classes), in the order of `classes_`."""
        return self.predict_distribution(X).probabilities.numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """The entropy of each row's law, and its epistemic part: the mutual information of class and path."""
        law = self.predict_distribution(X)
        return Uncertainty(law.entropy.numpy(), law.epistemic.numpy())

    def _more(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist(), "type": self.classes_.dtype.str}

    def _restore(self, manifest: dict[str, Any], weights: dict[str, Tensor]) -> None:
        super()._restore(manifest, weights)
        self.classes_ = np.array(manifest["more"]["classes"], dtype=manifest["more"]["type"])
