"""Files of rows in parts: some columns, so many rows at a time, so that a file may be larger than memory."""

from __future__ import annotations

import gzip
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd

from itocast.data import columns as read
from itocast.data.table import Columns

ROWS = 200_000  # of a part


class Parts:
    """A CSV, CSV.gz or Parquet file, opened anew for each pass over its rows."""

    def __init__(self, path: Path, rows: int | None = None) -> None:
        if not path.is_file():
            raise FileNotFoundError(f"source={str(path)!r}: there is no such file")
        self.path, self.rows, self.name = path, rows or ROWS, f"source={str(path)!r}"
        self.parquet = path.suffix in (".parquet", ".pq")
        self.columns: list[str] = self._columns()

    def _columns(self) -> list[str]:
        if self.parquet:
            with _parquet_errors(self.name):
                from pyarrow.parquet import read_schema

                return list(read_schema(self.path).empty_table().to_pandas().columns)
        with read.csv_errors(self.name):
            return read.separated(pd.read_csv(self.path, nrows=0), self.name).columns.tolist()

    def read(
        self, names: Collection[str], types: dict[str, Any] | None = None, title: str = "reading"
    ) -> Iterator[tuple[int, nw.DataFrame]]:
        """The number of each part's first row, and some of its columns; `types` are those of columns of a CSV."""
        with _progress(f"{title} {self.path.name}", self.path.stat().st_size) as report:
            frames = self._parquet(names, report) if self.parquet else self._csv(names, types or {}, report)
            first = 0
            for frame in frames:
                if len(frame):
                    yield first, nw.from_native(frame, eager_only=True)
                first += len(frame)

    def whole(self, names: Collection[str]) -> nw.DataFrame | None:
        """All rows, if they are one part."""
        parts = self.read(names)
        _, first = next(parts, (0, None))
        if first is None:
            raise ValueError("source holds no rows: expected a table with at least one")
        more = next(parts, None)
        parts.close()  # type: ignore[attr-defined]
        return first if more is None else None

    def _csv(self, names: Collection[str], types: dict[str, Any], report: Any) -> Iterator[pd.DataFrame]:
        with self.path.open("rb") as raw, read.csv_errors(self.name):
            file: Any = gzip.GzipFile(fileobj=raw) if self.path.suffix == ".gz" else raw
            reader = pd.read_csv(  # all columns: with usecols a row with too many fields would pass
                file, dtype=types, chunksize=self.rows, **read.CSV
            )
            for frame in reader:
                report(raw.tell())
                yield frame[list(names)]

    def _parquet(self, names: Collection[str], report: Any) -> Iterator[pd.DataFrame]:
        with _parquet_errors(self.name):
            from pyarrow import Table
            from pyarrow.parquet import ParquetFile

            with ParquetFile(self.path, memory_map=False, pre_buffer=False) as file:
                count, seen = max(1, file.metadata.num_rows), 0
                for batch in file.iter_batches(self.rows, columns=list(names), use_threads=False):
                    seen += len(batch)
                    report(self.path.stat().st_size * seen // count)
                    yield Table.from_batches([batch]).to_pandas()


class Survey(NamedTuple):
    """What one pass over a file tells of all of it."""

    types: dict[str, Any]  # that columns have in all parts of a CSV
    categories: set[str]  # covariates that are not of numbers
    ids: np.ndarray  # (series,): labels in the order in which they appear
    last: np.ndarray  # (series,): the last row of each


def survey(parts: Parts, columns: Columns, categories: Collection[str] | None = None) -> Survey:
    """Look through a file: parts of a column may be numbers where another is text, and a series may end anywhere."""
    names = [*([columns.id] if columns.id else []), *columns.covariates]
    if not names:
        return Survey({}, set(), np.array([""], object), np.array([np.iinfo(np.int64).max]))
    kinds: dict[str, set[str]] = {name: set() for name in names}
    found, last = set(categories or ()), dict[Any, int]()
    for first, frame in parts.read(names, title="looking through"):
        for name in names:
            plain = frame[name].dtype.is_numeric() or frame[name].dtype == nw.Boolean
            kinds[name].add(frame[name].to_numpy().dtype.kind if plain else "O")
            if categories is None and name != columns.id and name not in found and read.is_category(frame[name]):
                found.add(name)
        with counted(first):
            _meet(last, frame, columns.id, first)
    types = {} if parts.parquet else {name: _type(kinds[name]) for name in names if len(kinds[name]) > 1}
    types = {name: kind for name, kind in types.items() if name == columns.id or name in found}
    if columns.id in types:  # their labels are other than they seemed in some parts
        last = {}
        for first, frame in parts.read([columns.id], types, title="looking through"):
            _meet(last, frame, columns.id, first)
    ids = np.empty(len(last), object)
    ids[:] = list(last)
    return Survey(types, found, ids, np.array(list(last.values())))


def _meet(last: dict[Any, int], frame: nw.DataFrame, name: str | None, first: int) -> None:
    """Note in which row of the file each series was seen last."""
    ids, series = read.labels(frame, name)
    place = np.zeros(len(ids), np.int64)
    place[series] = np.arange(len(series))  # of several rows the last counts
    last.update(zip(ids.tolist(), (first + place).tolist(), strict=True))


def _type(kinds: set[str]) -> Any:
    """What pandas would take a column for that has these kinds of parts."""
    return np.float64 if kinds <= {"i", "u", "f"} else str


@contextmanager
def counted(first: int) -> Iterator[None]:
    """Say from where rows are counted in a message about a part."""
    try:
        yield
    except read.NotInParts:
        raise
    except ValueError as error:
        where = f" (rows are counted from row {first:,} of the file)" if first else ""
        raise ValueError(f"{error}{where}") from None


@contextmanager
def _parquet_errors(name: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise ImportError("reading Parquet needs pyarrow: pip install 'itocast[parquet]'") from None
    except (ValueError, OSError) as error:
        raise ValueError(f"{name} is not a Parquet file that can be read: {error}") from None


@contextmanager
def _progress(title: str, size: int) -> Iterator[Any]:
    """A bar on standard error that is shown in a terminal alone; yields what reports the bytes that were read."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    shown = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*shown, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(title, total=size)
        yield lambda done: bar.update(task, completed=done)
