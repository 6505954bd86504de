"""Loads compiled code onto the GPU without recompiling, and classifies CUDA's errors.

The kernel's errors become findings, the machine's exceptions. Codes as in `cuda.h`, `CUresult`.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any

from kernelmate.errors import DeviceFailed
from kernelmate.records import Compiled, Finding, FindingCode


@dataclass(frozen=True, slots=True)
class Fault:
    """Error that a launch ended with.

    Attributes:
        finding: the finding, without a source line.
        sticky: True if the context is lost and the process must be replaced.
    """

    finding: Finding
    sticky: bool


_STICKY = {
    700: (FindingCode.ILLEGAL_ADDRESS, "the kernel accessed memory that nothing is mapped at"),
    702: (FindingCode.HANG, "the driver stopped the kernel because it took too long"),
    710: (FindingCode.TRAP, "an assert of the kernel failed"),
    714: (FindingCode.ILLEGAL_ADDRESS, "the hardware stack was corrupted or overflowed"),
    715: (FindingCode.TRAP, "the kernel ran into an illegal instruction"),
    716: (FindingCode.MISALIGNED_ACCESS, "the kernel accessed memory off its alignment"),
    717: (FindingCode.ILLEGAL_ADDRESS, "an instruction for one address space was given an address of another"),
    718: (FindingCode.ILLEGAL_ADDRESS, "the program counter left the code"),
}
"""Errors of a kernel that destroy the context."""

LAUNCH_FAILED = 719
"""Driver code of a trap, and of faults without a code of their own."""

_LAUNCH = {
    1: "an argument of the launch is invalid",
    9: "the grid or block is larger than the device supports",
    701: "it takes more registers or shared memory than a block may have",
    720: "a cooperative launch needs all its blocks on the device at once, and they do not fit",
    801: "the device does not support it",
    912: "the cluster is larger than the device supports",
}
"""Errors of a launch that never started and for which the version is to blame."""

_MACHINE = {
    4: "the driver is shutting down",
    46: "the GPU is in use by others or taken out of service",
    100: "there is no GPU left",
    101: "the GPU is not there any more",
    214: "the GPU's memory had an uncorrectable error (ECC)",
    220: "the GPU's NVLink had an uncorrectable error",
    226: "the GPU had a hardware error, which it contained",
    709: "the context was destroyed",
    802: "the system is not ready for CUDA",
    803: "the driver and its kernel module are of different versions",
    805: "the Multi-Process Service cannot be reached",
    806: "the Multi-Process Service failed",
    807: "the Multi-Process Service is not ready",
    808: "the Multi-Process Service has reached its limit of clients",
    809: "the Multi-Process Service has reached its limit of connections",
    810: "the Multi-Process Service ended this process, as it does to all clients when one of them faults",
    999: "the driver failed for a reason it does not know",
}
"""Errors that no kernel causes."""


def fault_of(status: int, words: str, *, traps: bool) -> Fault:
    """Returns the finding for a driver status.

    Args:
        status: the driver's code.
        words: the driver's own words.
        traps: True if the kernel contains a trap instruction, which the driver does not distinguish from a fault of
            shared or local memory.

    Raises:
        DeviceFailed: the machine is to blame, so nothing can be said about the kernel.
    """
    if status in _STICKY:
        code, message = _STICKY[status]
        return Fault(Finding(code, "error", f"{message} ({words})"), sticky=True)
    if status == LAUNCH_FAILED:
        code, message = (
            (FindingCode.TRAP, "the kernel was stopped by an exception, most likely its own trap")
            if traps
            else (
                FindingCode.ILLEGAL_ADDRESS,
                "the kernel was stopped by a fault, such as shared memory out of bounds or a full stack",
            )
        )
        return Fault(Finding(code, "error", f"{message} ({words})"), sticky=True)
    if status == 2:
        return Fault(
            Finding(FindingCode.OUT_OF_MEMORY, "error", f"the device has too little free memory ({words})"),
            sticky=False,
        )
    if status in _LAUNCH:
        message = f"the launch is not possible: {_LAUNCH[status]} ({words})"
        return Fault(Finding(FindingCode.LAUNCH_FAILURE, "error", message), sticky=False)
    what = _MACHINE.get(status, "the driver reports an error that no kernel should cause")
    raise DeviceFailed(
        f"The GPU failed: {what} ({words}). This says nothing about the kernel.",
        hint="Run it again. If it fails again, see `nvidia-smi -q` and the driver's messages (Xid in dmesg).",
    )


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

    A cooperative one silently cuts a grid down to the blocks that are on the device at once, so it is used only for
    cooperative launches.
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
        """Loads the code once more."""
        from cupy.cuda.function import Module

        module = Module()
        module.load(compiled.cubin)
        return cls(module.get_function(compiled.lowered_name))

    def take_shared(self, count: int) -> None:
        """Opts in to this number of bytes of dynamic shared memory."""
        from cupy.cuda import driver

        driver.funcSetAttribute(self.kernel.ptr, MAX_DYNAMIC_SHARED, count)
