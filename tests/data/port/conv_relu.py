"""A convolution with an added bias and ReLU."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, results):
        super().__init__()
        self.conv = nn.Conv2d(inputs, results, 3, padding=1)
        self.bias = nn.Parameter(torch.randn(results, 1, 1))

    def forward(self, x):
        return torch.relu(self.conv(x)) + self.bias


def get_inputs():
    return [torch.randn(2, 3, 12, 14)]


def get_init_inputs():
    return [3, 8]
