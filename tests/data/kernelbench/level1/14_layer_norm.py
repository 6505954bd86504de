"""Layer normalisation with weights."""

import torch
from torch import nn
from torch.nn import functional as F

rows = 2048
cols = 1024


class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cols))
        self.bias = nn.Parameter(torch.randn(cols))

    def forward(self, x):
        return F.layer_norm(x, (self.weight.shape[0],), self.weight, self.bias)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return [cols]
