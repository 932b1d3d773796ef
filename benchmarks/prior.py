"""What parts of the prior's training are worth: short runs with and without each, on the same data.

`python benchmarks/prior.py` trains every form for 800 steps, a quarter of them at a falling rate,
and scores it on synthetic series that no form saw: 3 to 4 minutes of one core for each form and
seed. Results are rows of a file, written as they come; `--missing` leaves those that are there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from itocast import SDEBlock
from itocast.prior import Prior, pretraining
from itocast.prior.inputs import CANDIDATES, read
from itocast.prior.loss import loss_of
from itocast.prior.network import COMPONENTS, WIDTH, Network
from itocast.prior.pretraining import Batch, Run, batches, stable_rate
from itocast.sde import Noise
from short_series.rows import Key, Row, Rows, page, table

OUT = Path(__file__).parent / "results" / "prior"
STEPS = 800
SHORTER = 0.78  # times the steps with the SDE-block, which take longer: as much time
UNSEEN = 10**6  # the first block of data that no run gets to
ABOUT = (
    "The loss is CRPS relative to the size of past changes, and 0.4 of the negative log density, on "
    "series that no form saw; means over seeds of the first weights. All forms learn from the same "
    "series in the same order. `with the SDE-block` puts z_T = z + ∫f dt + ∫g dB between encoder "
    "and head, as the fitted networks have it: weights and means from z_T, widths from g(z_T)."
)


class BlockHead(nn.Module):
    """The head behind an SDE-block of two steps: widths from g(z_T), all else from z_T."""

    def __init__(self) -> None:
        super().__init__()
        self.block = SDEBlock(field(), field(), T=1.0, dt=0.5, dropout=0.0, gain=0.1)
        self.others = nn.Linear(WIDTH, CANDIDATES + 1 + 2 * COMPONENTS)
        self.widths = nn.Linear(WIDTH, COMPONENTS)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """What the head of the network gives, (rows, steps, …)."""
        self.calls += 1
        noise = Noise(self.calls, shared=False)
        with torch.autocast("cpu", enabled=False):
            end, g = self.block.ends(x.float().flatten(0, 1), 1, noise)
            others, widths = (part[0].unflatten(0, x.shape[:2]) for part in (self.others(end), self.widths(g)))
        first, last = others.split([CANDIDATES + 1 + COMPONENTS, COMPONENTS], -1)
        return torch.cat([first, widths, last], -1)


def field() -> nn.Module:
    """Drift or diffusion."""
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())


def as_it_is(run: Run) -> None:
    """Nothing is changed."""


def with_block(run: Run) -> None:
    """An SDE-block before the head, which begins as the head without it does."""
    head = BlockHead()
    with torch.no_grad():
        for linear in (head.others, head.widths):
            linear.weight.mul_(0.1)
            linear.bias.zero_()
        head.others.bias[-COMPONENTS:] = torch.linspace(-1, 1, COMPONENTS)
    run.network.head = head  # type: ignore[assignment]
    run.optimisers = pretraining.optimisers_of(run.network)


def adamw_alone(run: Run) -> None:
    """AdamW for all weights."""
    parts: dict[bool, list[nn.Parameter]] = {False: [], True: []}
    for parameter in run.network.parameters():
        parts[parameter.ndim > 1].append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": part, "weight_decay": pretraining.DECAY * wide} for wide, part in parts.items()
    ]
    run.optimisers = [torch.optim.AdamW(groups, lr=pretraining.RATE, betas=pretraining.MEMORY, fused=True)]


FORMS: dict[str, tuple[Callable[[Run], None], int]] = {  # what changes, and the steps
    "as it is": (as_it_is, STEPS),
    "with the SDE-block": (with_block, STEPS),
    "with the SDE-block, as much time": (with_block, round(SHORTER * STEPS)),
    "AdamW for all weights": (adamw_alone, STEPS),
}


def measure(form: str, seed: int) -> Row:
    """Train and score a form."""
    change, steps = FORMS[form]
    run = Run(pretraining.SEED)
    run.network = pretraining.fresh_network(seed)
    run.optimisers = pretraining.optimisers_of(run.network)
    change(run)
    began = time.process_time()
    for k in range(steps):
        run.step(stable_rate(k) * min(1.0, 4 * (1 - (k + 1) / steps)))
    seconds = time.process_time() - began
    unseen = [batch for block in range(UNSEEN, UNSEEN + 13) for batch in batches(1, block)[:2]]
    run.network.eval()
    scores = [loss(run.network, batch) for batch in unseen]
    return {"steps": steps, "loss": sum(scores) / len(scores), "seconds": seconds}


@torch.no_grad()
def loss(network: Network, batch: Batch) -> float:
    """Of a batch that was not learned from."""
    context, units = read(batch.values, batch.seasons)
    return loss_of(network(context, batch.leads), batch.y, context, units, batch.leads).item()


def summary(frame: pd.DataFrame) -> str:
    """A line for each form."""
    lines = [
        {
            "form": form, "steps": part["steps"].iloc[0], "seeds": len(part), "loss": part["loss"].mean(),
            "lowest": part["loss"].min(), "highest": part["loss"].max(), "processor seconds": part["seconds"].mean(),
        }
        for form, part in frame.groupby("form", sort=False)
    ]  # fmt: skip
    shown = {
        "form": "", "steps": "d", "seeds": "d", "loss": ".4f", "lowest": ".4f", "highest": ".4f",
        "processor seconds": ".0f",
    }  # fmt: skip
    return table(pd.DataFrame(lines), shown)


def speed(length: int, series: int, horizon: int = 12) -> float:
    """Processor milliseconds of a forecast of one of so many series, the median of five runs."""
    values = torch.randn(series, length, generator=torch.Generator().manual_seed(0)).cumsum(1).double()
    seasons = torch.tensor([[12, 0]]).expand(series, 2)
    prior = Prior.load()
    prior.law(values, seasons, horizon)
    taken = []
    for _ in range(5):
        began = time.process_time()
        prior.law(values, seasons, horizon)
        taken.append(1000 * (time.process_time() - began) / series)
    return median(taken)


def speeds() -> str:
    """A line for each length of the past."""
    lines = [
        {"values": length, "ms a series, 1,000 at once": speed(length, 1000), "ms, one alone": speed(length, 1)}
        for length in (36, 120, 400, 1024)
    ]
    return table(pd.DataFrame(lines), {"values": "d", "ms a series, 1,000 at once": ".2f", "ms, one alone": ".2f"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2, help="of the first weights")
    parser.add_argument("--missing", action="store_true", help="run only what the file has not")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = Rows(OUT.with_suffix(".csv"), ("form", "seed"))
    keys: list[Key] = [{"form": form, "seed": seed} for seed in range(arguments.seeds) for form in FORMS]
    rows.fill(keys, measure, arguments.missing)
    title, command = "The prior: what its parts are worth", "python benchmarks/prior.py"
    parts = [summary(rows.frame), "Processor milliseconds of a law of 12 steps:", speeds()]
    print(page(OUT.with_suffix(".md"), title, command, ABOUT, parts, rows.frame))


if __name__ == "__main__":
    main()
