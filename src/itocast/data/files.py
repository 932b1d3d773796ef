"""Files of datasets: found in a folder, compared with the published ones, read."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from pathlib import Path
from typing import NamedTuple

import pandas as pd


class Published(NamedTuple):
    """A file as its authors published it.

    `check` is "git:" and the hash that git gives the file, or "sha256:" and that one. `page` is where a person finds
    the file, `address` where it is downloaded from, if that needs no login.
    """

    name: str
    check: str
    page: str
    address: str | None = None


def find(published: Published, name: str, folder: Path) -> Path | None:
    """The file of dataset `name`, packed or not, in a folder or in the folder of that name inside it."""
    plain = published.name.removesuffix(".gz")
    for place in (folder / name, folder):
        for file in (published.name, plain, f"{plain}.gz"):
            if (place / file).is_file():
                return place / file
    return None


def find_other(published: Published, name: str, folder: Path) -> Path | None:
    """The one table in the folder of dataset `name` that has another name."""
    ends = (".csv", ".txt", ".csv.gz", ".txt.gz")
    within = (folder / name).iterdir() if (folder / name).is_dir() else iter(())
    others = sorted(path for path in within if path.name.endswith(ends) and not path.name.startswith("."))
    if len(others) > 1:
        names = ", ".join(path.name for path in others)
        raise ValueError(
            f"{folder / name} holds {len(others)} files, {names}, and no {published.name}: name the one to read, "
            f"as in '{name}={name}/{others[0].name}'"
        )
    return others[0] if others else None


def read(path: Path, published: Published) -> tuple[bytes, str]:
    """The text of a file, unpacked, and its digest, of the kind of the check.

    The digest is that of the file as it is where the published one is packed, otherwise that of its text: packing a
    file that was published as text changes nothing.
    """
    content = path.read_bytes()
    try:
        text = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged or was cut short ({error}): copy or download it again") from None
    return text, digest(content if published.name.endswith(".gz") else text, published.check)


def digest(content: bytes, check: str) -> str:
    """The hash of some content, of the same kind as a check.

    >>> digest(b"hello\\n", "git:")  # what git hash-object says
    'git:ce013625030ba8dba906f756967f9e9ca394464a'
    """
    kind = check.partition(":")[0]
    if kind == "git":
        hashed = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    else:
        hashed = hashlib.new(kind, content, usedforsecurity=False)
    return f"{kind}:{hashed.hexdigest()}"


def table(text: bytes, path: Path) -> pd.DataFrame:
    """Text as a frame: separated by commas, semicolons or blanks, with or without a header and a first column of times.

    Without a header columns are called 1, 2, …, one of times "time". "NA" and "None" may be names and stay words.

    >>> table(b"2024-01-01,3.5\\n2024-01-02,4", Path("file.csv")).columns.tolist()
    ['time', '1']
    """
    first = io.BytesIO(text).readline().decode("utf-8-sig", errors="replace")
    mark = next((mark for mark in ",;\t" if mark in first), None)
    cells = [cell.strip().strip('"') for cell in first.split(mark)]
    timed = bool(cells) and not _is_number(cells[0]) and cells[0][0].isdigit()
    headed = not all(map(_is_number, cells[timed:]))
    try:
        frame = pd.read_csv(
            io.BytesIO(text), sep=mark or r"\s+", header=0 if headed else None, encoding="utf-8-sig",
            keep_default_na=False, na_values=[""], low_memory=False,
        )  # fmt: skip
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a table that can be read: {str(error).strip()}; get it again") from None
    if not headed:
        frame.columns = ["time"] * timed + [str(number + 1) for number in range(len(frame.columns) - timed)]
    return frame


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True
