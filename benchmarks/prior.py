"""What parts of the prior's training are worth: short runs with and without each, on the same data.

`python benchmarks/prior.py` trains every form for 800 steps, 200 of them at a falling rate, and
scores it on synthetic series that no form saw: some 15 minutes of one core.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from itocast import SDEBlock
from itocast.prior import pretraining
from itocast.prior.inputs import CANDIDATES, growth_at, read
from itocast.prior.network import COMPONENTS, WIDTH, Network
from itocast.prior.pretraining import Batch, Run, batches, loss_of, stable_rate
from itocast.sde import Noise
from short_series.rows import Row, made, page, table

OUT = Path(__file__).parent / "results" / "prior.md"
STEPS, DECAY = 600, 200
UNSEEN = 10**6  # the first block of data that no run gets to
ABOUT = (
    "The loss is CRPS relative to the size of past changes, and 0.4 of the negative log density, on "
    "series that no form saw. All forms learn from the same series in the same order, so that small "
    "differences mean something. `with the SDE-block` puts z_T = z + ∫f dt + ∫g dB between encoder "
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


FORMS: dict[str, Callable[[Run], None]] = {
    "as it is": as_it_is,
    "with the SDE-block": with_block,
    "AdamW for all weights": adamw_alone,
}


def trained(change: Callable[[Run], None]) -> tuple[Network, float]:
    """The network of a short run, and its processor seconds."""
    run = Run(pretraining.SEED)
    change(run)
    began = time.process_time()
    for k in range(STEPS + DECAY):
        run.step(stable_rate(k) * min(1.0, (STEPS + DECAY - k - 1) / DECAY))
    return run.network.eval(), time.process_time() - began


@torch.no_grad()
def loss(network: Network, batch: Batch) -> float:
    """Of a batch that was not learned from."""
    context, units = read(batch.values, batch.seasons)
    y = ((batch.y - units.level) / units.unit).clamp(-1e4, 1e4).float()
    leads = batch.leads.expand(len(y), -1)
    return loss_of(network(context, batch.leads), y, growth_at(context.by_steps, leads).exp()).item()


def main() -> None:
    torch.set_num_threads(1)
    unseen = [batch for block in range(UNSEEN, UNSEEN + 13) for batch in batches(1, block)[:2]]
    rows: list[Row] = []
    for name, change in FORMS.items():
        network, seconds = trained(change)
        scores = torch.tensor([loss(network, batch) for batch in unseen])
        rows.append({"form": name, "loss": scores.mean().item(), "scores": scores, "processor seconds": seconds})
        print(name, rows[-1]["loss"], f"{seconds:.0f} s", flush=True)
    first = rows[0]["scores"]
    for row in rows:
        apart = row.pop("scores") - first
        row["± (of the difference)"] = (apart.std() / len(apart) ** 0.5).item()
    frame = pd.DataFrame(rows).assign(made=made())
    shown = {"form": "", "loss": ".4f", "± (of the difference)": ".4f", "processor seconds": ".0f"}
    title, command = "The prior: what its parts are worth", "python benchmarks/prior.py"
    text = page(OUT, title, command, ABOUT, [table(frame, shown)], frame)
    print(text)


if __name__ == "__main__":
    main()
