"""Single columns of a user's table: opened, understood, and refused with rows and remedy where they are not sound."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import narwhals as nw
import numpy as np
import pandas as pd

from itocast.data.clock import Clock

CSV: dict[str, Any] = {"keep_default_na": False, "na_values": [""], "low_memory": False}  # how files are read
if pd.__version__.startswith(("1.", "2.")):  # later ones take numbers as they were written, to the last digit
    CSV["float_precision"] = "round_trip"
MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none", "-", "?"}  # words for a number that is not there


class NotInParts(ValueError):
    """A file that can only be understood whole."""


def rows_text(mask: np.ndarray) -> str:
    """A count and the first few positions at which a mask is true.

    >>> rows_text(np.array([False, True, True]))
    '2 rows (1, 2)'
    """
    return places_text(np.flatnonzero(mask))


def places_text(places: np.ndarray) -> str:
    """A count and the first few of some positions."""
    shown = ", ".join(map(str, places[:5])) + (", …" if len(places) > 5 else "")
    return f"{len(places):,} row{'s' if len(places) > 1 else ''} ({shown})"


def open_frame(source: Any) -> nw.DataFrame:
    """A frame, a path to CSV, CSV.gz or Parquet, or an open CSV file, as a frame that is not empty."""
    if isinstance(source, str | Path):
        source = _read_file(Path(source))
    elif hasattr(source, "read"):
        source = _read_csv(source, "the input")
    try:
        frame = nw.from_native(source, eager_only=True)
    except TypeError:
        raise TypeError(
            f"source is a {type(source).__name__}: expected a pandas or polars DataFrame, or a path to CSV or Parquet"
        ) from None
    except ValueError as error:  # narwhals refuses repeated names
        raise ValueError(f"source has a column name twice: rename one ({str(error).strip()})") from None
    if len(frame) == 0:
        raise ValueError("source holds no rows: expected a table with at least one")
    return frame


def _read_file(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise FileNotFoundError(f"source={str(path)!r}: there is no such file")
    if path.suffix not in (".parquet", ".pq"):
        return _read_csv(path, f"source={str(path)!r}")
    try:
        return pd.read_parquet(path)
    except ImportError:
        raise ImportError("reading Parquet needs pyarrow: pip install 'itocast[parquet]'") from None
    except (ValueError, OSError) as error:
        raise ValueError(f"source={str(path)!r} is not a Parquet file that can be read: {error}") from None


def _read_csv(source: Path | IO[Any], name: str) -> pd.DataFrame:
    """ "NA" and "None" may be names: what is missing in a column of numbers is settled in `numbers`."""
    with csv_errors(name):
        return separated(pd.read_csv(source, **CSV), name)


@contextmanager
def csv_errors(name: str) -> Iterator[None]:
    """Say what is wrong with a file that is no CSV."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} is not a CSV file in UTF-8: {error.reason} at byte {error.start}; save it so"
        ) from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, OSError, EOFError) as error:
        raise ValueError(f"{name} is not a CSV file that can be read: {str(error).strip()}") from None


def separated(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """A frame whose fields were separated by commas."""
    if len(frame.columns) == 1 and any(mark in str(frame.columns[0]) for mark in ";\t|"):
        raise ValueError(
            f"{name} has one column, {str(frame.columns[0])!r}: fields must be separated by commas; "
            "read it with pandas.read_csv(path, sep=...) and pass the frame"
        )
    return frame


def labels(frame: nw.DataFrame, name: str | None) -> tuple[np.ndarray, np.ndarray]:
    """The distinct ids in order of appearance, and each row's number among them."""
    if name is None:
        return np.array([""], object), np.zeros(len(frame), int)
    column = _objects(frame[name])
    missing = pd.isna(column)
    if missing.any():
        raise ValueError(f"id column {name!r} is missing in {rows_text(missing)}: fill or drop them")
    codes, distinct = pd.factorize(column)
    plain = [label if isinstance(label, str | int | float) else str(label) for label in distinct]
    return np.array(plain, object), codes


def instants(
    frame: nw.DataFrame, name: str | None, series: np.ndarray, clock: Clock | None, iso: bool = False
) -> tuple[np.ndarray, str | None, bool]:
    """Times as int64 (see Clock), the zone, and whether they are dates; row numbers if there is no time column.

    With `iso`, dates that are not written as in 2024-12-31 are refused: they may have to be seen all together.
    """
    if name is None:
        order = np.argsort(series, kind="stable")
        starts = np.searchsorted(series[order], series)
        number = np.empty(len(series), int)
        number[order] = np.arange(len(series))
        return number - starts, None, False
    column = frame[name]
    if column.dtype.is_numeric():
        if clock and clock.dates:
            raise ValueError(f"time column {name!r} holds numbers, in training it held dates: convert it")
        return _whole(column, name), None, False
    if clock and not clock.dates:
        raise ValueError(f"time column {name!r} holds dates, in training it held whole numbers: convert it")
    index = _dates(column, name, iso)
    zone = str(index.tz) if index.tz is not None else None
    if clock and (zone is None) != (clock.zone is None):
        before, now = (f"zone {z}" if z else "no zone" for z in (clock.zone, zone))
        raise ValueError(f"time column {name!r} has {now}, in training it had {before}: convert it")
    return index.as_unit("us").asi8, zone, True


def _whole(column: nw.Series, name: str) -> np.ndarray:
    values = column.to_numpy().astype(np.float64)
    bad = ~np.isfinite(values) | (values != np.floor(values)) | (np.abs(values) > 2**53)
    if bad.any():
        raise ValueError(
            f"time column {name!r} holds numbers that are missing or not whole in {rows_text(bad)}: "
            "use whole numbers or dates"
        )
    return values.astype(np.int64)


def _dates(column: nw.Series, name: str, iso: bool) -> pd.DatetimeIndex:
    if column.dtype == nw.Datetime:
        zone = column.dtype.time_zone  # type: ignore[attr-defined]
        plain = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if zone else column
        index = pd.DatetimeIndex(plain.to_numpy())
        index = index.tz_localize("UTC").tz_convert(zone) if zone else index
        texts = index
    else:
        texts = pd.Index(_objects(column))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", FutureWarning)  # what pandas 2 says where pandas 3 refuses
                index = pd.DatetimeIndex(pd.to_datetime(texts, errors="coerce", format="ISO8601"))
        except (ValueError, FutureWarning):  # offsets from UTC that change, as with daylight saving
            index = pd.DatetimeIndex(pd.to_datetime(texts, errors="coerce", utc=True))
        if index.isna().any() and iso:
            raise NotInParts(f"time column {name!r} holds dates that are not written as in 2024-12-31")
        if index.isna().any():
            index = _other_dates(texts, name, index)
    bad = np.asarray(index.isna())
    if bad.any():
        raise ValueError(
            f"time column {name!r} has no readable time in {rows_text(bad)}; the first reads "
            f"{texts[bad][0]!r}: correct or drop them"
        )
    return index


def _other_dates(texts: pd.Index, name: str, iso: pd.DatetimeIndex) -> pd.DatetimeIndex:
    """Dates that are not written as in 2024-12-31, if they can be read in one way alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas says so when it takes the day for the month
        month_first, day_first = (
            pd.DatetimeIndex(pd.to_datetime(texts, errors="coerce", dayfirst=first)) for first in (False, True)
        )
    sound = [index for index in (month_first, day_first) if not index.isna().any()]
    if len(sound) == 2 and not month_first.equals(day_first):
        raise ValueError(
            f"time column {name!r} can be read with the day or the month first, as in {texts[0]!r}: write dates as in "
            "2024-12-31, or convert it, pandas.to_datetime(column, dayfirst=True)"
        )
    return sound[0] if sound else iso


def numbers(column: nw.Series, role: str) -> np.ndarray:
    """A column of numbers, float64, nan where it is missing; text that is no number and infinity are refused."""
    if column.dtype.is_numeric() or column.dtype == nw.Boolean:
        values = column.to_numpy()
        values = values.astype(np.float64) if values.dtype != object else _to_numbers(values)[0]
    else:
        values, text = _to_numbers(_objects(column))
        if text.any():
            word = _objects(column)[text][0]
            raise ValueError(
                f"{role} column {column.name!r} holds text, not numbers, in {rows_text(text)}; the first reads "
                f"{word!r}: convert them"
            )
    bad = np.isinf(values)
    if bad.any():
        raise ValueError(f"{role} column {column.name!r} is infinite in {rows_text(bad)}: correct or drop them")
    return values


def _to_numbers(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values = pd.to_numeric(pd.Series(column, dtype=object), errors="coerce").to_numpy(np.float64)
    unread = np.isnan(values) & ~pd.isna(column)
    words = np.array([str(word).strip().lower() not in MISSING for word in column[unread]], bool)
    text = np.zeros(len(column), bool)
    text[np.flatnonzero(unread)[words]] = True
    return values, text


def covariate(column: nw.Series, categories: Collection[str] | None = None) -> np.ndarray:
    """Numbers as float64; anything else as a category: text, or None where it is missing.

    `categories` names the columns that are not of numbers, if that is known.
    """
    if not (is_category(column) if categories is None else column.name in categories):
        return numbers(column, "covariate")
    values = _objects(column)
    missing = pd.isna(values)
    return np.array([None if gone else str(value) for value, gone in zip(values, missing, strict=True)], object)


def is_category(column: nw.Series) -> bool:
    """Whether a covariate holds text that is no number."""
    plain = column.dtype.is_numeric() or column.dtype == nw.Boolean
    return not plain and bool(_to_numbers(_objects(column))[1].any())


def _objects(column: nw.Series) -> np.ndarray:
    values = np.asarray(column.to_numpy())
    if values.dtype == object:
        return values
    out = np.empty(len(values), object)
    out[:] = pd.Index(values).tolist()  # times stay times
    return out
