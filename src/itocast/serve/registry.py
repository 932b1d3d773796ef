"""The models that are served: read from their folders, and read again when these change."""

from __future__ import annotations

import hashlib
import logging
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from itocast.calibration import Adaptive
from itocast.forecaster import Forecaster
from itocast.serve.limits import Refused
from itocast.serve.together import joins
from itocast.storage import MANIFEST

log = logging.getLogger("itocast.serve")
FAULTS = (ValueError, TypeError, ArithmeticError, OSError)  # of a folder that cannot be read
SHOWN = 200  # names of series that are told


@dataclass(frozen=True)
class Loaded:
    """A model as it was read; it is never changed, only replaced."""

    name: str
    forecaster: Forecaster
    version: str
    joins: bool
    about: dict[str, Any]  # what a user must know to ask it

    @classmethod
    def read(cls, name: str, folder: Path) -> Loaded:
        forecaster = Forecaster.load(folder)
        version = hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()[:12]
        return cls(name, forecaster, version, joins(forecaster), _about(name, version, forecaster))


def _about(name: str, version: str, forecaster: Forecaster) -> dict[str, Any]:
    fitted = forecaster.fitted
    prepared, columns, context = fitted.preparation, fitted.preparation.columns, fitted.context
    return {
        "name": name, "version": version, "loaded": datetime.now(UTC).isoformat(timespec="seconds"),
        "kind": fitted.kind, "parameters": fitted.parameters,
        "columns": columns.model_dump(mode="json"), "freq": prepared.clock.freq, "zone": prepared.clock.zone,
        "dates": prepared.clock.dates, "horizon": prepared.horizon, "window": prepared.window,
        "support": fitted.support, "series": len(context.ids), "names": [str(i) for i in context.ids[:SHOWN]],
        "until": str(prepared.clock.index(context.times).max()),
        "calibration": fitted.calibration, "outcomes": fitted.outcomes,
        "adaptive": isinstance(fitted.calibrator, Adaptive),
    }  # fmt: skip


class Entry:
    """One folder: what was read from it last, and what is wrong with it now."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.lock = threading.Lock()  # whoever reads or writes the folder holds it
        self.fault: str | None = None
        self.failures = self.reloads = 0
        self._seen = self._stamp()
        self.loaded = Loaded.read(name, folder)

    def _stamp(self) -> tuple[int, ...] | None:
        """What differs once another manifest stands in the folder; it is written last but for a rename."""
        try:
            stat = (self.folder / MANIFEST).stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_ino, stat.st_size

    def refresh(self) -> None:
        """Read the folder if it has changed; if what is there cannot be read, keep what was."""
        with self.lock:
            stamp = self._stamp()
            if stamp == self._seen:
                return
            try:
                loaded = Loaded.read(self.name, self.folder)
            except FAULTS as error:
                if str(error) != self.fault:
                    log.error("%s: the new model cannot be read, version %s goes on: %s", self.name,
                              self.loaded.version, error)  # fmt: skip
                    self.failures += 1
                self.fault = str(error)
                return
            self._take(loaded, stamp)
            log.info("%s: version %s is read", self.name, loaded.version)

    def _take(self, loaded: Loaded, stamp: tuple[int, ...] | None) -> None:
        self.loaded, self._seen, self.fault = loaded, stamp, None
        self.reloads += 1

    def observe(self, data: Any) -> int:
        """Do as `itocast observe`: read, learn, write; then answer from what was written."""
        with self.lock:
            forecaster = Forecaster.load(self.folder)
            count = forecaster.observe(data)
            forecaster.save(self.folder)
            self._take(Loaded.read(self.name, self.folder), self._stamp())
        log.info("%s: learned from %s forecasts; version %s", self.name, f"{count:,}", self.loaded.version)
        return count

    def describe(self) -> dict[str, Any]:
        return self.loaded.about | {"fault": self.fault}


class Registry:
    """All models by name."""

    def __init__(self, folders: list[Path]) -> None:
        self.entries: dict[str, Entry] = {}
        for folder in folders:
            name = folder.resolve().name
            if name in self.entries:
                other = self.entries[name].folder
                raise ValueError(f"models {other} and {folder} have the same name, {name!r}: rename one of the folders")
            self.entries[name] = Entry(name, folder)

    def find(self, name: str | None) -> Entry:
        """The model of a name, or the only one."""
        if name is None and len(self.entries) == 1:
            return next(iter(self.entries.values()))
        if name is None:
            raise Refused(422, f"model is missing: expected one of {', '.join(self.entries)}")
        if name not in self.entries:
            raise Refused(
                404, f"model={name[:100]!r}: there is no such model; expected one of {', '.join(self.entries)}"
            )
        return self.entries[name]

    def refresh(self) -> None:
        """Look at every folder."""
        for entry in self.entries.values():
            entry.refresh()

    @property
    def faults(self) -> dict[str, str]:
        """The models whose folders cannot be read, and why."""
        return {name: entry.fault for name, entry in self.entries.items() if entry.fault}
