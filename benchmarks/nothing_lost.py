"""What a change of the default costs on long series: CRPS now over that of before.

The Forecaster with its defaults, on the settings of `benchmarks/peers.py` and by its code. Before
is a file that this command wrote with an earlier version (`--before`), seed by seed; a cell that
it has not is compared with the mean over seeds in benchmarks/results/peers.csv. With `--earlier`
the test part is not looked at: the last rows before it are forecast, from those before them.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from against import ours, page, work
from against.laws import score
from against.settings import DATASETS, PROTOCOLS, load
from against.table import read
from itocast.data.sources import NotPublished
from itocast.paper.protocol import short
from short_series.rows import Key, Row, Rows, table
from short_series.rows import page as page_of
from short_series.scores import geometric

HERE = Path(__file__).parent
OUT = HERE / "results" / "nothing-lost.csv"
ABOUT = (
    "CRPS of the default on the test part, and its ratio to that of the version before the prior: where the "
    "seed is not the same, to the mean over seeds in benchmarks/results/peers.csv. Of UCI a seed is a split."
)
KEY = ("protocol", "dataset", "seed", "part")
NAMED = {short(name): name for name in (*DATASETS, *work.UCI_SETS)}
SETTINGS = (
    *(f"{protocol}/{short(name)}" for protocol in PROTOCOLS for name in DATASETS),
    *(f"{work.UCI}/{name}" for name in work.UCI_SETS),
)
SHOWN = {
    "protocol": "", "dataset": "", "seeds": "d", "CRPS": ".5g", "before": ".5g", "ratio": ".4f",
    "compared with": "", "in 90 %": ".1f", "before, in 90 %": ".1f", "seconds": ".0f",
    "before (s)": ".0f",
}  # fmt: skip


def measure(protocol: str, dataset: str, seed: int, part: str, data_dir: str) -> Row:
    """Scores and costs of the default on one setting."""
    if part == "earlier":
        return earlier(protocol, dataset, seed, data_dir)
    cell = work.measure(NAMED[dataset], protocol, ours.DEFAULT, seed, False, data_dir)
    found = cell["scores"]
    return {
        "crps": found["crps"], "coverage_90": found["coverage_90"], "cwce": found["cwce"],
        "fit_seconds": found["fit_seconds"],
        "predict_seconds": found["predict_seconds"] * cell["tested"] / 1000,
    }  # fmt: skip


def earlier(protocol: str, dataset: str, seed: int, data_dir: str) -> Row:
    """The same without the test part, on the last rows before it."""
    setting = load(NAMED[dataset], protocol, False, data_dir).earlier
    answer = ours.answer(ours.DEFAULT, setting, seed)
    y = setting.parts.test.actuals().numpy()
    assert answer.mean is not None
    found = score(np.maximum(answer.quantiles, 0.0), np.maximum(answer.mean, 0.0), y)
    kept = {name: found[name] for name in ("crps", "coverage_90", "cwce")}
    seconds = {"fit_seconds": answer.fit_seconds, "predict_seconds": answer.predict_seconds}
    return kept | seconds


def compared(rows: pd.DataFrame, before: Path | None) -> pd.DataFrame:
    """Each setting, the mean over its seeds, beside the same of before."""
    file = Rows(before, KEY).frame if before else pd.DataFrame()
    groups = rows.groupby(["protocol", "dataset"], sort=False)
    return pd.DataFrame([_beside(part.to_dict("records"), file) for _, part in groups])


def _beside(rows: list[dict[Any, Any]], file: pd.DataFrame) -> Row:
    olds, sources = zip(*(_before(row, file) for row in rows), strict=True)

    def means(name: str) -> tuple[float, float]:
        return (
            float(np.mean([row[name] for row in rows])),
            float(np.mean([old.get(name, np.nan) for old in olds])),
        )

    (crps, old_crps), (held, old_held) = means("crps"), means("coverage_90")
    seconds, old_seconds = means("fit_seconds")
    return {
        **{name: rows[0][name] for name in ("protocol", "dataset")}, "seeds": len(rows),
        "CRPS": crps, "before": old_crps, "ratio": crps / old_crps, "compared with": sources[0],
        "in 90 %": 100 * held, "before, in 90 %": 100 * old_held,
        "seconds": seconds, "before (s)": old_seconds,
    }  # fmt: skip


def _before(row: dict[Any, Any], file: pd.DataFrame) -> tuple[dict[Any, Any], str]:
    """The cell of an earlier version with the same seed, or the mean over seeds in the table."""
    if len(file):
        same = np.logical_and.reduce([file[name] == row[name] for name in KEY])
        if same.any():
            return file[same].iloc[0].to_dict(), "same seed"
    line = read(page.ROOT).get((row["protocol"], row["dataset"], ours.DEFAULT))
    if line is None or row["part"] == "earlier":
        return {}, "nothing"
    return line.means, f"mean of {len(line.seeds)}"


def summary(found: pd.DataFrame) -> str:
    """All cells, and the geometric mean and the worst of their ratios."""
    lines = [table(found, SHOWN)]
    known = found[found["ratio"].notna()]
    if len(known):
        mean = geometric(known["ratio"].to_numpy())
        worst = known.sort_values("ratio").iloc[-1]
        where = f"{worst['ratio']:.4f}, {worst['protocol']}/{worst['dataset']}"
        lines.append(f"Geometric mean {mean:.4f} of {len(known)}; worst {where}.")
    return "\n\n".join(lines)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """What is asked for, with all names checked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--settings", default="", help=f"of {', '.join(SETTINGS)}, by commas")
    parser.add_argument("--seeds", default="0", help="numbers, by commas; of UCI the split too")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--before", type=Path, default=None, help="a file of --out, of before")
    parser.add_argument("--earlier", action="store_true", help="test on rows before the test part")
    parser.add_argument("--missing", action="store_true", help="run only what the file has not")
    parser.add_argument("--page", action="store_true", help="compare, and run nothing")
    arguments = parser.parse_args(words)
    arguments.settings = tuple(filter(None, arguments.settings.split(","))) or SETTINGS
    arguments.seeds = tuple(map(int, arguments.seeds.split(",")))
    unknown = set(arguments.settings) - set(SETTINGS)
    if unknown:
        parser.error(f"--settings {', '.join(sorted(unknown))}: expected {', '.join(SETTINGS)}")
    return arguments


def keys(arguments: argparse.Namespace) -> list[Key]:
    """Every setting with every seed; a UCI set has no part before its test part."""
    part = "earlier" if arguments.earlier else "test"
    names = [setting.split("/") for setting in arguments.settings]
    return [
        {"protocol": protocol, "dataset": dataset, "seed": seed, "part": part}
        for seed in arguments.seeds
        for protocol, dataset in names
        if not (arguments.earlier and protocol == work.UCI)
    ]


def main() -> None:
    arguments = parse()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NotPublished)  # as it is of both versions
    rows, wanted = Rows(arguments.out, KEY), keys(arguments)

    def make(**key: Any) -> Row:
        return measure(**key, data_dir=str(arguments.data_dir))

    if not arguments.page:
        rows.fill(wanted, make, arguments.missing)
    found = rows.chosen(wanted)
    parts = [summary(compared(found, arguments.before))]
    file, command = arguments.out.with_suffix(".md"), "python benchmarks/nothing_lost.py --data-dir DATA"
    print(page_of(file, "Long series: now and before", command, ABOUT, parts, found))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit("Stopped: the cells that were made are kept, and --missing goes on from them.")
