"""The eight largest elements of each row."""

import torch
from torch import nn

rows = 4096
cols = 512


class Model(nn.Module):
    def forward(self, x):
        return torch.topk(x, 8, dim=1).values


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
