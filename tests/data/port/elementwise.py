"""A chain of operations on several inputs."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b, c):
        return torch.where(a > b, torch.sigmoid(a * c), torch.exp(-(b**2))) + c.abs()


def get_inputs():
    return [torch.randn(9, 40), torch.randn(9, 40), torch.randn(9, 40)]


def get_init_inputs():
    return []
