"""Operations whose gradient is written out: the same values and gradients as when torch derives them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from itocast.forecast import Forecast
from itocast.fused import MixtureLogDensity, Walk, Waves
from itocast.models.base import mixture, observed
from itocast.sde import Noise, SDEBlock


def _draw(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("rows", [4, 1], ids=["fresh noise", "shared noise"])
def test_gradients_of_a_walk(rows):
    parts = (_draw(4, 5), _draw(10, 5) / 3, _draw(10), _draw(2, 3, rows, 5))
    inputs = [part.requires_grad_() for part in parts]
    assert torch.autograd.gradcheck(lambda *x: Walk.apply(*x, 1.5), inputs)


def test_waves_are_an_embedding_of_each_number_and_have_its_gradients():
    x, frequencies, weight, bias = parts = (_draw(6, 3), _draw(3, 4), _draw(3, 8, 2), _draw(3, 2))
    angle = 2 * torch.pi * x[..., None] * frequencies
    waves = torch.cat([angle.sin(), angle.cos()], -1)
    plain = torch.relu(torch.einsum("rfw,fwd->rfd", waves, weight) + bias).flatten(1)
    torch.testing.assert_close(Waves.apply(*parts), plain)
    assert torch.autograd.gradcheck(Waves.apply, [part.requires_grad_() for part in parts])


def test_gradients_of_a_mixture():
    parts = [_draw(3, 4, 2, 2, 5), _draw(3, 4, 2, 2, 5), _draw(3, 4, 2, 2, 5).log_softmax(-1)]
    inputs = [part.detach().requires_grad_() for part in parts]
    assert torch.autograd.gradcheck(lambda *x: MixtureLogDensity.apply(*x, _draw(4, 2, 2)), inputs)


@pytest.mark.parametrize("missing", [False, True])
def test_the_loss_is_that_of_the_law(missing):
    law, y = Forecast(_draw(3, 4, 2, 2), _draw(3, 4, 2, 2).exp()), _draw(4, 2, 2)
    y[0, 0, 0] = torch.nan if missing else 0.0
    assert mixture(law, y).item() == pytest.approx(-observed(law.log_prob, y).item(), rel=1e-12)


@pytest.mark.parametrize("gain", [0.3, None])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_a_block_walks_as_its_trajectories_do_and_learns_as_they_do(gain, dropout):
    def run(fused):
        torch.manual_seed(0)
        f, g = (nn.Sequential(nn.Linear(5, 5), nn.Tanh()) for _ in range(2))
        block = SDEBlock(f, g, T=3.0, dt=1.0, gain=gain, dropout=dropout).double()
        z = _draw(6, 5).requires_grad_()
        noise = Noise(1, shared=False)
        end, spread = block.ends(z, 4, noise) if fused else _plain(block, z, noise)
        (end.square().sum() + spread.sin().sum()).backward()
        return end, spread, z.grad, *(p.grad for p in block.parameters())

    def _plain(block, z, noise):
        end = list(block.trajectories(z, 4, noise))[-1]
        return end, block.diffuse(end)

    for ours, plain in zip(run(True), run(False), strict=True):
        torch.testing.assert_close(ours, plain)
