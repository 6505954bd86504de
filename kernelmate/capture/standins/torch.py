"""Wrapper of PyTorch in a program that `kernelmate capture` runs without a GPU."""

import kernelmate_here  # noqa: F401 -- first, since it explains a failure

from kernelmate.capture.library_wrappers import follow_torch, is_captured, real_module

_module = real_module("torch")
if is_captured():
    follow_torch(_module)
