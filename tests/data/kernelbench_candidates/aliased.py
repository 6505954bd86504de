"""Returns its input's memory."""

from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        return x.copy_(F.gelu(x))
