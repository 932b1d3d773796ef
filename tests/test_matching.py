"""Distribution matching: the distance, the phase of training, and which weights are kept."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import BUILD, TINY, tiny, wave, wave_frame
from test_training import interrupt_after

from itocast import Forecaster, matching, metrics, training
from itocast.data.preparation import Preparation
from itocast.forecast import Forecast
from itocast.matching import BANDWIDTHS, WEIGHT, matching_loss, squared_mmd, standardised
from itocast.models import HNN, MODELS
from itocast.models.committee import ClassCommittee
from itocast.nets import Sizes
from itocast.schedule import Training
from itocast.sde import Noise
from itocast.tabular import Rows
from itocast.training import History, calibration, fit, predict

QUICK = Training(epochs=3, batch_size=64, matching=2)
KINDS = [*MODELS, "hnn mixture", "deep_ensemble adversarial", "sde_hnn lstm"]


def weights(model):
    return [*model.state_dict().values()]


def same(one, two):
    return all(map(torch.equal, one, two))


def mixtures(rows, targets, seed=0):
    """Laws of several paths and components that differ from row to row, in float64."""
    generator = torch.Generator().manual_seed(seed)
    shape = (3, rows, 1, 1, 2)
    means, log_variances, logits = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3))
    parts = (means, log_variances - 1, logits.log_softmax(-1))
    return Forecast.from_logs(*(part.expand(3, rows, 1, targets, 2) for part in parts))


def kernel(distance, variance, bandwidths):
    """E exp(-D² / 2h²) for D ~ N(distance, variance), the mean over h: a Gaussian integral."""
    wide = [h**2 + variance for h in bandwidths]
    both = zip(bandwidths, wide, strict=True)
    return sum(h / w**0.5 * np.exp(-(distance**2) / (2 * w)) for h, w in both) / len(bandwidths)


@pytest.mark.parametrize(("shift", "scale"), [(0, 1), (0.5, 1), (0, 1.6), (0, 0.5)])
def test_the_distance_is_nought_in_expectation_for_outcomes_of_the_laws_alone(shift, scale):
    law = mixtures(rows=40, targets=300)  # as many samples of 40 outcomes
    y = law.sample(1, seed=1)[0]
    y = law.mean + shift + scale * (y - law.mean)
    distances = squared_mmd(*standardised(law, y))
    mean, error = distances.mean().item(), distances.std().item() / math.sqrt(300)
    if (shift, scale) == (0, 1):
        assert abs(mean) < 4 * error
        assert error < 3e-3
    else:
        assert mean > 10 * error


@pytest.mark.parametrize("bandwidths", [(1.0,), (0.5, 1.0, 2.0), (0.3, 4.0)])
def test_the_distance_of_two_gaussians_is_the_known_one(bandwidths):
    """Outcomes are 40,000 quantiles of N(0.5, 0.8²), a sample that leaves no doubt; the law is N(0, 0.5²)."""
    levels = (torch.arange(40_000, dtype=torch.float64) + 0.5) / 40_000
    y = 0.5 + 0.8 * torch.special.ndtri(levels)
    law = Forecast(torch.zeros(1, len(y), 1, 1).double(), torch.full((1, len(y), 1, 1), 0.25).double())
    expected = kernel(0, 1.28, bandwidths) - 2 * kernel(0.5, 0.89, bandwidths) + kernel(0, 0.5, bandwidths)
    assert squared_mmd(law, y[:, None, None], bandwidths).item() == pytest.approx(expected, abs=1e-4)


def test_the_distance_is_that_of_all_pairs_of_two_rows():
    law = mixtures(rows=6, targets=1, seed=3)
    y = law.sample(1, seed=2)[0]
    means, variances, weights = (
        part[:, :, 0, 0].movedim(0, 1).flatten(1).numpy()  # (rows, paths · components)
        for part in (law.means, law.log_variances.exp(), law.log_weights.exp() / 3)
    )
    points, total, h = y[:, 0, 0].numpy(), 0.0, BANDWIDTHS
    for i in range(6):
        for j in range(6):
            if i == j:
                continue
            between = means[i][:, None] - means[j], variances[i][:, None] + variances[j]
            total += kernel(points[i] - points[j], 0, h)
            total -= 2 * (weights[j] * kernel(points[i] - means[j], variances[j], h)).sum()
            total += (weights[i][:, None] * weights[j] * kernel(*between, h)).sum()
    assert squared_mmd(law, y).item() == pytest.approx(total / 30, abs=2e-5)


def test_gradients_reach_means_variances_and_weights_and_widen_laws_that_are_too_narrow():
    law = mixtures(rows=300, targets=1)
    y = law.mean + 3 * (law.sample(1, seed=1)[0] - law.mean) + 0.5
    parts = [part.clone().requires_grad_() for part in (law.means, law.log_variances, law.log_weights)]
    squared_mmd(*standardised(Forecast.from_logs(*parts), y)).sum().backward()
    assert all(part.grad.isfinite().all() and part.grad.abs().max() > 0 for part in parts)
    assert parts[0].grad.sum() < 0  # means are to rise
    assert parts[1].grad.sum() < 0  # and variances


def test_what_is_standardised_does_not_depend_on_unit_and_origin():
    law = mixtures(rows=20, targets=2)
    y = law.sample(1)[0]
    other = squared_mmd(*standardised(law.affine(7.0, -3.0), 7 * y - 3))
    torch.testing.assert_close(other, squared_mmd(*standardised(law, y)))
    scaled, _ = standardised(law, y)
    torch.testing.assert_close(scaled.variance, torch.ones_like(y))


def test_work_that_is_done_in_parts_gives_the_same(monkeypatch):
    law = mixtures(rows=20, targets=2)
    parts = [part.clone().requires_grad_() for part in (law.means, law.log_variances, law.log_weights)]
    found = []
    for most in (matching.MOST, 1000):
        monkeypatch.setattr(matching, "MOST", most)
        distance = squared_mmd(Forecast.from_logs(*parts), law.mean)
        found.append([distance, *torch.autograd.grad(distance.sum(), parts)])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two)


def test_missing_outcomes_are_left_out_with_their_laws():
    law = mixtures(rows=30, targets=2)
    y = law.sample(1)[0]
    holes = y.clone()
    holes[:10, 0, 1] = math.nan
    whole, part = squared_mmd(law, y), squared_mmd(law, holes)
    assert part[0, 0] == whole[0, 0]
    torch.testing.assert_close(part[0, 1], squared_mmd(law[slice(10, None)], y[10:])[0, 1])
    assert squared_mmd(law, torch.full_like(y, math.nan)).tolist() == [[0.0, 0.0]]
    assert squared_mmd(law[[0]], y[:1]).tolist() == [[0.0, 0.0]]  # there is no pair


def test_a_phase_with_missing_outcomes_is_sound(rows):
    targets = rows[0].numbers.targets.clone()
    targets[::3, 0] = math.nan
    holes = [replace(part, numbers=replace(part.numbers, targets=targets)) for part in rows]
    model = BUILD["sde_hnn"](rows[0].sizes)
    history = fit(model, *holes, QUICK)
    assert (history.stopped, len(history.epochs)) == ("finished", 5)
    assert all(tensor.isfinite().all() for tensor in weights(model))
    assert all(math.isfinite(epoch["crps"]) for epoch in history.epochs[3:])


class MeanAlone(HNN):
    """A network that learns nothing but its mean, and is far too sure of it."""

    def forward(self, x, paths, noise):
        law = super().forward(x, paths, noise)
        return Forecast.from_logs(law.means, law.log_variances - 3, law.log_weights)

    def loss(self, x, y, noise):
        return (self(x, 1, noise).mean - y).square().mean()


def test_a_model_that_is_too_sure_is_mended_and_no_less_accurate():
    table = wave(3000)
    cut, later = table.cutoff(0.6), table.cutoff(0.8)
    preparation = Preparation.fit(table, horizon=1, window=4, until=cut)
    preparation, train = preparation.seen(preparation.windows(table, until=cut))
    rows = [train, preparation.windows(table, after=cut, until=later)]
    test = preparation.windows(table, after=later)
    models = [MeanAlone(rows[0].sizes, encoder=TINY.keywords["encoder"]) for _ in range(2)]
    for model, epochs in zip(models, (0, 6), strict=True):
        fit(
            model,
            *rows,
            Training(epochs=10, batch_size=64, learning_rate=0.02, weight_decay=0.01, averaging=0, matching=epochs),
        )
    y = test.batch(slice(None))[1]
    (sure, matched), truth = (predict(model, test) for model in models), y.double()
    assert metrics.cwce(sure, truth) > 5
    assert metrics.cwce(matched, truth) < 0.3 * metrics.cwce(sure, truth)
    assert metrics.crps(matched, truth) < metrics.crps(sure, truth)  # which is what is guarded; the mean may move
    assert metrics.rmse(matched, truth) < 1.1 * metrics.rmse(sure, truth)


def test_matching_keeps_the_models_own_loss_and_leaves_it_as_forecasts_are_made(rows):
    model = BUILD["bnn"](rows[0].sizes)
    model.prepare(rows[0])
    x, y = rows[0].batch(slice(0, 64))
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
    both = matching_loss(model, x, y, Noise(generators[0], shared=False))
    assert not model.training
    own = model.train().loss(x, y, Noise(generators[1], shared=False))
    law = model.eval()(x, model.validation_paths, Noise(generators[1], shared=False))
    torch.testing.assert_close(both, own + WEIGHT * squared_mmd(*standardised(law, y)).mean())


def epochs_of(*scores):
    """A history of two epochs of learning, the first one better, and one of matching for each CRPS and CWCE."""
    first, *rest = ({"crps": crps, "cwce": cwce} for crps, cwce in scores)
    learned = [{"validation": 1.0, "seconds": 1.0} | first, {"validation": 2.0, "seconds": 1.0}]
    return History(learned + [{"validation": 0.5, "seconds": 1.0} | score for score in rest], before=2)


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([(1.0, 3.0)], 1),
        ([(1.0, 3.0), (1.0, 2.0), (1.0, 1.0)], 4),
        ([(1.0, 3.0), (1.004, 1.0), (1.0, 2.0)], 3),
        ([(1.0, 3.0), (1.006, 1.0), (1.0, 2.0)], 4),
        ([(1.0, 3.0), (1.0, 3.5), (0.9, 4.0)], 1),
        ([(1.0, 3.0), (1.006, 1.0), (2.0, 0.0)], 1),
        ([(1.0, 3.0), (1.0, 3.0)], 1),
        ([(1.0, 3.0), (math.nan, math.nan)], 1),
    ],
)
def test_the_best_calibrated_epoch_of_nearly_the_same_crps_is_kept(scores, best):
    assert epochs_of(*scores).best == best


@pytest.mark.parametrize(("cwce", "best"), [((3, 2, 1), 5), ((3, 1, 2), 4), ((1, 2, 3), None)])
def test_the_weights_that_are_kept_are_those_of_the_best_epoch(monkeypatch, rows, cwce, best):
    """Three scripted scores: before matching, and after each of its two epochs; None is undone."""
    plain = BUILD["hnn"](rows[0].sizes)
    learned = fit(plain, *rows, QUICK.model_copy(update={"matching": 0}))
    script = iter(cwce)
    monkeypatch.setattr(training, "calibration", lambda *_: {"crps": 1.0, "cwce": next(script)})
    seen = [weights(plain)]
    model = BUILD["hnn"](rows[0].sizes)
    history = fit(model, *rows, QUICK, watch=lambda model: seen.append([t.clone() for t in weights(model)]) or {})
    assert history.best == (best or learned.best)
    assert (history.before, len(history.epochs)) == (3, 5)
    assert same(weights(model), seen[best] if best else seen[0])
    assert not same(seen[3], seen[4])


def test_the_recorded_scores_are_those_of_the_kept_law(rows):
    model = BUILD["sde_hnn"](rows[0].sizes)
    history = fit(model, *rows, QUICK)
    kept = history.epochs[history.best - 1]
    law, y = predict(model, rows[1], model.validation_paths), rows[1].batch(slice(None))[1]
    assert kept["cwce"] == pytest.approx(metrics.cwce(law, y), rel=1e-6)
    assert kept["crps"] == pytest.approx(metrics.crps(law, y), rel=1e-6)
    assert calibration(model, rows[1], batch_size=50)["crps"] == pytest.approx(kept["crps"], rel=1e-6)


def test_matching_follows_epochs_that_stop_early(tmp_path, rows):
    settings = Training(
        epochs=40, batch_size=32, learning_rate=0.05, schedule="constant", patience=2, matching=2
    )  # fmt: skip
    models = [BUILD["hnn"](rows[0].sizes) for _ in range(2)]
    first, again = (fit(model, *rows, settings, checkpoint=tmp_path / "run") for model in models)
    assert first == again
    assert first.stopped == "early"
    assert first.before < 40
    assert len(first.epochs) == first.before + 2
    assert same(*map(weights, models))


@pytest.mark.parametrize("done", [2, 3, 4])
def test_a_run_that_was_interrupted_goes_on_to_the_same_weights(monkeypatch, tmp_path, rows, done):
    straight, resumed, fresh = (BUILD["sde_hnn"](rows[0].sizes) for _ in range(3))
    whole = fit(straight, *rows, QUICK)
    with monkeypatch.context() as patch:
        interrupt_after(patch, done, KeyboardInterrupt)
        broken = fit(resumed, *rows, QUICK, checkpoint=tmp_path / "run")
    assert (broken.stopped, len(broken.epochs)) == ("interrupted", done)
    history = fit(fresh, *rows, QUICK, checkpoint=tmp_path / "run")
    assert same(weights(straight), weights(fresh))
    timeless = [[{k: v for k, v in e.items() if k != "seconds"} for e in h.epochs] for h in (whole, history)]
    assert timeless[0] == timeless[1]
    assert (history.stopped, history.before, history.best) == ("finished", 3, whole.best)


def test_same_seed_gives_the_same_weights_and_another_seed_does_not(monkeypatch, rows):
    falling = iter(range(1000, 0, -1))  # so that the last epoch is always kept
    monkeypatch.setattr(training, "calibration", lambda *_: {"crps": 1.0, "cwce": next(falling)})
    models = [BUILD["sde_hnn"](rows[0].sizes) for _ in range(3)]
    for model, seed in zip(models, (0, 0, 1), strict=True):
        assert fit(model, *rows, QUICK, seed=seed).best == 5
    one, two, other = map(weights, models)
    assert same(one, two)
    assert not same(one, other)


@pytest.mark.parametrize("name", KINDS)
def test_every_model_can_be_matched_and_loses_little(name, rows):
    model = BUILD[name](rows[0].sizes)
    history = fit(model, *rows, QUICK)
    start = min(history.epochs[:3], key=lambda epoch: epoch["validation"])
    assert all(e.keys() >= {"crps", "cwce", "train", "validation", "seconds"} for e in history.epochs[3:])
    assert (history.stopped, history.before, len(history.epochs)) == ("finished", 3, 5)
    kept = calibration(model, rows[1])
    assert kept["crps"] <= 1.005 * start["crps"] + 1e-9
    assert kept["cwce"] <= start["cwce"] + 1e-9
    assert not model.training


def test_a_model_of_classes_is_refused_before_it_is_trained():
    model = ClassCommittee(Sizes(4, 3, 0, 0, 2))
    before = [tensor.clone() for tensor in weights(model)]
    rows = Rows(torch.randn(50, 4), torch.randint(3, (50, 2)))
    with pytest.raises(
        ValueError, match=r"matching=2: ClassCommittee gives laws of kind Categorical; expected a Forecast.*matching=0"
    ):
        fit(model, rows, rows, QUICK)
    assert same(before, weights(model))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"matching": -1}, "matching=-1: input should be greater than or equal to 0"),
        ({"matching": 2, "batch_size": 1}, r"matching=2 with batch_size=1: .* expected a batch_size of 2 or more"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Training(**settings)


@pytest.mark.parametrize("bandwidths", [(), (0.0, 1.0), (math.inf,)])
def test_bad_bandwidths_are_refused(bandwidths):
    with pytest.raises(ValueError, match=r"bandwidths=.*expected positive numbers"):
        squared_mmd(mixtures(3, 1), torch.zeros(3, 1, 1), bandwidths)


def test_a_forecaster_matches_saves_and_goes_on(tmp_path):
    frame = wave_frame(500)[["time", "load"]].rename(columns={"time": "ds", "load": "y"})
    forecaster = tiny(training={"epochs": 2, "matching": 2}).fit(frame[:400])
    history = forecaster.fitted.history
    assert (history.before, len(history.epochs)) == (2, 4)
    forecaster.save(tmp_path / "model")
    read = Forecaster.load(tmp_path / "model")
    assert read.fitted.history == history
    assert read.fitted.history.best == history.best
    again = read.update(frame[400:])
    assert (again.before, len(again.epochs)) == (1, 2)


def test_a_settings_file_can_ask_for_it(run, tmp_path):
    wave_frame(300).to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "settings.toml").write_text("[training]\nepochs = 2\nmatching = 1\n")
    line = "fit table.csv --config settings.toml --model hnn --target load --time time -o model"
    done = run(*line.split())
    assert done.code == 0, done.error
    assert "3 epochs (finished, best " in done.out
