"""Where a launch stands under the roofline: operations per byte, which roof is above it, and the times no launch beats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kernelmate.backends.base import RunResult
from kernelmate.measure.instructions import basic_blocks, count
from kernelmate.measure.predict import explain
from kernelmate.records import Compiled, LaunchShape, Target

Bound = Literal["memory", "compute", "latency"]

MEMORY_PARTS = frozenset({"dram", "l2", "l1", "shared", "atomics"})
LATENCY_PARTS = frozenset({"latency", "launch"})


@dataclass(frozen=True, slots=True)
class Roofline:
    """One launch under one GPU's roofs.

    Attributes:
        intensity: floating-point operations per byte of DRAM that must be moved; None where no byte is.
        ridge: the intensity at which this GPU's memory and arithmetic roofs meet, for the launch's own precisions.
        bound: what the predicted time goes by: `memory` (at any level), `compute`, or `latency` (too little work, or too
            few warps, to keep either busy).
        limiter: the part of the GPU behind it: `dram`, `l2`, `shared`, `fp32`, `issue`, `latency`, ...
        memory_floor_us: the unique bytes at peak DRAM bandwidth; no launch with an empty L2 is faster.
        compute_floor_us: the operations at the peak rates of their precisions; no launch at all is faster.
    """

    intensity: float | None
    ridge: float
    bound: Bound
    limiter: str
    memory_floor_us: float
    compute_floor_us: float


def roofline(target: Target, compiled: Compiled, shape: LaunchShape, result: RunResult) -> Roofline:
    """Place one launch under the target's roofs, from what an emulated run of it counted."""
    made_of = explain(target, compiled, shape, result)
    limiter = made_of.limiter
    bound: Bound = "memory" if limiter in MEMORY_PARTS else "latency" if limiter in LATENCY_PARTS else "compute"
    moved = made_of.traffic.unique
    done = sum(made_of.mix.flops.values())
    compute_us = _compute_floor(target, made_of.mix.flops)
    bytes_per_us = target.memory_gbps * 1e3
    rate = done / compute_us if compute_us else target.fp32_tflops * 1e6
    return Roofline(
        intensity=done / moved if moved else None,
        ridge=rate / bytes_per_us,
        bound=bound,
        limiter=limiter,
        memory_floor_us=moved / bytes_per_us,
        compute_floor_us=compute_us,
    )


def operations(compiled: Compiled, result: RunResult) -> Mapping[str, float]:
    """Floating-point operations of a launch by precision (`fp16`, `fp32`, `fp64`); a fused multiply-add is two."""
    return count(basic_blocks(compiled.ptx, compiled.lowered_name), result.block_counts).flops


def _compute_floor(target: Target, flops: Mapping[str, float]) -> float:
    """Microseconds that the operations need at peak; the precisions have pipes of their own, so the longest counts."""
    peaks = {"fp16": target.fp16_tflops, "fp32": target.fp32_tflops, "fp64": target.fp64_tflops}
    return max((flops.get(name, 0.0) / (peak * 1e6) for name, peak in peaks.items() if peak), default=0.0)
