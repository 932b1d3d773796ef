"""Checks of what users pass: each returns the value in plain form, or says what was expected."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np

from itocast.forecast import central


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number that is not too small.

    >>> whole("step", 0)
    Traceback (most recent call last):
    ValueError: step=0: expected a whole number, at least 1
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r}: expected a whole number, at least {least}")
    return int(value)


def choice(name: str, value: Any, choices: Iterable[str | None]) -> Any:
    """One of some words."""
    if value not in choices:
        raise ValueError(f"{name}={value!r}: expected one of {', '.join(map(str, choices))}")
    return value


def column_names(argument: str, names: Any) -> tuple[str, ...]:
    """A list of column names, each once."""
    if isinstance(names, str) or not isinstance(names, Iterable) or not all(isinstance(n, str) for n in names):
        hint = f", such as [{names!r}]" if isinstance(names, str) else ""
        raise TypeError(f"{argument}={names!r}: expected a list of column names{hint}")
    if len(set(names)) < len(tuple(names)):
        raise ValueError(f"{argument}={list(names)}: a column is named twice")
    return tuple(names)


def percentages(argument: str, values: Any) -> list[float]:
    """Levels of central intervals: one number or several."""
    numbers = _numbers(argument, values)
    for value in numbers:
        central(value)
    return numbers


def probabilities(argument: str, values: Any) -> list[float]:
    """Numbers above 0 and below 1: one or several."""
    numbers = _numbers(argument, values)
    if not all(0 < value < 1 for value in numbers):
        raise ValueError(f"{argument}={values!r}: expected numbers above 0 and below 1")
    return numbers


def share(argument: str, value: Any) -> float:
    """A share of forecasts.

    >>> share("abstain", 5)
    Traceback (most recent call last):
    ValueError: abstain=5: expected a share of forecasts above 0 and below 1, such as 0.05; None marks nothing
    """
    if not isinstance(value, Real) or not 0 < float(value) < 1:
        raise ValueError(
            f"{argument}={value!r}: expected a share of forecasts above 0 and below 1, such as 0.05; None marks nothing"
        )
    return float(value)


def _numbers(argument: str, values: Any) -> list[float]:
    try:
        return [float(value) for value in np.atleast_1d(values)]
    except (TypeError, ValueError):
        raise TypeError(f"{argument}={values!r}: expected a number or a list of numbers") from None
