"""Swish."""

import torch
from torch import nn

rows = 2048
cols = 1024


class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
