"""The toy problem of Sec. 5.1 and Fig. 3: both uncertainties over x, and paths of the state where y is noisy or not.

`run` trains one SDE-HNN of the paper's sizes (64 units, T = 3, dt = 1, one Gaussian a path) on 1000 points. What it
gives are plain values for JSON; `table` and `figure` read nothing else.

Deviates: the paper says neither how x enters the network nor how it was trained. Here x has a periodic embedding, and
weights are chosen by the likelihood of rows that were held out. The diffusion has a learned gain that starts at 1, the
literal form. Started at 0.1 it fell to 0.02, as likely on held-out rows, and paths spread almost alike everywhere: the
gain can answer the quiet regions, where noise in the mean is costly, without g. Started at 1 it leaves g to shrink
where y is quiet, and paths spread 1.4 to 3.8 times as far where y is noisy, for each of five seeds.

What it does not show: the epistemic deviation is far below the error of the mean (0.05 against 0.7 inside the noise),
and beyond the data neither deviation warns of errors of 20 and more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from itocast.data import sources
from itocast.forecast import Forecast
from itocast.models.sde_hnn import SDEHNN, Block
from itocast.nets import Encoder, Sizes
from itocast.paper.cells import Task, stored
from itocast.paper.outputs import digits, markdown, write_figure, write_table
from itocast.paper.protocol import Options
from itocast.plots import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE
from itocast.schedule import Training
from itocast.sde import Noise
from itocast.tabular import Rows
from itocast.training import fit, predict

SEEN = (-30.0, 40.0)  # where x lies in the data
NOISY = (10.0, 20.0)  # where y has noise
GRID = np.linspace(-45, 55, 401)  # 15 further than the data on both sides
PLACES = {"quiet": -5.0, "noisy": 15.0}  # the x whose paths are shown
PATHS, SHOWN = 64, 10  # paths of a forecast, and how many of them are shown
HELD_OUT = 0.2  # share of rows that choose the weights
SPREAD = 4.0  # deviation of scaled x: y then has 0.4 and 0.8 waves a unit, near where the embedding starts


class Scale(NamedTuple):
    """Means and deviations that bring x and y to the scale of the model."""

    x_mean: float
    x_deviation: float
    y_mean: float
    y_deviation: float

    @classmethod
    def fit(cls, x: np.ndarray, y: np.ndarray) -> Scale:
        return cls(float(x.mean()), float(x.std()) / SPREAD, float(y.mean()), float(y.std()))

    def rows(self, x: np.ndarray, y: np.ndarray) -> Rows:
        features = torch.from_numpy((x - self.x_mean) / self.x_deviation).float()[:, None]
        targets = torch.from_numpy((y - self.y_mean) / self.y_deviation).float()[:, None, None]
        return Rows(features, targets)


def tasks(options: Options) -> list[Task]:
    """A run for each trial."""
    return [Task(f"toy/{seed}", run, {"seed": seed, "quick": options.quick}) for seed in options.seeds]


def run(seed: int, quick: bool = False) -> dict[str, Any]:
    """Draw the data, train, and give all that the table and the figure need, in units of y.

    `data` holds the points, `curves` what is true and what is predicted on a grid that goes beyond them, `trajectories`
    ten paths at two places (see `_trajectories`), and `summary` averages over four regions of x: `inside` the noise,
    `outside` it but among the data, `below` and `above` the data. `quick` trains for a moment, to try things out.
    """
    frame = sources.toy(seed)
    x, y = frame["x"].to_numpy(), frame["y"].to_numpy()
    order = np.random.default_rng(seed).permutation(len(x))
    held, learned = np.split(order, [round(HELD_OUT * len(x))])
    scale = Scale.fit(x[learned], y[learned])
    model, training = _model(seed), _training(quick)
    history = fit(model, scale.rows(x[learned], y[learned]), scale.rows(x[held], y[held]), training, seed)
    law = predict(model, scale.rows(GRID, GRID), PATHS, seed).affine(scale.y_deviation, scale.y_mean)
    curves = _curves(law)
    fitted = {
        "validation_nll": min(epoch["validation"] for epoch in history.epochs) + np.log(scale.y_deviation),
        "gain": _gain(model),
    }
    return {
        "seed": seed,
        "data": {"x": _plain(x), "y": _plain(y)},
        "curves": {name: _plain(values) for name, values in curves.items()},
        "trajectories": _trajectories(model, scale, seed),
        "summary": {name: _short(value) for name, value in {**_summary(curves), **fitted}.items()},
        "made_with": {
            "model": model.config, "training": training.model_dump(), "training_paths": model.training_paths,
            "validation_paths": model.validation_paths, "paths": PATHS, "quick": quick,
        },
        "fit_seconds": _short(history.seconds),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }  # fmt: skip


def table(results: list[dict[str, Any]]) -> pd.DataFrame:
    """The numbers of every seed, one row each, and their mean in a last row."""
    rows = pd.DataFrame({str(result["seed"]): result["summary"] for result in results}).T
    rows.loc["mean"] = rows.mean()
    return rows.rename_axis("seed")


def write(folder: Path) -> None:
    """toy.csv, toy.md and toy.png, the figure of the first trial."""
    results = stored(folder, "toy")
    frame = table(results)
    shown = ("aleatoric", "epistemic", "rmse")
    regions = ("inside", "outside", "below", "above")
    rows = [
        [f"{name}, {region}", *(digits(value) for value in frame[f"{name}_{region}"])]
        for name in shown
        for region in regions
    ]
    true = digits(frame["true_noise_inside"].iloc[0])
    words = (
        "Standard deviations and the error of the mean, in units of y: inside [10, 20], where the true noise is "
        f"{true} on average, outside it but among the data, and below and above the data.\n\n"
    )
    text = words + markdown(["by seed", *(str(name) for name in frame.index)], rows)
    write_table(folder, "toy", frame.reset_index(), text)
    write_figure(folder, "toy", figure(results[0]))


def figure(result: dict[str, Any]) -> Figure:
    """Fig. 3: the data with mean and 95 % interval, both deviations over x, and paths at a quiet and a noisy place."""
    drawing = Figure(figsize=(9, 9.5), layout="constrained")
    axes = drawing.subplot_mosaic(
        [["data", "data"], ["deviations", "deviations"], ["quiet", "noisy"]], height_ratios=[1.25, 1, 1]
    )
    _draw_data(axes["data"], result)
    _draw_deviations(axes["deviations"], result["curves"])
    paths = result["trajectories"]
    reach = 1.1 * max(abs(value) for place in PLACES for path in paths[place]["paths"] for value in path)
    for place in PLACES:
        _draw_paths(axes[place], paths["time"], paths[place], place, reach)
    return drawing


def _model(seed: int) -> SDEHNN:
    model = SDEHNN(
        Sizes(window=1, targets=1, covariates=0, known=0, horizon=1),
        encoder=Encoder(hidden=64, dim=64, dropout=0),
        block=Block(T=3.0, dt=1.0, dropout=0.2, gain=1.0, opposite=False),
        components=1, relative=False, seed=seed,
    )  # fmt: skip
    model.training_paths, model.validation_paths = 4, 16
    return model


def _training(quick: bool) -> Training:
    return Training(
        epochs=25 if quick else 300, batch_size=64, learning_rate=4e-3, weight_decay=1e-2, memory=0.999, averaging=0
    )


def _gain(model: SDEHNN) -> float:
    return 1.0 if model.block.log_gain is None else model.block.log_gain.exp().item()


def _curves(law: Forecast) -> dict[str, np.ndarray]:
    """What is true and what is predicted on the grid."""
    true_mean, true_noise = sources.toy_truth(GRID)
    low, high = law.interval(95)
    predicted = {
        "mean": law.mean, "low": low, "high": high, "aleatoric": law.aleatoric.sqrt(), "epistemic": law.epistemic.sqrt()
    }  # fmt: skip
    return {
        "x": GRID, "true_mean": true_mean, "true_noise": true_noise,
        **{name: values.flatten().numpy() for name, values in predicted.items()},
    }  # fmt: skip


@torch.no_grad()
def _trajectories(model: SDEHNN, scale: Scale, seed: int) -> dict[str, Any]:
    """Ten paths of the state at each of two places, as what the mean layer would say at every step.

    The state has 64 components, which nobody can look at. So each state z_t of a path, from the start on, goes through
    the mean layer, in units of y, and the average over all paths at that step is taken away: 0 is where a path would
    be without noise, nearly. `spread` is the deviation over all paths; its last value is the epistemic deviation
    there, because the noise is that of the forecast.
    """
    x = np.array(list(PLACES.values()))
    noise = Noise(seed, shared=True)
    start = model.encoder(scale.rows(x, x).batch(slice(None))[0], noise)  # (places, dim)
    steps = [start.expand(PATHS, *start.shape), *model.block.trajectories(start, PATHS, noise)]
    means = torch.stack([_mean_layer(model, z) for z in steps], dim=-1) * scale.y_deviation  # (paths, places, steps)
    means -= means.mean(0)
    shown: dict[str, Any] = {"time": [k * model.block.dt for k in range(len(steps))]}
    for i, (place, at) in enumerate(PLACES.items()):
        paths, spread = means[:SHOWN, i], means[:, i].square().mean(0).sqrt()
        shown[place] = {"x": at, "paths": [_plain(path) for path in paths.numpy()], "spread": _plain(spread.numpy())}
    return shown


def _mean_layer(model: SDEHNN, z: Tensor) -> Tensor:
    """The mean that states (paths, rows, dim) stand for, (paths, rows)."""
    return model.head.mean(z)[..., 0].double()


def _summary(curves: dict[str, np.ndarray]) -> dict[str, float]:
    """Averages of both deviations, and the root mean squared error of the mean, over each region of the grid."""
    x = curves["x"]
    below, noisy, above = x < SEEN[0], (x >= NOISY[0]) & (x <= NOISY[1]), x > SEEN[1]
    regions = {"inside": noisy, "outside": ~(below | noisy | above), "below": below, "above": above}
    numbers = {"true_noise_inside": float(curves["true_noise"][noisy].mean())}
    for kind in ("aleatoric", "epistemic"):
        numbers |= {f"{kind}_{name}": float(curves[kind][region].mean()) for name, region in regions.items()}
    error = (curves["mean"] - curves["true_mean"]) ** 2
    return numbers | {f"rmse_{name}": float(np.sqrt(error[region].mean())) for name, region in regions.items()}


def _draw_data(ax: Axes, result: dict[str, Any]) -> None:
    curves, data = result["curves"], result["data"]
    x = curves["x"]
    ax.fill_between(x, curves["low"], curves["high"], color=BLUE, alpha=0.3, lw=0, label="95 % interval")
    ax.plot(data["x"], data["y"], ".", color=ORANGE, ms=3, alpha=0.7, label="data")
    ax.plot(x, curves["mean"], color=BLUE, lw=1.4, label="predicted mean")
    ax.plot(x, curves["true_mean"], color=BLACK, lw=0.8, ls="--", label="true mean")
    reach = 1.15 * max(map(abs, data["y"] + curves["true_mean"]))  # the model may go anywhere beyond the data
    ax.set(ylabel="y", ylim=(-reach, 1.25 * reach))
    _finish(ax)


def _draw_deviations(ax: Axes, curves: dict[str, list[float]]) -> None:
    """On a log scale, which has no place for a noise of 0: the true one is drawn where there is some."""
    noise = [value or np.nan for value in curves["true_noise"]]
    ax.plot(curves["x"], curves["aleatoric"], color=GREEN, lw=1.5, label="aleatoric")
    ax.plot(curves["x"], curves["epistemic"], color=PURPLE, lw=1.5, label="epistemic")
    ax.plot(curves["x"], noise, color=BLACK, lw=1.2, ls="--", label="true noise (0 elsewhere)")
    ax.set(ylabel="standard deviation\n(units of y)", yscale="log")
    low, high = ax.get_ylim()
    ax.set_ylim(low, high * (high / low) ** 0.2)  # room for the legend
    _finish(ax)


def _finish(ax: Axes) -> None:
    """Shade where y has noise, mark where the data end, and add a legend in one line."""
    ax.axvspan(*NOISY, color=GREY, alpha=0.12, lw=0)
    for end in SEEN:
        ax.axvline(end, color=GREY, lw=0.8, ls=":")
    ax.set(xlabel="x", xlim=(GRID[0], GRID[-1]))
    ax.legend(loc="upper left", ncols=4, framealpha=1, edgecolor="none")


def _draw_paths(ax: Axes, times: list[float], shown: dict[str, Any], place: str, reach: float) -> None:
    colour = ORANGE if place == "noisy" else BLUE
    for path in shown["paths"]:
        ax.plot(times, path, color=colour, lw=1.1, alpha=0.75, marker=".", ms=4)
    ax.set(xlabel="time of the SDE", ylabel="mean of y, from its average", ylim=(-reach, reach), xticks=times)
    ax.set_title(f"Ten paths at x = {shown['x']:g}, {place}", fontsize=10)


def _plain(values: np.ndarray) -> list[float]:
    return [_short(value) for value in values]


def _short(value: float) -> float:
    """Six significant digits, so that files stay small."""
    return float(f"{value:.6g}")
