"""One weight that is used twice."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 32) * 0.2)

    def forward(self, x):
        hidden = torch.relu(F.linear(x, self.weight))
        return torch.sigmoid(F.linear(hidden, self.weight))


def get_inputs():
    return [torch.randn(14, 32)]


def get_init_inputs():
    return []
