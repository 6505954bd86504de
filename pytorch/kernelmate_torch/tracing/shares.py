"""Shares of kernels in the program's time, and what a faster kernel is worth by Amdahl's law."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FASTER = 3.0
"""Factor for which a kernel's worth is shown."""


@dataclass(frozen=True, slots=True)
class Share:
    """A kernel's part of the program's time.

    Attributes:
        share: its part, from 0 to 1.
        us: its time, in microseconds.
        total_us: time of all kernels and copies on the GPU, or of all operators on the CPU.
        device: `gpu`, or `cpu` where no GPU was used: of the CPU's operators, which says nothing about a GPU.
        first_calls: True if only first calls were seen, which load and compile code.
    """

    share: float
    us: float
    total_us: float
    device: str
    first_calls: bool = False

    def worth(self, factor: float = FASTER) -> float:
        """Returns the part of the time that a kernel faster by a factor saves, by Amdahl's law (Amdahl, AFIPS 1967)."""
        return self.share * (1 - 1 / factor)


def share_of(kernel: Mapping[str, Any], times: Mapping[str, Any]) -> Share | None:
    """Return a kernel's share; None if no time of it was seen.

    Args:
        kernel: the kernel's record.
        times: the times of its process, as `recording.timing.Times` has them.
    """
    if times["device_us"]:
        us = _device_us(kernel, times)
        return None if us is None else Share(us / times["device_us"], us, times["device_us"], "gpu")
    name = kernel["name"]
    if times["cpu_us"] and name in times["operators"]:
        us = times["operators"][name][1]
        return Share(min(us / times["cpu_us"], 1.0), us, times["cpu_us"], "cpu")
    if times["first_us"] and name in times["first"]:
        us = times["first"][name][1]
        return Share(min(us / times["first_us"], 1.0), us, times["first_us"], "cpu", first_calls=True)
    return None


def _device_us(kernel: Mapping[str, Any], times: Mapping[str, Any]) -> float | None:
    """Returns device time: of an operator, that of the GPU kernels that it launched, in replays of CUDA graphs too."""
    if kernel["kind"] != "operator":
        mine = [total[1] for name, total in times["kernels"].items() if is_named(name, kernel["name"])]
        return sum(mine) if mine else None
    found = None
    for name, owners in times["owners"].items():
        others = [one for one in owners if one]
        if kernel["name"] not in others:
            continue
        # A replay launches kernels without their operator: they are its own, if no other operator launches them.
        alone = others == [kernel["name"]] and _is_own(name)
        found = (found or 0.0) + (sum(owners.values()) if alone else owners[kernel["name"]])
    return found


def _is_own(name: str) -> bool:
    """Returns True for a kernel that PyTorch itself does not launch for other operators."""
    return not re.search(r"at::|cutlass|cublas|cudnn|Memcpy|Memset|gemm|^ampere_|^sm\d\d_", name)


def is_named(shown: str, name: str) -> bool:
    """Returns True if a GPU kernel has a name: as it is, with inductor's number, or with C++ parameters."""
    plain = re.sub(r"^(?:void )?(?:\(anonymous namespace\)::)?", "", shown).partition("(")[0].partition("<")[0]
    return re.sub(r"_\d+$", "", plain) == name or plain == name or plain.rpartition("::")[2] == name


def launches_of(kernel: Mapping[str, Any], times: Mapping[str, Any]) -> int:
    """Returns the launches that the profiler counted on the GPU, replays of CUDA graphs included; 0 for an operator."""
    if kernel["kind"] == "operator":
        return 0
    return int(sum(total[0] for name, total in times["kernels"].items() if is_named(name, kernel["name"])))
