"""Batches from generators, an empty one among them, and results from a comprehension."""

import torch
from operators import softmax as fused


def batches():
    for rows in (4, 0, 8):
        yield torch.randn(rows, 8)


def softmax(x):
    if x.numel() == 0:
        return torch.empty_like(x)
    return fused(x)


def results():
    yield from (softmax(one) for one in batches())


sums = [float(one.sum()) for one in results() if one.shape[0]]
assert len(sums) == 2
