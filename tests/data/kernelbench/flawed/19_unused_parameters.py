"""A layer that a saturated gate closes."""

import torch
from torch import nn

batch = 512
features = 1024


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return x * torch.sigmoid(self.linear(x) - 60.0) + x


def get_inputs():
    return [2 * torch.randn(batch, features)]


def get_init_inputs():
    return [features]
