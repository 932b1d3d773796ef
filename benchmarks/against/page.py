"""docs/BENCHMARK.md and benchmarks/results/peers.csv, from stored cells alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import pandas as pd

from against import setup
from against.ours import ABLATIONS, DEFAULT
from against.settings import DATASETS, PROTOCOLS
from against.work import MODELS, TREE_PEERS, UCI, UCI_SETS
from itocast.paper.cells import Cell, stored
from itocast.paper.outputs import digits, markdown, spread, summary, versions
from itocast.paper.protocol import short
from itocast.storage import write_bytes

ROOT = Path(__file__).parents[2]
PAGE, TABLE = Path("docs/BENCHMARK.md"), Path("benchmarks/results/peers.csv")
SCORES = {
    "crps": "CRPS", "rmse": "RMSE", "cwce": "CWCE", "cwce_one_sided": "CWCE one-sided", "r_cwce": "R-CWCE",
    "coverage_50": "in 50 %", "coverage_80": "in 80 %", "coverage_90": "in 90 %", "coverage_95": "in 95 %",
    "width_90": "width 90 %", "fit_seconds": "fit (s)", "predict_seconds": "predict (s / 1,000)", "size": "size",
    "memory": "memory (MB)",
}  # fmt: skip
LOWEST = ("crps", "rmse", "cwce", "cwce_one_sided", "r_cwce", "fit_seconds", "predict_seconds")
OTHERS = (*TREE_PEERS, *MODELS, "hnn", "deep-ensemble")  # what the default is held against
RIVAL = "lightgbm-19"  # whose fit time is the bar
FAST, SHARE = f"{DEFAULT}-fast", 0.25  # of the rival's fit time
SLOWER = ("nhits", "tide", "ngboost")  # that it is to be ahead of
PARTS = {"crps": "CRPS", "nll": "NLL", "cwce": "CWCE", "fit_seconds": "fit (s)"}
ONE_STEP = ("paper", "practical")  # the protocols that all other bars are of
CALIBRATED = ("metro", "pickups")  # where the bars of calibration hold
ORDERS = (*PROTOCOLS, UCI), (*map(short, DATASETS), *UCI_SETS), setup.ORDER
PLACES = {name: place for order in ORDERS for place, name in enumerate(order)}
Key = tuple[str, str]  # protocol, dataset
Check = Callable[[dict[str, list[Cell]]], str]  # nothing, or why a bar is missed
Groups = dict[Key, dict[str, list[Cell]]]  # the cells of each peer


class Bar(NamedTuple):
    """Something to reach, with the settings that were checked and those that missed it."""

    title: str
    checked: list[str]
    missed: list[str]

    def __str__(self) -> str:
        met = len(self.checked) - len(self.missed)
        verdict = "no cells yet" if not self.checked else "met" if not self.missed else "MISSED"
        return f"- **{verdict}** ({met} of {len(self.checked)}): {self.title}" + "".join(
            f"\n  - {one}" for one in self.missed
        )


def group(cells: list[Cell]) -> Groups:
    """Cells by protocol and dataset, then by peer, all in their usual order."""
    found: Groups = {}
    for cell in cells:
        settings = cell["settings"]
        key = settings["protocol"], short(settings["dataset"])
        trials = found.setdefault(key, {}).setdefault(settings["peer"], [])
        trials.append(cell)
        first = next(iter(found[key].values()))[0]
        for name, a, b in (("digest", first["digest"], cell["digest"]), ("rows", first["rows"], cell["rows"])):
            if a != b:
                raise ValueError(f"cells of {' '.join(key)} differ in {name}, {a!r} and {b!r}: delete those of one")
    order = sorted(found, key=lambda key: (PLACES.get(key[0], 99), PLACES.get(key[1], 99)))
    return {key: dict(sorted(found[key].items(), key=lambda one: PLACES.get(one[0], 99))) for key in order}


def average(cells: list[Cell], name: str) -> float:
    """The mean of a score over the seeds."""
    return mean(cell["scores"][name] for cell in cells)


def bars(groups: Groups) -> list[Bar]:
    """What the default is to reach, on every setting where it and some peers were run: one step ahead, then others."""
    met = {key: peers for key, peers in groups.items() if DEFAULT in peers and any(name in peers for name in OTHERS)}
    both = {key: peers for key, peers in met.items() if key[0] in ONE_STEP}
    beyond = {key: peers for key, peers in met.items() if key[0] not in ONE_STEP}
    calibrated = {key: peers for key, peers in both.items() if key[1] in CALIBRATED}
    titles: dict[str, tuple[Groups, Check]] = {
        "the lowest CRPS": (both, _lowest("crps")),
        "two-sided CWCE no worse than the best peer's": (calibrated, _lowest("cwce")),
        "two-sided CWCE below 1.0": (calibrated, _within("cwce", 0.0, 1.0)),
        "88 to 92 % of outcomes in 90 % intervals": (calibrated, _within("coverage_90", 0.88, 0.92)),
        f"fit time no longer than {RIVAL}'s": (_with(both, DEFAULT, RIVAL), _faster(DEFAULT, 1.0)),
        f"`{FAST}`: at most a quarter of {RIVAL}'s fit time": (_with(both, FAST, RIVAL), _faster(FAST, SHARE)),
        f"`{FAST}`: a CRPS below those of {', '.join(SLOWER)}": (
            _with(both, FAST, *SLOWER), _lowest("crps", FAST, SLOWER)
        ),
        "the block and its noise: CRPS and NLL below those without g and without the block": (
            _with(groups, DEFAULT, *ABLATIONS), _earns
        ),
        "beyond what was aimed at, 24 steps ahead and UCI: the lowest CRPS": (beyond, _lowest("crps")),
    }  # fmt: skip
    found = []
    for title, (settings, check) in titles.items():
        missed = [f"{' '.join(key)}: {why}" for key, peers in settings.items() if (why := check(peers))]
        found.append(Bar(title, [" ".join(key) for key in settings], missed))
    return found


def _with(groups: Groups, *names: str) -> Groups:
    """The settings where all of these were run."""
    return {key: peers for key, peers in groups.items() if all(name in peers for name in names)}


def _lowest(name: str, mine: str = DEFAULT, others: tuple[str, ...] = OTHERS) -> Check:
    def check(peers: dict[str, list[Cell]]) -> str:
        best = min((peer for peer in peers if peer in others), key=lambda peer: average(peers[peer], name))
        own, other = average(peers[mine], name), average(peers[best], name)
        return "" if own <= other else f"{digits(own)}, {best} {digits(other)}"

    return check


def _within(name: str, low: float, high: float) -> Check:
    def check(peers: dict[str, list[Cell]]) -> str:
        value = average(peers[DEFAULT], name)
        return "" if low <= value <= high else f"{value:.3f}"

    return check


def _faster(mine: str, share: float) -> Check:
    def check(peers: dict[str, list[Cell]]) -> str:
        own, other = (average(peers[peer], "fit_seconds") for peer in (mine, RIVAL))
        return "" if own <= share * other else f"{digits(own)} s, {digits(other)} s"

    return check


def _earns(peers: dict[str, list[Cell]]) -> str:
    missed = []
    for name in ("crps", "nll"):
        own, *others = (average(peers[peer], name) for peer in (DEFAULT, *ABLATIONS))
        better = [
            f"{setup.TITLES[peer]} {digits(other)}"
            for peer, other in zip(ABLATIONS, others, strict=True)
            if other < own
        ]
        missed += [f"{PARTS[name]} {digits(own)}, {', '.join(better)}"] if better else []
    return "; ".join(missed)


def parts(groups: Groups) -> str:
    """What block and noise are worth: a row for each setting and form."""
    rows = []
    for (protocol, dataset), peers in _with(groups, DEFAULT, *ABLATIONS).items():
        for peer in (DEFAULT, *ABLATIONS):
            figures = [spread([cell["scores"][name] for cell in peers[peer]]) for name in PARTS]
            rows.append([f"{dataset}, {protocol}" if peer == DEFAULT else "", setup.TITLES[peer], *figures])
    return markdown(["", "", *PARTS.values()], rows)


def worth(groups: Groups) -> str:
    """By how much the forms without noise and without the block are worse, on average over settings."""
    settings = _with(groups, DEFAULT, *ABLATIONS).values()
    sentences = []
    for peer in ABLATIONS:
        pairs = {name: [(average(one[peer], name), average(one[DEFAULT], name)) for one in settings] for name in PARTS}
        crps = mean(other / own - 1 for other, own in pairs["crps"])
        nll, cwce = (mean(other - own for other, own in pairs[name]) for name in ("nll", "cwce"))
        lower = sum(own < other for other, own in pairs["crps"])
        sentences.append(
            f"{setup.TITLES[peer]}: CRPS {100 * crps:+.1f} %, NLL {nll:+.3f} nats, CWCE {cwce:+.2f}; the default has "
            f"the lower CRPS in {lower} of {len(pairs['crps'])}"
        )
    return f"On average over these settings, beside the default: {'. '.join(sentences)}."


def table(peers: dict[str, list[Cell]]) -> str:
    """One row a peer; the best of each score is bold."""
    best = {name: min(average(cells, name) for cells in peers.values()) for name in LOWEST}
    rows = []
    for peer, cells in peers.items():
        row = [setup.TITLES.get(peer, peer)]
        for name in SCORES:
            text = _text(name, [cell["scores"][name] for cell in cells])
            row.append(f"**{text}**" if average(cells, name) == best.get(name) else text)
        rows.append(row)
    return markdown(["", *SCORES.values()], rows)


def _text(name: str, values: list[float]) -> str:
    if name in ("size", "memory"):
        return f"{mean(values):,.0f}"
    if name.startswith("coverage"):
        return spread([100 * value for value in values])
    return spread(values)


def frame(groups: Groups) -> pd.DataFrame:
    """Means and standard deviations of everything."""
    rows = []
    for (protocol, dataset), peers in groups.items():
        for peer, cells in peers.items():
            row: dict[str, Any] = {"protocol": protocol, "dataset": dataset, "peer": peer, "seeds": len(cells)}
            for name in SCORES:
                row[name], row[f"{name}_std"] = summary([cell["scores"][name] for cell in cells])
            rows.append(row)
    return pd.DataFrame(rows)


def text(groups: Groups) -> str:
    """The whole page."""
    cells = (cell for peers in groups.values() for trials in peers.values() for cell in trials)
    made = versions(cell["versions"] | cell["packages"] for cell in cells)
    lines = [
        "# itocast against other tools",
        "",
        setup.HEAD,
        "",
        "## Bars",
        "",
        f"Of `{DEFAULT}`, means over seeds:",
        "",
    ]
    lines += [*map(str, bars(groups)), ""]
    for (protocol, dataset), peers in groups.items():
        first = next(iter(peers.values()))[0]
        seeds = sorted({len(cells) for cells in peers.values()})
        about = PROTOCOLS[protocol].about if protocol in PROTOCOLS else setup.UCI
        size = f"{first['rows']:,} rows of `{first['file']}`, {first['tested']:,} tested; targets: {first['targets']}"
        trials = f"{'splits' if protocol == UCI else 'seeds'}: {' or '.join(map(str, seeds))}"
        about = f"{about[0].upper()}{about[1:]}. {size}, in {first['unit']}; {trials}."
        lines += [f"## {dataset}, {protocol}", "", about, "", table(peers), ""]
    if _with(groups, DEFAULT, *ABLATIONS):
        lines += [
            "## What the block is worth",
            "",
            setup.PARTS,
            "",
            parts(groups),
            "",
            worth(groups),
            "",
            setup.ELSE,
            "",
        ]
    return "\n".join([*lines, setup.NOTES.strip(), "", "## Made with", "", setup.COMMAND, "", f"{made}.", ""])


def write(folder: Path, root: Path = ROOT) -> list[Path]:
    """Both files, from the cells of a folder."""
    cells = [cell for cell in stored(folder) if not cell["settings"]["quick"] or folder.name.endswith("quick")]
    if not cells:
        raise ValueError(f"{folder} holds no cells: run the same command without --page first")
    groups = group(cells)
    write_bytes(root / PAGE, text(groups).encode())
    write_bytes(root / TABLE, frame(groups).to_csv(index=False, float_format="%.6g").encode())
    return [PAGE, TABLE]
