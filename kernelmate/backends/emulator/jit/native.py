"""Native code bound to one launch: its registers, memory and counters in the tables that the code reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmate.backends.emulator.jit.access_stamps import StampWatch, Suspicion
from kernelmate.backends.emulator.jit.build import Interface
from kernelmate.backends.emulator.jit.layout import NOWHERE, Count, Field, Places, Slot
from kernelmate.backends.emulator.jit.program import NativeProgram
from kernelmate.backends.emulator.machine import Machine, Windowed
from kernelmate.backends.emulator.memory import Buffer
from kernelmate.backends.emulator.meter import TURN
from kernelmate.backends.emulator.program import Special, Symbol
from kernelmate.backends.emulator.types import Array


class Native:
    """Runs the warps of one launch.

    Args:
        entered: entries per piece, in threads; updated in place.
        watch: shadow memory for programs with checks.

    Attributes:
        steps: per warp, instructions issued since the batch began.
        lane_steps: per lane, its own instructions.
        instructions, issued: thread-instructions of the last `run`, and its longest sequence of issued instructions.
        diverged: per piece, warps that diverged at its branch.
        sites: per step, see `layout.Count`.
    """

    def __init__(
        self, program: NativeProgram, machine: Machine, entered: Array, watch: StampWatch | None = None
    ) -> None:
        self.program = program
        self.watch = watch
        self.places = Places(len(program.refined.native))
        self._machine = machine
        self._entered = entered
        self._costs = np.array([block.end - block.start for block in program.refined.decoded.blocks], np.int64)
        lanes = machine.lanes
        self.steps = np.zeros(lanes.warps, np.int64)
        self.lane_steps = np.zeros(lanes.count, np.int64)
        self.instructions = self.issued = 0
        self.diverged = np.zeros(len(entered), np.int64)
        self.sites = np.zeros((len(program.refined.decoded.steps), len(Count)), np.int64)
        self._where = np.full(lanes.count, NOWHERE, np.int32)
        self._all_warps = np.arange(lanes.warps, dtype=np.int64)
        self._kept: list[Any] = []
        self._buffers = self._buffer_table()
        self._table = np.zeros(len(Slot), np.int64)
        self._fill(program.interface)

    def is_native(self, piece: int) -> bool:
        """True if a piece has a native form."""
        return self.program.refined.native[piece]

    def begin_batch(self) -> None:
        """Resets the counts of the batch's warps."""
        self.steps.fill(0)
        if self.watch is not None:
            self.watch.begin_batch()

    # ------------------------------------------------------------------------------------------- tables

    def _fill(self, interface: Interface) -> None:
        machine, table = self._machine, self._table
        arrays = [self._array(name) for name in sorted(interface.registers, key=interface.registers.__getitem__)]
        self._kept.append(arrays)
        pointers = np.array([_address(array) for array in arrays] or [0], np.int64)
        uniforms = np.array([self._uniform(key) for key in interface.uniforms] or [0], np.uint64)
        # The row after the last belongs to no buffer: no access fits it, so the first access of each group searches its
        # own.
        nothing = _address(self._buffers) + self._buffers[:-1].nbytes
        caches = np.full(max(interface.groups, 1), nothing, np.int64)
        for slot, array in (
            (Slot.PLACES_AT, self._where), (Slot.REGISTERS_AT, pointers), (Slot.UNIFORMS_AT, uniforms),
            (Slot.CACHES_AT, caches), (Slot.BUFFERS_AT, self._buffers), (Slot.ENTERED_AT, self._entered),
            (Slot.DIVERGED_AT, self.diverged), (Slot.SITES_AT, self.sites), (Slot.STEPS_AT, self.steps),
            (Slot.LANE_STEPS_AT, self.lane_steps),
        ):  # fmt: skip
            table[slot] = _address(array)
            self._kept.append(array)
        table[Slot.BUFFERS] = len(self._buffers) - 1
        self._window(machine.shared, Slot.SHARED_AT, Slot.SHARED_STRIDE, Slot.SHARED_LIMIT)
        self._window(machine.local, Slot.LOCAL_AT, Slot.LOCAL_STRIDE, Slot.LOCAL_LIMIT)
        table[Slot.TURN] = TURN
        table[Slot.WARPS_PER_BLOCK] = machine.lanes.width // 32
        table[Slot.GRANULE_SHIFT] = machine.memory.granule_shift

        if self.watch is not None:
            writers, readers = self.watch.shared
            for slot, array in (
                (Slot.STAMPS_AT, self.watch.stamps), (Slot.SHARED_WRITERS_AT, writers),
                (Slot.SHARED_READERS_AT, readers), (Slot.LOCAL_WRITTEN_AT, self.watch.local_written),
            ):  # fmt: skip
                table[slot] = _address(array)

    def _window(self, window: Windowed, at: Slot, stride: Slot, limit: Slot) -> None:
        self._table[at], self._table[stride], self._table[limit] = _address(window.data), window.stride, window.limit

    def _array(self, name: str) -> Array:
        registers = self._machine.registers
        if not name.startswith("%") or registers.holds(name):
            return registers.storage(name)
        found = registers.special(name)
        assert not isinstance(found, int)
        return found

    def _uniform(self, key: Any) -> int:
        registers = self._machine.registers
        if key[0] == "register":
            raw = registers.constants[key[1]]
            return int(raw.view(np.dtype(f"u{raw.itemsize}"))[0])
        operand = Special(key[1]) if key[0] == "special" else Symbol(key[1], key[2])
        value: Any = registers.read(operand, "u64")
        return int(value.value)

    def _buffer_table(self) -> Array:
        memory = self._machine.memory
        rows = np.zeros((memory.slots + 1, len(Field)), np.int64)
        for slot, buffer in memory.by_slot.items():
            row = rows[slot]
            row[Field.START], row[Field.SIZE] = buffer.address, buffer.size
            row[Field.DATA_AT] = _address(buffer.data) + buffer.lead
            row[Field.WRITABLE], row[Field.LEAD] = buffer.writable, buffer.lead
            row[Field.TOUCHED_AT] = 0 if buffer.touched is None else _address(buffer.touched)
            stamps = None if self.watch is None else self.watch.buffer(buffer)
            if stamps is not None:
                row[Field.WRITERS_AT], row[Field.READERS_AT] = map(_address, stamps)
            if buffer.outlives:
                stored = memory.stored(buffer)
                row[Field.NOTED], row[Field.STORED_AT] = not buffer.read_first, _address(stored)
        return rows

    # --------------------------------------------------------------------------------------------- running

    def run(self, groups: list[tuple[int, Array]]) -> list[tuple[int, Array]]:
        """Runs lanes from their positions, as (place, lanes) with sorted lanes; returns their final positions.

        Raises:
            Suspicion: something suspicious was seen that the exact checks must examine.
        """
        machine, where, table = self._machine, self._where, self._table
        lanes = groups[0][1] if len(groups) == 1 else np.sort(np.concatenate([lanes for _, lanes in groups]))
        where.fill(groups[0][0] if len(groups) == 1 and len(lanes) == len(where) else NOWHERE)
        for place, standing in groups:
            if len(standing) < len(where):
                where[standing] = place
        whole = len(lanes) == len(where)
        warps = lanes >> 5
        warps = (
            self._all_warps if whole else warps[np.flatnonzero(np.diff(warps, prepend=-1))]
        )  # positions of sorted lanes
        noted = self._note_before()
        table[Slot.WARPS_AT], table[Slot.WARPS], table[Slot.CHANGES] = _address(warps), len(warps), 0
        before = self._entered.copy()
        steps = int(self.steps.max())
        self.program.loaded.run(_address(table))
        if self.watch is not None and (table[Slot.SUSPECT] or self.watch.suspect):
            raise Suspicion
        machine.changes += int(table[Slot.CHANGES])
        self.issued = int(self.steps.max()) - steps
        machine.ticks += self.issued
        for slot, buffer in noted:
            buffer.read_first = not self._buffers[slot, Field.NOTED]
        self.instructions = int((self._entered - before) @ self._costs)
        return self._standing(lanes)

    def _note_before(self) -> list[tuple[int, Buffer]]:
        """Marks buffers for which it is still unknown whether they are read first.

        NumPy operations may have determined it.
        """
        noted = []
        for slot, buffer in self._machine.memory.by_slot.items():
            if self._buffers[slot, Field.NOTED]:
                if buffer.read_first:
                    self._buffers[slot, Field.NOTED] = 0
                else:
                    noted.append((slot, buffer))
        return noted

    def _standing(self, lanes: Array) -> list[tuple[int, Array]]:
        places = self._where if len(lanes) == len(self._where) else self._where[lanes]
        first = int(places[0])
        if (places == first).all():
            return [(first, lanes)]
        return [(int(place), lanes[places == place]) for place in np.flatnonzero(np.bincount(places))]


def _address(array: Array) -> int:
    return int(array.ctypes.data)
