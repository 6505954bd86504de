"""From CUDA text to PTX, CUBIN and what a kernel takes of a GPU. Needs neither a GPU nor a toolkit."""

from __future__ import annotations

from kernelmate.compiler.build import read_build
from kernelmate.compiler.nvrtc import compile_kernel
from kernelmate.compiler.occupancy import occupancy, what_would_lift
from kernelmate.compiler.targets import TARGETS, SmLimits, find_target, sm_limits

__all__ = [
    "TARGETS",
    "SmLimits",
    "compile_kernel",
    "find_target",
    "occupancy",
    "read_build",
    "sm_limits",
    "what_would_lift",
]
