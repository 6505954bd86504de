"""Places of the largest elements of rows."""

import torch
from torch import nn

rows = 2048
cols = 1024


class Model(nn.Module):
    def forward(self, x):
        return x.argmax(dim=1)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
