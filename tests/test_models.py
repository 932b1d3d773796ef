"""What every registered model promises."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import BUILD, SMALL, tiny

from itocast import Forecaster
from itocast.data.preparation import Preparation
from itocast.data.reading import read_table
from itocast.data.table import Columns
from itocast.data.windows import Windows
from itocast.head import GaussianHead, StepLayer
from itocast.models import MODELS, OBJECTIVES, SDEHNN, DeepEnsemble
from itocast.models.sde_hnn import Block
from itocast.nets import Encoder, Inputs, Sizes, initialise
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
    assert law.means.shape[0] == _paths(model, 3)
    assert law.means.isfinite().all()
    assert (law.variance > 0).all()
    assert law.variance.isfinite().all()


@pytest.mark.parametrize(
    ("horizon", "recent", "expected"), [(1, None, 3), (4, None, 4), (24, None, 10), (1, 1, 1), (1, 99, 10)]
)
def test_the_latest_lags_are_embedded_and_all_are_read(horizon, recent, expected):
    sizes = Sizes(window=10, targets=2, covariates=0, known=0, horizon=horizon)
    encoder = Encoder(recent=recent, dropout=0).build(sizes)
    initialise(encoder, seed=0)
    assert encoder.embed.frequencies.shape[0] == 2 * expected
    lags, seen = torch.zeros(21, 10, 2), []
    for i in range(20):
        lags[1 + i].view(-1)[i] = 1.0
    encoder.embed.register_forward_hook(lambda module, given, out: seen.append(out))
    state = encoder(Inputs(lags, lags[..., :0], lags[:, 0, :0], lags[:, :1, :]), Noise(0, shared=True))
    embedded, read = (((out[1:] - out[0]).abs() > 1e-5).any(1) for out in (seen[0], state))  # less is rounding
    assert embedded.tolist() == [False] * (20 - 2 * expected) + [True] * 2 * expected
    assert read.all()


def _paths(model, asked: int) -> int:
    """An ensemble has as many paths as members, a model without noise has one."""
    return asked if model.paths > 1 and not isinstance(model, DeepEnsemble) else model.paths


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
    law, same, another = (predict(model, rows, paths=3).means for model in (one, two, other))
    assert torch.equal(law, same)
    assert not torch.equal(law, another)


def test_the_global_generator_plays_no_part(build, rows):
    torch.manual_seed(1)
    model = build(rows.sizes)
    torch.manual_seed(2)
    again = build(rows.sizes)
    assert all(map(torch.equal, model.state_dict().values(), again.state_dict().values()))
    before = torch.random.get_rng_state()
    x, y = rows.batch(slice(None))
    model.train().loss(x, y, Noise(0, shared=False)).backward()
    predict(model, rows, paths=3)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_forecast_of_a_row_depends_on_neither_batch_nor_order(build, rows):
    model, rows = build(rows.sizes), rows.thin(60)
    whole = predict(model, rows, paths=3)
    for size in (1, 7, 50):
        part = predict(model, rows, paths=3, batch_size=size)
        torch.testing.assert_close(part.means, whole.means, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(part.log_variances, whole.log_variances, rtol=1e-5, atol=1e-5)
    x, _ = rows.batch(torch.arange(len(rows)).flip(0))
    with torch.no_grad():
        backwards = model(x, 3, Noise(0, shared=True))
    torch.testing.assert_close(backwards.means.flip(1), whole.means, rtol=1e-5, atol=1e-5)
    assert torch.equal(predict(model, rows, paths=3).means, whole.means)


def test_config_survives_json_and_rebuilds_the_same_network(build, rows):
    model = build(rows.sizes)
    again = type(model)(**json.loads(json.dumps(model.config)))
    assert torch.equal(predict(model, rows, paths=3).means, predict(again, rows, paths=3).means)
    assert predict(model, rows.thin(4)).means.shape[0] == model.paths  # if none are asked for


@pytest.mark.parametrize("name", MODELS)
def test_a_forecaster_of_every_model_forecasts_the_same_after_save_and_load(name, single, tmp_path):
    frame, _ = single
    forecaster = tiny(model=BUILD[name]).fit(frame)
    assert type(forecaster.fitted.network.model) is MODELS[name]
    forecaster.save(tmp_path / "model")
    again = Forecaster.load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.predict(frame), forecaster.predict(frame), check_exact=True)
    for key, tensor in forecaster.fitted.network.model.state_dict().items():
        assert torch.equal(again.fitted.network.model.state_dict()[key], tensor), key
    again.update(frame.assign(ds=frame["ds"] + pd.Timedelta(hours=len(frame))))  # what was loaded can learn on


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
    assert [layer.hidden_size for layer in sde.encoder.layers] == [64]
    assert (sde.block.drift.network.hidden_size, sde.block.diffusion.network.hidden_size) == (64, 64)
    for method in ("hnn", "mc_dropout", "deep_gp", "sde_net"):
        assert [layer.hidden_size for layer in MODELS[method].paper(sizes).encoder.layers] == [128, 128], method
    assert sum(p.numel() for p in MODELS["deep_ensemble"].paper(sizes).parameters()) == 5 * _size(hnn)
    assert _size(MODELS["bnn"].paper(sizes)) == 2 * _size(hnn)  # a mean and a deviation for each weight
    assert _size(MODELS["mc_dropout"].paper(sizes)) == _size(hnn)
    # two LSTM layers of 4 gates with two biases, and two linear layers of one output
    assert _size(hnn) == 4 * 128 * (9 + 128 + 2) + 4 * 128 * (128 + 128 + 2) + 2 * (128 + 1)
    assert _size(sde) < _size(hnn)


def _size(model) -> int:
    return sum(p.numel() for p in model.parameters())


def test_epistemic_part_comes_from_the_noise(rows):
    model = SDEHNN(rows.sizes, encoder=SMALL, block={"gain": 0.1})
    assert (predict(model, rows).epistemic > 0).all()
    with torch.no_grad():
        model.block.log_gain.fill_(-30)
    assert predict(model, rows).epistemic.max() < 1e-12


def test_a_linear_map_of_the_lags_is_added_to_relative_means(rows):
    """It starts at zero, and each Gaussian of each step has one of its own."""
    x, _ = rows.batch(slice(0, 5))
    model, without = (SDEHNN(rows.sizes, encoder=SMALL, direct=direct).eval() for direct in (True, False))
    laws = [one(x, 2, Noise(0, shared=True)) for one in (model, without)]
    torch.testing.assert_close(laws[0].means, laws[1].means)
    with torch.no_grad():
        model.head.direct.weight.view(*model.head.shape, -1)[1, 0, 3, -1] = 0.5  # step 1, target 0, of the last lag
    moved = model(x, 2, Noise(0, shared=True)).means - laws[0].means
    torch.testing.assert_close(moved[:, :, 1, 0, 3], (0.5 * x.lags.flatten(1)[:, -1]).expand(2, -1))
    assert moved.count_nonzero() <= 2 * 5
    assert SDEHNN(rows.sizes, encoder=SMALL, relative=False).head.direct is None
    assert SDEHNN(rows.sizes, encoder=SMALL).head.direct is not None
    assert SDEHNN(rows.sizes._replace(horizon=1), encoder=SMALL).head.direct is None  # of no use there


def test_theorem_1_holds_for_the_default_model(rows):
    bounds = SDEHNN(rows.sizes).block.lipschitz()
    assert bounds.unknown == ()
    assert pytest.approx(2.0, rel=1e-3) == bounds.K


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


def test_relative_laws_start_at_the_usual_change_and_stay_between_bounds(rows):
    x, y = rows.batch(slice(None))
    y = torch.where(torch.arange(3)[:, None] == 2, torch.nan, y)  # nothing is known of the last step
    head = GaussianHead(4, rows.sizes, components=2, relative=True, direct=False)
    head.measure(x, y)
    usual = (y - x.anchor)[:, :2].square().mean(0).sqrt()
    assert torch.allclose(head.unit[:2, :, 0], usual)
    assert (head.unit[2] == 1).all()
    head.measure(x, 100 * y)  # once is enough: weights have been learned for that unit
    assert torch.allclose(head.unit[:2, :, 0], usual)
    for parameter in head.parameters():
        torch.nn.init.zeros_(parameter)
    state = torch.zeros(1, len(rows), 4)
    law = head(state, state, x)
    assert torch.allclose(law.means, x.anchor[None, ..., None].expand_as(law.means))
    assert torch.allclose(law.log_variances, 2 * head.unit.log().expand_as(law.log_variances), atol=1e-4)
    for bias, deviation in ((-1e4, torch.tensor(1e-3)), (1e4, 10 * head.unit)):
        torch.nn.init.constant_(head.log_variance.bias, bias)
        found = (0.5 * head(state, state, x).log_variances).exp()
        assert torch.allclose(found, deviation.expand_as(found), rtol=1e-3)


def test_the_papers_output_has_no_unit(rows):
    model = SDEHNN.paper(rows.sizes)
    model.prepare(rows)
    assert not [name for name in model.state_dict() if "unit" in name]


def test_training_measures_units_and_training_on_keeps_them(build, rows):
    model = build(rows.sizes)
    heads = [module for module in model.modules() if isinstance(module, GaussianHead) and module.relative]
    model.prepare(rows)
    before = [head.unit.clone() for head in heads]
    assert all(head.measured for head in heads)
    x, y = rows.batch(slice(0, 1))
    for head in heads:
        head.measure(x, y + 5)
    assert all(torch.equal(head.unit, unit) for head, unit in zip(heads, before, strict=True))


def test_many_rows_widen_a_network_unless_it_was_told(rows):
    many = rows.sizes._replace(rows=200_000)
    chosen = [SDEHNN(many, **given).config["encoder"] for given in ({}, {"encoder": {"hidden": 32}})]
    assert [(one["hidden"], one["dropout"]) for one in chosen] == [(512, 0.05), (32, 0.05)]
    assert SDEHNN(rows.sizes).config["encoder"]["hidden"] == 256
    assert SDEHNN.paper(many).config["encoder"]["dropout"] == 0
    assert rows.sizes.rows == len(rows)


def irregular(horizon: int) -> Windows:
    """Rows of two targets, hours apart, and some of them more than one."""
    random = np.random.default_rng(0)
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.cumsum(random.integers(1, 4, 400)), "h")
    frame = pd.DataFrame({"ds": times, "y": random.standard_normal(400), "z": random.standard_normal(400)})
    table = read_table(frame, Columns(id=None, time="ds", targets=("y", "z")), gaps="keep")
    return Preparation.fit(table, horizon, 6).windows(table)


def test_each_of_several_steps_at_irregular_times_reads_what_is_known_of_its_own():
    windows = irregular(horizon=3)
    sizes, ahead = windows.sizes, windows.steps()
    head = GaussianHead(8, sizes, components=2, relative=True)
    initialise(head, seed=0)
    x, _ = windows.batch(slice(None))
    n, layer = windows.numbers, head.steps
    late = n.clock[ahead] - n.clock[windows.origins][:, None] - torch.arange(1, 4)
    torch.testing.assert_close(x.known[:, layer.late], (late.sign() * late.abs().log1p()).float())
    calendar = x.known[:, layer.rest].unflatten(1, (3, -1))
    torch.testing.assert_close(calendar, n.calendar[n.moment[ahead]])
    z = torch.randn(2, len(windows), 8, generator=torch.Generator().manual_seed(0))
    law = head(z, z, x)
    width = calendar.shape[-1]
    for columns in (layer.late.start + 1, slice(layer.rest.start + width, layer.rest.start + 2 * width)):
        known = x.known.clone()
        known[:, columns] += 1.0
        other = head(z, z, x._replace(known=known))
        for part in ("means", "log_variances", "log_weights"):
            changed = (getattr(law, part) != getattr(other, part)).any(-1).any(-1)  # (paths, rows, horizon)
            assert changed[..., 1].all()
            assert not changed[..., [0, 2]].any()


def test_one_step_and_regular_times_have_no_layer_for_steps(rows):
    for sizes in (irregular(horizon=1).sizes, rows.sizes):
        assert sizes.ahead == 0
        assert GaussianHead(8, sizes, components=2, relative=True).steps is None
    assert GaussianHead(8, irregular(horizon=3).sizes, components=2, relative=False).steps is None  # as in the paper


@pytest.mark.parametrize("kind", ["sde_hnn", "hnn", "mc_dropout", "deep_ensemble", "bnn", "sde_net"])
def test_gradient_reaches_the_layer_for_steps(kind):
    windows = irregular(horizon=3)
    model = MODELS[kind](windows.sizes)
    model.prepare(windows)
    model.loss(*windows.batch(slice(None)), Noise(0, shared=False)).backward()
    layers = [module for module in model.modules() if isinstance(module, StepLayer)]
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    assert parameters
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in parameters)
