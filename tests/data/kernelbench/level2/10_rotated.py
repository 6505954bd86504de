"""Pairs of columns, rotated by angles of their own."""

import torch
from torch import nn

rows = 4096
cols = 512


class Model(nn.Module):
    def forward(self, x, cosine, sine):
        left, right = x.chunk(2, dim=1)
        return torch.cat([left * cosine - right * sine, right * cosine + left * sine], dim=1)


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols // 2), torch.randn(rows, cols // 2)]


def get_init_inputs():
    return []
