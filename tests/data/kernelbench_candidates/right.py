"""Right, with another formula."""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))
