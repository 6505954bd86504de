"""The program gives the method of one layer, and of no other, to another function."""

import operators
import torch


def plain(x):
    return torch.softmax(x, -1)


model = torch.nn.Sequential(torch.nn.Linear(8, 8), operators.FusedSoftmax())
model[1].forward = plain  # HERE
for _ in range(2):
    model(torch.randn(4, 8))
