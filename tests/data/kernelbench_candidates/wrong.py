"""The approximation by tanh, scaled wrongly."""

from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        return 1.1 * F.gelu(x, approximate="tanh")
