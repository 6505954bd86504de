"""A matrix product, scaled, with a bias and a residual."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(40, 32) * 0.1)
        self.bias = nn.Parameter(torch.randn(40))
        self.scale = 0.5

    def forward(self, x, residual):
        return (torch.matmul(x, self.weight.t()) + self.bias) * self.scale + residual


def get_inputs():
    return [torch.randn(18, 32), torch.randn(18, 40)]


def get_init_inputs():
    return []
