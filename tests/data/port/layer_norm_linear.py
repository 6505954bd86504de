"""Layer normalisation, then a linear layer with ReLU."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 24)

    def forward(self, x):
        return torch.relu(self.fc(self.norm(x)))


def get_inputs():
    return [torch.randn(20, 48)]


def get_init_inputs():
    return [48]
