"""The running mean of weights: what it is a mean of, and that the model is left as it was."""

from __future__ import annotations

import pytest
import torch
from conftest import BUILD

from itocast.averaging import Average
from itocast.spectral import SpectralNorm
from itocast.training import Training, fit


def test_weights_that_stay_are_their_own_mean_and_ones_that_jump_are_followed(rows):
    model = BUILD["hnn"](rows[0].sizes)
    average, bias = Average(model, span=20), model.head.mean.bias.data.fill_(1.0)
    for _ in range(3000):
        average.update()
    assert average.weights["head.mean.bias"].tolist() == pytest.approx([1.0] * len(bias))
    bias.fill_(2.0)
    for _ in range(20):
        average.update()
    assert average.weights["head.mean.bias"][0].item() == pytest.approx(2 - (1 - 1 / 20) ** 20)


def test_the_first_steps_are_soon_forgotten(rows):
    model = BUILD["hnn"](rows[0].sizes)
    average, bias = Average(model, span=1000), model.head.mean.bias.data
    for step in range(90):
        bias.fill_(float(step >= 45))
        average.update()
    assert average.weights["head.mean.bias"][0] > 0.95  # a plain mean over 1000 steps would be at 0.04


def test_a_model_is_used_with_normalised_means_and_left_as_it_was(rows):
    model = BUILD["sde_hnn"](rows[0].sizes)
    average = Average(model, span=5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    average.update()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with average.in_use():
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
    average = Average(models[0], span=0)
    average.update()
    with average.in_use():
        assert torch.equal(models[0].head.mean.weight, last)
