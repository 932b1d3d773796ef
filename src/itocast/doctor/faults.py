"""Faults of intervals, told from noise: parts that differ from the rest first, then what is wrong with all the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from itocast.doctor.evidence import Evidence, stretch
from itocast.metrics import between

CHANCE = 0.001  # that noise alone makes a factor, or a test of all, look at fault
FEW = 30  # forecasts without which a part is not judged
MISSED = 0.08  # by which the coverage of 80 % intervals must differ to matter
LEANING = 0.10  # by which the share of outcomes above the median must differ
SHIFT, SPREAD, TAIL = 0.15, 0.08, 2.0  # deviations, log of a factor, times too many beyond 99 %


@dataclass(frozen=True)
class Finding:
    """What is wrong, by how much, and which setting addresses it."""

    fault: str
    where: str
    says: str
    evidence: dict[str, Any]
    severity: float  # share of outcomes that are on the wrong side, of all forecasts
    remedy: str = ""


def find(evidence: Evidence) -> list[Finding]:
    """All faults, the worst first.

    Part after part that differs from the rest is set aside; those of one factor make one finding. What is left is then
    judged as a whole, so that one bad series does not make all intervals look too narrow.
    """
    left = np.ones(len(evidence), bool)
    parts: dict[str, list[int]] = {}
    while (worst := _worst(evidence[left])) is not None:
        name, code = worst
        left &= ~_rows(evidence, name, code)
        parts.setdefault(name, []).append(code)
    found = [_of_part(evidence, name, codes, left) for name, codes in parts.items()]
    found += _of_all(evidence[left], len(evidence))
    return sorted(found, key=lambda finding: -finding.severity)


def _rows(evidence: Evidence, name: str, code: int) -> np.ndarray:
    """The forecasts of one part; parts of time are all that comes after their beginning."""
    codes = evidence.factors[name].codes
    return codes >= code if name == "time" else codes == code


def _worst(evidence: Evidence) -> tuple[str, int] | None:
    """The part that differs most from the rest, if one differs by more than noise makes it."""
    marks = ((evidence.inside(80), MISSED), (evidence.score > 0, LEANING))
    noise = [evidence.inflation(hits) for hits, _ in marks]
    best, most = None, 0.0
    for name, factor in evidence.factors.items():
        present = np.unique(factor.codes)
        needed = between(CHANCE / (2 * len(present)))
        for code in present[1:] if name == "time" else present:
            rows = _rows(evidence, name, code)
            z = max(_differs(hits, rows, least, phi) for (hits, least), phi in zip(marks, noise, strict=True))
            if z > max(needed, most):
                best, most = (name, int(code)), z
    return best


def _differs(hits: np.ndarray, rows: np.ndarray, least: float, inflation: float) -> float:
    """How many standard errors lie between the share of hits in some rows and in the others; 0 if it is small."""
    n, m = int(rows.sum()), int((~rows).sum())
    if min(n, m) < FEW:
        return 0.0
    gap = abs(hits[rows].mean() - hits[~rows].mean())
    pooled = hits.mean()
    error = math.sqrt(inflation * pooled * (1 - pooled) * (1 / n + 1 / m))
    return gap / max(error, 1e-12) if gap >= least else 0.0


def _of_part(evidence: Evidence, name: str, codes: list[int], left: np.ndarray) -> Finding:
    rows = np.any([_rows(evidence, name, code) for code in codes], axis=0)
    inside, outside = evidence[rows], evidence[left]
    names = [evidence.factors[name].names[code] for code in ([min(codes)] if name == "time" else codes)]
    here, there = (float(one.inside(80).mean()) for one in (inside, outside))
    above, usual = (float((one.score > 0).mean()) for one in (inside, outside))
    where = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    if abs(above - usual) > abs(here - there):
        kind = f"forecasts are too {'low' if above > usual else 'high'}"
        shares = f"{100 * above:.0f} % of the outcomes are above the median, {100 * usual:.0f} %"
    else:
        kind = f"intervals are too {'narrow' if here < there else 'wide'}"
        shares = f"those of 80 % hold {100 * here:.1f} % of the outcomes, {100 * there:.1f} %"
    says = f"{LABELS[name].format(where)}: {kind}: {shares} {'before' if name == 'time' else 'elsewhere'}."
    told = {
        "forecasts": len(inside), "coverage_80": here, "coverage_80_elsewhere": there, "above_median": above,
        "above_median_elsewhere": usual, "median_error": float(np.median(inside.error)),
        "stretch_needed": stretch(inside.score, 80),
    }  # fmt: skip
    severity = max(abs(here - there), abs(above - usual)) * len(inside) / len(evidence)
    return Finding("drift" if name == "time" else name, ", ".join(names), says, told, severity)


def _of_all(evidence: Evidence, total: int) -> list[Finding]:
    """Bias, spread and tails of the forecasts that do not stand out."""
    if len(evidence) < FEW:
        return []
    found = []
    shift = float(np.median(evidence.score))
    centred = evidence.score - shift
    above = float((evidence.score > 0).mean())
    share = len(evidence) / total
    if abs(shift) > SHIFT and _beyond(evidence, evidence.score > 0, 0.5):
        side = "low" if shift > 0 else "high"
        says = f"Forecasts are too {side}: {100 * above:.0f} % of the outcomes are above the median."
        told = {"above_median": above, "median_error": float(np.median(evidence.error)), "shift_deviations": shift}
        found.append(Finding("bias", "all", says, told, abs(above - 0.5) * share))
    tail = np.abs(centred) / stretch(centred, 50) > between(0.01)
    tails = float(tail.mean())
    heavy = tails > TAIL * 0.01 and _beyond(evidence, tail, 0.01)
    level = 50 if heavy else 80
    needed = stretch(centred, level)
    if abs(math.log(needed)) > SPREAD and _beyond(evidence, np.abs(centred) <= between(1 - level / 100), level / 100):
        found.append(_of_spread(evidence, needed, level, share))
    if heavy:
        beyond = float((~evidence.inside(99)).mean())
        says = (
            f"Outcomes far off are more frequent than the laws say: {100 * beyond:.1f} % are outside the intervals of "
            f"99 %, and {100 * tails:.1f} % would be if the middle half were right."
        )
        told = {
            "outside_99": beyond,
            "tails": tails,
            "stretch_50": stretch(centred, 50),
            "stretch_99": stretch(centred, 99),
        }
        found.append(Finding("heavy tails", "all", says, told, (tails - 0.01) * share))
    return found


def _of_spread(evidence: Evidence, needed: float, level: int, share: float) -> Finding:
    fault = "too narrow" if needed > 1 else "too wide"
    held = float(evidence.inside(level).mean())
    part = driver(evidence)
    says = (
        f"Intervals are {fault}: those of {level} % hold {100 * held:.1f} % of the outcomes, and "
        f"{needed:.2f} times the width would be right. {part['says']}"
    )
    told = {"stretch_needed": needed, "driver": part} | {
        f"coverage_{one}": float(evidence.inside(one).mean()) for one in (50, 80, 90, 95, 99)
    }
    return Finding(fault, "all", says, told, abs(held - level / 100) * share)


def driver(evidence: Evidence) -> dict[str, Any]:
    """Which part of the variance is wrong: both factors that make squared errors what the variance says.

    Least squares of error² / variance on both shares of the variance; it needs shares that vary.
    """
    share = evidence.epistemic
    mean = float(share.mean())
    if share.std() < 0.05:
        says = f"The epistemic part is {100 * mean:.0f} % of the variance"
        says += ": the aleatoric part drives it." if mean < 0.2 else " everywhere: which part drives it cannot be told."
        return {"epistemic_share": mean, "says": says}
    ratio = np.minimum(np.square(evidence.error / evidence.deviation), 25.0)
    (aleatoric, epistemic), *_ = np.linalg.lstsq(np.stack([1 - share, share], 1), ratio, rcond=None)
    name = "aleatoric" if abs(aleatoric - 1) * (1 - mean) > abs(epistemic - 1) * mean else "epistemic"
    factors = {"aleatoric_factor": float(aleatoric), "epistemic_factor": float(epistemic)}
    says = f"The {name} part drives it (the epistemic part is {100 * mean:.0f} % of the variance)."
    return {"epistemic_share": mean, **factors, "says": says}


def _beyond(evidence: Evidence, hits: np.ndarray, expected: float) -> bool:
    """Whether a share differs from what is expected by more than noise makes it."""
    error = math.sqrt(evidence.inflation(hits) * expected * (1 - expected) / len(hits))
    return bool(abs(hits.mean() - expected) > between(CHANCE / 3) * error)


LABELS = {
    "series": "Series {}",
    "target": "Target {}",
    "step": "Step {} ahead",
    "hour": "At {}",
    "weekday": "On {}",
    "size": "Forecasts of the {} fifth",
    "time": "Since {}",
}
