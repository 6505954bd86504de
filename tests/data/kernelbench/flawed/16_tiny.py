"""Shapes that no GPU is busy with."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, w):
        return torch.tanh(x @ w)


def get_inputs():
    return [torch.randn(8, 16), torch.randn(16, 8)]


def get_init_inputs():
    return []
