"""Operations of tensor cores: matrix products of warps and warpgroups, and moves of their fragments."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmate.backends.emulator.program import Address, Immediate, Operand

_EVERY_LANE = Immediate(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class MatrixMultiply:
    """`mma.sync` and `wmma.mma`: results = left right + add, of `shape` (rows, columns, inner).

    `kinds` are the types of left and right; `sources` are all registers read. `fragments` is True for those of `wmma`.
    `combines` is `xor` or `and` for bits, whose products are counts of ones.
    """

    shape: tuple[int, int, int]
    kinds: tuple[str, str]
    add_kind: str
    result_kind: str
    results: tuple[Operand, ...]
    left: tuple[Operand, ...]
    right: tuple[Operand, ...]
    add: tuple[Operand, ...]
    sources: tuple[Operand, ...]
    saturates: bool = False
    fragments: bool = False
    combines: str = ""
    mask: Operand = _EVERY_LANE


@dataclass(frozen=True, slots=True)
class MatrixLoad:
    """`ldmatrix`: an 8 x 8 matrix of 16-bit elements into each result."""

    space: str
    results: tuple[Operand, ...]
    address: Address
    transposed: bool
    mask: Operand = _EVERY_LANE


@dataclass(frozen=True, slots=True)
class MatrixStore:
    """`stmatrix`: an 8 x 8 matrix of 16-bit elements out of each source."""

    space: str
    sources: tuple[Operand, ...]
    address: Address
    transposed: bool
    mask: Operand = _EVERY_LANE


@dataclass(frozen=True, slots=True)
class MatrixMove:
    """`movmatrix`: an 8 x 8 matrix of 16-bit elements, transposed."""

    result: Operand
    source: Operand
    mask: Operand = _EVERY_LANE


@dataclass(frozen=True, slots=True)
class FragmentLoad:
    """`wmma.load`: the matrix a, b or c of a product of `shape` (rows, columns, inner) from memory.

    Attributes:
        by_columns: True if a column's elements are adjacent in memory, False if a row's are.
        stride: elements from one row (or column) to the next; None if they are adjacent.
        sources: the registers read besides the address.
        packed: elements in one of `kind`; more than one for integers of 4 bits and bits, of which `shape` counts words.
    """

    space: str
    matrix: str
    shape: tuple[int, int, int]
    kind: str
    by_columns: bool
    results: tuple[Operand, ...]
    address: Address
    stride: Operand | None
    sources: tuple[Operand, ...]
    packed: int = 1
    mask: Operand = _EVERY_LANE


@dataclass(frozen=True, slots=True)
class FragmentStore:
    """`wmma.store`: the sum of a product to memory; attributes as in `FragmentLoad`, `matrix` is always c."""

    space: str
    matrix: str
    shape: tuple[int, int, int]
    kind: str
    by_columns: bool
    fragment: tuple[Operand, ...]
    address: Address
    stride: Operand | None
    sources: tuple[Operand, ...]
    packed: int = 1
    mask: Operand = _EVERY_LANE


@dataclass(frozen=True, slots=True)
class WarpgroupMultiply:
    """`wgmma.mma_async`: results = left right + results, of `shape` (rows, columns, inner), by four warps.

    Attributes:
        kinds: the types of left and right.
        results: the accumulator's registers.
        left: the registers with the fragment of A; empty if `left_at` is the descriptor of A in shared memory.
        right_at: the descriptor of B in shared memory.
        accumulates: predicate; where it is false the accumulator's old value is ignored.
        signs: 1 or -1, factors of A and B.
        transposed: True for A and for B if the elements along rows of A, or columns of B, are adjacent (MN-major).
        sources: all registers read.
    """

    shape: tuple[int, int, int]
    kinds: tuple[str, str]
    result_kind: str
    results: tuple[Operand, ...]
    left: tuple[Operand, ...]
    left_at: Operand | None
    right_at: Operand
    accumulates: Operand
    sources: tuple[Operand, ...]
    signs: tuple[int, int] = (1, 1)
    transposed: tuple[bool, bool] = (False, False)
    saturates: bool = False


@dataclass(frozen=True, slots=True)
class WarpgroupOrder:
    """`wgmma.fence`, `wgmma.commit_group`, or `wgmma.wait_group` until at most `left` groups are pending."""

    action: str
    left: int = 0


WARPGROUP_OPERATIONS = (WarpgroupMultiply, WarpgroupOrder)
"""Operations that wait for the four warps of their warpgroup."""


MATRIX_OPERATIONS = (MatrixMultiply, MatrixLoad, MatrixStore, MatrixMove, FragmentLoad, FragmentStore)

MatrixOperation = (
    MatrixMultiply
    | MatrixLoad
    | MatrixStore
    | MatrixMove
    | FragmentLoad
    | FragmentStore
    | WarpgroupMultiply
    | WarpgroupOrder
)
