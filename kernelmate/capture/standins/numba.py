"""Wrapper of Numba in a program that `kernelmate capture` runs without a GPU."""

import os

import kernelmate_here  # noqa: F401 -- first, since it explains a failure

from kernelmate.capture.library_wrappers import follow_numba, is_captured, real_module

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"  # read when Numba is imported
real_module("numba")
if is_captured():
    follow_numba()
