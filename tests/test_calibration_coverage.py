"""What calibrated intervals hold: on laws that are known, against MAPIE, and in a stream that changes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from mapie.conformity_scores import ResidualNormalisedScore
from mapie.regression import SplitConformalRegressor
from sklearn.base import BaseEstimator, RegressorMixin
from torch import Tensor

from itocast.calibration import CALIBRATORS, Adaptive, Conformal
from itocast.calibration.adaptive import RECENT
from itocast.forecast import Forecast

ROWS = 4000  # to learn from, and as many new ones
LEVELS = (50, 80, 90, 95)


# ---- known generators: the standardised error of an outcome, where the law says standard normal

ERRORS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "narrow": lambda random, n: 1.7 * random.standard_normal(n),
    "wide": lambda random, n: 0.6 * random.standard_normal(n),
    "heavy": lambda random, n: random.standard_t(3, n),
    "skewed": lambda random, n: random.gamma(2.0, 1.0, n) - 2.0,
    "biased": lambda random, n: 0.8 + random.standard_normal(n),
}


def generated(kind: str, seed: int, varying: bool) -> tuple[Forecast, Tensor]:
    """Gaussian laws of various means, and of various deviations if `varying`, and outcomes."""
    random = np.random.default_rng(seed)
    means = random.normal(0.0, 10.0, (ROWS, 1, 1))
    deviations = np.exp(random.normal(0.0, 1.0, means.shape)) if varying else np.ones_like(means)
    y = means + deviations * ERRORS[kind](random, ROWS).reshape(means.shape)
    return Forecast(means[None], deviations[None] ** 2), torch.from_numpy(y)


def off(name: str, kind: str, varying: bool, seed: int = 0) -> dict[int, float]:
    """How far coverage is from each level, in deviations of its binomial noise.

    The noise is that of the new outcomes and that of the outcomes which were learned from.
    """
    calibrator = CALIBRATORS[name]().fit(*generated(kind, 2 * seed, varying))
    law, y = generated(kind, 2 * seed + 1, varying)
    corrected, found = calibrator.apply(law), {}
    learned = RECENT if name == "adaptive" else ROWS
    for level in LEVELS:
        low, high = corrected.interval(level)
        share = level / 100
        noise = math.sqrt(share * (1 - share) * (1 / ROWS + 1 / learned))
        found[level] = (((y >= low) & (y <= high)).double().mean().item() - share) / noise
    return found


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("name", ["isotonic", "conformal", "conformal_quantiles", "adaptive", "auto"])
def test_coverage_on_new_rows_is_inside_the_99_percent_band(name, kind):
    found = off(name, kind, varying=False)
    assert max(map(abs, found.values())) < 2.576, found


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("name", ["isotonic", "conformal", "conformal_quantiles", "adaptive", "auto"])
def test_coverage_of_heteroscedastic_laws_is_inside_the_99_percent_band(name, kind):
    found = off(name, kind, varying=True)
    assert max(map(abs, found.values())) < 2.576, found


@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("kind", ["narrow", "wide"])
def test_variance_scaling_is_right_where_only_the_scale_is_wrong(kind, varying):
    """It has one factor, so it cannot mend a shape or a bias at all levels: these are left to the others."""
    found = off("variance", kind, varying)
    assert max(map(abs, found.values())) < 2.576, found


# ---- MAPIE


class Column(RegressorMixin, BaseEstimator):
    """A fitted regressor that returns one of its features."""

    def __init__(self, place: int = 0) -> None:
        self.place, self.n_features_in_ = place, 2

    def fit(self, X: np.ndarray, y: np.ndarray) -> Column:
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(X)[:, self.place]


def features(law: Forecast) -> np.ndarray:
    """Mean and deviation."""
    return torch.stack([law.mean, law.variance.sqrt()], dim=-1).reshape(-1, 2).numpy()


@pytest.mark.parametrize("rows", [30, 99, 100, 357])
@pytest.mark.parametrize("varying", [False, True])
def test_split_conformal_bounds_are_those_of_mapie(rows, varying):
    """Absolute errors where all deviations are 1, else errors divided by the deviation.

    Both take the error of rank ⌈(n + 1) level⌉; all levels here have one.
    """
    law, y = generated("heavy", 5, varying)
    score = ResidualNormalisedScore(Column(1), prefit=True, sym=True) if varying else "absolute"
    levels = [0.1, 0.37, 0.5, 0.68, 0.8, 0.9, 0.95]
    mapie = SplitConformalRegressor(Column(0), levels, conformity_score=score, prefit=True)
    mapie.conformalize(features(law[:rows]), y[:rows].flatten().numpy())
    bounds = mapie.predict_interval(features(law[rows:]))[1]  # (rows, 2, levels)
    ours = Conformal().fit(law[:rows], y[:rows]).apply(law[rows:])
    for place, level in enumerate(levels):
        low, high = ours.interval(100 * level)
        np.testing.assert_allclose(low.flatten(), bounds[:, 0, place], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(high.flatten(), bounds[:, 1, place], rtol=1e-9, atol=1e-9)


# ---- a stream whose noise changes


def stream(seed: int, rows: int, noise: float) -> tuple[Forecast, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(1, rows, 1, 1, generator=generator, dtype=torch.float64)
    return Forecast(means, torch.ones_like(means)), means[0] + noise * torch.randn(
        rows, 1, 1, generator=generator, dtype=torch.float64
    )


def hits(calibrator: Adaptive | Conformal, law: Forecast, y: Tensor) -> np.ndarray:
    """Whether each outcome was inside its 90 % interval, which an adaptive calibrator learns after the fact."""
    inside = []
    for row in range(len(y)):
        low, high = calibrator.apply(law[row]).interval(90)
        inside.append((low <= y[row]).item() and (y[row] <= high).item())
        if isinstance(calibrator, Adaptive):
            calibrator.observe(law[row], y[row, None])
    return np.array(inside)


@pytest.mark.parametrize("seed", range(4))
def test_adaptive_is_back_within_300_rows_after_the_noise_trebles(seed):
    """Coverage of rows 301 to 1300 after the jump is 90 ± 2 %; that of static intervals is far below."""
    before, after = stream(2 * seed, 500, noise=1.0), stream(2 * seed + 1, 1300, noise=3.0)
    adaptive = hits(Adaptive().fit(*before), *after)
    assert 0.88 <= adaptive[300:].mean() <= 0.92
    static = Conformal().fit(*before).apply(after[0]).interval(90)
    assert ((after[1] >= static[0]) & (after[1] <= static[1]))[300:].double().mean() < 0.6


def test_adaptive_holds_where_nothing_changes():
    before, after = stream(20, 500, noise=1.0), stream(21, 1000, noise=1.0)
    assert 0.88 <= hits(Adaptive().fit(*before), *after).mean() <= 0.92


def test_missing_outcomes_teach_nothing():
    law, y = stream(3, 60, noise=1.0)
    one, two = Adaptive().fit(law, y), Adaptive().fit(law, y)
    later, outcomes = stream(4, 5, noise=9.0)
    holes = torch.stack([outcomes, torch.full_like(outcomes, torch.nan)], dim=1).flatten(0, 1)
    one.observe(later, outcomes)
    two.observe(Forecast.cat([later[row] for row in range(5) for _ in range(2)]), holes)
    assert torch.equal(one.apply(later).quantile([0.05, 0.95]), two.apply(later).quantile([0.05, 0.95]))
