"""What tabular peers read: the inputs of our models as one flat matrix, in the units of the table."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from against.settings import Parts
from itocast.data.series import carried
from itocast.data.windows import Windows


@dataclass(frozen=True)
class Rows:
    """One row for each forecast of one step: features, outcome, and the column of the value it is near to, if any."""

    x: np.ndarray  # (rows, columns), float32
    y: np.ndarray  # (rows,)
    names: tuple[str, ...]
    categories: tuple[int, ...] = ()  # columns
    anchor: int | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def near(self) -> np.ndarray:
        """The last value, or of several steps that a window before the step; 0 where there is no such thing."""
        return np.zeros(len(self)) if self.anchor is None else self.x[:, self.anchor].astype(np.float64)

    def take(self, which: np.ndarray | slice) -> Rows:
        """Some of the rows."""
        return replace(self, x=self.x[which], y=self.y[which])

    def and_then(self, others: Rows) -> Rows:
        """These rows, then others."""
        return replace(self, x=np.concatenate([self.x, others.x]), y=np.concatenate([self.y, others.y]))

    def seen(self) -> Rows:
        """Those whose outcome is known."""
        return self.take(~np.isnan(self.y))


def flat(parts: Parts, windows: Windows, most: int | None = None) -> list[Rows]:
    """Features and outcomes of some windows, one table for each target; steps of a forecast lie one below the other.

    All lags of all targets, the last value of each covariate, time between rows over the window, and for the step that
    is forecast calendar and how much later than usual it is; of several steps also its number and the value a window
    before it. The series is a category. Of windows that would give more than `most` rows, evenly spaced ones are taken.
    """
    horizon = windows.horizon
    windows = windows.thin(most // horizon) if most else windows
    fixed = _at_origin(parts, windows)
    ahead = _of_step(parts, windows, fixed["lag"].reshape(len(windows), windows.window, -1))
    x = np.concatenate(
        [np.repeat(np.concatenate(list(fixed.values()), 1), horizon, 0), *(part for part in ahead.values())], 1
    )
    names = tuple(f"{name} {i}" for name, part in (fixed | ahead).items() for i in range(part.shape[1]))
    categories = tuple(i for i, name in enumerate(names) if name.startswith(("series", "code")))
    y, targets = windows.actuals().numpy(), windows.numbers.y.shape[1]
    near = names.index("before 0") if horizon > 1 else (windows.window - 1) * targets  # lags: by time, then by target
    return [Rows(x, y[:, :, i].reshape(-1), names, categories, near + i) for i in range(targets)]


def _at_origin(parts: Parts, windows: Windows) -> dict[str, np.ndarray]:
    """What is the same for all steps, (windows, columns)."""
    table, preparation, numbers = parts.table, parts.preparation, windows.numbers
    origin, back = windows.origins.numpy(), windows.back(slice(None)).numpy()
    past = [name for name in table.columns.past if name not in preparation.categories]
    found = {
        "lag": carried(table, table.y)[0][back].reshape(len(origin), -1),
        "past": carried(table, table.numbers(past))[0][origin],
        "code": numbers.past_codes.values[windows.origins].numpy(),
        "gap": numbers.gaps[back].flatten(1).numpy(),
        "series": table.series[origin][:, None][:, : bool(preparation.identity)],
    }
    return {name: part.astype(np.float32) for name, part in found.items()}


def _of_step(parts: Parts, windows: Windows, lags: np.ndarray) -> dict[str, np.ndarray]:
    """What belongs to a step, (windows · horizon, columns); lags are (windows, rows, targets)."""
    table, steps, horizon = parts.table, windows.steps(), windows.horizon
    ahead = steps.flatten().numpy()
    late = torch.cat([torch.zeros(len(windows), 0), *windows._until(windows.origins, steps)], 1)
    found = {"late": late.reshape(len(ahead), -1).numpy()}
    if horizon > 1:
        found["step"] = np.tile(np.arange(horizon), len(windows))[:, None]
        found["before"] = lags[:, np.arange(horizon) % windows.window].reshape(len(ahead), -1)
    if parts.preparation.cycles:
        times = table.clock.index(table.times[ahead])
        hour = times.hour + times.minute / 60
        found["calendar"] = np.stack([hour, times.day_of_week, times.day, times.day_of_year], 1)
    return {name: part.astype(np.float32) for name, part in found.items()}
