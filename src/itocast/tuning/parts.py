"""Rows to learn from, and newer rows that score what was learned, the same forecasts for all settings."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch

from itocast.data.preparation import Preparation
from itocast.data.table import Table
from itocast.fitted import Fitted, Recipe

SCORED = 10_000  # forecasts of one step and target, evenly spaced
BLOCKS, FEWEST = 20, 3  # of time into which they are cut, each at least as long as the horizon


@dataclass(frozen=True)
class Part:
    """A table up to its newest row of interest; what is later than `cut` scores and is seen by nothing else."""

    table: Table
    cut: int
    learned: Table  # up to the cut
    origins: np.ndarray  # (forecasts,): ascending
    blocks: np.ndarray  # (forecasts,): the number of the block of time that each is in
    counts: np.ndarray  # (blocks,): observed values that are forecast

    @classmethod
    def of(cls, table: Table, cut: int, widest: Preparation) -> Part:
        """With the forecasts that the longest window can make too."""
        windows = widest.meeting(table, cut).windows(table, after=cut)
        times = np.unique(table.times[windows.origins.numpy()])
        count = min(BLOCKS, len(times) // widest.horizon)
        if count < FEWEST:
            raise ValueError(
                f"horizon={widest.horizon}: the rows after {table.clock.index(np.array([cut]))[0]} hold forecasts from "
                f"{len(times)} times, expected at least {FEWEST} times the horizon to tell settings apart; give more "
                "rows, or a smaller horizon"
            )
        windows = windows.thin(max(1, SCORED // (widest.horizon * len(table.columns.targets))))
        origins = windows.origins.numpy()
        blocks = np.searchsorted(times, table.times[origins]) * count // len(times)
        observed = (~windows.actuals().isnan()).sum((1, 2)).numpy()
        counts = np.bincount(blocks, observed, minlength=count)
        return cls(table, cut, table.until(cut), origins, blocks, counts)

    def crps(self, recipe: Recipe) -> np.ndarray:
        """The sums over each block, in the table's unit, of a forecaster that knows the rows up to the cut."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a fit warns of, the fit of the settings that are kept says again
            fitted = Fitted.train(self.learned, recipe)
            windows = fitted.preparation.meeting(self.table, self.cut).windows(self.table, after=self.cut)
            sums = []
            windows = windows.only(np.isin(windows.origins.numpy(), self.origins))
            for part in fitted.chunks(windows):
                law, y = fitted.law(part), part.actuals()
                missing = y.isnan()
                scores = law.crps(y.where(~missing, law.mean.double())).double().where(~missing, 0.0)
                sums.append(scores.sum((1, 2)))
        found = np.bincount(self.blocks, torch.cat(sums).numpy(), minlength=len(self.counts))
        if not np.isfinite(found).all():
            raise ArithmeticError(f"its CRPS is {found.sum()}")
        return found
