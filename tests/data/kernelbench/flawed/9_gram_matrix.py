"""A product with its own transpose."""

import torch
from torch import nn

n = 512
k = 1024


class Model(nn.Module):
    def forward(self, x):
        return x @ x.T


def get_inputs():
    return [torch.randn(n, k)]


def get_init_inputs():
    return []
