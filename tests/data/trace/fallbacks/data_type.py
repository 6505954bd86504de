"""Half precision goes to another implementation."""

import torch
from operators import softmax as fused


def softmax(x):
    match x.dtype:
        case torch.float32:
            y = fused(x)
        case _:  # HERE
            y = torch.softmax(x.float(), -1).to(x.dtype)
    return y


softmax(torch.randn(4, 8))
for _ in range(4):
    softmax(torch.randn(4, 8).half())
