"""Shuffles, votes and warp barriers of full warps, with all 32 lanes present and named by every mask.

Any other case is left to the scheduler, which waits for missing lanes and reports wrong masks.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from kernelmate.backends.emulator.decode import DecodedStep
from kernelmate.backends.emulator.jit.emit import number
from kernelmate.backends.emulator.jit.lowering import I32
from kernelmate.backends.emulator.operations import Shuffle, Vote, WarpBarrier

EVERYONE = -1
_VOTES = frozenset({"ballot", "all", "any", "uni"})


def exchanges(step: DecodedStep) -> bool:
    """True if the step has a native form among whole warps."""
    operation = step.operation
    if step.guard is not None:
        return False
    if isinstance(operation, Vote):
        return operation.mode in _VOTES
    return isinstance(operation, Shuffle | WarpBarrier)


def source_lane(
    b: ir.IRBuilder, mode: str, own: ir.Value, lane: ir.Value, clamp: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Returns the lane that a lane reads from (itself if outside its segment), and whether it is within (PTX, shfl)."""
    lane = b.and_(lane, number(31, I32))
    bound = b.and_(clamp, number(31, I32))
    segment = b.and_(b.lshr(clamp, number(8, I32)), number(31, I32))
    lowest = b.and_(own, segment)
    highest = b.or_(lowest, b.and_(bound, b.not_(segment)))
    source = {
        "up": lambda: b.sub(own, lane),
        "down": lambda: b.add(own, lane),
        "bfly": lambda: b.xor(own, lane),
        "idx": lambda: b.or_(lowest, b.and_(lane, b.not_(segment))),
    }[mode]()
    valid = b.icmp_signed(">=" if mode == "up" else "<=", source, highest)
    return b.select(valid, source, own), valid


def vote_result(b: ir.IRBuilder, mode: str, bits: ir.Value) -> ir.Value:
    """Returns the result of a vote for every lane, from the lanes whose predicate is true."""
    nobody, everybody = number(0, I32), number(EVERYONE, I32)
    results: dict[str, Callable[[], ir.Value]] = {
        "ballot": lambda: bits,
        "all": lambda: b.icmp_unsigned("==", bits, everybody),
        "any": lambda: b.icmp_unsigned("!=", bits, nobody),
        "uni": lambda: b.or_(b.icmp_unsigned("==", bits, everybody), b.icmp_unsigned("==", bits, nobody)),
    }
    return results[mode]()
