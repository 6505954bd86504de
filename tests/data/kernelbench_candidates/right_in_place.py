"""Right, in place on memory of its own."""

from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        y = F.gelu(x)
        y.add_(0.0)
        return y
