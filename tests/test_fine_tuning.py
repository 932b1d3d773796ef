"""The prior trained further on a table of short series, and what such a table's outcomes tell."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from itocast import Forecaster
from itocast.forecast import Forecast
from itocast.prior import Prior
from itocast.prior.fine_tuning import Examples, fine_tuned, padded, rate
from itocast.prior.inputs import read
from itocast.prior.loss import loss_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*level that training did not see"),
    pytest.mark.filterwarnings("ignore:intervals of"),
]
HORIZON = 4
SEASONS = torch.tensor([0, 0])


def bursts(rows: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Flat series whose next values jump up by three of their own deviations: no prior expects that."""
    past = torch.randn(rows, 24, generator=generator, dtype=torch.float64)
    future = 3 + torch.randn(rows, HORIZON, generator=generator, dtype=torch.float64)
    return 100 + 5 * past, 100 + 5 * future


def draw(rows: int, generator: torch.Generator) -> Examples:
    past, future = bursts(rows, generator)
    return Examples(past, SEASONS.expand(rows, 2), future)


def tuned(independent: float, seed: int = 0) -> Prior:
    return fine_tuned(Prior.load(), draw, 16, independent, seed, lambda step, text: None)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("itocast.prior.fine_tuning.STEPS", 20)


def crps(prior: Prior) -> float:
    past, future = bursts(200, torch.Generator().manual_seed(9))
    return prior.law(past, SEASONS.expand(200, 2), HORIZON).crps(future[..., None]).mean().item()


def test_what_series_have_in_common_is_learned(quick):
    assert crps(tuned(1e6)) < 0.9 * crps(Prior.load())


def test_few_independent_outcomes_move_the_weights_little(quick):
    before = Prior.load().tensors()
    few, many = (tuned(independent).tensors() for independent in (3.0, 1e6))
    moved = [
        sum((part[name].float() - before[name].float()).square().sum() for name in before).sqrt()
        for part in (few, many)
    ]
    assert 0.05 < moved[0] / moved[1] < 0.15  # 3 / (3 + 30) of the way


def test_the_same_seed_gives_the_same_weights_and_the_prior_stays(quick):
    before = {name: part.clone() for name, part in Prior.load().tensors().items()}
    one, other = tuned(50.0).tensors(), tuned(50.0).tensors()
    assert all(torch.equal(one[name], other[name]) for name in one)
    after = Prior.load().tensors()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_nothing_is_learned_from_rows_without_outcomes(quick):
    def nothing(rows: int, generator: torch.Generator) -> Examples:
        past, future = bursts(rows, generator)
        return Examples(past, SEASONS.expand(rows, 2), torch.full_like(future, torch.nan))

    before = Prior.load().tensors()
    after = fine_tuned(Prior.load(), nothing, 8, 1e6, 0, lambda step, text: None).tensors()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_loss_leaves_missing_outcomes_out():
    past, future = bursts(6, torch.Generator().manual_seed(0))
    context, units = read(padded(past), SEASONS.expand(6, 2))
    leads = torch.arange(1, HORIZON + 1)
    with torch.no_grad():
        law = Prior.load().network(context, leads)
        holes = future.clone()
        holes[:, -1] = torch.nan
        whole = loss_of(law, holes, context, units, leads)
        parts = (law.means, law.log_variances, law.log_weights)
        shorter = Forecast.from_logs(*(part[:, :, :-1] for part in parts))
        part = loss_of(shorter, future[:, :-1], context, units, leads[:-1])
    assert whole.item() == pytest.approx(part.item(), rel=1e-6)


def test_the_learning_rate_rises_and_falls_to_nothing():
    rates = [rate(step) for step in range(100)]
    assert rates[0] < rates[9] == max(rates)
    assert 0 < rates[-1] < 0.02 * max(rates)


def test_only_the_rows_that_there_are_are_read():
    values = torch.full((2, 40), torch.nan).double()
    values[0, -3:], values[1, -11:] = 1.0, 2.0
    assert padded(values).shape == (2, 16)


def table(series: int, shared: float, rows: int = 24) -> pd.DataFrame:
    """Short walks whose steps are, in a share of their variance, those of one year for all."""
    random = np.random.default_rng(2)
    common, own = random.normal(size=rows), random.normal(size=(series, rows))
    walks = (np.sqrt(shared) * common + np.sqrt(1 - shared) * own).cumsum(1)
    years = pd.date_range("1990-01-01", periods=rows, freq="YS")
    parts = [
        pd.DataFrame({"unique_id": f"s{i:02d}", "ds": years, "y": 50 + walk}) for i, walk in enumerate(walks)
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


SETTINGS = {"training": {"epochs": 1}, "support": "real"}


def test_outcomes_that_series_share_count_once(quick):
    alone = Forecaster(HORIZON, **SETTINGS).fit(table(40, 0.0)).fitted.evidence
    together = Forecaster(HORIZON, **SETTINGS).fit(table(40, 0.9)).fitted.evidence
    assert together < 5 < 20 < alone


def test_a_table_of_short_series_says_that_its_prior_was_tuned_and_keeps_it(quick, tmp_path):
    forecaster = Forecaster(HORIZON, **SETTINGS).fit(table(40, 0.0))
    assert "fine-tuned prior" in forecaster.fitted.kind
    forecaster.save(tmp_path / "model")
    loaded = Forecaster.load(tmp_path / "model")
    assert loaded.fitted.kind == forecaster.fitted.kind
    pd.testing.assert_frame_equal(loaded.predict(), forecaster.predict())


def test_held_out_rows_are_no_part_of_what_the_prior_is_tuned_on(quick, monkeypatch):
    seen = []

    def spy(prior, draw, rows, independent, seed, report):
        examples = draw(500, torch.Generator().manual_seed(0))
        seen.append(max(examples.values[:, -1].max(), examples.y.max()).item())
        return prior

    monkeypatch.setattr("itocast.prior.fine_tuning.fine_tuned", spy)
    frame = table(40, 0.0)
    late = frame.groupby("unique_id").cumcount(ascending=False) < HORIZON
    frame.loc[late, "y"] += 1e6
    Forecaster(HORIZON, **SETTINGS).fit(frame)
    assert seen
    assert max(seen) < 1e5


@pytest.mark.parametrize("settings", [{"effort": "fast"}, {"model": "prior"}])
def test_a_fast_fit_and_the_prior_alone_train_nothing(settings, monkeypatch):
    monkeypatch.setattr("itocast.prior.fine_tuning.fine_tuned", None)
    Forecaster(HORIZON, **SETTINGS, **settings).fit(table(40, 0.0))


def test_a_prior_that_became_worse_is_not_taken(monkeypatch):
    def spoilt(prior, *_):
        return Prior.of({name: 1.5 * part for name, part in prior.tensors().items()})

    monkeypatch.setattr("itocast.prior.fine_tuning.fine_tuned", spoilt)
    fitted = Forecaster(HORIZON, **SETTINGS).fit(table(40, 0.0)).fitted
    assert fitted.zero_shot is None or not fitted.zero_shot.tuned


def test_ctrl_c_leaves_the_prior_as_it_came(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("itocast.prior.fine_tuning.fine_tuned", interrupted)
    with pytest.warns(UserWarning, match="fine-tuning was interrupted: the prior is as it came"):
        forecaster = Forecaster(HORIZON, **SETTINGS).fit(table(40, 0.0))
    assert np.isfinite(forecaster.predict()["mean"]).all()
