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
        dram_bytes: different bytes touched, in whole sectors: what must cross DRAM at least, with nothing in L2.
        l1_bytes: that loads and stores move through L1, in whole sectors. l2_bytes: through L2, by a model of L1.
        limiter: the part of the GPU that the predicted time goes by: `dram`, `l2`, `shared`, `fp32`, `latency`, ...
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
        source: of the data sheet (`table`), or measured on such a GPU by `kernelmate calibrate`.
        dram_gbps: bytes between DRAM and L2, 10^9/s. l2_gbps: between L2 and the SMs. l1_gbps: of all L1 together.
        tflops: operations by precision, 10^12/s.
    """

    source: Literal["table", "measured"]
    dram_gbps: float
    l2_gbps: float
    l1_gbps: float
    tflops: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Roofline:
    """One launch under one GPU's roofs. Times are microseconds.

    Attributes:
        work: what it computes and moves. roofs: those of the GPU.
        kind: whether the time behind `tflops` and the shares was measured or predicted; None without a time.
        tflops: operations per second that it reaches, 10^12/s, L2 warm.
        intensity: operations per byte of DRAM; None where no byte is touched. l2_intensity, l1_intensity: of L2 and L1.
        peak_tflops: what its own mix of precisions allows at most.
        ridge: the intensity at which DRAM's roof meets that of its arithmetic.
        bound: what its predicted time goes by: `memory` at any level, `compute`, or `latency` (too little work, or too
            few warps, to keep either busy).
        dram_us: its bytes at DRAM's roof; no launch with nothing in L2 is faster. l2_us, l1_us: at the roofs of L2 and L1.
        compute_us: its operations at theirs.
        warm_us: its time where an equal launch went before. cold_us: with nothing in L2.
        warm: the share of its roof that it reaches: the longest of L1's time, L2's, that of the arithmetic, and DRAM's for
            what L2 cannot hold, over `warm_us`. cold: the longer of DRAM's time and that of the arithmetic, over `cold_us`.
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
