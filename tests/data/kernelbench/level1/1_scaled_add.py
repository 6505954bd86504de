"""A sum of two arrays, one of them scaled."""

import torch
from torch import nn

rows = 2048
cols = 1024


class Model(nn.Module):
    def forward(self, x, y):
        return 0.7 * x + y


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols)]


def get_init_inputs():
    return []
