"""Group normalisation with SiLU."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x):
        return F.silu(self.norm(x))


def get_inputs():
    return [torch.randn(3, 16, 8, 9)]


def get_init_inputs():
    return []
