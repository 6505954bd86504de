"""A program with a dispatch mode and a profiler of its own."""

import torch
from operators import softmax
from torch.utils._python_dispatch import TorchDispatchMode


class Names(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


with Names() as mode:
    softmax(torch.randn(4, 8))
assert "rows.softmax.default" in mode.names

with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    softmax(torch.randn(4, 8))
assert any(one.key == "rows::softmax" for one in profile.key_averages())
softmax(torch.randn(4, 8))
