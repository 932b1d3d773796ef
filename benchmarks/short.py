"""Short series: public tasks beside what is published, known laws, months, and the least rows.

`tasks` scores one Forecaster on each of six public tasks, once its scores of seasonal naive are
the published ones; `autoets` scores local methods on them, in an environment with statsforecast;
`generators`, `zero-shot`, `months` and `ladder` forecast series of known laws, and judge each
interval by the futures that the law draws from the same past. Results are rows of a file, written as they come:
`--missing` leaves those that are there, `--page` makes the page alone.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

from short_series import experiments, published
from short_series.experiments import EXPERIMENTS
from short_series.rows import Rows, Settings, page
from short_series.tasks import Task, checked

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "short"
PEERS = HERE / "results" / "short-peers.csv"
LOOKS = HERE / "runs" / "short"  # at a part of the series, which is no result
TABLES = ("tasks", "autoets", *EXPERIMENTS)
CHEAP = ("m1_monthly", "m1_quarterly", "m1_yearly", "tourism_quarterly")  # for AutoARIMA


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--data-dir", type=Path, default=Path("data"), help="has a folder `short`")
    parser.add_argument("--out", type=Path, default=None, help="how the files begin")
    parser.add_argument("--missing", action="store_true", help="run only what the file has not")
    parser.add_argument("--page", action="store_true", help="write the page, and run nothing")
    parser.add_argument("--only", default="", help="names of tasks or laws, by commas")
    parser.add_argument("--subset", type=int, default=1, help="of tasks, every so many-th series")
    parser.add_argument("--seeds", type=int, default=1, help="of tasks")
    parser.add_argument("--runs", type=int, default=None, help="of laws")
    parser.add_argument("--model", default=None, help="of the Forecaster")
    parser.add_argument("--effort", default=None, help="of the Forecaster")
    arguments = parser.parse_args(words)
    arguments.only = tuple(filter(None, arguments.only.split(",")))
    arguments.out = arguments.out or (RESULTS if arguments.subset == 1 else LOOKS)
    return arguments


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Those of the Forecaster that are no defaults."""
    chosen = {"model": arguments.model, "effort": arguments.effort}
    return {name: value for name, value in chosen.items() if value is not None}


def command(arguments: argparse.Namespace) -> str:
    """The line that makes the same again."""
    given = {"runs": arguments.runs, **settings_of(arguments)}
    given |= {"subset": arguments.subset} if arguments.subset > 1 else {}
    given |= {"seeds": arguments.seeds} if arguments.seeds > 1 else {}
    more = "".join(f" --{name} {value}" for name, value in given.items() if value is not None)
    data = " --data-dir DATA" if arguments.table == "tasks" else ""
    return f"python benchmarks/short.py {arguments.table}{data}{more}"


def beside(arguments: argparse.Namespace, end: str) -> Path:
    """A file of results whose name begins as it was asked for."""
    return arguments.out.with_name(f"{arguments.out.name}{end}")


def chosen(arguments: argparse.Namespace, names: tuple[str, ...] = ()) -> list[Task]:
    """The tasks, or as many of their series as are asked for, after the check of the harness."""
    found = checked(arguments.data_dir, names)
    return found if arguments.subset == 1 else [task.some(arguments.subset) for task in found]


def tasks(arguments: argparse.Namespace) -> str:
    """Run and write the public tasks."""
    rows = Rows(beside(arguments, ".csv"), published.KEY)
    if not arguments.page:
        found = chosen(arguments, arguments.only)
        seeds = range(arguments.seeds)
        published.run(found, rows, seeds, arguments.missing, settings_of(arguments))
    shown = [task for task in chosen(arguments) if task.name in set(rows.frame["task"])]
    others = published.peers_of(shown, PEERS)
    return published.write(shown, rows, others, beside(arguments, ".md"), command(arguments))


def local(arguments: argparse.Namespace) -> str:
    """Run the methods of statsforecast, of which AutoARIMA where it does not take hours."""
    rows = Rows(beside(arguments, "-peers.csv"), published.KEY)
    for method, names in (("AutoETS", ()), ("AutoARIMA", CHEAP)):
        found = checked(arguments.data_dir, arguments.only or names)
        published.run_peers(found, rows, method, arguments.missing)
    return rows.frame.to_string()


def laws(arguments: argparse.Namespace) -> str:
    """Run and write an experiment on known laws."""
    experiment = EXPERIMENTS[arguments.table]
    arguments.model = arguments.model or experiment.model
    rows = Rows(beside(arguments, f"-{arguments.table}.csv"), experiments.KEY)
    if not arguments.page:
        runs = arguments.runs or experiment.runs
        settings = settings_of(arguments)
        experiments.run(experiment, rows, runs, arguments.missing, settings, arguments.only)
    parts = experiments.summary(experiment, rows.frame)
    file = beside(arguments, f"-{arguments.table}.md")
    title = f"Short series: {experiment.title}"
    return page(file, title, command(arguments), experiment.about, parts, rows.frame)


def one_thread() -> None:
    """Of torch, where it is used."""
    import torch

    torch.set_num_threads(1)


def main() -> None:
    arguments = parse()
    warnings.simplefilter("ignore")  # of few rows, which is what is looked at
    if arguments.table != "autoets":
        one_thread()
    work = {"tasks": tasks, "autoets": local}.get(arguments.table, laws)
    print(work(arguments))


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit("Stopped: the rows that were made are kept, and --missing goes on from them.")
