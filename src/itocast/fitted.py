"""A trained model together with all it needs to forecast: what is trained, saved and loaded."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from itocast.abstention import Doubt
from itocast.blend import best_share, blended, compared, own_shares
from itocast.calibration import CALIBRATORS, Adaptive, Auto, Calibrator
from itocast.calibration.evidence import correlation_of, design_effect
from itocast.cautions import warn_of_misses
from itocast.clipped import Again, clip, tabulated
from itocast.data.holdout import Cut, held_rows
from itocast.data.preparation import Data, NoWindows, Preparation
from itocast.data.series import context, support_of
from itocast.data.table import Table
from itocast.data.targets import rows_of
from itocast.data.windows import Windows
from itocast.dependence import Dependence
from itocast.forecast import Forecast
from itocast.network import Build, Network, Watch, checked, train_network
from itocast.schedule import Training
from itocast.training import History, fit, nll, progress
from itocast.zero_shot import CONTEXT, ZeroShot

CELLS = 24_000  # forecasts of one step and target that calibration looks at: what fits into memory
MEMORY = 8 << 20  # bytes of the numbers of the laws that are in memory at once
FRESH = 2000  # forecasts that calibration looks back at, even where that is more than half of those held out
ENOUGH = 50  # new windows without which an update leaves the calibration as it is
FEWEST = 40  # windows to learn from, below which the prior forecasts alone
QUICK = 5000  # windows up to which a fast fit is the prior alone
LEAN = 5000  # rows up to which past covariates must earn their place: few rows teach chance
EARNED = 0.98  # times the CRPS with them that a forecast without them must reach to be taken
COMPARED = 300  # held-out windows on which network and prior are compared, evenly spaced
LOST = 1.05  # times the CRPS of the prior from which on a fine-tuned one is not taken
FOLDS = 5  # of held-out forecasts: each is corrected by what the others taught


@dataclass(frozen=True)
class Recipe:
    """All choices that do not depend on the data."""

    horizon: int
    window: int | None
    effort: str
    support: str  # a name in SUPPORTS, or "auto"
    data: Data
    build: Build | None  # what makes the network; None for the prior alone
    prior: bool  # whether the prior may forecast
    training: Training | dict[str, Any]  # all settings, or those that replace what suits the number of rows
    calibration: str | None
    calibration_by: str | None  # "series", a static column, or "auto": a correction for each
    seed: int
    watch: Watch | None = None  # notes of each epoch, on both parts
    nested: bool = False  # a part of something longer, which has the bar and Ctrl-C

    def settings(self, rows: int) -> Training:
        """How to train on so many rows."""
        chosen = self.training
        return chosen if isinstance(chosen, Training) else Training.suited(rows, self.effort, **chosen)


@dataclass(repr=False)
class Fitted:
    """What forecasts (a network, the prior, or both), its calibration, and the last rows of every series.

    A forecast of rows that were held out is made by a stage of the network that had not learned from
    them, and corrected by what other rows taught: scores of such rows flatter nobody.
    """

    recipe: Recipe
    preparation: Preparation
    net: Network | None  # None where the prior forecasts alone
    zero_shot: ZeroShot | None  # None where the network forecasts alone
    share: float  # of the network in a forecast: 1 for it alone
    own: dict[str, list[float]]  # of each target in series that have shares of their own
    shares: dict[float, float]  # the scaled CRPS of held-out rows for each share that was tried
    context: Table
    held: Cut  # after which rows of each series were held out from training
    support: str  # a name in SUPPORTS
    dependence: Dependence
    doubt: Doubt | None  # None where there is too little to say what is usual
    calibrator: Calibrator | None = None
    by: str | None = None  # "series", or a static column: what groups go by
    groups: list[str] = field(default_factory=list)  # that have a correction of their own
    evidence: float = 0.0  # how many independent outcomes the calibrator learned from
    folds: list[Calibrator] = field(default_factory=list)  # that had not seen a part of the held-out rows
    edges: list[Cut] = field(default_factory=list)  # between these parts, and around them

    def __repr__(self) -> str:
        return f"Fitted(kind={self.kind!r}, share={self.share}, calibration={self.calibration!r})"

    @classmethod
    def train(cls, table: Table, recipe: Recipe, checkpoint: str | Path | None = None) -> Fitted:
        """Fit on the earlier part of a table; the later part chooses, calibrates, and is learned from too."""
        as_it_came, table = table, table.sorted()  # the order of series changes no digit
        support = support_of(table)[0] if recipe.support == "auto" else recipe.support
        zero_shot = ZeroShot.of(table) if recipe.prior else None
        fitted = cls._with_network(table, recipe, zero_shot, support, checkpoint)
        if fitted is not None and zero_shot is not None and table.columns.past and len(table) <= LEAN:
            lean = cls._with_network(table.without("past"), recipe, zero_shot, support)
            fitted = lean if lean is not None and lean.score < EARNED * fitted.score else fitted
        if fitted is None or fitted.net is None:
            fitted = cls._of_prior(table, recipe, zero_shot, support, fitted)
        fitted.context = context(as_it_came, fitted.preparation.reach + recipe.horizon)
        return fitted

    @classmethod
    def _with_network(
        cls, table: Table, recipe: Recipe, zero_shot: ZeroShot | None, support: str,
        checkpoint: str | Path | None = None,
    ) -> Fitted | None:  # fmt: skip
        """With a network, whose share is 0 where the prior forecasts better; None where it has too little to learn."""
        if recipe.build is None:
            return None
        held = Cut.newest(table, held_rows(np.diff(table.starts), recipe.data.validation, recipe.horizon))
        cut = held.rows(table)
        try:
            preparation = Preparation.fit(table, recipe.horizon, recipe.window, recipe.data, until=cut)
            preparation = preparation.meeting(table, cut)
            preparation, train = preparation.seen(preparation.windows(table, until=cut))
            later = preparation.windows(table, after=cut, numbers=train.numbers)
        except NoWindows:
            if zero_shot is None:
                raise
            return None
        few = QUICK if recipe.effort == "fast" else FEWEST
        if zero_shot is not None and len(train) < few:
            return None
        net, settings = train_network(
            preparation, recipe.build, train, later, recipe.settings, recipe.seed, checkpoint, recipe.watch,
            recipe.nested,
        )  # fmt: skip
        independent = Dependence.none(recipe.horizon, len(table.columns.targets))
        doubt = Doubt.of(train)
        fitted = cls(recipe, preparation, net, zero_shot, 1.0, {}, {}, table, held, support, independent, doubt)
        fitted._settle(train, later, settings)
        if fitted.net is not None:
            fitted.calibrate(later, table.times)
        return fitted

    def _settle(self, train: Windows, later: Windows, settings: Training) -> None:
        """What forecasts, by held-out rows; the network learns from these too, unless it has no share."""
        net, some = self.network, later.thin(COMPARED)
        if self.zero_shot is None:
            net.finish(train, later, settings, self.recipe.nested)
            return
        self._fine_tune(train, some)
        prior = self._of_prior_law(some)
        self._choose(some, later, prior)
        if self._given() != {0.0}:
            net.finish(train, later, settings, self.recipe.nested)
            self._choose(some, later, prior)
        given = self._given()
        if given == {1.0}:
            self.zero_shot = None
        elif given == {0.0}:
            self.net = None
        else:
            self.preparation = replace(self.preparation, memory=CONTEXT)

    def _given(self) -> set[float]:
        """The shares that the network has anywhere."""
        return {self.share}.union(*self.own.values())

    @classmethod
    def _of_prior(
        cls,
        table: Table,
        recipe: Recipe,
        zero_shot: ZeroShot | None,
        support: str,
        tried: Fitted | None,
    ) -> Fitted:
        """The prior alone: it reads no covariates, and needs none ahead.

        If it learned from no row, most of them can tell how well it does. `tried` is the fit in
        which it was compared with a network, and perhaps fine-tuned on all but the held-out rows.
        """
        assert zero_shot is not None
        table = table.without("past", "future")
        preparation = Preparation.fit(table, recipe.horizon, 1, recipe.data)
        preparation = replace(preparation, memory=CONTEXT)
        lengths = np.diff(table.starts)
        held = Cut.newest(table, lengths - np.maximum(lengths // 3, 1))
        shares = {}
        if tried is not None:
            shares = tried.shares
            if tried.zero_shot is not None and tried.zero_shot.tuned:
                zero_shot, held = tried.zero_shot, tried.held
        independent = Dependence.none(recipe.horizon, len(table.columns.targets))
        fitted = cls(
            recipe, preparation, None, zero_shot, 0.0, {}, shares, table, held, support, independent, None
        )  # fmt: skip
        try:
            windows = preparation.windows(table, after=held.rows(table))
        except NoWindows:
            return fitted
        fitted.doubt = Doubt.of(windows)
        fitted.calibrate(windows, table.times)
        return fitted

    @property
    def score(self) -> float:
        """The scaled CRPS of held-out rows that settled the share of the network."""
        return self.shares[self.share]

    def _choose(self, some: Windows, later: Windows, prior: Forecast) -> None:
        """The shares of the network, by `some` of the forecasts of held-out rows, which the prior made too."""
        series = some.numbers.series[some.origins].long()
        labels, blend = some.numbers.labels["series"], not self.network.model.repeats
        scores = compared(self._of_network(some), prior, some.actuals(), _scale(some), blend)
        self.shares = {share: score.nanmean().item() for share, score in scores.items()}
        self.share, self.own = best_share(scores, later.independent()), {}
        if blend:
            independent = torch.minimum(later.independent_of_series(), torch.bincount(series, minlength=len(labels)))
            own = own_shares(scores, series, independent, self.share)
            others = (own != self.share).any(1).nonzero()[:, 0].tolist()
            self.own = {str(labels[i]): own[i].tolist() for i in others}

    def _fine_tune(self, train: Windows, some: Windows) -> None:
        """Train the prior further on a table of short series, unless it then forecasts `some` windows worse.

        What is held out is one period, whose luck all series share: a small loss there says nothing.
        """
        from itocast.prior.fine_tuning import FEWEST, STEPS

        assert self.zero_shot is not None
        usual = np.median(np.diff(self.context.starts))
        if self.recipe.effort == "fast" or usual > CONTEXT or train.independent() < FEWEST:
            return
        before, y, nested = self.zero_shot, some.actuals(), self.recipe.nested
        plain = _crps(self._of_prior_law(some), y, _scale(some))
        try:
            with progress("prior", STEPS, 0, nested) as report:
                self.zero_shot = before.fine_tuned(train, self.recipe.seed, report)
        except KeyboardInterrupt:
            if nested:
                raise
            warnings.warn("fine-tuning was interrupted: the prior is as it came", stacklevel=2)
        if _crps(self._of_prior_law(some), y, _scale(some)) > LOST * plain:
            self.zero_shot = before

    @property
    def network(self) -> Network:
        """The network that was trained."""
        if self.net is None:
            raise ValueError("the prior forecasts alone: no network was trained, so there is none to look at")
        return self.net

    @property
    def doubts(self) -> Doubt:
        """What tells which forecasts not to rely on."""
        if self.doubt is None:
            raise ValueError(
                "abstain needs forecasts whose outcomes are known, to tell what is unusual, and the table is too short "
                "to have any: leave it out, or fit on more rows"
            )
        return self.doubt

    def calibrate(self, windows: Windows, times: np.ndarray) -> None:
        """Learn from forecasts that were not trained on how to correct later ones and how their steps move together.

        The newer half of them counts, if that is enough: the world moves on.
        """
        self.calibrator, self.by, self.groups, self.folds, self.edges = None, None, [], [], []
        most = max(ENOUGH, CELLS // (windows.horizon * len(self.preparation.columns.targets)))
        windows = windows.by_time(times).last(max(len(windows) // 2, FRESH)).thin(most)
        law, y = self.uncorrected(windows), windows.actuals()
        law = tabulated(law)  # once, for all that follows
        self.evidence = _evidence(law, y, windows)
        if self.recipe.calibration:
            self.calibrator = self._calibrator(law, y, windows)
            self._fold(law, y, windows)
            law = self._corrected(law, windows)
        if not self.recipe.nested:
            warn_of_misses(law, y, self.outcomes)
        self.dependence = Dependence.fit(law, y)
        if self.doubt is not None:
            self.doubt = self.doubt.learned(windows, law.variance, law.epistemic)

    def _calibrator(self, law: Forecast, y: Tensor, windows: Windows) -> Calibrator:
        """What was asked for, having learned; if it may choose, each series has its own correction where that helps."""
        name, free = str(self.recipe.calibration), self.recipe.calibration_by == "auto"
        several = len(windows.numbers.labels.get("series", ())) > 1
        self.by = ("series" if name == "auto" and several else None) if free else self.recipe.calibration_by
        self.groups = sorted(set(self._labels(windows)))
        calibrator = Auto(either=True) if name == "auto" and free else CALIBRATORS[name]()
        calibrator.fit(law, y, self.groups_of(windows), len(windows) / self.evidence)
        if free and isinstance(calibrator, Auto) and not calibrator.way.grouped:
            self.by, self.groups = None, []
        return calibrator

    def _fold(self, law: Forecast, y: Tensor, windows: Windows) -> None:
        """Learn the same correction without the outcomes of each part of the rows, for forecasts of that part."""
        assert self.calibrator is not None
        if windows.independent() < FOLDS:
            return
        part = _parts(windows)
        rests = [windows.beside(part == one) for one in range(FOLDS)]
        if not all(rest.any() for rest in rests):
            return
        groups = self.groups_of(windows)
        for rest in rests:
            others = None if groups is None else groups[rest.numpy()]
            known = law[rest], y[rest]
            overlap = int(rest.sum()) / _evidence(*known, windows.only(rest.numpy()))
            self.folds.append(self.calibrator.again(*known, others, overlap))
        begin, end = windows.around()
        self.edges = [begin, *(windows.cut(part < one) for one in range(1, FOLDS)), end]

    def recalibrate(self, table: Table, calibration: str | None, by: str | None) -> None:
        """Another calibration, learned from the rows that training held out and all later ones; weights stay."""
        table = table.sorted()
        held = self.held.rows(table)
        try:
            windows = self.preparation.meeting(table, held).windows(table, after=held)
        except NoWindows:
            end = table.clock.index(np.array([self.held.typical]))[0]
            raise ValueError(
                f"the table has no forecasts to learn from after {end}, up to which the model was trained: pass the "
                "rows that training held out, or newer ones"
            ) from None
        self.recipe = replace(self.recipe, calibration=calibration, calibration_by=by)
        self.calibrate(windows, table.times)

    def law(self, windows: Windows, paths: int | None = None) -> Forecast:
        """The laws of some windows in the table's units, calibrated, and inside the support."""
        return self._corrected(self.uncorrected(windows, paths), windows)

    def _corrected(self, law: Forecast, windows: Windows) -> Forecast:
        """The laws of some windows, each corrected by a calibrator that had not seen it."""
        if self.calibrator is None:
            return law
        groups = self.groups_of(windows)
        fold = self._fold_of(windows)
        numbers = fold.unique().tolist()
        if numbers == [-1]:
            return self.calibrator.apply(law, groups)
        parts = []
        for one in numbers:
            rows = fold == one
            calibrator = self.calibrator if one < 0 else self.folds[one]
            parts.append(calibrator.apply(law[rows], None if groups is None else groups[rows.numpy()]))
        return Forecast.cat(parts)[fold.argsort(stable=True).argsort()]

    def _fold_of(self, windows: Windows) -> Tensor:
        """Which part of the outcomes that taught the correction each window belongs to, -1 for none."""
        if not self.folds:
            return torch.full((len(windows),), -1)
        begin, *between, end = self.edges
        first, last = windows.spans()
        taught = (last > windows.instants(begin)) & (first <= windows.instants(end))
        part = torch.stack([windows.made() > windows.instants(edge) for edge in between]).sum(0)
        return torch.where(taught, part, -1)

    def uncorrected(self, windows: Windows, paths: int | None = None) -> Forecast:
        """The same before calibration."""
        if self.net is None:
            return self._of_prior_law(windows)
        law = self._of_network(windows, paths)
        return law if self.zero_shot is None else blended(law, self._of_prior_law(windows), self._shares(windows))

    def _shares(self, windows: Windows) -> Tensor:
        """The share of the network in each forecast, (windows, 1, targets)."""
        common = [self.share] * len(self.preparation.columns.targets)
        series, place = windows.numbers.series[windows.origins].unique(return_inverse=True)
        labels = windows.numbers.labels["series"][series.numpy()]
        shares = torch.tensor([self.own.get(label, common) for label in labels.tolist()], dtype=torch.float64)
        return shares[place][:, None]

    def _of_prior_law(self, windows: Windows) -> Forecast:
        assert self.zero_shot is not None
        return clip(self.zero_shot.law(windows), self.support)

    def _of_network(self, windows: Windows, paths: int | None = None) -> Forecast:
        law, again = self.network.law(windows, paths), windows.numbers.again
        if again is None or not self.network.model.repeats:
            return clip(law, self.support)
        law.log_weights = law.log_weights.double().log_softmax(-1)  # one of them may be 1 to all digits of float32
        return clip(law, self.support, Again.of(law, again[windows.origins][:, None]))

    @property
    def outcomes(self) -> int:
        """How many independent outcomes the calibrator learned from."""
        return round(self.evidence)

    @property
    def at_once(self) -> int:
        """How many rows have their laws in memory at a time: it does not grow with the rows."""
        forecasts = self.preparation.horizon * len(self.preparation.columns.targets)
        gaussians = 1 if self.net is None else self.net.model.gaussians
        return max(1, MEMORY // (3 * 8 * gaussians * forecasts + 8 * self.preparation.memory))

    def chunks(self, windows: Windows) -> Iterator[Windows]:
        """All windows, as many at a time as may be in memory."""
        return windows.chunks(self.at_once)

    def laws(self, windows: Windows) -> Iterator[Forecast]:
        """The laws of all windows, one chunk after another."""
        return map(self.law, self.chunks(windows))

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
        self.context = context(table, self.preparation.reach + self.recipe.horizon)
        try:
            windows = self.preparation.windows(table)
        except NoWindows:
            return 0
        last = windows.steps()[:, -1].numpy()
        windows = windows.only(table.times[last] > known[table.series[last]]).by_time(table.times)
        if len(windows):
            y = windows.actuals()
            self.calibrator.observe(self.uncorrected(windows), y)
            self.evidence += len(windows) * _observed(y) / self.recipe.horizon
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
        self.context = context(table, preparation.reach + self.recipe.horizon)
        try:
            train = preparation.windows(table, after=begin, until=cut)
            later = preparation.windows(table, after=cut, numbers=train.numbers)
        except NoWindows:
            return History()
        self.held = Cut.of_labels(table.ids, np.full(len(table.ids), cut))
        history = History() if self.net is None else self._trained_on(self.net, train, later)
        if len(later) >= ENOUGH:
            self.doubt = None if self.doubt is None else self.doubt.extended(train)
            self.calibrate(later, table.times)
        return history

    def _trained_on(self, net: Network, train: Windows, later: Windows) -> History:
        """What happened as the network went on with new rows; it stays as it was if that was no better."""
        old = copy.deepcopy(net.model)
        rows, held = (rows_of(part, net.apart) for part in (train, checked(later)))
        settings = self.recipe.settings(len(rows)).shorter()
        history = fit(net.model, rows, held, settings, self.recipe.seed)
        if history.epochs[history.best - 1]["validation"] < nll(old, held):
            net.preparation, net.history = self.preparation, history
            net.finish(train, later, settings, self.recipe.nested)
        else:
            net.model = old
        return history

    @property
    def calibration(self) -> str:
        """What corrects the laws, and what that holds if nobody asked for it."""
        return self.calibrator.why if isinstance(self.calibrator, Auto) else self.recipe.calibration or "none"

    @property
    def parameters(self) -> int:
        """How many numbers were learned from the table."""
        if self.net is None:
            return 0
        return sum(parameter.numel() for parameter in self.net.model.parameters())

    @property
    def kind(self) -> str:
        """What forecasts, in a word or two."""
        prior = "fine-tuned prior" if self.zero_shot and self.zero_shot.tuned else "prior"
        if self.net is None:
            return prior
        name = type(self.net.model).__name__
        return name if self.zero_shot is None else f"{name} and {prior}"

    @property
    def history(self) -> History:
        """What happened in training: nothing where the prior forecasts alone."""
        return History() if self.net is None else self.net.history


def _parts(windows: Windows) -> Tensor:
    """Which of FOLDS parts each window belongs to: blocks of time, or, if all of a block's are shared, of series."""
    count = len(windows)
    part = torch.arange(count) * FOLDS // count
    if all(windows.beside(part == one).any() for one in range(FOLDS)):
        return part
    order = windows.numbers.series[windows.origins].argsort(stable=True)
    return part[order.argsort()]


def _scale(windows: Windows) -> Tensor:
    """The deviation of the series of each window, (windows, 1, targets)."""
    return windows.numbers.scale[windows.numbers.series[windows.origins]][:, None]


def _crps(law: Forecast, y: Tensor, scale: Tensor) -> float:
    """The mean CRPS of known outcomes in units of `scale`."""
    seen = ~y.isnan()
    return (law.crps(torch.where(seen, y, law.mean.double())) / scale)[seen].mean().item()


def _evidence(law: Forecast, y: Tensor, windows: Windows) -> float:
    """How many independent outcomes the forecasts of some windows have, at least 1."""
    made = windows.made()
    effect = design_effect(correlation_of(law, y, made), made)
    return max(1.0, windows.independent() * _observed(y) / effect)


def _observed(y: Tensor) -> float:
    """The share of forecasts of which any outcome is known."""
    return (~y.isnan()).flatten(1).any(1).double().mean().item()
