"""The operator runs in evaluation, and never in training."""

import torch
from operators import FusedSoftmax


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.softmax = torch.nn.Linear(8, 8), FusedSoftmax()

    def forward(self, x):
        scores = self.linear(x)
        if self.training:  # HERE
            return torch.softmax(scores, -1)
        return self.softmax(scores)


model = Head()
for _ in range(3):
    model(torch.randn(4, 8)).log().mean().backward()
model.eval()
with torch.inference_mode():
    model(torch.randn(4, 8))
