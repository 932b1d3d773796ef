"""The predictive law of a class: a softmax on every path, averaged over the paths."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


class Categorical:
    """Log-probabilities (paths, rows, members, classes); the law of a row is the mean over paths and members.

    >>> law = Categorical(torch.tensor([[1.0, 0.0], [0.0, 1.0]]).log().reshape(2, 1, 1, 2))  # two paths disagree
    >>> law.probabilities.tolist(), round(law.entropy.item(), 4), round(law.epistemic.item(), 4)
    ([[0.5, 0.5]], 0.6931, 0.6931)
    """

    def __init__(self, log_probabilities: Tensor) -> None:
        self.log_probabilities = log_probabilities

    def __len__(self) -> int:
        return self.log_probabilities.shape[1]

    def __getitem__(self, rows: slice) -> Categorical:
        """The law of some rows."""
        return Categorical(self.log_probabilities[:, rows])

    @staticmethod
    def join(laws: Sequence[Categorical]) -> Categorical:
        """The rows of several laws below one another."""
        return Categorical(torch.cat([law.log_probabilities for law in laws], dim=1))

    @property
    def member_log_probabilities(self) -> Tensor:
        """The law of each member, the mean over its paths, (rows, members, classes)."""
        return self.log_probabilities.logsumexp(0) - math.log(len(self.log_probabilities))

    @property
    def probabilities(self) -> Tensor:
        """(rows, classes)."""
        return self.log_probabilities.exp().mean((0, 2))

    @property
    def entropy(self) -> Tensor:
        """The entropy of the law, in nats: all that is uncertain about a row, (rows,)."""
        return torch.special.entr(self.probabilities).sum(-1)

    @property
    def aleatoric(self) -> Tensor:
        """The mean entropy of a path's own law: what would stay uncertain if the right path were known, (rows,)."""
        return torch.special.entr(self.log_probabilities.exp()).sum(-1).mean((0, 2))

    @property
    def epistemic(self) -> Tensor:
        """The rest, the mutual information of class and path: how far the paths disagree, (rows,)."""
        return (self.entropy - self.aleatoric).clamp(min=0)  # rounding may fall below 0, the true value cannot
