"""How the steps of one forecast move together: a Gaussian copula, so that sampled paths are coherent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from itocast.clipped import Clipped
from itocast.forecast import Forecast


@dataclass(frozen=True)
class Dependence:
    """Correlations between horizon steps and between targets, of forecasts' normal scores; rows are independent.

    The correlation of (step i, target a) with (step j, target b) is steps[i, j] · targets[a, b].
    """

    steps: Tensor  # (horizon, horizon)
    targets: Tensor  # (targets, targets)

    @classmethod
    def none(cls, horizon: int, targets: int) -> Dependence:
        """All independent."""
        return cls(torch.eye(horizon, dtype=torch.float64), torch.eye(targets, dtype=torch.float64))

    @classmethod
    def fit(cls, law: Forecast, y: Any) -> Dependence:
        """From forecasts and outcomes that the model was not trained on; missing outcomes are nan."""
        y = torch.as_tensor(y, dtype=torch.float64)
        seen = ~y.isnan()
        uniform = law.pit(torch.where(seen, y, 0.0)).clamp(1e-4, 1 - 1e-4)
        scores = torch.where(seen, torch.special.ndtri(uniform), torch.nan)  # (rows, horizon, targets)
        steps = _correlation(scores.movedim(1, -1).reshape(-1, scores.shape[1]))
        return cls(steps, _correlation(scores.reshape(-1, scores.shape[2])))

    def sample(self, law: Forecast, n: int, seed: int = 0) -> Tensor:
        """n draws of all steps and targets, (n, rows, horizon, targets): each cell follows its own law."""
        generator = torch.Generator().manual_seed(seed)
        normal = torch.randn(n, *law.shape, generator=generator, dtype=torch.float64)
        across, along = (torch.linalg.cholesky(part) for part in (self.targets, self.steps))
        normal = torch.einsum("hk,nrkt,ut->nrhu", along, normal, across)
        nodes = torch.linspace(-4, 4, 81, dtype=torch.float64)
        inner = law.solved if isinstance(law, Clipped) else law  # what is clipped has a kink, which no grid would meet
        table = inner.quantile(torch.special.ndtr(nodes))  # (nodes, rows, horizon, targets)
        place = ((normal + 4) * 10).clamp(0, 79.999)
        left = place.floor().long()
        low, high = table.gather(0, left), table.gather(0, left + 1)
        draws = low + (high - low) * (place - left)
        return law.inside(draws) if isinstance(law, Clipped) else draws


def _correlation(scores: Tensor) -> Tensor:
    """The correlation of columns, of which some values are nan: shrunk a little towards none, and positive definite."""
    seen = (~scores.isnan()).double()
    filled = scores.nan_to_num(0.0)
    count = seen.T @ seen
    second = (filled.T @ filled) / count.clamp(min=1)
    deviation = second.diagonal().clamp(min=1e-12).sqrt()
    size = len(second)
    share = (size / (size + count)).clamp(min=0.01)  # of independence: the fewer rows, the more
    matrix = (1 - share) * second / deviation[:, None] / deviation
    matrix.fill_diagonal_(1.0)
    values, vectors = torch.linalg.eigh(matrix)
    matrix = (vectors * values.clamp(min=1e-4)) @ vectors.T
    deviation = matrix.diagonal().sqrt()
    return matrix / deviation[:, None] / deviation
