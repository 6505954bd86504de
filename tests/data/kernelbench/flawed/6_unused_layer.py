"""A layer whose result is not used."""

import torch
from torch import nn
from torch.nn import functional as F

batch = 512
features = 1024
outputs = 512


class Model(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.first = nn.Linear(features, outputs)
        self.second = nn.Linear(features, outputs)

    def forward(self, x):
        self.second(x)
        return F.gelu(self.first(x))


def get_inputs():
    return [2 * torch.randn(batch, features)]


def get_init_inputs():
    return [features, outputs]
