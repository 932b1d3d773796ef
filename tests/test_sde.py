import copy
import math
import re

import pytest
import torch
import torchsde
from torch import nn

import solvers
from itocast.sde import SOLVERS, Noise, SDEBlock, count_steps, euler_maruyama, heun, milstein, solve, trajectory
from itocast.spectral import SpectralNorm

NETWORKS = {  # the network's maker and the shape of one row's state
    "linear": (lambda: nn.Sequential(nn.Linear(6, 6), nn.Tanh()), (6,)),
    "linear-over-time": (lambda: nn.Sequential(nn.Linear(6, 6), nn.Tanh()), (4, 6)),
    "lstm": (lambda: nn.LSTM(6, 6, batch_first=True), (6,)),
    "lstm-over-time": (lambda: nn.LSTM(6, 6, batch_first=True), (4, 6)),
    "gru-over-time": (lambda: nn.GRU(6, 6, batch_first=True), (4, 6)),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(3, 3, 3, padding=1), nn.Tanh()), (3, 8)),
    "conv2d": (lambda: nn.Sequential(nn.Conv2d(2, 2, 3, padding="same"), nn.Tanh()), (2, 5, 4)),
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(params=NETWORKS)
def case(request):
    make, state = NETWORKS[request.param]
    return SDEBlock(make(), make()), state


def mlp(width=6):
    return nn.Sequential(nn.Linear(width, width), nn.Tanh())


def layer(forward):
    module = nn.Module()
    module.forward = forward
    return module


def train(module, x, updates=5):
    """Move every weight, so that nothing is as it was at construction."""
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    module.train()
    for _ in range(updates):
        optimiser.zero_grad()
        module(x).square().mean().backward()
        optimiser.step()


# The solvers: strong order


def brownian(steps, dt, samples, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(steps, samples, generator=generator, dtype=torch.float64) * math.sqrt(dt)


@pytest.mark.parametrize("name", SOLVERS)
def test_stated_order_is_the_one_measured_on_geometric_brownian_motion(name):
    step, order = SOLVERS[name]
    assert solvers.on_geometric_brownian_motion(step) == pytest.approx(order, abs=0.1 if order == 0.5 else 0.15)


@pytest.mark.parametrize("name", SOLVERS)
def test_order_one_on_ornstein_uhlenbeck(name):
    assert solvers.on_ornstein_uhlenbeck(SOLVERS[name].step) == pytest.approx(1.0, abs=0.1)


def test_known_orders_are_the_stated_ones():
    assert {name: solver.order for name, solver in SOLVERS.items()} == {
        "euler_maruyama": 0.5,
        "milstein": 1.0,
        "heun": 1.0,
    }
    assert [solver.step for solver in SOLVERS.values()] == [euler_maruyama, milstein, heun]


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_has_the_ito_mean(name):
    """For dz = sigma z dB the Itô mean stays at 1; the Stratonovich mean would be exp(sigma² / 2) = 1.65."""
    dW = brownian(64, 1 / 64, 40_000, seed=1)
    end = solve(
        torch.ones(40_000, dtype=torch.float64), torch.zeros_like, torch.clone, 1 / 64, dW, step=SOLVERS[name].step
    )
    assert end.mean().item() == pytest.approx(1.0, abs=4 * math.sqrt((math.e - 1) / 40_000))


# The solvers: against torchsde


def torchsde_end(f, g, z0, T, dt, method, options=None):
    """torchsde's answer and the Brownian increments it used."""
    sde = layer(lambda z: z)
    sde.noise_type, sde.sde_type = "diagonal", "ito"
    sde.f, sde.g = lambda t, z: f(z), lambda t, z: g(z)
    ts = torch.tensor([0.0, T], dtype=torch.float64)
    path = torchsde.BrownianInterval(0.0, T, size=z0.shape, dtype=torch.float64, entropy=7)
    end = torchsde.sdeint(sde, z0, ts, bm=path, method=method, dt=dt, options=options)[-1]
    return end, torch.stack([path(k * dt, (k + 1) * dt) for k in range(round(T / dt))])


def coupled(z):
    return torch.sin(z) - 0.3 * z.roll(1, -1)


@pytest.mark.parametrize(
    ("step", "method", "options", "f", "g"),
    [
        (euler_maruyama, "euler", None, coupled, lambda z: 0.5 * torch.cos(z.roll(1, -1))),
        (milstein, "milstein", None, coupled, lambda z: 0.4 * z + 0.1),  # g linear: the difference is the derivative
        (milstein, "milstein", {"grad_free": True}, torch.zeros_like, lambda z: 0.5 * torch.cos(z)),
    ],
    ids=["euler", "milstein, linear g", "milstein without derivatives, no drift"],
)
def test_equals_torchsde_on_the_same_path(step, method, options, f, g):
    z0 = torch.randn(20, 3, dtype=torch.float64)
    expected, dW = torchsde_end(f, g, z0, 1.0, 1 / 16, method, options)
    torch.testing.assert_close(solve(z0, f, g, 1 / 16, dW, step=step), expected, rtol=1e-11, atol=1e-11)


def test_milstein_is_near_torchsde_for_a_curved_diffusion():
    z0 = torch.randn(50, 3, dtype=torch.float64)
    g = lambda z: 0.5 * torch.cos(z)  # noqa: E731
    expected, dW = torchsde_end(coupled, g, z0, 1.0, 1 / 64, "milstein")
    near = (solve(z0, coupled, g, 1 / 64, dW, step=milstein) - expected).abs().mean()
    far = (solve(z0, coupled, g, 1 / 64, dW, step=euler_maruyama) - expected).abs().mean()
    assert near < 0.2 * far


# The solvers: closed-form law, limits, masks


@pytest.mark.parametrize("dropout", [0.0, 0.2, 0.6])
@pytest.mark.parametrize("shared", [False, True])
def test_moments_of_ornstein_uhlenbeck_are_those_of_the_scheme(dropout, shared):
    a, sigma, T, dt, start, samples = 0.8, 0.7, 2.0, 0.25, 1.5, 40_000
    steps, factor = 8, 1 - a * dt
    block = SDEBlock(
        layer(lambda z: -a * z), layer(lambda z: torch.full_like(z, sigma)), T=T, dt=dt, dropout=dropout, gain=None
    )
    paths, rows = (samples, 1) if shared else (1, samples)
    end = block.paths(torch.full((rows, 1), start), paths, Noise(3, shared)).double().flatten()
    mean = factor**steps * start
    variance = sigma**2 * dt * (1 - factor ** (2 * steps)) / (1 - factor**2) / (1 - dropout)
    centred = end - end.mean()
    fourth = centred.pow(4).mean().item()
    assert end.mean().item() == pytest.approx(mean, abs=4 * math.sqrt(variance / samples))
    assert centred.square().mean().item() == pytest.approx(
        variance, abs=4 * math.sqrt((fourth - variance**2) / samples)
    )


def plain_euler(z, f, dt, steps):
    for _ in range(steps):
        z = z + f(z) * dt
    return z


@pytest.mark.parametrize("step", [euler_maruyama, milstein])
def test_without_diffusion_the_solver_is_plain_euler_exactly(step):
    z, f = torch.randn(9, 5), lambda z: torch.tanh(z) - z
    end = solve(z, f, lambda z: z * 0, 0.1, torch.randn(7, 9, 5), step=step)
    assert torch.equal(end, plain_euler(z, f, 0.1, 7))


def test_without_diffusion_heun_averages_the_drift_of_both_ends():
    end = solve(torch.ones(1, dtype=torch.float64), lambda z: -z, lambda z: z * 0, 0.1, torch.randn(5, 1), step=heun)
    assert end.item() == pytest.approx((1 - 0.1 + 0.1**2 / 2) ** 5, rel=1e-12)


@pytest.mark.parametrize("gain", [None, 0.3, 50.0])
@pytest.mark.parametrize("shared", [False, True])
def test_without_diffusion_the_block_is_plain_euler_exactly(gain, shared):
    block = SDEBlock(mlp(), layer(lambda z: z * 0), T=1.0, dt=0.25, gain=gain)
    z = torch.randn(9, 6)
    train(block, z, updates=1)
    block.eval()
    expected = plain_euler(z, block.drift.bind(), 0.25, 4)
    assert torch.equal(block.paths(z, 1, Noise(0, shared))[0], expected)
    assert torch.equal(block(z), expected)


def test_masks_act_on_the_diffusion_of_their_step():
    z, dW = torch.tensor([1.0, 1.0]), torch.tensor([[0.5, 0.5], [-0.25, 0.5]])
    masks = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    states = list(trajectory(z, lambda z: z, lambda z: 2 * z, 0.1, dW, masks))
    # first component: 1 + .1 + 0, then 1.1 + .11 - 2 · 2.2 · .25; second: 1 + .1 + 2 · .5, then 2.1 + .21 + 0
    torch.testing.assert_close(torch.stack(states), torch.tensor([[1.1, 2.1], [0.11, 2.31]]))
    assert torch.equal(solve(z, lambda z: z, lambda z: 2 * z, 0.1, dW, masks), states[-1])


@pytest.mark.parametrize("name", SOLVERS)
def test_masked_trajectory_is_that_of_the_masked_diffusion(name):
    step, z, dW, masks = SOLVERS[name].step, torch.randn(4, 3), torch.randn(5, 4, 3), torch.rand(5, 4, 3).round() * 2
    states = list(trajectory(z, torch.sin, torch.cos, 0.2, dW, masks, step))
    expected = z
    for k, state in enumerate(states):
        expected = step(expected, torch.sin, lambda x, k=k: masks[k] * torch.cos(x), 0.2, dW[k])
        assert torch.equal(state, expected)
    assert len(states) == 5
    assert torch.equal(solve(z, torch.sin, torch.cos, 0.2, dW, masks, step=step), expected)


# Noise


def test_shared_noise_has_one_row_and_fresh_noise_one_for_each_row():
    shared, fresh = Noise(0, shared=True), Noise(0, shared=False)
    for draw in (lambda n: n.normal(2, 50, (3, 4)), lambda n: n.keep(0.5, 2, 50, (3, 4))):
        assert draw(shared).shape == (2, 1, 3, 4)
        assert draw(fresh).shape == (2, 50, 3, 4)


@pytest.mark.parametrize("shared", [False, True])
def test_same_seed_same_numbers_and_the_global_seed_does_not_matter(shared):
    def draw(seed, elsewhere=0):
        torch.manual_seed(elsewhere)
        noise = Noise(seed, shared)
        return torch.cat([noise.normal(2, 5, (3,)), noise.keep(0.3, 2, 5, (3,)), noise.normal(2, 5, (3,))])

    assert torch.equal(draw(4), draw(4, elsewhere=1))
    assert torch.equal(draw(4), draw(torch.Generator().manual_seed(4)))
    assert not torch.equal(draw(4), draw(5))


def test_noise_goes_on_from_draw_to_draw():
    noise = Noise(0, shared=True)
    assert not torch.equal(noise.normal(1, 1, (20,)), noise.normal(1, 1, (20,)))


def test_normal_numbers_are_standard_normal():
    x = Noise(1, shared=False).normal(4, 100, (250,)).double().flatten()
    assert x.mean().item() == pytest.approx(0, abs=4 / math.sqrt(x.numel()))
    assert x.var().item() == pytest.approx(1, abs=4 * math.sqrt(2 / x.numel()))
    assert x.pow(4).mean().item() == pytest.approx(3, abs=4 * math.sqrt(96 / x.numel()))


@pytest.mark.parametrize(("drop", "steps"), [(0.0001, 1), (0.05, 13), (0.2, 51), (0.5, 128), (0.9, 230), (0.9999, 255)])
def test_keep_is_zero_or_inverse_with_the_right_frequency(drop, steps):
    mask = Noise(2, shared=False).keep(drop, 4, 100, (50,))
    drop, dropped, n = steps / 256, (mask == 0), mask.numel()
    torch.testing.assert_close(mask[~dropped].unique(), torch.tensor([1 / (1 - drop)]))
    assert dropped.sum().item() == pytest.approx(drop * n, abs=4 * math.sqrt(n * drop * (1 - drop)))


def test_draw_gives_increments_of_variance_dt_and_one_mask_for_each():
    block = SDEBlock(mlp(), mlp(), T=1.5, dt=0.5, dropout=0.4)
    dW, masks = block.draw(5, 4000, (6,), Noise(0, shared=False))
    assert dW.shape == masks.shape == (3, 5, 4000, 6)
    assert dW.var().item() == pytest.approx(0.5, abs=4 * 0.5 * math.sqrt(2 / dW.numel()))
    assert (masks == 0).float().mean().item() == pytest.approx(0.4, abs=4 * math.sqrt(0.24 / masks.numel()))
    assert block.draw(5, 4000, (6,), Noise(0, shared=True))[0].shape == (3, 5, 1, 6)
    assert SDEBlock(mlp(), mlp(), dropout=0).draw(1, 2, (6,), Noise(0, shared=True))[1] is None


# The block as a layer


def test_block_is_a_layer_of_a_sequential_network(case):
    block, state = case
    network = nn.Sequential(nn.Linear(state[-1], state[-1]), block, nn.Flatten(), nn.Linear(math.prod(state), 1))
    z = torch.randn(11, *state)
    assert block(z).shape == z.shape
    assert network(z).shape == (11, 1)
    network(z).square().mean().backward()
    for name, parameter in network.named_parameters():
        # over a single time step a recurrent weight multiplies the zero start state
        idle = "weight_hh" in name and len(state) == 1
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().max() > 0 or idle, name


@pytest.mark.parametrize("solver", SOLVERS)
def test_gradients_reach_every_parameter_with_every_solver(solver):
    block = SDEBlock(mlp(), mlp(), solver=solver)
    block(torch.randn(5, 6)).square().mean().backward()
    assert "log_gain" in dict(block.named_parameters())
    for name, parameter in block.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().max() > 0, name


def test_two_passes_can_share_one_backward_pass(case):
    block, state = case
    z = torch.randn(3, *state)
    (block(z) + block(z)).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in block.parameters())


def test_gradient_is_that_of_finite_differences():
    block = SDEBlock(mlp(3), mlp(3), T=1.0).double().eval()
    z = torch.randn(2, 3, dtype=torch.float64)
    names, values = zip(*block.named_parameters(), strict=True)

    def end(z, *values):
        return torch.func.functional_call(block, dict(zip(names, values, strict=True)), (z,))

    assert torch.autograd.gradcheck(end, (z.requires_grad_(), *values))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("gain", [None, 0.4])
def test_block_solves_its_equation_with_the_drawn_noise(solver, gain):
    block = SDEBlock(mlp(), mlp(), T=1.0, dt=0.25, dropout=0.3, gain=gain, solver=solver).eval()
    z = torch.randn(5, 6)
    f, g, factor = block.drift.bind(), block.diffusion.bind(), 1.0 if gain is None else gain
    dW, masks = block.draw(2, 5, (6,), Noise(8, shared=False))
    ends = block.paths(z, 2, Noise(8, shared=False))
    for path in range(2):
        expected = z
        for k in range(4):
            noise = lambda x, m=masks[k, path]: factor * g(x) * m  # noqa: E731
            expected = SOLVERS[solver].step(expected, f, noise, 0.25, dW[k, path])
        torch.testing.assert_close(ends[path], expected)


def test_block_follows_the_weights_as_they_are_normalised():
    """Scaling a weight changes nothing, scaling a bias does."""
    block = SDEBlock(mlp(), mlp()).eval()
    z = torch.randn(5, 6)
    before = block(z)
    with torch.no_grad():
        block.drift.network[0].weight *= 7
    torch.testing.assert_close(block(z), before)
    with torch.no_grad():
        block.drift.network[0].bias += 1
    assert (block(z) - before).abs().max() > 0.1


def test_eval_result_of_a_row_does_not_depend_on_its_batch(case):
    block, state = case
    z = torch.randn(23, *state)
    train(block, z)
    block.eval()
    whole = block(z)
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(block(z.flip(0)).flip(0), whole, **close)
    for size in (1, 7):
        torch.testing.assert_close(torch.cat([block(part) for part in z.split(size)]), whole, **close)


def test_eval_repeats_bitwise_and_training_does_not(case):
    block, state = case
    z = torch.randn(7, *state)
    assert (block(z) - block(z)).abs().max() > 0.01
    block.eval()
    assert torch.equal(block(z), block(z))


def test_equal_rows_differ_in_training_and_agree_in_eval(case):
    block, state = case
    z = torch.randn(1, *state).repeat(2, *[1] * len(state))
    first, second = block(z)
    assert (first - second).abs().max() > 0.01
    first, second = block.eval()(z)
    torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-6)


def test_dropout_stays_on_in_eval():
    """A diffusion of ones and no drift: components that are masked at every step keep their start value."""
    block = SDEBlock(layer(lambda z: z * 0), layer(torch.ones_like), T=1.0, dt=1.0, dropout=0.5, gain=None).eval()
    moved = block(torch.zeros(1, 2000)) != 0
    assert moved.float().mean().item() == pytest.approx(0.5, abs=4 * math.sqrt(0.25 / 2000))


def test_same_seed_same_training_noise_and_another_seed_another():
    blocks = [SDEBlock(mlp(), mlp(), seed=seed) for seed in (1, 1, 2)]
    for block in blocks[1:]:
        block.load_state_dict(blocks[0].state_dict())
    z = torch.randn(4, 6)
    first, same, other = ([block(z), block(z), block.eval()(z)] for block in blocks)
    for a, b, c in zip(first, same, other, strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_paths_with_shared_noise_give_a_row_the_same_result_in_any_batch(case):
    block, state = case
    block.eval()
    z = torch.randn(9, *state)
    whole = block.paths(z, 3, Noise(5, shared=True))
    alone = block.paths(z[:1], 3, Noise(5, shared=True))
    assert whole.shape == (3, *z.shape)
    torch.testing.assert_close(whole[:, :1], alone, rtol=1e-5, atol=1e-6)
    assert (whole[0] - whole[1]).abs().max() > 0.01


def test_trajectories_has_a_state_for_each_step_and_ends_where_paths_does(case):
    block, state = case
    block.eval()
    z = torch.randn(4, *state)
    states = list(block.trajectories(z, 2, Noise(5, shared=False)))
    assert len(states) == block.steps == 6
    assert all(s.shape == (2, *z.shape) for s in states)
    torch.testing.assert_close(states[-1], block.paths(z, 2, Noise(5, shared=False)))


def test_rows_and_paths_do_not_mix(case):
    block, state = case
    block.eval()
    z = torch.randn(3, *state)
    other = z.clone()
    other[0] += 1
    end, changed = (block.paths(x, 2, Noise(5, shared=False)) for x in (z, other))
    torch.testing.assert_close(changed[:, 1:], end[:, 1:], rtol=1e-5, atol=1e-6)
    assert (changed[:, 0] - end[:, 0]).abs().flatten(1).amax(1).min() > 0.01


def test_diffuse_is_the_diffusion_network_without_gain_and_mask(case):
    block, state = case
    block.eval()
    z = torch.randn(2, 3, *state)
    torch.testing.assert_close(block.diffuse(z), torch.stack([block.diffusion(path) for path in z]))


def test_copies_and_stored_states_give_identical_results(case):
    block, state = case
    z = torch.randn(5, *state)
    train(block, z)
    block.eval()
    expected = block(z)
    twin = copy.deepcopy(block)
    other = SDEBlock(copy.deepcopy(block.drift.network), copy.deepcopy(block.diffusion.network), gain=2.0).eval()
    for parameter in other.parameters():
        nn.init.normal_(parameter)
    assert not torch.equal(other(z), expected)
    other.load_state_dict(block.state_dict())
    assert torch.equal(twin(z), expected)
    assert torch.equal(other(z), expected)


def test_a_copy_shares_nothing_with_the_original():
    block = SDEBlock(mlp(), mlp())
    z = torch.randn(4, 6)
    expected = copy.deepcopy(block)(z)
    twin = copy.deepcopy(block)
    train(twin, z)
    assert torch.equal(block(z), expected)


def test_block_takes_double_precision():
    block = SDEBlock(mlp(), nn.LSTM(6, 6, batch_first=True)).eval()
    z = torch.randn(4, 6)
    single = block(z)
    double = block.double()(z.double())
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), single, rtol=1e-5, atol=1e-5)


# Bad input


@pytest.mark.parametrize(
    ("T", "dt", "message"),
    [
        (1.0, 0.3, "T=1.0 is not a multiple of dt=0.3: use dt="),
        (1.0, 4.0, "T=1.0 is not a multiple of dt=4.0: use dt=1"),
        (1.0, 0.0, "T=1.0, dt=0.0: expected a positive end time and a positive step"),
        (1.0, -0.5, "T=1.0, dt=-0.5: expected a positive"),
        (-1.0, 0.5, "T=-1.0, dt=0.5: expected a positive"),
        (-1.0, -0.5, "T=-1.0, dt=-0.5: expected a positive"),
        (0.0, 0.5, "T=0.0, dt=0.5: expected a positive"),
        (math.nan, 0.5, "T=nan, dt=0.5: expected a positive"),
        (1.0, math.nan, "T=1.0, dt=nan: expected a positive"),
        (math.inf, 0.5, "T=inf, dt=0.5: expected a positive"),
    ],
)
def test_bad_times_are_named(T, dt, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        SDEBlock(mlp(), mlp(), T=T, dt=dt)


@pytest.mark.parametrize(
    ("T", "dt", "steps"), [(3.0, 0.5, 6), (0.3, 0.1, 3), (1, 1, 1), (1.0, 1 / 3, 3), (2.1, 0.7, 3)]
)
def test_steps_are_counted_despite_rounding(T, dt, steps):
    assert count_steps(T, dt) == steps


@pytest.mark.parametrize(("T", "dt"), [(1.0, 0.3), (1.0, 0.15), (2.0, 0.7), (1.0, 4.0)])
def test_remedy_for_an_uneven_step_works_as_printed(T, dt):
    with pytest.raises(ValueError, match="use dt=") as error:
        count_steps(T, dt)
    dt, steps = re.search(r"use dt=(\S+) for (\d+) steps", str(error.value)).groups()
    assert count_steps(T, float(dt)) == int(steps)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"dropout": 1.0}, "dropout=1.0: expected a probability at least 0 and below 1"),
        ({"dropout": -0.1}, "dropout=-0.1: expected a probability"),
        ({"dropout": math.nan}, "dropout=nan: expected a probability"),
        ({"gain": 0.0}, "gain=0.0: expected a positive start value, or None"),
        ({"gain": -1.0}, "gain=-1.0: expected a positive start value"),
        ({"gain": math.nan}, "gain=nan: expected a positive start value"),
        ({"solver": "rk4"}, "solver='rk4': expected one of euler_maruyama, milstein, heun"),
    ],
)
def test_bad_settings_are_named(setting, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        SDEBlock(mlp(), mlp(), **setting)


def test_networks_that_change_the_shape_are_named():
    z, wide = torch.zeros(2, 6), nn.Linear(6, 7)
    with pytest.raises(ValueError, match=re.escape("drift turned a state of shape (6,) into (7,): it must keep")):
        SDEBlock(wide, mlp())(z)
    with pytest.raises(ValueError, match=re.escape("diffusion turned a state of shape (6,) into (7,): it must keep")):
        SDEBlock(mlp(), wide)(z)
    with pytest.raises(ValueError, match=re.escape("drift turned a state of shape (2, 8) into (2, 6)")):
        SDEBlock(nn.Conv1d(2, 2, 3), nn.Conv1d(2, 2, 3, padding=1))(torch.zeros(3, 2, 8))


@pytest.mark.parametrize("recurrent", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_networks_must_be_batch_first(recurrent):
    for networks in ((recurrent(6, 6), mlp()), (mlp(), recurrent(6, 6))):
        with pytest.raises(ValueError, match="needs batch_first=True: rows are the first axis"):
            SDEBlock(*networks)


# Spectral normalisation


def norms(spectral):
    return {k: torch.linalg.matrix_norm(w.double().flatten(1), ord=2).item() for k, w in spectral.weights().items()}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("training", [True, False])
def test_effective_weights_have_norm_one_at_construction(name, training):
    network = NETWORKS[name][0]()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter *= 30
    spectral = SpectralNorm(network).train(training)
    matrices = {name for name, parameter in network.named_parameters() if "weight" in name}
    assert norms(spectral) == dict.fromkeys(matrices, pytest.approx(1, abs=1e-5))


@pytest.mark.parametrize("name", ["linear", "lstm", "conv1d", "conv2d"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_norm_follows_the_weights_through_training(name, seed):
    """Updates as large as those of Adam at a rate of 0.001; with far larger ones a single iteration falls behind."""
    torch.manual_seed(seed)
    make, state = NETWORKS[name]
    spectral, z = SpectralNorm(make()), torch.randn(3, *state)
    start = copy.deepcopy(spectral.network)
    for _ in range(200):
        with torch.no_grad():
            for parameter in spectral.network.parameters():
                parameter += 0.001 * torch.randn_like(parameter)
            spectral.train()(z)
        assert norms(spectral.eval()) == dict.fromkeys(spectral.names, pytest.approx(1, abs=0.02))
    for weight, old in ((network.get_parameter(n) for network in (spectral.network, start)) for n in spectral.names):
        assert (weight - old).norm() > 0.03 * old.norm()


@pytest.mark.parametrize("name", ["linear", "lstm", "conv1d", "conv2d"])
def test_norm_returns_to_one_after_a_jump_of_the_weights(name):
    make, state = NETWORKS[name]
    spectral, z = SpectralNorm(make()), torch.randn(3, *state)
    with torch.no_grad():
        for parameter in spectral.network.parameters():
            parameter.copy_(torch.randn_like(parameter))
    assert max(norms(copy.deepcopy(spectral).eval()).values()) > 1.2
    for _ in range(200):
        spectral(z)
    assert norms(spectral.eval()) == dict.fromkeys(spectral.names, pytest.approx(1, abs=1e-3))


def test_training_forward_updates_the_buffers_and_eval_forward_does_not(case):
    block, state = case
    z = torch.randn(3, *state)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter += torch.randn_like(parameter)
    before = {name: buffer.clone() for name, buffer in block.named_buffers()}
    assert before
    block.eval()(z)
    assert all(torch.equal(buffer, before[name]) for name, buffer in block.named_buffers())
    block.train()(z)
    assert all((buffer - before[name]).abs().max() > 1e-4 for name, buffer in block.named_buffers())


def test_restart_makes_weights_set_from_outside_exact_again():
    spectral = SpectralNorm(nn.LSTM(6, 6, batch_first=True)).eval()
    with torch.no_grad():
        for parameter in spectral.network.parameters():
            parameter.copy_(torch.randn_like(parameter))
    assert max(norms(spectral).values()) > 1.5
    spectral.restart()
    assert norms(spectral) == dict.fromkeys(spectral.names, pytest.approx(1, abs=1e-5))


@pytest.mark.parametrize("shape", [(5, 6), (5, 4, 6)])
def test_lstm_runs_with_its_weights_divided_by_their_norms(shape):
    lstm = nn.LSTM(6, 6, num_layers=2, batch_first=True)
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter *= 10
    manual, spectral, z = copy.deepcopy(lstm), SpectralNorm(lstm), torch.randn(shape)
    with torch.no_grad():
        for name, parameter in manual.named_parameters():
            if "weight" in name:
                parameter /= torch.linalg.matrix_norm(parameter, ord=2)
    expected = manual(z.reshape(5, -1, 6))[0].reshape(shape)
    torch.testing.assert_close(spectral(z), expected, rtol=1e-5, atol=1e-5)
    assert (lstm(z.reshape(5, -1, 6))[0].reshape(shape) - expected).abs().max() > 0.01


def test_weights_that_decay_to_nothing_keep_finite_gradients():
    """Recurrent weights of an LSTM on sequences of length one are used by nothing and only decay."""
    norm = SpectralNorm(nn.Linear(4, 4))
    with torch.no_grad():
        norm.network.weight.mul_(1e-25)
    out = norm.train()(torch.ones(2, 4)).sum()
    out.backward()
    assert out.isfinite()
    assert norm.network.weight.grad.isfinite().all()
    assert torch.linalg.matrix_norm(norm.weights()["weight"], ord=2) <= 1


@pytest.mark.parametrize("training", [False, True])
def test_layers_that_share_a_product_give_what_they_give_apart(training):
    """A third part in a network, which changes nothing, keeps f and g apart."""
    generator = torch.Generator().manual_seed(0)
    layers = [nn.Linear(6, 6) for _ in range(2)]
    for parameter in (p for layer in layers for p in layer.parameters()):
        nn.init.normal_(parameter, generator=generator)
    ends = []
    for more in ([], [nn.Identity()]):
        f, g = (nn.Sequential(copy.deepcopy(layer), nn.Tanh(), *more) for layer in layers)
        block = SDEBlock(f, g, dropout=0.3, gain=0.7).train(training)
        z = torch.randn(5, 6, generator=torch.Generator().manual_seed(1)).requires_grad_()
        end = block.paths(z, 4, Noise(3, shared=False))
        end.square().sum().backward()
        ends.append((end, z.grad, block.drift.network[0].weight.grad, block.log_gain.grad))
    for one, other in zip(*ends, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("paths", [1, 4, 5])
def test_opposite_paths_are_mirror_images_and_each_is_brownian(paths):
    block = SDEBlock(nn.Linear(3, 3), nn.Linear(3, 3), T=2.0, dt=0.5, dropout=0.2)
    dW, masks = block.draw(paths, 2000, (3,), Noise(0, shared=False))
    assert dW.shape == masks.shape == (4, paths, 2000, 3)
    half = -(-paths // 2)
    torch.testing.assert_close(dW[:, half:], -dW[:, : paths - half])
    assert dW.flatten(2).var(-1).flatten().tolist() == pytest.approx([0.5] * 4 * paths, rel=0.1)
    assert all((masks[:, i] != masks[:, j]).any() for i in range(paths) for j in range(i))
