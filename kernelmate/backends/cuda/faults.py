"""Classification of CUDA's launch errors: the kernel's become findings, the machine's exceptions.

Codes as in `cuda.h`, `CUresult`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelmate.errors import DeviceFailed
from kernelmate.records import Finding, FindingCode


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
    717: (FindingCode.ILLEGAL_ADDRESS, "an instruction for one address space met an address of another"),
    718: (FindingCode.ILLEGAL_ADDRESS, "the program counter left the code"),
}
"""Errors of a kernel that destroy the context."""

LAUNCH_FAILED = 719
"""Driver code of a trap, and of faults without a code of their own."""

_LAUNCH = {
    1: "an argument of the launch is invalid",
    9: "the grid or block is beyond what the device takes",
    701: "it takes more registers or shared memory than a block may have",
    720: "a cooperative launch needs all its blocks on the device at once, and they do not fit",
    801: "the device does not support it",
    912: "the cluster is beyond what the device takes",
}
"""Errors of a launch that never started and for which the version is to blame."""

_MACHINE = {
    4: "the driver is shutting down",
    46: "the GPU is in use by others or taken out of service",
    100: "there is no GPU any more",
    101: "the GPU is not there any more",
    214: "the GPU's memory had an uncorrectable error (ECC)",
    220: "the GPU's NVLink had an uncorrectable error",
    226: "the GPU contained an error of its hardware",
    709: "the context was destroyed",
    802: "the system is not ready for CUDA",
    803: "the driver and its kernel module are of different versions",
    805: "the Multi-Process Service cannot be reached",
    806: "the Multi-Process Service failed",
    807: "the Multi-Process Service is not ready",
    808: "the Multi-Process Service has as many clients as it takes",
    809: "the Multi-Process Service has as many connections as it takes",
    810: "the Multi-Process Service ended this process, as it does to all clients when one of them faults",
    999: "the driver failed for a reason it does not know",
}
"""Errors that no kernel causes."""


def fault_of(status: int, words: str, *, traps: bool) -> Fault:
    """Return the finding for a driver status.

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
    what = _MACHINE.get(status, "the driver reports what no kernel should cause")
    raise DeviceFailed(
        f"The GPU failed: {what} ({words}). This says nothing about the kernel.",
        hint="Run it again. If it fails again, see `nvidia-smi -q` and the driver's messages (Xid in dmesg).",
    )
