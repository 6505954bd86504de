"""Loads compiled code onto the GPU without recompiling."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any

from kernelmate.backends.cuda.faults import fault_of
from kernelmate.records import Compiled, Finding, FindingCode

MAX_DYNAMIC_SHARED = 8
"""`CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES` of `cuda.h`."""

_NOT_LOADABLE = frozenset({200, 209, 218, 222, 300, 301})
"""`cuda.h`: an invalid image, no image for this GPU, and code that is too new for the driver."""


def load_failure(compiled: Compiled, status: int, words: str) -> Finding:
    """Returns the finding for code that the driver does not load.

    `status` is a `CUresult`, `words` the driver's message.
    """
    if status in _NOT_LOADABLE:
        message = f"the driver cannot load code for {compiled.arch} ({words}); choose the target of this GPU"
        return Finding(FindingCode.UNSUPPORTED_INSTRUCTION, "error", message)
    return fault_of(status, words, traps=False).finding


def load_function(compiled: Compiled, *, cooperative: bool = False) -> Any:
    """Returns the kernel in the CUBIN, as a cupy.RawKernel.

    A cooperative one silently cuts a grid down to the blocks that are on the device at once, so it is for cooperative
    launches alone.
    """
    import cupy

    handle, path = tempfile.mkstemp(suffix=".cubin")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(compiled.cubin)
        module = cupy.RawModule(path=path, enable_cooperative_groups=cooperative)
        kernel = module.get_function(compiled.lowered_name)
        kernel.compile()
        return kernel
    finally:
        os.unlink(path)


@dataclass(frozen=True, slots=True)
class CodeCopy:
    """One more copy of a kernel's code on the GPU.

    Attributes:
        kernel: its cupy.cuda.function.Function, which keeps the module alive.
    """

    kernel: Any

    @classmethod
    def loaded(cls, compiled: Compiled) -> CodeCopy:
        """Load the code once more."""
        from cupy.cuda.function import Module

        module = Module()
        module.load(compiled.cubin)
        return cls(module.get_function(compiled.lowered_name))

    def take_shared(self, count: int) -> None:
        """Opts in to this number of bytes of dynamic shared memory."""
        from cupy.cuda import driver

        driver.funcSetAttribute(self.kernel.ptr, MAX_DYNAMIC_SHARED, count)
