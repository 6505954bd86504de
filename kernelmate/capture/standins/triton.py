"""Wrapper of Triton in a program that `kernelmate capture` runs without a GPU."""

import kernelmate_here  # noqa: F401 -- first, since it explains a failure

from kernelmate.capture.library_wrappers import is_captured, real_module

real_module("triton")
if is_captured():
    from kernelmate.capture.triton_launches import follow_triton

    follow_triton()
