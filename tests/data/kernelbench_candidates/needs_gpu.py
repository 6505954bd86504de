"""Needs a GPU."""

import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        return F.gelu(x.to(torch.device("cuda")))
