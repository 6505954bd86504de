"""Follows the warps of a launch through the branches of its SASS.

Only values that branches depend on are computed, from the launch's shape, its arguments, and each thread's coordinates:
integers, predicates, and parts of addresses. Anything that depends on an instruction missing here is unknown.
At a data-dependent branch both paths are skipped if they rejoin and compute nothing that other branches depend on.
Lanes of a warp at one block continue together, those at the lowest address first, where compilers let them reconverge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from kernelmate.backends.emulator.sass.arithmetic import (
    absolute,
    add,
    add_least,
    funnel,
    multiply_add,
    reciprocal,
    shift_add,
    to_float,
    to_integer,
)
from kernelmate.backends.emulator.sass.code import SassOp
from kernelmate.backends.emulator.sass.graph import ControlFlowGraph, SassBlock, Unknown
from kernelmate.backends.emulator.sass.logic import (
    Compute,
    compare,
    load_constant,
    logic,
    minimum_or_maximum,
    move,
    pack_predicates,
    packed_constant,
    permute,
    predicate_logic,
    select,
    special,
)
from kernelmate.backends.emulator.sass.operands import ConstantBank, Values, truth
from kernelmate.backends.emulator.types import Array
from kernelmate.records import LaunchShape

Step = Callable[[Values, Array | None], None]
Maker = Callable[[SassOp, ConstantBank], Compute]

_MAKERS: dict[str, Maker] = {
    "IADD3": add, "IADD": add, "VIADD": add, "IMAD": multiply_add, "LEA": shift_add, "LOP3": logic,
    "PLOP3": predicate_logic, "SHF": funnel, "ISETP": compare, "SEL": select, "IMNMX": minimum_or_maximum, "VIMNMX": minimum_or_maximum,
    "MOV": move, "R2UR": move, "LDC": load_constant, "LDCU": load_constant, "S2R": special, "S2UR": special,
    "CS2R": special, "IABS": absolute, "PRMT": permute, "HFMA2": packed_constant, "I2F": to_float,
    "MUFU": reciprocal, "F2I": to_integer, "VIADDMNMX": add_least, "P2R": pack_predicates,
}  # fmt: skip
"""Functions by opcode; uniform opcodes (`UIADD3`) without their U."""


def is_modelled(op: SassOp) -> bool:
    """Returns True if some form of this opcode is supported."""
    return op.name in _MAKERS or op.name.removeprefix("U") in _MAKERS


def step(op: SassOp, frame: ConstantBank) -> Step:
    """Returns an operation as a function of registers, for some lanes or (None) for all.

    Raises:
        Unknown: its semantics are unknown.
    """
    maker = _MAKERS.get(op.name) or _MAKERS.get(op.name.removeprefix("U"))
    if maker is None:
        raise Unknown(f"{op.opcode}, which depends on data or is not modelled")
    try:
        compute = maker(op, frame)
    except (IndexError, ValueError, KeyError):
        raise Unknown(f"a form of {op.opcode} that is not modelled") from None
    guard = truth(op.guard) if op.partial and op.guard is not None else None
    names = op.results

    def done(values: Values, lanes: Array | None) -> None:
        where = lanes if guard is None else guard(values) if lanes is None else guard(values) & lanes
        for name, result in zip(names, compute(values), strict=True):
            if where is None:
                values[name] = result
            else:
                values[name] = np.where(where, result, values.get(name, result.dtype.type(0)))

    return done


_WARPS_AT_ONCE = 8192
_MOST_WORK = 200_000_000
"""Maximum number of lanes times operations; a larger launch would take seconds to follow."""
_CALL_COST = 2000
"""Minimum of lanes that one operation counts for."""
_SLOW = "$__internal_"
"""Prefixes of ptxas's own functions."""
_GONE = np.int32((1 << 15) - 1)
"""Position of lanes that have ended or never existed; kernels with at least this many basic blocks are not followed."""


@dataclass
class Visits:
    """Entry counts of blocks.

    Attributes:
        threads, warps: of blocks whose visits are known.
        waits: number of times that part of a warp arrived, for blocks that begin by waiting for the warp's other lanes.
        skipped: blocks that end with a branch on data, each with the block where the branch's two paths rejoin.
        usual: branches taken to avoid the slow path of a division or a root.
    """

    threads: dict[int, int] = field(default_factory=dict)
    warps: dict[int, int] = field(default_factory=dict)
    waits: dict[int, int] = field(default_factory=dict)
    skipped: Mapping[int, int] = field(default_factory=dict)
    usual: frozenset[int] = frozenset()


class WarpWalker:
    """A kernel's branches, prepared to be followed for any launch.

    Raises:
        Unknown: branches depend on more than launch and arguments; the message gives the reason.
    """

    def __init__(self, graph: ControlFlowGraph, frame: ConstantBank) -> None:
        self._graph = graph
        self._frame = frame
        self._steps: dict[int, Step] = {}
        self.skipped: dict[int, int] = {}
        self.usual: dict[int, int] = {}
        self._waits = frozenset(block.index for block in graph.blocks if graph.ops[block.start].name == "BSYNC")
        if len(graph.blocks) >= _GONE:
            raise Unknown(f"it has {len(graph.blocks)} basic blocks, which are too many to follow")
        self._plan()
        self._live = self._liveness()

    def _plan(self) -> None:
        """Selects branches that can be followed, with all operations that they depend on."""
        needed: set[int] = set()
        doubtful: list[tuple[SassBlock, Unknown]] = []
        for block in (self._graph.blocks[index] for index in sorted(self._graph.main)):
            last = self._graph.ops[block.end - 1]
            if last.name in {"RET", "BPT", "KILL"} or not block.decides or "DIV" in last.modifiers:
                continue
            try:
                behind = self._graph.behind(block)
                # An unsupported opcode is a better reason for an unknown branch than its inputs.
                for number in sorted(behind - self._steps.keys(), key=lambda n: (is_modelled(self._graph.ops[n]), n)):
                    self._steps[number] = step(self._graph.ops[number], self._frame)
                needed |= behind
            except Unknown as reason:
                doubtful.append((block, reason))
        self._steps = {number: self._steps[number] for number in sorted(needed)}
        for block, doubt in doubtful:
            usual = self._usual_way(block)
            if usual is not None:
                self.usual[block.index] = usual
                continue
            self.skipped[block.index] = self._way_round(block, doubt)

    def _usual_way(self, block: SassBlock) -> int | None:
        """Returns the other path of a branch if exactly one of its two paths leads directly to a slow path of ptxas."""
        slow = [target for target in block.targets if self._is_slow(target)]
        others = [target for target in block.targets if target not in slow]
        return others[0] if len(slow) == 1 and len(others) == 1 else None

    def _is_slow(self, index: int) -> bool:
        block = self._graph.blocks[index]
        if block.calls is None:
            return False
        return self._graph.ops[self._graph.blocks[block.calls].start].function.startswith(_SLOW)

    def _way_round(self, block: SassBlock, reason: Unknown) -> int:
        """Returns the block at which both paths of a branch rejoin.

        Raises:
            Unknown: they do not, or they compute something that other branches depend on.
        """
        line = self._graph.ops[block.end - 1]
        where = f"the branch at {line.address:#x} of the SASS depends on {reason}"
        meeting = self._graph.joins(block.index)
        if meeting is None or block.exits:
            raise Unknown(where)
        between = self._graph.reached(block.targets, without=meeting)
        inside = {n for index in between for n in range(self._graph.blocks[index].start, self._graph.blocks[index].end)}
        if block.index in between or inside & self._steps.keys() or any(self._graph.blocks[b].exits for b in between):
            raise Unknown(where)
        return meeting

    def _liveness(self) -> list[frozenset[str]]:
        """Computes, for each block, the live registers and special registers at its start."""
        graph = self._graph
        live: list[set[str]] = [set() for _ in graph.blocks]
        changed = True
        while changed:
            changed = False
            for block in reversed(graph.blocks):
                if block.index not in graph.main:
                    continue
                wanted = set[str]().union(*(live[target] for target in block.targets))
                if block.index in self.skipped:
                    wanted |= live[self.skipped[block.index]]
                elif (
                    block.index not in self.usual and block.decides and "DIV" not in graph.ops[block.end - 1].modifiers
                ):
                    wanted |= {one.lstrip("!") for one in block.condition}
                for number in range(block.end - 1, block.start - 1, -1):
                    if number in self._steps:
                        op = graph.ops[number]
                        if not op.partial:
                            wanted -= set(op.results)
                        wanted |= {*op.reads, *(text for text in op.inputs if text.startswith("SR_"))}
                if wanted - live[block.index]:
                    live[block.index] |= wanted
                    changed = True
        return [frozenset(one) for one in live]

    def follow(self, shape: LaunchShape) -> Visits:
        """Counts how often the threads of a launch enter each block.

        Raises:
            Unknown: the launch takes too long to follow, or warps reach an unsupported block.
        """
        visits = Visits(skipped=self.skipped, usual=frozenset(self.usual))
        wanted = self._live[0]
        one_for_all = not any(name.startswith("SR_CTAID") for name in wanted)
        blocks = 1 if one_for_all else shape.blocks
        warps = -(-shape.threads // 32)
        at_once = max(_WARPS_AT_ONCE // warps, 1)
        if blocks * warps * 32 > _MOST_WORK:
            raise Unknown(f"{blocks * warps} warps are too many to follow")
        work = 0
        for first in range(0, blocks, at_once):
            count = min(at_once, blocks - first)
            part = _WarpGroup(shape, first, count, shape.blocks if one_for_all else 1)
            work = self._run(part, visits, work)
        return visits

    def _run(self, part: _WarpGroup, visits: Visits, work: int) -> int:
        turns, dedupe_at = 0, 1
        while True:
            here = int(part.at.min())
            if here == _GONE:
                return work
            if turns == dedupe_at:
                dedupe_at *= 2
                part.merge(frozenset().union(*(self._live[index] for index in part.places())))
            turns += 1
            work += self._visit(part, self._graph.blocks[here], visits)
            if work > _MOST_WORK:
                raise Unknown("the launch takes too long to follow")

    def _visit(self, part: _WarpGroup, block: SassBlock, visits: Visits) -> int:
        """Lets the warps at a block execute it."""
        lanes = part.at == block.index
        every = None if lanes.all() else lanes
        index = block.index
        visits.threads[index] = visits.threads.get(index, 0) + int((lanes.sum(axis=1) * part.weights).sum())
        visits.warps[index] = visits.warps.get(index, 0) + int((lanes.any(axis=1) * part.weights).sum())
        done = 1
        for number in range(block.start, block.end):
            if number in self._steps:
                self._steps[number](part.values, every)
                done += 1
        self._leave(part, block, lanes)
        for target in self._waits & {*block.targets, self.skipped.get(block.index, -1)}:
            came = (lanes & (part.at == target)).any(axis=1)
            visits.waits[target] = visits.waits.get(target, 0) + int((came * part.weights).sum())
        return done * max(int(lanes.size), _CALL_COST)

    def _leave(self, part: _WarpGroup, block: SassBlock, lanes: Array) -> None:
        """Sets the next position of the lanes at a block's end."""
        last = self._graph.ops[block.end - 1]
        following = _GONE if block.following is None else np.int32(block.following)
        if block.index in self.skipped:
            part.at[lanes] = self.skipped[block.index]
        elif block.index in self.usual:
            part.at[lanes] = self.usual[block.index]
        elif "DIV" in last.modifiers:
            if ((part.at != _GONE) & lanes.any(axis=1, keepdims=True) & ~lanes).any():
                raise Unknown(f"{last.opcode} at {last.address:#x} is reached by parts of warps")
            part.at[lanes] = following
        elif block.decides and last.name in {"BRA", "EXIT"}:
            holds = np.ones((1, 1), bool)
            for predicate in block.condition:
                holds = holds & truth(predicate)(part.values)
            away = _GONE if block.taken is None else np.int32(block.taken)
            part.at = np.where(lanes, np.where(holds, away, following), part.at)
        elif last.name in {"BPT", "KILL", "RET"}:
            raise Unknown(f"{last.opcode} at {last.address:#x} is reached")
        else:
            part.at[lanes] = block.taken if block.taken is not None else following


class _WarpGroup:
    """Several warps of a launch: positions of their lanes and register values.

    `weights` is the number of warps that each represents.
    """

    def __init__(self, shape: LaunchShape, first: int, count: int, weight: int) -> None:
        warps = -(-shape.threads // 32)
        rows = count * warps
        thread = np.arange(warps * 32).reshape(warps, 32)
        self.at: Array = np.where(np.tile(thread < shape.threads, (count, 1)), np.int32(0), _GONE).astype(np.int32)
        self.weights: Array = np.full(rows, weight, np.int64)
        self.values: Values = {}
        block = np.repeat(np.arange(first, first + count, dtype=np.int64), warps)[:, None]
        for axis, (inner, extent, grid) in enumerate(
            zip((1, shape.block[0], shape.block[0] * shape.block[1]), shape.block, shape.grid, strict=True)
        ):
            name = "XYZ"[axis]
            before = (1, shape.grid[0], shape.grid[0] * shape.grid[1])[axis]
            self.values[f"SR_TID.{name}"] = np.tile((thread // inner % extent).astype(np.uint32), (count, 1))
            self.values[f"SR_CTAID.{name}"] = (block // before % grid).astype(np.uint32)
        self.values["SR_LANEID"] = np.arange(32, dtype=np.uint32)[None, :]
        self.values["SR_CgaCtaId"] = np.zeros((1, 1), np.uint32)

    def places(self) -> list[int]:
        """Returns the indices of the basic blocks at which lanes currently are."""
        there = np.flatnonzero(np.bincount(self.at.reshape(-1)))
        return [int(index) for index in there if index != _GONE]

    def merge(self, wanted: frozenset[str]) -> None:
        """Merges warps that are equal in all live values, and drops dead values."""
        rows = len(self.at)
        self.values = {name: value for name, value in self.values.items() if name in wanted}
        if rows == 1:
            return
        columns = [self.at.view(np.uint32), *(it.astype(np.uint32) for it in self.values.values() if len(it) > 1)]
        keys = np.zeros(rows, np.uint64)
        factors = np.random.default_rng(0)
        for column in columns:
            keys += column @ factors.integers(1, 1 << 63, column.shape[1], np.uint64)
        _, kept, number = np.unique(keys, return_index=True, return_inverse=True)
        same = kept[number]
        if any((column != column[same]).any() for column in columns):
            return  # a collision of hashes, which is practically impossible
        if len(kept) == rows:
            return
        self.weights = np.bincount(number.reshape(-1), self.weights).astype(np.int64)
        self.at = self.at[kept]
        self.values = {name: value[kept] if value.shape[0] > 1 else value for name, value in self.values.items()}
