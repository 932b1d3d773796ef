"""benchmarks/results/peers.csv: a line for each peer on each setting, to which the cells of further seeds are added."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from itocast.paper.cells import Cell
from itocast.paper.protocol import short
from itocast.storage import write_bytes

TABLE = Path("benchmarks/results/peers.csv")
ABOUT = ("file", "digest", "rows", "tested", "targets", "unit")
Key = tuple[str, str, str]  # protocol, dataset, peer


@dataclass(frozen=True)
class Line:
    """Means and standard deviations over seeds; a deviation is nan for one seed."""

    seeds: tuple[int, ...]
    about: dict[str, Any]
    packages: dict[str, str]
    means: dict[str, float]
    deviations: dict[str, float]

    def with_cell(self, cell: Cell) -> Line:
        """The same with one more seed."""
        n = len(self.seeds)
        means, deviations = {}, {}
        for name, mean in self.means.items():
            step = cell["scores"][name] - mean
            squares = (n - 1) * self.deviations[name] ** 2 if n > 1 else 0.0
            means[name] = mean + step / (n + 1)
            deviations[name] = math.sqrt((squares + step * step * n / (n + 1)) / n)
        seeds = (*self.seeds, cell["settings"]["seed"])
        return Line(seeds, self.about, self.packages | packages_of(cell), means, deviations)


Lines = dict[Key, Line]


def key_of(settings: dict[str, Any]) -> Key:
    """Where a cell with these settings belongs."""
    return settings["protocol"], short(settings["dataset"]), settings["peer"]


def packages_of(cell: Cell) -> dict[str, str]:
    """What made a cell."""
    return {**cell["versions"], **cell["packages"]}


def added(lines: Lines, cells: list[Cell]) -> Lines:
    """The lines with all cells whose seeds they do not have yet."""
    lines = dict(lines)
    for cell in cells:
        key = key_of(cell["settings"])
        line, seed = lines.get(key), cell["settings"]["seed"]
        about = {name: cell[name] for name in ABOUT}
        if line is None:
            scores = cell["scores"]
            lines[key] = Line((seed,), about, packages_of(cell), dict(scores), dict.fromkeys(scores, math.nan))
        elif seed not in line.seeds:
            lines[key] = line.with_cell(cell)
        _check(lines, key, about)
    return lines


def _check(lines: Lines, key: Key, about: dict[str, Any]) -> None:
    """All peers of a setting have had the same data."""
    for other, line in lines.items():
        for name in ("digest", "rows"):
            if other[:2] == key[:2] and line.about[name] != about[name]:
                raise ValueError(
                    f"cells of {' '.join(key[:2])} differ in {name}, {line.about[name]!r} and {about[name]!r}: "
                    "delete those of one, and its lines in the table"
                )


def read(root: Path) -> Lines:
    """The lines of the table, none if there is no table."""
    file = root / TABLE
    if not file.exists():
        return {}
    found = {}
    for row in pd.read_csv(file, keep_default_na=False, dtype=str).to_dict("records"):
        about: dict[str, Any] = {name: row[name] for name in ABOUT}
        about |= {name: int(about[name]) for name in ("rows", "tested", "targets")}
        packages = dict(one.split(" ") for one in row["packages"].split(", "))
        names = [name for name in map(str, row) if f"{name}_std" in row and row[name]]
        means = {name: float(row[name]) for name in names}
        deviations = {name: float(row[f"{name}_std"] or "nan") for name in names}
        seeds = tuple(map(int, row["seeds"].split()))
        found[row["protocol"], row["dataset"], row["peer"]] = Line(seeds, about, packages, means, deviations)
    return found


def write(lines: Lines, root: Path) -> None:
    """The table anew, whole."""
    rows = []
    for (protocol, dataset, peer), line in lines.items():
        seeds = " ".join(map(str, line.seeds))
        packages = ", ".join(" ".join(one) for one in line.packages.items())
        row: dict[str, Any] = {"protocol": protocol, "dataset": dataset, "peer": peer, "seeds": seeds}
        row |= line.about | {"packages": packages}
        for name, mean in line.means.items():
            row |= {name: mean, f"{name}_std": line.deviations[name]}
        rows.append(row)
    text = io.StringIO()
    pd.DataFrame(rows).to_csv(text, index=False, float_format="%.6g")
    write_bytes(root / TABLE, text.getvalue().encode())
