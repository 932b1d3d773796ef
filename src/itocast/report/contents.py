"""All figures of a report as plain values: what the page draws, and what tests look at."""

from __future__ import annotations

from typing import Any

import numpy as np

from itocast.data.table import Table
from itocast.doctor import Diagnosis, Examined, examine, judge
from itocast.fitted import Fitted
from itocast.metrics import score
from itocast.report import origin, parts, references
from itocast.report.lines import lines

WORDS = {"h": "hours", "D": "days", "B": "working days", "W": "weeks", "MS": "months", "ME": "months", "min": "minutes"}


def figures(
    fitted: Fitted, table: Table, later: Table | None = None, start: int | None = None,
    beside: dict[str, tuple[Fitted, Table]] | None = None, unit: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Everything that a report says of a model and a table, whose rows after `start` are tested as by the doctor.

    `later` are rows that have no targets yet; `beside` are other models, each with the table as it reads it; `unit` is
    that of the targets.
    """
    examined = examine(fitted, table, start)
    evidence = examined.evidence
    scored = score(examined.law, examined.windows.actuals())[evidence.order]
    series = table.series[examined.windows.origins.numpy()][scored.row.numpy()]
    time = table.times[(examined.windows.origins[scored.row] + 1 + scored.step).numpy()]
    several = len(table.ids) * len(table.columns.targets) > 1
    scales = examined.windows.numbers.scale.numpy()[series, scored.target.numpy()] if several else np.ones(len(scored))
    compared = references.scores(scored, table, examined.windows, beside or {})
    inside = parts.coverage(scored, evidence, 95)
    diagnosis = judge(fitted, examined)
    found = {
        "title": f"{_few(table.columns.targets)}, {_ahead(examined.windows.horizon, table.clock.freq)} ahead",
        "headline": _headline(inside, examined, table),
        "says": _says(inside, compared, diagnosis, examined),
        "clock": _clock(table),
        "unit": unit, "targets": list(table.columns.targets), "horizon": examined.windows.horizon,
        "width_unit": "deviations of the series" if several else unit,
        "forecasts": len(scored), "lines": lines(fitted, table, examined, later),
        "coverage": {str(level): parts.coverage(scored, evidence, level) for level in (50, 80, 90, 95, 99)},
        "calibration": parts.calibration(scored, evidence), "pit": parts.pit(evidence),
        "by": parts.by_parts(scored, examined, scales), "shares": parts.shares(examined, time),
        "misses": parts.misses(scored, examined, table), "scores": compared, "training": _training(fitted),
        "doctor": {"findings": [[one.says, one.remedy] for one in diagnosis.findings], "text": str(diagnosis)},
        "data": origin.data(fitted, table), "made": origin.made(fitted), "calibrator": fitted.calibration,
        "parameters": fitted.parameters,
    }  # fmt: skip
    return plain(found)


def plain(value: Any) -> Any:
    """Plain values for JSON: numbers of seven digits, None where they are not finite; whole numbers stay."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.7g}") if np.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def _clock(table: Table) -> dict[str, Any]:
    """How to show times; `days` says whether they are days and no more."""
    clock = table.clock
    index = clock.index(table.times)
    days = clock.dates and bool((index == index.normalize()).all())
    return {"dates": clock.dates, "zone": (clock.zone or "UTC").removeprefix("UTC") or "UTC", "days": days}


def _few(names: tuple[str, ...]) -> str:
    """All names, or the first ones where they are many.

    >>> _few(("a", "b", "c", "d", "e"))
    'a, b, c and 2 more'
    """
    return ", ".join(names) if len(names) < 5 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def _ahead(horizon: int, freq: str) -> str:
    if freq in WORDS:
        return f"{horizon} {WORDS[freq] if horizon > 1 else WORDS[freq][:-1]}"
    return f"{horizon} {'step' if horizon == 1 else 'steps'} of {freq}"


def _headline(inside: dict[str, float], examined: Examined, table: Table) -> str:
    one = examined.windows.horizon == 1 and len(table.ids) == len(table.columns.targets) == 1
    thing = WORDS.get(table.clock.freq, "rows") if one else "forecasts"
    part = "held-out" if "held" in examined.rows else "test"
    return f"95 % intervals covered {_percent(inside['observed'])} of {len(examined.evidence):,} {part} {thing}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _says(inside: dict[str, float], compared: list[dict], diagnosis: Diagnosis, examined: Examined) -> list[str]:
    """A few sentences for those who read no further."""
    low, observed, high = (inside[name] for name in ("low", "observed", "high"))
    verdict = "hold what they say" if low <= observed <= high else f"are too {'narrow' if observed < low else 'wide'}"
    said = [
        f"Chance alone gives {_percent(low)} to {_percent(high)}, in view of how outcomes hang together: the intervals "
        f"{verdict}."
    ]
    model, best = compared[0], references.best_reference(compared)
    if best["crps"]:
        gain = 1 - model["crps"] / best["crps"]
        side = "below" if gain >= 0 else "above"
        said.append(
            f"The error of the whole law (CRPS) is {abs(100 * gain):.0f} % {side} that of the best simple reference, "
            f"the {best['name']}."
        )
    count = len(diagnosis.findings)
    found = f"has {count} finding{'s' if count > 1 else ''}" if count else "found nothing that stands out"
    said.append(f"The doctor {found}.")
    if len(examined.windows) < len(examined.all):
        said.append(f"Of {len(examined.all):,} cutoffs {len(examined.windows):,} were looked at, evenly spaced.")
    if "held" in examined.rows:
        said.append(
            "These rows were forecast before they were learned from, but they chose the epoch and the calibration: "
            "coverage looks better here than it will on new rows."
        )
    return said


def _training(fitted: Fitted) -> dict[str, Any]:
    history = fitted.history
    return {
        "epoch": list(range(1, len(history.epochs) + 1)), "train": [epoch["train"] for epoch in history.epochs],
        "validation": [epoch["validation"] for epoch in history.epochs], "best": history.best,
        "stopped": history.stopped, "seconds": history.seconds,
    }  # fmt: skip
