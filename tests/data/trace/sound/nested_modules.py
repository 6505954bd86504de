"""Modules in modules, kept in a list and a dictionary."""

import torch
from operators import FusedSoftmax


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ModuleDict({"scores": torch.nn.Linear(8, 8), "softmax": FusedSoftmax()})
        self.scale = None

    def forward(self, x):
        x = self.parts["scores"](x)
        if self.scale is not None:
            x = x * self.scale
        return self.parts["softmax"](x)


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Attention() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


Encoder()(torch.randn(4, 8)).sum().backward()
