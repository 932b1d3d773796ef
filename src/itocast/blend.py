"""Two laws of the same rows as one: the law whose quantiles are weighted means of theirs."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from itocast.clipped import Clipped, tabulated
from itocast.forecast import Forecast
from itocast.tabulated import Tabulated

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the network in a blend
LEVEL = 1.005  # a network alone within half a percent of the best is taken: it forecasts faster
FEWEST = 10  # independent outcomes from which on a series may have a share of its own
EQUAL = 30.0  # those of a series that count as much as all other series together
EARNED = 0.98  # times the score of the common share that one of its own must reach


class Moments(Protocol):
    """What says how large both parts of the variance of a law are."""

    @property
    def mean(self) -> Tensor: ...

    @property
    def aleatoric(self) -> Tensor: ...

    @property
    def epistemic(self) -> Tensor: ...


def blended(one: Forecast, other: Forecast, share: float | Tensor) -> Forecast:
    """The law with quantiles share·q₁ + (1 - share)·q₂, the share one for all or (rows, 1, targets).

    What two forecasts disagree about is what neither knows: beside the aleatoric and epistemic parts of
    both, share·(1 - share) times the square of the difference of their means counts as epistemic, and
    the variance is split as these are.

    >>> narrow, wide = (Forecast([[[[0.0]]]], [[[[v]]]]) for v in (1.0, 9.0))
    >>> round(blended(narrow, wide, 0.5).variance.sqrt().item(), 3)
    2.0
    """
    first, second = tabulated(one), tabulated(other)
    inner, outer = _table(first), _table(second)
    values = share * inner.values + (1 - share) * outer.values
    law = Tabulated(values, unknown(first, second, share))
    return first.around(law) if isinstance(first, Clipped) else law


def unknown(first: Moments, second: Moments, share: float | Tensor) -> Tensor:
    """The epistemic part of the variance of a blend, (rows, horizon, targets)."""
    apart = (first.mean - second.mean).square()
    aleatoric = share * first.aleatoric + (1 - share) * second.aleatoric
    known = share * first.epistemic + (1 - share) * second.epistemic
    epistemic = known + share * (1 - share) * apart
    return epistemic / (aleatoric + epistemic).clamp(min=1e-300)


def _table(law: Forecast) -> Tabulated:
    """The quantiles of a law before it was kept inside a range."""
    inner = law.base if isinstance(law, Clipped) else law
    assert isinstance(inner, Tabulated)
    return inner


def compared(network: Forecast, other: Forecast, y: Tensor, scale: Tensor, blend: bool) -> dict[float, Tensor]:
    """The CRPS of each share of the network in units of `scale`, nan where the outcome is missing.

    Unless `blend` a share is all or none.
    """
    seen = ~y.isnan()
    full = torch.where(seen, y, network.mean.double())
    network, other = tabulated(network), tabulated(other)  # once, for all shares
    laws = {share: _of_share(network, other, share) for share in (SHARES if blend else (0.0, 1.0))}
    return {share: torch.where(seen, law.crps(full) / scale, torch.nan) for share, law in laws.items()}


def best_share(scores: dict[float, Tensor], independent: float) -> float:
    """The share of least CRPS over all rows.

    Evidence from few independent outcomes is worth little: the CRPS of a share s counts
    (1 + s / independent) times.
    """
    shares = torch.tensor(list(scores), dtype=torch.float64)
    means = torch.stack([score.nanmean() for score in scores.values()])
    return _least(shares, means * (1 + shares / max(1.0, independent))).item()


def own_shares(scores: dict[float, Tensor], series: Tensor, independent: Tensor, share: float) -> Tensor:
    """The share of the network in each series and target, (series, targets): the common one, or one of its own.

    `series` are those of the rows, `independent` (series,) how many independent outcomes each has.
    The score of a share is its CRPS relative to the best, that in the series with the weight
    n / (n + EQUAL), that of all series with the rest. So a series that a network does not
    understand is left to the prior, and the others are not.
    """
    shares = torch.tensor(list(scores), dtype=torch.float64)[:, None, None]
    rows = torch.stack(list(scores.values()))  # (shares, rows, steps, targets)
    count, targets = len(independent), rows.shape[-1]
    total = rows.new_zeros(len(shares), count, targets).index_add(1, series, rows.nansum(2))
    seen = rows.new_zeros(count, targets).index_add(0, series, (~rows[0].isnan()).double().sum(1))
    everywhere = rows.flatten(1).nanmean(1)[:, None, None]
    n = independent[:, None]
    weight = n / (n + EQUAL)
    judged = weight * _relative(total / seen.clamp(min=1)) + (1 - weight) * _relative(everywhere)
    judged = judged * (1 + shares / n.clamp(min=1))
    common = judged[list(scores).index(share)]
    earned = (n >= FEWEST) & (seen > 0) & (judged.amin(0) < EARNED * common)
    return torch.where(earned, _least(shares, judged), share)


def _relative(scores: Tensor) -> Tensor:
    """Along the first axis, to the least."""
    return scores / scores.amin(0).clamp(min=1e-300)


def _least(shares: Tensor, judged: Tensor) -> Tensor:
    """The share of the least score along the first axis, or 1 where that is nearly as good."""
    least = shares.expand_as(judged).gather(0, judged.argmin(0, keepdim=True))[0]
    return torch.where(judged[-1] <= LEVEL * judged.amin(0), shares.max(), least)


def _of_share(network: Forecast, other: Forecast, share: float) -> Forecast:
    if share == 0:
        return other
    return network if share == 1 else blended(network, other, share)
