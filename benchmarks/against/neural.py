"""Peers of neuralforecast: NHITS and TiDE, with 99 quantiles learned at once."""

from __future__ import annotations

import logging
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
import torch

from against.laws import LEVELS, Answer
from against.settings import Parts, Setting

STEPS, CHECK, PATIENCE = 3000, 50, 10  # of the optimiser; between validations; validations without gain
SETTINGS: dict[str, Any] = {
    "learning_rate": 1e-3, "num_lr_decays": 3, "max_steps": STEPS, "val_check_steps": CHECK,
    "early_stop_patience_steps": PATIENCE, "windows_batch_size": 256, "inference_windows_batch_size": 4096,
    "scaler_type": "identity", "accelerator": "cpu", "logger": False, "enable_progress_bar": False,
    "enable_model_summary": False,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "nhits": {"mlp_units": 3 * [[256, 256]], "dropout_prob_theta": 0.1},
    "tide": {"hidden_size": 256, "dropout": 0.1},
}


def answer(name: str, setting: Setting, seed: int) -> Answer:
    """Train on the rows before the test part, then forecast all of its origins from true lags."""
    from neuralforecast import NeuralForecast
    from neuralforecast.losses.pytorch import MQLoss
    from neuralforecast.models import NHITS, TiDE

    for logger in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric"):
        logging.getLogger(logger).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"pytorch_lightning|lightning|neuralforecast|utilsforecast")
    parts = setting.parts
    panel = Panel(parts)
    model = _lean({"nhits": NHITS, "tide": TiDE}[name])(
        h=setting.protocol.horizon, input_size=setting.protocol.window, loss=MQLoss(quantiles=LEVELS.tolist()),
        batch_size=len(panel.statics), random_seed=seed, callbacks=[_best()], **panel.exogenous, **MODELS[name],
        **SETTINGS,
    )  # fmt: skip
    forecast = NeuralForecast([model], freq=1)
    statics = panel.statics if panel.exogenous["stat_exog_list"] else None
    began = time.process_time()
    forecast.fit(panel.until(parts.validation), statics, val_size=panel.count(parts.validation))
    fitted = time.process_time()
    found = forecast.cross_validation(
        panel.until(parts.test), statics, n_windows=None, test_size=panel.count(parts.test), use_fitted=True,
        step_size=setting.protocol.every, refit=False,
    )  # fmt: skip
    quantiles = panel.quantiles(found, parts)
    size = sum(p.numel() for p in forecast.models[0].parameters() if p.requires_grad)
    return Answer(quantiles, None, fitted - began, time.process_time() - fitted, size)


class Panel:
    """A table as neuralforecast reads it: each target of each series is a series of its own, time is counted in rows.

    Targets and covariates are standardised with the training part's mean and deviation. Covariates, the age of a value
    that was carried on and, where there are several, all targets are historic; calendar and the time between rows are
    known ahead; which series and target it is are static.
    """

    def __init__(self, parts: Parts) -> None:
        from itocast.data.scaling import Faint
        from itocast.data.series import carried, steps_between
        from itocast.data.windows import squash

        table, numbers = parts.table, parts.train.numbers
        self.targets, self.starts = table.y.shape[1], table.starts
        self.shift, self.scale = (part.numpy() for part in (numbers.shift, numbers.scale))
        own = (carried(table, table.y)[0] - self.shift[table.series]) / self.scale[table.series]
        own = np.nan_to_num(own)
        late = steps_between(table)[:, None] - 1 if parts.preparation.irregular else np.zeros((len(table), 0))
        ages = numbers.gaps.numpy()[:, late.shape[1] :]
        many = own if self.targets > 1 else own[:, :0]
        hist = np.concatenate([numbers.past.numpy() / Faint.deviation, ages, many], 1)
        known = torch.cat([numbers.future, numbers.calendar[numbers.moment]], 1).numpy()
        futr = np.concatenate([known, squash(_tensor(late)).numpy()], 1)
        names = {kind: [f"{kind}{i}" for i in range(part.shape[1])] for kind, part in (("hist", hist), ("futr", futr))}
        place = np.arange(len(table)) - np.repeat(table.starts[:-1], np.diff(table.starts))
        shared = pd.DataFrame(np.concatenate([hist, futr], 1), columns=names["hist"] + names["futr"], dtype=np.float32)
        frames = [
            shared.assign(
                unique_id=table.series * self.targets + i, ds=place, y=own[:, i].astype(np.float32),
                available_mask=(~np.isnan(table.y[:, i])).astype(np.float32),
            )
            for i in range(self.targets)
        ]  # fmt: skip
        self.frame = pd.concat(frames).sort_values(["unique_id", "ds"], ignore_index=True)
        static = np.repeat(numbers.static.numpy(), self.targets, 0)
        if self.targets > 1:
            static = np.concatenate([static, np.tile(np.eye(self.targets), (len(table.ids), 1))], 1)
        columns = [f"stat{i}" for i in range(static.shape[1])]
        self.statics = pd.DataFrame(static, columns=columns).assign(unique_id=np.arange(len(static)))
        self.exogenous = {"hist_exog_list": names["hist"], "futr_exog_list": names["futr"], "stat_exog_list": columns}

    def _last(self, windows: Any) -> np.ndarray:
        """The last row of each series that some windows forecast, counted within the series."""
        last = np.zeros(len(self.starts) - 1, int)
        ends = windows.steps()[:, -1].numpy()
        np.maximum.at(last, windows.numbers.series[windows.origins].numpy(), ends)
        return last - self.starts[:-1]

    def until(self, windows: Any) -> pd.DataFrame:
        """The rows up to the last that is forecast."""
        ends = np.repeat(self._last(windows), self.targets)
        return self.frame[self.frame["ds"].to_numpy() <= ends[self.frame["unique_id"].to_numpy()]]

    def count(self, windows: Any) -> int:
        """How many rows the windows forecast, in the series that has most of them."""
        series = windows.numbers.series[windows.origins].numpy()
        first = np.full(len(self.starts) - 1, np.iinfo(np.int64).max)
        np.minimum.at(first, series, windows.origins.numpy() + 1)
        rows = self._last(windows) + self.starts[:-1] - first + 1
        return int(rows.max())

    def quantiles(self, found: pd.DataFrame, parts: Parts) -> np.ndarray:
        """Quantiles of the test part in the table's units, (99, rows, horizon, targets)."""
        windows = parts.test
        series, steps = windows.numbers.series[windows.origins].numpy(), windows.steps().numpy()
        values = found.set_index(["unique_id", "cutoff", "ds"]).drop(columns="y")
        local = steps - self.starts[series][:, None]  # (rows, horizon)
        out = np.empty((99, *steps.shape, self.targets))
        for i in range(self.targets):
            ids = np.repeat(series * self.targets + i, steps.shape[1])
            cutoffs = np.repeat(local[:, 0] - 1, steps.shape[1])
            wanted = pd.MultiIndex.from_arrays([ids, cutoffs, local.reshape(-1)])
            part = values.reindex(wanted).to_numpy(np.float64)  # (rows · horizon, 99)
            if np.isnan(part).any():
                raise ValueError("neuralforecast gave no forecast for some rows of the test part")
            part = part * self.scale[series, i].repeat(steps.shape[1])[:, None]
            part += self.shift[series, i].repeat(steps.shape[1])[:, None]
            out[..., i] = np.sort(part.T, 0).reshape(99, *steps.shape)
        return out


def _tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values)


def _lean(model: Any) -> Any:
    """The same model, which gathers only the windows that a step of training draws.

    neuralforecast copies all windows of all series at every step, most of the time of a fit where series are many and
    long. The windows drawn, and so all numbers, are the same.
    """

    class Lean(model):
        def _create_windows(self, batch: dict[str, Any], step: str) -> tuple[Any, ...]:
            if step != "train":
                return tuple(super()._create_windows(batch, step))
            until = -self.val_size - self.test_size or None
            rows, columns = self.padder_train(batch["temporal"][:, :, :until]), batch["temporal_cols"]
            mask = columns.get_loc("available_mask")
            available = {**batch, "temporal": batch["temporal"][:, [mask]], "temporal_cols": columns[[mask]]}
            _, *rest, _ = super()._create_windows(available, step)
            return Drawn(rows.unfold(-1, self.input_size + self.h, self.step_size)), *rest, columns

    return Lean


class Drawn:
    """All windows, copied where they are asked for."""

    def __init__(self, windows: torch.Tensor) -> None:
        self.windows, self.device = windows, windows.device  # (series, columns, windows, length)

    def __getitem__(self, chosen: torch.Tensor) -> torch.Tensor:
        each = self.windows.shape[2]
        found = self.windows[chosen // each, :, chosen % each]
        return found.transpose(1, 2).unsqueeze(-1).contiguous()  # (chosen, length, columns, 1)


def _best() -> Any:
    """Goes back to the weights that were best in validation, which neuralforecast's early stopping does not."""
    from pytorch_lightning import Callback

    class Best(Callback):
        def __init__(self) -> None:
            self.loss = float("inf")
            self.weights: dict[str, Any] | None = None

        def on_validation_end(self, trainer: Any, module: Any) -> None:
            loss = float(trainer.callback_metrics.get("ptl/val_loss", float("inf")))
            if not trainer.sanity_checking and loss < self.loss:
                self.loss = loss
                self.weights = {name: value.clone() for name, value in module.state_dict().items()}

        def on_train_end(self, trainer: Any, module: Any) -> None:
            if self.weights is not None:
                module.load_state_dict(self.weights)

    return Best()
