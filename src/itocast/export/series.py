"""What a graph knows of each series, for the rows of a call."""

from __future__ import annotations

import torch
from torch import Tensor

from itocast.data.preparation import Preparation


class Series:
    """Constants of the series that training saw; all others come last, as one."""

    def __init__(self, preparation: Preparation) -> None:
        self.labels = [str(label) for label in preparation.scales]
        parts = list(preparation.scales.values())
        known = torch.tensor(parts, dtype=torch.float64)  # (series, 3, targets)
        self.scales = torch.cat([known, torch.ones_like(known[:1])])

    def number(self, x: dict[str, Tensor]) -> Tensor:
        """The place of each row's series in what has one entry for each."""
        if "series" not in x:
            rows = next(iter(x.values())).shape[0]
            return torch.zeros(rows, dtype=torch.long)
        return torch.where(x["series"] < 0, len(self.labels), x["series"])

    def places(self, labels: list[str]) -> Tensor:
        """Where each series stands among some labels, from 1; 0 for all others, (series + 1,)."""
        places = {label: place + 1 for place, label in enumerate(labels)}
        return torch.tensor([*(places.get(label, 0) for label in self.labels), 0])

    def scale(self, x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Centre and deviation of each row's series, (rows, targets)."""
        both = self.scales[self.number(x), :2]
        if "scale" in x:
            both = torch.where(x["series"][:, None, None] < 0, x["scale"], both)
        return both[:, 0], both[:, 1]

    def rounding(self, x: dict[str, Tensor]) -> Tensor:
        """The smallest step between values of each row's series, or 0, (rows, targets)."""
        steps = self.scales[self.number(x), 2]
        if "rounding" in x:
            steps = torch.where(x["series"][:, None] < 0, x["rounding"], steps)
        return steps
