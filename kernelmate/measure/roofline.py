"""Position of a launch in the roofline model: arithmetic intensity, the roof above it, and the distance to the roof.

The emulator counts operations and distinct bytes; L2 bytes come from a model of L1, and the limiter from the predicted
time. After S. Williams, A. Waterman, D. Patterson, "Roofline" (CACM 52(4), 2009), and for several levels of memory C.
Yang, "Hierarchical Roofline Analysis" (arXiv:2009.02449).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from kernelmate.measure import constants
from kernelmate.records import Bound, Roofline, Roofs, Target, Timing, Work

MEMORY_PARTS = frozenset({"dram", "l2", "l1", "shared", "atomics"})
LATENCY_PARTS = frozenset({"latency", "launch", "blocks"})


def table_roofs(target: Target) -> Roofs:
    """Returns a GPU's peak rates from its data sheet.

    Cache bandwidths come from `constants`, which gives their sources.
    """
    l2 = constants.for_capability(constants.L2_BYTES_PER_SM, target.capability) * target.sms * target.clock_mhz / 1e3
    tflops = {
        "fp16": target.fp16_tflops,
        "fp32": target.fp32_tflops,
        "fp64": target.fp64_tflops,
        "tensor": target.tensor_tflops,
    }
    l1 = constants.L1_BYTES.value * target.sms * target.clock_mhz / 1e3
    return Roofs("table", target.memory_gbps, l2, l1, {name: peak for name, peak in tflops.items() if peak})


def place(work: Work, roofs: Roofs, timing: Timing | None, l2_size: int) -> Roofline:
    """Place a launch in a GPU's roofline model.

    Args:
        work: the launch's operations and traffic.
        roofs: the GPU's peak rates.
        timing: the launch's time; None if there is none.
        l2_size: capacity of L2 in bytes; data beyond it comes from DRAM at every repetition.
    """
    done = sum(work.flops.values())
    compute_us = _compute_us(work.flops, roofs)
    peak = done / compute_us / 1e6 if compute_us else roofs.tflops.get("fp32", 0.0)
    dram_us, l2_us = work.dram_bytes / (roofs.dram_gbps * 1e3), work.l2_bytes / (roofs.l2_gbps * 1e3)
    l1_us = work.l1_bytes / (roofs.l1_gbps * 1e3)
    beyond_l2_us = max(work.dram_bytes - l2_size, 0) / (roofs.dram_gbps * 1e3)
    time = _usable(None if timing is None else timing.median_us)
    cold = _usable(None if timing is None else timing.cold_l2_us)
    return Roofline(
        work=work,
        roofs=roofs,
        kind=timing.kind if timing is not None and time is not None else None,
        tflops=None if time is None else done / time / 1e6,
        intensity=done / work.dram_bytes if work.dram_bytes else None,
        l2_intensity=done / work.l2_bytes if work.l2_bytes else None,
        l1_intensity=done / work.l1_bytes if work.l1_bytes else None,
        peak_tflops=peak,
        ridge=peak * 1e3 / roofs.dram_gbps,
        bound=_bound(work.limiter),
        dram_us=dram_us,
        l2_us=l2_us,
        l1_us=l1_us,
        compute_us=compute_us,
        warm_us=time,
        cold_us=cold,
        warm=_share(max(l1_us, l2_us, compute_us, beyond_l2_us), time),
        cold=_share(max(dram_us, compute_us), cold),
    )


def _usable(time: float | None) -> float | None:
    return time if time is not None and 0 < time < math.inf else None


def _share(floor: float, time: float | None) -> float | None:
    return floor / time if time is not None and floor > 0 else None


def _bound(limiter: str) -> Bound:
    return "memory" if limiter in MEMORY_PARTS else "latency" if limiter in LATENCY_PARTS else "compute"


def _compute_us(flops: Mapping[str, float], roofs: Roofs) -> float:
    """Returns the microseconds that the operations need at peak.

    Each precision has its own pipe, so the longest time counts.
    """
    return max((flops.get(name, 0.0) / (peak * 1e6) for name, peak in roofs.tflops.items()), default=0.0)
