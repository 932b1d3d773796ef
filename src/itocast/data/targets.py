"""Several targets forecast by one network: rows of one target each, and their laws put together again."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from itocast.data.scaling import Faint
from itocast.data.windows import Masked, Windows
from itocast.forecast import Forecast
from itocast.nets import Inputs, Sizes

SHOWN = 512  # columns that the lags of all targets may take; if they took more, the latest of each are shown


@dataclass(frozen=True)
class Apart:
    """The windows of several targets as rows of one target each: all targets of the first window, then of the next.

    So all targets teach the same weights, from as many times more rows.
    """

    windows: Windows | Masked

    @property
    def targets(self) -> int:
        return self.windows.sizes.targets

    @property
    def sizes(self) -> Sizes:
        """What a model of one target must know."""
        several, own = self.windows.sizes, self.windows.own
        each = _shown(several.window, several.targets) + 1 - own  # lags and a mark, in place of what is its own
        return several._replace(targets=1, known=several.known + each * several.targets + own, rows=len(self))

    def __len__(self) -> int:
        return len(self.windows) * self.targets

    def batch(self, index: Tensor | slice) -> tuple[Inputs, Tensor]:
        """What the model reads, and targets (rows, horizon, 1)."""
        rows = index if isinstance(index, Tensor) else torch.arange(*index.indices(len(self)))
        x, y = self.windows.batch(rows // self.targets)
        target = rows % self.targets
        return of_target(x, target, self.windows.own), _pick(y, target)


def rows_of(windows: Windows | Masked, apart: bool) -> Windows | Masked | Apart:
    """What a model reads of some windows: all targets at once, or one at a time where there are several."""
    return Apart(windows) if apart and windows.sizes.targets > 1 else windows


def of_target(x: Inputs, target: Tensor, own: int) -> Inputs:
    """What a model reads of one target in each row: its own lags, a little of all lags, and which one it is.

    `own` is how many of the last known columns each target has.
    """
    window, targets = x.lags.shape[1:]
    shared = x.known.shape[1] - own * targets
    each = x.known[:, shared:].unflatten(1, (own, targets))
    lags = (each if own else x.lags)[:, -_shown(window, targets) :]
    known = [x.known[:, :shared], Faint.deviation * lags.flatten(1), _pick(each, target)[..., 0]]
    known.append(one_hot(target, targets).to(x.known))
    return Inputs(_pick(x.lags, target), x.past, torch.cat(known, 1), _pick(x.anchor, target))


def _shown(window: int, targets: int) -> int:
    """How many lags of all targets a row of one target has."""
    return window if window * targets <= SHOWN else 1


def _pick(part: Tensor, target: Tensor) -> Tensor:
    """Of (rows, n, targets) one target in each row, (rows, n, 1)."""
    return part.gather(2, target[:, None, None].expand(-1, part.shape[1], 1))


def every_target(x: Inputs, own: int) -> Inputs:
    """`of_target` of all targets of every row, in the order of Apart."""
    rows, _, targets = x.lags.shape
    several = Inputs(*(part[:, None].expand(-1, targets, *part.shape[1:]).flatten(0, 1) for part in x))
    return of_target(several, torch.arange(targets).expand(rows, targets).flatten(), own)


def together(law: Forecast, targets: int) -> Forecast:
    """The law (rows, horizon, targets) of rows that are of one target each."""
    parts = (law.means, law.log_variances, law.log_weights)  # (paths, rows · targets, horizon, 1, components)
    return Forecast.from_logs(*(part.unflatten(1, (-1, targets))[..., 0, :].movedim(2, 3) for part in parts))
