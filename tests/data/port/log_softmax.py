"""Logarithm of the softmax."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.log_softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(12, 50)]


def get_init_inputs():
    return []
