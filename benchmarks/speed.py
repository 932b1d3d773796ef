"""How near a step of training and a forecast are to their matrix products alone, and where the rest of the time goes.

On the embedded Metro data in the practical protocol of `peers.py`. The products are those that the work itself makes,
with their shapes and strides, and nothing else; both are timed in turn, in a process of their own for each line of the
tables, and the figures are medians. Writes benchmarks/results/speed.md.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from against.settings import load
from against.work import peak_memory
from itocast import Forecaster
from itocast.data.windows import Windows
from itocast.models import SDEHNN
from itocast.models.sde_hnn import Block
from itocast.nets import Encoder, Inputs
from itocast.optimiser import Optimiser
from itocast.paper.outputs import digits, markdown
from itocast.schedule import Training
from itocast.sde import Noise
from itocast.storage import write_bytes
from itocast.training import batches, predict_batch

RESULT = Path(__file__).parent / "results" / "speed.md"
RATE = 1e-4
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "addmm_")
KINDS = {  # operations by what they are for; what is left is of the interpreter and of operations around memory
    "matrix products": PRODUCTS,
    "random numbers": ("random_", "normal_", "ge"),
    "activations": ("sin", "cos", "sigmoid_", "tanh_backward", "relu_", "clamp_min", "threshold_backward"),
    "optimiser": ("_fused_adamw_", "lerp_", "linalg_vector_norm"),
    "data": ("index", "embedding", "index_select"),
    "other arithmetic": (
        "mul", "mul_", "add", "add_", "sub", "sub_", "sum", "div", "div_", "addcmul", "exp", "exp_", "neg", "square",
        "logsumexp", "_log_softmax", "_log_softmax_backward_data", "logaddexp", "pow", "mean", "dot", "mv",
    ),
    "copies": ("cat", "copy_", "fill_", "zero_", "clone"),
}  # fmt: skip


class Case(NamedTuple):
    """A size of the model and of its batches."""

    name: str = "the default"
    batch: int = 512
    hidden: int = 256
    dt: float = 1.5
    training_paths: int = 2
    paths: int = 16
    threads: int = 1


STEPS = [
    Case(), *(Case(f"batches of {n}", batch=n) for n in (64, 128, 256, 1024)),
    *(Case(f"{n} hidden units", hidden=n) for n in (128, 512)), *(Case(f"{n} paths", training_paths=n) for n in (4, 8)),
    *(Case(f"{round(3 / dt)} solver steps", dt=dt) for dt in (3.0, 0.75)), Case("2 threads", threads=2),
]  # fmt: skip
FORECASTS = [
    Case(batch=256), *(Case(f"batches of {n}", batch=n) for n in (32, 1024)),
    *(Case(f"{n} paths", batch=256, paths=n) for n in (4, 64)), Case("512 hidden units", batch=256, hidden=512),
    Case("4 solver steps", batch=256, dt=0.75), Case("2 threads", batch=256, threads=2),
]  # fmt: skip


class Recorder(TorchDispatchMode):
    """Keeps every matrix product that is made, with operands of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], Any]] = []
        self.flops = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.overloadpacket.__name__ in PRODUCTS:
            kept = [part.detach().clone() if isinstance(part, Tensor) else part for part in args]  # strides as they are
            left, right = [part for part in kept if isinstance(part, Tensor)][-2:]
            self.flops += 2 * left.numel() * right.shape[-1]
            self.calls.append(lambda: function(*kept, **(kwargs or {})))
        return function(*args, **(kwargs or {}))

    @torch.no_grad()
    def again(self) -> None:
        for call in self.calls:
            call()


class Work(NamedTuple):
    """What is timed for a case, and how many rows it is."""

    run: Callable[[], Any]
    rows: int


def training(case: Case, plain: bool = False) -> Work:
    """Steps of training, batches and optimiser included."""
    rows, model = _parts(case)
    feed = endless(rows, case.batch, by=case.batch if plain else None)
    if plain:
        return Work(PlainStep(model.train(), feed), case.batch)
    optimiser = Optimiser(model.train(), "adamw", 1e-2, 50.0)
    noise = Noise(0, shared=False)

    def step() -> None:
        x, y = next(feed)
        loss = model.loss(x, y, noise)
        loss.backward()
        loss.item()
        optimiser.clip(10.0)
        optimiser.step(RATE)

    return Work(step, case.batch)


def forecast(case: Case) -> Work:
    """Laws of a batch, its reading included."""
    rows, model = _parts(case)
    return Work(lambda: predict_batch(model, rows.batch(slice(0, case.batch))[0], case.paths), case.batch)


def _parts(case: Case) -> tuple[Windows, SDEHNN]:
    torch.set_num_threads(case.threads)
    rows = load("metro", "practical").parts.train
    model = SDEHNN(rows.sizes, encoder=Encoder(hidden=case.hidden), block=Block(dt=case.dt))
    model.training_paths = case.training_paths
    return rows, model


def endless(rows: Windows, size: int, by: int | None) -> Iterator[tuple[Inputs, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    while True:
        order = torch.randperm(len(rows), generator=generator)
        yield from (rows.batch(index) for index in order.split(by)) if by else batches(rows, order, size)


class PlainStep:
    """The same step as one would write it: modules, autograd, an optimiser of torch, each batch gathered when due."""

    def __init__(self, model: SDEHNN, feed: Iterator[tuple[Inputs, Tensor]]) -> None:
        self.model, self.feed = model, feed
        self.optimiser = torch.optim.AdamW(model.parameters(), RATE, weight_decay=1e-2)
        self.mean = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn())

    def __call__(self) -> None:
        self.optimiser.zero_grad()
        self.loss(*next(self.feed)).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 10.0)
        self.optimiser.step()
        self.mean.update_parameters(self.model)

    def loss(self, x: Inputs, y: Tensor) -> Tensor:
        return -self._law(x).log_prob(y).mean()

    def _law(self, x: Inputs) -> Any:
        model, lags = self.model, x.lags.flatten(1)
        encoder: Any = model.encoder
        embed = encoder.embed
        angle = 2 * torch.pi * lags[:, -encoder.recent :, None] * embed.frequencies
        waves = torch.cat([angle.sin(), angle.cos()], -1)
        embedded = torch.relu(torch.einsum("rfw,fwd->rfd", waves, embed.weight) + embed.bias).flatten(1)
        z = torch.cat([lags, x.past[:, -1], x.known, embedded], 1)
        for layer in encoder.hidden:
            z = functional.dropout(torch.relu(layer(z)), encoder.dropout)
        noise = Noise(torch.default_generator, shared=False)
        end = list(model.block.trajectories(encoder.out(z), model.training_paths, noise))[-1]
        return model.head(end, model.block.diffuse(end), x)


def timed(works: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Median milliseconds of each, timed in turn."""
    found: list[list[float]] = [[] for _ in works]
    for turn in range(rounds + 3):
        for work, times in zip(works, found, strict=True):
            began = time.perf_counter()
            work()
            times += [1000 * (time.perf_counter() - began)] if turn >= 3 else []
    return [median(times) for times in found]


def compare(make: Callable[[Case], Work], case: Case, rounds: int) -> list[str]:
    """A line of a table: milliseconds of the products and of the whole, their ratio, rows a second, memory."""
    work = make(case)
    with Recorder() as recorder:
        work.run()
    products, whole = timed([recorder.again, work.run], rounds)
    speed = recorder.flops / products / 1e6
    return [
        case.name, digits(products), digits(whole), f"{whole / products:.2f}", f"{speed:.0f}",
        f"{1000 * work.rows / whole:,.0f}", f"{peak_memory():.0f}",
    ]  # fmt: skip


def shares(make: Callable[[Case], Work], case: Case, rounds: int) -> list[str]:
    """Which part of the time each kind of operation takes."""
    work = make(case)
    timed([work.run], 5)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        began = time.perf_counter()
        for _ in range(rounds):
            work.run()
        total = 1e6 * (time.perf_counter() - began)
    found = {event.key.removeprefix("aten::"): event.self_cpu_time_total for event in profiler.key_averages()}
    parts = [sum(found.get(name, 0.0) for name in names) / total for names in KINDS.values()]
    return [f"{100 * part:.0f} %" for part in [*parts, 1 - sum(parts)]]


def against_plain(rounds: int) -> list[float]:
    """Milliseconds of a step, and of a plain one, timed in turn."""
    return timed([training(Case()).run, training(Case(), plain=True).run], rounds)


def compiled(rounds: int) -> list[float]:
    """Seconds that `torch.compile` takes for the loss of a plain step, and milliseconds of loss and gradient after and
    before it, and of our own."""
    rows, model = _parts(Case())
    feed, noise = endless(rows, 512, by=None), Noise(0, shared=False)
    plain = PlainStep(model.train(), feed)

    def run(loss: Callable[[Inputs, Tensor], Tensor]) -> Callable[[], None]:
        return lambda: loss(*next(feed)).backward()

    fast = run(torch.compile(plain.loss))
    began = time.perf_counter()
    fast()
    seconds = time.perf_counter() - began
    ours = run(lambda x, y: model.loss(x, y, noise))
    return [seconds, *timed([fast, run(plain.loss), ours], rounds)]


def mirrored(seeds: int) -> list[list[str]]:
    """What mirrored pairs of paths change, at equal cost: deviations over seeds of forecast means and of gradients."""
    torch.set_num_threads(1)
    setting = load("metro", "practical")
    forecaster = Forecaster(1, window=24, data=setting.data, effort="fast").fit(setting.known, **setting.schema)
    model: Any = forecaster.fitted.network.model
    x, y = setting.parts.validation.batch(slice(0, 512))
    model.encoder.dropout = 0.0  # what is left is the noise of the block
    own = predict_batch(model, x, 256).variance.sqrt()

    def spread(paths: int) -> float:
        means = torch.stack([predict_batch(model, x, paths, seed).mean for seed in range(seeds)])
        return float((means.std(0) / own).mean())

    def gradients() -> float:
        found = []
        for seed in range(seeds):
            model.zero_grad()
            model.train().loss(x, y, Noise(seed, shared=False)).backward()
            found.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
        stacked = torch.stack(found)
        return float(stacked.var(0).sum().sqrt() / stacked.mean(0).norm())

    lines = []
    for model.block.opposite in (False, True):
        name = "mirrored pairs" if model.block.opposite else "independent paths"
        lines.append([name, *(f"{100 * spread(paths):.2f} %" for paths in (4, 16, 64)), f"{gradients():.3f}"])
    return lines


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help="how often each is timed")
    parser.add_argument("--compile", action="store_true", help="also time torch.compile, which needs a C++ compiler")
    given = parser.parse_args()
    rounds = given.rounds
    os.environ.pop("OMP_NUM_THREADS", None)
    heads = ["", "products, ms", "whole, ms", "ratio", "GFLOP/s of the products", "rows/s", "peak memory, MB"]
    tables = []
    for make, cases in ((training, STEPS), (forecast, FORECASTS)):
        lines = []
        for case in cases:
            lines.append(apart(compare, make, case, rounds))
            print("  ".join(lines[-1]), flush=True)
        tables.append(markdown(heads, lines))
    ours, plain = apart(against_plain, rounds)
    parts = [
        [name, *apart(shares, make, case, rounds)]
        for name, make, case in (
            ("training, batches of 512", training, STEPS[0]), ("training, batches of 128", training, STEPS[2]),
            ("forecasts, batches of 256", forecast, FORECASTS[0]),
        )
    ]  # fmt: skip
    pairs = markdown(["", "4 paths", "16 paths", "64 paths", "gradient"], apart(mirrored, 40))
    by_compiler = ""
    if given.compile:
        seconds, fast, slow, own = apart(compiled, rounds)
        by_compiler = (
            f" Loss and gradient alone: `torch.compile` makes {fast:.1f} ms of the plain form's {slow:.1f} ms, after "
            f"{seconds:.0f} s of compiling; ours take {own:.1f} ms."
        )
    text = (
        f"# Near the limit\n\n`python benchmarks/speed.py{' --compile' * given.compile}`, torch {torch.__version__}, "
        f"{Training().batch_size} rows a batch unless a line says otherwise. Products: the matrix products "
        "alone. Whole: a step of training with its batch and the optimiser, or the law of a batch with "
        "its reading. One thread but for the last lines.\n\n"
        f"## A step of training\n\n{tables[0]}\n\nThe same step as plain modules, autograd and `torch.optim.AdamW`: "
        f"{plain:.1f} ms beside {ours:.1f} ms in the same run, {plain / ours:.2f} times as long.{by_compiler}\n\n"
        f"## A batch of forecasts\n\n{tables[1]}\n\n## Where the time goes\n\n"
        f"{markdown(['', *KINDS, 'between operations'], parts)}\n\n## Mirrored paths\n\n"
        "How far the mean of a forecast moves from seed to seed, in shares of its law's deviation, and how far the "
        "gradient of a batch of 512 does with two paths, in shares of its norm; 40 seeds, a fitted model, dropout of "
        f"the encoder off.\n\n{pairs}\n"
    )
    write_bytes(RESULT, text.encode())
    print(f"Written: {RESULT}")


if __name__ == "__main__":
    main()
