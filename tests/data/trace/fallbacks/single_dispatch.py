"""`functools.singledispatch` takes the function of another class of tensors."""

import functools

import torch
from operators import softmax as fused


class Masked(torch.Tensor):
    pass


@functools.singledispatch
def softmax(x):
    return fused(x)


@softmax.register
def _(x: Masked):
    return torch.softmax(x.as_subclass(torch.Tensor), -1)


for _ in range(3):
    softmax(torch.randn(4, 8).as_subclass(Masked))  # HERE
