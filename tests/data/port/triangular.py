"""A product of lower triangular matrices."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.tril(torch.matmul(a, b))


def get_inputs():
    return [torch.randn(24, 24), torch.randn(24, 24)]


def get_init_inputs():
    return []
