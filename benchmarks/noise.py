"""What the noise of the SDE-block buys where inputs are not what they were: the default beside g = 0 and no block.

The practical protocol of `peers.py`. Lags of the test part are disturbed and outcomes are not: CRPS and coverage say
how a law bears it, and the area under the ROC curve (0.5 is a guess, 1 is certain) how well its deviation, or the
epistemic part of it, tells disturbed rows from those before. Writes benchmarks/results/noise.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean

import numpy as np
import pandas as pd
import torch
from scipy.stats import mannwhitneyu

from against.ours import ABLATIONS, DEFAULT, forecaster_of
from against.settings import Setting, load
from against.setup import TITLES
from itocast import metrics
from itocast.paper.outputs import digits, markdown
from itocast.paper.protocol import short
from itocast.storage import write_bytes

RESULT = Path(__file__).parent / "results" / "noise.md"
SETS = ("metro", "pickups", "electricity=electricity/electricity.mean321.csv.gz", "solar")
FORMS = (DEFAULT, *ABLATIONS)
SCORES = ("crps", "coverage", "deviation", "epistemic")
Draw = np.random.Generator
Change = Callable[[np.ndarray, np.ndarray, Draw], np.ndarray]  # of values, the deviation of their series, chance
CHANGES: dict[str, Change] = {
    "as they are": lambda y, deviation, draw: y,
    "noise of a tenth of the deviation": lambda y, deviation, draw: y + 0.1 * deviation * draw.normal(size=len(y)),
    "noise of three tenths": lambda y, deviation, draw: y + 0.3 * deviation * draw.normal(size=len(y)),
    "one value in ten doubled": lambda y, deviation, draw: np.where(draw.uniform(size=len(y)) < 0.1, 2 * y, y),
    "one value in ten lost, read as 0": lambda y, deviation, draw: np.where(draw.uniform(size=len(y)) < 0.1, 0.0, y),
}
Scores = dict[str, dict[str, float]]  # of each change


def disturbed(setting: Setting, change: Change) -> pd.DataFrame:
    """The rows with another target."""
    [name], frame = np.atleast_1d(setting.schema["target"]), setting.frame
    y = frame[name].astype(float)
    series = frame[setting.schema["id"]] if setting.schema.get("id") else pd.Series(0, index=frame.index)
    deviation = y.groupby(series).transform("std")
    return frame.assign(**{name: change(y.to_numpy(), deviation.to_numpy(), np.random.default_rng(0))})


def run(setting: Setting, form: str, seed: int) -> Scores:
    """The scores of a form under each change."""
    forecaster = forecaster_of(form, setting, seed).fit(setting.known, **setting.schema)
    before, y = forecaster.backtest_distribution(setting.frame, start=setting.start)
    seen = ~y.isnan()
    full = torch.where(seen, y, 0.0)
    tested = setting.parts.test
    series = tested.numbers.series[tested.origins].numpy()
    found = {}
    for name, change in CHANGES.items():
        law = forecaster.backtest_distribution(disturbed(setting, change), start=setting.start)[0]
        found[name] = {
            "crps": law.crps(full)[seen].mean().item(),
            "coverage": metrics.inside(law.pit(full)[seen], 90).double().mean().item(),
            "deviation": told(before.variance, law.variance, series),
            "epistemic": told(before.epistemic, law.epistemic, series),
        }
    return found


def told(before: torch.Tensor, after: torch.Tensor, series: np.ndarray) -> float:
    """The chance that a number of a disturbed row is larger than that of a row of the same series as it was."""
    one, other = (part.flatten().double().numpy() for part in (before, after))
    return mean(_larger(other[series == which], one[series == which]) for which in np.unique(series))


def _larger(some: np.ndarray, others: np.ndarray) -> float:
    return float(mannwhitneyu(some, others).statistic / (len(some) * len(others)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=Path("data"), help="a folder with the files of datasets")
    parser.add_argument("--datasets", default=",".join(SETS), help="names, or name=file")
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for dataset in given.datasets.split(","):
        setting = load(dataset, "practical", data_dir=str(given.data_dir))
        trials: dict[str, list[Scores]] = {}
        for form in FORMS:
            trials[form] = [run(setting, form, seed) for seed in range(given.seeds)]
            print(short(dataset), form, trials[form][0], file=sys.stderr, flush=True)
        for change in CHANGES:
            scores = {
                (form, score): mean(trial[change][score] for trial in trials[form])
                for form in FORMS
                for score in SCORES
            }
            own = scores[DEFAULT, "crps"]
            worse = [f"{100 * (scores[form, 'crps'] / own - 1):+.1f} %" for form in ABLATIONS]
            inside = [f"{100 * scores[form, 'coverage']:.1f} %" for form in FORMS]
            areas = ["–"] * 4
            if change != next(iter(CHANGES)):
                kinds = [*((form, "deviation") for form in FORMS), (DEFAULT, "epistemic")]
                areas = [f"{scores[kind]:.2f}" for kind in kinds]
            rows.append([f"{short(dataset)}: {change}", digits(own), *worse, *inside, *areas])
    names = [TITLES[form].strip("*") for form in ABLATIONS]
    heads = [
        "", "CRPS", *(f"{name}: CRPS" for name in names), "in 90 %", *(f"{name}: in 90 %" for name in names),
        "told by deviation", *(f"{name}: by deviation" for name in names), "by epistemic part",
    ]  # fmt: skip
    text = (
        "# What the noise buys where inputs are not what they were\n\n`python benchmarks/noise.py --data-dir DATA`. "
        "The default beside the same with g = 0 and without the block, practical protocol. Lags of the test part are "
        "disturbed, outcomes are not. CRPS of the default, in the unit of each dataset, and by how much that of the "
        "others is larger; the share of outcomes in 90 % intervals; the area under the ROC curve, mean over series, "
        "with which rows that were disturbed are told from rows as they were, by deviation or by the epistemic "
        "part of the variance. "
        f"Seeds: {given.seeds}.\n\n"
        f"{markdown(heads, rows)}\n"
    )
    write_bytes(RESULT, text.encode())
    print(f"Written: {RESULT}")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError, ArithmeticError) as error:
        sys.exit(f"Error: {error}")
