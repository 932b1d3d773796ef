"""Tables of results: the same kind of frame as the user's, and files of them."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path
from typing import Any, Literal

import narwhals as nw
import numpy as np
import pandas as pd

from itocast.data.clock import Clock
from itocast.storage import write_bytes

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
    if output == "-":
        frame.to_csv(sys.stdout, index=False, float_format="%.10g")
        return
    write_bytes(Path(output), _encode(frame, output))
    print(f"{len(frame):,} rows written to {output}", file=sys.stderr)


def _encode(frame: pd.DataFrame, output: str) -> bytes:
    if output.endswith(".json"):
        return frame.to_json(orient="records", date_format="iso", double_precision=10).encode()
    if output.endswith(".parquet"):
        buffer = io.BytesIO()
        try:
            frame.to_parquet(buffer, index=False)
        except ImportError:
            raise ImportError("writing Parquet needs pyarrow: pip install 'itocast[parquet]'") from None
        return buffer.getvalue()
    content = frame.to_csv(index=False, float_format="%.10g").encode()
    return gzip.compress(content, mtime=0) if output.endswith(".gz") else content
