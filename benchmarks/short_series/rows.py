"""Results as rows of a file, written as they come, and the page made from them."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

Key = dict[str, Any]
Row = dict[str, Any]
Settings = dict[str, Any]  # of the Forecaster, where they are no defaults


def label(settings: Settings) -> str:
    """What a Forecaster with some settings is called."""
    return " ".join(["itocast", *(f"{name}={value}" for name, value in settings.items())])


class Rows:
    """A CSV file with one row a key; a row that is made again takes the place of the old one.

    The file is whole at any instant, so a run that is cut short keeps what it has.
    """

    def __init__(self, file: Path, key: tuple[str, ...]) -> None:
        self.file, self.key = file, key
        self._rows: dict[tuple[str, ...], Row] = {}
        if file.exists():
            for values in pd.read_csv(file).to_dict("records"):
                row = {str(name): value for name, value in values.items()}
                self._rows[self._of(row)] = row

    def __contains__(self, key: Key) -> bool:
        return self._of(key) in self._rows

    @property
    def frame(self) -> pd.DataFrame:
        """All rows, in the order in which their keys came first."""
        return pd.DataFrame(list(self._rows.values()))

    def chosen(self, keys: Iterable[Key]) -> pd.DataFrame:
        """The rows of some keys, as far as they are there."""
        return pd.DataFrame([self._rows[self._of(key)] for key in keys if key in self])

    def add(self, row: Row) -> None:
        """Add a row to the file."""
        self._rows[self._of(row)] = row
        text = self.frame.to_csv(index=False, float_format="%.6g")
        write(self.file, text)

    def fill(self, keys: Iterable[Key], make: Callable[..., Row], missing: bool = False) -> None:
        """Make the row of each key, or only of those that the file has not."""
        wanted = [key for key in keys if not (missing and key in self)]
        for number, key in enumerate(wanted, start=1):
            row = key | make(**key)
            row.setdefault("made", made())
            self.add(row)
            print(f"[{number}/{len(wanted)}]", told(row), file=sys.stderr, flush=True)

    def _of(self, row: Row) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in self.key)


def told(row: Row) -> str:
    """A row in one line."""
    words = (f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values())
    return " ".join(f"{name}={word}" for name, word in zip(row, words, strict=True))


def write(file: Path, text: str) -> None:
    """Write beside, then rename."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(file)


def made() -> str:
    """The commit of the package that is measured, with "-dirty" if there is more to it."""
    found = find_spec("itocast")
    if found is None or found.origin is None:
        return "no itocast"
    folder = Path(found.origin).parent
    words = ["git", "-C", str(folder), "describe", "--always", "--dirty"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def table(frame: pd.DataFrame, formats: dict[str, str]) -> str:
    """A table in Markdown of the named columns, a column without a format as text."""
    heads = " | ".join(formats)
    ends = "|".join("---:" if form else "---" for form in formats.values())
    lines = [f"| {heads} |", f"|{ends}|"]
    for row in frame.to_dict("records"):
        words = (figure(row[name], form) for name, form in formats.items())
        lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines)


def figure(value: Any, form: str) -> str:
    """A value as text, nothing for what is not there."""
    if pd.isna(value):
        return ""
    if form == "d":
        value = int(value)
    return format(value, form)


def page(file: Path, title: str, command: str, about: str, parts: Iterable[str], frame: Any) -> str:
    """Write a page that says how it was made; returns it."""
    if not len(frame):
        raise ValueError(f"{file.stem} has no rows yet: run it without --page")
    commits = ", ".join(dict.fromkeys(map(str, frame["made"])))
    head = (
        f"# {title}\n\nMade by `{command}` with itocast at {commits}, "
        f"Python {platform.python_version()}, one thread. {about}"
    )
    text = "\n\n".join([head, *parts]) + "\n"
    write(file, text)
    return text
