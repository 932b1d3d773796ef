"""How much the outcomes of several series tell, which share what happens at one time."""

from __future__ import annotations

import torch
from torch import Tensor

from itocast.forecast import Forecast

FURTHEST = 1e-4  # the least probability that counts: one outlier is not to decide


def design_effect(correlation: float, moments: Tensor) -> float:
    """How many outcomes tell as much as an independent one, where series share good and bad years.

    n outcomes of one moment with an intraclass correlation ρ tell as much as n / (1 + (n - 1) ρ).

    >>> design_effect(0.5, torch.tensor([1, 1, 1, 2, 2, 2]))
    2.0
    """
    count = torch.bincount(moments.unique(return_inverse=True)[1]).double()
    return float(1 + (count.square().sum() / count.sum() - 1) * correlation)


def correlation_of(law: Forecast, y: Tensor, moments: Tensor) -> float:
    """The intraclass correlation of the normal scores of outcomes y of one moment and step, 0 to 1.

    y is (rows, steps, targets), nan where missing; `moments` (rows,) are those at which forecasts
    were made. A bias that all series share counts as correlation: one period cannot tell the two.

    >>> law = Forecast(torch.zeros(1, 100, 1, 1), torch.ones(1, 100, 1, 1))
    >>> years = torch.arange(10).repeat_interleave(10)
    >>> luck = torch.randn(10, generator=torch.Generator().manual_seed(0))
    >>> y = luck[years][:, None, None]
    >>> round(correlation_of(law, y, years), 6), correlation_of(law, y, torch.arange(100))
    (1.0, 0.0)
    """
    seen = ~y.isnan()
    ranks = law.pit(torch.where(seen, y, law.mean.double())).double()
    scores = torch.special.ndtri(ranks.clamp(FURTHEST, 1 - FURTHEST)).where(seen, 0.0)
    group = moments.unique(return_inverse=True)[1]
    count, total, square = (
        torch.zeros(int(group.max()) + 1, *y.shape[1:], dtype=torch.float64).index_add(0, group, part)
        for part in (seen.double(), scores, scores.square())
    )
    pairs = (count * (count - 1)).sum()
    spread = pairs * square.sum() / count.sum().clamp(min=1)
    if not spread > 0:
        return 0.0
    return float(((total.square() - square).sum() / spread).clamp(0, 1))
