"""Records of tuning: versions of one kernel at several sizes, and the version to launch at each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kernelmate.records.contract import Contract
from kernelmate.records.kernels import Kernel


@dataclass(frozen=True, slots=True)
class TunedVersion:
    """One correct version with its time at each size in microseconds; None at sizes without a time.

    `author` is None for the kernel itself.
    """

    author: str | None
    why: str
    kernel: Kernel
    contract: Contract
    times_us: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class DispatchRule:
    """A rule that selects a version by one number computed from the problem size.

    Attributes:
        measure: a size's name, or a product of names such as `rows * cols`.
        versions: the version of each interval of the measure, from the smallest values on.
        bounds: the smallest measured value of each interval but the first, ascending.
    """

    measure: str
    versions: tuple[int, ...]
    bounds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tuned:
    """A table of versions by size.

    Attributes:
        kind: `measured` or `predicted`, for all times.
        target: the GPU that times refer to.
        sizes: from the smallest problem to the largest.
        versions: the kernel itself first.
        chosen: for each size the version to launch, with as few distinct versions as possible; None if no version has a
            time.
        rule: a dispatch rule that makes these choices; None if no single measure separates them.
        notes: remarks of the searches.
    """

    kind: Literal["measured", "predicted"]
    target: str
    sizes: tuple[Mapping[str, int], ...]
    versions: tuple[TunedVersion, ...]
    chosen: tuple[int | None, ...]
    rule: DispatchRule | None
    notes: tuple[str, ...] = ()
