"""A trained model together with all it needs to forecast: what is trained, saved and loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from itocast import storage
from itocast.abstention import Doubt
from itocast.calibration import CALIBRATORS, Adaptive, Calibrator
from itocast.clipped import SUPPORTS, clip
from itocast.data.preparation import Data, NoWindows, Preparation
from itocast.data.series import context
from itocast.data.table import Table
from itocast.data.windows import Windows
from itocast.dependence import Dependence
from itocast.forecast import Forecast
from itocast.models import MODELS, Model
from itocast.training import History, Training, fit, nll, predict

Build = Callable[..., Model]
MOST = 4000  # windows that early stopping and calibration look at, evenly spaced
CELLS = 24_000  # forecasts of one step and target that calibration looks at: what fits into memory
RECIPE = ("window", "support", "calibration", "calibration_by", "seed")  # what is written of a recipe as it is
ENOUGH = 50  # new windows without which an update leaves the calibration as it is


@dataclass(frozen=True)
class Recipe:
    """All choices that do not depend on the data."""

    horizon: int
    window: int | None
    support: str
    data: Data
    build: Build
    training: Training | dict[str, Any]  # all settings, or those that replace what suits the number of rows
    calibration: str | None
    calibration_by: str | None  # "series", or a static column: a correction for each
    seed: int


@dataclass
class Fitted:
    """Scaling, model, calibration, the dependence between steps, and the last rows of every series."""

    recipe: Recipe
    preparation: Preparation
    model: Model
    history: History
    calibrator: Calibrator | None
    dependence: Dependence
    context: Table
    groups: list[str]  # that have a correction of their own
    outcomes: int = 0  # of each step and target that the calibrator learned from
    doubt: Doubt | None = None  # None: saved by a version that had none

    @classmethod
    def train(cls, table: Table, recipe: Recipe, checkpoint: str | Path | None = None) -> Fitted:
        """Fit on the earlier part of a table; stop, calibrate and learn the dependence between steps on the later."""
        cut = table.cutoff(1 - recipe.data.validation)
        preparation = Preparation.fit(table, recipe.horizon, recipe.window, recipe.data, until=cut).meeting(table, cut)
        train = preparation.windows(table, until=cut)
        validation = preparation.windows(table, after=cut, numbers=train.numbers).thin(MOST)
        training = _training(recipe, len(train))
        model = recipe.build(train.sizes, seed=recipe.seed)
        history = fit(model, train, validation, training, recipe.seed, checkpoint)
        independent = Dependence.none(recipe.horizon, len(table.columns.targets))
        last = context(table, preparation.window + 1)
        fitted = cls(recipe, preparation, model, history, None, independent, last, [], doubt=Doubt.of(train))
        fitted.calibrate(validation)
        return fitted

    def calibrate(self, windows: Windows) -> None:
        """Learn from forecasts that were not trained on how to correct later ones and how their steps move together."""
        self.calibrator = None
        windows = windows.thin(max(ENOUGH, CELLS // (windows.horizon * len(self.preparation.columns.targets))))
        law, y = self._raw(windows), windows.actuals()
        self.outcomes = int((~y.isnan()).sum(0).min())
        if self.recipe.calibration:
            self.groups = sorted(set(self._labels(windows)))
            groups = self._groups(windows)
            self.calibrator = CALIBRATORS[self.recipe.calibration]().fit(law, y, groups)
            law = self.calibrator.apply(law, groups)
        self.dependence = Dependence.fit(law, y)
        if self.doubt:
            law = clip(law, self.recipe.support)
            epistemic = law.epistemic
            self.doubt = self.doubt.learned(windows, law.aleatoric + epistemic, epistemic)

    def law(self, windows: Windows, paths: int | None = None) -> Forecast:
        """The laws of some windows in the table's units, calibrated, and inside the support."""
        law = self._raw(windows, paths)
        law = self.calibrator.apply(law, self._groups(windows)) if self.calibrator else law
        return clip(law, self.recipe.support)

    def doubtful(self, windows: Windows, aleatoric: Tensor, epistemic: Tensor, rate: float) -> Tensor:
        """Which forecasts not to rely on, (windows, horizon, targets), from both parts of their variance."""
        if self.doubt is None:
            raise ValueError(
                f"abstain={rate:g}: the model was saved by a version that did not learn when to abstain: fit it anew, "
                "or leave abstain out"
            )
        return self.doubt.marks(windows, aleatoric + epistemic, epistemic, rate)

    def _raw(self, windows: Windows, paths: int | None = None) -> Forecast:
        """The laws before calibration."""
        return self.preparation.unscale(predict(self.model, windows, paths, self.recipe.seed), windows)

    def _labels(self, windows: Windows) -> list[str]:
        """What groups of calibration go by, for each window."""
        if not self.recipe.calibration_by:
            return []
        series = windows.numbers.series[windows.origins].numpy()
        return windows.numbers.labels[self.recipe.calibration_by][series].tolist()

    def _groups(self, windows: Windows) -> np.ndarray | None:
        """The number of each window's group, -1 where it was not learned."""
        if not self.recipe.calibration_by:
            return None
        numbers = {label: number for number, label in enumerate(self.groups)}
        return np.array([numbers.get(label, -1) for label in self._labels(windows)])

    def observe(self, new: Table) -> int:
        """Take new rows as what happened after the context: an adaptive calibrator learns, nothing else does.

        Tells how many outcomes it learned from.
        """
        if not isinstance(self.calibrator, Adaptive):
            raise ValueError(
                f"calibration={self.recipe.calibration!r} does not learn from outcomes: fit with "
                "calibration='adaptive', or use update to train on"
            )
        table = self.context.join(new)
        begin = int(self.context.times[self.context.starts[1:] - 1].min())
        self.preparation = self.preparation.meeting(table)
        try:
            windows = self.preparation.windows(table, after=begin)
        except NoWindows:
            return 0
        finally:
            self.context = context(table, self.preparation.window + 1)
        self.calibrator.observe(self._raw(windows), windows.actuals())
        return len(windows)

    def update(self, new: Table) -> History:
        """Go on with new rows: train a little on all but the latest of them, and calibrate anew on those.

        Scales and categories stay. The old weights stay if they are better on the latest rows, and everything but the
        context stays if there are too few rows to tell.
        """
        table = self.context.join(new)
        begin = int(self.context.times[self.context.starts[1:] - 1].min())
        preparation = self.preparation = self.preparation.meeting(table)
        cut = new.cutoff(1 - self.recipe.data.validation)
        self.context = context(table, preparation.window + 1)
        try:
            train = preparation.windows(table, after=begin, until=cut)
            validation = preparation.windows(table, after=cut, numbers=train.numbers).thin(MOST)
        except NoWindows:
            return History()
        history = self._train_on(train, validation)
        if len(validation) >= ENOUGH:
            self.doubt = self.doubt.extended(train) if self.doubt else Doubt.of(train)
            self.calibrate(validation)
        return history

    def _train_on(self, train: Windows, validation: Windows) -> History:
        """A short run at a fifth of the learning rate, undone if it does not help."""
        settings = _training(self.recipe, len(train))
        short = {"epochs": -(-settings.epochs // 5), "learning_rate": settings.learning_rate / 5}
        before, weights = nll(self.model, validation), {k: v.clone() for k, v in self.model.state_dict().items()}
        history = fit(self.model, train, validation, settings.model_copy(update=short), self.recipe.seed)
        if not min(epoch["validation"] for epoch in history.epochs) < before:
            self.model.load_state_dict(weights)
        return history

    @property
    def parameters(self) -> int:
        """How many numbers were learned."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def save(self, folder: str | Path) -> None:
        """Write to a folder; see `itocast.storage`."""
        recipe, context = self.recipe, self.context
        categories = {name: column.tolist() for name, column in context.values.items() if column.dtype == object}
        settings: dict[str, Any] = {
            "preparation": self.preparation.to_dict(),
            "model": {"kind": _kind(self.model), "config": self.model.config},
            "recipe": {name: getattr(recipe, name) for name in RECIPE},
            "training": dict(recipe.training),
            "calibrator": self.calibrator.to_dict() if self.calibrator else None,
            "groups": self.groups,
            "outcomes": self.outcomes,
            "doubt": self.doubt.series if self.doubt else [],
            "history": asdict(self.history),
            "context": {"ids": context.ids.tolist(), "categories": categories},
        }
        tensors = {f"model/{name}": tensor for name, tensor in self.model.state_dict().items()}
        tensors |= {f"dependence/{name}": tensor for name, tensor in vars(self.dependence).items()}
        tensors |= {f"doubt/{name}": tensor for name, tensor in (self.doubt.tensors() if self.doubt else {}).items()}
        arrays = {"starts": context.starts, "times": context.times}
        arrays |= {f"values/{name}": column for name, column in context.values.items() if column.dtype != object}
        tensors |= {f"context/{name}": torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
        storage.save(folder, settings, tensors)

    @classmethod
    def load(cls, folder: str | Path) -> Fitted:
        """Read from a folder that `save` wrote."""
        manifest, tensors = storage.load(folder)
        try:
            return cls._restore(manifest, tensors)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise storage.other_version(folder, manifest, error) from None

    @classmethod
    def _restore(cls, manifest: dict[str, Any], tensors: dict[str, Tensor]) -> Fitted:
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "dependence": {}, "doubt": {}, "context": {}}
        for name, tensor in tensors.items():
            part, rest = name.split("/", 1)
            parts[part][rest] = tensor
        preparation = Preparation.from_dict(manifest["preparation"])
        kind, config = MODELS[manifest["model"]["kind"]], manifest["model"]["config"]
        model = kind(**config)
        model.load_state_dict(parts["model"])
        build = partial(kind, **{name: value for name, value in config.items() if name not in ("sizes", "seed")})
        SUPPORTS[manifest["recipe"]["support"]]  # a name from a later version is a KeyError here
        recipe = Recipe(
            horizon=preparation.horizon, data=preparation.data, build=build, **manifest["recipe"],
            training=manifest["training"],
        )  # fmt: skip
        calibrator = None
        if recipe.calibration and manifest["calibrator"] is not None:
            calibrator = CALIBRATORS[recipe.calibration](**manifest["calibrator"])
        arrays = {name: tensor.numpy() for name, tensor in parts["context"].items()}
        values = {name.split("/", 1)[1]: array for name, array in arrays.items() if name.startswith("values/")}
        values |= {name: np.array(column, object) for name, column in manifest["context"]["categories"].items()}
        ids = np.array(manifest["context"]["ids"], object)
        context = Table(preparation.columns, preparation.clock, ids, arrays["starts"], arrays["times"], values)
        history, dependence = History(**manifest["history"]), Dependence(**parts["dependence"])
        groups, outcomes = manifest["groups"], manifest["outcomes"]
        doubt = Doubt(**parts["doubt"], series=manifest["doubt"]) if parts["doubt"] else None
        return cls(recipe, preparation, model.eval(), history, calibrator, dependence, context, groups, outcomes, doubt)


def _training(recipe: Recipe, rows: int) -> Training:
    chosen = recipe.training
    return chosen if isinstance(chosen, Training) else Training.suited(rows, **chosen)


def _kind(model: Model) -> str:
    for kind, cls in MODELS.items():
        if type(model) is cls:
            return kind
    raise ValueError(f"{type(model).__name__} cannot be saved: add it to itocast.models.MODELS")
