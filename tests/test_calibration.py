"""What every calibrator promises."""

from __future__ import annotations

import json

import pytest
import torch

from itocast import metrics
from itocast.calibration import CALIBRATORS, VarianceScaling
from itocast.forecast import Forecast


def misjudged(rows: int, factor: float, seed: int) -> tuple[Forecast, torch.Tensor]:
    """A two-step, two-target law of two paths whose deviations are `factor` times too small, and outcomes."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(2, rows, 2, 2, generator=generator, dtype=torch.float64)
    law = Forecast(means, torch.full_like(means, 0.3))
    truth = law.sample(1, seed)[0]
    return law, law.mean + factor * (truth - law.mean)


@pytest.mark.parametrize("name", CALIBRATORS)
@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_coverage_is_right_on_new_rows(name, factor):
    calibrator = CALIBRATORS[name]().fit(*misjudged(4000, factor, seed=1))
    law, y = misjudged(4000, factor, seed=2)
    for level in (50, 80, 90, 95):
        share = level / 100
        band = 3.3 * (share * (1 - share) / y.numel()) ** 0.5
        assert metrics.coverage(calibrator.apply(law), y, level) == pytest.approx(share, abs=2 * band)


@pytest.mark.parametrize("name", CALIBRATORS)
def test_a_forecast_stays_a_forecast(name):
    law, y = misjudged(500, 2.0, seed=1)
    corrected = CALIBRATORS[name]().fit(law, y).apply(law)
    assert corrected.shape == law.shape
    assert set(metrics.evaluate(corrected, y)) == set(metrics.METRICS)
    assert metrics.nll(corrected, y) < metrics.nll(law, y)
    torch.testing.assert_close(corrected.aleatoric + corrected.epistemic, corrected.variance)


def test_variance_scaling_keeps_mean_and_split():
    law, y = misjudged(500, 2.0, seed=1)
    corrected = VarianceScaling().fit(law, y).apply(law)
    torch.testing.assert_close(corrected.mean, law.mean)
    torch.testing.assert_close(corrected.epistemic / corrected.variance, law.epistemic / law.variance)


@pytest.mark.parametrize("name", CALIBRATORS)
def test_no_rows_are_refused(name):
    law, y = misjudged(5, 1.0, seed=1)
    with pytest.raises(ValueError, match="y has no rows"):
        CALIBRATORS[name]().fit(law[:0], y[:0])


@pytest.mark.parametrize("name", CALIBRATORS)
def test_missing_outcomes_are_left_out(name):
    """Those of half of the rows are missing: the correction is that of the other half."""
    law, y = misjudged(600, 2.0, seed=1)
    holes = y.clone()
    holes[300:] = torch.nan
    one, two = CALIBRATORS[name]().fit(law, holes).apply(law), CALIBRATORS[name]().fit(law[:300], y[:300]).apply(law)
    torch.testing.assert_close(one.quantile([0.1, 0.9]), two.quantile([0.1, 0.9]))
    nothing = CALIBRATORS[name]().fit(law, torch.full_like(y, torch.nan)).apply(law)
    torch.testing.assert_close(nothing.mean, law.mean)
    assert nothing.variance.isfinite().all()


@pytest.mark.parametrize("name", CALIBRATORS)
def test_a_calibrator_survives_json(name):
    law, y = misjudged(200, 2.0, seed=1)
    calibrator = CALIBRATORS[name]().fit(law, y)
    again = CALIBRATORS[name](**json.loads(json.dumps(calibrator.to_dict())))
    assert torch.equal(again.apply(law).quantile([0.1, 0.9]), calibrator.apply(law).quantile([0.1, 0.9]))
