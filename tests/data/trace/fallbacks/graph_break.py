"""A print before the operator breaks the graph of a compiled model."""

import torch
from operators import softmax


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        scores = self.linear(x)
        print("largest score", scores.max().item() > 100)  # HERE
        return softmax(scores)


model = torch.compile(Block(), backend="aot_eager")
for _ in range(2):
    model(torch.randn(4, 8))
