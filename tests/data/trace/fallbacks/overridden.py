"""A second registration takes the implementation's place."""

import torch

library = torch.library.Library("late", "DEF")
library.define("softmax(Tensor x) -> Tensor")


def fused(x):
    shifted = (x - x.amax(-1, keepdim=True)).exp()
    return shifted / shifted.sum(-1, keepdim=True)


library.impl("softmax", fused, "CPU")


def fallback(x):  # HERE
    return torch.softmax(x, -1)


patches = torch.library.Library("late", "IMPL")
patches.impl("softmax", fallback, "CPU", allow_override=True)
for _ in range(3):
    torch.ops.late.softmax(torch.randn(4, 8))
