"""GPUs that kernels are compiled for, and for which occupancy and times are predicted.

Each row names the source of its figures. SM counts, boost clocks, memory and L2 are the vendor's data sheet values;
peak rates are 2 x FMA lanes x SMs x boost clock. Limits of an SM are those of the CUDA C++ Programming Guide,
"Technical Specifications per Compute Capability".
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernelmate.errors import UsageError
from kernelmate.records import Target


@dataclass(frozen=True, slots=True)
class SmLimits:
    """Limits of one streaming multiprocessor; bytes and counts.

    `shared_reserved` is the shared memory per block that the system reserves; `shared_unit` is the allocation
    granularity of shared memory per block, `register_unit` that of registers per warp. `cluster_blocks` is the largest
    cluster in blocks, 0 without clusters.
    """

    shared_per_sm: int
    shared_per_block_optin: int
    shared_reserved: int
    threads_per_sm: int
    blocks_per_sm: int
    shared_unit: int
    cluster_blocks: int = 0
    registers_per_sm: int = 65536
    register_unit: int = 256
    partitions: int = 4
    threads_per_block: int = 1024
    registers_per_thread: int = 255

    @property
    def warps_per_sm(self) -> int:
        """Maximum number of warps per SM."""
        return self.threads_per_sm // 32


_KIB = 1024


def _limits(shared: int, optin: int, reserved: int, threads: int, blocks: int, unit: int, cluster: int = 0) -> SmLimits:
    return SmLimits(shared * _KIB, optin * _KIB, reserved, threads, blocks, unit, cluster)


_SM_LIMITS: dict[tuple[int, int], SmLimits] = {
    (7, 5): _limits(64, 64, 0, 1024, 16, 256),
    (8, 0): _limits(164, 163, 1024, 2048, 32, 128),
    (8, 6): _limits(100, 99, 1024, 1536, 16, 128),
    (8, 7): _limits(164, 163, 1024, 1536, 16, 128),
    (8, 9): _limits(100, 99, 1024, 1536, 24, 128),
    (9, 0): _limits(228, 227, 1024, 2048, 32, 128, 16),
    (10, 0): _limits(228, 227, 1024, 2048, 32, 128, 16),
    (10, 3): _limits(228, 227, 1024, 2048, 32, 128, 16),
    (11, 0): _limits(228, 227, 1024, 1536, 24, 128, 8),
    (12, 0): _limits(100, 99, 1024, 1536, 24, 128, 8),
    (12, 1): _limits(100, 99, 1024, 1536, 24, 128, 8),
}
"""Clusters of 8 blocks are the portable size (CUDA C++ Programming Guide, Thread Block Clusters); the Hopper and the
Blackwell tuning guides ("Thread Block Clusters") allow 16 on H100 and B200 as the non-portable size."""

_FMA_LANES: dict[tuple[int, int], tuple[float, float, float, float]] = {
    (7, 5): (64, 2, 128, 512),
    (8, 0): (64, 32, 256, 1024),
    (8, 6): (128, 2, 128, 512),
    (8, 9): (128, 2, 128, 512),
    (9, 0): (128, 64, 256, 2048),
    (10, 0): (128, 64, 256, 4096),
    (12, 0): (128, 2, 128, 512),
}
"""Results per clock and SM of fp32, fp64 and fp16 FMA (CUDA C++ Programming Guide, "Throughput of Native Arithmetic
Instructions"; fp16 counts both halves of packed operations), and of the tensor cores on dense fp16 matrices (the
architectures' whitepapers, "FP16 FMA operations per clock per SM"; GeForce cards do half as many with fp32 sums)."""


def _gpu(
    name: str,
    capability: tuple[int, int],
    sms: int,
    clock_mhz: int,
    memory_gb: int,
    gbps: float,
    l2_mb: float,
    source: str,
) -> Target:
    fp32, fp64, fp16, tensor = (2 * lanes * sms * clock_mhz / 1e6 for lanes in _FMA_LANES[capability])
    return Target(
        name, f"sm_{capability[0]}{capability[1]}", capability, sms, clock_mhz, memory_gb * 10**9, gbps,
        int(l2_mb * _KIB * _KIB), round(fp32, 2), round(fp64, 2), round(fp16, 2), source, round(tensor, 1),
    )  # fmt: skip


TARGETS: tuple[Target, ...] = (
    _gpu("T4", (7, 5), 40, 1590, 16, 320, 4, "NVIDIA T4 Tensor Core GPU data sheet; Turing architecture whitepaper"),
    _gpu("RTX 2080 Ti", (7, 5), 68, 1545, 11, 616, 5.5, "NVIDIA Turing GPU architecture whitepaper, appendix A"),
    _gpu("A100 40GB SXM", (8, 0), 108, 1410, 40, 1555, 40, "NVIDIA A100 data sheet; Ampere GA100 whitepaper, table 4"),
    _gpu("A100 80GB SXM", (8, 0), 108, 1410, 80, 2039, 40, "NVIDIA A100 data sheet; Ampere GA100 whitepaper, table 4"),
    _gpu("A100 80GB PCIe", (8, 0), 108, 1410, 80, 1935, 40, "NVIDIA A100 data sheet"),
    _gpu("A10", (8, 6), 72, 1695, 24, 600, 6, "NVIDIA A10 data sheet"),
    _gpu("A40", (8, 6), 84, 1740, 48, 696, 6, "NVIDIA A40 data sheet"),
    _gpu("RTX 3090", (8, 6), 82, 1695, 24, 936, 6, "NVIDIA Ampere GA102 whitepaper, table 9"),
    _gpu("L4", (8, 9), 58, 2040, 24, 300, 48, "NVIDIA L4 data sheet; Ada architecture whitepaper"),
    _gpu("L40S", (8, 9), 142, 2520, 48, 864, 96, "NVIDIA L40S data sheet; Ada architecture whitepaper"),
    _gpu("RTX 4090", (8, 9), 128, 2520, 24, 1008, 72, "NVIDIA Ada GPU architecture whitepaper, appendix A"),
    _gpu("H100 SXM", (9, 0), 132, 1980, 80, 3352, 50, "NVIDIA H100 data sheet; Hopper H100 whitepaper, table 2"),
    _gpu("H100 PCIe", (9, 0), 114, 1755, 80, 2039, 50, "NVIDIA H100 data sheet; Hopper H100 whitepaper, table 2"),
    _gpu("H200", (9, 0), 132, 1980, 141, 4800, 50, "NVIDIA H200 data sheet"),
    _gpu("B200", (10, 0), 148, 1965, 180, 8000, 126, "NVIDIA DGX B200 data sheet; Blackwell architecture brief"),
    _gpu("RTX 5090", (12, 0), 170, 2407, 32, 1792, 96, "NVIDIA RTX Blackwell GPU architecture whitepaper, appendix A"),
)
"""All GPUs of the table, by architecture."""

DEFAULT = "H100 SXM"
_FOR_ARCH = {
    "sm_75": "T4", "sm_80": "A100 80GB SXM", "sm_86": "RTX 3090", "sm_89": "RTX 4090", "sm_90": DEFAULT, "sm_100": "B200",
    "sm_120": "RTX 5090",
}  # fmt: skip
_FIRST_SPECIFIC = 90
"""Compute capability from which code can be specific to one architecture (`sm_90a`) or its family (`sm_100f`)."""

_SHORT = {"a100": "A100 80GB SXM", "h100": DEFAULT, "b100": "B200"}


def sm_limits(capability: tuple[int, int]) -> SmLimits:
    """Returns the limits of an SM.

    Raises:
        UsageError: the table does not have this compute capability.
    """
    if capability not in _SM_LIMITS:
        known = ", ".join(f"{major}.{minor}" for major, minor in _SM_LIMITS)
        raise UsageError(
            f"There are no limits for compute capability {capability[0]}.{capability[1]}.", hint=f"Known: {known}."
        )
    return _SM_LIMITS[capability]


_ARCH = re.compile(r"(?:sm|compute)_?(\d{2,3})([af]?)")
_KINDS = frozenset({"rtx", "gtx", "ti", "sxm", "pcie"})
"""Words that do not identify a GPU on their own."""

_NOISE = frozenset({"nvidia", "geforce", "tesla", "tensor", "core", "gpu", "graphics", "hbm2e", "hbm3", "hbm3e"})


def find_target(name: str | None) -> Target:
    """Returns the GPU for a name or an architecture; `sm_90a` gives the H100 SXM, compiled for sm_90a.

    Args:
        name: as in the table or shorter, in any case (`h100`, `a100 40gb`, `rtx4090`), or as a driver spells it
            (`NVIDIA H100 80GB HBM3`, `NVIDIA A100-SXM4-40GB`), or an architecture; None for H100 SXM.

    Raises:
        UsageError: no GPU matches; the hint has the nearest names.
    """
    wanted = (DEFAULT if name is None else name).strip().lower()
    arch = _ARCH.fullmatch(wanted)
    plain = f"sm_{arch[1]}" if arch else ""
    if arch and plain in _FOR_ARCH and (not arch[2] or int(arch[1]) >= _FIRST_SPECIFIC):
        return replace(_named(_FOR_ARCH[plain]), arch=plain + arch[2])
    words = _words(wanted)
    if not arch and words:
        found = _named(_SHORT[" ".join(words)]) if " ".join(words) in _SHORT else _by_words(words)
        if found is not None:
            return found
    by_name = {target.name.lower(): target.name for target in TARGETS}
    near = difflib.get_close_matches(wanted, [*by_name, *_FOR_ARCH], n=3, cutoff=0.4)
    names = [by_name.get(one, one) for one in near] or [target.name for target in TARGETS]
    raise UsageError(
        f"There is no GPU {name!r} in the table.", hint=f"Nearest: {', '.join(names)}. `kernelmate targets` lists all."
    )


def _named(name: str) -> Target:
    return next(target for target in TARGETS if target.name == name)


def _by_words(wanted: list[str]) -> Target | None:
    """Returns the GPU whose name contains all these words; of several, the default or the first.

    A memory size among the words need not match.
    """
    spelled = [(target, _words(target.name.lower())) for target in sorted(TARGETS, key=lambda t: t.name != DEFAULT)]
    exact = [target for target, words in spelled if set(words) == set(wanted)]
    holding = [target for target, words in spelled if set(wanted) <= set(words)]
    without_size = {word for word in wanted if not word.endswith("gb")}
    if without_size <= _KINDS:
        return None
    sized = [target for target, words in spelled if without_size <= set(words)]
    return next(iter([*exact, *holding, *sized]), None)


def _words(name: str) -> list[str]:
    joined = re.sub(r"(\d)\s+(gb|ti)\b", r"\1\2", re.sub(r"[^a-z0-9]+", " ", name))
    parted = re.sub(r"\b(rtx|gtx)(?=\d)", r"\1 ", re.sub(r"\bsxm\d\b", "sxm", joined))
    return [word for word in re.sub(r"(\d)ti\b", r"\1 ti", parted).split() if word not in _NOISE]


L2_SM_BYTES = 64
"""Upper bound of L2 bandwidth in bytes per cycle and SM, above the throughput of all L2 slices together.

Nsight Compute states 7,680 bytes a clock for an H100's 132 SMs (`lts__t_bytes.sum.peak_sustained`, read on one), "NVIDIA
A100 Tensor Core GPU Architecture" 5,120 for an A100's 108."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Upper bounds of a GPU's rates per microsecond, which no launch exceeds.

    They are not estimates: a time below that of any bound proves that work was not done.

    Attributes:
        dram_bytes: between DRAM and L2, both directions together.
        l2_bytes: between L2 and all SMs, in one direction.
        flops: floating-point operations outside tensor cores, by precision (`fp16`, `fp32`, `fp64`).
    """

    dram_bytes: float
    l2_bytes: float
    flops: Mapping[str, float]


def peaks_of(target: Target) -> Peaks:
    """Returns the peaks of a GPU in the table: data-sheet DRAM bandwidth, and other rates at boost clock."""
    flops = {"fp16": target.fp16_tflops, "fp32": target.fp32_tflops, "fp64": target.fp64_tflops}
    return Peaks(
        dram_bytes=target.memory_gbps * 1e3,
        l2_bytes=float(L2_SM_BYTES * target.sms * target.clock_mhz),
        flops={name: tflops * 1e6 for name, tflops in flops.items()},
    )


def with_raised_peaks(peaks: Peaks, target: Target, memory_gbps: float, sms: int, clock_mhz: float) -> Peaks:
    """Raise the peaks for a GPU whose driver reports higher figures than the nearest entry of the table.

    Args:
        peaks: the table entry's peaks.
        target: the table entry.
        memory_gbps: bandwidth in 10^9 bytes/s, from the driver's memory clock and bus width.
        sms: number of multiprocessors.
        clock_mhz: maximum clock of an SM in MHz.
    """
    scale = max(1.0, sms * clock_mhz / (target.sms * target.clock_mhz))
    return Peaks(
        dram_bytes=max(peaks.dram_bytes, memory_gbps * 1e3),
        l2_bytes=peaks.l2_bytes * scale,
        flops={name: rate * scale for name, rate in peaks.flops.items()},
    )
