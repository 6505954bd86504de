"""Average pooling, then a scale."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool2d(3, stride=2)

    def forward(self, x):
        return self.pool(x) * 2


def get_inputs():
    return [torch.randn(3, 5, 17, 19)]


def get_init_inputs():
    return []
