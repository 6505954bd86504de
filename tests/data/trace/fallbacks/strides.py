"""A helper asks for contiguous rows, and a transposed view is not."""

import torch
from operators import softmax as fused


def supported(x):
    return x.is_contiguous() and x.dim() == 2


class Attention(torch.nn.Module):
    def forward(self, scores):
        weights = fused(scores) if supported(scores) else scores.softmax(-1)  # HERE
        return weights.sum()


model = Attention()
for _ in range(3):
    model(torch.randn(8, 8).t())
model(torch.randn(8, 8))
