"""The output layer: from states to a Forecast."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from itocast.forecast import Forecast
from itocast.nets import SMALLEST_VARIANCE, Direct, Inputs, Sizes

POINT = 1e-10  # the variance of what stands for a point: an outcome that is the last value again
WIDEST = 10.0  # the largest deviation of a Gaussian around a relative mean, in units: no strange input blows a law up
SMALLEST_UNIT = 0.01  # in the scale of the model: a series that hardly ever changes may do so
STEP_UNITS = 64  # of the hidden layer that reads what is known of a step


class StepLayer(nn.Module):
    """What is added to the outputs of each step: from the state, which step it is, and what is known of its time.

    One hidden layer, with the same weights for all steps. Where times are irregular the calendar of a step does not
    follow from that of the first, and a state of all of them blurs which is whose.
    """

    def __init__(self, dim: int, sizes: Sizes, means: int, weights: int) -> None:
        super().__init__()
        self.late = slice(sizes.before, sizes.before + sizes.horizon)
        self.rest = slice(self.late.stop, sizes.before + sizes.horizon * sizes.ahead)
        self.state = nn.Linear(dim, STEP_UNITS)
        self.known = nn.Linear(sizes.ahead, STEP_UNITS, bias=False)
        self.step = nn.Linear(sizes.horizon, STEP_UNITS, bias=False)  # a column for each
        self.mean, self.log_variance = nn.Linear(STEP_UNITS, means), nn.Linear(STEP_UNITS, means)
        self.weight = nn.Linear(STEP_UNITS, weights) if weights else None

    def forward(self, z: Tensor, g: Tensor, known: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """For means, log-variances and weights, (paths, rows, horizon, outputs of a step)."""
        late = known[:, self.late, None]
        rest = known[:, self.rest].unflatten(1, (late.shape[1], -1))
        steps = self.known(torch.cat([late, rest], -1)) + self.step.weight.T  # (rows, horizon, units)
        of_mean, of_variance = ((self.state(state)[:, :, None] + steps).relu_() for state in (z, g))
        weights = None if self.weight is None else self.weight(of_mean)
        return self.mean(of_mean), self.log_variance(of_variance), weights


class GaussianHead(nn.Module):
    """The mean layer h1 and the variance layer h2 of Eq. 7, for K weighted Gaussians a path.

    Means and weights are linear in z, log-variances are linear in the second input. With one component there are no
    weights and this is the paper's output.

    With `relative`, means are what is added to the anchor, in units of what usually is: the root of the mean square of
    y - anchor for each step and target, which `measure` finds. Log-variances then run along a logistic curve from the
    smallest to that of ten units, and start at one unit: they learn sharp laws in fewer steps, and stay finite.
    `direct` adds to relative means a linear map of the lags, by default where several steps are forecast. If their
    times are irregular, `StepLayer` adds to all outputs of a step what its own time tells. Where outcomes often are the
    last value again, several components have one more beside them: a point at the anchor, of which only the weight is
    learned.
    """

    unit: Tensor
    measured: Tensor

    def __init__(self, dim: int, sizes: Sizes, components: int, relative: bool, direct: bool | None = None) -> None:
        super().__init__()
        if components < 1:
            raise ValueError(f"components={components}: expected at least 1")
        self.shape = (sizes.horizon, sizes.targets, components)
        self.relative, self.repeats = relative, relative and components > 1 and sizes.repeats
        if relative:
            self.register_buffer("unit", torch.ones(*self.shape[:2], 1))
            self.register_buffer("measured", torch.tensor(False))
        outputs = math.prod(self.shape)
        direct = sizes.horizon > 1 if direct is None else direct
        self.direct = Direct(sizes.window * sizes.targets, outputs) if relative and direct else None
        self.mean = nn.Linear(dim, outputs)
        each = (components + self.repeats) * (components > 1)  # weights of a step and target
        self.weight = nn.Linear(dim, sizes.horizon * sizes.targets * each) if each else None
        self.log_variance = nn.Linear(dim, outputs)
        of_step = (sizes.targets * components, sizes.targets * each)
        self.steps = StepLayer(dim, sizes, *of_step) if relative and sizes.ahead else None

    def forward(self, z: Tensor, g: Tensor, x: Inputs) -> Forecast:
        """z and g are (paths, rows, dim)."""
        means, log_variances = (
            layer(state).unflatten(-1, self.shape) for layer, state in ((self.mean, z), (self.log_variance, g))
        )
        weights = None if self.weight is None else self.weight(z).unflatten(-1, (*self.shape[:2], -1))
        if self.steps is not None:
            of_means, of_variances, of_weights = self.steps(z, g, x.known)
            means, log_variances = means + of_means.view_as(means), log_variances + of_variances.view_as(means)
            weights = None if weights is None else weights + of_weights.view_as(weights)
        floor = math.log(SMALLEST_VARIANCE)
        if self.relative:
            means = torch.addcmul(self._start(x), means, self.unit)
            above = 2 * self.unit.log() - floor  # by how much one unit's log-variance is above the smallest
            start = (above / (2 * math.log(WIDEST))).log()
            log_variances = (log_variances + start).sigmoid() * (above + 2 * math.log(WIDEST)) + floor
        else:
            log_variances = torch.logaddexp(log_variances, means.new_tensor(floor))
        if weights is None:
            return Forecast.from_logs(means, log_variances, torch.zeros_like(means))
        if self.repeats:
            point = x.anchor[..., None].expand(*means.shape[:-1], 1)
            means = torch.cat([means, point], -1)
            log_variances = torch.cat([log_variances, torch.full_like(point, math.log(POINT))], -1)
        return Forecast.from_logs(means, log_variances, weights.log_softmax(-1))

    @torch.no_grad()
    def measure(self, x: Inputs, y: Tensor) -> None:
        """Learn the unit from rows, once; 1 for a step without outcomes."""
        if self.relative and not self.measured:
            usual = (y - x.anchor).square().nanmean(0).sqrt().nan_to_num(1.0).clamp(min=SMALLEST_UNIT)
            self.unit.copy_(usual[..., None])
            self.measured.fill_(True)

    def _start(self, x: Inputs) -> Tensor:
        """What means are relative to, (rows, horizon, targets, components) or 1 for the last."""
        anchor = x.anchor[..., None]
        return anchor if self.direct is None else anchor + self.direct(x.lags.flatten(1)).unflatten(-1, self.shape)
