"""A convolution, ReLU and maxima of windows."""

import torch
from torch import nn
from torch.nn import functional as F

batch = 8
channels = 32
side = 64


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3)

    def forward(self, x):
        return F.max_pool2d(F.relu(self.conv(x)), 2)


def get_inputs():
    return [2 * torch.randn(batch, channels, side, side)]


def get_init_inputs():
    return [channels]
