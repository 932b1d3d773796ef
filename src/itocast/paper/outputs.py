"""What experiments write: tables as CSV and Markdown, figures as PNG, side by side in one folder."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from itocast.storage import write_bytes


def write_table(folder: Path, name: str, frame: pd.DataFrame, text: str) -> None:
    """A table as numbers in CSV, and as text for people in Markdown."""
    write_bytes(folder / f"{name}.csv", frame.to_csv(index=False, float_format="%.6g").encode())
    write_bytes(folder / f"{name}.md", f"{text.strip()}\n".encode())


def write_figure(folder: Path, name: str, figure: Figure) -> None:
    """A figure as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110, format="png")
    write_bytes(folder / f"{name}.png", buffer.getvalue())


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    """A Markdown table whose first column is of words and whose others are of numbers.

    >>> print(markdown(["a", "b"], [["x", "1"]]))
    | a | b |
    |---|---:|
    | x | 1 |
    """
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" if line is not lines[1] else f"|{'|'.join(line)}|" for line in lines)


def digits(value: float, figures: int = 3) -> str:
    """A number with enough figures to compare, and no more.

    >>> [digits(x) for x in (386.44, 0.27449, 0.008214, 12345.6, 2.0)]
    ['386.4', '0.274', '0.00821', '12,346', '2.00']
    """
    if not math.isfinite(value):
        return "–"
    whole = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{max(0, figures - max(whole, -figures) - 1) if whole < 2 else max(0, 3 - whole)}f}"


def spread(values: list[float], figures: int = 3) -> str:
    """The mean of some trials, with their standard deviation if there are several.

    >>> spread([1.0, 2.0]), spread([3.0])
    ('1.50 ± 0.71', '3.00')
    """
    return plus_minus(*summary(values), figures)


def plus_minus(mean: float, deviation: float, figures: int = 3) -> str:
    """A mean with its standard deviation, if that is known, in as many places."""
    centre = digits(mean, figures)
    places = len(centre.partition(".")[2])
    return f"{centre} ± {deviation:,.{places}f}" if math.isfinite(deviation) else centre


def summary(values: list[float]) -> tuple[float, float]:
    """Mean and standard deviation, which is nan for one value."""
    with np.errstate(invalid="ignore"):  # a trial may have a score that is not finite
        return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def versions(cells: Iterable[dict[str, str]]) -> str:
    """All packages that made some cells, with all versions of each.

    >>> versions([{"torch": "2.13", "pandas": "3.1"}, {"torch": "2.13", "pandas": "2.3"}])
    'torch 2.13, pandas 2.3 and 3.1'
    """
    found: dict[str, set[str]] = {}
    for name, version in (pair for cell in cells for pair in cell.items()):
        found.setdefault(name, set()).add(version)
    return ", ".join(f"{name} {' and '.join(sorted(every))}" for name, every in found.items())
