"""Decodes shuffles, votes and reductions between the lanes of a warp."""

from __future__ import annotations

from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes
from kernelmate.backends.emulator.operations import ActiveMask, Elect, Match, Operation, Shuffle, Vote, WarpReduce
from kernelmate.backends.emulator.program import Immediate, Instruction, RegisterPair, Sink

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
    return Elect(lane, destination.second, mask)
