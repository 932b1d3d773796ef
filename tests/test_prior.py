"""The prior: its contracts, its generators, its training, and the finder of seasons."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from itocast.forecast import Forecast
from itocast.prior import Prior, generators, pretraining
from itocast.prior.generators import common, diffusions, draw, draw_seasons, noise
from itocast.prior.generators.counts import counts
from itocast.prior.inputs import CANDIDATES, FUTURE, POSITION, STATISTICS, ahead, read
from itocast.prior.loss import crps
from itocast.prior.pretraining import Run, batches, random_source
from itocast.prior.seasons import find_seasons
from short_series.experiments import GENERATORS, Shape
from short_series.laws import BURN_IN
from short_series.laws import draw as draw_law

LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]
NONE = torch.zeros(1, 2, dtype=torch.int64)


@pytest.fixture(scope="module")
def prior() -> Prior:
    return Prior.load()


def series(rows: int, length: int, seed: int = 0) -> Tensor:
    """Walks around a season of 12, some above 0 and some below."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((rows, length)).cumsum(1) + 3 * np.sin(np.arange(length) * np.pi / 6)
    return torch.from_numpy(values - values[:, -1:])


def seasons(rows: int, first: int = 12, second: int = 0) -> Tensor:
    return torch.tensor([[first, second]]).expand(rows, 2)


def quantiles(prior: Prior, values: Tensor, told: Tensor, horizon: int = 12) -> Tensor:
    return prior.law(values, told, horizon).quantile(LEVELS)[..., 0]


def parts(law: Forecast) -> Tensor:
    return torch.stack([law.means, law.log_variances, law.log_weights])


# contracts of the law


def test_the_law_has_the_shape_of_a_forecast_and_float64(prior):
    law = prior.law(series(5, 40), seasons(5), 7)
    assert law.shape == (5, 7, 1)
    assert law.means.shape[0] == 1
    assert law.means.dtype == torch.float64
    one = torch.ones(1, dtype=torch.float64)
    assert torch.allclose(law.log_weights.exp().sum(-1), one, rtol=0, atol=1e-14)


def test_weights_are_small_and_read_once():
    from itocast.prior.prior import WEIGHTS

    assert WEIGHTS.stat().st_size < 4_000_000
    assert Prior.load().network is Prior.load().network


@pytest.mark.parametrize("scale", [1e-100, 0.25, 3.7, 1e100])
def test_the_law_grows_with_the_values(prior, scale):
    values = series(20, 60).abs()
    one, other = quantiles(prior, values, seasons(20)), quantiles(prior, scale * values, seasons(20))
    spread = (one[-1] - one[0]).mean()
    assert ((other / scale - one).abs() / spread).max() < 1e-3


@pytest.mark.parametrize("shift", [-70.0, 1000.0])
def test_the_law_moves_with_values_of_both_signs(prior, shift):
    values = series(20, 60)
    below = values[values.amin(1) < 0] - max(shift, 0)  # below 0 somewhere, before and after
    one, other = (quantiles(prior, part, seasons(len(below))) for part in (below, below + shift))
    spread = (one[-1] - one[0]).mean()
    assert ((other - shift - one).abs() / spread).max() < 1e-3


def test_a_power_of_two_changes_no_digit_of_the_weights(prior):
    values = series(3, 50)
    one, other = (prior.law(part, seasons(3), 5) for part in (values, values * 1024))
    assert torch.equal(one.log_weights, other.log_weights)
    assert torch.equal(one.means * 1024, other.means)


def test_digits_do_not_depend_on_other_rows(prior):
    values = series(70, 300)
    values[::3, :200] = torch.nan
    values[1::3, :290] = torch.nan
    together = prior.law(values, seasons(70), 20)
    for rows in ([0], [1], [2, 5], list(range(33)), [69, 3, 1]):
        assert torch.equal(parts(prior.law(values[rows], seasons(len(rows)), 20)), parts(together[rows]))


def test_digits_do_not_depend_on_columns_before_the_start(prior):
    values = series(4, 50)
    padded = torch.cat([torch.full((4, 900), torch.nan), values], 1)
    assert torch.equal(parts(prior.law(values, seasons(4), 6)), parts(prior.law(padded, seasons(4), 6)))


def test_the_law_of_a_step_does_not_depend_on_the_horizon(prior):
    values = series(3, 100)
    long = parts(prior.law(values, seasons(3), 200))
    for horizon in (1, 5, 17, 64, 130):
        assert torch.equal(parts(prior.law(values, seasons(3), horizon)), long[:, :, :, :horizon])


def test_only_the_last_1024_values_are_read(prior):
    values = series(2, 1500)
    assert torch.equal(parts(prior.law(values, seasons(2), 3)), parts(prior.law(values[:, -1024:], seasons(2), 3)))


def sane(law: Forecast) -> Tensor:
    """Three numbers of the middle component of a law all of whose numbers are finite: below, centre, above.

    Taken from its parts: a quantile squares deviations, which 1e160 and 1e-300 do not survive.
    """
    assert parts(law).isfinite().all()
    deviations = (0.5 * law.log_variances).exp()
    assert (deviations > 0).all()
    weights = law.log_weights.exp()
    centre = (weights * law.means).sum(-1)[0, ..., 0]
    width = 2 * (weights * (deviations + (law.means - centre[None, ..., None, None]).abs())).sum(-1)[0, ..., 0]
    return torch.stack([centre - width, centre, centre + width])


@pytest.mark.parametrize("value", [0.0, 1.0, -7.0, 1e-300, 1e160, -1e160])
def test_one_value_gives_a_wide_law_around_it(prior, value):
    low, middle, high = sane(prior.law(torch.tensor([[value]], dtype=torch.float64), NONE, 4))
    size = abs(value) or 1.0
    assert ((middle - value).abs() < size).all()
    assert (high - low > 0.05 * size).all()
    assert (high - low < 50 * size).all()


@pytest.mark.parametrize("value", [0.0, 5.0, -1e-300, 1e160])
def test_a_constant_series_gives_a_narrow_law(prior, value):
    low, middle, high = sane(prior.law(torch.full((1, 100), value, dtype=torch.float64), NONE, 4))
    size = abs(value) or 1.0
    assert ((middle - value).abs() < 0.2 * size).all()
    assert (high - low < size).all()


@pytest.mark.parametrize(
    "values",
    [
        [3.0] * 50 + [1000.0] + [3.0] * 9,
        [3.0] * 60 + [1e9],
        [1.0] + [math.nan] * 500 + [2.0],
        [math.nan] * 30 + [1.0, 2.0] + [math.nan] * 40,
        [0.0, 1e160] * 20,
        [1e-300, 2e-300] * 20,
        [1e160, 1e-300, -1e160] * 20,
        [float(k) for k in range(200)],
        [2.0**k for k in range(300)],
    ],
)
@pytest.mark.parametrize("told", [(0, 0), (12, 0), (7, 365)])
def test_odd_series_have_finite_laws(prior, values, told):
    sane(prior.law(torch.tensor([values], dtype=torch.float64), torch.tensor([told]), 30))


def test_infinite_values_are_missing_ones(prior):
    values = series(2, 40)
    infinite, missing = values.clone(), values.clone()
    infinite[:, 5], missing[:, 5] = torch.inf, torch.nan
    assert torch.equal(parts(prior.law(infinite, seasons(2), 3)), parts(prior.law(missing, seasons(2), 3)))


def test_no_rows_give_no_laws(prior):
    assert prior.law(torch.empty(0, 10), torch.zeros(0, 2).long(), 3).shape == (0, 3, 1)


def test_what_cannot_be_forecast_is_refused(prior):
    values = series(3, 10)
    unseen = values.clone()
    unseen[1] = torch.nan
    with pytest.raises(ValueError, match="no observed value in row 1"):
        prior.law(unseen, seasons(3), 2)
    with pytest.raises(ValueError, match="horizon=0"):
        prior.law(values, seasons(3), 0)
    with pytest.raises(ValueError, match=r"seasons has shape \(2, 2\)"):
        prior.law(values, seasons(2), 2)
    with pytest.raises(ValueError, match="smallest value of -4"):
        prior.law(values, seasons(3, -4), 2)
    with pytest.raises(ValueError, match="values has shape"):
        prior.law(values[0], seasons(3), 2)


# what it forecasts


def test_a_walk_spreads_as_it_goes_and_far_beyond_what_was_trained(prior):
    values = torch.from_numpy(np.random.default_rng(1).standard_normal((64, 200)).cumsum(1))
    low, high = prior.law(values, seasons(64, 0), 3000).interval(80)
    width = (high - low)[..., 0].median(0).values
    assert 1.5 < width[0] < 4  # 2.56 deviations of a step
    assert 2.5 < width[15] / width[0] < 6  # 4 by the law of the walk
    assert width[15] < width[99] < width[999] < 1.2 * width[2999]
    assert width[2999] < 200 * width[0]


def test_a_known_season_goes_on(prior):
    time = np.arange(132)
    wave = 100 + 10 * np.sin(time * np.pi / 6) + np.random.default_rng(0).normal(size=(40, 132))
    law = prior.law(torch.from_numpy(wave[:, :120]), seasons(40), 12)
    truth = torch.from_numpy(100 + 10 * np.sin(time[120:] * np.pi / 6))
    assert (law.quantile(0.5)[..., 0] - truth).abs().mean() < 1
    low, high = law.interval(80)
    assert 1.8 < (high - low).mean() < 4  # 2.56 of the noise itself


@pytest.mark.parametrize("law", ["AR(1)", "heteroscedastic", "t(3)", "gamma"])
@pytest.mark.parametrize("rows", [30, 100, 400])
def test_intervals_hold_on_known_laws(prior, law, rows):
    """A hundred pasts of each, and the future that followed."""
    process = GENERATORS[law](Shape(rows, 12, "h", 24), 0)
    drawn = [draw_law(process, rows, 12, seed, draws=20, burn=BURN_IN) for seed in range(100)]
    values = torch.from_numpy(np.stack([one.frame["y"] for one in drawn]))
    futures = torch.from_numpy(np.stack([one.futures[:, 0] for one in drawn]))  # (pasts, draws, 12)
    low, high = prior.law(values, torch.tensor([[24, 168]]).expand(100, 2), 12).interval(90)
    low, high = low[..., 0][:, None], high[..., 0][:, None]
    held = ((low <= futures) & (futures <= high)).double().mean()
    assert 0.84 < held < 0.96


# what the network reads


def test_sizes_of_what_is_read_are_as_stated():
    context, _ = read(series(4, 64), seasons(4, 7, 30))
    simple, tokens = ahead(context, torch.arange(1, 6))
    assert context.tokens.shape == (4, 8, POSITION)
    assert context.statistics.shape == (4, STATISTICS)
    assert simple.shape == (4, 5, CANDIDATES)
    assert tokens.shape == (4, 5, FUTURE)


def test_simple_forecasts_of_a_line_with_a_season():
    time = torch.arange(48).double()
    pattern = torch.tensor([1.0, -1.0, 2.0, -2.0]).repeat(13).double()
    values = 0.5 * time + pattern[:48]
    context, units = read(values[None], torch.tensor([[4, 0]]))
    simple, _ = ahead(context, torch.arange(1, 5))
    in_units = (simple * units.unit[..., None] + units.level[..., None])[0].double()
    truth = 0.5 * torch.arange(48, 52) + pattern[48:52]
    assert torch.allclose(in_units[:, 0], values[-1].expand(4), atol=1e-4)  # last
    assert torch.allclose(in_units[:, 1], values[-4:], atol=1e-4)  # last season
    assert torch.allclose(in_units[:, 3], truth, atol=1e-4)  # seasonal drift
    assert torch.allclose(in_units[:, 5], values.mean().expand(4), atol=1e-4)
    assert torch.allclose(in_units[:, 7], values[-8:-4], atol=1e-4)  # second season back
    assert torch.allclose(units.unit, torch.tensor([[2.0]]).double())  # 4 steps of a half


# generators


@pytest.mark.parametrize("kind", [*generators.FAMILIES, counts])
@pytest.mark.parametrize("length", [40, 700])
def test_families_are_finite_and_seeded(kind, length):
    told = draw_seasons(random_source(1), 60, length)
    one, two, other = (kind(random_source(seed), told, length) for seed in (2, 2, 3))
    assert one.shape == (60, length)
    assert np.isfinite(one).all()
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)
    assert (one.std(1) > 0).mean() > 0.8


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_few_series_can_be_drawn(count):
    for seed in range(10):
        assert draw(random_source(seed), count, 24, 6).values.shape == (count, 30)


def test_noise_has_its_size():
    for kind in (noise.normal, noise.laplace, noise.gamma, noise.flat):
        values = kind(random_source(4), 200, 500)
        assert abs(values.mean()) < 0.05
        assert 0.9 < values.std() < 1.1


def test_profiles_repeat():
    values = common.profile(random_source(5), np.array([7, 12, 0]), 84)
    assert np.allclose(values[0, :77], values[0, 7:])
    assert np.allclose(values[1, :72], values[1, 12:])
    assert (values[2] == 0).all()


def test_an_autoregression_has_its_correlation_and_deviation():
    white = random_source(6).standard_normal((400, 400))
    values = common.autoregression(white, np.full((400, 1), 0.6))
    assert abs((values[:, 1:] * values[:, :-1]).mean() - 0.6) < 0.02
    assert abs(values.std() - 1) < 0.02


def test_a_walk_spreads_as_the_root_of_time():
    values = diffusions.walk(random_source(7), 4000, 65)
    drift = values - values.mean(0)
    assert 6 < np.median(np.abs(drift[:, 64] - drift[:, 0])) / np.median(np.abs(np.diff(drift))) < 14


def test_square_root_diffusions_and_counts_are_never_negative():
    assert (diffusions.square_root(random_source(8), 50, 300) >= 0).all()
    demand = counts(random_source(9), draw_seasons(random_source(9), 50, 300), 300)
    assert (demand >= 0).all()


def test_seasons_come_shorter_first():
    told = draw_seasons(random_source(10), 2000, 500)
    both = told[told[:, 1] > 0]
    assert (both[:, 0] < both[:, 1]).all()
    assert (told <= 500).all()
    assert 0.15 < (told[:, 0] == 0).mean() < 0.35


def test_batches_depend_on_seed_and_number_alone():
    one, two = batches(1, 1), batches(1, 1)
    for left, right in zip(one, two, strict=True):
        assert torch.equal(left.values.nan_to_num(), right.values.nan_to_num())
        assert torch.equal(left.y, right.y)
    assert not torch.equal(one[0].y, batches(2, 1)[0].y)
    assert all(batch.values.isfinite().any(1).all() for batch in one)


# training


def test_crps_is_that_of_a_forecast():
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randn(1, 6, 4, 1, 5, generator=generator) for _ in range(3)]
    law = Forecast.from_logs(draws[0], draws[1], draws[2].log_softmax(-1))
    y = torch.randn(6, 4, generator=generator)
    assert torch.allclose(crps(law, y[..., None]).double(), law.crps(y[..., None]), atol=1e-5)


def test_a_run_goes_on_to_the_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(pretraining, "TURNS", [pretraining.Shape(64, 24, 8)])
    whole = Run(3)
    losses = [whole.step(1e-3) for _ in range(12)]
    first = Run(3)
    for _ in range(5):
        first.step(1e-3)
    first.save(tmp_path / "checkpoint")
    again = Run.load(tmp_path / "checkpoint")
    assert [again.step(1e-3) for _ in range(7)] == losses[5:]
    for left, right in zip(whole.network.parameters(), again.network.parameters(), strict=True):
        assert torch.equal(left, right)


def test_export_leaves_the_run_alone_and_can_be_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(pretraining, "TURNS", [pretraining.Shape(64, 24, 8)])
    run = Run(3)
    run.step(1e-3)
    run.save(tmp_path / "checkpoint")
    before = (tmp_path / "checkpoint").read_bytes()
    assert len(before) < 6_000_000
    pretraining.export(tmp_path, 2, tmp_path / "weights.safetensors")
    assert (tmp_path / "checkpoint").read_bytes() == before
    assert Prior.load(tmp_path / "weights.safetensors").law(series(2, 20), seasons(2), 3).shape == (2, 3, 1)


# seasons


@pytest.mark.parametrize("season", [4, 7, 12, 24])
def test_planted_seasons_are_found(season):
    rng = np.random.default_rng(season)
    pattern = 3 * rng.standard_normal(season)[np.arange(12 * season) % season]
    values = pattern + rng.standard_normal((5, 12 * season))
    assert find_seasons(torch.from_numpy(values), (season, 5 * season)) == (season, 0)


def test_two_seasons_are_found():
    rng = np.random.default_rng(0)
    time = np.arange(1000)
    day, week = 2 * np.sin(2 * np.pi * time / 24), 1.5 * (time // 24 % 7 > 4)
    values = day + week + 0.5 * rng.standard_normal((4, 1000))
    assert find_seasons(torch.from_numpy(values), (12, 24, 168)) == (24, 168)


@pytest.mark.parametrize("kind", ["white", "walk"])
@pytest.mark.parametrize("rows", [1, 10])
def test_noise_has_no_season(kind, rows):
    found = 0
    for seed in range(60):
        values = np.random.default_rng(seed).standard_normal((rows, 100))
        values = values.cumsum(1) if kind == "walk" else values
        found += find_seasons(torch.from_numpy(values), (4, 7, 12, 24)) != (0, 0)
    assert found <= 3
