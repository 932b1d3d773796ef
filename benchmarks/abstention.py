"""What abstaining buys on Metro and Pickups: the error of the forecasts kept, and what is said of strange inputs.

The practical protocol: fit on the first 60 % of the rows; early stopping, calibration and the rule on the next 20 %,
which is learned from afterwards; what is shown is of the last 20 %, with true lags. One run, one thread. Pickups is
looked for in `--data-dir`, then in the cache.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from itocast import Forecaster, __version__
from itocast.abstention import quantiles, surprise
from itocast.plots import BLUE, GREY, ORANGE
from itocast.storage import write_bytes
from practical import load

RESULTS = Path(__file__).parent / "results"
PICTURE = Path(__file__).parent.parent / "docs" / "abstention.png"
RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
UNITS = {"Metro": "vehicles per hour", "Pickups": "pickups per hour"}
SCORES = {"RMSE": lambda scores: np.sqrt(scores.mean()), "CRPS": lambda scores: scores.mean()}
STRANGE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "as it was": lambda y: y,
    "three times as large": lambda y: 3 * y,
    "a third": lambda y: y / 3,
    "always the mean": lambda y: np.full_like(y, y.mean()),
    "in random order": lambda y: np.random.default_rng(0).permutation(y),
    "upside down": lambda y: y.max() - y,
}
Curves = dict[str, dict[str, np.ndarray]]


def fit(name: str, folder: Path) -> tuple[Forecaster, pd.DataFrame, dict[str, Any], pd.Timestamp]:
    frame, schema, data = load(name, folder)
    times = pd.to_datetime(frame[schema["time"]])
    cut = times.sort_values().iloc[round(0.8 * len(frame)) - 1]
    forecaster = Forecaster(1, window=24, support="positive", data=data)
    return forecaster.fit(frame[times <= cut], **schema), frame, schema, cut


def curves(forecaster: Forecaster, frame: pd.DataFrame, cut: pd.Timestamp) -> Curves:
    """Scores of what is kept at each rate, by the rule and by who knew the scores; and the share that was marked."""
    law, y = forecaster.backtest_distribution(frame, start=cut)
    known = ~y.reshape(-1).isnan().numpy()
    filled = torch.where(y.isnan(), law.mean.double(), y)
    each = {"RMSE": (law.mean - filled).square(), "CRPS": law.crps(filled)}
    scores = {name: values.reshape(-1).numpy()[known] for name, values in each.items()}
    marks = [np.zeros(len(known), bool)]
    marks += [forecaster.backtest(frame, start=cut, level=(), abstain=rate)["abstain"].to_numpy() for rate in RATES]
    kept = [~mark[known] for mark in marks]
    out: Curves = {"marked": {"share": np.array([1 - keep.mean() for keep in kept])}}
    for name, summary in SCORES.items():
        ordered = np.sort(scores[name])
        out[name] = {
            "rule": np.array([summary(scores[name][keep]) for keep in kept]),
            "ideal": np.array([summary(ordered[: keep.sum()]) for keep in kept]),
        }
    return out


def candidates(forecaster: Forecaster, frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """RMSE of the validation forecasts kept at each rate, by what a rule could be made of; `frame` ends with them."""
    part = 1 - forecaster.recipe.data.validation
    [(fitted, windows)] = forecaster.reader.tests(forecaster.reader.read(frame)[0], part, 1, refit=False)
    windows = windows.thin(4000)
    law, y = fitted.law(windows), windows.actuals()
    epistemic, variance = law.epistemic.double(), law.variance.double()
    assert fitted.doubt is not None
    signals = fitted.doubt.signals(windows, variance, epistemic)
    joined = {
        "epistemic share": [epistemic / variance], "distance": [signals[2]],
        "epistemic share and distance": [epistemic / variance, signals[2]],
        "epistemic deviation and distance": signals[1:], "deviation": signals[:1], "the rule: all three": signals,
        "deviation in the target's unit": [variance],
    }  # fmt: skip
    known = ~y.isnan()
    squares = (law.mean - y).square()[known].numpy()
    out = {}
    for name, parts in joined.items():
        doubt = torch.stack([surprise(signal, quantiles(signal)) for signal in parts]).sum(0)[known]
        order = np.argsort(doubt.numpy(), kind="stable")
        out[name] = np.array([squares[order[: round((1 - r) * len(order))]].mean() ** 0.5 for r in (0.0, *RATES)])
    return out


def within(forecaster: Forecaster, frame: pd.DataFrame, schema: dict[str, Any], cut: pd.Timestamp) -> list[str]:
    """For each series: how much is marked at 10 %, and the RMSE of all test forecasts and of those kept."""
    test = forecaster.backtest(frame, start=cut, level=(), abstain=0.1).dropna(subset="y")
    lines = [f"| {schema['id']} | marked | RMSE of all | RMSE kept |", "|---|---:|---:|---:|"]
    for name, part in test.assign(square=(test["mean"] - test["y"]) ** 2).groupby(schema["id"]):
        every, kept = (rows["square"].mean() ** 0.5 for rows in (part, part[~part["abstain"]]))
        lines.append(f"| {name} | {100 * part['abstain'].mean():.1f} % | {every:.2f} | {kept:.2f} |")
    return [*lines, ""]


def strange(forecaster: Forecaster, frame: pd.DataFrame, schema: dict[str, Any], cut: pd.Timestamp) -> list[float]:
    """The share of test forecasts that is marked at 5 %, after what became of the target in each series."""
    shares = []
    for change in STRANGE.values():
        changed = frame.astype({schema["target"]: float})
        later = (pd.to_datetime(frame[schema["time"]]) > cut).to_numpy()
        groups = (
            [later] if "id" not in schema else [later & (frame[schema["id"]] == one) for one in _ids(frame, schema)]
        )
        for rows in groups:
            changed.loc[rows, schema["target"]] = change(changed.loc[rows, schema["target"]].to_numpy())
        shares.append(float(forecaster.backtest(changed, start=cut, step=5, level=(), abstain=0.05)["abstain"].mean()))
    return shares


def _ids(frame: pd.DataFrame, schema: dict[str, Any]) -> list[Any]:
    return list(frame[schema["id"]].unique())


def cost(forecaster: Forecaster, frame: pd.DataFrame, cut: pd.Timestamp) -> tuple[float, float, float]:
    """Processor seconds of about 1,000 forecasts without and with marks, and what the rule adds to a folder in kB."""
    step = max(1, len(forecaster.backtest_distribution(frame, start=cut)[1]) // 1000)
    seconds: dict[float | None, list[float]] = {None: [], 0.05: []}
    for _ in range(5):
        for abstain, times in seconds.items():
            began = time.process_time()
            forecaster.backtest(frame, start=cut, step=step, abstain=abstain)
            times.append(time.process_time() - began)
    size = sum(tensor.nbytes for tensor in forecaster.fitted.doubts.tensors().values())
    return median(seconds[None]), median(seconds[0.05]), size / 1000


def table(name: str, result: Curves) -> list[str]:
    lines = [
        f"{name}, in {UNITS[name]}:", "",
        "| rate | marked | RMSE kept | at random | ideal | CRPS kept | at random | ideal |", f"|{'---:|' * 8}",
    ]  # fmt: skip
    for i, rate in enumerate((0.0, *RATES)):
        cells = [f"{100 * rate:g} %", f"{100 * result['marked']['share'][i]:.1f} %"]
        for score in SCORES:
            rule, ideal = result[score]["rule"], result[score]["ideal"]
            cells += [f"{rule[i]:.1f}", f"{rule[0]:.1f}", f"{ideal[i]:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def falls(name: str, result: Curves) -> list[str]:
    """Whether each score falls from every rate to the next."""
    out = []
    for score in SCORES:
        rises = np.diff(result[score]["rule"]).max()
        out.append(f"- {'met' if rises < 0 else 'MISSED'}: {name} {score} falls at every rate (worst {rises:+.2f})")
    return out


def draw(results: dict[str, Curves]) -> None:
    figure = Figure(figsize=(9, 6.4), layout="constrained")
    axes = figure.subplots(len(results), len(SCORES), squeeze=False)
    for row, (name, result) in zip(axes, results.items(), strict=True):
        for ax, score in zip(row, SCORES, strict=True):
            _curve(ax, 100 * result["marked"]["share"], result[score])
            ax.set(title=f"{name}: {score}", xlabel="forecasts abstained from (%)", ylabel=f"{score} ({UNITS[name]})")
    axes[0, 0].legend(loc="lower left", frameon=False)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=110)


def _curve(ax: Axes, share: np.ndarray, scores: dict[str, np.ndarray]) -> None:
    rule = scores["rule"]
    ax.plot(share, np.full_like(rule, rule[0]), color=GREY, ls=":", lw=1.5, label="kept at random")
    ax.plot(share, rule, "o-", color=BLUE, lw=1.8, ms=4, label="kept by the rule")
    ax.plot(share, scores["ideal"], "s--", color=ORANGE, lw=1.5, ms=4, label="ideal: the errors are known")
    ax.set_ylim(0, 1.08 * rule[0])
    ax.margins(x=0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Curves] = {}
    lines, bars, odd, costs, compared = [], [], {}, [], []
    for name in UNITS:
        forecaster, frame, schema, cut = fit(name, arguments.data_dir)
        results[name] = curves(forecaster, frame, cut)
        print(name, results[name], file=sys.stderr, flush=True)
        lines += table(name, results[name])
        bars += falls(name, results[name])
        if "id" in schema:
            lines += [
                f"{name} at a rate of 10 %, within each {schema['id']}:",
                "",
                *within(forecaster, frame, schema, cut),
            ]
        fitting = frame[pd.to_datetime(frame[schema["time"]]) <= cut]
        for what, kept in candidates(forecaster, fitting).items():
            compared.append(f"| {name} | {what} | {' | '.join(f'{value:.1f}' for value in kept)} |")
        odd[name] = strange(forecaster, frame, schema, cut)
        without, with_marks, size = cost(forecaster, frame, cut)
        costs.append(
            f"{name}: about 1,000 forecasts take {without:.2f} processor seconds, with marks {with_marks:.2f} "
            f"({with_marks / without:.2f} times as long); the folder of the model is {size:.0f} kB larger."
        )
    lines += ["Marked at a rate of 5 % when the target of the test part is", "", f"| | {' | '.join(odd)} |"]
    lines += [f"|---|{'---:|' * len(odd)}"]
    for i, change in enumerate(STRANGE):
        lines.append(f"| {change} | {' | '.join(f'{100 * shares[i]:.1f} %' for shares in odd.values())} |")
    rates = " | ".join(f"{100 * rate:g} %" for rate in (0, *RATES))
    lines += ["", "RMSE of the validation forecasts kept, by what is abstained by:", ""]
    lines += [f"| data | by | {rates} |", f"|---|---|{'---:|' * (1 + len(RATES))}", *compared]
    text = "\n".join([*lines, "", *costs, "", *bars])
    head = (
        f"# Abstention\n\nMade by `python benchmarks/abstention.py --data-dir DATA` with itocast {__version__}, torch "
        f"{torch.__version__}, Python {platform.python_version()}, one thread, one run (seed 0), all rows. Thresholds "
        "are from validation; scores are of the test part.\n\n"
    )
    write_bytes(RESULTS / "abstention.md", f"{head}{text}\n".encode())
    draw(results)
    print(text)
    sys.exit("a bar was missed" if "MISSED" in text else 0)


if __name__ == "__main__":
    main()
