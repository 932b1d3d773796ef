"""Peers that read a flat matrix: LightGBM quantile regression, LightGBM with MAPIE, NGBoost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from against.features import Rows
from against.laws import KNOTS, LEVELS, SCORES, interpolate, pinball

MOST = 600_000  # rows to learn from: stacked over 24 steps there can be millions
TREES, PATIENCE = 5000, 50
LIGHTGBM: dict[str, Any] = {
    "learning_rate": 0.05, "num_leaves": 63, "min_data_in_leaf": 40, "feature_fraction": 0.8, "bagging_fraction": 0.8,
    "bagging_freq": 1, "num_threads": 1, "verbosity": -1, "deterministic": True, "force_row_wise": True,
}  # fmt: skip
SMALL: dict[str, Any] = {"num_leaves": 15, "min_data_in_leaf": 10}  # for tables of few rows
FEW = 2000
NGBOOST_SETTINGS: dict[str, Any] = {"n_estimators": 2000, "learning_rate": 0.05, "max_depth": 4, "min_samples_leaf": 10}
NGBOOST_BATCH = 20_000  # rows that a tree of NGBoost is grown on
ENOUGH = 1000  # rows of validation that can be halved
Law = tuple[np.ndarray, np.ndarray | None]  # quantiles at LEVELS, (99, rows), and the mean, if there is one


class Peer(Protocol):
    """Learns from rows, stops on others, and gives laws of more."""

    size: int  # leaves

    def fit(self, train: Rows, validation: Rows, seed: int) -> None: ...

    def predict(self, rows: Rows) -> Law: ...


class LightGBMQuantiles:
    """One model for each of 19 levels; `relative` learns the difference to the value that is near.

    With `again` they are grown anew on the rows of validation too, of as many trees as did best there.
    """

    def __init__(self, relative: bool = False, again: bool = False) -> None:
        self.relative, self.again = relative, again

    def fit(self, train: Rows, validation: Rows, seed: int) -> None:
        grow = _Grower(train, validation, seed, self.relative)
        self.models = [grow("quantile", alpha=level) for level in KNOTS]
        if self.again:
            grow = _Grower(train.and_then(validation), None, seed, self.relative)
            trees = [model.best_iteration for model in self.models]
            self.models = [grow("quantile", count, alpha=level) for count, level in zip(trees, KNOTS, strict=True)]
        self.size = sum(map(_leaves, self.models))

    def predict(self, rows: Rows) -> Law:
        values = np.stack([model.predict(rows.x) for model in self.models])
        return interpolate(values, KNOTS) + (rows.near if self.relative else 0.0), None


class LightGBMConformal:
    """A model of the mean with MAPIE's split conformal quantiles around it.

    The mean is of the target or of its difference to the value that is near, scores are residuals or residuals over a
    model of their size: what does best on validation. Its first half stops the trees and teaches the size, its second
    conformalises; where it is small, all of it does both, and the size is left out.
    """

    def fit(self, train: Rows, validation: Rows, seed: int) -> None:
        half = len(validation) // 2 if len(validation) >= 2 * ENOUGH else 0
        first, second = (
            (validation.take(slice(0, half)), validation.take(slice(half, None))) if half else 2 * [validation]
        )
        means = [
            _mean(train, first, seed, relative) for relative in ([False] if train.anchor is None else [False, True])
        ]
        mean, self.size = min(means, key=lambda one: float(np.square(first.y - one[0].predict(first.x)).mean()))
        scores: list[Any] = [_absolute()]
        if half:
            spread, leaves = _spread(mean, first, seed)
            scores.append(_normalised(spread))
        tried = [_conformal(mean, score, second) for score in scores]
        losses = [pinball(_quantiles(*one, second.x)[0], second.y).mean() for one in tried]
        self.best = tried[int(np.argmin(losses))]
        self.size += leaves if np.argmin(losses) else 0

    def predict(self, rows: Rows) -> Law:
        return _quantiles(*self.best, rows.x)


class NGBoostNormal:
    """NGBoost with a Normal law, of the difference to the value that is near where there is one."""

    def fit(self, train: Rows, validation: Rows, seed: int) -> None:
        from ngboost import NGBRegressor
        from sklearn.tree import DecisionTreeRegressor

        self.groups = {i: np.unique(train.x[:, i]) for i in train.categories}
        ways = dict(NGBOOST_SETTINGS)
        boosting = {name: ways.pop(name) for name in ("n_estimators", "learning_rate")}
        self.model = NGBRegressor(
            Base=DecisionTreeRegressor(random_state=seed, **ways), verbose=False, random_state=seed,
            minibatch_frac=min(1.0, NGBOOST_BATCH / len(train)), **boosting,
        )  # fmt: skip
        pairs = [(self._numbers(rows), rows.y - rows.near) for rows in (train, validation)]
        self.model.fit(*pairs[0], *pairs[1], early_stopping_rounds=PATIENCE)
        self.trees = int(self.model.best_val_loss_itr) + 1
        self.size = sum(int(tree.get_n_leaves()) for pair in self.model.base_models[: self.trees] for tree in pair)

    def predict(self, rows: Rows) -> Law:
        law = self.model.pred_dist(self._numbers(rows), max_iter=self.trees)
        mean = law.loc + rows.near
        return mean + law.scale * SCORES[:, None], mean

    def _numbers(self, rows: Rows) -> np.ndarray:
        """Categories as columns of 0 and 1."""
        hot = [rows.x[:, [i]] == values for i, values in self.groups.items()]
        return np.concatenate([np.delete(rows.x, list(self.groups), 1), *hot], 1)


class _Grower:
    """Grows boosters on a table, whose columns are binned once, until they gain no more on another, if there is one."""

    def __init__(self, train: Rows, validation: Rows | None, seed: int, relative: bool = False) -> None:
        import lightgbm

        self.settings = LIGHTGBM | (SMALL if len(train) < FEW else {}) | {"seed": seed}
        more: dict[str, Any] = {
            "categorical_feature": list(train.categories),
            "params": self.settings,
            "free_raw_data": False,
        }

        def table(rows: Rows, reference: Any = None) -> Any:
            label = rows.y - (rows.near if relative else 0.0)
            return lightgbm.Dataset(rows.x, label, reference=reference, **more)

        self.train = table(train)
        self.stops = [] if validation is None else [table(validation, self.train)]

    def __call__(self, objective: str, trees: int = TREES, **more: Any) -> Any:
        import lightgbm

        settings = self.settings | {"objective": objective} | more
        stop: list[Callable[..., Any]] = [lightgbm.early_stopping(PATIENCE, verbose=False)] if self.stops else []
        return lightgbm.train(settings, self.train, trees, valid_sets=self.stops, callbacks=stop)


class _Fixed(RegressorMixin, BaseEstimator):
    """A function as an estimator that is fitted already."""

    is_fitted = True  # for MAPIE, which would warn

    def __init__(self, function: Callable[[np.ndarray], np.ndarray]) -> None:
        self.function = function

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, x: Any, y: Any) -> _Fixed:
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.function(x)


def _leaves(booster: Any) -> int:
    text = booster.model_to_string(num_iteration=booster.best_iteration)
    return sum(int(line.partition("=")[2]) for line in text.splitlines() if line.startswith("num_leaves="))


def _mean(train: Rows, stop: Rows, seed: int, relative: bool) -> tuple[_Fixed, int]:
    model, anchor = _Grower(train, stop, seed, relative)("regression"), train.anchor
    return _Fixed(lambda x: model.predict(x) + (x[:, anchor] if relative else 0.0)), _leaves(model)


def _spread(mean: _Fixed, rows: Rows, seed: int) -> tuple[_Fixed, int]:
    """A model of the size of residuals, learned from their logarithms on rows that the mean did not see."""
    residuals = np.abs(rows.y - mean.predict(rows.x))
    logs = Rows(rows.x, np.log(np.maximum(residuals, 1e-3 * residuals.mean() + 1e-12)), rows.names, rows.categories)
    order = np.random.default_rng(seed).permutation(len(rows))
    learned, stop = logs.take(order[len(rows) // 4 :]), logs.take(order[: len(rows) // 4])
    model = _Grower(learned, stop, seed)("regression")
    return _Fixed(lambda x: np.exp(model.predict(x))), _leaves(model)


def _absolute() -> Any:
    from mapie.conformity_scores import AbsoluteConformityScore

    return AbsoluteConformityScore(sym=False)


def _normalised(spread: _Fixed) -> Any:
    from mapie.conformity_scores import ResidualNormalisedScore

    return ResidualNormalisedScore(spread, prefit=True, sym=False)


def _conformal(mean: _Fixed, score: Any, rows: Rows) -> tuple[Any, np.ndarray]:
    """Central intervals around a mean, and the levels of their lower bounds."""
    from mapie.regression import SplitConformalRegressor

    levels = LEVELS[:49]
    levels = levels[np.minimum(levels, 0.5 - levels) * (len(rows) - 1) > 1]  # MAPIE refuses others of few rows
    conformal = SplitConformalRegressor(mean, (1 - 2 * levels).tolist(), score).conformalize(rows.x, rows.y)
    return conformal, levels


def _quantiles(conformal: Any, levels: np.ndarray, x: np.ndarray) -> Law:
    mean, bounds = conformal.predict_interval(x)  # (rows,), (rows, 2, levels)
    values = np.concatenate([bounds[:, 0].T, bounds[:, 1, ::-1].T])
    return interpolate(values, np.concatenate([levels, 1 - levels[::-1]])), mean


TREE_PEERS: dict[str, Callable[[], Peer]] = {
    "lightgbm-19": LightGBMQuantiles,
    "lightgbm-19-all": lambda: LightGBMQuantiles(again=True),
    "lightgbm-19-relative": lambda: LightGBMQuantiles(relative=True),
    "lightgbm-19-relative-all": lambda: LightGBMQuantiles(relative=True, again=True),
    "lightgbm-mapie": LightGBMConformal,
    "ngboost": NGBoostNormal,
}
