"""A decomposition stands for the operator in code that inductor makes."""

import torch
from operators import softmax
from torch._inductor.decomposition import register_decomposition


@register_decomposition(torch.ops.rows.softmax.default)  # HERE
def softmax_of_aten(x):
    return torch.ops.aten.softmax.int(x, -1)


class Head(torch.nn.Module):
    def forward(self, x):
        return softmax(x) * 2


model = torch.compile(Head())
with torch.no_grad():
    for _ in range(2):
        model(torch.randn(4, 8))
