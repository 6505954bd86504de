"""A loop's condition returns another result before the operator."""

import torch
from operators import softmax as fused


def softmax(x):
    while x.requires_grad:  # HERE
        return torch.softmax(x, -1)
    return fused(x)


for _ in range(3):
    softmax(torch.randn(4, 8, requires_grad=True)).sum().backward()
softmax(torch.randn(4, 8))
