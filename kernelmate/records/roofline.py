"""Records of a launch under a GPU's roofline: its work, its traffic, and the peak rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Bound = Literal["memory", "compute", "latency"]


@dataclass(frozen=True, slots=True)
class Work:
    """Computation and traffic of one launch, independent of the GPU, and the limiting factor on the given GPU.

    Attributes:
        flops: floating-point operations by precision (`fp16`, `fp32`, `fp64`, `tensor`); a fused multiply-add is two.
        dram_bytes: distinct bytes touched, in whole sectors: the minimum DRAM traffic with a cold L2.
        l1_bytes: bytes that loads and stores move through L1, in whole sectors.
        l2_bytes: bytes through L2, by a model of L1.
        limiter: the part of the GPU that dominates the predicted time: `dram`, `l2`, `shared`, `fp32`, `latency`, ...
    """

    flops: Mapping[str, float]
    dram_bytes: float
    l1_bytes: float
    l2_bytes: float
    limiter: str


@dataclass(frozen=True, slots=True)
class Roofs:
    """Peak rates of a GPU.

    Attributes:
        source: the data sheet (`table`), or a measurement on such a GPU by `kernelmate calibrate`.
        dram_gbps: bandwidth between DRAM and L2, 10^9 bytes/s.
        l2_gbps: between L2 and the SMs.
        l1_gbps: of all L1 caches together.
        tflops: peak operation rate by precision, 10^12/s.
    """

    source: Literal["table", "measured"]
    dram_gbps: float
    l2_gbps: float
    l1_gbps: float
    tflops: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Roofline:
    """Position of one launch in the roofline model of one GPU. Times are microseconds.

    Attributes:
        work: its operations and traffic.
        roofs: the GPU's peak rates.
        kind: whether the time behind `tflops` and the shares was measured or predicted; None without a time.
        tflops: achieved operation rate, 10^12/s, with a warm L2.
        intensity: operations per byte of DRAM traffic; None without traffic.
        l2_intensity, l1_intensity: per byte of L2 and L1 traffic.
        peak_tflops: the peak rate for its mix of precisions.
        ridge: the ridge point: the intensity at which the DRAM roof meets the arithmetic roof.
        bound: the factor that dominates its predicted time: `memory` at any level, `compute`, or `latency` (too little
            work, or too few warps, to keep either busy).
        dram_us: time of its DRAM traffic at peak bandwidth, a lower bound with a cold L2.
        l2_us, l1_us: likewise of L2 and L1.
        compute_us: time of its operations at their peak rate.
        warm_us: its time directly after an equal launch.
        cold_us: its time with a cold L2.
        warm: achieved fraction of the roof: the longest of the times of L1, L2, arithmetic, and DRAM (for data beyond
            L2's capacity), over `warm_us`.
        cold: the longer of the times of DRAM and arithmetic, over `cold_us`.
    """

    work: Work
    roofs: Roofs
    kind: Literal["measured", "predicted"] | None
    tflops: float | None
    intensity: float | None
    l2_intensity: float | None
    l1_intensity: float | None
    peak_tflops: float
    ridge: float
    bound: Bound
    dram_us: float
    l2_us: float
    l1_us: float
    compute_us: float
    warm_us: float | None
    cold_us: float | None
    warm: float | None
    cold: float | None
