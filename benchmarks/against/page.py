"""docs/BENCHMARK.md, from the lines of the table alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from against import setup
from against.ours import ABLATIONS, DEFAULT
from against.settings import DATASETS, PROTOCOLS
from against.table import TABLE, Line, Lines, added, read
from against.table import write as write_table
from against.work import MODELS, TREE_PEERS, UCI, UCI_SETS
from itocast.paper.cells import stored
from itocast.paper.outputs import digits, markdown, plus_minus, versions
from itocast.paper.protocol import short
from itocast.storage import write_bytes

ROOT = Path(__file__).parents[2]
PAGE = Path("docs/BENCHMARK.md")
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
BEYOND = "beyond what was aimed at, "
ORDERS = (*PROTOCOLS, UCI), (*map(short, DATASETS), *UCI_SETS), setup.ORDER
PLACES = {name: place for order in ORDERS for place, name in enumerate(order)}
Key = tuple[str, str]  # protocol, dataset
Check = Callable[[dict[str, Line]], str]  # nothing, or why a bar is missed
Groups = dict[Key, dict[str, Line]]  # the peers of each setting


class Bar(NamedTuple):
    """Something to reach, with the settings that were checked and those that missed it."""

    title: str
    checked: list[str]
    missed: list[str]

    def __str__(self) -> str:
        met = len(self.checked) - len(self.missed)
        verdict = "no lines yet" if not self.checked else "missed" if self.missed else "met"
        return f"- **{verdict}**, holds in {met} of {len(self.checked)}: {self.title}" + "".join(
            f"\n  - not in {one}" for one in self.missed
        )


def group(lines: Lines) -> Groups:
    """Lines by protocol and dataset, then by peer, all in their usual order."""
    found: Groups = {}
    for key in sorted(lines, key=lambda key: [PLACES.get(part, 99) for part in key]):
        found.setdefault(key[:2], {})[key[2]] = lines[key]
    return found


def bars(groups: Groups) -> list[Bar]:
    """What the default is to reach, on every setting where it and some peers were run: one step ahead, then others."""
    met = {key: peers for key, peers in groups.items() if DEFAULT in peers and any(name in peers for name in OTHERS)}
    both = {key: peers for key, peers in met.items() if key[0] in ONE_STEP}
    several = {key: peers for key, peers in met.items() if key[0] not in ONE_STEP}
    aimed = {key: peers for key, peers in both.items() if key[1] in CALIBRATED}
    others = {key: peers for key, peers in both.items() if key[1] not in CALIBRATED}
    below, inside = _within("cwce", 0.0, 1.0), _within("coverage_90", 0.88, 0.92)
    where = "Metro and Pickups: "
    titles: dict[str, tuple[Groups, Check]] = {
        "the lowest CRPS of all peers": (both, _lowest("crps")),
        f"{where}two-sided CWCE no worse than the best peer's": (aimed, _lowest("cwce")),
        f"{where}two-sided CWCE below 1.0": (aimed, below),
        f"{where}88 to 92 % of outcomes in 90 % intervals": (aimed, inside),
        f"fit time no longer than {RIVAL}'s": (_with(both, DEFAULT, RIVAL), _faster(DEFAULT, 1.0)),
        f"`{FAST}`: at most a quarter of {RIVAL}'s fit time": (_with(both, FAST, RIVAL), _faster(FAST, SHARE)),
        f"`{FAST}`: a CRPS below those of {', '.join(SLOWER)}": (
            {key: peers for key, peers in _with(both, FAST).items() if any(name in peers for name in SLOWER)},
            _lowest("crps", FAST, SLOWER),
        ),
        "the block and its noise: CRPS and NLL below those without g and without the block": (
            _with(groups, DEFAULT, *ABLATIONS), _earns
        ),
        f"{BEYOND}24 steps ahead and UCI: the lowest CRPS of all peers": (several, _lowest("crps")),
        f"{BEYOND}the other datasets: two-sided CWCE below 1.0": (others, below),
        f"{BEYOND}the other datasets: 88 to 92 % of outcomes in 90 % intervals": (others, inside),
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
    def check(peers: dict[str, Line]) -> str:
        best = min((peer for peer in peers if peer in others), key=lambda peer: peers[peer].means[name])
        own, other = peers[mine], peers[best]
        return "" if own.means[name] <= other.means[name] else f"{_text(name, own)}, {best} {_text(name, other)}"

    return check


def _within(name: str, low: float, high: float) -> Check:
    def check(peers: dict[str, Line]) -> str:
        value = peers[DEFAULT].means[name]
        return "" if low <= value <= high else f"{value:.3f}"

    return check


def _faster(mine: str, share: float) -> Check:
    def check(peers: dict[str, Line]) -> str:
        own, other = (peers[peer].means["fit_seconds"] for peer in (mine, RIVAL))
        return "" if own <= share * other else f"{digits(own)} s, {digits(other)} s"

    return check


def _earns(peers: dict[str, Line]) -> str:
    missed = []
    for name in ("crps", "nll"):
        own, *others = (peers[peer].means[name] for peer in (DEFAULT, *ABLATIONS))
        better = [
            f"{setup.TITLES[peer]} {other:.5g}" for peer, other in zip(ABLATIONS, others, strict=True) if other < own
        ]
        missed += [f"{PARTS[name]} {own:.5g}, {', '.join(better)}"] if better else []
    return "; ".join(missed)


def parts(groups: Groups) -> str:
    """What block and noise are worth: a row for each setting and form."""
    rows = []
    for (protocol, dataset), peers in _with(groups, DEFAULT, *ABLATIONS).items():
        for peer in (DEFAULT, *ABLATIONS):
            figures = [_text(name, peers[peer]) for name in PARTS]
            rows.append([f"{dataset}, {protocol}" if peer == DEFAULT else "", setup.TITLES[peer], *figures])
    return markdown(["", "", *PARTS.values()], rows)


def worth(groups: Groups) -> str:
    """By how much the forms without noise and without the block are worse, on average over settings."""
    settings = _with(groups, DEFAULT, *ABLATIONS).values()
    sentences = []
    for peer in ABLATIONS:
        pairs = {name: [(one[peer].means[name], one[DEFAULT].means[name]) for one in settings] for name in PARTS}
        crps = mean(other / own - 1 for other, own in pairs["crps"])
        nll, cwce = (mean(other - own for other, own in pairs[name]) for name in ("nll", "cwce"))
        lower = sum(own < other for other, own in pairs["crps"])
        sentences.append(
            f"{setup.TITLES[peer]}: CRPS {100 * crps:+.1f} %, NLL {nll:+.3f} nats, CWCE {cwce:+.2f}; the default has "
            f"the lower CRPS in {lower} of {len(pairs['crps'])}"
        )
    return f"On average over these settings, beside the default: {'. '.join(sentences)}."


def table(peers: dict[str, Line]) -> str:
    """One row a peer, which says if it has fewer runs than others; the best of each score is bold."""
    most = _runs(peers)
    best = {name: min(line.means[name] for line in peers.values()) for name in LOWEST}
    rows = []
    for peer, line in peers.items():
        few = f", {len(line.seeds)} of {most} runs" if len(line.seeds) < most else ""
        row = [setup.TITLES.get(peer, peer) + few]
        for name in SCORES:
            text = _text(name, line)
            row.append(f"**{text}**" if line.means[name] == best.get(name) else text)
        rows.append(row)
    return markdown(["", *SCORES.values()], rows)


def _runs(peers: dict[str, Line]) -> int:
    return max(len(line.seeds) for line in peers.values())


def _text(name: str, line: Line) -> str:
    if name in ("size", "memory"):
        return f"{line.means[name]:,.0f}"
    factor = 100 if name.startswith("coverage") else 1
    return plus_minus(factor * line.means[name], factor * line.deviations[name])


def text(groups: Groups) -> str:
    """The whole page."""
    made = versions(line.packages for peers in groups.values() for line in peers.values())
    lines = [
        "# itocast against other tools",
        "",
        setup.HEAD.strip(),
        "",
        "## Bars",
        "",
        f"Of `{DEFAULT}`, means over seeds:",
        "",
    ]
    lines += [*map(str, bars(groups)), ""]
    for (protocol, dataset), peers in groups.items():
        first = next(iter(peers.values())).about
        about = PROTOCOLS[protocol].about if protocol in PROTOCOLS else setup.UCI
        size = f"{first['rows']:,} rows of `{first['file']}`, {first['tested']:,} tested; targets: {first['targets']}"
        trials = f"{'splits' if protocol == UCI else 'seeds'}: {_runs(peers)}"
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
            setup.ELSE.strip(),
            "",
        ]
    return "\n".join([*lines, setup.NOTES.strip(), "", "## Made with", "", setup.COMMAND.strip(), "", f"{made}.", ""])


def write(folder: Path, root: Path = ROOT) -> list[Path]:
    """The table with the cells of a folder added, and the page from it."""
    lines = added(read(root), [cell for cell in stored(folder) if not cell["settings"]["quick"]])
    if not lines:
        raise ValueError(f"{folder} holds no cells, and there is no {TABLE}: run the same command without --page first")
    groups = group(lines)
    write_table({(*key, peer): line for key, peers in groups.items() for peer, line in peers.items()}, root)
    write_bytes(root / PAGE, text(groups).encode())
    return [PAGE, TABLE]
