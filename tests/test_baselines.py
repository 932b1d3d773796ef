"""The baselines: known answers and invariants of each, beyond what every model promises."""

from __future__ import annotations

import math
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import LSTM, SMALL
from scipy.stats import norm
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence

from itocast.forecast import Forecast
from itocast.models import BNN, HNN, DeepEnsemble, DeepGP, MCDropout, SDENet, sde_net
from itocast.models.bnn import Bayesian
from itocast.models.gp_layer import GPLayer
from itocast.nets import Encoder, Inputs, Sizes, initialise
from itocast.paper.protocol import NEEDS
from itocast.schedule import Training
from itocast.sde import Noise
from itocast.training import fit, predict

SIZES = Sizes(window=4, targets=1, covariates=1, known=2, horizon=1)
STILL = SMALL.model_copy(update={"dropout": 0.0})


def inputs(rows: int = 6, sizes: Sizes = SIZES, seed: int = 0) -> Inputs:
    draw = torch.Generator().manual_seed(seed)
    shapes = ((sizes.window, sizes.targets), (sizes.window, sizes.covariates), (sizes.known,))
    parts = [torch.randn(rows, *shape, generator=draw) for shape in shapes]
    return Inputs(*parts, anchor=torch.randn(rows, sizes.horizon, sizes.targets, generator=draw))


def drawn(network: nn.Module) -> nn.Module:
    """With weights that are the same in every run."""
    initialise(network, seed=0)
    return network


def fresh(seed: int = 0) -> Noise:
    return Noise(seed, shared=False)


def shared(seed: int = 0) -> Noise:
    return Noise(seed, shared=True)


class Rows:
    """Rows in memory."""

    def __init__(self, x: Inputs, y: torch.Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def batch(self, index):
        return Inputs(*(part[index] for part in self.x)), self.y[index]


def gradients(model, loss) -> dict[str, torch.Tensor | None]:
    model.zero_grad(set_to_none=True)
    loss.backward()
    return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def test_laws_beside_one_another_are_one_law_of_all_their_paths():
    one, two = Forecast([[[[0.0]]]], [[[[1.0]]]]), Forecast([[[[2.0]]], [[[4.0]]]], [[[[4.0]]], [[[9.0]]]])
    law = Forecast.beside([one, two])
    assert (law.mean.item(), law.aleatoric.item()) == (2.0, pytest.approx(14 / 3))
    assert law.epistemic.item() == pytest.approx(8 / 3)
    expected = np.mean([norm.cdf(1, mean, deviation) for mean, deviation in ((0, 1), (2, 2), (4, 3))])
    assert law.cdf([[[1.0]]]).item() == pytest.approx(expected)


def test_inputs_are_changed_in_all_parts_that_networks_read():
    x = inputs()
    moved = x.changed(lambda part: part + 1)
    assert all(torch.equal(after, before + 1) for after, before in zip(moved[:3], x[:3], strict=True))
    assert moved.anchor is x.anchor


# ---- MC-dropout


def test_mc_dropout_needs_dropout():
    with pytest.raises(ValueError, match="encoder dropout=0: MC-dropout draws its paths from dropout; give it a prob"):
        MCDropout(SIZES, encoder=STILL)


@pytest.mark.parametrize("encoder", [SMALL, LSTM], ids=["mlp", "lstm"])
def test_every_path_of_mc_dropout_has_masks_of_its_own_and_all_rows_share_them(encoder):
    model = MCDropout(SIZES, encoder=encoder).eval()
    x = inputs(3)
    twice = Inputs(*(torch.cat([part, part]) for part in x))
    means = model(twice, 6, shared()).means
    assert all(not torch.equal(a, b) for a, b in pairwise(means))
    torch.testing.assert_close(means[:, :3], means[:, 3:])
    apart = model(twice, 6, fresh()).means  # in training every row has masks of its own
    assert not torch.allclose(apart[:, :3], apart[:, 3:])


def test_mc_dropout_without_masks_is_hnn():
    """A mask of ones: the same encoder and head, whatever the number of paths."""
    model, plain = MCDropout(SIZES, encoder=SMALL, seed=3).eval(), HNN(SIZES, encoder=SMALL, seed=3).eval()
    model.encoder.dropout = 0.0
    law, one = model(inputs(), 4, shared()), plain(inputs(), 1, shared())
    torch.testing.assert_close(law.means, one.means.expand(4, -1, -1, -1, -1))
    torch.testing.assert_close(law.log_variances, one.log_variances.expand(4, -1, -1, -1, -1))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("paths", [None, 5])
def test_a_recurrent_mask_is_the_same_at_all_steps_of_time_in_every_layer(kind, paths):
    sizes = SIZES._replace(known=0)
    drop = 0.375
    encoder = drawn(Encoder(kind=kind, dim=8, layers=2, dropout=drop).build(sizes, keep_time=True)).train()
    seen = []
    for layer in encoder.layers:
        layer.register_forward_hook(lambda _, given, out: seen.append((given[0], out[0])))
    x = inputs(6, sizes)
    last = encoder(x, fresh(), paths).detach()
    lead = (6,) if paths is None else (paths, 6)
    before = [seen[0][1], seen[1][1].unflatten(0, lead)]  # what each layer gives, before its mask
    after = [seen[1][0].unflatten(0, lead), last]
    for given, masked in zip(before, after, strict=True):
        ratio = masked / given.expand_as(masked)  # (…, rows, time, dim)
        assert torch.isclose(ratio, ratio[..., :1, :], atol=1e-5).all()
        values = ratio[..., 0, :]
        kept = values != 0
        torch.testing.assert_close(values[kept], torch.full_like(values[kept], 1 / (1 - drop)))
        assert 0.2 < kept.float().mean() < 0.95
    first = after[0] / before[0].expand_as(after[0])
    assert len({tuple(row.tolist()) for row in (first[..., 0, :].flatten(0, -2) != 0)}) > 1  # rows differ


def test_masks_leave_the_expected_state_as_it_is():
    """With one recurrent layer the state is linear in the mask: mean m, variance m² p / (1 - p)."""
    sizes, drop, paths = SIZES._replace(known=0), 0.3, 20_000
    encoder = drawn(Encoder(kind="lstm", dim=8, layers=1, dropout=drop).build(sizes))
    with torch.no_grad():
        plain = encoder.eval()(inputs(2, sizes), shared())
        states = encoder(inputs(2, sizes), shared(1), paths)
    assert plain.shape == (2, 8)
    variance = plain.square() * drop / (1 - drop)
    assert ((states.mean(0) - plain).abs() < 5 * (variance / paths).sqrt()).all()
    torch.testing.assert_close(states.var(0), variance, rtol=0.05, atol=0)


def test_an_encoder_without_dropout_has_the_same_state_on_every_path():
    for encoder in (STILL, LSTM.model_copy(update={"dropout": 0.0})):
        network = drawn(encoder.build(SIZES))
        states = network(inputs(), shared(), 3)
        assert states.shape == (3, 6, 8)
        assert torch.equal(states, network(inputs(), shared()).expand(3, -1, -1))


# ---- Deep Ensembles


def test_members_are_the_hnns_of_their_seeds():
    x = inputs()
    law = DeepEnsemble(SIZES, encoder=SMALL, members=3, seed=2).eval()(x, 1, shared())
    for path, seed in enumerate((6, 7, 8)):
        alone = HNN(SIZES, encoder=SMALL, seed=seed).eval()(x, 1, shared())
        torch.testing.assert_close(law.means[path], alone.means[0])
        torch.testing.assert_close(law.log_variances[path], alone.log_variances[0])


def test_seeds_of_ensembles_do_not_overlap():
    def drawn(seed: int) -> set[tuple[float, ...]]:
        weights = DeepEnsemble(SIZES, encoder=SMALL, members=3, seed=seed).parameters()
        return {tuple(tensor.flatten()[:4].tolist()) for tensor in weights if tensor.any()}  # others start at zero

    assert not drawn(0) & drawn(1)


@pytest.mark.parametrize("adversarial", [0.0, 0.1])
def test_a_member_learns_as_it_would_alone(adversarial):
    x, y = inputs(), torch.ones(6, 1, 1)
    together = DeepEnsemble(SIZES, encoder=STILL, members=3, adversarial=adversarial, seed=0)
    grads = gradients(together, together.loss(x, y, fresh()))
    alone = DeepEnsemble(SIZES, encoder=STILL, members=1, adversarial=adversarial, seed=1)
    for name, expected in gradients(alone, alone.loss(x, y, fresh())).items():
        torch.testing.assert_close(grads[name.replace("members.0.", "members.1.")], expected)


def trained_member(clip: float) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """A member after an epoch in company, and an HNN of the same seed after an epoch alone."""
    rows = Rows(inputs(64), 3 * torch.randn(64, 1, 1, generator=torch.Generator().manual_seed(1)))
    settings = Training(epochs=1, batch_size=16, clip=clip)
    together, alone = DeepEnsemble(SIZES, encoder=STILL, members=3, seed=0), HNN(SIZES, encoder=STILL, seed=1)
    fit(together, rows, rows, settings)
    fit(alone, rows, rows, settings)
    return together.members[1].state_dict(), alone.state_dict()


def test_training_leads_a_member_where_it_would_go_alone():
    member, alone = trained_member(clip=1e9)
    for name, tensor in alone.items():
        torch.testing.assert_close(member[name], tensor, rtol=1e-4, atol=1e-6)


def test_clipping_leaves_members_apart():
    member, alone = trained_member(clip=1.0)
    for name, tensor in alone.items():
        torch.testing.assert_close(member[name], tensor, rtol=1e-4, atol=1e-6)


def test_adversarial_inputs_raise_the_loss_by_the_sum_of_absolute_slopes():
    """To first order L(x + ε sign ∇L) = L(x) + ε Σ |∇L|, with the slopes measured by finite differences."""
    x = inputs(3).changed(torch.Tensor.double)._replace(anchor=torch.zeros(3, 1, 1, dtype=torch.float64))
    y = torch.tensor([[[0.5]], [[-0.5]], [[1.0]]], dtype=torch.float64)
    plain = DeepEnsemble(SIZES, encoder=STILL, members=1).double()

    def loss(model, x) -> float:
        return model.loss(x, y, fresh()).item()

    base, slopes, length = loss(plain, x), 0.0, 1e-6
    for number, part in enumerate(x[:3]):
        for place in range(part.numel()):
            step = torch.zeros_like(part)
            step.view(-1)[place] = length
            ends = [list(x), list(x)]
            ends[0][number], ends[1][number] = part + step, part - step
            slopes += abs(loss(plain, Inputs(*ends[0])) - loss(plain, Inputs(*ends[1]))) / (2 * length)
    assert slopes > 0.01
    for strength in (1e-4, 1e-5):
        model = DeepEnsemble(SIZES, encoder=STILL, members=1, adversarial=strength).double()
        assert (loss(model, x) - 2 * base) / strength == pytest.approx(slopes, rel=20 * strength * 100)


def test_an_ensemble_that_is_not_adversarial_has_the_mean_of_its_members_losses():
    x, y = inputs(), torch.zeros(6, 1, 1)
    model = DeepEnsemble(SIZES, encoder=STILL, members=4, seed=1)
    alone = [HNN(SIZES, encoder=STILL, seed=seed).loss(x, y, fresh()).item() for seed in range(4, 8)]
    assert model.loss(x, y, fresh()).item() == pytest.approx(sum(alone) / 4, rel=1e-6)


def test_an_adversarial_loss_does_not_change_the_inputs_it_was_given():
    x = inputs()
    copies = [part.clone() for part in x]
    DeepEnsemble(SIZES, encoder=STILL, adversarial=0.1).loss(x, torch.zeros(6, 1, 1), fresh()).backward()
    assert all(torch.equal(part, copy) and not part.requires_grad for part, copy in zip(x, copies, strict=True))


# ---- BNN


def test_divergence_from_the_prior_is_that_of_torch():
    prior = 0.7
    layer = Bayesian(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), prior=prior)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
    total = 0.0
    for mean, rho in zip(layer.network.parameters(), layer.rho, strict=True):
        own = Independent(Normal(mean, (1 + rho.exp()).log()), mean.ndim)
        total += kl_divergence(own, Independent(Normal(torch.zeros_like(mean), prior), mean.ndim)).item()
    assert layer.kl().item() == pytest.approx(total, rel=1e-5)


def test_divergence_of_the_prior_itself_is_zero():
    layer = Bayesian(nn.Linear(3, 2), prior=0.5, spread=0.5)
    with torch.no_grad():
        for mean in layer.network.parameters():
            mean.zero_()
    assert layer.kl().item() == pytest.approx(0, abs=1e-6)


def test_a_draw_without_spread_is_the_network_itself():
    lstm = drawn(nn.LSTM(3, 5, num_layers=2, batch_first=True))
    x = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(0))
    out, (state, memory) = Bayesian(lstm, spread=1e-9).draw(fresh())(x)
    plain, (plain_state, plain_memory) = lstm(x)
    for found, expected in ((out, plain), (state, plain_state), (memory, plain_memory)):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_draws_have_the_moments_of_the_weights():
    """A linear layer's output at x is Gaussian: mean W x + b, variance σ² (|x|² + 1)."""
    spread, count = 0.3, 4000
    layer = Bayesian(drawn(nn.Linear(3, 2)), spread=spread)
    x, noise = torch.tensor([[1.0, -2.0, 0.5]]), fresh()
    with torch.no_grad():
        draws = torch.cat([layer.draw(noise)(x) for _ in range(count)])
        mean, variance = layer.network(x)[0], spread**2 * (x.square().sum() + 1)
    assert ((draws.mean(0) - mean).abs() < 5 * (variance / count).sqrt()).all()
    torch.testing.assert_close(draws.var(0), variance.expand(2), rtol=0.15, atol=0)
    assert abs(torch.corrcoef(draws.T)[0, 1]) < 0.08


def test_every_row_of_a_path_sees_the_same_draw_of_the_weights():
    x = inputs(3)
    twice = Inputs(*(torch.cat([part, part]) for part in x))
    for noise in (shared(), fresh()):
        means = BNN(SIZES, encoder=SMALL).eval()(twice, 4, noise).means
        torch.testing.assert_close(means[:, :3], means[:, 3:])
        assert all(not torch.allclose(a, b) for a, b in pairwise(means))


def test_rows_are_counted_once():
    model = BNN(SIZES, encoder=SMALL)
    assert model.learned.item() == 0
    rows = Rows(inputs(40), torch.zeros(40, 1, 1))
    model.prepare(rows)
    model.prepare(Rows(inputs(3), torch.zeros(3, 1, 1)))
    assert model.learned.item() == 40
    assert "learned" in model.state_dict()
    fit(model, rows, rows, Training(epochs=1))
    assert model.learned.item() == 40


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_the_loss_of_a_bnn_is_its_bound_a_row(weight):
    x, y = inputs(), torch.ones(6, 1, 1)
    model = BNN(SIZES, encoder=STILL, kl_weight=weight)
    model.prepare(Rows(inputs(200), torch.zeros(200, 1, 1)))
    law = model.network.draw(fresh(3))(x, 1, fresh())
    mean, deviation = law.means[0, :, 0, 0, 0].detach(), law.log_variances[0, :, 0, 0, 0].mul(0.5).exp().detach()
    nll = -norm.logpdf(1.0, mean.numpy(), deviation.numpy()).mean()
    divergence = sum(
        kl_divergence(Normal(mean, (1 + rho.exp()).log()), Normal(0.0, 1.0)).sum().item()
        for mean, rho in zip(model.network.network.parameters(), model.network.rho, strict=True)
    )
    assert model.loss(x, y, fresh(3)).item() == pytest.approx(nll + weight * divergence / 200, rel=1e-4)


def repeated(model_of, sizes: Sizes) -> tuple[float, float]:
    """The share of a divergence in the loss, and what it is in the bound for each number that is forecast."""
    x, y = inputs(6, sizes), torch.zeros(6, sizes.horizon, sizes.targets)
    model = model_of(sizes)
    losses = []
    for rows in (100, 200):
        model.learned.fill_(rows * sizes.horizon * sizes.targets)
        losses.append(model.loss(x, y, fresh()).item())
    kl = model.network.kl() if isinstance(model, BNN) else model.hidden.kl() + model.out.kl()
    return losses[0] - losses[1], kl.item() * (1 / 100 - 1 / 200) / (sizes.horizon * sizes.targets)


BOUNDS = [
    lambda sizes: BNN(sizes, encoder=STILL),
    lambda sizes: DeepGP(sizes, encoder=STILL, width=2, inducing=4),
]


@pytest.mark.parametrize("model_of", BOUNDS, ids=["bnn", "deep_gp"])
def test_the_divergence_is_shared_by_all_rows(model_of):
    share, expected = repeated(model_of, SIZES)
    assert share == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("model_of", BOUNDS, ids=["bnn", "deep_gp"])
def test_the_divergence_counts_as_much_where_several_numbers_are_forecast(model_of):
    """The bound of a row sums -log p over steps and targets: where the loss takes their mean, so for the divergence."""
    share, expected = repeated(model_of, SIZES._replace(horizon=3, targets=2))
    assert share == pytest.approx(expected, rel=0.02)


def test_a_strong_divergence_leads_the_weights_to_the_prior():
    x, y = inputs(), torch.zeros(6, 1, 1)
    model = BNN(SIZES, encoder=STILL, kl_weight=1e4, prior=0.1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    for step in range(150):
        loss = model.loss(x, y, fresh(step))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    for mean, rho in zip(model.network.network.parameters(), model.network.rho, strict=True):
        assert mean.abs().max().item() < 0.01
        torch.testing.assert_close((1 + rho.exp()).log(), torch.full_like(rho, 0.1), rtol=0.05, atol=0)


def test_weight_decay_does_not_widen_the_posterior():
    """Decay shrinks ρ to 0, a deviation of log 2, although the loss has no say in it."""
    rows = Rows(inputs(32), torch.zeros(32, 1, 1))
    deviations = []
    for decay in (0.0, 2.0):
        model = BNN(SIZES, encoder=STILL)
        settings = Training(epochs=8, learning_rate=1e-2, weight_decay=decay, batch_size=8, schedule="constant")
        fit(model, rows, rows, settings)
        deviations.append(torch.cat([nn.functional.softplus(rho).flatten() for rho in model.network.rho]).mean().item())
    assert deviations[1] <= deviations[0] * 1.01


# ---- deep Gaussian process


def gp_layer() -> GPLayer:
    layer = GPLayer(2, 3, inducing=5, spread=1.0, generator=torch.Generator().manual_seed(0)).double()
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
        layer.variational_strategy.inducing_points.mul_(2)  # apart from one another
    return layer


def dense(layer: GPLayer):
    """Inducing inputs, variational mean and factor, and the kernel, all in numpy."""
    distribution = layer.variational_strategy._variational_distribution
    Z = layer.variational_strategy.inducing_points.detach().numpy()
    m = distribution.variational_mean.detach().numpy()  # (outputs, inducing)
    C = np.tril(distribution.chol_variational_covar.detach().numpy())
    raw = {name: parameter.detach().numpy() for name, parameter in layer.kernel.named_parameters()}
    scale = np.log1p(np.exp(raw["raw_outputscale"]))
    lengths = np.log1p(np.exp(raw["base_kernel.raw_lengthscale"])).reshape(-1)

    def kernel(a, b):
        return scale * np.exp(-0.5 * (((a[:, None] - b[None]) / lengths) ** 2).sum(-1))

    return Z, m, C @ C.swapaxes(1, 2), kernel


@pytest.mark.parametrize("training", [True, False])
def test_posterior_of_a_gp_layer_is_the_dense_one(training):
    """Whitened: q(u) = N(L m, L S Lᵀ) with K = L Lᵀ, so that f has mean A L m and variance k - A (K - L S Lᵀ) Aᵀ."""
    layer = gp_layer().train(training)
    Z, m, S, kernel = dense(layer)
    x = np.random.default_rng(0).standard_normal((7, 2))
    K = kernel(Z, Z)
    L, A = np.linalg.cholesky(K), kernel(x, Z) @ np.linalg.inv(K)
    means, variances = (part.detach().numpy() for part in layer.marginals(torch.tensor(x)))
    assert means.shape == variances.shape == (7, 3)
    for output in range(3):
        covariance = kernel(x, x) - A @ (K - L @ S[output] @ L.T) @ A.T
        np.testing.assert_allclose(means[:, output], A @ L @ m[output], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(variances[:, output], np.diag(covariance), rtol=1e-4, atol=1e-5)


def test_divergence_of_a_gp_layer_is_that_of_gaussians():
    layer = gp_layer()
    _, m, S, _ = dense(layer)
    layer.marginals(torch.zeros(1, 2, dtype=torch.float64))
    divergences = [0.5 * (np.trace(S[k]) + m[k] @ m[k] - len(m[k]) - np.linalg.slogdet(S[k])[1]) for k in range(len(m))]
    assert layer.kl().item() == pytest.approx(sum(divergences), rel=1e-6)


def test_far_from_its_inducing_inputs_a_gp_layer_is_its_prior():
    layer = gp_layer().eval()
    means, variances = layer.marginals(torch.full((1, 2), 100.0, dtype=torch.float64))
    _, _, _, kernel = dense(layer)
    np.testing.assert_allclose(means.detach(), 0, atol=1e-6)
    np.testing.assert_allclose(variances.detach(), kernel(np.zeros((1, 2)), np.zeros((1, 2))).item(), rtol=1e-4)


def test_weights_that_change_between_calls_count():
    layer = gp_layer().eval()
    x = torch.zeros(1, 2, dtype=torch.float64)
    before = layer.marginals(x)[0]
    with torch.no_grad():
        layer.variational_strategy._variational_distribution.variational_mean.add_(1)
        layer.kernel.base_kernel.raw_lengthscale.add_(0.5)
    Z, m, _, kernel = dense(layer)
    L = np.linalg.cholesky(kernel(Z, Z))
    expected = [(kernel(x.numpy(), Z) @ np.linalg.inv(kernel(Z, Z)) @ L @ one).item() for one in m]
    np.testing.assert_allclose(layer.marginals(x)[0].detach()[0], expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(before, layer.marginals(x)[0])


def small_gp() -> DeepGP:
    model = DeepGP(SIZES, encoder=STILL, width=2, inducing=5, seed=1)
    model.learned.fill_(50)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in (model.hidden, model.out):
            mean = layer.variational_strategy._variational_distribution.variational_mean
            mean.copy_(torch.randn(mean.shape, generator=draw))
    return model


def test_the_loss_of_a_deep_gp_is_its_bound_a_row():
    """-E log N(y; f, σ²) = ½ ((y - μ)² + v) / σ² + ½ log 2πσ² under f ~ N(μ, v), by Gauss-Hermite quadrature."""
    model, x = small_gp(), inputs()
    y = torch.linspace(-1, 1, 6)[:, None, None]
    with torch.no_grad():
        z = model.encoder(x, fresh())
        mean, variance = model.hidden.marginals(z)
        state = model.linear(z) + mean + variance.sqrt() * fresh(5).normal(1, 6, (2,))[0]
        mu, v = (part[:, 0].double().numpy() for part in model.out.marginals(state))
        mu = mu + x.anchor[:, 0, 0].numpy()
    noise = math.exp(model.log_noise.item()) + 1e-6
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    values = mu[:, None] + np.sqrt(v)[:, None] * nodes
    logs = norm.logpdf(y[:, 0].numpy(), values, math.sqrt(noise)) @ weights / weights.sum()
    kl = (model.hidden.kl() + model.out.kl()).item()
    assert model.loss(x, y, fresh(5)).item() == pytest.approx(-logs.mean() + kl / 50, rel=1e-3)


def test_the_noise_of_a_deep_gp_is_within_a_path_and_the_processes_between_paths():
    model, x = small_gp().eval(), inputs()
    with torch.no_grad():
        law = model(x, 4000, shared())
        z = model.encoder(x, fresh())
        mean, variance = model.hidden.marginals(z)
        draws = model.linear(z) + mean + variance.sqrt() * fresh(9).normal(4000, 6, (2,))
        mu, v = (part.unflatten(0, (4000, 6))[..., 0] for part in model.out.marginals(draws.flatten(0, 1)))
    noise = math.exp(model.log_noise.item()) + 1e-6
    torch.testing.assert_close(law.aleatoric.flatten(), torch.full((6,), noise))
    expected = v.mean(0) + mu.var(0)  # the law of total variance
    torch.testing.assert_close(law.epistemic.flatten(), expected, rtol=0.12, atol=0)
    error = (law.mean.flatten() - mu.mean(0) - x.anchor.flatten()).abs()
    assert (error < 6 * (expected / 4000).sqrt()).all()


def test_a_deep_gp_without_gpytorch_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gpytorch", None)
    monkeypatch.delitem(sys.modules, "itocast.models.gp_layer")
    with pytest.raises(ImportError, match=r"the model 'deep_gp' needs gpytorch: pip install 'itocast\[dgp\]'"):
        DeepGP(SIZES)


def test_every_extra_that_is_named_exists():
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    for package, extra in NEEDS.values():
        assert any(one.startswith(package) for one in project["optional-dependencies"][extra])


# ---- SDE-Net


def test_no_forecast_teaches_the_diffusion_of_sde_net():
    model, y = SDENet(SIZES, encoder=STILL), torch.zeros(6, 1, 1)
    grads = gradients(model, -model(inputs(), 3, fresh()).log_prob(y).mean())
    untaught = {name for name, grad in grads.items() if grad is None}
    assert untaught == {name for name in grads if name.startswith("strange")}


def test_telling_inputs_apart_teaches_the_diffusion_alone(monkeypatch):
    model, x, y = SDENet(SIZES, encoder=STILL), inputs(), torch.zeros(6, 1, 1)
    as_is = gradients(model, model.loss(x, y, fresh()))
    real = sde_net.cross_entropy
    monkeypatch.setattr(sde_net, "cross_entropy", lambda *logits: 100 * real(*logits))
    louder = gradients(model, model.loss(x, y, fresh()))
    for name, grad in as_is.items():
        factor = 100 if name.startswith("strange") else 1
        torch.testing.assert_close(louder[name], factor * grad, rtol=1e-4, atol=1e-6, msg=name)


def test_epistemic_part_of_sde_net_is_that_of_its_brownian_motion():
    """Without drift z_T = z + s √T ε for each unit, so that a mean w·z_T has variance s² T |w|² over the paths."""
    T, strength = 2.0, 0.3
    model = SDENet(SIZES, encoder=STILL, T=T, dt=0.5, strength=strength).eval()
    with torch.no_grad():
        for parameter in model.drift.parameters():
            parameter.zero_()
        law = model(inputs(), 4000, shared())
        chance = model.strange(model.encoder(inputs(), shared())).sigmoid()[:, 0]
    expected = (strength * chance).square() * T * model.head.mean.weight.square().sum()
    torch.testing.assert_close(law.epistemic.flatten(), expected.detach(), rtol=0.12, atol=0)


def test_sde_net_of_no_strength_is_certain():
    strong, weak = (SDENet(SIZES, encoder=STILL, strength=strength).eval() for strength in (0.5, 1e-6))
    assert strong(inputs(), 8, shared()).epistemic.min() > 1e-6
    assert weak(inputs(), 8, shared()).epistemic.max() < 1e-11


def test_outside_inputs_are_moved_by_their_own_deviation():
    model = SDENet(SIZES, encoder=STILL, outside=3.0)
    part = torch.stack([torch.linspace(0, 10, 5000), torch.full((5000,), 4.0)], dim=1)
    moved = model._moved(part, fresh()) - part
    assert moved[:, 0].std().item() == pytest.approx(3 * 10 / math.sqrt(12), rel=0.05)
    assert moved[:, 0].mean().item() == pytest.approx(0, abs=0.5)
    assert (moved[:, 1] == 0).all()


@pytest.fixture(scope="module")
def trained_sde_net() -> SDENet:
    """Trained on a few steps of a toy problem: inputs near 0."""
    sizes = Sizes(window=2, targets=1, covariates=0, known=0, horizon=1)
    x = inputs(512, sizes)._replace(anchor=torch.zeros(512, 1, 1))
    rows = Rows(x, x.lags.sum(1, keepdim=True) + 0.1 * x.lags[:, :1])
    model = SDENet(sizes, encoder=Encoder(hidden=32, dim=8, frequencies=0, dropout=0))
    fit(model, rows, rows, Training(epochs=15, batch_size=64, learning_rate=0.01, weight_decay=0.01))
    return model


def far(x: Inputs, factor: float) -> Inputs:
    return x._replace(lags=x.lags / x.lags.norm(dim=1, keepdim=True) * factor)


def test_sde_net_learns_what_is_strange(trained_sde_net):
    x = inputs(300, trained_sde_net.sizes, seed=1)._replace(anchor=torch.zeros(300, 1, 1))
    chances = [
        trained_sde_net.strange(trained_sde_net.encoder(far(x, distance), shared())).sigmoid().mean().item()
        for distance in (0.3, 3.0, 8.0)
    ]
    assert chances[0] < 0.4
    assert chances[0] + 0.2 < chances[1] < chances[2]
    assert chances[2] > 0.9


def test_sde_net_is_less_certain_far_away(trained_sde_net):
    x = inputs(300, trained_sde_net.sizes, seed=1)._replace(anchor=torch.zeros(300, 1, 1))
    near, away = (
        predict(trained_sde_net, Rows(far(x, distance), torch.zeros(300, 1, 1))).epistemic.mean().item()
        for distance in (0.3, 8.0)
    )
    assert away > 2 * near


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DeepEnsemble(SIZES, members=0), "members=0, adversarial=0.0: expected at least 1, and 0 or more"),
        (lambda: DeepEnsemble(SIZES, adversarial=-1), "members=5, adversarial=-1: expected at least 1, and 0 or more"),
        (lambda: BNN(SIZES, prior=0), "prior=0, spread=0.02: expected positive deviations"),
        (lambda: BNN(SIZES, kl_weight=-1), "kl_weight=-1: expected 0 or more"),
        (lambda: BNN(SIZES, components=0), "components=0: expected at least 1"),
        (lambda: DeepGP(SIZES, inducing=1), "width=8, inducing=1: expected at least 1, and at least 2"),
        (lambda: DeepGP(SIZES, width=0), "width=0, inducing=64: expected at least 1, and at least 2"),
        (lambda: SDENet(SIZES, strength=0), "strength=0, outside=2.0: expected positive numbers"),
        (lambda: SDENet(SIZES, outside=-1), "strength=0.5, outside=-1: expected positive numbers"),
        (lambda: SDENet(SIZES, dt=0.7), "T=3.0 is not a multiple of dt=0.7"),
        (lambda: MCDropout(SIZES, encoder={"dropout": 1.0}), "dropout=1.0: input should be less than 1"),
    ],
)
def test_bad_settings_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()
