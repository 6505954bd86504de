"""A linear layer and the larger half of its columns."""

import torch
from torch import nn

batch = 512
features = 1024
outputs = 512


class Model(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.linear = nn.Linear(features, outputs)

    def forward(self, x):
        y = self.linear(x)
        left, right = y.chunk(2, dim=1)
        return torch.maximum(left, right)


def get_inputs():
    return [2 * torch.randn(batch, features)]


def get_init_inputs():
    return [features, outputs]
