"""A table's `get` gives the function of another dtype, or a default."""

import torch
from operators import softmax as fused


def plain(x):
    return torch.softmax(x, -1)


TABLE = {torch.float32: fused, torch.float64: plain}


def softmax(x):
    return TABLE.get(x.dtype, plain)(x)  # HERE


for dtype in (torch.float64, torch.bfloat16):
    softmax(torch.randn(4, 8, dtype=dtype))
