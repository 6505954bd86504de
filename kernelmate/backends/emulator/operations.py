"""Operations of decoded instructions, independent of lanes, buffers and launch.

Decoding gives one of these per instruction; binding them to the registers of a batch makes them executable, and a
compiler may translate them instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmate.backends.emulator.matrix_operations import MATRIX_OPERATIONS, WARPGROUP_OPERATIONS, MatrixOperation
from kernelmate.backends.emulator.program import Address, Operand

Typed = tuple[Operand, str]


@dataclass(frozen=True, slots=True)
class Compute:
    """Computes registers from registers, each lane by itself.

    `function` takes one array per source and returns the result, or a tuple of them. If `ufunc` is set it is that
    ufunc, whose output has the result's type.
    """

    results: tuple[Typed, ...]
    sources: tuple[Typed, ...]
    function: Callable[..., Any]
    ufunc: np.ufunc | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """`results` get consecutive elements of type `kind` from `address`."""

    space: str
    kind: str
    results: tuple[Operand, ...]
    address: Address
    synchronizing: bool = False


@dataclass(frozen=True, slots=True)
class Store:
    """Consecutive elements of type `kind` to `address`."""

    space: str
    kind: str
    sources: tuple[Operand, ...]
    address: Address
    synchronizing: bool = False


@dataclass(frozen=True, slots=True)
class Atomic:
    """Read, combine, write as one step per lane. `result` None for `red`; `swap` is the third operand of `cas`."""

    space: str
    action: str
    kind: str
    result: Operand | None
    address: Address
    value: Operand
    swap: Operand | None = None


@dataclass(frozen=True, slots=True)
class AsyncCopy:
    """`cp.async`: copies `taken` bytes from global `origin` to shared `to`, and fills up to `size` bytes with zeros.

    `sources` are the registers among the operands.
    """

    to: Address
    origin: Address
    size: int
    taken: Operand | None
    sources: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class AsyncGroup:
    """Closes the group of copies since the last one (`commits`), or waits until at most `left` groups are pending."""

    commits: bool = False
    left: int | None = None


@dataclass(frozen=True, slots=True)
class BulkCopy:
    """`cp.async.bulk` and `cp.reduce.async.bulk`: the async proxy copies `size` bytes from `origin` to `to`.

    Attributes:
        spaces: state spaces of `to` (`global`, `shared` or `shared::cluster`) and `origin` (`global` or `shared`).
        barrier: the mbarrier that counts the bytes, in the space of `to`; None if the thread waits for its group of copies.
        action, kind: reduction with the destination, and its type; empty for a copy.
        sources: the registers among the operands.
    """

    spaces: tuple[str, str]
    to: Address
    origin: Address
    size: Operand
    barrier: Address | None
    action: str
    kind: str
    sources: tuple[Operand, ...]

    @property
    def space(self) -> str:
        """State space of `address`."""
        return "global" if "global" in self.spaces else "shared"

    @property
    def address(self) -> Address:
        """The global side's address, or the source of a copy within shared memory."""
        return self.to if self.spaces[0] == "global" else self.origin


@dataclass(frozen=True, slots=True)
class TensorCopy:
    """`cp.async.bulk.tensor` and `cp.reduce.async.bulk.tensor` in tile mode: a box of an array, named by a tensor map.

    Attributes:
        loads: True for a copy to shared memory, False for one from there.
        map: generic address of the tensor map.
        coordinates: of the box's first element, the fastest first.
        shared, shared_space: the shared side, and its state space (`shared` or `shared::cluster`).
        barrier, action, sources: as for `BulkCopy`.
    """

    loads: bool
    map: Address
    coordinates: tuple[Operand, ...]
    shared: Address
    shared_space: str
    barrier: Address | None
    action: str
    sources: tuple[Operand, ...]
    space: str = "global"


@dataclass(frozen=True, slots=True)
class TextureFetch:
    """`tex` and `tld4`: texels of the texture whose handle is `handle`.

    Attributes:
        dimensions: the number of coordinates.
        layered: True if `coordinates` begin with the number of a layer.
        coordinates: x first.
        coordinate_kind: `s32` for a fetch from linear memory, else `f32`.
        results, kind: a register for each channel, and their type; for `tld4` one for each of four texels.
        channel: of `tld4`, the channel of the four texels.
        sources: the registers among the operands.
    """

    dimensions: int
    layered: bool
    handle: Operand
    coordinates: tuple[Operand, ...]
    coordinate_kind: str
    results: tuple[Operand, ...]
    kind: str
    channel: int | None
    sources: tuple[Operand, ...]
    space: str = "global"


@dataclass(frozen=True, slots=True)
class SurfaceAccess:
    """`suld.b` and `sust.b`: bytes of the surface whose handle is `handle`.

    Attributes:
        loads: True for `suld`.
        dimensions, layered, handle, sources: as for `TextureFetch`.
        coordinates: x first, which counts bytes.
        results, values, kind: the loaded registers or stored values, and the type of each part.
        beyond: `trap`, `clamp` or `zero`: the effect of an access outside the surface.
    """

    loads: bool
    dimensions: int
    layered: bool
    handle: Operand
    coordinates: tuple[Operand, ...]
    results: tuple[Operand, ...]
    values: tuple[Operand, ...]
    kind: str
    beyond: str
    sources: tuple[Operand, ...]
    space: str = "global"


@dataclass(frozen=True, slots=True)
class BulkGroup:
    """Closes a thread's group of bulk copies (`left` None), or waits until at most `left` groups are pending.

    `reads` is True if it waits only until the sources have been read.
    """

    left: int | None = None
    reads: bool = False


@dataclass(frozen=True, slots=True)
class Shuffle:
    """`shfl.sync`: `mode` is up, down, bfly or idx."""

    mode: str
    result: Operand
    predicate: Operand | None
    value: Operand
    lane: Operand
    clamp: Operand
    mask: Operand | None


@dataclass(frozen=True, slots=True)
class Vote:
    """`vote.sync`: `mode` is all, any, uni or ballot."""

    mode: str
    result: Operand
    source: Operand
    mask: Operand | None


@dataclass(frozen=True, slots=True)
class Match:
    """`match.any.sync` and `match.all.sync`."""

    mode: str
    kind: str
    result: Operand
    predicate: Operand | None
    value: Operand
    mask: Operand


@dataclass(frozen=True, slots=True)
class WarpReduce:
    """`redux.sync`."""

    action: str
    kind: str
    result: Operand
    value: Operand
    mask: Operand


@dataclass(frozen=True, slots=True)
class ElectLane:
    """`elect.sync`: one lane of the mask, and whether it is the lane itself."""

    result: Operand | None
    predicate: Operand
    mask: Operand


@dataclass(frozen=True, slots=True)
class WarpBarrier:
    """`bar.warp.sync`."""

    mask: Operand


@dataclass(frozen=True, slots=True)
class ActiveMask:
    """`activemask`."""

    result: Operand


@dataclass(frozen=True, slots=True)
class Barrier:
    """`bar` and `barrier` of a block.

    Attributes:
        mode: sync, arrive, or the reduction `popc`, `and`, `or`.
        aligned: True if all threads of a warp must execute it together, as for `__syncthreads`.
    """

    mode: str
    number: Operand
    count: Operand | None
    result: Operand | None = None
    source: Operand | None = None
    aligned: bool = True


@dataclass(frozen=True, slots=True)
class ClusterBarrier:
    """`barrier.cluster`: arrives at the barrier of the block's cluster, or waits for the arrivals of its other threads.

    `relaxed` arrivals order no accesses; a warp executes `aligned` ones together.
    """

    waits: bool
    relaxed: bool = False
    aligned: bool = False


@dataclass(frozen=True, slots=True)
class PhaseBarrier:
    """`mbarrier`, a barrier in shared memory that threads arrive at and test phase by phase.

    `action` is init, inval, arrive, drop (arrive and expect less from the next phase on), expect and complete (change
    the transaction count alone), test, copies (let earlier asynchronous copies arrive) or count_copies (let them arrive
    and be counted). `value` is the count of init and arrive, and the state or the parity of the phase that is tested.
    `transactions` are the bytes that arrive, drop and expect add to those expected, and complete to those arrived.
    """

    action: str
    space: str
    address: Address
    value: Operand | None = None
    result: Operand | None = None
    parity: bool = False
    transactions: Operand | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """Jump to the instruction with this index."""

    target: int


@dataclass(frozen=True, slots=True)
class BranchTable:
    """`brx.idx`: jump to one of several."""

    targets: tuple[int, ...]
    index: Operand


@dataclass(frozen=True, slots=True)
class Exit:
    """The thread ends."""


@dataclass(frozen=True, slots=True)
class Trap:
    """The launch ends with an error."""

    reason: str = "the kernel executed trap"


@dataclass(frozen=True, slots=True)
class Assert:
    """`__assertfail`: `variables` are the parameter variables with message, file, line, function, size."""

    variables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Print:
    """`vprintf`: `format` and `values` are the parameter variables with the two pointers."""

    format: str
    values: str


@dataclass(frozen=True, slots=True)
class ReadClock:
    """A special register that changes while the kernel runs."""

    result: Typed
    register: str


@dataclass(frozen=True, slots=True)
class NoOperation:
    """No effect on results: fences, prefetches, hints.

    `proxy` is the state space whose generic accesses a proxy fence orders with the async proxy: `shared`,
    `global`, or `generic` for both; empty for others.
    """

    fence: bool = False
    proxy: str = ""


WARP_OPERATIONS = (Shuffle, Vote, Match, WarpReduce, ElectLane, WarpBarrier, *MATRIX_OPERATIONS, *WARPGROUP_OPERATIONS)
"""Operations that wait for the lanes of their mask, or of their warpgroup."""

Operation = (
    Compute | Load | Store | Atomic | AsyncCopy | AsyncGroup | BulkCopy | BulkGroup | TensorCopy | TextureFetch | SurfaceAccess
    | Shuffle | Vote | Match | WarpReduce | ElectLane | WarpBarrier | PhaseBarrier | MatrixOperation | ActiveMask | Barrier | ClusterBarrier
    | Branch | BranchTable | Exit | Trap | Assert | Print | ReadClock | NoOperation
)  # fmt: skip
