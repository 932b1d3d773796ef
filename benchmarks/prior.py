"""The prior on the six short tasks beside the seasonal naive method, and its coverage on laws that it never saw.

The tasks are for judging alone: nothing is trained on them or chosen by them.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from itocast.prior import Prior
from itocast.prior.prior import WEIGHTS

TASKS = Path("/work/shared/data/short")
LEVELS = [k / 10 for k in range(1, 10)]
SEASONS = {"MS": (12, 0), "QS": (4, 0), "YS": (0, 0), "D": (7, 365)}


def load(name: str, horizon: int) -> tuple[Tensor, Tensor]:
    """The pasts of a task's series, right-aligned, nan before their start, and their last `horizon` values."""
    table = pd.read_csv(TASKS / f"{name}.csv.gz")
    series = [part["y"].to_numpy(float) for _, part in table.groupby("unique_id", sort=False)]
    longest = max(map(len, series)) - horizon
    pasts = np.full((len(series), longest), np.nan)
    for past, values in zip(pasts, series, strict=True):
        past[longest - len(values) + horizon :] = values[:-horizon]
    return torch.from_numpy(pasts), torch.tensor(np.array([values[-horizon:] for values in series]))


def scores(pasts: Tensor, y: Tensor, quantiles: Tensor, season: int) -> tuple[float, float, float]:
    """WQL, MASE of the median, and the share of outcomes in the 80 % interval; quantiles (levels, rows, steps)."""
    levels = torch.tensor(LEVELS)[:, None, None]
    error = y - quantiles
    pinball = torch.maximum(levels * error, (levels - 1) * error)
    wql = (2 * pinball.nansum((1, 2)) / y.abs().nansum()).mean().item()
    scale = (pasts[:, season:] - pasts[:, :-season]).abs().nanmean(1)
    mase = (error[4].abs().nanmean(1) / scale)[scale > 0].mean().item()
    inside = (y >= quantiles[0]) & (y <= quantiles[-1])
    return wql, mase, inside.double().mean().item()


def judge(prior: Prior) -> None:
    """The table of the six tasks."""
    ratios = []
    for name, task in json.loads((TASKS / "tasks.json").read_text()).items():
        pasts, y = load(name, task["horizon"])
        seasons = torch.tensor([SEASONS[task["freq"]]]).expand(len(y), 2)
        quantiles = prior.law(pasts, seasons, task["horizon"]).quantile(LEVELS)[..., 0]
        wql, mase, held = scores(pasts, y, quantiles, max(task["season"], 1))
        naive = task["check_seasonal_naive"]
        ratios.append((wql / naive["WQL"], mase / naive["MASE"]))
        print(f"{name:18} WQL {ratios[-1][0]:.3f}  MASE {ratios[-1][1]:.3f}  80 % hold {100 * held:.0f} %")
    wql, mase = (math.exp(np.mean(np.log(part))) for part in zip(*ratios, strict=True))
    print(f"{'geometric mean':18} WQL {wql:.4f}  MASE {mase:.4f}", flush=True)


def autoregression(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    noise = rng.standard_normal(shape)
    out = noise.copy()
    out[:, 0] /= math.sqrt(1 - 0.49)
    for t in range(1, shape[1]):
        out[:, t] += 0.7 * out[:, t - 1]
    return out


def heteroscedastic(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Around a season of 12, three times as noisy in one half of it as in the other."""
    phase = np.arange(shape[1]) % 12
    return 2 * np.sin(2 * np.pi * phase / 12) + np.where(phase < 6, 1.5, 0.5) * rng.standard_normal(shape)


def student(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return 10 + rng.standard_t(3, shape)


def gamma(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return 5 + 0.02 * np.arange(shape[1]) + rng.standard_gamma(2, shape)


def shifted(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """White noise with one jump by 5 deviations, somewhere before the last tenth."""
    place = rng.integers(0, int(0.9 * (shape[1] - AHEAD)), (shape[0], 1))
    return rng.standard_normal(shape) + 5 * (np.arange(shape[1]) > place)


def walk(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.standard_normal(shape).cumsum(1)


AHEAD = 12
LAWS = {
    autoregression: (0, 0), heteroscedastic: (12, 0), student: (0, 0), gamma: (0, 0), shifted: (0, 0), walk: (0, 0),
}  # fmt: skip


def coverage(prior: Prior, series: int) -> None:
    """Share of the next 12 values inside the intervals, on series of known laws that were not trained on."""
    print(f"{'held by 80, 90, 95 %':22}" + "".join(f"{f'{rows} rows':>14}" for rows in (10, 30, 100, 400)))
    for law, season in LAWS.items():
        row = f"{law.__name__:22}"
        for rows in (10, 30, 100, 400):
            values = torch.from_numpy(law(np.random.default_rng(rows), (series, rows + AHEAD)))
            seasons = torch.tensor([season]).expand(series, 2)
            predicted = prior.law(values[:, :rows], seasons, AHEAD)
            levels = predicted.cdf(values[:, rows:, None])
            held = [((levels - 0.5).abs() <= level / 2).double().mean().item() for level in (0.8, 0.9, 0.95)]
            row += f"{' '.join(f'{100 * share:3.0f}' for share in held):>14}"
        print(row, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--coverage", type=int, default=0, metavar="SERIES", help="series of each law; 0 for the tasks")
    options = parser.parse_args()
    torch.set_num_threads(1)
    prior = Prior.load(options.weights)
    if options.coverage:
        coverage(prior, options.coverage)
    else:
        judge(prior)


if __name__ == "__main__":
    main()
