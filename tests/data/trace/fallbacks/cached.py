"""A table of earlier results answers in the operator's place."""

import torch
from operators import softmax as fused

_MASKS = {}


def mask(rows):
    if rows in _MASKS:  # HERE
        return _MASKS[rows]
    _MASKS[rows] = made = fused(torch.tril(torch.ones(rows, rows)))
    return made


for _ in range(5):
    mask(8)
