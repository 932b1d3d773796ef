"""Settings of the benchmark: a dataset read in one protocol, cut into training, validation and test in time order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd

from itocast.data import sources
from itocast.data.preparation import Data, Preparation
from itocast.data.reading import long, read_table
from itocast.data.table import Columns, Table
from itocast.data.windows import Windows
from itocast.paper import protocol
from itocast.paper.protocol import TEST, VALIDATION, short

DATASETS = ("metro", "pickups", "traffic", "electricity=electricity/electricity.mean321.csv.gz", "solar")
SENSORS = 20  # of a wide table
STEPS = {"solar": "10min", "stock": "min"}  # of files without times; the others are hourly
FIRST = "2015-01-01"  # the time of their first row
QUICK_ROWS = 1500  # of each series


class Protocol(NamedTuple):
    """What is forecast from what."""

    about: str
    window: int
    horizon: int
    every: int  # so many-th row of each series is an origin of the test part


PROTOCOLS = {
    "paper": Protocol(
        "5 lags of the targets and past covariates, rows in the order of the file, no calendar; one step ahead", 5, 1, 1
    ),
    "practical": Protocol(
        "24 lags, past covariates, time between rows, calendar, series identity; one step ahead", 24, 1, 1
    ),
    "practical-24": Protocol(
        "as practical, 24 steps ahead, of repeated times the first; tested from every 24th row of a series", 24, 24, 24
    ),
}


class Parts(NamedTuple):
    """The same rows for everyone."""

    table: Table
    preparation: Preparation
    train: Windows
    validation: Windows
    test: Windows


@dataclass(frozen=True)
class Setting:
    """A dataset in a protocol: rows and columns as `Forecaster.fit` takes them, and where the test part begins."""

    protocol: Protocol
    opened: sources.Dataset
    frame: pd.DataFrame
    schema: dict[str, Any]
    data: Data
    start: Any  # the last instant before the test part

    @property
    def known(self) -> pd.DataFrame:
        """The rows before the test part."""
        known: pd.DataFrame = protocol.until(self.frame, self.schema, self.start)
        return known

    @property
    def earlier(self) -> Setting:
        """The same without the test part: the last rows of what is left are to be tested on instead."""
        known = self.known.reset_index(drop=True)
        return replace(self, frame=known, start=_start(known, self.schema, self.protocol))

    @cached_property
    def parts(self) -> Parts:
        """Windows of the three parts, prepared as `Forecaster.fit` would."""
        names = self.schema["target"]
        columns = Columns(
            id=self.schema.get("id"), time=self.schema["time"], targets=[names] if isinstance(names, str) else names,
            past=self.schema.get("past", ()),
        )  # fmt: skip
        table = read_table(self.frame, columns, repeated=self.data.repeated, gaps=self.data.gaps)
        start = table.clock.instant(self.start)
        seen = table.until(start)
        cut = seen.cutoff(1 - self.data.validation)
        shape = self.protocol.horizon, self.protocol.window
        preparation = Preparation.fit(seen, *shape, self.data, until=cut).meeting(table, cut)
        train = preparation.windows(table, until=cut)
        validation = preparation.windows(table, after=cut, until=start, numbers=train.numbers)
        test = preparation.windows(table, after=start, numbers=train.numbers).every(self.protocol.every)
        return Parts(table, preparation, train, validation, test)


def load(dataset: str, name: str, quick: bool = False, data_dir: str | None = None) -> Setting:
    """A dataset in a protocol; `quick` takes the last rows of each series."""
    opened, chosen = sources.open_dataset(dataset, data_dir), PROTOCOLS[name]
    if name == "paper":
        frame, schema = protocol.rows(opened, quick=False)
        schema["target"] = _first(schema["target"])
        frame = _tail(frame, schema) if quick else frame
        return Setting(chosen, opened, frame, schema, protocol.settings("itocast"), _start(frame, schema, chosen))
    frame, schema = _timed(opened, short(dataset))
    frame = _tail(frame, schema) if quick else frame
    return Setting(chosen, opened, frame, schema, _data(short(dataset), chosen), _start(frame, schema, chosen))


def _start(frame: pd.DataFrame, schema: dict[str, Any], chosen: Protocol) -> Any:
    """The last instant before the test part."""
    if chosen is PROTOCOLS["paper"]:
        return protocol.cut(frame, schema)
    return frame[schema["time"]].sort_values().iloc[round((1 - TEST) * len(frame)) - 1]


def _data(dataset: str, chosen: Protocol) -> Data:
    if dataset == "metro":  # an hour whose weather changed is there more than once: each counts, but not 24 ahead
        repeated = "keep" if chosen.horizon == 1 else "first"
        return Data.of({"repeated": repeated, "gaps": "keep", "validation": VALIDATION})
    return Data(validation=VALIDATION)


def _timed(opened: sources.Dataset, dataset: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Rows with times, one target and the covariates of the past; a wide table becomes one of several series."""
    schema, frame = opened.schema | {"future": []}, opened.frame
    targets = _first(schema["target"])
    if schema["time"] is None:
        times = pd.date_range(FIRST, periods=len(frame), freq=STEPS.get(dataset, "h"))
        frame, schema = frame.assign(ds=times), schema | {"time": "ds"}
    frame = frame.assign(**{schema["time"]: pd.to_datetime(frame[schema["time"]])})
    if isinstance(targets, str) or len(targets) == 1:
        return frame, schema
    frame = long(frame[[schema["time"], *targets]], time=schema["time"])
    return frame, {"target": "y", "time": schema["time"], "id": "unique_id"}


def _first(targets: Any) -> Any:
    return targets if isinstance(targets, str) else list(targets)[:SENSORS]


def _tail(frame: pd.DataFrame, schema: dict[str, Any]) -> pd.DataFrame:
    frame = frame.groupby(schema["id"]).tail(QUICK_ROWS) if "id" in schema else frame.tail(QUICK_ROWS)
    return frame.reset_index(drop=True)
