"""The training loop: what it promises about seeds, stopping, interruption and exact resumption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import BUILD, wave

from itocast import training
from itocast.data.preparation import Preparation
from itocast.schedule import Training
from itocast.storage import StorageError
from itocast.training import TrainingError, fit, predict

QUICK = Training(epochs=4, batch_size=64)


def nll(model, rows):
    return -predict(model, rows, model.validation_paths).log_prob(rows.batch(slice(None))[1]).mean().item()


BASELINES = ("mc_dropout", "deep_ensemble", "bnn", "deep_gp", "sde_net")
LEARNERS = [name for name in BUILD if name not in {f"{baseline} paper" for baseline in BASELINES}]  # those are slow


@pytest.mark.parametrize("name", LEARNERS)
def test_every_model_learns(name, rows):
    model = BUILD[name](rows[0].sizes)
    before = nll(model, rows[1])
    slow = name.startswith("deep_gp")  # its noise starts far below the data's
    settings = Training(epochs=12 if slow else 6, batch_size=32, learning_rate=0.02 if slow else 2e-3)
    history = fit(model, *rows, settings)
    assert nll(model, rows[1]) < before - 0.1
    assert nll(model, rows[1]) == pytest.approx(min(epoch["validation"] for epoch in history.epochs), abs=1e-6)


def test_same_seed_gives_the_same_weights_and_another_seed_does_not(rows):
    models = [BUILD["sde_hnn"](rows[0].sizes) for _ in range(3)]
    for model, seed in zip(models, (0, 0, 1), strict=True):
        fit(model, *rows, QUICK, seed=seed)
    one, two, other = ([*model.state_dict().values()] for model in models)
    assert all(map(torch.equal, one, two))
    assert not all(map(torch.equal, one, other))


def test_best_weights_are_kept_and_a_worsening_run_stops_early(rows):
    model = BUILD["hnn"](rows[0].sizes)
    history = fit(model, *rows, Training(epochs=40, batch_size=32, learning_rate=0.05, schedule="constant", patience=3))
    assert history.stopped == "early"
    assert len(history.epochs) == history.best + 3
    assert nll(model, rows[1]) == pytest.approx(history.epochs[history.best - 1]["validation"], abs=1e-6)


def test_one_absurd_outcome_does_not_choose_the_epoch(rows):
    """The plain mean of -log density would be lowest before the law has become sharp."""
    train, validation = rows
    targets = validation.numbers.targets.clone()
    targets[validation.steps()[0, 0]] = 1e4
    absurd = replace(validation, numbers=replace(validation.numbers, targets=targets))
    model, mean = BUILD["hnn"](train.sizes), []
    settings = Training(epochs=12, batch_size=32, learning_rate=0.01)
    history = fit(model, train, absurd, settings, watch=lambda model: {"plain": mean.append(nll(model, absurd)) or 0})
    assert mean.index(min(mean)) < 3
    assert history.best > 6
    x, y = absurd.batch(slice(None))
    y[0] = torch.inf
    assert model.score(x, y)[0] == torch.inf  # which ends a run


def interrupt_after(monkeypatch, epochs, error):
    """Let the loop run some epochs, then raise in the middle of the next."""
    real = training._epoch

    def epoch(*args, epoch, **kwargs):
        if epoch == epochs:
            raise error
        return real(*args, epoch=epoch, **kwargs)

    monkeypatch.setattr(training, "_epoch", epoch)


def test_ctrl_c_keeps_the_best_weights(monkeypatch, rows):
    interrupt_after(monkeypatch, 2, KeyboardInterrupt)
    model = BUILD["sde_hnn"](rows[0].sizes)
    history = fit(model, *rows, QUICK)
    assert (history.stopped, len(history.epochs)) == ("interrupted", 2)
    assert nll(model, rows[1]) == pytest.approx(history.epochs[history.best - 1]["validation"], abs=1e-6)


def test_ctrl_c_before_the_first_epoch_is_passed_on(monkeypatch, rows):
    interrupt_after(monkeypatch, 0, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        fit(BUILD["hnn"](rows[0].sizes), *rows, QUICK)


def test_a_run_that_was_interrupted_goes_on_to_the_same_weights(monkeypatch, tmp_path, rows):
    straight, resumed = BUILD["sde_hnn"](rows[0].sizes), BUILD["sde_hnn"](rows[0].sizes)
    whole = fit(straight, *rows, QUICK)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 2, KeyboardInterrupt)
        fit(resumed, *rows, QUICK, checkpoint=tmp_path / "run")
    fresh = BUILD["sde_hnn"](rows[0].sizes)
    history = fit(fresh, *rows, QUICK, checkpoint=tmp_path / "run")
    assert all(map(torch.equal, straight.state_dict().values(), fresh.state_dict().values()))
    assert [e["validation"] for e in history.epochs] == [e["validation"] for e in whole.epochs]
    assert history.stopped == "finished"


CHILD = """
import sys, torch
sys.path.insert(0, {tests!r})
from test_training import killed_run
killed_run(sys.argv[1])
"""


def killed_run(path: str):
    torch.set_num_threads(1)
    table = wave(3000)
    cut = table.cutoff(0.6)
    preparation = Preparation.fit(table, horizon=3, window=4, until=cut)
    rows = preparation.windows(table, until=cut), preparation.windows(table, after=cut)
    model = BUILD["sde_hnn"](rows[0].sizes)
    return model, fit(model, *rows, Training(epochs=12, batch_size=64), checkpoint=path)


def test_a_killed_process_resumes_to_the_same_weights(tmp_path):
    """A real process is killed in mid-run, twice; the third start finishes what an unbroken run would give."""
    straight, _ = killed_run(str(tmp_path / "straight"))
    path = tmp_path / "killed"
    done = 0
    for _ in range(2):
        child = subprocess.Popen([sys.executable, "-c", CHILD.format(tests=str(Path(__file__).parent)), str(path)])
        written = path.stat().st_mtime_ns if path.exists() else 0
        while not path.exists() or path.stat().st_mtime_ns == written:
            assert child.poll() is None, "the run ended before it could be killed"
            time.sleep(0.005)
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        _, notes = training.read_checkpoint(path)
        assert done < len(notes["history"]["epochs"]) < 12
        done = len(notes["history"]["epochs"])
    resumed, history = killed_run(str(path))
    assert len(history.epochs) == 12
    assert all(map(torch.equal, straight.state_dict().values(), resumed.state_dict().values()))


def test_a_finished_checkpoint_is_not_run_again(tmp_path, rows):
    one, two = BUILD["hnn"](rows[0].sizes), BUILD["hnn"](rows[0].sizes)
    first = fit(one, *rows, QUICK, checkpoint=tmp_path / "run")
    second = fit(two, *rows, QUICK, checkpoint=tmp_path / "run")
    assert first == second
    assert all(map(torch.equal, one.state_dict().values(), two.state_dict().values()))


def test_a_checkpoint_of_another_run_is_refused(tmp_path, rows):
    fit(BUILD["hnn"](rows[0].sizes), *rows, QUICK, checkpoint=tmp_path / "run")
    with pytest.raises(
        ValueError, match="is of another run: its seed is 0, here it is 1; delete it or name another file"
    ):
        fit(BUILD["hnn"](rows[0].sizes), *rows, QUICK, seed=1, checkpoint=tmp_path / "run")
    with pytest.raises(ValueError, match="is of another run: its model is HNN, here it is SDEHNN"):
        fit(BUILD["sde_hnn"](rows[0].sizes), *rows, QUICK, checkpoint=tmp_path / "run")


def test_a_checkpoint_of_other_data_is_refused(tmp_path, preparation, cut, rows):
    fit(BUILD["hnn"](rows[0].sizes), *rows, QUICK, checkpoint=tmp_path / "run")
    other = wave(seed=1)
    with pytest.raises(ValueError, match="is of another run: its data is"):
        fit(
            BUILD["hnn"](rows[0].sizes),
            preparation.windows(other, until=cut),
            preparation.windows(other, after=cut, until=other.cutoff(0.8)),
            QUICK,
            checkpoint=tmp_path / "run",
        )


@pytest.mark.parametrize("content", [b"", b"not a checkpoint at all", b"\x08\0\0\0\0\0\0\0{}      "])
def test_a_damaged_checkpoint_is_refused(tmp_path, rows, content):
    (tmp_path / "run").write_bytes(content)
    with pytest.raises(StorageError, match="is not a checkpoint, or is damaged: delete it to start anew"):
        fit(BUILD["hnn"](rows[0].sizes), *rows, QUICK, checkpoint=tmp_path / "run")


def test_a_loss_that_is_not_finite_ends_with_an_explanation_and_sound_weights(rows):
    model = BUILD["sde_hnn"](rows[0].sizes)
    targets = rows[0].numbers.targets.clone()
    targets[100] = float("inf")
    broken = replace(rows[0], numbers=replace(rows[0].numbers, targets=targets))
    with pytest.raises(TrainingError, match=r"the loss became .* in epoch 1: use a smaller learning_rate than 0.004"):
        fit(model, broken, rows[1], QUICK)
    assert all(tensor.isfinite().all() for tensor in model.state_dict().values())


def test_a_run_that_diverges_later_keeps_its_best_weights(monkeypatch, rows):
    interrupt_after(monkeypatch, 2, TrainingError("the loss became nan in epoch 3: use a smaller learning_rate"))
    model = BUILD["sde_hnn"](rows[0].sizes)
    with pytest.warns(UserWarning, match=r"the loss became nan in epoch 3: .* The weights of epoch \d are kept"):
        history = fit(model, *rows, QUICK)
    assert (history.stopped, len(history.epochs)) == ("diverged", 2)
    assert nll(model, rows[1]) == pytest.approx(history.epochs[history.best - 1]["validation"], abs=1e-6)


def test_a_flipped_bit_in_a_checkpoint_is_noticed(tmp_path, rows):
    path = tmp_path / "run"
    fit(BUILD["hnn"](rows[0].sizes), *rows, QUICK, checkpoint=path)
    content = path.read_bytes()
    for place in (3, 500, len(content) // 2, len(content) - 40, len(content) - 1):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(StorageError, match="is damaged: delete it to start anew"):
            fit(BUILD["hnn"](rows[0].sizes), *rows, QUICK, checkpoint=path)


def test_a_model_sees_its_rows_before_the_first_step_and_what_watches_it_is_kept(monkeypatch, rows):
    model = BUILD["hnn"](rows[0].sizes)
    seen = []
    monkeypatch.setattr(type(model), "prepare", lambda self, rows: seen.append(("prepare", rows)))
    monkeypatch.setattr(training, "_epoch", lambda *_, epoch, **__: seen.append(("epoch", epoch)) or 0.0)
    history = fit(model, *rows, QUICK, watch=lambda watched: {"training": watched.training, "same": watched is model})
    assert seen == [("prepare", rows[0]), *(("epoch", epoch) for epoch in range(4))]
    assert [(epoch["training"], epoch["same"]) for epoch in history.epochs] == [(False, True)] * 4
    assert all(epoch.keys() >= {"train", "validation", "seconds"} for epoch in history.epochs)


def test_what_watches_a_run_changes_nothing_in_it(rows):
    watched, alone = BUILD["sde_hnn"](rows[0].sizes), BUILD["sde_hnn"](rows[0].sizes)
    fit(alone, *rows, QUICK)
    fit(watched, *rows, QUICK, watch=lambda model: {"nll": nll(model, rows[0])})
    assert all(map(torch.equal, alone.state_dict().values(), watched.state_dict().values()))


def test_no_paths_are_refused(rows):
    with pytest.raises(ValueError, match="paths=0: expected at least 1"):
        predict(BUILD["hnn"](rows[0].sizes), rows[0], paths=0)


@pytest.mark.parametrize(("epochs", "waits"), [(1, 5), (15, 5), (17, 5), (18, 6), (48, 16), (200, 66)])
def test_a_run_waits_a_third_of_its_epochs_for_a_better_one(epochs, waits):
    assert Training(epochs=epochs).waits == waits
    assert Training(epochs=epochs, patience=2).waits == 2


def test_a_run_ends_after_the_epochs_that_it_waits(monkeypatch, rows):
    """The second of thirty is the best: ten more come."""
    scores = iter([2.0, 1.0, *[1.5] * 28])
    monkeypatch.setattr(training, "nll", lambda *_: next(scores))
    monkeypatch.setattr(training, "_epoch", lambda *_, **__: 0.0)
    history = fit(BUILD["hnn"](rows[0].sizes), *rows, Training(epochs=30))
    assert (history.best, len(history.epochs), history.stopped) == (2, 12, "early")


@pytest.mark.parametrize(
    ("best", "epochs"), [(1.0, 24), (0.75, 24), (0.5, 24), (0.25, 6), (0.125, 2), (0.05, 0), (0.0, 0)]
)
def test_the_last_run_is_shorter_where_the_best_epoch_came_early(best, epochs):
    """40 epochs, of which 0.6 is 24, over as many rows: times min(1, 2 · best)², here 1/4, 1/16 and 1/100."""
    settings = Training(epochs=40, learning_rate=4e-3, finish=0.6)
    last = settings.last(1.0, best)
    assert (last.epochs, last.learning_rate) == (epochs, 2e-3)
    assert settings.last(2.0, best).epochs == pytest.approx(epochs / 2, abs=0.5)
    assert settings.last(1.0) == settings.last(1.0, 1.0)
    assert Training(epochs=40, matching=1).last(1.0, best).epochs == 0


def test_schedule_rises_then_falls():
    rates = [Training().rate(i / 100) for i in range(101)]
    assert max(rates) == pytest.approx(4e-3)
    assert rates.index(max(rates)) == 30
    assert rates == sorted(rates[:31]) + sorted(rates[31:], reverse=True)
    assert {Training.paper().rate(share) for share in (0, 0.5, 1)} == {1e-3}


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"epochs": 0}, "epochs"),
        ({"batch_size": 0}, "batch_size"),
        ({"learning_rate": -1}, "learning_rate"),
        ({"lr": 1}, "lr"),
    ],
)
def test_bad_training_settings_are_refused_by_name(settings, name):
    with pytest.raises(ValueError, match=name):
        Training(**settings)
