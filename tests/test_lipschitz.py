import math

import pytest
import torch
from torch import nn

from itocast.lipschitz import RULES, Lipschitz, lipschitz_bound
from itocast.sde import SDEBlock
from itocast.spectral import SpectralNorm

LAYERS = {nn.Linear, nn.Conv1d, nn.Conv2d, nn.LSTM, nn.Dropout, nn.Flatten}  # every other rule is an activation's
NETWORKS = {  # the network's maker, the shape of one row, and the number of time steps
    "linear": (lambda: nn.Linear(6, 6), (6,), 1),
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 6), nn.Tanh()), (6,), 1),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(3, 3, 3, padding=1), nn.Tanh()), (3, 8), 1),
    "conv1d-dilated": (lambda: nn.Conv1d(3, 3, 3, padding="same", dilation=2), (3, 8), 1),
    "conv2d": (lambda: nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.Tanh()), (2, 5, 4), 1),
    "lstm": (lambda: nn.LSTM(5, 5, batch_first=True), (1, 5), 1),
    "lstm-over-time": (lambda: nn.LSTM(5, 5, batch_first=True), (5, 5), 5),
    "lstm-of-two-layers": (lambda: nn.LSTM(5, 5, num_layers=2, batch_first=True), (5, 5), 5),
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def mlp(width=4):
    return nn.Sequential(nn.Linear(width, width), nn.Tanh())


def layer(forward):
    module = nn.Module()
    module.forward = forward
    return module


def scale(module, factor):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter *= factor
    return module


def output(network):
    """The network as a function, without an LSTM's last states."""
    return lambda x: network(x)[0] if isinstance(network, nn.RNNBase) else network(x)


def largest_ratio(f, shape, pairs=400):
    """The largest ‖f(a) - f(b)‖ / ‖a - b‖ over pairs far and near, small and large."""
    worst = 0.0
    for size in (0.1, 1.0, 10.0):
        for distance in (1e-4, 1.0):
            a = size * torch.randn(pairs, *shape, dtype=torch.float64)
            b = a + size * distance * torch.randn_like(a)
            with torch.no_grad():
                ratio = (f(a) - f(b)).flatten(1).norm(dim=1) / (a - b).flatten(1).norm(dim=1)
            worst = max(worst, ratio.max().item())
    return worst


def jacobian_norm(f, at):
    """The largest singular value of the Jacobian at one row."""
    jacobian = torch.autograd.functional.jacobian(lambda x: f(x[None])[0].flatten(), at)
    return torch.linalg.matrix_norm(jacobian.flatten(1), ord=2).item()


def largest_jacobian_norm(f, shape, points=6):
    at = (2.0**-k * 2 * torch.randn(shape, dtype=torch.float64) for k in range(points))
    return max(jacobian_norm(f, x) for x in at)


def open_gates(lstm, weight, gate=2):
    """One gate reads weight · x, the others are held open; with gate 2 the LSTM adds up tanh(weight · x)."""
    size = lstm.hidden_size
    rows = slice(gate * size, (gate + 1) * size)
    with torch.no_grad():
        for name, parameter in lstm.named_parameters():
            parameter.fill_(30.0 if name.startswith("bias_ih") else 0.0)
            if name.startswith("weight_ih"):
                parameter[rows] = weight
            if name.startswith("bias_ih"):
                parameter[rows] = 0.0
    return lstm.double()


# Bounds hold


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("factor", [0.3, 1.0, 8.0])
def test_no_slope_exceeds_the_bound_of_a_raw_network(name, factor):
    make, shape, length = NETWORKS[name]
    network = scale(make(), factor).double()
    bound, unknown = lipschitz_bound(network, length)
    assert unknown == ()
    assert math.isfinite(bound)
    assert largest_ratio(output(network), shape) <= bound
    assert largest_jacobian_norm(output(network), shape) <= bound


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("gain", [None, 0.3])
def test_no_slope_exceeds_the_bounds_of_a_block(name, gain):
    """The weights move after construction, so their normalisation is no longer exact: the bound must know."""
    make, shape, length = NETWORKS[name]
    block = SDEBlock(make(), make(), gain=gain).double().eval()
    scale(block, 5.0)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    factor = 1.0 if gain is None else block.log_gain.exp().item()
    bounds = block.lipschitz(length)
    for f, bound in ((block.drift, bounds.f), (lambda z: factor * block.diffuse(z[None])[0], bounds.g)):
        assert largest_ratio(f, shape) <= bound
        assert largest_jacobian_norm(f, shape) <= bound


def test_theorem_one_holds_with_K():
    block = SDEBlock(mlp(), mlp(), gain=0.7).double().eval()
    a, b = torch.randn(2, 500, 4, dtype=torch.float64)
    with torch.no_grad():
        left = sum((f(a) - f(b)).norm(dim=1) for f in (block.drift, lambda z: 0.7 * block.diffusion(z)))
    assert (left <= block.lipschitz().K * (a - b).norm(dim=1)).all()


@pytest.mark.parametrize("dropout", [0.5, 0.99])
def test_dropout_counts_while_it_is_on(dropout):
    network = nn.Sequential(nn.Linear(4, 4), nn.Dropout(dropout)).double()
    plain = lipschitz_bound(network[0]).value
    assert lipschitz_bound(network).value == pytest.approx(plain / (1 - dropout))
    assert lipschitz_bound(network.eval()).value == plain


def test_dropout_between_the_layers_of_an_lstm_counts_while_it_is_on():
    lstm = open_gates(nn.LSTM(8, 8, num_layers=2, dropout=0.75, batch_first=True), torch.eye(8))

    def f(x):
        torch.manual_seed(0)  # the same components are dropped in every call
        return lstm(x)[0]

    slope = jacobian_norm(f, torch.zeros(1, 8, dtype=torch.float64))
    assert slope == pytest.approx(4.0)
    assert slope <= lipschitz_bound(lstm, length=1).value
    assert lipschitz_bound(lstm.eval(), length=1).value == pytest.approx(1.0, rel=1e-5)


def test_layers_used_twice_count_twice():
    twice = nn.Linear(4, 4)
    network = nn.Sequential(twice, twice)
    with torch.no_grad():
        twice.weight.copy_(3 * torch.eye(4))
    assert lipschitz_bound(network).value == pytest.approx(9, rel=1e-5)
    bend = nn.SiLU()
    assert lipschitz_bound(nn.Sequential(bend, bend)).value == pytest.approx(lipschitz_bound(bend).value ** 2)


# Bounds are tight where the answer is known


@pytest.mark.parametrize(("inputs", "outputs"), [(4, 4), (7, 2), (1, 5)])
def test_bound_of_a_linear_layer_is_its_spectral_norm(inputs, outputs):
    linear = nn.Linear(inputs, outputs)
    expected = torch.linalg.svdvals(linear.weight.double()).max().item()
    assert lipschitz_bound(linear).value == pytest.approx(expected, rel=1e-5)


def test_bound_of_a_smoothing_convolution_is_nearly_attained():
    """A kernel of ones adds up its places: 3 in one dimension and 9 in two."""
    line, plane = nn.Conv1d(1, 1, 3, padding=1), nn.Conv2d(1, 1, 3, padding=1)
    for conv, places, shape in ((line, 3, (1, 60)), (plane, 9, (1, 24, 24))):
        nn.init.ones_(conv.weight)
        bound = lipschitz_bound(conv).value
        assert bound == pytest.approx(places, rel=1e-5)
        x = torch.ones(1, *shape)
        slope = (conv(x) - conv(0 * x)).norm() / x.norm()
        assert 0.9 * bound < slope.item() <= bound


@pytest.mark.parametrize("length", [1, 2, 5])
def test_bound_of_an_lstm_with_open_gates_is_attained(length):
    """With its gates held open an LSTM adds up tanh(Wx): its slope at zero is ‖W‖ times that of a running sum."""
    weight = torch.randn(3, 3)
    lstm = open_gates(nn.LSTM(3, 3, batch_first=True), weight)
    running_sum = torch.linalg.matrix_norm(torch.ones(length, length).tril(), ord=2)
    expected = (torch.linalg.matrix_norm(weight, ord=2) * running_sum).item()
    assert jacobian_norm(output(lstm), torch.zeros(length, 3, dtype=torch.float64)) == pytest.approx(expected, rel=1e-5)
    assert lipschitz_bound(lstm, length).value == pytest.approx(expected, rel=1e-5)


def test_bound_of_an_lstm_with_feedback_is_attained():
    """With open gates, h_t = h_{t-1} + tanh(w x_t + u h_{t-1}): at zero, h_t answers x_s by w (1 + u)^(t - s)."""
    w, u, length = 0.7, 0.4, 4
    lstm = open_gates(nn.LSTM(1, 1, batch_first=True), w)
    with torch.no_grad():
        lstm.weight_hh_l0[2] = u
    answers = [[w * (1 + u) ** (t - s) if s <= t else 0.0 for s in range(length)] for t in range(length)]
    expected = torch.linalg.matrix_norm(torch.tensor(answers), ord=2).item()
    assert jacobian_norm(output(lstm), torch.zeros(length, 1, dtype=torch.float64)) == pytest.approx(expected, rel=1e-5)
    assert lipschitz_bound(lstm, length).value == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("gate", "length", "cell"), [(0, 1, 0.5), (1, 2, 1.5), (3, 1, 0.0)])
def test_bound_of_an_lstm_counts_every_gate(gate, length, cell):
    """What is lost is the slope of the last tanh at the cell's value; the output gate comes after it."""
    lstm = open_gates(nn.LSTM(1, 1, batch_first=True), 5.0, gate)
    slope = jacobian_norm(output(lstm), torch.zeros(length, 1, dtype=torch.float64))
    assert slope == pytest.approx(lipschitz_bound(lstm, length).value * (1 - math.tanh(cell) ** 2), rel=1e-5)


def test_bound_of_an_lstm_grows_with_the_sequence():
    lstm = nn.LSTM(4, 4, batch_first=True)
    bounds = [lipschitz_bound(lstm, length).value for length in (1, 2, 5, 10)]
    assert bounds == sorted(set(bounds))


def steepest_slope(activation):
    x = torch.linspace(-12, 12, 480_001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(activation(x).sum(), x)
    return slope.abs().max().item()


ACTIVATIONS = [kind() for kind in RULES if kind not in LAYERS] + [
    nn.GELU(approximate="tanh"), nn.ELU(0.5), nn.ELU(3.0), nn.ELU(-2.0), nn.LeakyReLU(0.3), nn.LeakyReLU(4.0),
    nn.LeakyReLU(-2.0), nn.Softplus(beta=3.0),
]  # fmt: skip


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_bound_of_an_activation_is_its_steepest_slope(activation):
    slope, bound = steepest_slope(activation), lipschitz_bound(activation).value
    assert slope <= bound <= 1.01 * slope


def test_every_rule_is_tested():
    assert set(RULES) == LAYERS | set(map(type, ACTIVATIONS))


def test_flatten_keeps_distances():
    assert lipschitz_bound(nn.Flatten()).value == 1.0


def test_spectral_norm_makes_a_large_layer_a_contraction():
    network = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Sigmoid())
    scale(network, 20)
    assert lipschitz_bound(network).value > 10
    assert lipschitz_bound(SpectralNorm(network)).value == pytest.approx(0.25, rel=1e-4)


# What is not known


def opaque():
    return layer(lambda z: z**2)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: nn.LayerNorm(4), "LayerNorm"),
        (lambda: nn.BatchNorm1d(4), "BatchNorm1d"),
        (opaque, "Module"),
        (lambda: nn.Conv1d(4, 4, 3, padding=1, groups=2), "Conv1d"),
        (lambda: nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular"), "Conv1d"),
        (lambda: nn.LSTM(4, 2, bidirectional=True, batch_first=True), "LSTM"),
        (lambda: nn.LSTM(4, 8, proj_size=4, batch_first=True), "LSTM"),
        (lambda: SDEBlock(mlp(), mlp()), "SDEBlock"),
    ],
    ids=["layer norm", "batch norm", "own module", "groups", "padding", "bidirectional", "projected", "block"],
)
def test_layers_without_a_bound_give_infinity_and_their_name(make, kind):
    assert lipschitz_bound(make(), length=1) == (math.inf, (f"itself ({kind})",))
    assert lipschitz_bound(nn.Sequential(nn.Tanh(), mlp(), make()), length=1) == (math.inf, (f"2 ({kind})",))
    bounds = SDEBlock(mlp(), nn.Sequential(mlp(), make())).lipschitz(length=1)
    assert math.isfinite(bounds.f)
    assert bounds.g == bounds.K == math.inf
    assert bounds.unknown == (f"diffusion.1 ({kind})",)
    assert f"no bound is known for diffusion.1 ({kind}), so Theorem 1 is not shown to hold" in str(bounds)


def test_an_lstm_has_no_bound_before_its_length_is_known():
    def lstm():
        return nn.LSTM(4, 4, batch_first=True)

    block = SDEBlock(lstm(), lstm())
    assert block.lipschitz().unknown == ("drift.itself (LSTM, pass length=)", "diffusion.itself (LSTM, pass length=)")
    assert "Theorem 1 is not shown to hold" in str(block.lipschitz())
    assert block.lipschitz(length=1).f < block.lipschitz(length=5).f < math.inf


def test_all_unknown_layers_are_named_with_their_place():
    deep = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.LayerNorm(4), nn.Tanh()), opaque())
    assert lipschitz_bound(deep).unknown == ("1.0 (LayerNorm)", "2 (Module)")
    text = str(SDEBlock(deep, nn.Sequential(nn.BatchNorm1d(4))).lipschitz())
    assert all(name in text for name in ("drift.1.0 (LayerNorm)", "drift.2 (Module)", "diffusion.0 (BatchNorm1d)"))


def test_unknown_layer_after_a_constant_one_still_gives_infinity():
    dead = nn.Linear(4, 4)
    nn.init.zeros_(dead.weight)
    assert lipschitz_bound(nn.Sequential(dead, nn.LayerNorm(4))).value == math.inf


def test_a_sequential_with_its_own_forward_is_not_taken_for_a_chain():
    class Residual(nn.Sequential):
        def forward(self, z):
            return z + super().forward(z)

    residual = Residual(nn.Linear(4, 4))
    with torch.no_grad():
        residual[0].weight.copy_(torch.eye(4))
    assert lipschitz_bound(residual).value >= 2


def test_bounds_without_unknown_layers_say_that_the_theorem_holds():
    assert str(Lipschitz(1.0, 0.5)) == "f: 1.000, g: 0.500; Theorem 1 holds with K = 1.500"
    block = SDEBlock(mlp(), mlp(), gain=0.25)
    assert math.isclose(block.lipschitz().K, 1.25, rel_tol=1e-4)
    assert SDEBlock(mlp(), mlp(), gain=None).lipschitz().g == pytest.approx(1.0, rel=1e-4)


def test_a_module_with_its_own_bound_is_used():
    own = layer(lambda z: 3 * z)
    own.lipschitz = lambda length: 3.0 * length
    assert lipschitz_bound(own, length=1) == (3.0, ())
    assert lipschitz_bound(nn.Sequential(own, nn.Sigmoid()), length=4) == (3.0, ())
    assert SDEBlock(own, mlp(), gain=None).lipschitz(length=2).f == 6.0


def test_a_module_with_its_own_bound_sees_the_normalised_weights():
    class Doubled(nn.Linear):
        def forward(self, z):
            return 2 * super().forward(z)

        def lipschitz(self, length):
            return 2 * torch.linalg.matrix_norm(self.weight, ord=2).item()

    own = scale(Doubled(4, 4), 10)
    assert lipschitz_bound(own).value > 3
    assert lipschitz_bound(SpectralNorm(own)).value == pytest.approx(2.0, rel=1e-5)


# Asking changes nothing


@pytest.mark.parametrize("training", [True, False])
def test_asking_leaves_weights_flags_and_results_as_they_were(training):
    def network():
        return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.5), nn.LayerNorm(4))

    block = SDEBlock(network(), network()).train(training)
    scale(block, 3.0)
    before = {name: value.clone() for name, value in block.state_dict().items()}
    block.lipschitz()
    assert all(torch.equal(value, before[name]) for name, value in block.state_dict().items())
    assert {module.training for module in block.modules()} == {training}


def test_asking_leaves_weights_as_they_were_when_a_rule_fails():
    own = layer(lambda z: z)
    own.lipschitz = lambda length: 1 / 0
    block = SDEBlock(nn.Sequential(nn.Linear(4, 4), own), mlp())
    scale(block, 3.0)
    before = {name: value.clone() for name, value in block.state_dict().items()}
    with pytest.raises(ZeroDivisionError):
        block.lipschitz()
    assert all(torch.equal(value, before[name]) for name, value in block.state_dict().items())
    assert block.drift.training


def test_asking_keeps_a_part_in_eval_mode_there():
    block = SDEBlock(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), mlp())
    block.drift.network[1].eval()
    block.lipschitz()
    assert block.drift.network[0].training
    assert not block.drift.network[1].training


def test_asking_between_forward_and_backward_does_no_harm():
    block = SDEBlock(mlp(), mlp())
    loss = block(torch.randn(3, 4)).square().mean()
    block.lipschitz()
    loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in block.parameters())
