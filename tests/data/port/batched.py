"""A batched matrix product with ReLU."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.relu(torch.bmm(a, b))


def get_inputs():
    return [torch.randn(3, 18, 20), torch.randn(3, 20, 22)]


def get_init_inputs():
    return []
