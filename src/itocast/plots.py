"""Plots of forecasts, on matplotlib axes that are given or made, in colours that colour-blind people can tell apart.

Each takes `ax` and returns it. `x` has one value for each forecast, row after row and step after step; of several
targets the first is drawn: `law.select(step, target)` picks others.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from torch import Tensor

from itocast import metrics
from itocast.arguments import choice, whole
from itocast.forecast import Forecast, as_tensor

if TYPE_CHECKING:
    from itocast.data.table import Table
    from itocast.data.windows import Windows
    from itocast.fitted import Fitted

BLUE, ORANGE, GREEN, PURPLE, BLACK, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#555555"
LEVELS = ((95, 0.22), (50, 0.45))  # intervals, and how dark they are
DRAWN = 50  # courses that are drawn one by one


def plot_calibration(laws: Forecast | dict[str, Forecast], y: Any, ax: Axes | None = None) -> Axes:
    """Observed against expected coverage of central intervals, one curve a forecast, with a 95 % band of chance.

    The band is that of a calibrated forecast of as many independent rows.
    """
    laws = {"forecast": laws} if isinstance(laws, Forecast) else laws
    ax = ax or _axes(5.2, 5.0)
    p = metrics.LEVELS.numpy()
    low, high = metrics.chance_band(p, next(iter(laws.values())).check(y).numel())
    label = "calibrated, 95 % of the time"
    ax.fill_between(100 * p, 100 * low, 100 * high, color=GREY, alpha=0.25, lw=0, label=label)
    ax.plot([0, 100], [0, 100], color=GREY, lw=0.8, ls="--")
    for (name, law), colour in zip(laws.items(), cycle((BLUE, ORANGE, GREEN, PURPLE, BLACK)), strict=False):
        _, observed = metrics.calibration_curve(law, y)
        label = f"{name} (CWCE {metrics.cwce(law, y):.2f})"
        ax.plot(100 * p, 100 * observed.numpy(), color=colour, lw=1.8, label=label)
    ax.set(xlabel="expected coverage (%)", ylabel="observed coverage (%)", xlim=(0, 100), ylim=(0, 100), aspect="equal")
    ax.set_title("Coverage of central intervals")
    ax.legend(loc="upper left", frameon=False)
    return ax


def plot_intervals(law: Forecast, y: Any = None, x: Any = None, unit: str = "", ax: Axes | None = None) -> Axes:
    """Mean, 50 % and 95 % intervals, and what happened if that is known, over x."""
    ax, x = ax or _axes(10, 3.6), _places(law, x)
    for level, alpha in LEVELS:
        low, high = map(_flat, law.interval(level))
        ax.fill_between(x, low, high, color=BLUE, alpha=alpha, lw=0, label=f"{level} % interval")
    ax.plot(x, _flat(law.mean), color=BLUE, lw=1.2, label="mean")
    if y is not None:
        ax.plot(x, _flat(law.check(y, missing=True)), ".", color=ORANGE, ms=4, label="observed")
    ax.set_ylabel(unit)
    return _finish(ax, columns=4)


def plot_uncertainty(law: Forecast, x: Any = None, unit: str = "", ax: Axes | None = None) -> Axes:
    """Aleatoric and epistemic standard deviation, over x."""
    ax, x = ax or _axes(10, 2.2), _places(law, x)
    for name, variance, colour in (("aleatoric", law.aleatoric, GREEN), ("epistemic", law.epistemic, PURPLE)):
        ax.plot(x, _flat(variance.sqrt()), color=colour, lw=1.5, label=name)
    ax.set_ylabel(f"deviation\n({unit})" if unit else "deviation")
    if (law.epistemic > 0).all():
        ax.set_yscale("log")  # the two may differ by orders of magnitude
    return _finish(ax, columns=2)


def plot_trajectories(draws: Any, y: Any = None, x: Any = None, unit: str = "", ax: Axes | None = None) -> Axes:
    """Sampled courses (paths, points), the first 50 of them one by one, their mean, and what happened, over x."""
    paths = as_tensor("draws", draws).numpy()
    if paths.ndim != 2:
        raise ValueError(f"draws has shape {paths.shape}: expected (paths, points), such as law.sample(20)[:, 0, :, 0]")
    ax, x = ax or _axes(10, 3.6), np.arange(1, paths.shape[1] + 1) if x is None else x
    shown = paths[:DRAWN]
    lines = ax.plot(x, shown.T, color=BLUE, lw=0.8, alpha=max(0.15, 1 / len(shown)))
    lines[0].set_label("sampled courses")
    ax.plot(x, paths.mean(0), color=BLUE, lw=1.8, label=f"mean of {len(paths)}")
    if y is not None:
        ax.plot(x, np.asarray(y), ".", color=ORANGE, ms=4, label="observed")
    ax.set_ylabel(unit)
    return _finish(ax, columns=3)


def plot_ahead(
    fitted: Fitted, table: Table, windows: Windows, series: Any = None, target: str | None = None,
    rows: int | None = None, paths: int | None = None, unit: str = "", ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """The end of a series and its forecast: see `Forecaster.plot`."""
    labels, targets = table.ids.tolist(), table.columns.targets
    place = 0 if series is None else labels.index(choice("series", series, labels))
    column = 0 if target is None else targets.index(choice("target", target, targets))
    rows = max(windows.window, 2 * windows.horizon) if rows is None else whole("rows", rows)
    one = windows.only(np.arange(len(windows)) == place)
    origin = int(one.origins[0])
    past = slice(max(int(table.starts[place]), origin + 1 - rows), origin + 1)
    times = table.clock.index(table.times)
    times = times.tz_localize(None) if table.clock.zone else times
    ahead, law = times[origin + 1 : origin + 1 + windows.horizon], fitted.law(one)
    ax = ax or _axes(10, 3.6)
    ax.plot(times[past], table.y[past, column], ".-", color=ORANGE, ms=4, lw=0.8, label="observed")
    if paths is None:
        name = targets[column] if series is None or len(targets) > 1 else str(series)
        plot_intervals(_column(law, column), None, ahead, unit or name, ax)
    else:
        draws = fitted.dependence.sample(law, whole("paths", paths), fitted.recipe.seed)[:, 0, :, column]
        plot_trajectories(draws, None, ahead, unit or targets[column], ax)
    return ax


def _column(law: Forecast, target: int) -> Forecast:
    """The law of one target, its steps as rows."""
    return Forecast.cat([law.select(step, target) for step in range(law.shape[1])])


def _flat(values: Tensor) -> np.ndarray:
    """The first target of (rows, horizon, targets), row after row and step after step."""
    return values[..., 0].reshape(-1).numpy()


def _places(law: Forecast, x: Any) -> Any:
    points = law.shape[0] * law.shape[1]
    if x is None:
        return np.arange(1, points + 1)
    if len(x) != points:
        raise ValueError(
            f"x has {len(x)} values: expected {points}, one for each row and step; law.select(0, 0) is the first step"
        )
    return x


def _finish(ax: Axes, columns: int) -> Axes:
    """Room above the curves for a legend in one line, and short dates."""
    room = 1 + (0.15 if columns > 2 else 0.3)
    ax.get_ylim()  # brings the transformation below up to date
    ax.set_ylim(top=ax.transData.inverted().transform(ax.transAxes.transform((0, room)))[1])
    ax.legend(loc="upper left", ncols=5, frameon=False)
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
