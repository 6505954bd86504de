"""Eager training: the operator and its backward."""

import torch
from operators import FusedSoftmax

model = torch.nn.Sequential(torch.nn.Linear(8, 8), FusedSoftmax(), torch.nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(torch.randn(6, 8)), torch.randint(2, (6,))).backward()
    optimizer.step()
