"""Upper bounds of a GPU's rates, which no launch exceeds.

They are not estimates: a time below their minimum proves that work was not done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelmate.records import Target

L2_SM_BYTES = 64
"""Upper bound of L2 bandwidth in bytes per cycle and SM, above the throughput of all L2 slices together.

Nsight Compute states 7,680 bytes a clock for an H100's 132 SMs (`lts__t_bytes.sum.peak_sustained`, read on one), "NVIDIA
A100 Tensor Core GPU Architecture" 5,120 for an A100's 108."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Rates per microsecond.

    Attributes:
        dram_bytes: between DRAM and L2, both directions together.
        l2_bytes: between L2 and all SMs, in one direction.
        flops: floating-point operations outside tensor cores, by precision (`fp16`, `fp32`, `fp64`).
    """

    dram_bytes: float
    l2_bytes: float
    flops: Mapping[str, float]


def peaks_of(target: Target) -> Peaks:
    """Returns the peaks of a GPU of the table: data-sheet bandwidth, and everything else at boost clock."""
    flops = {"fp16": target.fp16_tflops, "fp32": target.fp32_tflops, "fp64": target.fp64_tflops}
    return Peaks(
        dram_bytes=target.memory_gbps * 1e3,
        l2_bytes=float(L2_SM_BYTES * target.sms * target.clock_mhz),
        flops={name: tflops * 1e6 for name, tflops in flops.items()},
    )


def raised(peaks: Peaks, target: Target, memory_gbps: float, sms: int, clock_mhz: float) -> Peaks:
    """Raise the peaks for a GPU whose driver reports more than the table, as for a GPU represented by the nearest entry.

    Args:
        peaks: the table entry's peaks.
        target: the table entry.
        memory_gbps: bandwidth by the driver's memory clock and bus width, 10^9 bytes/s.
        sms: multiprocessors.
        clock_mhz: the highest clock of an SM.
    """
    scale = max(1.0, sms * clock_mhz / (target.sms * target.clock_mhz))
    return Peaks(
        dram_bytes=max(peaks.dram_bytes, memory_gbps * 1e3),
        l2_bytes=peaks.l2_bytes * scale,
        flops={name: rate * scale for name, rate in peaks.flops.items()},
    )
