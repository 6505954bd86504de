"""Defines another class."""

from torch import nn


class Faster(nn.Module):
    def forward(self, x):
        return x
