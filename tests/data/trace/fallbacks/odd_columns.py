"""A guard on the last dimension."""

import torch
from operators import softmax as fused


def softmax(x):
    if x.shape[-1] % 4 != 0:  # HERE
        return torch.softmax(x, -1)
    return fused(x)


for columns in (8, 7, 16, 9, 5):
    softmax(torch.randn(4, columns))
