"""One page of all results, beside what the paper prints."""

from __future__ import annotations

import shutil
from pathlib import Path

from itocast.data import sources
from itocast.paper import intervals, outputs, table
from itocast.paper.cells import stored
from itocast.paper.experiments import EXPERIMENTS
from itocast.paper.outputs import digits, markdown, summary
from itocast.paper.printed import printed
from itocast.paper.protocol import FORMS, METHODS, short
from itocast.paper.table import Groups, scores
from itocast.storage import write_bytes

FIGURES = "results"  # the folder beside the page
COMPARED = {"rmse": "RMSE", "crps": "CRPS", "r_cwce": "R-CWCE"}
PARTS = {  # of the page, with what is said about each
    "literal": """## The literal form taken apart

Each line changes the literal SDE-HNN (z the LSTM's last state, p = 0.5, no gain, the loss of Eq. 9) and nothing else;
all but (b) are trained as the paper's form is.""",
    "solver": """## Fig. 2: both solvers

The literal form with and without dropout of g; scores after every epoch on 2,000 windows of each part, in the scale
of the model.""",
    "toy": "## Fig. 3: the toy problem",
    "calibration": "## Fig. 5: calibration",
    "intervals": "## Fig. 4 and 6: intervals",
    "efficiency": """## Fig. 7: efficiency

The paper's form of every method, trained until 20 epochs bring no better validation law, but for at most 200; beside
it itocast's SDE-HNN, whose length follows from the data. Processor seconds of one thread: of the whole fit, and of its
share up to the epoch whose validation law was best.""",
}
HEAD = """# The paper's experiments

Made by `itocast paper page` from what `itocast paper all` wrote, and the same for single datasets
(`itocast paper table --datasets … --data-dir …`). With {versions}; every cell on one thread.

The protocol is the paper's: five rows back, one ahead, no calendar, 60/20/20 % in the order of time, means ± standard
deviations over the trials. Every method is there in two forms:

- **paper**: LSTM 2×128 and two linear layers (SDE-HNN: LSTM 64 three times, T = 3, dt = 0.5), everything scaled to
  [0, 1], Adam 1e-3 with weight decay 1e-3. Left open by the paper: batches of 64, 8 epochs or 3,500 steps if that
  is more, but at most 200 epochs; the weights of the best validation NLL.
- **itocast**: the Forecaster's encoder, scaling and schedule for all methods alike, with its default calibration;
  SDE-HNN with its five Gaussians a path, the others with one.

CWCE is the sum over 1 … 99 % of the weighted errors of two-sided coverage, at most 33; the paper's unit is another, so
compare ratios, not values. CRPS, which the paper does not have, is the error of the whole law.

In {late} of {cells} cells of the paper's form the last epoch was the best: those would gain from a longer training.

{read}"""


def write(folder: Path, output: Path, reading: Path | None = None) -> Path:
    """Write the outputs of all cells anew, the page, and its tables and figures in a folder beside it."""
    groups = table.group(folder)
    if not groups:
        raise ValueError(f"folder={str(folder)!r} holds no cells of a table: run itocast paper table first")
    parts = [_head(groups)]
    if reading is not None:
        parts.append(reading.read_text().strip())
    parts += [_best(groups), _ratios(groups), _tables(groups)]
    for name, words in PARTS.items():
        if name in ("literal", "solver", "toy", "efficiency") and not stored(folder, name):
            continue
        if name == "intervals" and not any(method in intervals.PAIR for _, _, method in groups):
            continue
        EXPERIMENTS[name].write(folder)
        pictures = sorted(folder.glob(f"{name}*.png"))
        links = [f"![{words.splitlines()[0].lstrip('# ')}]({FIGURES}/{picture.name})" for picture in pictures]
        rows = [] if name == "calibration" else [(folder / f"{name}.md").read_text().strip()]
        parts.append("\n\n".join([words, *links, *rows]))
    table.write(folder)
    target = output.parent / FIGURES
    target.mkdir(parents=True, exist_ok=True)
    for file in (*folder.glob("*.png"), *folder.glob("*.csv")):
        if file.stem not in ("calibration", "intervals"):  # long, and drawn
            shutil.copyfile(file, target / file.name)
    write_bytes(output, ("\n\n".join(parts) + "\n").encode())
    return output


def _head(groups: Groups) -> str:
    versions = outputs.versions(trial["versions"] for trials in groups.values() for trial in trials)
    cells = [trial for (_, form, _), trials in groups.items() if form == "paper" for trial in trials]
    late = sum(trial["best_epoch"] == len(trial["history"]["validation"]) for trial in cells)
    return HEAD.format(versions=versions, read=_read(groups), late=late, cells=len(cells))


def _read(groups: Groups) -> str:
    """What was read of each dataset."""
    rows = []
    for dataset in dict.fromkeys(key[0] for key in groups):
        own = {key: trials for key, trials in groups.items() if key[0] == dataset}
        first = next(iter(own.values()))[0]
        methods = len({method for _, _, method in own})
        trials = sorted({len(trials) for trials in own.values()})
        count = str(trials[0]) if len(trials) == 1 else f"{trials[0]} to {trials[-1]}"
        what = "the published file" if first["published"] else f"**partial**: `{first['file']}`"
        digest = first["digest"].partition(":")[2][:12]
        size = sources.size_text(sources.source_of(dataset).size)
        rows.append([short(dataset), what, digest, f"{first['rows']:,}", size, str(methods), count])
    heads = ["dataset", "read from", "digest", "rows", "published rows × columns", "methods", "trials"]
    return markdown(heads, rows)


def _best(groups: Groups) -> str:
    """Whether itocast's SDE-HNN is the best of all, and of whom if not."""
    rows = []
    for dataset in dict.fromkeys(key[0] for key in groups):
        own = {key[1:]: trials for key, trials in groups.items() if key[0] == dataset}
        if ("itocast", "sde_hnn") not in own:
            continue
        for metric, name in COMPARED.items():
            means = {key: summary(scores(trials, metric))[0] for key, trials in own.items()}
            ours = means.pop(("itocast", "sde_hnn"))
            if not means:
                continue
            line = [f"{short(dataset)}, {name}", digits(ours)]
            for form in FORMS:
                others = {key: value for key, value in means.items() if key[0] == form and key[1] != "sde_hnn"}
                best = min(others, key=others.__getitem__) if others else None
                line.append(f"{METHODS[best[1]]} {digits(others[best])}" if best else "–")
                line.append(f"{ours / others[best]:.3f}" if best else "–")
            rows.append([*line, "yes" if ours < min(means.values()) else "**no**", _won(own, metric)])
    baseline = [words for form in FORMS for words in (f"best baseline, {form} form", "ratio")]
    heads = ["", "SDE-HNN, itocast form", *baseline, "best of all", "trials won"]
    return "## Is SDE-HNN the best?\n\nMeans over the trials; a ratio below 1 is in favour of SDE-HNN.\n\n" + markdown(
        heads, rows
    )


def _won(own: dict[tuple[str, str], table.Trials], metric: str) -> str:
    """In how many trials SDE-HNN was better than every other method in the same trial, of those that have others."""
    by_seed: dict[int, dict[tuple[str, str], float]] = {}
    for key, trials in own.items():
        for trial in trials:
            by_seed.setdefault(trial["settings"]["seed"], {})[key] = trial["scores"][metric]
    ours = ("itocast", "sde_hnn")
    fair = [values for values in by_seed.values() if ours in values and len(values) == len(own)]
    return f"{sum(min(values, key=values.__getitem__) == ours for values in fair)} of {len(fair)}"


def _ratios(groups: Groups) -> str:
    """SDE-HNN relative to HNN: as printed, in the paper's form, and itocast's."""
    rows = []
    for dataset in dict.fromkeys(key[0] for key in groups):
        for metric, name in COMPARED.items():
            mean = {key[1:]: summary(scores(trials, metric))[0] for key, trials in groups.items() if key[0] == dataset}
            pair = printed(short(dataset), metric, "sde_hnn"), printed(short(dataset), metric, "hnn")
            line = [f"{pair[0] / pair[1]:.3f}" if pair[0] and pair[1] else "–"]
            for above, below in (("paper", "paper"), ("itocast", "paper"), ("itocast", "itocast")):
                keys = (above, "sde_hnn"), (below, "hnn")
                line.append(f"{mean[keys[0]] / mean[keys[1]]:.3f}" if all(key in mean for key in keys) else "–")
            rows.append([f"{short(dataset)}, {name}", *line])
    heads = ["SDE-HNN / HNN", "printed", "both paper form", "itocast / paper form", "both itocast form"]
    return "## Relative to HNN\n\n" + markdown(heads, rows)


def _tables(groups: Groups) -> str:
    datasets = dict.fromkeys(key[0] for key in groups)
    return "## Table 1\n\n" + "\n".join(table.text(dataset, groups) for dataset in datasets).strip()
