"""A mask that depends on no input."""

import torch
from torch import nn

batch = 2
n = 1024


class Model(nn.Module):
    def forward(self, x):
        mask = torch.tril(torch.ones(x.shape[1], x.shape[1]))
        return x * mask


def get_inputs():
    return [torch.randn(batch, n, n)]


def get_init_inputs():
    return []
