"""A matrix times a vector."""

import torch
from torch import nn

rows = 2048
cols = 1536


class Model(nn.Module):
    def forward(self, a, v):
        return a @ v


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(cols)]


def get_init_inputs():
    return []
