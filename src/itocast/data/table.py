"""Tables: columns that were checked once, so that all later code can trust them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Table:
    """A frame in time order with the names of its time column, targets and numeric covariates."""

    frame: pd.DataFrame
    time: str | None
    targets: tuple[str, ...]
    covariates: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.frame)

    def values(self, columns: Sequence[str]) -> np.ndarray:
        """Some columns as float64, (rows, columns)."""
        return self.frame[list(columns)].to_numpy(np.float64, copy=True)


def read_table(
    source: pd.DataFrame | str | Path, targets: Sequence[str], covariates: Sequence[str] = (), time: str | None = None,
    order: Literal["check", "sort"] = "check",
) -> Table:  # fmt: skip
    """Read a frame or a CSV file and check the columns that will be used.

    Rows must be in time order; `order="sort"` puts them there, equal times keeping the order of the file. Time may
    repeat: rows are taken as they come. Targets and covariates must be finite numbers.

    >>> frame = pd.DataFrame({"day": ["2024-01-01", "2024-01-02"], "sales": [3, 4]})
    >>> read_table(frame, targets=["sales"], time="day").frame["day"].dtype.kind
    'M'
    >>> read_table(frame, targets=["price"])
    Traceback (most recent call last):
    ValueError: targets names column 'price', which is not in the table: its columns are day, sales
    """
    frame = source if isinstance(source, pd.DataFrame) else _read_csv(Path(source))
    if len(frame) == 0:
        raise ValueError("source holds no rows: expected a table with at least one")
    if frame.columns.has_duplicates:
        raise ValueError(f"column {frame.columns[frame.columns.duplicated()][0]!r} is there twice: rename one")
    wanted = {"targets": _names("targets", targets), "covariates": _names("covariates", covariates)}
    if not wanted["targets"]:
        raise ValueError("targets is empty: name at least one column to forecast")
    if both := set(wanted["targets"]) & set(wanted["covariates"]):
        raise ValueError(f"column {min(both)!r} is named in targets and in covariates: name it in one of them")
    for argument, names in {**wanted, "time": (time,) if time else ()}.items():
        for name in names:
            if name not in frame.columns:
                columns = ", ".join(map(str, frame.columns))
                raise ValueError(
                    f"{argument} names column {name!r}, which is not in the table: its columns are {columns}"
                )
    frame = frame.copy(deep=False)
    if time:
        frame[time] = _times(frame[time])
        frame = _in_order(frame, time, order)
    for argument, names in wanted.items():
        for name in names:
            frame[name] = _numbers(frame[name], argument)
    return Table(frame.reset_index(drop=True), time, wanted["targets"], wanted["covariates"])


def rows_text(mask: np.ndarray) -> str:
    """A count and the first few positions at which a mask is true.

    >>> rows_text(np.array([False, True, True]))
    '2 rows (1, 2)'
    """
    places = np.flatnonzero(mask)
    shown = ", ".join(map(str, places[:5])) + (", …" if len(places) > 5 else "")
    return f"{len(places):,} row{'s' if len(places) > 1 else ''} ({shown})"


def _names(argument: str, names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise TypeError(f"{argument}={names!r}: expected a list of column names, such as [{names!r}]")
    if len(set(names)) < len(names):
        raise ValueError(f"{argument}={list(names)}: a column is named twice")
    return tuple(names)


def _read_csv(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise FileNotFoundError(f"source={str(path)!r}: there is no such file")
    try:
        return pd.read_csv(path)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError, OSError, EOFError) as error:
        raise ValueError(f"source={str(path)!r} is not a CSV file that can be read: {str(error).strip()}") from None


def _times(column: pd.Series) -> pd.Series:
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        times = column
    else:
        try:
            times = pd.to_datetime(column, errors="coerce", format="ISO8601")
        except ValueError:  # offsets that change, as with daylight saving
            raise ValueError(
                f"time column {column.name!r} mixes offsets from UTC: convert it, pandas.to_datetime(column, utc=True)"
            ) from None
    bad = times.isna().to_numpy()
    if bad.any():
        raise ValueError(
            f"time column {column.name!r} has no readable time in {rows_text(bad)}; "
            f"the first reads {column[bad].iloc[0]!r}: correct or drop them"
        )
    return times


def _in_order(frame: pd.DataFrame, time: str, order: str) -> pd.DataFrame:
    if order not in ("check", "sort"):
        raise ValueError(f"order={order!r}: expected 'check' or 'sort'")
    times = frame[time].to_numpy()
    back = np.concatenate([[False], times[1:] < times[:-1]])
    if not back.any():
        return frame
    if order == "check":
        raise ValueError(f"time column {time!r} goes back in {rows_text(back)}: pass order='sort', or sort the table")
    return frame.sort_values(time, kind="stable")


def _numbers(column: pd.Series, argument: str) -> pd.Series:
    if not pd.api.types.is_numeric_dtype(column):
        text = (pd.to_numeric(column, errors="coerce").isna() & column.notna()).to_numpy()
        raise ValueError(
            f"column {column.name!r} in {argument} holds text, not numbers, in {rows_text(text)}: convert them"
        )
    bad = ~np.isfinite(column.to_numpy(np.float64, na_value=np.nan))
    if bad.any():
        raise ValueError(f"column {column.name!r} is missing or infinite in {rows_text(bad)}: fill or drop them")
    return column
