"""The steps of training: those of torch, and the running mean of weights, which leaves the model as it was."""

from __future__ import annotations

import pytest
import torch
from conftest import BUILD

from itocast.models import MODELS
from itocast.optimiser import RULES, Optimiser
from itocast.schedule import Training
from itocast.sde import Noise
from itocast.spectral import SpectralNorm
from itocast.training import fit


def _bias(model):
    """The bias of the mean, as it is now."""
    return model.head.mean.bias.data


def _mean(optimiser):
    with optimiser.mean_in_use():
        return _bias(optimiser.model)[0].item()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind in BUILD])
def test_steps_are_those_of_torch(rule, kind, rows):
    ours, theirs = (BUILD[kind](rows[0].sizes) for _ in range(2))
    optimiser = Optimiser(ours, rule, decay=0.1)
    groups = [
        {"params": [p for name, p in theirs.named_parameters() if theirs.decays(name) == on], "weight_decay": 0.1 * on}
        for on in (True, False)
    ]
    other = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[rule]([g for g in groups if g["params"]], lr=1e-3)
    x, y = rows[0].batch(slice(0, 64))
    for model in (ours, theirs):
        model.prepare(rows[0])
        model.train()
    for step in range(4):
        for model in (ours, theirs):
            model.loss(x, y, Noise(step, shared=False)).backward()
        norms = [torch.nn.utils.clip_grad_norm_(part.parameters(), 0.5).item() for part in theirs.parts()]
        assert optimiser.clip(0.5) == pytest.approx(max(norms), rel=1e-4)
        other.step()
        other.zero_grad()
        optimiser.step(1e-3)
    optimiser.release()
    for (name, parameter), same in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(parameter, same, rtol=1e-3, atol=2e-5, msg=name)
        assert parameter.grad is None
        assert parameter.untyped_storage().nbytes() == parameter.nbytes


def test_weights_that_stay_are_their_own_mean_and_ones_that_jump_are_followed(rows):
    model = BUILD["hnn"](rows[0].sizes)
    optimiser = Optimiser(model, span=20)
    _bias(model).fill_(1.0)
    for _ in range(3000):
        optimiser.step(rate=0.0)
    assert _mean(optimiser) == pytest.approx(1.0)
    _bias(model).fill_(2.0)
    for _ in range(20):
        optimiser.step(rate=0.0)
    assert _mean(optimiser) == pytest.approx(2 - (1 - 1 / 20) ** 20)


def test_the_first_steps_are_soon_forgotten(rows):
    model = BUILD["hnn"](rows[0].sizes)
    optimiser = Optimiser(model, span=1000)
    for step in range(90):
        _bias(model).fill_(float(step >= 45))
        optimiser.step(rate=0.0)
    assert _mean(optimiser) > 0.95  # a plain mean over 1000 steps would be at 0.04


def test_a_model_is_used_with_normalised_means_and_left_as_it_was(rows):
    model = BUILD["sde_hnn"](rows[0].sizes)
    optimiser = Optimiser(model, span=5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    optimiser.step(rate=0.0)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with optimiser.mean_in_use():
        for module in model.modules():
            if isinstance(module, SpectralNorm):
                norms = [torch.linalg.matrix_norm(weight, ord=2).item() for weight in module.weights().values()]
                assert norms == pytest.approx([1.0] * len(norms), abs=1e-5)
        assert not torch.equal(model.head.mean.bias, before["head.mean.bias"])
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_without_a_span_the_last_weights_count(rows):
    models = [BUILD["hnn"](rows[0].sizes) for _ in range(2)]
    for model, share in zip(models, (0.0, 0.5), strict=True):
        fit(model, *rows, Training(epochs=2, batch_size=64, averaging=share))
    last, mean = (model.head.mean.weight for model in models)
    assert not torch.equal(last, mean)
    optimiser = Optimiser(models[0], span=0)
    optimiser.step(rate=0.0)
    with optimiser.mean_in_use():
        assert torch.equal(models[0].head.mean.weight, last)
