"""A Forecaster on a table of a known law: what it says, judged by the futures of that law."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd

from short_series.laws import Drawn
from short_series.rows import Row, Settings
from short_series.scores import PERCENTS, crps

Levels = tuple[int, ...]  # of intervals, in percent


def judge(drawn: Drawn, horizon: int, levels: Levels, seed: int, settings: Settings) -> Row:
    """Coverage of each level over all futures, and of the last step; CRPS over the true law's.

    Beside them what `evaluate` says of the same model, on the rows that it was fitted on.
    """
    from itocast import Forecaster

    began = time.process_time()
    try:
        forecaster = Forecaster(horizon, seed=seed, **settings).fit(drawn.frame)
        forecasts = forecaster.predict(level=list(levels), quantiles=list(PERCENTS))
    except Exception as error:  # a refusal and a fault alike are what is looked for
        return {"refused": f"{type(error).__name__}: {error}"}
    seconds = time.process_time() - began
    return {
        **held(drawn.futures, forecasts, levels),
        "crps_ratio": loss(drawn, forecasts),
        "missing": int(forecasts["mean"].isna().sum()),
        **said(forecaster, drawn.frame, levels),
        "seconds": seconds,
    }


def held(futures: np.ndarray, forecasts: pd.DataFrame, levels: Levels) -> Row:
    """The share of futures inside, over all steps and at the last."""
    found = {}
    for level in levels:
        low, high = (columns(forecasts, f"{side}-{level}", futures) for side in ("lo", "hi"))
        inside = (low <= futures) & (futures <= high)
        found[f"in_{level}"] = float(inside.mean())
        found[f"last_in_{level}"] = float(inside[..., -1].mean())
    return found


def loss(drawn: Drawn, forecasts: pd.DataFrame) -> float:
    """The CRPS of the forecasts over that of the true law."""
    names = [f"q-{level:g}" for level in PERCENTS]
    ours = np.stack([columns(forecasts, name, drawn.futures) for name in names], axis=-1)
    true = np.moveaxis(np.quantile(drawn.reference, PERCENTS, axis=0), 0, -1)
    return crps(drawn.futures, ours) / crps(drawn.futures, true)


def columns(forecasts: pd.DataFrame, name: str, futures: np.ndarray) -> np.ndarray:
    """A column as (series, horizon), in the order of the series."""
    return forecasts[name].to_numpy().reshape(futures.shape[1:])


def said(forecaster: Any, frame: pd.DataFrame, levels: Levels) -> Row:
    """The coverage that `evaluate` tells its user."""
    try:
        scores = forecaster.evaluate(frame)
    except Exception as error:
        return {"evaluate_refused": f"{type(error).__name__}: {error}"}
    over_all = scores[scores["by"] == "all"].iloc[0]
    return {f"said_{level}": float(over_all[f"coverage_{level}"]) for level in levels}
