"""Forecasts as the bytes of an answer."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

from itocast.serve.limits import Refused

TYPES = {"json": "application/json", "csv": "text/csv; charset=utf-8"}


def encode(frame: pd.DataFrame, form: str, model: str, version: str, warnings: list[str]) -> bytes:
    """JSON with every digit, or CSV as `itocast predict` writes it."""
    numbers = [frame[name].to_numpy() for name in frame if frame[name].dtype.kind == "f"]
    if not all(np.isfinite(column).all() for column in numbers):
        raise Refused(422, "the forecast is not a finite number: values in the table are too large for the model")
    if form == "csv":
        return frame.to_csv(index=False, float_format="%.10g").encode()
    names, columns = list(frame), [_plain(frame[name]) for name in frame]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return json.dumps({"model": model, "version": version, "forecast": rows, "warnings": warnings}).encode()


def _plain(column: pd.Series) -> list[Any]:
    """Values of JSON; times as in 2024-12-31T23:59:00."""
    if isinstance(column.dtype, pd.DatetimeTZDtype) or column.dtype.kind == "M":
        return [time.isoformat() for time in column]
    return column.tolist()


def form_of(wanted: str | None, accept: str) -> str:
    """json or csv: the one that is named, or that the header Accept would rather have."""
    if wanted is not None:
        if wanted not in TYPES:
            raise Refused(422, f"format={wanted!r}: expected one of {', '.join(TYPES)}")
        return wanted
    names = [part.split(";")[0].strip().lower() for part in accept.split(",")]
    for name in names:
        if name in ("application/json", "application/*", "*/*", ""):
            return "json"
        if name in ("text/csv", "text/*"):
            return "csv"
    raise Refused(406, f"Accept={accept!r}: expected application/json or text/csv")
