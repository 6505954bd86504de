"""Order of accesses to the registers of `wgmma.mma_async`, which uses them until its group has been waited for.

PTX ISA 8.7, wgmma.fence and wgmma.wait_group: until then, no other instruction may access the accumulator or the registers
of A; and between an access and a `wgmma.mma_async` of the same register there must be a `wgmma.fence`, except from one
`wgmma.mma_async` to the next with the same shape. Two accesses do not count, since compilers place them where they like: a
move from register to register gives its result the state of its source, and a constant may be moved into a register after
the fence.

A data-flow analysis finds the few instructions at which something may be in flight, or may have changed since the fence; only
they are watched while the kernel runs. The state is kept by warpgroup, as its threads execute these instructions together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernelmate.backends.emulator.decode import DecodedKernel, DecodedStep, registers_in
from kernelmate.backends.emulator.findings import Findings, at_line
from kernelmate.backends.emulator.happens_before import CopyGroups
from kernelmate.backends.emulator.lanes import Group, Lanes
from kernelmate.backends.emulator.liveness import operands_of, successors
from kernelmate.backends.emulator.matrix_operations import WarpgroupMultiply, WarpgroupOrder
from kernelmate.backends.emulator.operations import Compute
from kernelmate.backends.emulator.program import Position
from kernelmate.backends.emulator.registers import Bound
from kernelmate.backends.emulator.types import SIZES, Array
from kernelmate.records import FindingCode, Severity

_MOST_GROUPS = 8
"""Maximum number of groups in flight that the analysis distinguishes; code usually has one or two."""


@dataclass(frozen=True, slots=True)
class _Misuse:
    """A finding's text, with a place for the line of the other access, and its severity."""

    text: str
    severity: Severity = "error"


_WAIT = "wait for its group first (wgmma.commit_group, then wgmma.wait_group)"
_READ = _Misuse(f"reads an accumulator of wgmma.mma_async{{}}, which may not be complete; {_WAIT}")
_CHANGED = _Misuse(f"changes an accumulator of wgmma.mma_async{{}}, which may not be complete; {_WAIT}")
_CHANGED_PART = _Misuse(f"changes a register of A that wgmma.mma_async{{}} may still read; {_WAIT}")
_READ_PART = _Misuse(
    f"reads a register of A of wgmma.mma_async{{}}, which PTX forbids until the product is complete; {_WAIT}", "warning"
)
_FENCE = "put wgmma.fence.sync.aligned between the two"
_UNFENCED = _Misuse(f"uses a register in wgmma.mma_async that was accessed{{}}, after the last wgmma.fence; {_FENCE}")
_OTHER_SHAPE = _Misuse(f"accumulates where wgmma.mma_async{{}} does, which has another shape; {_FENCE}")


@dataclass(frozen=True, slots=True)
class RegisterUse:
    """Accesses of an instruction to registers that `wgmma` uses too.

    Attributes:
        source: of a move between two of them, the register moved from; then `writes` is the other.
        constant: it writes a constant.
    """

    reads: frozenset[str]
    writes: frozenset[str]
    source: str | None = None
    constant: bool = False


@dataclass(frozen=True, slots=True)
class RegisterPlan:
    """The registers that `wgmma` uses, with a row of the state for each, and the watched instructions by their numbers."""

    rows: Mapping[str, int]
    watched: Mapping[int, RegisterUse]


def plan_of(decoded: DecodedKernel) -> RegisterPlan | None:
    """Returns the plan of register accesses to watch in a kernel; None if it has no `wgmma`."""
    products = [step.operation for step in decoded.steps if isinstance(step.operation, WarpgroupMultiply)]
    if not products:
        return None
    used = {name for product in products for name in (*_accumulator(product), *_fragment(product))}
    uses = _uses(decoded, used)
    watched = {
        number
        for states in _in_flight(decoded, uses)
        for number, state in states.items()
        if not state.isdisjoint(uses[number].reads | uses[number].writes)
    }
    watched |= _unfenced(decoded, uses)
    names = sorted(used | {name for use in uses.values() for name in (*use.reads, *use.writes)})
    rows = {name: row for row, name in enumerate(names)}
    return RegisterPlan(rows, {number: use for number, use in uses.items() if number in watched})


def _accumulator(product: WarpgroupMultiply) -> list[str]:
    return [name for operand in product.results for name in registers_in(operand)]


def _fragment(product: WarpgroupMultiply) -> list[str]:
    return [name for operand in product.left for name in registers_in(operand)]


def _uses(decoded: DecodedKernel, used: set[str]) -> dict[int, RegisterUse]:
    """Returns the accesses of all other instructions to these registers, and to those that they are moved to and from."""
    moves = {number: pair for number, step in enumerate(decoded.steps) if (pair := _moved(step)) is not None}
    tracked = set(used)
    before = 0
    while len(tracked) > before:
        before = len(tracked)
        tracked |= {name for pair in moves.values() if not tracked.isdisjoint(pair) for name in pair}
    found = {}
    for number, step in enumerate(decoded.steps):
        if isinstance(step.operation, WarpgroupMultiply):
            continue
        names = {name for operand in operands_of(step.operation) for name in registers_in(operand)}
        reads, writes = tracked & names, tracked & set(step.writes)
        if reads or writes:
            source = moves[number][1] if number in moves else None
            constant = step.opcode.startswith("mov.") and not names
            found[number] = RegisterUse(frozenset(reads), frozenset(writes), source, constant)
    return found


def _moved(step: DecodedStep) -> tuple[str, str] | None:
    """Returns destination and source of a move between two registers of 32 bits."""
    operation = step.operation
    if not isinstance(operation, Compute) or not step.opcode.startswith("mov.") or step.guard is not None:
        return None
    if len(operation.results) != 1 or len(operation.sources) != 1 or SIZES[operation.results[0][1]] != 4:
        return None
    to, origin = registers_in(operation.results[0][0]), registers_in(operation.sources[0][0])
    return (to[0], origin[0]) if to and origin else None


def _in_flight(decoded: DecodedKernel, uses: Mapping[int, RegisterUse]) -> list[dict[int, frozenset[str]]]:
    """Returns, by block and watched instruction, the registers that may be in flight when it is executed.

    The state gives for each register the smallest number of groups committed since it was used.
    """
    before: list[dict[str, int]] = [{} for _ in decoded.blocks]
    found: list[dict[int, frozenset[str]]] = [{} for _ in decoded.blocks]
    pending = list(range(len(decoded.blocks)))
    while pending:
        number = pending.pop(0)
        block = decoded.blocks[number]
        state = dict(before[number])
        for at in range(block.start, block.end):
            use = uses.get(at)
            if use is not None:
                found[number][at] = frozenset(state)
            _advance(state, decoded.steps[at], use)
        for after in successors(decoded, block):
            joined = dict(before[after])
            for name, age in state.items():
                joined[name] = min(age, joined.get(name, age))
            if joined != before[after]:
                before[after] = joined
                if after not in pending:
                    pending.append(after)
    return found


def _advance(state: dict[str, int], step: DecodedStep, use: RegisterUse | None) -> None:
    operation = step.operation
    if isinstance(operation, WarpgroupMultiply):
        state.update(dict.fromkeys((*_accumulator(operation), *_fragment(operation)), 0))
    elif isinstance(operation, WarpgroupOrder):
        if operation.action == "commit":
            state.update({name: min(age + 1, _MOST_GROUPS) for name, age in state.items()})
        elif operation.action == "wait":
            for name in [name for name, age in state.items() if age > operation.left]:
                del state[name]
    elif use is not None and use.source is not None:
        (to,) = use.writes
        age = state.pop(use.source, None) if to == use.source else state.get(use.source)
        state.pop(to, None)
        if age is not None:
            state[to] = age


def _unfenced(decoded: DecodedKernel, uses: Mapping[int, RegisterUse]) -> set[int]:
    """Returns the instructions after which a `wgmma.mma_async` of one of their registers may come without a fence."""
    needed: list[frozenset[str]] = [frozenset() for _ in decoded.blocks]
    found: set[int] = set()
    changed = True
    while changed:
        changed = False
        for block in reversed(decoded.blocks):
            names = {name for after in successors(decoded, block) for name in needed[after]}
            for at in reversed(range(block.start, block.end)):
                operation, use = decoded.steps[at].operation, uses.get(at)
                if isinstance(operation, WarpgroupMultiply):
                    names.update(_accumulator(operation), _fragment(operation))
                elif isinstance(operation, WarpgroupOrder) and operation.action == "fence":
                    names.clear()
                elif use is not None and not names.isdisjoint(use.writes if use.source else use.reads | use.writes):
                    found.add(at)
                    if use.source is not None:
                        names = (names - use.writes) | {use.source}
            if names != needed[block.index]:
                needed[block.index], changed = frozenset(names), True
    return found


class RegisterOrder:
    """State of the registers of `wgmma` in one launch, by register and warpgroup.

    Args:
        groups: the groups of each warpgroup.
    """

    def __init__(self, plan: RegisterPlan, groups: CopyGroups, lanes: Lanes, findings: Findings) -> None:
        self._plan, self._groups, self._lanes, self._findings = plan, groups, lanes, findings
        shape = (len(plan.rows), len(lanes.warpgroups))
        self._accumulates = np.full(shape, -1, np.int32)
        self._is_read = np.full(shape, -1, np.int32)
        """The group of the last product that writes, or reads, a register."""
        self._shape = np.zeros(shape, np.int32)
        """Columns and inner extent of the last product that accumulated in a register since the fence; 0 if there was none."""
        self._touched = np.zeros(shape, np.int8)
        """Accesses by others since the fence: 1 for reads alone, 2 with a write."""
        self._fenced = np.zeros(shape[1], bool)
        self._used_at: dict[str, Position | None] = {}
        self._touched_at: dict[str, Position | None] = {}
        """Places of the last product that used a register, and of the last access by others."""

    def begin(self) -> None:
        """Starts a batch."""
        self._accumulates.fill(-1)
        self._is_read.fill(-1)
        self._shape.fill(0)
        self._touched.fill(0)
        self._fenced.fill(False)

    def fence(self, warpgroups: Array) -> None:
        """Records that warpgroups execute `wgmma.fence`."""
        self._fenced[warpgroups] = True
        self._touched[:, warpgroups] = 0
        self._shape[:, warpgroups] = 0

    def follow(self, step: DecodedStep, number: int, bound: Bound) -> Bound:
        """Returns `bound` with a check of its accesses before it, if it needs one."""
        if isinstance(step.operation, WarpgroupMultiply):
            return self._product(step.operation, step.position, bound)
        use = self._plan.watched.get(number)
        return bound if use is None else self._access(use, step.position, bound)

    def _rows(self, names: list[str]) -> Array:
        return np.array([self._plan.rows[name] for name in names], np.int64)

    def _warpgroups(self, active: Group) -> tuple[Array, Array]:
        """Returns the lanes of a group, and their warpgroups."""
        lanes = active if isinstance(active, np.ndarray) else self._lanes.iota[active]
        present = np.bincount(self._lanes.warpgroup[lanes], minlength=self._shape.shape[1])
        return lanes, np.flatnonzero(present)

    def _pending(self, table: Array, rows: Array, warpgroups: Array) -> Array:
        """Returns whether registers are in use by a product that was not waited for: (registers, warpgroups)."""
        return np.asarray(table[np.ix_(rows, warpgroups)] >= self._groups.finished[warpgroups])

    def _product(self, product: WarpgroupMultiply, position: Position | None, bound: Bound) -> Bound:
        sums, parts = _accumulator(product), _fragment(product)
        rows, part_rows = self._rows(sums), self._rows(parts)
        shape = product.shape[1] << 16 | product.shape[2]

        def run(group: Group | None, active: Group) -> None:
            lanes, mine = self._warpgroups(active)
            here, there = np.ix_(rows, mine), np.ix_(part_rows, mine)
            if not self._fenced[mine].all():
                self._report(
                    position, lanes, "executes wgmma.mma_async before the first wgmma.fence; put one before it"
                )
            for touched, names in ((self._touched[here] > 0, sums), (self._touched[there] > 1, parts)):
                self._report_first(touched, names, position, lanes, _UNFENCED, touches=True)
            self._report_first(~np.isin(self._shape[here], (0, shape)), sums, position, lanes, _OTHER_SHAPE)
            self._report_first(self._pending(self._accumulates, part_rows, mine), parts, position, lanes, _READ)
            self._report_first(self._pending(self._is_read, rows, mine), sums, position, lanes, _CHANGED_PART)
            groups = self._groups.open_group[mine]
            self._accumulates[here], self._is_read[there], self._shape[here] = groups, groups, shape
            for name in (*sums, *parts):
                self._used_at[name] = position
            bound(group, active)

        return run

    def _access(self, use: RegisterUse, position: Position | None, bound: Bound) -> Bound:
        reads, writes = sorted(use.reads), sorted(use.writes)
        rows, written_rows = self._rows(reads), self._rows(writes)

        def move(mine: Array) -> None:
            assert use.source is not None
            to, origin = self._plan.rows[writes[0]], self._plan.rows[use.source]
            for table in (self._accumulates, self._shape, self._touched):
                table[to, mine] = table[origin, mine]
            self._is_read[to, mine] = -1
            for places in (self._used_at, self._touched_at):
                places[writes[0]] = places.get(use.source)

        def run(group: Group | None, active: Group) -> None:
            lanes, mine = self._warpgroups(active)
            moves = use.source is not None and bool(self._pending(self._accumulates, rows, mine).any())
            if not moves:
                if use.source is None:
                    self._report_first(self._pending(self._accumulates, rows, mine), reads, position, lanes, _READ)
                    self._report_first(self._pending(self._is_read, rows, mine), reads, position, lanes, _READ_PART)
                self._report_first(
                    self._pending(self._accumulates, written_rows, mine), writes, position, lanes, _CHANGED
                )
                self._report_first(
                    self._pending(self._is_read, written_rows, mine), writes, position, lanes, _CHANGED_PART
                )
            if use.source is not None:
                move(mine)
            elif not use.constant:
                self._touched[np.ix_(rows, mine)] |= 1
                self._touched[np.ix_(written_rows, mine)] |= 2
                self._touched_at.update(dict.fromkeys((*reads, *writes), position))
            bound(group, active)

        return run

    def _report_first(
        self, found: Array, names: list[str], position: Position | None, lanes: Array, misuse: _Misuse, *, touches: bool = False
    ) -> None:  # fmt: skip
        """Reports the first register in a table of (registers, warpgroups) that is True."""
        if not found.any():
            return
        name = names[int(np.flatnonzero(found.any(axis=1))[0])]
        place = (self._touched_at if touches else self._used_at).get(name)
        self._report(position, lanes, misuse.text.format(at_line(place)), misuse.severity)

    def _report(self, position: Position | None, lanes: Array, text: str, severity: Severity = "error") -> None:
        self._findings.report(FindingCode.REGISTER_RACE, position, lanes, lambda: text, severity=severity)
