"""Local methods of statsforecast, which lives in an environment of its own: a law a series."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

from short_series.scores import TENTHS, Answer
from short_series.tasks import LEVELS, Task

WIDTHS = (20, 40, 60, 80)  # percent, of intervals whose ends are 0.1 … 0.9
SEASONS = {"D": 7}  # that a user of days would name, where the scores know none
METHODS = ("AutoETS", "AutoARIMA")


def seasons(task: Task) -> list[int]:
    """That of the scores, and another that one would try."""
    return sorted({task.season, SEASONS.get(task.freq, task.season)})


def answer(method: str, season: int, task: Task) -> tuple[Answer, float]:
    """Laws of all series, and the seconds they took."""
    models = import_module("statsforecast.models")
    model = getattr(models, method)(season_length=season)
    began = time.process_time()
    forecasts = [_forecast(model, past, task.horizon) for past in task.pasts]
    seconds = time.process_time() - began
    columns = {name: np.stack([one[name] for one in forecasts]) for name in forecasts[0]}
    lower = [columns[f"lo-{width}"] for width in reversed(WIDTHS)]
    upper = [columns[f"hi-{width}"] for width in WIDTHS]
    quantiles = np.stack([*lower, columns["mean"], *upper], axis=-1)
    assert quantiles.shape[-1] == len(TENTHS)
    intervals = {level: (columns[f"lo-{level}"], columns[f"hi-{level}"]) for level in LEVELS}
    return Answer(quantiles, intervals), seconds


def _forecast(model: Any, past: np.ndarray, horizon: int) -> dict[str, np.ndarray]:
    """Mean and bounds of one series, whose missing values are those before them."""
    known = pd.Series(past).ffill().bfill().to_numpy()
    levels = sorted({*WIDTHS, *LEVELS})
    found: dict[str, np.ndarray] = model.forecast(known, horizon, level=levels)
    return found
