"""What every registered model promises."""

from __future__ import annotations

import json

import pytest
import torch
from conftest import BUILD, SMALL

from itocast.models import MODELS, OBJECTIVES, SDEHNN
from itocast.models.sde_hnn import Block
from itocast.nets import Encoder, Sizes
from itocast.sde import Noise
from itocast.training import predict


@pytest.fixture
def rows(rows):
    return rows[1]


def test_every_registered_model_is_tested_here():
    assert {type(make(Sizes(4, 1, 1, 0, 1))) for make in BUILD.values()} == set(MODELS.values())


def test_law_has_the_shape_of_the_targets_and_finite_positive_variance(build, rows):
    model = build(rows.sizes)
    law = predict(model, rows, paths=3)
    assert law.shape == (len(rows), 3, 2)
    assert law.means.shape[0] == (3 if model.paths > 1 else 1)
    assert law.means.isfinite().all()
    assert (law.variance > 0).all()
    assert law.variance.isfinite().all()


def test_gradient_reaches_every_parameter(build, rows):
    model = build(rows.sizes)
    x, y = rows.batch(slice(None))
    model.loss(x, y, Noise(0, shared=False)).backward()
    unreached = [
        name
        for name, p in model.named_parameters()
        if p.grad is None or (p.grad.abs().max() == 0 and not _unused_in_one_step(name))
    ]
    assert not unreached


def _unused_in_one_step(name: str) -> bool:
    """Recurrent weights of an LSTM that runs over a sequence of length one meet a state of zero."""
    return name.startswith("block.") and "weight_hh" in name


def test_same_seed_same_weights_and_forecasts(build, rows):
    one, two, other = (build(rows.sizes, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(predict(one, rows).means, predict(two, rows).means)
    assert not torch.equal(predict(one, rows).means, predict(other, rows).means)


def test_the_global_generator_plays_no_part(build, rows):
    torch.manual_seed(1)
    model = build(rows.sizes)
    torch.manual_seed(2)
    again = build(rows.sizes)
    assert all(map(torch.equal, model.state_dict().values(), again.state_dict().values()))
    before = torch.random.get_rng_state()
    x, y = rows.batch(slice(None))
    model.train().loss(x, y, Noise(0, shared=False)).backward()
    predict(model, rows)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_forecast_of_a_row_depends_on_neither_batch_nor_order(build, rows):
    model = build(rows.sizes)
    whole = predict(model, rows)
    for size in (1, 7, 50):
        part = predict(model, rows, batch_size=size)
        torch.testing.assert_close(part.means, whole.means, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(part.log_variances, whole.log_variances, rtol=1e-5, atol=1e-5)
    x, _ = rows.batch(torch.arange(len(rows)).flip(0))
    with torch.no_grad():
        backwards = model(x, model.paths, Noise(0, shared=True))
    torch.testing.assert_close(backwards.means.flip(1), whole.means, rtol=1e-5, atol=1e-5)
    assert torch.equal(predict(model, rows).means, whole.means)


def test_config_survives_json_and_rebuilds_the_same_network(build, rows):
    model = build(rows.sizes)
    again = type(model)(**json.loads(json.dumps(model.config)))
    assert torch.equal(predict(model, rows).means, predict(again, rows).means)


def test_objectives_differ_only_where_there_are_several_paths(rows):
    x, y = rows.batch(slice(None))
    for name, equal in (("sde_hnn", False), ("hnn", True)):
        model = BUILD[name](rows.sizes).eval()
        law = model(x, 4, Noise(0, shared=True))
        mixture, paper = (OBJECTIVES[key](law, y).item() for key in ("mixture", "paper"))
        assert (mixture == pytest.approx(paper)) == equal
        assert mixture <= paper + 1e-6  # Jensen


def test_paper_presets_are_the_papers_sizes():
    sizes = Sizes(window=5, targets=1, covariates=8, known=0, horizon=1)
    sde, hnn = SDEHNN.paper(sizes), MODELS["hnn"].paper(sizes)
    assert sde.block.steps == 6
    assert sde.block.log_gain is None
    assert sde.objective == "paper"
    assert sde.encoder.network.hidden_size == 64
    assert (sde.block.drift.network.hidden_size, sde.block.diffusion.network.hidden_size) == (64, 64)
    assert (hnn.encoder.network.num_layers, hnn.encoder.network.hidden_size) == (2, 128)
    assert sum(p.numel() for p in sde.parameters()) < sum(p.numel() for p in hnn.parameters())


def test_epistemic_part_comes_from_the_noise(rows):
    model = SDEHNN(rows.sizes, encoder=SMALL)
    assert (predict(model, rows).epistemic > 0).all()
    with torch.no_grad():
        model.block.log_gain.fill_(-30)
    assert predict(model, rows).epistemic.max() < 1e-12


def test_theorem_1_holds_for_the_default_model(rows):
    bounds = SDEHNN(rows.sizes).block.lipschitz()
    assert bounds.unknown == ()
    assert pytest.approx(1.1, rel=1e-3) == bounds.K


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Encoder(kind="transformer"), "kind"),
        (lambda: Encoder(hidden=0), "hidden"),
        (lambda: Encoder(width=3), "width"),
        (lambda: SDEHNN(Sizes(5, 1, 0, 0, 1), block=Block(dt=0.7)), "T=3.0 is not a multiple of dt=0.7"),
        (
            lambda: SDEHNN(Sizes(5, 1, 0, 0, 1), block=Block(solver="rk4")),
            "solver='rk4': expected one of euler_maruyama",
        ),
        (lambda: SDEHNN(Sizes(5, 1, 0, 0, 1), block=Block(state="sequence")), "kind='mlp' has no time axis"),
        (lambda: SDEHNN(Sizes(5, 1, 0, 0, 1), objective="mse"), "objective='mse': expected one of mixture, paper"),
        (lambda: SDEHNN(Sizes(5, 1, 0, 0, 1), components=0), "components=0: expected at least 1"),
    ],
)
def test_bad_settings_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()
