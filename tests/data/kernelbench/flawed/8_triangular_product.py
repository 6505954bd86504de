"""A product of triangular matrices."""

import torch
from torch import nn

n = 768


class Model(nn.Module):
    def forward(self, a, b):
        return torch.tril(a) @ torch.tril(b)


def get_inputs():
    return [torch.randn(n, n), torch.randn(n, n)]


def get_init_inputs():
    return []
