"""What the prior says of raw numbers, inside a graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from itocast.export.laws import Mixture
from itocast.export.series import Series
from itocast.zero_shot import FINEST, ZeroShot, started


class OfPrior(nn.Module):
    """`ZeroShot.law` of histories that are all of one length."""

    def __init__(self, zero_shot: ZeroShot, horizon: int, series: Series) -> None:
        super().__init__()
        self.prior, self.network = zero_shot.prior, zero_shot.prior.network
        self.seasons = torch.tensor([zero_shot.seasons])
        self.horizon, self.series = horizon, series

    def forward(self, x: dict[str, Tensor]) -> Mixture:
        history = started(x["history"], self.series.scale(x)[0])
        _, length, targets = history.shape
        values = history.movedim(2, 1).reshape(-1, length)  # (rows · targets, length)
        largest = torch.where(values.isnan(), 0.0, values.abs()).amax(1, keepdim=True)
        largest = torch.where(largest > 0, largest, 1.0)
        seasons = self.seasons.expand(values.shape[0], 2)
        law, units = self.prior.standard(values / largest, seasons, self.horizon)
        means, log_variances, log_weights = (
            part[0, :, :, 0].double().unflatten(0, (-1, targets)).movedim(1, 2)[..., None, :]
            for part in (law.means, law.log_variances, law.log_weights)
        )
        mixture = Mixture(means, (0.5 * log_variances).exp(), log_weights.softmax(-1))
        level, unit = ((part * largest).unflatten(0, (-1, targets)).mT for part in units)
        return mixture.affine(unit, level).wider(FINEST * self.series.rounding(x)[:, None])
