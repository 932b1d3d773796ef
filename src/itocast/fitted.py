"""A trained model together with all it needs to forecast: what is trained, saved and loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from itocast import storage
from itocast.abstention import Doubt
from itocast.calibration import CALIBRATORS, Adaptive, Auto, Calibrator
from itocast.clipped import SUPPORTS, clip, support_of, tabulated
from itocast.data.preparation import Data, NoWindows, Preparation
from itocast.data.series import context
from itocast.data.table import Table
from itocast.data.targets import Apart, rows_of, together
from itocast.data.windows import Windows
from itocast.dependence import Dependence
from itocast.forecast import Forecast
from itocast.models import MODELS, Model
from itocast.models.base import Batches
from itocast.training import EFFORTS, History, Training, fit, nll, predict

Build = Callable[..., Model]
MOST = 4000  # forecasts that early stopping looks at, of windows evenly spaced
LEAST = 1000  # windows of which they are, however many targets there are
CELLS = 24_000  # forecasts of one step and target that calibration looks at: what fits into memory
MEMORY = 8 << 20  # bytes of the numbers of the laws that are in memory at once
RECIPE = ("window", "effort", "support", "calibration", "calibration_by", "seed")  # is written as it is
FRESH = 2000  # forecasts that calibration looks back at, even where that is more than half of those held out
ENOUGH = 50  # new windows without which an update leaves the calibration as it is


@dataclass(frozen=True)
class Recipe:
    """All choices that do not depend on the data."""

    horizon: int
    window: int | None
    effort: str
    support: str  # a name in SUPPORTS, or "auto"
    data: Data
    build: Build
    training: Training | dict[str, Any]  # all settings, or those that replace what suits the number of rows
    calibration: str | None
    calibration_by: str | None  # "series", a static column, or "auto": a correction for each
    seed: int
    watch: Callable[[Model, Windows, Windows], dict[str, float]] | None = None  # notes of each epoch, on both parts
    nested: bool = False  # a part of something longer, which has the bar and Ctrl-C

    def settings(self, rows: int) -> Training:
        """How to train on so many rows."""
        chosen = self.training
        return chosen if isinstance(chosen, Training) else Training.suited(rows, self.effort, **chosen)


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
    doubt: Doubt
    by: str | None  # "series", or a static column: what groups go by
    groups: list[str]  # that have a correction of their own
    held: int  # the instant after which rows were held out from training
    support: str  # a name in SUPPORTS
    outcomes: int = 0  # of each step and target that the calibrator learned from

    @classmethod
    def train(cls, table: Table, recipe: Recipe, checkpoint: str | Path | None = None) -> Fitted:
        """Fit on the earlier part of a table; stop, calibrate and learn the dependence between steps on the later."""
        cut = table.cutoff(1 - recipe.data.validation)
        preparation = Preparation.fit(table, recipe.horizon, recipe.window, recipe.data, until=cut).meeting(table, cut)
        train = preparation.windows(table, until=cut)
        later = preparation.windows(table, after=cut, numbers=train.numbers)
        validation = _checked(later)
        rows, held = (rows_of(part, recipe.data.apart) for part in (train, validation))
        model = recipe.build(rows.sizes, seed=recipe.seed)
        watch = recipe.watch
        noted = None if watch is None else lambda model: watch(model, train, validation)
        settings = recipe.settings(len(rows))
        history = fit(model, rows, held, settings, recipe.seed, checkpoint, noted, recipe.nested)
        independent = Dependence.none(recipe.horizon, len(table.columns.targets))
        last = context(table, preparation.window + recipe.horizon)
        support = support_of(table.y) if recipe.support == "auto" else recipe.support
        fitted = cls(
            recipe, preparation, model, history, None, independent, last, Doubt.of(train), None, [], cut, support
        )
        fitted.calibrate(later, table.times)
        return fitted

    def calibrate(self, windows: Windows, times: np.ndarray) -> None:
        """Learn from forecasts that were not trained on how to correct later ones and how their steps move together.

        The newer half of them counts, if that is enough: the world moves on.
        """
        self.calibrator, self.by, self.groups = None, None, []
        most = max(ENOUGH, CELLS // (windows.horizon * len(self.preparation.columns.targets)))
        windows = windows.by_time(times).last(max(len(windows) // 2, FRESH)).thin(most)
        law, y = clip(self.raw(windows), self.support), windows.actuals()
        self.outcomes = int((~y.isnan()).sum(0).min())
        if self.recipe.calibration:
            law = tabulated(law)  # once, for fit and apply
            self.calibrator = self._calibrator(law, y, windows)
            law = self.calibrator.apply(law, self.groups_of(windows))
        self.dependence = Dependence.fit(law, y)
        self.doubt = self.doubt.learned(windows, law.variance, law.epistemic)

    def _calibrator(self, law: Forecast, y: Tensor, windows: Windows) -> Calibrator:
        """What was asked for, having learned; if it may choose, each series has its own correction where that helps."""
        name, free = str(self.recipe.calibration), self.recipe.calibration_by == "auto"
        several = len(windows.numbers.labels.get("series", ())) > 1
        self.by = ("series" if name == "auto" and several else None) if free else self.recipe.calibration_by
        self.groups = sorted(set(self._labels(windows)))
        calibrator = Auto(either=True) if name == "auto" and free else CALIBRATORS[name]()
        calibrator.fit(law, y, self.groups_of(windows))
        if free and isinstance(calibrator, Auto) and not calibrator.way.grouped:
            self.by, self.groups = None, []
        return calibrator

    def recalibrate(self, table: Table, calibration: str | None, by: str | None) -> None:
        """Another calibration, learned from the rows that training held out and all later ones; weights stay."""
        try:
            windows = self.preparation.meeting(table, self.held).windows(table, after=self.held)
        except NoWindows:
            end = table.clock.index(np.array([self.held]))[0]
            raise ValueError(
                f"the table has no forecasts to learn from after {end}, up to which the model was trained: pass the "
                "rows that training held out, or newer ones"
            ) from None
        self.recipe = replace(self.recipe, calibration=calibration, calibration_by=by)
        self.calibrate(windows, table.times)

    def law(self, windows: Windows, paths: int | None = None) -> Forecast:
        """The laws of some windows in the table's units, calibrated, and inside the support."""
        law = clip(self.raw(windows, paths), self.support)
        return self.calibrator.apply(law, self.groups_of(windows)) if self.calibrator else law

    @property
    def at_once(self) -> int:
        """How many rows have their laws in memory at a time: it does not grow with the rows."""
        forecasts = self.preparation.horizon * len(self.preparation.columns.targets)
        return max(1, MEMORY // (3 * 8 * self.model.gaussians * forecasts))

    def chunks(self, windows: Windows) -> Iterator[Windows]:
        """All windows, as many at a time as may be in memory."""
        return windows.chunks(self.at_once)

    def laws(self, windows: Windows) -> Iterator[Forecast]:
        """The laws of all windows, one chunk after another."""
        return map(self.law, self.chunks(windows))

    def raw(self, windows: Windows, paths: int | None = None) -> Forecast:
        """The laws before calibration."""
        rows = rows_of(windows, self.apart)
        law = predict(self.model, rows, paths, self.recipe.seed)
        return self.preparation.unscale(together(law, rows.targets) if isinstance(rows, Apart) else law, windows)

    @property
    def apart(self) -> bool:
        """Whether the model forecasts one target at a time."""
        return self.model.sizes.targets < len(self.preparation.columns.targets)

    def _labels(self, windows: Windows) -> list[str]:
        """What groups of calibration go by, for each window."""
        if not self.by:
            return []
        series = windows.numbers.series[windows.origins].numpy()
        return windows.numbers.labels[self.by][series].tolist()

    def groups_of(self, windows: Windows) -> np.ndarray | None:
        """The number of each window's group, -1 where it was not learned."""
        if not self.by:
            return None
        numbers = {label: number for number, label in enumerate(self.groups)}
        return np.array([numbers.get(label, -1) for label in self._labels(windows)])

    def observe(self, new: Table) -> int:
        """Take new rows as what happened after the context: an adaptive calibrator learns, nothing else does.

        A forecast is learned from once, when its last step has come. Tells how many were.
        """
        if not isinstance(self.calibrator, Adaptive):
            raise ValueError(
                f"calibration={self.recipe.calibration!r} does not learn from outcomes: fit with "
                "calibration='adaptive', or use update to train on"
            )
        table = self.context.join(new)
        ends = dict(zip(self.context.ids.tolist(), self.context.times[self.context.starts[1:] - 1], strict=True))
        known = np.array([ends.get(label, table.times.min()) for label in table.ids.tolist()])
        self.preparation = self.preparation.meeting(table)
        self.context = context(table, self.preparation.window + self.recipe.horizon)
        try:
            windows = self.preparation.windows(table)
        except NoWindows:
            return 0
        last = windows.steps()[:, -1].numpy()
        windows = windows.only(table.times[last] > known[table.series[last]]).by_time(table.times)
        if len(windows):
            y = windows.actuals()
            self.calibrator.observe(clip(self.raw(windows), self.support), y)
            self.outcomes += int((~y.isnan()).sum(0).min())
        return len(windows)

    def update(self, new: Table) -> History:
        """Go on with new rows: train a little on all but the latest of them, and calibrate anew on those.

        Scales and categories stay. The old weights stay if they are better on the latest rows, and everything but the
        context stays if there are too few rows to tell.
        """
        table = self.context.join(new)
        begin = int(self.context.times[self.context.starts[1:] - 1].min())
        preparation = self.preparation = self.preparation.meeting(table)
        if self.recipe.support == "auto" and (new.y < 0).any():
            self.support = "real"
        cut = new.cutoff(1 - self.recipe.data.validation)
        self.context = context(table, preparation.window + self.recipe.horizon)
        try:
            train = preparation.windows(table, after=begin, until=cut)
            later = preparation.windows(table, after=cut, numbers=train.numbers)
        except NoWindows:
            return History()
        self.held = cut
        history = self._train_on(*(rows_of(part, self.apart) for part in (train, _checked(later))))
        if len(later) >= ENOUGH:
            self.doubt = self.doubt.extended(train)
            self.calibrate(later, table.times)
        return history

    def _train_on(self, train: Batches, validation: Batches) -> History:
        """A short run at a fifth of the learning rate, undone if it does not help."""
        settings = self.recipe.settings(len(train))
        short = {name: -(-getattr(settings, name) // 5) for name in ("epochs", "matching")}
        short["learning_rate"] = settings.learning_rate / 5
        before, weights = nll(self.model, validation), {k: v.clone() for k, v in self.model.state_dict().items()}
        history = fit(self.model, train, validation, settings.model_copy(update=short), self.recipe.seed)
        if not history.epochs[history.best - 1]["validation"] < before:
            self.model.load_state_dict(weights)
        return history

    @property
    def calibration(self) -> str:
        """What corrects the laws, and why it was picked if nobody asked for it."""
        return self.calibrator.why if isinstance(self.calibrator, Auto) else self.recipe.calibration or "none"

    @property
    def parameters(self) -> int:
        """How many numbers were learned."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def save(self, folder: str | Path) -> None:
        """Write to a folder; see `itocast.storage`."""
        recipe, context = self.recipe, self.context
        categories = {name: column.tolist() for name, column in context.values.items() if column.dtype == object}
        tensors = {f"model/{name}": tensor for name, tensor in self.model.state_dict().items()}
        settings: dict[str, Any] = {
            "preparation": self.preparation.to_dict(),
            "model": {"kind": _kind(self.model), "config": self.model.config},
            "recipe": {name: getattr(recipe, name) for name in RECIPE},
            "training": dict(recipe.training),
            "calibrator": storage.pack(self.calibrator.to_dict(), "calibrator", tensors) if self.calibrator else None,
            "by": self.by,
            "groups": self.groups,
            "held": self.held,
            "support": self.support,
            "outcomes": self.outcomes,
            "doubt": self.doubt.series,
            "history": asdict(self.history),
            "context": {"ids": context.ids.tolist(), "categories": categories},
        }
        tensors |= {f"dependence/{name}": tensor for name, tensor in vars(self.dependence).items()}
        tensors |= {f"doubt/{name}": tensor for name, tensor in self.doubt.tensors().items()}
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
        parts: dict[str, dict[str, Tensor]] = {
            name: {} for name in ("model", "dependence", "doubt", "context", "calibrator")
        }
        for name, tensor in tensors.items():
            part, rest = name.split("/", 1)
            parts[part][rest] = tensor
        preparation = Preparation.from_dict(manifest["preparation"])
        kind, config = MODELS[manifest["model"]["kind"]], manifest["model"]["config"]
        model = kind(**config)
        model.load_state_dict(parts["model"])
        build = partial(kind, **{name: value for name, value in config.items() if name not in ("sizes", "seed")})
        for names, name in (
            (SUPPORTS, manifest["support"]),
            (("auto", *SUPPORTS), manifest["recipe"]["support"]),
            (EFFORTS, manifest["recipe"]["effort"]),
        ):
            if name not in names:
                raise KeyError(name)
        recipe = Recipe(
            horizon=preparation.horizon, data=preparation.data, build=build, **manifest["recipe"],
            training=manifest["training"],
        )  # fmt: skip
        calibrator = None
        if recipe.calibration and manifest["calibrator"] is not None:
            calibrator = CALIBRATORS[recipe.calibration](**storage.unpack(manifest["calibrator"], tensors))
        arrays = {name: tensor.numpy() for name, tensor in parts["context"].items()}
        values = {name.split("/", 1)[1]: array for name, array in arrays.items() if name.startswith("values/")}
        values |= {name: np.array(column, object) for name, column in manifest["context"]["categories"].items()}
        ids = np.array(manifest["context"]["ids"], object)
        context = Table(preparation.columns, preparation.clock, ids, arrays["starts"], arrays["times"], values)
        history, dependence = History(**manifest["history"]), Dependence(**parts["dependence"])
        doubt = Doubt(**parts["doubt"], series=manifest["doubt"])
        last = {name: manifest[name] for name in ("by", "groups", "held", "support", "outcomes")}
        return cls(recipe, preparation, model.eval(), history, calibrator, dependence, context, doubt, **last)


def _checked(windows: Windows) -> Windows:
    """Those that early stopping looks at."""
    return windows.thin(max(MOST // windows.sizes.targets, LEAST))


def _kind(model: Model) -> str:
    for kind, cls in MODELS.items():
        if type(model) is cls:
            return kind
    raise ValueError(f"{type(model).__name__} cannot be saved: add it to itocast.models.MODELS")
