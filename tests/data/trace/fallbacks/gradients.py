"""An operator without a formula for gradients is left out in training."""

import torch

library = torch.library.Library("scaled", "DEF")
library.define("gelu(Tensor x) -> Tensor")
library.impl("gelu", lambda x: x * torch.sigmoid(1.702 * x), "CPU")


def gelu(x):
    needs = torch.is_grad_enabled() and x.requires_grad
    if not needs:  # HERE
        return torch.ops.scaled.gelu(x)
    return torch.nn.functional.gelu(x)


layer = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    gelu(layer(torch.randn(4, 8))).sum().backward()
    optimizer.step()
with torch.no_grad():
    gelu(layer(torch.randn(4, 8)))
