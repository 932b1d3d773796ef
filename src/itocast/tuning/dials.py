"""What a search for settings may change: the space as data, and points of it as settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

LAGS = 400  # the longest window that is tried
Space = dict[str, list[Any] | tuple[float, float]]  # values, or bounds on a logarithmic scale


@dataclass(frozen=True)
class Dial:
    """What a setting may be: one of some values, or a number between two on a logarithmic scale.

    With `times` these are multiples of the default; with `parts_of` they say into how many parts another setting is
    cut; `only` is the kind of encoder that has the setting.
    """

    values: tuple[Any, ...] = ()
    between: tuple[float, float] | None = None
    times: bool = False
    parts_of: str = ""
    only: str = ""


SPACE = {
    "window": Dial((0.5, 1, 2, 3, 7), times=True),
    "data.local": Dial((True, False)),
    "data.scaling": Dial(("quantile", "rank")),
    "model.encoder.hidden": Dial((64, 128, 256, 512), only="mlp"),
    "model.encoder.dim": Dial((32, 64, 128)),
    "model.encoder.layers": Dial((1, 2, 3)),
    "model.encoder.frequencies": Dial((0, 8, 16, 32), only="mlp"),
    "model.encoder.dropout": Dial((0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)),
    "model.block.T": Dial((1.5, 3.0, 4.5)),
    "model.block.dt": Dial((1, 2, 3, 4), parts_of="model.block.T"),
    "model.block.dropout": Dial((0.0, 0.1, 0.2, 0.35, 0.5)),
    "model.components": Dial((1, 3, 5, 8)),
    "training.learning_rate": Dial(between=(0.25, 4), times=True),
    "training.weight_decay": Dial(between=(3e-3, 1.0)),
    "training.epochs": Dial((0.5, 1, 2), times=True),
    "training.batch_size": Dial((0.5, 1, 2), times=True),
    "training.averaging": Dial((0.0, 0.02, 0.05, 0.1, 0.2)),
}


def flat(values: dict[str, Any], inside: str = "") -> dict[str, Any]:
    """Nested settings under names with dots.

    >>> flat({"window": 3, "model": {"encoder": {"dim": 8}}})
    {'window': 3, 'model.encoder.dim': 8}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{inside}{name}.") if isinstance(value, dict) else {inside + name: value}
    return found


def space_of(defaults: dict[str, Any], fixed: dict[str, Any], spare: int) -> Space:
    """What may be tried of SPACE: settings that the model has and nobody has set, the defaults always among them.

    `spare` is how many rows a window may take of a series.
    """
    space: Space = {}
    held = {*fixed, *(dial.parts_of for name, dial in SPACE.items() if dial.parts_of and name in fixed)}
    for name, dial in SPACE.items():
        if name in held or defaults.get(name) is None or dial.only not in ("", defaults.get("model.encoder.kind")):
            continue
        default = point_of([name], defaults)[name]
        factor = default if dial.times else 1
        if dial.between:
            low, high = (factor * bound for bound in dial.between)
            space[name] = (min(low, default), max(high, default))
            continue
        values = [max(1, round(factor * value)) if dial.times else value for value in dial.values]
        values = [value for value in values if name != "window" or value <= min(LAGS, spare)]
        space[name] = sorted({*values, default})
    if not space:
        raise ValueError(f"all that could be searched is set ({', '.join(fixed)}): leave some of it open")
    return space


def point_of(names: Iterable[str], defaults: dict[str, Any]) -> dict[str, Any]:
    """Where in the space the defaults are."""
    whole = {name: SPACE[name].parts_of for name in names}
    return {n: round(defaults[of] / defaults[n]) if of else defaults[n] for n, of in whole.items()}


def settings_at(point: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """The settings that differ from the defaults at a point of the space; numbers have two digits."""
    values: dict[str, Any] = {}
    for name, dial in SPACE.items():
        if name not in point:
            continue
        value = point[name]
        if dial.parts_of:
            value = values.get(dial.parts_of, defaults[dial.parts_of]) / value
        elif dial.between and value != defaults[name]:
            value = float(f"{value:.2g}")
        values[name] = value
    return {name: value for name, value in values.items() if value != defaults[name]}
