"""Plots of forecasts, on matplotlib axes that are given or made, in colours that colour-blind people can tell apart."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from itocast import metrics
from itocast.forecast import Forecast

BLUE, ORANGE, GREEN, PURPLE, BLACK, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#555555"


def plot_calibration(laws: dict[str, Forecast], y: Any, ax: Axes | None = None) -> Axes:
    """Observed against expected coverage of central intervals, one curve a forecast, with a 95 % band of chance.

    The band is that of a calibrated forecast of as many independent rows.
    """
    ax = ax or _axes(5.2, 5.0)
    p = metrics.LEVELS.numpy()
    rows = next(iter(laws.values())).check(y).numel()
    chance = 1.96 * np.sqrt(p * (1 - p) / rows)
    ax.fill_between(
        100 * p,
        100 * (p - chance),
        100 * (p + chance),
        color=GREY,
        alpha=0.25,
        lw=0,
        label="calibrated, 95 % of the time",
    )
    ax.plot([0, 100], [0, 100], color=GREY, lw=0.8, ls="--")
    for (name, law), colour in zip(laws.items(), cycle((BLUE, ORANGE, GREEN, PURPLE, BLACK)), strict=False):
        _, observed = metrics.calibration_curve(law, y)
        ax.plot(
            100 * p, 100 * observed.numpy(), color=colour, lw=1.8, label=f"{name} (CWCE {metrics.cwce(law, y):.2f})"
        )
    ax.set(xlabel="expected coverage (%)", ylabel="observed coverage (%)", xlim=(0, 100), ylim=(0, 100), aspect="equal")
    ax.set_title("Coverage of central intervals")
    ax.legend(loc="upper left", frameon=False)
    return ax


def plot_intervals(law: Forecast, y: Any, x: Any, unit: str = "", ax: Axes | None = None) -> Axes:
    """Mean, 50 % and 95 % intervals and what happened, for the first step and target, over x."""
    ax = ax or _axes(10, 3.6)
    truth = law.check(y)[:, 0, 0].numpy()
    for level, alpha in ((95, 0.22), (50, 0.45)):
        low, high = (bound[:, 0, 0].numpy() for bound in law.interval(level))
        ax.fill_between(x, low, high, color=BLUE, alpha=alpha, lw=0, label=f"{level} % interval")
    ax.plot(x, law.mean[:, 0, 0].numpy(), color=BLUE, lw=1.2, label="mean")
    ax.plot(x, truth, ".", color=ORANGE, ms=4, label="observed")
    ax.set_ylabel(unit)
    return _finish(ax, columns=4)


def plot_uncertainty(law: Forecast, x: Any, unit: str = "", ax: Axes | None = None) -> Axes:
    """Aleatoric and epistemic standard deviation of the first step and target, over x."""
    ax = ax or _axes(10, 2.2)
    for name, variance, colour in (("aleatoric", law.aleatoric, GREEN), ("epistemic", law.epistemic, PURPLE)):
        ax.plot(x, variance[:, 0, 0].sqrt().numpy(), color=colour, lw=1.5, label=name)
    ax.set_ylabel(f"deviation\n({unit})" if unit else "deviation")
    if (law.epistemic > 0).all():
        ax.set_yscale("log")  # the two may differ by orders of magnitude
    return _finish(ax, columns=2)


def _finish(ax: Axes, columns: int) -> Axes:
    """Room above the curves for a legend in one line, and short dates."""
    room = 1 + (0.15 if columns > 2 else 0.3)
    ax.set_ylim(top=ax.transData.inverted().transform(ax.transAxes.transform((0, room)))[1])
    ax.legend(loc="upper left", ncols=columns, frameon=False)
    ax.margins(x=0.01)
    if isinstance(ax.xaxis.get_major_locator(), AutoDateLocator):
        formats = ["%Y", "%b %Y", "%d %b", "%H:%M", "%H:%M", "%S.%f"]
        starts = ["", "%Y", "%d %b", "%d %b", "%H:%M", "%H:%M"]  # of a year, month, day …
        locator = ax.xaxis.get_major_locator()
        ax.xaxis.set_major_formatter(
            ConciseDateFormatter(locator, formats=formats, zero_formats=starts, show_offset=False)
        )
    return ax


def _axes(width: float, height: float) -> Axes:
    return Figure(figsize=(width, height), layout="constrained").subplots()
