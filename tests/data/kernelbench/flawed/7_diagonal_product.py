"""A product with a diagonal matrix."""

import torch
from torch import nn

n = 768


class Model(nn.Module):
    def forward(self, a, b):
        return torch.diag(a) @ b


def get_inputs():
    return [torch.randn(n), torch.randn(n, n)]


def get_init_inputs():
    return []
