"""CUDA's errors of a launch as findings. Codes as in `cuda.h`, enum `cudaError_enum`."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmate.records import Finding


@dataclass(frozen=True, slots=True)
class Fault:
    """What a launch ended with.

    Attributes:
        finding: what to report; the GPU names no source line.
        sticky: the context is lost: nothing but a new process heals it.
    """

    finding: Finding
    sticky: bool


_STICKY = {
    700: ("illegal-address", "the kernel accessed memory that nothing is mapped at"),
    710: ("trap", "an assert of the kernel failed"),
    714: ("illegal-address", "the hardware stack was corrupted"),
    715: ("trap", "the kernel ran into an illegal instruction"),
    716: ("misaligned-access", "the kernel accessed memory off its alignment"),
    717: ("illegal-address", "an instruction for one address space met an address of another"),
    718: ("illegal-address", "the program counter left the code"),
    719: ("trap", "the kernel was stopped by an exception (trap, or a stack overflow)"),
    702: ("hang", "the driver stopped the kernel because it took too long"),
}
"""Errors after which a context is lost."""

_LAUNCH = {
    1: "an argument of the launch is invalid",
    2: "the device has too little free memory",
    9: "the grid or block is beyond what the device takes",
    701: "it takes more registers or shared memory than a block may have",
    720: "a cooperative launch needs all its blocks on the device at once, and they do not fit",
    912: "the cluster is beyond what the device takes",
}
"""Errors of a launch that was never made."""


def fault_of(status: int, words: str) -> Fault:
    """The finding for a status of the driver; `words` are the driver's own."""
    if status in _STICKY:
        code, message = _STICKY[status]
        return Fault(Finding(code, "error", f"{message} ({words})"), sticky=True)
    if status == 2:
        return Fault(Finding("out-of-memory", "error", f"{_LAUNCH[2]} ({words})"), sticky=False)
    message = _LAUNCH.get(status, "the driver refused the launch")
    return Fault(Finding("launch-failure", "error", f"the launch is not possible: {message} ({words})"), sticky=False)
