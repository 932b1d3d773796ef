"""What a search found as a table."""

from __future__ import annotations

import math

import pandas as pd

from itocast.tuning.comparison import scores
from itocast.tuning.guard import Guard


def results(guard: Guard) -> pd.DataFrame:
    """A row for each trial, the best of the search first; `Tuned` says what the columns are."""
    trials, sums, compared = guard.study.trials, guard.fits(), guard.compared()
    guarded = {number: float(scores(rows, guard.part.counts).mean()) for number, rows in sums.items()}
    base, default = guarded.get(0, math.nan) or 1, trials[0].value or 1
    rows = []
    for number, trial in enumerate(trials):
        fits = [fit for (of, _), fit in guard.study.fits.items() if of == number]
        notes = [trial.user_attrs, *fits]
        failed = [note["outcome"] for note in notes if note["outcome"] != "finished"]
        rows.append(
            {
                "trial": number,
                "crps": trial.value,
                "gain": None if trial.value is None else 100 * (default - trial.value) / default,
                "guard": guarded.get(number),
                "guard_gain": 100 * (base - guarded[number]) / base if number in guarded else None,
                "needed": 100 * compared[number].needed / base if number in compared else None,
                "seeds": len(sums.get(number, ())),
                "seconds": sum(note["seconds"] for note in notes),
                "outcome": failed[0] if failed else "finished",
                "settings": ", ".join(f"{n}={v}" for n, v in trial.user_attrs["settings"].items()) or "defaults",
            }
        )
    numbers = dict.fromkeys(("crps", "gain", "guard", "guard_gain", "needed"), float)
    table = pd.DataFrame(rows).astype(numbers).sort_values("crps", kind="stable", ignore_index=True)
    table.insert(0, "rank", table["crps"].rank(method="first").astype("Int64"))
    return table
