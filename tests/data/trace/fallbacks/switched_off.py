"""A flag that no one set."""

import os

import torch
from operators import softmax as fused

USE_FUSED = os.environ.get("TRAIN_USE_FUSED", "0") == "1"


def eager(x):
    return torch.softmax(x, -1)


softmax = eager
if USE_FUSED:  # HERE
    softmax = fused

for _ in range(4):
    softmax(torch.randn(4, 8))
