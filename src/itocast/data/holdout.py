"""Which rows of each series are held out from training: an instant for each series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd

from itocast.data.table import Table

NEVER = np.iinfo(np.int64).min  # the instant of a series that is not known: all of it comes later


@dataclass(frozen=True)
class Cut:
    """An instant for each series, by its label: rows up to it are known, the others come later.

    >>> Cut.of_labels(["b", "a"], [20, 10]).at(["a", "b", "new"]).tolist() == [10, 20, NEVER]
    True
    """

    labels: tuple[str, ...]
    instants: np.ndarray  # (series,), int64

    @classmethod
    def of_labels(cls, labels: Sequence[Any] | np.ndarray, instants: Any) -> Self:
        """From labels of any kind and the instant of each."""
        return cls(tuple(map(str, labels)), np.asarray(instants, np.int64))

    @classmethod
    def newest(cls, table: Table, rows: np.ndarray) -> Self:
        """Just before the newest so many rows of each series, (series,)."""
        last_known = table.starts[1:] - 1 - rows
        within = np.maximum(last_known, table.starts[:-1])
        instants = np.where(last_known < table.starts[:-1], NEVER, table.times[within])
        return cls.of_labels(table.ids, instants)

    @cached_property
    def _index(self) -> pd.Index:
        return pd.Index(self.labels, dtype=object)

    def at(self, labels: Sequence[Any] | np.ndarray) -> np.ndarray:
        """The instant of each labelled series, (labels,)."""
        place = self._index.get_indexer(pd.Index([str(label) for label in labels], dtype=object))
        return np.where(place < 0, NEVER, np.append(self.instants, NEVER)[place])

    def rows(self, table: Table) -> np.ndarray:
        """The instant of each row's series, (rows,)."""
        return np.repeat(self.at(table.ids), np.diff(table.starts))

    @property
    def typical(self) -> int:
        """The middle instant: one date to tell a person."""
        known = self.instants[self.instants != NEVER]
        return int(np.median(known)) if len(known) else NEVER


def held_rows(lengths: np.ndarray, share: float, horizon: int) -> np.ndarray:
    """How many rows of each series are held out: a share of them, and at least a whole horizon.

    A series that could not teach a whole horizon besides holds none out.

    >>> held_rows(np.array([1000, 48, 24]), share=0.2, horizon=12).tolist()
    [200, 12, 0]
    """
    learned = np.round((1 - share) * lengths).astype(int)
    rows = np.maximum(lengths - learned, horizon)
    return np.where(lengths - rows > horizon, rows, 0)
