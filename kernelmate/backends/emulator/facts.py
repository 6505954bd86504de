"""Facts about a kernel that need no launch."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmate.backends.emulator.bind import foldable_operations, single_definitions
from kernelmate.backends.emulator.decode import DecodedKernel
from kernelmate.backends.emulator.memory import Marks, marks_of
from kernelmate.backends.emulator.operations import (
    Atomic,
    ClusterBarrier,
    Compute,
    Load,
    NoOperation,
    PhaseBarrier,
    Store,
    SurfaceAccess,
    TensorCopy,
)
from kernelmate.backends.emulator.register_order import RegisterPlan, plan_of
from kernelmate.backends.emulator.shadow import Slice, slice_of
from kernelmate.backends.emulator.spaces import CLUSTER_SHARED
from kernelmate.backends.emulator.types import SIZES


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a kernel that need no launch.

    Attributes:
        single: registers with one definition.
        foldable: operations that may be uniform over threads.
        store_granule: bytes of the smallest element it stores to global memory; `shared_granule` likewise for accesses
            to shared memory.
        waits: True if a loop waits for other threads' writes.
        patterns: True if it has fences or ordered accesses, by which threads may synchronise through memory.
        clusters: True if it uses barriers, addresses or shared memory of a cluster.
        addresses: the integer arithmetic of its addresses.
        marks: instructions whose footprints are recorded separately.
        registers: registers of `wgmma`; None if it has none.
    """

    single: frozenset[str]
    store_granule: int
    shared_granule: int
    waits: bool
    patterns: bool
    clusters: bool
    addresses: Slice
    foldable: tuple[Compute | Load, ...]
    marks: Marks
    registers: RegisterPlan | None


_SIZED_LATER = TensorCopy | SurfaceAccess
"""Operations whose accesses have the size of an element of an array that the launch gives."""


def _granule(decoded: DecodedKernel, *, stores: bool, spaces: set[str]) -> int:
    if stores and any(isinstance(step.operation, _SIZED_LATER) and not step.operation.loads for step in decoded.steps):
        return 1
    kinds = Store | Atomic if stores else Load | Store | Atomic
    operations = [step.operation for step in decoded.steps if isinstance(step.operation, kinds)]
    return min((SIZES[operation.kind] for operation in operations if operation.space in spaces), default=4)


def _has_patterns(decoded: DecodedKernel) -> bool:
    ordered = {"acquire", "release", "acq_rel"}
    steps = (step for step in decoded.steps if not isinstance(step.operation, ClusterBarrier))
    return any(
        isinstance(step.operation, PhaseBarrier)
        or (isinstance(step.operation, NoOperation) and step.operation.fence)
        or not ordered.isdisjoint(step.opcode.split("."))
        for step in steps
    )


def _uses_clusters(decoded: DecodedKernel) -> bool:
    return any(
        isinstance(step.operation, ClusterBarrier)
        or step.opcode.split(".")[0] in {"mapa", "getctarank"}
        or getattr(step.operation, "space", None) == CLUSTER_SHARED
        for step in decoded.steps
    )


def facts_of(decoded: DecodedKernel) -> Facts:
    """Returns the facts of a kernel."""
    single = single_definitions(decoded)
    return Facts(
        single,
        _granule(decoded, stores=True, spaces={"global", "generic", "const"}),
        _granule(decoded, stores=False, spaces={"shared", CLUSTER_SHARED, "generic"}),
        any(block.spins for block in decoded.blocks),
        _has_patterns(decoded),
        _uses_clusters(decoded),
        slice_of(decoded),
        foldable_operations(decoded, single),
        marks_of(decoded),
        plan_of(decoded),
    )
