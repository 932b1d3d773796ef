"""The SDE-block inside a network of your own: a classifier whose logits are averaged over paths."""

import torch
from torch import nn

from itocast import SDEBlock
from itocast.sde import Noise

torch.manual_seed(0)  # for the first weights of the layers
random = torch.Generator().manual_seed(0)
x = torch.randn(400, 2, generator=random)
label = (x.square().sum(1) > 1.4).long()


def layer() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 16), nn.Tanh())


encoder, block, head = nn.Linear(2, 16), SDEBlock(drift=layer(), diffusion=layer(), T=3.0, dt=0.5), nn.Linear(16, 2)
network = nn.Sequential(encoder, block, head)  # the block keeps its input's shape
optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
for _ in range(150):
    loss = nn.functional.cross_entropy(network(x), label)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

network.eval()
with torch.no_grad():
    ends = block.paths(encoder(x), paths=16, noise=Noise(seed=1, shared=True))  # (paths, rows, 16)
    probability = head(ends).softmax(-1).mean(0)
accuracy = (probability.argmax(1) == label).double().mean()
print(f"accuracy over 16 paths: {100 * accuracy:.1f} %")
print(f"bounds: {block.lipschitz()}")
