"""Operations that change nothing."""

import torch
from torch import nn
from torch.nn import functional as F

rows = 2048
cols = 1024


class Model(nn.Module):
    def forward(self, x):
        return torch.abs(F.relu(x)) * 1.0


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
