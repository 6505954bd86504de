"""Two operators, chosen by size: neither is a fallback of the other."""

import torch
from operators import softmax as small


@torch.library.custom_op("rows::softmax_large", mutates_args=())
def large(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def softmax(x):
    return small(x) if x.shape[-1] <= 1024 else large(x)


for columns in (8, 16, 32):
    softmax(torch.randn(4, columns))
