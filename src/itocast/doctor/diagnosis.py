"""A diagnosis: which rows were looked at, how intervals did on them, findings, and what was tried."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from itocast.data.preparation import Instant, NoWindows
from itocast.data.table import Table
from itocast.data.windows import Windows
from itocast.doctor import trials
from itocast.doctor.evidence import LEVELS, Evidence
from itocast.doctor.faults import Finding, find
from itocast.doctor.remedies import remedy
from itocast.fitted import Fitted
from itocast.forecast import Forecast

MOST = 20_000  # forecasts that are looked at, of cutoffs that are evenly spaced
ENOUGH = 200  # windows after training without which the held-out ones are looked at
FINDINGS = 5


@dataclass(frozen=True)
class Diagnosis:
    """What `Forecaster.diagnose` tells: print it, or take `to_dict()`."""

    rows: str  # which were looked at
    forecasts: int
    coverage: dict[str, dict[str, float]]  # by level
    tables: dict[str, list[dict[str, Any]]]  # coverage of 90 % intervals by step, hour, weekday, series, size, time
    findings: list[Finding]
    trials: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join([*self._coverage(), "", *self._findings(), "", *self._tried()])

    def _coverage(self) -> list[str]:
        lines = [f"{self.forecasts:,} forecasts of {self.rows}. Outcomes inside the intervals, and the band of noise:"]
        for level, band in self.coverage.items():
            observed, low, high = (_percent(band[name]) for name in ("observed", "low", "high"))
            mark = "" if band["low"] <= band["observed"] <= band["high"] else " *"
            lines.append(f"  {level} %: {observed}{mark} ({low} to {high})")
        for name, parts in self.tables.items():
            least, most = (pick(parts, key=lambda part: part["observed"]) for pick in (min, max))
            lines.append(
                f"  90 % by {name}: from {_percent(least['observed'])} ({least['part']}) to "
                f"{_percent(most['observed'])} ({most['part']})"
            )
        return lines

    def _findings(self) -> list[str]:
        if not self.findings:
            return ["Nothing stands out: what differs is noise, or too little to matter."]
        lines = []
        for place, finding in enumerate(self.findings, start=1):
            lines += [f"{place}. {finding.says}", f"   Remedy: {finding.remedy}."]
        return lines

    def _tried(self) -> list[str]:
        tried = self.trials
        lines = [f"Tried on {tried['forecasts']:,} held-out forecasts (CRPS {tried['crps']:.4g}):"]
        for name in (trials.PATHS, trials.STEP):
            if name in tried:
                gain, moves = tried[name]["gain"], tried[name]["moves"]
                lines.append(
                    f"  {name}: CRPS {100 * abs(gain):.1f} % {'lower' if gain > 0 else 'higher'}; means move by "
                    f"{moves['mean']:.2f} deviations, deviations by {100 * moves['deviation']:.0f} %"
                )
        scores = (f"{name} {one['crps']:.4g} / {one['cwce']:.2f}" for name, one in tried["calibrators"].items())
        lines.append(f"  calibrators, CRPS / CWCE: {', '.join(scores)}")
        for block in tried["solver"]:
            lines.append(
                f"  solver {block['solver']}, T = {block['T']:g}, dt = {block['dt']:g}: the step halved moves means by "
                f"{block['halved']['mean']:.2f} deviations, halved again by {block['halved_again']['mean']:.2f}; "
                f"Lipschitz bounds {block['lipschitz']}"
            )
        return lines


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


@dataclass(frozen=True)
class Examined:
    """Forecasts of rows that were not trained on, beside what happened."""

    rows: str  # which they are
    all: Windows
    windows: Windows  # at most MOST forecasts of them, of cutoffs that are evenly spaced
    law: Forecast
    evidence: Evidence
    held: Windows | None  # those that were held out from training


def examine(fitted: Fitted, table: Table, start: int | None = None) -> Examined:
    """Forecast the rows after `start`; by default those after training, or else those held out from it."""
    held, new = _parts(fitted, table, start)
    looked, rows = new, "rows after training" if start is None else "rows after start"
    if start is None and held is not None and (new is None or len(new) < ENOUGH):
        looked, rows = held, "rows that training held out"
    if looked is None:
        raise ValueError(
            "the table has no outcomes to look at: pass the rows of training, or newer ones after at least one that is "
            "forecast from"
        )
    thin = looked.thin(max(1, MOST // (looked.horizon * len(table.columns.targets))))
    law = fitted.law(thin)
    series = table.series[thin.origins.numpy()]
    names = {"series": [str(label) for label in table.ids.tolist()], "target": list(table.columns.targets)}
    times = table.times[thin.steps().numpy()]
    evidence = Evidence.of(law, thin.actuals(), times, series, table.clock, names)
    return Examined(rows, looked, thin, law, evidence, held)


def diagnose(fitted: Fitted, table: Table, start: int | None = None) -> Diagnosis:
    """Look at the forecasts that `examine` makes."""
    return judge(fitted, examine(fitted, table, start))


def judge(fitted: Fitted, examined: Examined) -> Diagnosis:
    """What is wrong with forecasts, and what would help."""
    evidence = examined.evidence
    tried, helpful = trials.run(fitted, examined.held or examined.windows)
    findings = sorted([*find(evidence), *helpful], key=lambda finding: -finding.severity)[:FINDINGS]
    findings = [replace(finding, remedy=remedy(finding, fitted, tried)) for finding in findings]
    return Diagnosis(
        examined.rows, len(evidence), {str(level): evidence.coverage(level) for level in LEVELS},
        {name: evidence.table(name) for name in evidence.factors}, findings, tried,
    )  # fmt: skip


def _parts(fitted: Fitted, table: Table, start: int | None) -> tuple[Windows | None, Windows | None]:
    """The forecasts that were held out from training, and those that are newer or after `start`."""
    end = int(fitted.context.times.max())
    held = fitted.held.rows(table)
    preparation = fitted.preparation.meeting(table, held)
    numbers = preparation.numbers(table)

    def between(after: Instant, until: Instant) -> Windows | None:
        try:
            return preparation.windows(table, after, until, numbers)
        except NoWindows:
            return None

    return between(held, end), between(end if start is None else start, None)
