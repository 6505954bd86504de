"""The wrapper asks whether it is compiled, and leaves the operator out then."""

import torch
from operators import softmax as fused


class Softmax(torch.nn.Module):
    def forward(self, x):
        if torch.compiler.is_compiling():  # HERE
            return torch.softmax(x, -1)
        return fused(x)


model = torch.nn.Sequential(torch.nn.Linear(8, 8), Softmax())
model(torch.randn(4, 8))
compiled = torch.compile(model, backend="aot_eager")
for _ in range(3):
    compiled(torch.randn(4, 8))
