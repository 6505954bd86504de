"""Wrong from the ninth call on."""

from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return F.gelu(x) if self.calls < 9 else F.relu(x)
