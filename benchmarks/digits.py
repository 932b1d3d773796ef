"""SDEClassifier on the digits of scikit-learn, beside the same network without the SDE-block.

Five folds and several seeds; log-loss, expected calibration error (15 bins of equal width) and accuracy of the rows
left out, one thread. Both are the same committee with the same settings and longest run; without the block a state goes
straight to the softmax.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from pathlib import Path

import numpy as np
import sklearn
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

from itocast import __version__
from itocast.estimators import SDEClassifier
from itocast.models.base import Model
from itocast.models.committee import ClassCommittee
from itocast.nets import Encoder
from itocast.storage import write_bytes

RESULTS = Path(__file__).parent / "results"
SHOWN = {"log_loss": ".4f", "ece": ".4f", "accuracy": ".4f", "missed_auc": ".3f", "seconds": ".1f"}
Scores = dict[str, float]


class WithoutBlock(SDEClassifier):
    """The same classifier with no block between encoder and softmax."""

    def _build(self, encoder: Encoder) -> Model:
        sde = super()._build(encoder)
        return ClassCommittee(sde.sizes, encoder, None, self.seed_)


def calibration_error(probabilities: np.ndarray, right: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error: |accuracy - confidence| of the top class, weighted over bins of its confidence."""
    confidence = probabilities.max(1)
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [abs((right - confidence)[bin_of == b].sum()) for b in range(bins)]
    return float(sum(gaps) / len(right))


def run(kind: type[SDEClassifier], seed: int, train: np.ndarray, test: np.ndarray) -> Scores:
    x, y = load_digits(return_X_y=True)
    start = time.process_time()
    model = kind(random_state=seed).fit(x[train], y[train])
    seconds = time.process_time() - start
    probabilities = model.predict_proba(x[test])
    right = probabilities.argmax(1) == y[test]
    return {
        "log_loss": log_loss(y[test], probabilities),
        "ece": calibration_error(probabilities, right),
        "accuracy": float(right.mean()),
        "missed_auc": separation(model.predict_uncertainty(x[test]).total, right),
        "seconds": seconds,
    }


def separation(uncertainty: np.ndarray, right: np.ndarray) -> float:
    """The chance that a wrong answer is more uncertain than a right one; nan if all are right."""
    if right.all():
        return float("nan")
    return float((uncertainty[~right][:, None] > uncertainty[right]).mean())


def compare(seeds: int) -> dict[str, list[Scores]]:
    x, y = load_digits(return_X_y=True)
    kinds = {"SDEClassifier": SDEClassifier, "without the block": WithoutBlock}
    scores: dict[str, list[Scores]] = {name: [] for name in kinds}
    for seed in range(seeds):
        for train, test in StratifiedKFold(5, shuffle=True, random_state=seed).split(x, y):
            for name, kind in kinds.items():
                scores[name].append(run(kind, seed, train, test))
                print(seed, name, scores[name][-1], file=sys.stderr, flush=True)
    return scores


def report(scores: dict[str, list[Scores]]) -> str:
    lines = ["| | " + " | ".join(SHOWN) + " |", "|---|" + "---:|" * len(SHOWN)]
    for name, cells in scores.items():
        columns = [np.array([cell[key] for cell in cells]) for key in SHOWN]
        shown = (
            f"{np.nanmean(c):{form}} ± {np.nanstd(c, ddof=1) / np.sqrt(np.isfinite(c).sum()):{form}}"
            for c, form in zip(columns, SHOWN.values(), strict=True)
        )
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    one, other = scores.values()
    paired = []
    for key in ("log_loss", "ece"):
        gap = np.array([a[key] - b[key] for a, b in zip(one, other, strict=True)])
        error = gap.std(ddof=1) / len(gap) ** 0.5
        word = "lower" if gap.mean() < 0 else "HIGHER"
        paired.append(
            f"- {key} with the block is {word}: difference {gap.mean():+.4f} ± {error:.4f} (pairs), "
            f"better in {(gap < 0).sum()} of {len(gap)} cells"
        )
    return "\n".join([*lines, "", *paired])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    text = report(compare(arguments.seeds))
    head = (
        "# Digits: classification with and without the SDE-block\n\n"
        f"Made by `python benchmarks/digits.py --seeds {arguments.seeds}` with itocast {__version__}, torch "
        f"{torch.__version__}, scikit-learn {sklearn.__version__}, Python {platform.python_version()}, one thread. "
        f"Five folds, {arguments.seeds} seeds; means ± standard errors over the cells; processor seconds of a fit. "
        "`missed_auc`: the chance that a wrong answer has a higher entropy than a right one.\n\n"
    )
    write_bytes(RESULTS / "digits.md", f"{head}{text}\n{NOTES}".encode())
    print(text)


NOTES = """
Read a difference of less than two standard errors as none. The cells of different seeds share rows, so the standard
errors are rather too small. The settings are the defaults; none was chosen on these data.
"""


if __name__ == "__main__":
    main()
