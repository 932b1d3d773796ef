"""The command `itocast tune` and what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from itocast.options import Source, Threads, read, settings, use, with_settings

if TYPE_CHECKING:
    from itocast.tuning.search import Tuned

SHOWN = 10  # trials, besides those that were compared with the defaults


@with_settings
def tune(
    data: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the search.")] = Path("tuned"),
    minutes: Annotated[float | None, typer.Option(help="Time for all; without --trials 10.")] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="At most so many, earlier runs included.")] = None,
    threads: Threads = 1,
    **options: Any,
) -> None:
    """Search for settings that are better than the defaults; the same command goes on. What is set is not searched."""
    from itocast.tuning.search import tune

    config = settings(**options)
    use(threads)
    found = tune(read(data), minutes, trials, output, **config.model_dump(exclude_unset=True))
    report(found, output, data)
    if found.interrupted:
        raise typer.Exit(130)


def report(found: Tuned, output: Path, data: str) -> None:
    """What was tried and compared, what is kept and why, and what to do next."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from itocast.console import count
    from itocast.tuning.search import BEST, TRIALS

    console, table = Console(), found.table
    title = "CRPS in the search and by the guard, gains over the defaults"
    grid = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("search", "gain", "guard", "gain", "needed", "seeds", "seconds"):
        grid.add_column(name, justify="right")
    grid.add_column("settings that differ", overflow="fold")
    for row in table[(table.index < SHOWN) | (table["seeds"] > 0) | (table["trial"] == 0)].to_dict("records"):
        scores = [_figure(row["crps"]), _percent(row["gain"]), _figure(row["guard"]), _percent(row["guard_gain"])]
        rest = [_percent(row["needed"]), str(row["seeds"] or ""), f"{row['seconds']:.0f}", row["settings"]]
        scores[0] = scores[0] if row["outcome"] == "finished" else row["outcome"]
        kept = row["trial"] == found.trial
        grid.add_row(*scores, *rest[:-1], rest[-1] + " (kept)" * kept, style="bold" if kept else "")
    console.print(grid)
    interrupted = "Interrupted: every finished fit is kept. " if found.interrupted else ""
    console.print(
        f"{count(len(table), 'trial')}, all of them in {output / TRIALS}. {_verdict(found)}\n{interrupted}The same "
        f"command goes on from here. Next:\n  itocast fit {'DATA' if data == '-' else data} --config {output / BEST} "
        "-o model",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip


def _verdict(found: Tuned) -> str:
    """What is kept and why."""
    from itocast.console import count
    from itocast.tuning.search import HELD

    table = found.table
    rows = f"the newest {100 * HELD:.0f} % of the rows, after {found.since[1]}, which the search never looked at"
    compared = table[table["needed"].notna()].sort_values("guard_gain", ascending=False).to_dict("records")
    if found.trial:
        kept = next(row for row in compared if row["trial"] == found.trial)
        return (
            f"Kept are settings whose CRPS is {kept['guard_gain']:.1f} % below that of the defaults on {rows}, in the "
            f"mean of {kept['seeds']} seeds; chance hardly reaches {kept['needed']:.1f} %."
        )
    if compared:
        best = compared[0]
        side = "below" if best["guard_gain"] > 0 else "above"
        return (
            f"The defaults are kept: on {rows}, the best of {count(len(compared), 'other setting')} has a CRPS "
            f"{abs(best['guard_gain']):.1f} % {side} theirs, and {best['needed']:.1f} % below is needed to rule out "
            "chance."
        )
    if (table["gain"] > 0).any():
        why = "it was too early" if found.interrupted else "the time was too short"
        return f"The defaults are kept: {why} to compare others with them on {rows}."
    tried = "nothing was better in the search" if len(table) > 1 else "no other settings were tried"
    return f"The defaults are kept: {tried}."


def _figure(value: float) -> str:
    return "" if value != value else f"{value:.4g}"


def _percent(value: float) -> str:
    return "" if value != value else f"{value:.1f} %"
