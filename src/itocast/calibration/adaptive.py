"""Adaptive conformal intervals: bounds that follow a stream whose noise changes."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from itocast.calibration.base import Calibrator, outcomes
from itocast.calibration.conformal import SHARES, standardised, stretched, symmetric
from itocast.forecast import Forecast

WANTED = (1 - SHARES).reshape(1, -1, 1, 1)  # the shares of outcomes that intervals miss
RATES = 0.001 * 2.0 ** torch.arange(8, dtype=torch.float64)  # step sizes that compete
RECENT = 300  # standardised errors that are remembered
FORGET = 0.01  # share of trust that is handed out evenly after each outcome


class Adaptive(Calibrator):
    """Conformal intervals of recent errors, at levels that are corrected after every outcome (Gibbs, Candès 2021).

    For every share p of a central interval a miss raises the level that is asked for, a hit lowers it a little. Eight
    step sizes do so side by side, and are trusted by how well their levels did of late (Gibbs, Candès 2024): none has
    to be chosen. `observe` takes forecasts as they were before calibration, and what happened, oldest first; each step
    and target has a state of its own. The mean stays; the law becomes symmetric; the ratio of aleatoric to epistemic
    variance stays. All rows are one stream: groups are not told apart.
    """

    def __init__(self, errors: Any = (), misses: Any = (), trust: Any = (), rows: int = 0) -> None:
        self.errors = torch.as_tensor(errors, dtype=torch.float64)  # (recent, horizon, targets), oldest first
        self.misses = torch.as_tensor(misses, dtype=torch.float64)  # (rates, shares, horizon, targets)
        self.trust = torch.as_tensor(trust, dtype=torch.float64)  # the same, sums to 1 over rates
        self.rows = rows  # that were observed

    def fit(self, forecast: Forecast, y: Any, groups: Any = None, overlap: float = 1.0) -> Self:
        forecast, y = forecast.unclip(outcomes(forecast, y, overlap))
        self.errors, self.rows = _recent(standardised(forecast, y)), len(y)
        self.misses = WANTED.expand(len(RATES), -1, *y.shape[1:]).clone()
        self.trust = torch.full_like(self.misses, 1 / len(RATES))
        return self

    def observe(self, forecast: Forecast, y: Any) -> None:
        """Learn from outcomes, row by row in their order; those that are nan are passed over."""
        y = forecast.check(y, missing=True).double()
        law, y = forecast.unclip(y, first=self.rows)
        self.rows += len(y)
        for error in standardised(law, y):  # (horizon, targets)
            seen = ~error.isnan()
            # the largest miss rate at which this outcome would have been inside
            enough = ((self.errors >= error).sum(0) + 1) / ((~self.errors.isnan()).sum(0) + 1)
            gap = enough - self.misses  # (rates, shares, horizon, targets)
            loss = torch.maximum(WANTED * gap, (WANTED - 1) * gap)
            trust = self.trust * (-8 * loss).exp()
            trust = (1 - FORGET) * trust / trust.sum(0) + FORGET / len(RATES)
            moved = self.misses + RATES.reshape(-1, 1, 1, 1) * (WANTED - (gap < 0).double())
            self.trust = torch.where(seen, trust, self.trust)
            self.misses = torch.where(seen, moved, self.misses).clamp(-0.5, 1.5)
            self.errors = _recent(torch.cat([self.errors, error[None]]))

    def correct(self, forecast: Forecast, groups: Any) -> Forecast:
        level = (1 - (self.trust * self.misses).sum(0)).clamp(min=0.0)  # (shares, horizon, targets)
        return symmetric(forecast, stretched(self.errors, level.cummax(0).values)[:, None])

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("errors", "misses", "trust", "rows")}


def _recent(errors: Tensor) -> Tensor:
    """The last errors that were seen, oldest first; nan stands before them where there are fewer."""
    order = (~errors.isnan()).byte().argsort(dim=0, stable=True)
    return errors.gather(0, order)[-RECENT:]
