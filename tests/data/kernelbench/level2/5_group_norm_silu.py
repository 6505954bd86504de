"""Group normalisation and SiLU."""

import torch
from torch import nn
from torch.nn import functional as F

batch = 8
channels = 32
side = 80


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return F.silu(F.group_norm(x, 8, self.weight, self.bias))


def get_inputs():
    return [torch.randn(batch, channels, side, side)]


def get_init_inputs():
    return [channels]
