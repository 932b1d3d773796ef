"""Our own models: the Forecaster as it comes, other efforts, parts taken away, baselines, and SDERegressor."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from against.laws import Answer
from against.settings import Setting
from itocast import Forecaster, SDERegressor, Training
from itocast.data.targets import rows_of
from itocast.forecast import LEVELS, Forecast
from itocast.models import HNN, SDEHNN
from itocast.models.committee import Committee
from itocast.models.sde_hnn import Block
from itocast.nets import Encoder, Sizes


def still(sizes: Sizes, seed: int = 0) -> SDEHNN:
    """SDE-HNN without diffusion: g drives no noise, only the variance layer."""
    model = SDEHNN(sizes, block=Block(gain=1e-12), seed=seed)
    assert model.block.log_gain is not None
    model.block.log_gain.requires_grad_(False)
    return model


DEFAULT = "itocast"
OURS: dict[str, dict[str, Any]] = {  # arguments of Forecaster
    DEFAULT: {},
    f"{DEFAULT}-fast": {"effort": "fast"},
    f"{DEFAULT}-best": {"effort": "best"},
    "hnn": {"model": "hnn"},
    "deep-ensemble": {"model": "deep_ensemble"},
}
ABLATIONS: dict[str, dict[str, Any]] = {  # of the block; what is left takes less time a step, and has more of them
    f"{DEFAULT}-no-g": {"model": still},
    f"{DEFAULT}-no-block": {"model": partial(HNN, components=5)},
}
LONGER = 1.6  # times the epochs of the default for a network without the block, so that it has as much time


def longer(setting: Setting, times: float) -> dict[str, int]:
    """Settings of training for so many times the default's epochs."""
    rows = rows_of(setting.parts.train, setting.data.apart)
    return {"epochs": round(times * Training.suited(len(rows)).epochs)}


def forecaster_of(name: str, setting: Setting, seed: int) -> Forecaster:
    """One of our models, for a setting."""
    arguments = dict((OURS | ABLATIONS)[name])
    if name == f"{DEFAULT}-no-block":
        arguments["training"] = longer(setting, LONGER)
    horizon, window = setting.protocol.horizon, setting.protocol.window
    return Forecaster(horizon, window=window, data=setting.data, seed=seed, **arguments)


def answer(name: str, setting: Setting, seed: int) -> Answer:
    """Fit on all rows before the test part, of which the Forecaster holds out the validation part itself."""
    forecaster, known = forecaster_of(name, setting, seed), setting.known
    began = time.process_time()
    forecaster.fit(known, **setting.schema)
    fitted = time.process_time()
    law, y = forecaster.backtest_distribution(setting.frame, start=setting.start, step=setting.protocol.every)
    quantiles, mean = tabulate(law)
    seconds = time.process_time() - fitted
    if not np.array_equal(y.numpy(), setting.parts.test.actuals().numpy(), equal_nan=True):
        raise ValueError("the Forecaster was tested on other rows than its peers")
    seen = ~y.isnan()
    nll = -law.log_prob(torch.where(seen, y, 0.0))[seen].mean().item()
    return Answer(quantiles, mean, fitted - began, seconds, forecaster.fitted.parameters, nll)


UNITS, TIMES = 256, 3  # of HNNs for rows of numbers: hidden units, and the epochs in those of SDERegressor


class Plain(SDERegressor):
    """HNNs for rows of numbers: networks of one Gaussian each and no block, wider and longer trained."""

    def __init__(self, members: int = 1, random_state: int = 0) -> None:
        super().__init__(members=members, hidden=UNITS, components=1, random_state=random_state)

    def _training(self, rows: int) -> Training:
        usual = super()._training(rows)
        longer = {name: TIMES * getattr(usual, name) for name in ("epochs", "patience")}
        return usual.model_copy(update=longer)

    def _build(self, encoder: Encoder) -> Committee:
        return Committee(super()._build(encoder).sizes, encoder, block=None, seed=self.seed_)


REGRESSORS: dict[str, Callable[..., SDERegressor]] = {
    DEFAULT: SDERegressor,
    "hnn": Plain,
    "deep-ensemble": partial(Plain, members=5),
}


def regress(name: str, x: np.ndarray, y: np.ndarray, test: np.ndarray, seed: int) -> Answer:
    """One of our models for rows of numbers, with its defaults."""
    began = time.process_time()
    model = REGRESSORS[name](random_state=seed).fit(x, y)
    fitted = time.process_time()
    quantiles, mean = tabulate(model.predict_distribution(test))
    size = sum(parameter.numel() for parameter in model.model_.parameters())
    return Answer(quantiles, mean, fitted - began, time.process_time() - fitted, size)


def tabulate(law: Forecast, rows: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles (99, rows, horizon, targets) and means, so many rows at a time."""
    parts = [law[slice(begin, begin + rows)] for begin in range(0, len(law), rows)]
    quantiles = torch.cat([part.quantile(LEVELS).double() for part in parts], 1)
    return quantiles.numpy(), law.mean.double().numpy()
