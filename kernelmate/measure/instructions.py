"""Executed instructions of a launch: PTX by class, weighted by the execution count of each basic block."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from kernelmate.backends.emulator.decode import DecodedKernel, decode
from kernelmate.backends.emulator.link import LinkRefused, link
from kernelmate.backends.emulator.operations import Barrier, Branch
from kernelmate.backends.emulator.ptx import PtxError, parse_program

CLASSES = (
    "fp32", "fp64", "fp16", "sfu", "int", "convert64", "shuffle", "control", "global_load", "global_store", "shared_load",
    "shared_store", "shared_atomic", "local_load", "local_store", "atomic", "reduction", "barrier", "tensor",
)  # fmt: skip
"""Instruction classes; each is limited by a different part of an SM."""

WAITED_FOR = frozenset({"global_load", "shared_load", "shared_atomic", "local_load", "atomic", "shuffle"})
"""Classes with a latency long enough to stall a warp that needs the result."""


@dataclass(frozen=True, slots=True)
class CostedInstruction:
    """Cost of one PTX instruction.

    Attributes:
        kind: its class.
        issue: approximate number of SASS instructions that ptxas generates for it.
        work: results of its class (for example the double-precision operations of a division).
        sfu: results of the special function unit that it also needs.
        flops: floating-point operations by convention (2 for a fused multiply-add).
    """

    kind: str
    issue: float
    work: float
    sfu: float = 0.0
    flops: float = 0.0


@dataclass(frozen=True, slots=True)
class CountedBlock:
    """One PTX basic block with the instruction counts that the emulator multiplies.

    `region` numbers stretches of code without a barrier or loop boundary. Loads of one stretch are assumed to be issued
    together, since ptxas predicates short conditional blocks and hoists loads.
    """

    label: str
    instructions: tuple[CostedInstruction, ...]
    region: int = 0


@dataclass(frozen=True, slots=True)
class Mix:
    """Instruction counts over all threads of one launch.

    Attributes:
        work: results by class, summed over threads.
        issue: SASS instructions, summed over threads.
        flops: floating-point operations by precision (`fp32`, `fp64`, `fp16`, `tensor`).
        rounds: number of exposed latencies by class: loads of one stretch of code overlap and cost one latency;
            shuffles and atomics cost one per basic block that contains some.
    """

    work: Mapping[str, float]
    issue: float
    flops: Mapping[str, float]
    rounds: Mapping[str, float]


EXPANSIONS: tuple[tuple[re.Pattern[str], CostedInstruction], ...] = tuple(
    (re.compile(pattern), instruction)
    for pattern, instruction in (
        (r"(div|rcp|sqrt)\.r[nzmp]\.f64", CostedInstruction("fp64", 18, 10, 1, 1)),
        (r"rsqrt\..*f64", CostedInstruction("fp64", 14, 8, 1, 1)),
        (r"(div)\.r[nzmp].*f32", CostedInstruction("fp32", 10, 8, 1, 1)),
        (r"(rcp|sqrt)\.r[nzmp].*f32", CostedInstruction("fp32", 8, 6, 1, 1)),
        (r"(div\.(full|approx)).*f32", CostedInstruction("fp32", 3, 2, 1, 1)),
        (r"(ex2|lg2|sin|cos|tanh|rsqrt|rcp|sqrt)\.approx", CostedInstruction("sfu", 2, 1, 0, 1)),
        (r"(div|rem)\.[us]64", CostedInstruction("int", 70, 70, 2)),
        (r"(div|rem)\.[us](16|32)", CostedInstruction("int", 16, 14, 1)),
        (r"(mul\.lo|mul\.hi|mad\.lo|mad\.hi)\.[us]64", CostedInstruction("int", 4, 4)),
        (r"(add|sub|shl|shr|setp\.\w+|selp|min|max|and|or|xor)\.[usb]64", CostedInstruction("int", 2, 2)),
    )
)
"""PTX instructions that ptxas expands into a sequence, with the sequence's length.

Counted in nvdisasm's output for sm_90, fast paths only; rounded.
"""


ASKED_AT_ONCE = frozenset({"global_load", "shared_load", "local_load"})
"""Classes whose instructions in one stretch overlap and are waited for together.

Those of other classes depend on one another.
"""


_FLOPS_OF_MMA = 2 * 16 * 8 * 16 / 32
"""One thread's share of the operations of `mma.sync.m16n8k16`."""


def classify(opcode: str) -> CostedInstruction | None:
    """Returns the cost of a PTX opcode (`fma.rn.f32`); None if it has no cost of its own."""
    for pattern, expansion in EXPANSIONS:
        if pattern.match(opcode):
            return expansion
    head, _, rest = opcode.partition(".")
    memory = _memory(head, rest)
    if memory is not None:
        return memory
    if head in {"mov", "cvta", "ret", "exit", "pragma", "isspacep", "ld", "prefetch", "membar", "fence"}:
        return None if head != "ret" else CostedInstruction("control", 1, 1)
    if head in {"bra", "brx", "call", "trap", "activemask", "vote", "match", "nanosleep"}:
        return CostedInstruction("control", 1, 1)
    if head in {"bar", "barrier"}:
        return CostedInstruction("barrier", 1, 1)
    if head in {"shfl", "redux"}:
        return CostedInstruction("shuffle", 1, 1)
    if head == "mma":
        return _matrix(rest)
    if head == "wmma":
        return _fragments(rest)
    if head == "wgmma":
        return _warpgroup(rest)
    if head == "cvt":
        return CostedInstruction("convert64" if re.search(r"[fsu]64", rest) and "f" in rest else "int", 1, 1)
    return _arithmetic(head, rest)


def _memory(head: str, rest: str) -> CostedInstruction | None:
    if head in {"atom", "red"}:
        kind = "shared_atomic" if re.search(r"\bshared\b", rest) else "atomic" if head == "atom" else "reduction"
        return CostedInstruction(kind, 1, 1)
    if head not in {"ld", "ldu", "st"}:
        return None
    action = "store" if head == "st" else "load"
    if re.search(r"\b(?:param|const)\b", rest):
        return None
    space = next((space for space in ("shared", "local") if re.search(rf"\b{space}\b", rest)), "global")
    return CostedInstruction(f"{space}_{action}", 1, 1)


def _matrix(rest: str) -> CostedInstruction:
    """Returns one thread's share of a warp's `mma.sync...m16n8k16...`.

    Two operations for each of its m x n x k products.
    """
    sides = re.search(r"\bm(\d+)n(\d+)k(\d+)\b", rest)
    products = math.prod(int(side) for side in sides.groups()) if sides else 0
    return CostedInstruction("tensor", 1, 1, 0, 2 * products / 32)


def _warpgroup(rest: str) -> CostedInstruction:
    """Returns one thread's share of `wgmma.mma_async` of four warps; its fences, groups and waits are one instruction each."""
    if not rest.startswith("mma_async."):
        return CostedInstruction("control", 1, 1)
    product = _matrix(rest)
    return replace(product, flops=product.flops / 4)


def _fragments(rest: str) -> CostedInstruction:
    """Returns one thread's share of `wmma`: a product is two or more of `mma.sync`, a load or a store several accesses."""
    if rest.startswith("mma."):
        product = _matrix(rest)
        return replace(product, issue=max(1.0, product.flops / _FLOPS_OF_MMA))
    space = "shared" if re.search(r"\bshared\b", rest) else "global"
    return CostedInstruction(f"{space}_{rest.partition('.')[0]}", 4, 4)


def _arithmetic(head: str, rest: str) -> CostedInstruction:
    flops = 2.0 if head in {"fma", "mad"} else 1.0 if head in {"add", "sub", "mul", "neg", "abs", "min", "max"} else 0.0
    if "f64" in rest:
        return CostedInstruction("fp64", 1, 1, 0, flops)
    if "f16x2" in rest or "bf16x2" in rest:
        return CostedInstruction("fp16", 1, 2, 0, 2 * flops)
    if "f16" in rest:
        return CostedInstruction("fp16", 1, 1, 0, flops)
    if "f32" in rest:
        return CostedInstruction("fp32", 1, 1, 0, flops)
    return CostedInstruction("int", 1, 1)


@lru_cache(maxsize=256)
def basic_blocks(ptx: str, entry: str) -> tuple[CountedBlock, ...]:
    """Returns the basic blocks of an entry with calls inlined, labelled as in `RunResult.block_counts`.

    The result is empty if the emulator cannot read the PTX; then there are no counts either.
    """
    try:
        decoded = decode(link(parse_program(ptx, entry), entry))
    except (PtxError, LinkRefused):
        return ()
    regions = _regions(decoded)
    return tuple(
        CountedBlock(
            block.label,
            tuple(
                instruction
                for step in decoded.steps[block.start : block.end]
                if (instruction := classify(step.opcode)) is not None
            ),
            regions[block.index],
        )
        for block in decoded.blocks
    )


def _regions(decoded: DecodedKernel) -> list[int]:
    """Returns the number of each block's stretch (see `CountedBlock.region`).

    A new one starts at a loop's head, after its end, after a barrier, and at an exit in the middle of a loop: loads
    after such an exit are issued only after its test, as in unrolled loops that keep every test.
    """
    lasts = [decoded.steps[block.end - 1].operation for block in decoded.blocks]
    loops = [(last.target, block.end) for block, last in zip(decoded.blocks, lasts, strict=True)
             if isinstance(last, Branch) and last.target <= block.start]  # fmt: skip
    heads = {head for head, _ in loops}
    ends: set[int] = set()
    for block, last in zip(decoded.blocks, lasts, strict=True):
        if isinstance(last, Barrier):
            ends.add(block.index)
        elif isinstance(last, Branch):
            around = [end for head, end in loops if head <= block.start and block.end <= end]
            if last.target <= block.start or (around and last.target >= min(around)):
                ends.add(block.index)
    regions: list[int] = []
    for block in decoded.blocks:
        starts = not regions or block.start in heads or block.index - 1 in ends
        regions.append((regions[-1] if regions else 0) + starts)
    return regions


def count(blocks: Iterable[CountedBlock], entered: Mapping[str, int]) -> Mix:
    """Sums blocks, each weighted by the number of threads that entered it."""
    work: defaultdict[str, float] = defaultdict(float)
    flops: defaultdict[str, float] = defaultdict(float)
    rounds: defaultdict[tuple[str, str | int], float] = defaultdict(float)
    issue = 0.0
    for block in blocks:
        times = entered.get(block.label, 0)
        if not times:
            continue
        for instruction in block.instructions:
            work[instruction.kind] += instruction.work * times
            work["sfu"] += instruction.sfu * times
            issue += instruction.issue * times
            if instruction.flops:
                precision = "fp32" if instruction.kind == "sfu" else instruction.kind
                flops[precision] += instruction.flops * times
        for kind in {instruction.kind for instruction in block.instructions} & WAITED_FOR:
            place = (kind, block.region if kind in ASKED_AT_ONCE else block.label)
            rounds[place] = max(rounds[place], times)
    waits: defaultdict[str, float] = defaultdict(float)
    for (kind, _), waited in rounds.items():
        waits[kind] += waited
    return Mix(dict(work), issue, dict(flops), dict(waits))
