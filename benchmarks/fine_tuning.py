"""How far fine-tuning the prior on a table should go: on short tables, and on one series alone.

`--data-dir` has a folder `short`. Of each task the prior learns from what comes before the last two
horizons before the test part, or before one or two horizons more; it then forecasts the next
horizon, and the one after it. The test part is not looked at. One series of a known law is judged by
500 futures of it.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from itocast.prior import Prior
from itocast.prior.fine_tuning import LONGEST, Examples, batch_size, between, trained
from short_series.experiments import GENERATORS, Shape
from short_series.laws import BURN_IN, draw
from short_series.rows import Row, made, page, table
from short_series.scores import TENTHS, geometric, mase, seasonal_error, wql
from short_series.tasks import Task, read

OUT = Path(__file__).parent / "results" / "fine-tuning"
WAYS = (0.0, 0.25, 0.5, 0.75, 1.0)
PERIODS = (1, 2, 3)
FEWEST = 30  # series that are long enough
SEASONS = {"nn5": (7, 365), "m1_yearly": (0, 0)}  # of the other tasks there is one
HOURS = (24, 168)
AHEAD = 12
SINGLE = [name for name in GENERATORS if name != "level shifts"]


def padded(pasts: list[np.ndarray], length: int) -> torch.Tensor:
    """The newest values of series of any length, nan before their start, (series, length)."""
    out = np.full((len(pasts), length), np.nan)
    for row, past in zip(out, pasts, strict=True):
        newest = past[-length:]
        row[-len(newest) :] = newest
    return torch.from_numpy(out)


def forms(known: list[np.ndarray], seasons: torch.Tensor, horizon: int) -> dict[float, Prior]:
    """The prior, so far on its way to what these series taught."""
    firsts = [max(len(past) // 4, 1) for past in known]
    cuts = [
        (i, cut)
        for i, (past, first) in enumerate(zip(known, firsts, strict=True))
        for cut in range(first, len(past) - horizon + 1)
    ]

    def examples(rows: int, generator: torch.Generator) -> Examples:
        some = [cuts[k] for k in torch.randint(len(cuts), (rows,), generator=generator).tolist()]
        values = padded([known[i][:cut] for i, cut in some], LONGEST)
        y = np.array([known[i][cut : cut + horizon] for i, cut in some])
        return Examples(values, seasons.expand(rows, 2), torch.from_numpy(y))

    prior = Prior.load()
    rows = batch_size(max(map(len, known)))
    network = trained(prior, examples, rows, 0, lambda step, text: None)
    return {way: between(prior, network, way) for way in WAYS}


def periods(task: Task) -> Iterator[Row]:
    """Scores of the period after what was learned, and of the one after it, for each way."""
    horizon, seasons = task.horizon, torch.tensor(SEASONS.get(task.name, (task.season, 0)))
    for back in PERIODS:
        pasts = [past[: len(past) - (back - 1) * horizon] for past in task.pasts]
        whole = [past for past in pasts if len(past) >= 3 * horizon + 2]
        series = [
            past
            for past in whole
            if np.isfinite(past[-2 * horizon :]).all() and np.isfinite(past[: -2 * horizon]).any()
        ]
        if len(series) < FEWEST:
            continue
        known = [past[: -2 * horizon] for past in series]
        for way, prior in forms(known, seasons, horizon).items():
            key = {"task": task.name, "periods back": back, "series": len(series), "way": way}
            held = scored(prior, series, 2 * horizon, horizon, task.season, seasons)
            following = scored(prior, series, horizon, horizon, task.season, seasons)
            print(key, held, following, flush=True)
            yield key | {f"held-out {name}": value for name, value in held.items()} | following


def scored(
    prior: Prior, series: list[np.ndarray], left: int, horizon: int, season: int,
    seasons: torch.Tensor,
) -> dict[str, float]:  # fmt: skip
    """WQL, MASE and the share inside 80 % of the first steps of the last `left` rows."""
    pasts = [past[:-left] for past in series]
    y = np.array([past[len(past) - left :][:horizon] for past in series])
    law = prior.law(padded(pasts, 1024), seasons.expand(len(series), 2), horizon)
    quantiles = law.quantile(list(TENTHS))[..., 0].movedim(0, -1).numpy()
    units = np.array([seasonal_error(past, season) for past in pasts])
    some = units > 0  # of a series that never changed there is no MASE
    inside = (y >= quantiles[..., 0]) & (y <= quantiles[..., -1])
    return {
        "WQL": wql(y, quantiles),
        "MASE": mase(y[some], quantiles[some][..., len(TENTHS) // 2], units[some]),
        "in 80 %": float(inside.mean()),
    }


def singles(rows: int, runs: int) -> Iterator[Row]:
    """CRPS of one series of each law, for each way, relative to that of the prior as it came."""
    shape, seasons = Shape(rows, AHEAD, "h", HOURS[0]), torch.tensor(HOURS)
    for name in SINGLE:
        for run in range(runs):
            drawn = draw(GENERATORS[name](shape, run), rows, AHEAD, run, 500, BURN_IN)
            y = drawn.frame["y"].to_numpy()
            futures = torch.from_numpy(np.asarray(drawn.futures).reshape(-1, AHEAD))
            known = [y[: len(y) - max(AHEAD, len(y) // 5)]]
            for way, prior in forms(known, seasons, AHEAD).items():
                law = prior.law(torch.from_numpy(y)[None], seasons[None], AHEAD)
                many = law[torch.zeros(len(futures), dtype=torch.long)]
                crps = many.crps(futures[..., None]).mean().item()
                print(name, rows, run, way, crps, flush=True)
                yield {"law": name, "rows": rows, "run": run, "way": way, "CRPS": crps}


def relative(frame: pd.DataFrame, key: list[str], scores: list[str]) -> pd.DataFrame:
    """Scores over those of the prior as it came."""
    first = frame[frame["way"] == 0].set_index(key)[scores]
    both = frame.set_index(key)
    both[scores] = both[scores] / first.reindex(both.index)
    return both.reset_index()


def mean_of(ratios: pd.Series) -> float:
    """Their geometric mean."""
    return geometric(ratios.to_numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--runs", type=int, default=8, help="of each law")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of seasonal errors of series that never change
    tasks = pd.DataFrame([row for task in read(arguments.data_dir) for row in periods(task)])
    laws = pd.DataFrame([row for rows in (100, 400) for row in singles(rows, arguments.runs)])
    scores = ["held-out WQL", "held-out MASE", "WQL", "MASE"]
    ratios = relative(tasks, ["task", "periods back"], scores)
    means = ratios.groupby("way")[scores].agg(mean_of)
    means["in 80 %"] = 100 * tasks.groupby("way")["in 80 %"].mean()
    single = relative(laws, ["law", "rows", "run"], ["CRPS"])
    crps = single.groupby(["rows", "law", "way"])["CRPS"].agg(mean_of)
    figures = dict.fromkeys(scores, ".3f")
    each = {"task": "", "periods back": "d", "series": "d", "way": ".2f", **figures}
    about = (
        "The prior as it came (way 0), after all steps on a table (1), and between. Scores are "
        "ratios to those of the prior as it came; held-out ones are of the period that follows "
        "what was learned from, the others of the period after it. The test parts are not used."
    )
    parts = [
        f"Geometric means of {len(tasks) // len(WAYS)} forecasts; coverage is in percent:",
        table(means.reset_index(), {"way": ".2f", **figures, "in 80 %": ".1f"}),
        "## Each", table(ratios, each),
        f"## One series of a known law, {AHEAD} steps, {arguments.runs} runs",
        table(crps.reset_index(), {"rows": "d", "law": "", "way": ".2f", "CRPS": ".3f"}),
    ]  # fmt: skip
    command = "python benchmarks/fine_tuning.py --data-dir DATA"
    frame = tasks.assign(made=made())
    page(OUT.with_suffix(".md"), "Fine-tuning the prior: how far", command, about, parts, frame)


if __name__ == "__main__":
    main()
