"""Tables of results: the same kind of frame as the user's, and files of them."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Any, Literal, Self

import narwhals as nw
import numpy as np
import pandas as pd

from itocast.data.clock import Clock
from itocast.storage import beside

Kind = Literal["pandas", "polars"]
FORMATS = (".csv", ".csv.gz", ".parquet", ".json")


def kind_of(source: Any) -> Kind:
    """ "polars" for a polars frame, else "pandas"."""
    return "polars" if type(source).__module__.startswith("polars") else "pandas"


def build(columns: dict[str, np.ndarray], kind: Kind, clock: Clock, times: tuple[str, ...]) -> Any:
    """A frame of some columns, of which those in `times` are instants."""
    if kind == "pandas":
        shown = {name: clock.index(values) if name in times else values for name, values in columns.items()}
        return pd.DataFrame(shown)
    plain = {name: list(values) if values.dtype == object else values for name, values in columns.items()}
    if clock.dates:
        plain |= {name: columns[name].astype("datetime64[us]") for name in times}
    frame = nw.from_dict(plain, backend=kind)
    if clock.days:
        return frame.with_columns(*(nw.col(name).cast(nw.Date) for name in times)).to_native()
    if clock.zone:
        zoned = [nw.col(name).dt.replace_time_zone("UTC").dt.convert_time_zone(clock.zone) for name in times]
        frame = frame.with_columns(*zoned)
    return frame.to_native()


def check_name(output: str) -> None:
    """Refuse a name that cannot be written, before the work and not after it."""
    if output != "-" and not output.endswith(FORMATS):
        raise ValueError(f"output={output!r}: expected a name that ends with {', '.join(FORMATS)}, or -")


def write(frame: pd.DataFrame, output: str) -> None:
    """A frame to a file, written beside it and renamed, or as CSV to standard output for "-"."""
    with Writer(output) as writer:
        writer.add(frame)


class Writer:
    """A file of results that frames are added to: written beside and renamed at the end, or not at all.

    "-" is CSV to standard output, which is not taken back.
    """

    def __init__(self, output: str) -> None:
        check_name(output)
        self.output, self.rows = output, 0
        self._table: Any = None  # of Parquet, which has a writer of its own

    def __enter__(self) -> Self:
        if self.output != "-":
            self._beside = beside(Path(self.output))
            self._file = self._beside.__enter__()
            zipped = self.output.endswith(".gz")
            self._to: Any = gzip.GzipFile(fileobj=self._file, mode="wb", mtime=0) if zipped else self._file
        return self

    def add(self, frame: pd.DataFrame) -> None:
        """More rows, with the columns of the first."""
        first = self.rows == 0
        self.rows += len(frame)
        if self.output == "-":
            frame.to_csv(sys.stdout, index=False, header=first, float_format="%.10g")
        elif self.output.endswith(".parquet"):
            self._add_parquet(frame)
        elif self.output.endswith(".json"):
            text = frame.to_json(orient="records", date_format="iso", double_precision=10)
            self._to.write(("[" if first else ",").encode() + text[1:-1].encode())
        else:
            self._to.write(frame.to_csv(index=False, header=first, float_format="%.10g").encode())

    def _add_parquet(self, frame: pd.DataFrame) -> None:
        try:
            import pyarrow as pa
            from pyarrow.parquet import ParquetWriter
        except ImportError:
            raise ImportError("writing Parquet needs pyarrow: pip install 'itocast[parquet]'") from None
        schema = None if self._table is None else self._table.schema
        table = pa.Table.from_pandas(frame, schema, preserve_index=False)
        if self._table is None:
            self._table = ParquetWriter(self._file, table.schema)
        self._table.write_table(table)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.output == "-":
            return
        try:
            if self.output.endswith(".json"):
                self._to.write(b"]" if self.rows else b"[]")
            if self._table is not None:
                self._table.close()
            if self._to is not self._file:
                self._to.close()
        finally:
            self._beside.__exit__(kind, error, trace)
        if kind is None:
            print(f"{self.rows:,} rows written to {self.output}", file=sys.stderr)
