"""The program gives the operator's name in its module to another function."""

import operators
import torch


def plain(x):
    return torch.softmax(x, -1)


operators.softmax = plain  # HERE
model = torch.nn.Sequential(torch.nn.Linear(8, 8), operators.FusedSoftmax())
for _ in range(2):
    model(torch.randn(4, 8))
