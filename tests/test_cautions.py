"""Warnings: each is given where it is due, names what it is about, and is not given elsewhere."""

from __future__ import annotations

import warnings

import pytest
import torch

from itocast import Forecast
from itocast.cautions import warn_of_an_early_end, warn_of_misses
from itocast.training import History

OUTCOMES = 400


@pytest.fixture(scope="module")
def y():
    """Outcomes of a standard normal, evenly spread."""
    return torch.special.ndtri((torch.arange(OUTCOMES) + 0.5) / OUTCOMES)[:, None, None]


def law(deviation: float) -> Forecast:
    """A normal law for every outcome."""
    zero = torch.zeros(1, OUTCOMES, 1, 1)
    return Forecast(zero, zero + deviation**2)


def said(deviation: float, y: torch.Tensor, outcomes: int = OUTCOMES) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn_of_misses(law(deviation), y, outcomes)
    return [str(one.message) for one in found]


def test_intervals_that_hold_or_are_too_wide_are_no_reason_to_warn(y):
    assert said(1.0, y) == []
    assert said(2.0, y) == []


def test_each_interval_that_misses_is_named_with_what_it_held(y):
    """Half as wide as it should be, an interval of 80 % holds 47.8 %, one of 95 % holds 67.3 %."""
    of_80, of_95 = said(0.5, y)
    assert of_80.startswith("intervals of 80 % held 48.0 % of what happened")
    assert of_95.startswith("intervals of 95 % held 67.5 % of what happened")
    assert "about 400 independent outcomes: chance explains 75 to 85 %" in of_80
    assert "diagnose(df)" in of_80


def test_what_chance_explains_hangs_on_how_many_outcomes_are_independent(y):
    """67.5 % of 95 are explained by no chance; 48 % of 80 are, if seven outcomes are all there is."""
    assert len(said(0.5, y, outcomes=7)) == 1
    assert said(0.5, y, outcomes=4) == []


def test_missing_outcomes_do_not_count(y):
    some = y.clone()
    some[::2] = torch.nan
    assert said(1.0, some) == []
    assert said(0.5, some)[0].startswith("intervals of 80 % held 48.0 %")


def history(scores: list[float], stopped: str) -> History:
    return History([{"train": 0.0, "validation": score} for score in scores], stopped)


def test_a_network_that_was_best_at_once_is_named():
    with pytest.warns(UserWarning, match=r"of 6 epochs number 2 was the best: .* model='prior'"):
        warn_of_an_early_end(history([2.0, 1.0, 3.0, 3.0, 3.0, 3.0], "early"))


@pytest.mark.parametrize(
    ("scores", "stopped"),
    [([3.0, 2.0, 1.0, 2.0], "early"), ([1.0, 2.0], "finished"), ([1.0], "interrupted"), ([], "finished")],
)
def test_other_runs_are_not(scores, stopped):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_an_early_end(history(scores, stopped))
