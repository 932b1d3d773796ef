"""Two laws of the same rows as one: the law whose quantiles are weighted means of theirs."""

from __future__ import annotations

import torch
from torch import Tensor

from itocast.clipped import Clipped, tabulated
from itocast.forecast import Forecast
from itocast.tabulated import Tabulated

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the network in a blend
LEVEL = 1.005  # a network alone within half a percent of the best is taken: it forecasts faster


def blended(one: Forecast, other: Forecast, share: float) -> Forecast:
    """The law with quantiles share·q₁ + (1 - share)·q₂.

    What two forecasts disagree about is what neither knows: the epistemic part holds
    share·(1 - share) times the square of the difference of their means.

    >>> narrow, wide = (Forecast([[[[0.0]]]], [[[[v]]]]) for v in (1.0, 9.0))
    >>> round(blended(narrow, wide, 0.5).variance.sqrt().item(), 3)
    2.0
    """
    first, second = tabulated(one), tabulated(other)
    inner, outer = _table(first), _table(second)
    values = share * inner.values + (1 - share) * outer.values
    apart = (first.mean - second.mean).square()
    known = share * first.epistemic + (1 - share) * second.epistemic
    epistemic = known + share * (1 - share) * apart
    law = Tabulated(values, torch.zeros(values.shape[1:]))
    part = (epistemic / law.variance.clamp(min=1e-300)).clamp(max=1.0)
    law = Tabulated(values, part)
    return first.around(law) if isinstance(first, Clipped) else law


def _table(law: Forecast) -> Tabulated:
    """The quantiles of a law before it was kept inside a range."""
    inner = law.base if isinstance(law, Clipped) else law
    assert isinstance(inner, Tabulated)
    return inner


def best_share(
    network: Forecast, other: Forecast, y: Tensor, scale: Tensor, independent: float, blend: bool
) -> tuple[float, dict[float, float]]:
    """The share of the network in a blend by the CRPS of held-out rows, and the CRPS of each share.

    `scale` is the unit of each row's series. Evidence from few independent outcomes is worth
    little: the CRPS of a share s counts (1 + s / independent) times. Unless `blend` it is all or none.
    """
    seen = ~y.isnan()
    full = torch.where(seen, y, network.mean.double())
    scores: dict[float, float] = {}
    for share in SHARES if blend else (0.0, 1.0):
        law = _of_share(network, other, share)
        scores[share] = (law.crps(full) / scale)[seen].mean().item()
    judged = {share: score * (1 + share / max(1.0, independent)) for share, score in scores.items()}
    best = min(judged, key=lambda share: judged[share])
    if judged[1.0] <= LEVEL * judged[best]:
        best = 1.0
    return best, scores


def _of_share(network: Forecast, other: Forecast, share: float) -> Forecast:
    if share == 0:
        return tabulated(other)
    return tabulated(network) if share == 1 else blended(network, other, share)
