"""A mean over millions of random elements is always the same."""

import torch
from torch import nn
from torch.nn import functional as F

rows = 2048
cols = 1024


class Model(nn.Module):
    def forward(self, x, y):
        return F.mse_loss(x, y)


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols)]


def get_init_inputs():
    return []
