"""One launch: prepares memory, registers and monitors, runs the batches, and collects the results."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kernelmate.backends.base import (
    MOST_PRINTED,
    ArrayArgument,
    EmulationTooLarge,
    LaunchEnvironment,
    Run,
    RunResult,
    ScalarArgument,
    with_addresses,
)
from kernelmate.backends.emulator.access_history import SHADOW_BYTES
from kernelmate.backends.emulator.access_monitor import GlobalWatch, LocalWatch, SharedWatch
from kernelmate.backends.emulator.attribution import Counted, with_lines
from kernelmate.backends.emulator.bind import fold_constants
from kernelmate.backends.emulator.bound import InstructionCounts, InstructionLimits, Overrun
from kernelmate.backends.emulator.contention import Contention
from kernelmate.backends.emulator.counters import BranchCounter, GlobalCounter, LocalCounter, SharedCounter, as_record
from kernelmate.backends.emulator.decode import DecodedKernel
from kernelmate.backends.emulator.execution import Execution, NativeCodeChoice, Watched
from kernelmate.backends.emulator.facts import Facts
from kernelmate.backends.emulator.findings import Findings, LaunchStopped, plural
from kernelmate.backends.emulator.happens_before import Order
from kernelmate.backends.emulator.jit.native_choice import EXACT_CHECKS_COST
from kernelmate.backends.emulator.lanes import Lanes
from kernelmate.backends.emulator.link import LinkedKernel, PlacedVariable
from kernelmate.backends.emulator.machine import Machine, Windowed
from kernelmate.backends.emulator.memory import Buffer, GlobalMemory
from kernelmate.backends.emulator.register_order import RegisterOrder
from kernelmate.backends.emulator.registers import Registers
from kernelmate.backends.emulator.shadow import Shadows
from kernelmate.backends.emulator.spaces import CALL_PARAMETERS
from kernelmate.backends.emulator.special_registers import Specials
from kernelmate.backends.emulator.tensors import encoded_tensor_map
from kernelmate.backends.emulator.textures import FIRST_HANDLE
from kernelmate.backends.emulator.types import SIZES, Array
from kernelmate.records import FindingCode, Target

_LANES = 32768
"""Lanes per batch: enough to amortise NumPy's cost per call, few enough for registers to stay in cache."""
_RESIDENT_THREADS_PER_SM = 2048
_SETTLED_PATIENCE = 4
"""Factor on NumPy's time limit if it did the same launch of an earlier version without native code."""
_BATCH_COST = 200_000
"""Minimum thread-instructions that a batch counts for: the work that could be done in the time that starting a batch takes."""
_BATCH_BYTES = 192 << 20
"""Maximum bytes of registers, shared and local memory per batch."""


_TOGETHER_BYTES = 1 << 30
"""Maximum bytes of a batch of all blocks, which is run if some blocks wait for blocks outside their batch."""


class WaitsForLater(Exception):
    """Raised if blocks wait for blocks of a later batch, which a GPU would already have started because others ended."""


class Launch:
    """One launch of a decoded kernel: its memory and registers, and its batches one after the other.

    Args:
        together: run all blocks at once, however many a GPU holds.
        variables: contents of `__device__` variables by name; updated at the end of a launch.
    """

    def __init__(
        self, decoded: DecodedKernel, target: Target, run: Run, facts: Facts, variables: dict[str, Array], *, together: bool = False
    ) -> None:  # fmt: skip
        self._together = together
        self.decoded = decoded
        self.facts = facts
        self.target = target
        self.shape = run.shape
        self.run = run
        self.lanes = self._lanes()
        linked = decoded.linked
        slots = len(run.arguments) + len(linked.globals) + 1
        around = run.environment or LaunchEnvironment()
        self.memory = GlobalMemory(
            slots, run.schedule_seed, facts.store_granule, facts.marks if run.count else None, around.first_slot
        )
        self.arguments: dict[str, tuple[ArrayArgument, Buffer]] = {}
        self._given_variables: dict[str, tuple[ArrayArgument, Buffer]] = {}
        self._allocate_arguments()
        objects = [one.name for one in run.arguments if isinstance(one, ScalarArgument) and one.texture is not None]
        self.handles = dict(zip(objects, itertools.count(FIRST_HANDLE), strict=False))
        self._variables = variables
        self._before: dict[str, Array] = {}
        self._symbols = self._allocate_variables(linked)
        self.machine = self._machine(linked)
        self._watches: list[SharedWatch | LocalWatch | RegisterOrder] = []
        self._global_watch: GlobalWatch | None = None
        self.counted = self._counters() if run.count else None

    def _counters(self) -> Counted:
        passed = (
            number for number, step in enumerate(self.decoded.steps) if getattr(step.operation, "space", "") == "param"
        )
        return GlobalCounter(), SharedCounter(), BranchCounter(self.lanes), LocalCounter(frozenset(passed))

    def _lanes(self) -> Lanes:
        """Returns the lanes of a batch: the blocks that run, and the number of blocks at a time."""
        waits = self.facts.waits
        return Lanes(self.shape, self._wanted_lanes(waits), self.run.schedule_seed, in_order=waits)

    def _wanted_lanes(self, waits: bool) -> int:
        """Returns the lanes per batch: all blocks that a GPU holds at once if blocks may wait for each other."""
        linked = self.decoded.linked
        per_lane: float = sum(SIZES[kind] for kind in linked.registers.values()) + linked.local_bytes + 64
        shared = linked.shared_bytes + self.shape.shared_bytes
        if self.run.check:
            shared += shared * SHADOW_BYTES // self.facts.shared_granule
        per_lane += shared / max(self.shape.threads, 1)
        wanted = _LANES
        everyone = self.shape.blocks * (-(-self.shape.threads // 32) * 32)
        if self._together:
            if everyone * per_lane > _TOGETHER_BYTES:
                raise self._waits_too_far(int(everyone * per_lane))
            return everyone
        if waits or self.shape.cooperative:
            wanted = min(self.target.sms * _RESIDENT_THREADS_PER_SM, everyone)
        if not self.shape.cooperative:
            wanted = min(wanted, int(_BATCH_BYTES / per_lane))
        return max(wanted, 32)

    def _allocate_arguments(self) -> None:
        for argument in self.run.arguments:
            if isinstance(argument, ArrayArgument) and argument.variable is None:
                content = np.ascontiguousarray(argument.data).reshape(-1).view(np.uint8)
                lead = argument.misalign * argument.data.dtype.itemsize
                buffer = self.memory.add(argument.name, content, lead=lead, writable=argument.written, visible=True)
                self.arguments[argument.name] = (argument, buffer)
        places = {name: buffer.address for name, (_, buffer) in self.arguments.items()}
        for argument, buffer in self.arguments.values():
            with_addresses(buffer.content(), argument.addresses, places)

    def _allocate_variables(self, linked: LinkedKernel) -> dict[str, int]:
        symbols: dict[str, int] = dict(linked.functions)
        buffers: dict[str, Buffer] = {}
        given = {item.variable: item for item in self.run.arguments if isinstance(item, ArrayArgument)}
        places = {name: buffer.address for name, (_, buffer) in self.arguments.items()}
        for name, variable in linked.globals.items():
            content = np.zeros(variable.size, np.uint8)
            content[: len(variable.initial)] = np.frombuffer(variable.initial, np.uint8)
            content = self._variables.get(name, content)
            constant = variable.space == "const"
            argument = given.get(name)
            if argument is not None:
                raw = np.ascontiguousarray(argument.data).reshape(-1).view(np.uint8).copy()
                with_addresses(raw, argument.addresses, places)
                content = np.concatenate([raw, content[raw.size :]])
            self._before[name] = content
            buffers[name] = self.memory.add(name, content, writable=not constant, visible=False, constant=constant)
            if argument is not None:
                self._given_variables[argument.name] = (argument, buffers[name])
            symbols[name] = buffers[name].address
        for name, variable in linked.globals.items():
            for offset, symbol in variable.relocations:
                address = symbols.get(symbol.name, 0) + symbol.offset
                buffers[name].content()[offset : offset + 8] = np.frombuffer(address.to_bytes(8, "little"), np.uint8)
        self._kept = {
            name: buffers[name]
            for name, variable in linked.globals.items()
            if variable.space != "const" and name not in given
        }
        for name, placed in linked.shared.items():
            symbols[name] = placed.offset
        for name, placed in linked.local.items():
            symbols[name] = placed.offset + (CALL_PARAMETERS if name in linked.call_parameters else 0)
        for placed in linked.parameters:
            symbols[placed.variable.name] = placed.offset
        return symbols

    def _machine(self, linked: LinkedKernel) -> Machine:
        lanes = self.lanes
        dynamic = self.shape.shared_bytes
        unsized = any(not placed.variable.size for placed in linked.shared.values())
        static = -(-linked.shared_bytes // 16) * 16 if unsized or dynamic else linked.shared_bytes
        shared = Windowed("shared", lanes.blocks, static + dynamic, lanes.slot, 0xFF)
        shared.names = _names(linked.shared)
        shared.peers = lanes.peers if lanes.cluster_blocks > 1 else None
        around, seed = self.run.environment or LaunchEnvironment(), self.run.schedule_seed
        local = Windowed("local", lanes.count, linked.local_bytes, lanes.iota, around.fill)
        local.names = lambda offset: "local memory"
        workspace = 0
        if self.shape.cooperative:
            workspace = self.memory.add("grid barrier", np.zeros(256, np.uint8), writable=True, visible=False).address
        explicit = int(self.shape.cluster is not None)
        specials = Specials(lanes, self.target.sms, shared.limit, dynamic, workspace, explicit, around.specials)
        self._specials = specials
        registers = Registers(linked.registers, lanes.count, specials, self._symbols, around.fill)
        objects = (
            (self.handles[one.name], (one.texture, self.arguments[one.texture.array][1].address))
            for one in self.run.arguments
            if isinstance(one, ScalarArgument) and one.texture is not None
        )
        return Machine(
            lanes, registers, self.memory, shared, local, self._parameters(linked), Findings(lanes),
            np.zeros(lanes.count, bool), environment=self.run.environment, replicated=self.run.replicated,
            textures=dict(objects), contention=Contention(lanes, seed) if seed else None,
        )  # fmt: skip

    def _parameters(self, linked: LinkedKernel) -> Array:
        block = np.zeros(max(linked.parameter_bytes, 1), np.uint8)
        passed = [one for one in self.run.arguments if not isinstance(one, ArrayArgument) or one.passed]
        if len(linked.parameters) != len(passed):
            raise ValueError(f"the kernel takes {len(linked.parameters)} arguments and got {len(passed)}")
        for placed, argument in zip(linked.parameters, passed, strict=True):
            raw = self._argument_bytes(argument)
            size = placed.variable.size
            if len(raw) > size:
                raise ValueError(f"argument {argument.name} has {len(raw)} bytes, the kernel takes {size}")
            block[placed.offset : placed.offset + len(raw)] = raw
        return block

    def _argument_bytes(self, argument: ArrayArgument | ScalarArgument) -> Array:
        if isinstance(argument, ArrayArgument):
            return np.array([self.arguments[argument.name][1].address], np.uint64).view(np.uint8)
        if argument.tensor_map is not None:
            return encoded_tensor_map(argument.tensor_map, self.arguments[argument.tensor_map.array][1].address)
        if argument.texture is not None:
            return np.array([self.handles[argument.name]], np.uint64).view(np.uint8)
        raw = np.atleast_1d(np.asarray(argument.value)).reshape(-1).view(np.uint8)
        if argument.addresses:
            raw = raw.copy()
            with_addresses(raw, argument.addresses, {n: buffer.address for n, (_, buffer) in self.arguments.items()})
        return raw

    def go(self, choice: NativeCodeChoice) -> RunResult:
        """Runs the launch, once.

        Raises:
            EmulationTooLarge: it takes more than its total limit.
            WorthCompiling, Suspicion, WaitsForLater: it must be restarted with native code, under exact checks, or with
            all blocks together.
        """
        machine = self.machine
        fold_constants(self.facts.foldable, self.decoded, machine)
        if self.counted is not None:
            machine.unusual = set()
            machine.global_monitors.append(self.counted[0])
            machine.shared.monitors.append(self.counted[1])
            machine.local.monitors.append(self.counted[3])
        watched = self._watched(choice) if self.run.check else None
        shadows = None
        limits = InstructionLimits(self.run.step_limit, self.run.limited_by, self.run.total_limit)
        if watched is None:
            patience = choice.chooser.patience(choice.mode, machine, checks=self.run.check)
            limits.patience = _SETTLED_PATIENCE * patience if choice.settled else patience
        if self.run.check and watched is None:
            choice = replace(choice, exact=True)
            shadows = Shadows(self.decoded, machine, self.facts.addresses)
            self._watch()
        execution = Execution(machine, self.decoded, shadows, limits, choice, self.counted, watched)
        self._check_batches()
        try:
            self._batches(execution)
            return replace(self._result(execution.finish()), native=None if execution.native else False)
        finally:
            self.memory.close()

    def _batches(self, execution: Execution) -> None:
        number = 0
        try:
            for number in range(self.lanes.batches()):
                self._batch(number, execution)
                self._check_size(number, execution.tally)
        except LaunchStopped:
            if self._waits_for_later(number):
                raise WaitsForLater from None
        except Overrun:
            raise self._too_large(execution.longest) from None

    def _waits_for_later(self, number: int) -> bool:
        """True if a batch hangs that later batches might set free, because some of its blocks have ended."""
        if (
            not self.facts.waits
            or number + 1 >= self.lanes.batches()
            or FindingCode.HANG not in self.machine.findings.codes
        ):
            return False
        living = np.unique(self.lanes.slot[self.machine.live])
        return len(living) < min(self.lanes.blocks, self.shape.blocks)

    def _waits_too_far(self, size: int) -> EmulationTooLarge:
        return EmulationTooLarge(
            f"some of the {self.shape.blocks} blocks wait for much later ones, so that all would have to run together, in "
            f"{size >> 20} MiB: over {_TOGETHER_BYTES >> 20} MiB, the emulator's limit for that.",
            _TOGETHER_BYTES,
        )

    def _watched(self, choice: NativeCodeChoice) -> Watched | None:
        """Returns native code with checks; None if the exact checks are used at once."""
        chooser = choice.chooser
        threads = self.shape.threads * self.shape.blocks
        work = EXACT_CHECKS_COST * chooser.work(threads, self.lanes.batches())
        work = 0.0 if choice.settled else work
        program = chooser.choose(choice.mode, self.machine, work, threads, counts=self.run.count, checks=True)
        watch = None if program is None else chooser.watch(self.machine)
        return None if program is None or watch is None else (program, watch)

    def _watch(self) -> None:
        """Sets the monitors of races and of reads before writes."""
        machine = self.machine
        machine.order = order = Order(self.lanes, machine.live, patterns=self.facts.patterns)
        machine.barrier_watchers.append(order.barrier)
        machine.copy_watchers.append(order.copy_group)
        if self.facts.registers is not None:
            machine.register_order = RegisterOrder(self.facts.registers, order.products, self.lanes, machine.findings)
            self._watches.append(machine.register_order)
        if machine.shared.limit:
            shared = SharedWatch(machine, order, waits=self.facts.waits)
            machine.shared.monitors.append(shared)
            machine.barrier_watchers.append(shared.barrier)
            self._watches.append(shared)
        if machine.local.limit:
            linked = self.decoded.linked
            passed = [placed for name, placed in linked.local.items() if name in linked.call_parameters]
            local = LocalWatch(machine, [(placed.offset, placed.variable.size) for placed in passed])
            machine.local.monitors.append(local)
            self._watches.append(local)
        if order.covers(self.shape.blocks):
            self._global_watch = GlobalWatch(machine, order)
            machine.global_monitors.append(self._global_watch)

    def _batch(self, number: int, execution: Execution) -> None:
        execution.run(self._fresh(number), self.lanes.batches() - number)

    def _fresh(self, number: int) -> Array:
        """Returns the lanes of a batch, with freshly initialised memory."""
        machine = self.machine
        blocks = self.lanes.order(number)
        lanes = self.lanes.fill(blocks)
        self._specials.begin()
        machine.shared.reset()
        machine.phases.begin()
        if machine.order is not None:
            machine.order.begin(len(blocks))
        for watch in self._watches:
            watch.begin()
        if machine.local.limit:
            machine.local.reset()
        return lanes

    def _check_size(self, number: int, tally: InstructionCounts) -> None:
        """Refuses a launch early if it would clearly exceed the limit, estimated from the first batches."""
        done = number + 1
        if done in {4, 16, 64, 256} and tally.instructions / done * self.lanes.batches() > 4 * self.run.total_limit:
            raise self._too_large()

    def _check_batches(self) -> None:
        """Refuses launches with too many batches, however small each is."""
        if self.lanes.batches() * _BATCH_COST > self.run.total_limit:
            batches = self.lanes.batches()
            raise EmulationTooLarge(
                f"the launch has {self._size()}, in {batches} batch{'es' * (batches != 1)}, each of which takes as long "
                f"as {_BATCH_COST} thread-instructions at least: together over {self.run.total_limit}, the emulator's "
                "limit for one launch.",
                self.run.total_limit,
            )

    def _too_large(self, longest: int | None = None) -> EmulationTooLarge:
        return EmulationTooLarge(
            f"the launch of {self._size()} takes over {self.run.total_limit} thread-instructions, the emulator's limit "
            "for one launch.",
            self.run.total_limit,
            longest_thread=longest,
        )

    def _size(self) -> str:
        return f"{plural(self.shape.blocks, 'block')} of {plural(self.shape.threads, 'thread')}"

    def _unwatched(self) -> tuple[str, ...]:
        """Returns parts of a launch that the exact checks did not cover.

        Native code with checks covers everything, or is not used.
        """
        if self.machine.order is None:
            return ()
        if self._global_watch is None:
            return (
                f"races in global memory were not looked for: {self.shape.blocks} blocks are too many to tell apart",
            )
        return self._global_watch.unwatched()

    def _changed(self, buffer: Buffer) -> bool:
        return not np.array_equal(buffer.content(), self._before[buffer.name])

    def _result(self, tally: InstructionCounts) -> RunResult:
        machine = self.machine
        lasting = frozenset(name for name, buffer in self._kept.items() if buffer.read_first and self._changed(buffer))
        self._variables.update({name: buffer.content().copy() for name, buffer in self._kept.items()})
        arrays = {
            name: buffer.content()[: argument.data.nbytes].view(argument.data.dtype).reshape(argument.data.shape)
            for name, (argument, buffer) in {**self.arguments, **self._given_variables}.items()
        }
        reads = frozenset(
            name for name, (_, buffer) in {**self.arguments, **self._given_variables}.items() if buffer.read_first
        )
        counts = Counter[str]()
        for block, count in zip(self.decoded.blocks, tally.entered, strict=True):
            if count:
                counts[block.label] += int(count)
        result = RunResult(
            arrays=arrays,
            findings=machine.findings.finish(),
            checked=self.run.check,
            unwatched=self._unwatched(),
            counters=as_record(*self.counted, self.memory.footprint(), machine.barriers) if self.counted else None,
            reads=reads,
            lasting=lasting,
            block_counts=dict(counts),
            footprint_bytes=self.memory.footprint() if self.run.count else None,
            barriers=machine.barriers,
            printed="".join(machine.printed)[:MOST_PRINTED],
            ptx_instructions=tally.instructions,
            longest_thread=tally.longest,
            outcomes={number: frozenset(seen) for number, seen in machine.outcomes.items()},
        )
        return (
            result
            if self.counted is None
            else with_lines(result, self.decoded, self.counted, tally, self.shape, self.memory.footprints())
        )


def _names(placed: Mapping[str, PlacedVariable]) -> Any:
    """Returns the mapping from shared-memory offsets to variables."""
    ordered = sorted(placed.values(), key=lambda item: item.offset)

    def name(offset: int) -> str | None:
        found = None
        for item in ordered:
            if item.offset <= offset:
                found = item.variable.name
        return readable(found) if found else None

    return name


def readable(symbol: str) -> str:
    """Demangles a variable's name: `_ZZ6matmulE4tile` gives `tile`."""
    inner = symbol.split("E", 1)[1] if symbol.startswith("_ZZ") and "E" in symbol else symbol
    digits = len(inner) - len(inner.lstrip("0123456789"))
    if digits and inner[digits:]:
        return inner[digits : digits + int(inner[:digits])]
    return inner
