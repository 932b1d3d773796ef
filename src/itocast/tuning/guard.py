"""The guard of a search: which trials are fitted anew and compared with the defaults, and which one is kept."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np

from itocast.tuning.comparison import Compared, compare
from itocast.tuning.parts import Part
from itocast.tuning.studies import Study

TOP = 3  # trials that are compared with the defaults
SEEDS = 3  # fits of each of them
SHARE = 0.5  # of the time of a search that is reserved, at most


class Guard:
    """Fits of trials, known to the study, that learned from the rows before those of `part` and are scored on them.

    `longer` is how many times the seconds of a trial such a fit takes.
    """

    def __init__(self, study: Study, part: Part, longer: float) -> None:
        self.study, self.part, self.longer = study, part, longer

    def ahead(self) -> list[int]:
        """The best few trials, if they are better than the defaults."""
        known = {number: trial.value for number, trial in enumerate(self.study.trials) if trial.value is not None}
        return [number for number in sorted(known, key=known.__getitem__)[:TOP] if known[number] < known[0]]

    def _cost(self, number: int, seeds: int) -> float:
        """The seconds that the fits which a trial lacks will take."""
        lacking = sum((number, seed) not in self.study.fits for seed in range(1, seeds + 1))
        return lacking * self.longer * self.study.trials[number].user_attrs["seconds"]

    def reserve(self, seconds: float) -> float:
        """What the guard needs of the time of a search, if that is not too much of it."""
        if seconds == math.inf or not self.study.trials:
            return 0.0
        numbers = [0, *self.ahead()]
        unknown = (1 + TOP - len(numbers)) * SEEDS * self.longer * self.study.trials[0].user_attrs["seconds"]
        return min(SHARE * seconds, unknown + sum(self._cost(number, SEEDS) for number in numbers))

    def lacking(self, seconds: float) -> list[tuple[int, int]]:
        """Trials and seeds to fit, the defaults and as many of the best trials as there is time for; none if too short.

        Seed by seed: what is cut short has compared all of them by fewer seeds.
        """
        for seeds in (SEEDS, 2):
            numbers, cost = [0], self._cost(0, seeds)
            for number in self.ahead():
                if cost + (more := self._cost(number, seeds)) <= seconds:
                    numbers.append(number)
                    cost += more
            if len(numbers) > 1:
                fits = [(number, seed) for seed in range(1, seeds + 1) for number in numbers]
                return [fit for fit in fits if fit not in self.study.fits]
        return []

    def fits(self) -> dict[int, np.ndarray]:
        """The sums of each trial, (seeds, blocks); one of which a fit failed is out."""
        sums: dict[int, list[list[float]]] = defaultdict(list)
        failed = {number for (number, _), fit in self.study.fits.items() if fit["outcome"] != "finished"}
        for (number, _), fit in sorted(self.study.fits.items()):
            if number not in failed:
                sums[number].append(fit["sums"])
        return {number: np.array(rows) for number, rows in sums.items()}

    def compared(self) -> dict[int, Compared]:
        """Each trial against the defaults, those of earlier runs too."""
        return compare(self.fits(), self.part.counts)

    def kept(self) -> int:
        """The trial that gains most among those that are better by more than chance; 0, the defaults, if none is."""
        better = {number: one.gain for number, one in self.compared().items() if one.better}
        return max(better, key=better.__getitem__, default=0)
