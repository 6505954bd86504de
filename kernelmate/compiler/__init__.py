"""Compiles CUDA text to PTX and CUBIN, and determines a kernel's resources. Needs neither a GPU nor a toolkit.

The compiler is imported on first use, so that programs that only read the table of GPUs start faster.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kernelmate.compiler.occupancy import cluster_refusal, last_wave, occupancy, required_cluster, what_would_lift
from kernelmate.compiler.targets import TARGETS, SmLimits, find_target, sm_limits

if TYPE_CHECKING:
    from kernelmate.compiler.build import read_build
    from kernelmate.compiler.disassembly import sass, sass_mix
    from kernelmate.compiler.nvrtc import compile_kernel, compile_many
    from kernelmate.compiler.nvrtc_input import Request

__all__ = [
    "TARGETS",
    "Request",
    "SmLimits",
    "cluster_refusal",
    "compile_kernel",
    "compile_many",
    "find_target",
    "last_wave",
    "occupancy",
    "read_build",
    "required_cluster",
    "sass",
    "sass_mix",
    "sm_limits",
    "what_would_lift",
]

_HOMES = {
    "read_build": "build",
    "sass": "disassembly",
    "sass_mix": "disassembly",
    "Request": "nvrtc_input",
    "compile_kernel": "nvrtc",
    "compile_many": "nvrtc",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
