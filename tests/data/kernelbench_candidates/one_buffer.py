"""Returns the same memory at every call."""

import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffer = None

    def forward(self, x):
        if self.buffer is None:
            self.buffer = torch.empty_like(x)
        return self.buffer.copy_(F.gelu(x))
