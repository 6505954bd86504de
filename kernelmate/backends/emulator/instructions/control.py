"""Decodes barriers, exits and traps, and exchanges between lanes; branches are resolved once labels are known."""

from __future__ import annotations

from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes
from kernelmate.backends.emulator.operations import (
    ActiveMask,
    Barrier,
    ClusterBarrier,
    ElectLane,
    Exit,
    Match,
    Operation,
    Shuffle,
    Trap,
    Vote,
    WarpBarrier,
    WarpReduce,
)
from kernelmate.backends.emulator.program import Immediate, Instruction, RegisterPair, Sink


@decodes("bar", "barrier")
def decode_barrier(instruction: Instruction) -> Operation:
    """Barriers of a block, a warp or a cluster."""
    parts = [part for part in instruction.parts[1:] if part not in {"cta", "aligned"}]
    operands = instruction.operands
    aligned = instruction.name == "bar" or instruction.has("aligned")
    if parts[:1] == ["cluster"] and instruction.name == "barrier":
        return _cluster_barrier(instruction, parts[1:])
    if parts[:2] == ["warp", "sync"]:
        return WarpBarrier(operands[0] if operands else Immediate(0xFFFFFFFF))
    if parts == ["sync"] or parts == ["arrive"]:
        number = operands[0] if operands else Immediate(0)
        return Barrier(parts[0], number, operands[1] if len(operands) > 1 else None, aligned=aligned)
    if parts and parts[0] == "red" and parts[1] in {"popc", "and", "or"}:
        result, number, *count, source = operands
        return Barrier(parts[1], number, count[0] if count else None, result, source, aligned)
    raise Unsupported(instruction.opcode)


def _cluster_barrier(instruction: Instruction, parts: list[str]) -> Operation:
    aligned = instruction.has("aligned")
    if parts in (["arrive"], ["arrive", "release"], ["arrive", "relaxed"]):
        return ClusterBarrier(False, relaxed="relaxed" in parts, aligned=aligned)
    if parts in (["wait"], ["wait", "acquire"]):
        return ClusterBarrier(True, aligned=aligned)
    raise Unsupported(instruction.opcode)


@decodes("exit", "ret")
def decode_exit(instruction: Instruction) -> Operation:
    """Ends the thread; the `ret` of a function was replaced by a branch earlier."""
    del instruction
    return Exit()


@decodes("trap", "brkpt")
def decode_trap(instruction: Instruction) -> Operation:
    """Ends the launch with the finding `trap`."""
    return Trap(f"the kernel executed {instruction.name}")


_EVERY_LANE = Immediate(0xFFFFFFFF)


@decodes("shfl")
def decode_shuffle(instruction: Instruction) -> Operation:
    """Exchange of values between lanes: up, down, bfly, idx."""
    mode = instruction.parts[2] if instruction.has("sync") else instruction.parts[1]
    if mode not in {"up", "down", "bfly", "idx"}:
        raise Unsupported(instruction.opcode)
    destination, value, lane, clamp, *mask = instruction.operands
    result, predicate = (
        (destination.first, destination.second) if isinstance(destination, RegisterPair) else (destination, None)
    )
    return Shuffle(mode, result, predicate, value, lane, clamp, mask[0] if mask else _EVERY_LANE)


@decodes("vote")
def decode_vote(instruction: Instruction) -> Operation:
    """Votes of lanes on a predicate: all, any, uni, ballot."""
    mode = next((part for part in instruction.parts[1:] if part in {"all", "any", "uni", "ballot"}), None)
    if mode is None:
        raise Unsupported(instruction.opcode)
    destination, source, *mask = instruction.operands
    return Vote(mode, destination, source, mask[0] if mask else None)


@decodes("match")
def decode_match(instruction: Instruction) -> Operation:
    """Computes the mask of the lanes that have an equal value (`match.any`, `match.all`)."""
    mode, kind = instruction.parts[1], instruction.kind
    if mode not in {"any", "all"} or kind not in {"b32", "b64"}:
        raise Unsupported(instruction.opcode)
    destination, value, mask = instruction.operands
    result, predicate = (
        (destination.first, destination.second) if isinstance(destination, RegisterPair) else (destination, None)
    )
    return Match(mode, kind, result, predicate, value, mask)


@decodes("redux")
def decode_reduce(instruction: Instruction) -> Operation:
    """Reduction of 32-bit integers across the lanes of a mask: add, min, max, and, or, xor."""
    action, kind = instruction.parts[2], instruction.kind
    if action not in {"add", "min", "max", "and", "or", "xor"} or kind not in {"u32", "s32", "b32"}:
        raise Unsupported(instruction.opcode)
    destination, value, mask = instruction.operands
    return WarpReduce(action, kind, destination, value, mask)


@decodes("activemask")
def decode_active(instruction: Instruction) -> Operation:
    """Computes the mask of the active lanes."""
    return ActiveMask(instruction.operands[0])


@decodes("elect")
def decode_elect(instruction: Instruction) -> Operation:
    """`elect.sync`: the first lane of the mask."""
    destination, mask = instruction.operands
    if instruction.parts != ("elect", "sync") or not isinstance(destination, RegisterPair):
        raise Unsupported(instruction.opcode)
    lane = None if isinstance(destination.first, Sink) else destination.first
    return ElectLane(lane, destination.second, mask)
