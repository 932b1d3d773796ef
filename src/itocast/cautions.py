"""Warnings: intervals that missed, networks that learned little, and what leaves the range that training saw."""

from __future__ import annotations

import warnings

import numpy as np
from torch import Tensor

from itocast.data.preparation import Preparation
from itocast.data.table import Table
from itocast.data.windows import Windows
from itocast.forecast import Forecast
from itocast.metrics import chance_band
from itocast.training import History

LEVELS = (80, 95)  # percent: of intervals that a fit looks at
SLACK = 0.01  # by which a coverage may be less besides chance
RARE = 0.01  # chance of a warning where intervals hold
EARLY = 2  # a best epoch up to which a network learned little
BEYOND = 0.5  # of the width of a range, outside of which a level counts as new
FAR = 1.0  # the same for a covariate
NAMED = 3  # series that a warning names


def warn_of_misses(law: Forecast, y: Tensor, outcomes: int) -> None:
    """Say so where intervals hold less than they should by more than chance explains.

    `y` is nan where missing; the forecasts count as so many independent `outcomes`.
    """
    seen = ~y.isnan()
    for level in LEVELS:
        low, high = law.interval(level)
        held = ((low <= y) & (y <= high))[seen].double().mean().item()
        least, most = chance_band(level / 100, outcomes, chance=RARE)
        if held < least - SLACK:
            warnings.warn(
                f"intervals of {level} % held {100 * held:.1f} % of what happened in the held-out rows, which count as "
                f"about {outcomes} independent outcomes: chance explains {100 * least:.0f} to {100 * most:.0f} %. "
                "Do not rely on their width; diagnose(df), or itocast doctor, tells where they fail",
                stacklevel=5,
            )


def warn_of_an_early_end(history: History) -> None:
    """Say so where the network was best after its first epochs."""
    if history.stopped == "early" and history.best <= EARLY:
        warnings.warn(
            f"of {len(history.epochs)} epochs number {history.best} was the best: what the network learned later did "
            "not hold on newer rows. Either they differ from older ones, or there is little to learn: compare with "
            "model='prior', or fit on the rows since the change",
            stacklevel=4,
        )


def warn_of_new_levels(windows: Windows, table: Table) -> None:
    """Say which series stand at a level that the network did not learn from."""
    numbers = windows.numbers
    series = numbers.series[windows.origins]
    low, high = numbers.low[series], numbers.high[series]
    centre = windows.levels()[0][:, 0]
    margin = BEYOND * (high - low)
    new = (centre < low - margin) | (centre > high + margin)
    new &= low <= high  # a series that training did not see has no range
    rows = new.any(1)
    if rows.any():
        labels = table.ids[np.unique(series[rows].numpy())]
        warnings.warn(
            f"{_share(labels, table)} at a level that training did not see: these forecasts rest on "
            "the shape of the last rows alone, and their intervals may hold less. If rows came since, fit anew, or "
            "update; else compare with model='prior'",
            stacklevel=4,
        )


def warn_of_new_values(preparation: Preparation, windows: Windows, table: Table) -> None:
    """Say which covariates are far outside what training saw."""
    last = windows.origins.numpy()
    steps = windows.steps().numpy().reshape(-1)
    for names, rows in ((preparation.columns.past, last), (preparation.columns.future, steps)):
        for name in names:
            if name not in preparation.limits:
                continue
            low, high = preparation.limits[name]
            margin = FAR * (high - low)
            values = table.values[name][rows]
            far = (values < low - margin) | (values > high + margin)
            if far.any():
                labels = table.ids[np.unique(table.series[rows[far]])]
                warnings.warn(
                    f"covariate {name!r} reads {values[far][0]:g} where training saw {low:g} to {high:g}: "
                    f"{_share(labels, table)} concerned; check the value, or fit on rows that have such values",
                    stacklevel=4,
                )


def _share(labels: np.ndarray, table: Table) -> str:
    """How many series, and the first of them."""
    if not table.columns.id:
        return "the series is"
    names = ", ".join(str(label) for label in labels[:NAMED])
    more = ", …" if len(labels) > NAMED else ""
    verb = "is" if len(labels) == 1 else "are"
    return f"{len(labels):,} of {len(table.ids):,} series ({names}{more}) {verb}"
