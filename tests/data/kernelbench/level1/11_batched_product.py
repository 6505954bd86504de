"""Products of a batch of matrices."""

import torch
from torch import nn

batch = 16
m = 128
n = 128
k = 512


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(batch, m, k), torch.randn(batch, k, n)]


def get_init_inputs():
    return []
