"""The figures of a report that say how far intervals can be trusted, from forecasts beside what happened."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from itocast.data.table import Table
from itocast.doctor import Examined
from itocast.doctor.evidence import Evidence
from itocast.forecast import central
from itocast.metrics import LEVELS, Scored, chance_band, inside, observed_coverage
from itocast.report.lines import LEVELS as SHOWN
from itocast.report.lines import named

BINS = 20  # of the histogram of PIT values
PERIODS = 100  # of time, over which the parts of the uncertainty are averaged
MISSES = 12
CHANCE = 0.05  # that a share is outside its band although all is right


def calibration(scored: Scored, evidence: Evidence) -> dict[str, list[float]]:
    """Observed against expected coverage of central intervals, in percent, and the band of chance."""
    p = LEVELS.numpy()
    needed = (2 * scored.pit - 1).abs().numpy()
    noise = np.array([evidence.inflation(needed <= level) for level in p])
    low, high = chance_band(p, len(evidence), noise, CHANCE)
    observed = observed_coverage(scored.pit).numpy()
    columns = {"expected": p, "observed": observed, "low": low, "high": high}
    return {name: (100 * values).tolist() for name, values in columns.items()}


def pit(evidence: Evidence) -> dict[str, list[float]]:
    """In how many percent of the forecasts the outcome fell into each twentieth of its law, with the band of chance."""
    place = torch.special.ndtr(torch.from_numpy(evidence.score)).numpy()
    bins = np.minimum((BINS * place).astype(int), BINS - 1)
    shares = [evidence.share(bins == one, 1 / BINS, CHANCE) for one in range(BINS)]
    return {name: [100 * share[name] for share in shares] for name in ("observed", "low", "high")}


def coverage(scored: Scored, evidence: Evidence, level: float) -> dict[str, float]:
    """The share of outcomes inside the intervals of a level, and the band of chance."""
    return evidence.share(inside(scored.pit, level).numpy(), level / 100, CHANCE)


def by_parts(scored: Scored, examined: Examined, scale: np.ndarray) -> dict[str, dict[str, list[Any]]]:
    """Coverage in percent and mean width of intervals by step, hour and weekday; widths are divided by `scale`."""
    evidence, order = examined.evidence, examined.evidence.order
    seen = ~examined.windows.actuals().isnan()
    hits, widths = {}, {}
    bounds = examined.law.quantile([p for level in SHOWN for p in central(level)])
    for level, low, high in zip(SHOWN, bounds[::2], bounds[1::2], strict=True):
        hits[level] = inside(scored.pit, level).numpy()
        widths[level] = (high - low)[seen].double().numpy()[order] / scale
    tables: dict[str, dict[str, list[Any]]] = {}
    for name in ("step", "hour", "weekday"):
        if name not in evidence.factors:
            continue
        factor = evidence.factors[name]
        table: dict[str, list[Any]] = {"part": [], "forecasts": []}
        for code in np.unique(factor.codes):
            rows = factor.codes == code
            table["part"].append(factor.names[code])
            table["forecasts"].append(int(rows.sum()))
            for level in SHOWN:
                share = evidence[rows].share(hits[level][rows], level / 100, CHANCE)
                for key, value in share.items():
                    table.setdefault(f"{key}_{level}", []).append(100 * value)
                table.setdefault(f"width_{level}", []).append(float(widths[level][rows].mean()))
        tables[name] = table
    return tables


def shares(examined: Examined, time: np.ndarray) -> dict[str, list[float]]:
    """The mean share of the variance that is epistemic, in percent, in periods with as many forecasts each."""
    parts = np.array_split(np.arange(len(time)), min(PERIODS, len(time)))
    epistemic = examined.evidence.epistemic
    return {
        "time": [int(time[part[len(part) // 2]]) for part in parts],
        "epistemic": [100 * float(epistemic[part].mean()) for part in parts],
    }


def misses(scored: Scored, examined: Examined, table: Table) -> list[dict[str, Any]]:
    """The outcomes that are farthest from their means, in deviations of their laws."""
    evidence, windows = examined.evidence, examined.windows
    far = np.abs(evidence.error / evidence.deviation)
    found = []
    for i in np.argsort(-far, kind="stable")[:MISSES].tolist():
        row, step, target = (int(getattr(scored, name)[i]) for name in ("row", "step", "target"))
        origin = int(windows.origins[row])
        low, high = (bound[0, step, target].item() for bound in examined.law[[row]].interval(95))
        found.append({
            "time": int(table.times[origin + 1 + step]), **named(table, int(table.series[origin]), target),
            "step": step + 1, "y": scored.y[i].item(), "mean": scored.mean[i].item(), "low": low, "high": high,
            "deviations": float(far[i]),
        })  # fmt: skip
    return found
