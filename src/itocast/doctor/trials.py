"""What a change would do, tried on rows that were held out: more paths, a finer step, each calibrator."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from itocast.calibration import Auto, VarianceScaling
from itocast.data.windows import Windows
from itocast.doctor.faults import Finding
from itocast.fitted import Fitted
from itocast.forecast import Forecast
from itocast.models import Model
from itocast.sde import SDEBlock
from itocast.tabulated import Tabulated

PATHS, STEP = "four times the paths", "half the step"
MOST = 500  # windows that changes are tried on, evenly spaced
MOVED = 0.25  # deviations of the law by which a finer step may move it
BETTER = 0.01  # share of the CRPS by which more paths must help to be a finding


def run(fitted: Fitted, windows: Windows) -> tuple[dict[str, Any], list[Finding]]:
    """What each change does to law and CRPS, every calibrator's scores, the solver, and what of that is a fault."""
    windows = windows.thin(MOST)
    y, net = windows.actuals(), fitted.net
    plain = fitted.uncorrected(windows) if net is None else net.law(windows)
    before = _crps(plain, y)
    out: dict[str, Any] = {"forecasts": int((~y.isnan()).sum()), "crps": before}
    if net is not None:
        for name, change in _changes(net.model).items():
            law = net.changed(change).law(windows)
            out[name] = {"gain": 1 - _crps(law, y) / before, "moves": _moves(plain, law)}
    out["calibrators"] = Auto().fit(fitted.uncorrected(windows), y, fitted.groups_of(windows)).scores
    out["solver"] = solver(fitted, windows)
    return out, _found(out)


def _found(out: dict[str, Any]) -> list[Finding]:
    found = []
    paths, step = out.get(PATHS), out.get(STEP)
    if paths and paths["gain"] > BETTER:
        says = f"Four times as many paths bring the CRPS of held-out rows down by {100 * paths['gain']:.1f} %."
        found.append(Finding("few paths", "all", says, paths, paths["gain"]))
    if step and max(step["moves"].values()) > MOVED:
        says = (
            f"Half the step of the solver moves means by {step['moves']['mean']:.2f} deviations, deviations by "
            f"{100 * step['moves']['deviation']:.0f} % and the CRPS by {-100 * step['gain']:+.1f} %: the laws are "
            "those of the step that was trained with, not of the equation."
        )
        found.append(Finding("coarse step", "all", says, step, max(step["gain"], 0.0)))  # no interval fails for it
    return found


def solver(fitted: Fitted, windows: Windows) -> list[dict[str, Any]]:
    """For each SDE-block: the bounds of Theorem 1, and how far the law moves as its step is halved, and again."""
    blocks = [] if fitted.net is None else _blocks(fitted.net.model)
    if not blocks:
        return []
    net = fitted.network
    laws = [net.changed(partial(_finer, times=times)).law(windows.thin(200)) for times in (1, 2, 4)]
    moves = {"halved": _moves(*laws[:2]), "halved_again": _moves(*laws[1:])}
    return [
        {"T": one.T, "dt": one.dt, "solver": one.solver, "lipschitz": str(one.lipschitz(length=1))} | moves
        for one in blocks
    ]


def _changes(model: Model) -> dict[str, Callable[[Model], Model]]:
    changes: dict[str, Callable[[Model], Model]] = {PATHS: _more_paths} if model.paths > 1 else {}
    return changes | ({STEP: partial(_finer, times=2)} if _blocks(model) else {})


def _more_paths(model: Model) -> Model:
    model = copy.deepcopy(model)
    model.paths *= 4
    return model


def _blocks(model: Model) -> list[SDEBlock]:
    return [module for module in model.modules() if isinstance(module, SDEBlock)]


def _finer(model: Model, times: int) -> Model:
    """The same model whose solver takes so many times as many steps."""
    model = copy.deepcopy(model)
    for block in _blocks(model):
        block.steps, block.dt = times * block.steps, block.dt / times
    return model


def _crps(law: Forecast, y: Tensor) -> float:
    """The mean over known outcomes, under the best width that the law can have."""
    seen = ~y.isnan()
    law = Tabulated.of(law)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few outcomes: nothing is corrected for a user here
        law = VarianceScaling().fit(law, y).apply(law)
    return law.crps(torch.where(seen, y, law.mean))[seen].mean().item()


def _moves(one: Forecast, other: Forecast) -> dict[str, float]:
    """How far a law is from another, in the middle of all: means in deviations, and deviations as a share."""
    deviation = one.variance.sqrt()
    return {
        "mean": ((other.mean - one.mean).abs() / deviation).median().item(),
        "deviation": (other.variance.sqrt() / deviation - 1).abs().median().item(),
    }
