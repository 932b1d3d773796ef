"""Known laws: a past, and futures of it, so that an interval is judged by what could have come.

A law has a state for each course. `begin` gives states in its stationary law, `step` takes all
courses one row on: the past is one course, and its futures are many from where it ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd

Random = np.random.Generator
State = dict[str, np.ndarray]  # each (courses,)


class Law(ABC):
    """A process in time."""

    series: int = 1  # that a table has
    freq: str = "h"

    @abstractmethod
    def begin(self, courses: int, random: Random) -> State:
        """States before the first row."""

    @abstractmethod
    def step(self, state: State, random: Random) -> tuple[State, np.ndarray]:
        """The next states, and the values that are seen, (courses,)."""

    def run(self, state: State, rows: int, random: Random) -> tuple[State, np.ndarray]:
        """So many rows: the last states, and values (courses, rows)."""
        values = []
        for _ in range(rows):
            state, y = self.step(state, random)
            values.append(y)
        return state, np.stack(values, axis=-1)


def noise(random: Random, courses: int) -> np.ndarray:
    return random.standard_normal(courses)


def heavy(random: Random, courses: int) -> np.ndarray:
    """t with 3 degrees of freedom, of variance 1."""
    return random.standard_t(3, courses) / np.sqrt(3)


@dataclass(frozen=True)
class Autoregression(Law):
    """An AR(1) around a mean, with shocks of variance 1 times a deviation."""

    phi: float = 0.8
    mean: float = 57.0
    deviation: float = 10.0  # of the stationary law
    shock: Callable[[Random, int], np.ndarray] = noise
    freq: str = "h"

    @property
    def scale(self) -> float:
        """The deviation of a shock."""
        return self.deviation * float(np.sqrt(1 - self.phi**2))

    def begin(self, courses: int, random: Random) -> State:
        return {"x": self.deviation * noise(random, courses)}

    def step(self, state: State, random: Random) -> tuple[State, np.ndarray]:
        x = self.phi * state["x"] + self.scale * self.shock(random, len(state["x"]))
        return {"x": x}, self.mean + x


@dataclass(frozen=True)
class Heteroscedastic(Autoregression):
    """The same with a deviation of shocks that follows the time of day."""

    swing: float = 0.8

    def begin(self, courses: int, random: Random) -> State:
        hour = random.integers(24)  # a table may end at any time of day
        return super().begin(courses, random) | {"hour": np.full(courses, float(hour))}

    def step(self, state: State, random: Random) -> tuple[State, np.ndarray]:
        size = 1 + self.swing * np.sin(2 * np.pi * state["hour"] / 24)
        x = self.phi * state["x"] + self.scale * size * noise(random, len(size))
        return {"x": x, "hour": (state["hour"] + 1) % 24}, self.mean + x


@dataclass(frozen=True)
class Gamma(Law):
    """An autoregression with gamma shocks: positive and skewed."""

    phi: float = 0.8
    shape: float = 2.0
    mean: float = 57.0

    @property
    def scale(self) -> float:
        return (1 - self.phi) * self.mean / self.shape

    def begin(self, courses: int, random: Random) -> State:
        return {"y": np.full(courses, self.mean)}

    def step(self, state: State, random: Random) -> tuple[State, np.ndarray]:
        y = self.phi * state["y"] + random.gamma(self.shape, self.scale, len(state["y"]))
        return {"y": y}, y


@dataclass(frozen=True)
class Shifts(Law):
    """Series whose levels jump now and then, with an AR(1) around them."""

    series: int = 10
    around: Autoregression = field(default_factory=lambda: Autoregression(0.5, 0.0, 5.0))
    chance: float = 0.01  # of a jump at each row
    jump: float = 20.0  # its deviation

    def begin(self, courses: int, random: Random) -> State:
        level = 100 + 30 * noise(random, courses)
        return self.around.begin(courses, random) | {"level": level}

    def step(self, state: State, random: Random) -> tuple[State, np.ndarray]:
        courses = len(state["level"])
        jumps = random.random(courses) < self.chance
        level = state["level"] + jumps * self.jump * noise(random, courses)
        x, y = self.around.step({"x": state["x"]}, random)
        return x | {"level": level}, level + y


@dataclass(frozen=True)
class Walk(Law):
    """A random walk."""

    deviation: float = 5.0
    start: float = 200.0
    freq: str = "MS"

    def begin(self, courses: int, random: Random) -> State:
        return {"y": np.full(courses, self.start)}

    def step(self, state: State, random: Random) -> tuple[State, np.ndarray]:
        y = state["y"] + self.deviation * noise(random, len(state["y"]))
        return {"y": y}, y


@dataclass(frozen=True)
class Seasonal(Law):
    """Plausible sales: a level with a trend, a season, and an AR(1), all as shares of the level."""

    season: int = 12
    level: float = 1000.0
    trend: float = 0.004  # of a row
    swing: float = 0.25
    phase: float = 0.0
    second: float = 0.1  # of half a season
    phi: float = 0.5
    deviation: float = 0.06
    freq: str = "MS"

    @classmethod
    def drawn(cls, random: Random, season: int = 12, freq: str = "MS") -> Seasonal:
        """One of many."""
        return cls(
            season=season, level=float(np.exp(random.uniform(4, 9))),
            trend=float(random.normal(0, 0.06)) / season,
            swing=float(random.uniform(0.05, 0.35)), phase=float(random.uniform(0, 2 * np.pi)),
            second=float(random.uniform(0, 0.12)), phi=float(random.uniform(0.2, 0.8)),
            deviation=float(random.uniform(0.03, 0.1)), freq=freq,
        )  # fmt: skip

    def begin(self, courses: int, random: Random) -> State:
        return {"x": self.deviation * noise(random, courses), "row": np.zeros(courses)}

    def step(self, state: State, random: Random) -> tuple[State, np.ndarray]:
        row = state["row"]
        shock = self.deviation * np.sqrt(1 - self.phi**2) * noise(random, len(row))
        x = self.phi * state["x"] + shock
        angle = 2 * np.pi * row / self.season + self.phase
        season = self.swing * np.sin(angle) + self.second * np.cos(2 * angle)
        y = self.level * np.exp(self.trend * row + season + x)
        return {"x": x, "row": row + 1}, y


class Drawn(NamedTuple):
    """A table, and what could come after it."""

    frame: pd.DataFrame  # unique_id, if there are several; ds; y
    futures: np.ndarray  # (draws, series, horizon)
    reference: np.ndarray  # as many others, to tell the true quantiles by


BURN_IN = 200  # rows that are not seen, until a law is stationary
DRAWS = 1000


def draw(law: Law, rows: int, horizon: int, seed: int, draws: int = DRAWS, burn: int = 0) -> Drawn:
    """The past of each series, and futures of that past."""
    random = np.random.default_rng(seed)
    state = law.begin(law.series, random)
    if burn:
        state, _ = law.run(state, burn, random)
    state, past = law.run(state, rows, random)  # (series, rows)
    first, second = (futures(law, state, horizon, draws, random) for _ in range(2))
    return Drawn(table(past, law.freq), first, second)


def futures(law: Law, state: State, horizon: int, draws: int, random: Random) -> np.ndarray:
    """Courses from the same states, (draws, series, horizon)."""
    repeated = {name: np.tile(values, draws) for name, values in state.items()}
    _, values = law.run(repeated, horizon, random)
    return values.reshape(draws, -1, horizon)


def table(past: np.ndarray, freq: str) -> pd.DataFrame:
    """Values (series, rows) as a frame."""
    series, rows = past.shape
    times = pd.date_range("2015-01-01", periods=rows, freq=freq)
    frame = pd.DataFrame({"ds": np.tile(times.to_numpy(), series), "y": past.reshape(-1)})
    if series > 1:
        frame.insert(0, "unique_id", np.repeat([f"s{i}" for i in range(series)], rows))
    return frame
