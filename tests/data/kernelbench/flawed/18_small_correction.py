"""A layer whose share of the result is within a tolerance."""

import torch
from torch import nn

batch = 512
features = 1024


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return x + 1e-3 * torch.tanh(self.linear(x))


def get_inputs():
    return [2 * torch.randn(batch, features)]


def get_init_inputs():
    return [features]
