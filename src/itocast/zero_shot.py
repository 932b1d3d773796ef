"""Forecasts of a table by the prior, as it came or fine-tuned; any history will do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor

from itocast.data.clock import DAY
from itocast.data.table import Table
from itocast.data.windows import Windows
from itocast.forecast import Forecast

if TYPE_CHECKING:
    from itocast.prior import Prior
    from itocast.prior.fine_tuning import Report

USUAL = (4, 5, 6, 7, 10, 12, 24, 30, 48, 52, 60, 96, 144, 168, 288, 365)  # steps of seasons that are looked for
LONGEST_STEP = 7 * DAY  # beyond which no season but the calendar's is looked for
CONTEXT = 1024  # rows of its history that a forecast reads
FINEST = 0.1  # least deviation of a Gaussian, as a share of what values are rounded to


@dataclass(frozen=True)
class ZeroShot:
    """The prior, told how long the seasons of a table are."""

    prior: Prior
    seasons: tuple[int, int]  # in steps, the shorter first; 0 for none
    tuned: bool = False  # whether it was trained further on the table

    @classmethod
    def of(cls, table: Table) -> Self:
        """The prior for a table, whose seasons follow from how far apart its rows are, or from the data."""
        from itocast.prior import Prior

        return cls(Prior.load(), seasons_of(table))

    def fine_tuned(self, train: Windows, seed: int, report: Report) -> ZeroShot:
        """The same, trained further on windows of the table."""
        from itocast.prior.fine_tuning import LONGEST, Examples, batch_size, fine_tuned

        def draw(rows: int, generator: torch.Generator) -> Examples:
            some = torch.randint(len(train), (rows,), generator=generator)
            windows = replace(train, origins=train.origins[some])
            target = torch.randint(train.targets, (rows,), generator=generator)
            own = torch.arange(rows)
            history, y = windows.history(LONGEST), windows.actuals()
            seasons = torch.tensor(self.seasons).expand(rows, 2)
            return Examples(history[own, :, target], seasons, y[own, :, target])

        rows, independent = batch_size(train.longest), train.independent()
        prior = fine_tuned(self.prior, draw, rows, independent, seed, report)
        return replace(self, prior=prior, tuned=True)

    def law(self, windows: Windows) -> Forecast:
        """The laws of some windows in the table's units, (windows, horizon, targets)."""
        centre = windows.numbers.shift[windows.numbers.series[windows.origins]]
        history = started(windows.history(CONTEXT), centre)
        rows, length, targets = history.shape
        values = history.movedim(2, 1).reshape(rows * targets, length)
        seasons = torch.tensor(self.seasons).expand(len(values), 2)
        law = self.prior.law(values, seasons, windows.horizon)
        finest = FINEST * windows.numbers.rounding[windows.numbers.series[windows.origins]].flatten()
        log_variances = torch.logaddexp(law.log_variances, 2 * finest.log()[:, None, None, None])
        parts = (law.means, log_variances, law.log_weights)  # (1, rows · targets, horizon, 1, K)
        return Forecast.from_logs(*(part.unflatten(1, (rows, targets))[..., 0, :].movedim(2, 3) for part in parts))


def seasons_of(table: Table) -> tuple[int, int]:
    """The lengths of up to two seasons: by the calendar, or found in the data where that tells none."""
    from itocast.prior.seasons import find_seasons

    told = table.clock.seasons()
    if told[0] or (table.clock.dates and table.clock.step > LONGEST_STEP):
        return told
    longest = min(CONTEXT, int(np.diff(table.starts).max()))
    rows = table.starts[1:, None] - np.arange(longest, 0, -1)  # (series, longest)
    values = table.y[:, 0][rows.clip(min=0)]
    values = np.where(rows >= table.starts[:-1, None], values, np.nan)
    return find_seasons(torch.from_numpy(values), USUAL)


def started(history: Tensor, centre: Tensor) -> Tensor:
    """The same with the centre of its series where nothing of a target was observed yet."""
    nothing = history.isnan().all(1)  # (windows, targets)
    last = torch.where(nothing, centre, history[:, -1])
    return torch.cat([history[:, :-1], last[:, None]], 1)
