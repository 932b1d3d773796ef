"""What a network says of raw numbers, inside a graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from itocast.data.scaling import QuantileNormal, Scaler
from itocast.data.targets import every_target, together
from itocast.data.windows import FAR, own_columns, squash
from itocast.export.laws import Mixture
from itocast.export.series import Series
from itocast.export.special import Line, waves
from itocast.fitted import Fitted
from itocast.forecast import Forecast
from itocast.nets import Inputs, tame
from itocast.sde import Noise


class Kept(Noise):
    """Shared noise that is drawn once and then given again in the same order: constants of a graph."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, shared=True)
        self.drawn: list[Tensor] = []
        self.place = 0

    def again(self) -> Kept:
        """The same from its start."""
        self.place = 0
        return self

    def _next(self, draw: Callable[[], Tensor]) -> Tensor:
        if self.place == len(self.drawn):
            self.drawn.append(draw())
        self.place += 1
        return self.drawn[self.place - 1].clone()  # what is given may be changed in place

    def normal(self, paths: int, rows: int, shape: tuple[int, ...]) -> Tensor:
        return self._next(partial(super().normal, paths, rows, shape))

    def keep(self, drop: float, paths: int, rows: int, shape: tuple[int, ...]) -> Tensor:
        return self._next(partial(super().keep, drop, paths, rows, shape))


class OfNetwork(nn.Module):
    """`Fitted._of_network` before it is kept inside a range."""

    def __init__(self, fitted: Fitted, series: Series) -> None:
        super().__init__()
        p = self.preparation = fitted.preparation
        self.model, self.apart = fitted.network.model.eval(), fitted.network.apart
        self.series, self.noise = series, Kept(fitted.recipe.seed)
        self.scalers = {part: _scale(scaler) for part, scaler in p.scalers.items() if part != "targets"}
        targets = p.scalers["targets"]
        self.to_targets = _scale(targets)
        self.warp: Line | None = None
        if isinstance(targets, QuantileNormal):
            self.warp = Line(targets.normals, targets.knots, [1 / slope for slope in targets.slopes])
        else:
            self.shift, self.scale = _shift_and_scale(targets)
        self.ranges = self._ranges()
        self.own = own_columns(p.window, p.horizon, p.data.local, len(p.echoes))
        self.identities = series.places(p.identity)

    def forward(self, x: dict[str, Tensor]) -> Mixture:
        shift, scale = self.series.scale(x)  # (rows, targets)
        inputs, centre, spread = self._inputs(x, (x["lags"] - shift[:, None]) / scale[:, None])
        law = self._law(inputs)
        parts = [part.double().movedim(0, -2) for part in (law.means, law.log_variances, law.log_weights)]
        out = Mixture(parts[0], (0.5 * parts[1]).exp(), parts[2].exp())
        if centre is not None:
            out = out.affine(spread.double(), centre.double())
        out = self._unscaled(out).affine(scale[:, None], shift[:, None])
        if self.model.repeats:
            weights = out.weights / out.weights.sum(-1, keepdim=True)
            out = replace(out, weights=weights, again=x["lags"][:, -1][:, None])
        return out

    def _law(self, inputs: Inputs) -> Forecast:
        """What the model says of all targets, as `Fitted.raw`."""
        read = every_target(inputs, self.own) if self.apart else inputs
        law = self.model(read, self.model.paths, self.noise.again())
        return together(law, inputs.lags.shape[-1]) if self.apart else law

    def _unscaled(self, law: Mixture) -> Mixture:
        """A law in deviations of its series, as the scaler of the targets gives it."""
        if self.warp is None:
            return law.affine(self.scale, self.shift)
        one = torch.ones_like(law.means[..., 0, 0])
        return replace(law, warp=self.warp, scale=one, shift=torch.zeros_like(one))

    def _ranges(self) -> Tensor:
        """The range of levels of each series, empty for any other, (series + 1, 2, targets)."""
        targets = len(self.preparation.columns.targets)
        nothing = [math.inf] * targets, [-math.inf] * targets
        known = self.preparation.ranges
        parts = [known.get(label, nothing) for label in self.series.labels]
        return torch.tensor([*parts, nothing], dtype=torch.float32)

    def _echo(
        self, x: dict[str, Tensor], place: int, centre: Tensor, spread: Tensor, scales: tuple[Tensor, Tensor]
    ) -> list[Tensor]:
        """What each step was a season ago, as `Windows.batch`."""
        shift, scale = (part[:, None] for part in scales)
        values = _small(self.to_targets((x["season"][:, place] - shift) / scale))
        seen = x["seasoned"][:, place, None, None].float()
        relative = tame((values - centre) / spread, FAR)
        return [(seen * relative).flatten(1), seen.expand_as(centre).flatten(1)]

    def _shown(self, x: dict[str, Tensor], centre: Tensor) -> Tensor:
        """1 where the level of a window is shown to the model, as `Windows.batch`."""
        known = self.ranges[self.series.number(x)]
        return ((centre >= known[:, :1]) & (centre <= known[:, 1:])).float()

    def _inputs(self, x: dict[str, Tensor], standard: Tensor) -> tuple[Inputs, Tensor | None, Tensor]:
        """What the model reads, and centre and spread of the window, as `Windows.batch`."""
        p = self.preparation
        lags, last = tame(_small(self.scalers["lags"](x["lags"])), FAR), _small(self.to_targets(standard))
        rows = lags[:, :0, 0]
        gaps = [squash(x["gap"] - 1)[..., None]] if "gap" in x else []
        gaps += [squash(x["age"])] if "age" in x else []
        known = [torch.cat(gaps, -1).flatten(1)] if gaps else []
        if "until" in x:
            known.append(squash(x["until"] - torch.arange(1, p.horizon + 1)))
        ahead = [_small(self.scalers["future"](x["future"]))] if "future" in x else []
        ahead += [torch.stack(waves(x["time"], p.cycles), -1).float()] if "time" in x else []
        ahead += [x["holiday"].float()[..., None]] if "holiday" in x else []
        known += [torch.cat(ahead, -1).flatten(1)] if ahead else []
        known += [self._hot(x, part).flatten(1) for part in ("future", "past") if f"{part}_codes" in x]
        known += [_small(self.scalers["static"](x["static"]))] if "static" in x else []
        known += [self._hot(x, "static")] if "static_codes" in x else []
        if p.identity:
            known.append(one_hot(self.identities[self.series.number(x)], len(p.identity) + 1)[..., 1:].float())
        anchor, centre, spread = last[:, -1:], None, torch.ones(())
        read = lags
        if p.data.local:
            centre = last.mean(1, keepdim=True)
            spread = ((last - centre).square().mean(1, keepdim=True) + p.floor**2).sqrt()
            read, anchor = (last - centre) / spread, (anchor - centre) / spread
            for place in range(len(p.echoes)):
                known += self._echo(x, place, centre, spread, self.series.scale(x))
            shown = self._shown(x, centre)
            parts = (torch.ones_like(centre), centre, spread.log(), lags)
            known += [(shown * part).flatten(1) for part in parts]
        past = _small(self.scalers["past"](x["past"])) if "past" in x else lags[..., :0]
        inputs = Inputs(read, past, torch.cat(known, 1) if known else rows, anchor.expand(-1, p.horizon, -1))
        return inputs, centre, spread

    def _hot(self, x: dict[str, Tensor], part: str) -> Tensor:
        """One number for each category of each column, 1 for the one that it is."""
        p, codes = self.preparation, x[f"{part}_codes"]
        names = [name for name in getattr(p.columns, part) if name in p.categories]
        parts = [one_hot(codes[..., i], len(p.categories[name]) + 1)[..., 1:] for i, name in enumerate(names)]
        return torch.cat(parts, -1).float()


def _small(values: Tensor) -> Tensor:
    """float32, with 0 where nothing was ever seen."""
    return torch.where(values.isnan(), 0.0, values).float()


def _scale(scaler: Scaler) -> Callable[[Tensor], Tensor]:
    """What `transform` does."""
    if isinstance(scaler, QuantileNormal):
        return Line(scaler.knots, scaler.normals, scaler.slopes)
    shift, scale = _shift_and_scale(scaler)
    return lambda values: (values - shift) / scale


def _shift_and_scale(scaler: Scaler) -> tuple[Tensor, Tensor]:
    values = scaler.to_dict()
    shift, scale = (torch.tensor(values[name], dtype=torch.float64) for name in ("shift", "scale"))
    return shift, scale
