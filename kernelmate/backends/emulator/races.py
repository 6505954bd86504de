"""Shared memory that one thread accesses while another may write it, and that is read before it is written.

Between two barriers of a block, two accesses to the same bytes by threads of different warps, at least one of them a
write, have no order, unless both are atomic or volatile. Threads of one warp are not held against each other, except that
one store instruction writes different values to one place. Writing the value that is there already is no race.

What is tracked per granule (the smallest piece that the kernel accesses): the lane that wrote last, whether that was since
the block's last barrier, and which warps have read since then.
"""

from __future__ import annotations

import numpy as np

from kernelmate.backends.emulator.machine import Machine, Site, Windowed
from kernelmate.backends.emulator.types import Array

_DID = {"load": "read", "store": "written", "atomic": "updated"}


class SharedMonitor:
    """Watches the shared memory of all blocks of a batch.

    Args:
        granule: bytes of the smallest access to shared memory in the kernel.
        races: look for races; uninitialised reads are always looked for.
    """

    def __init__(self, machine: Machine, granule: int, races: bool) -> None:
        self._machine = machine
        self._window: Windowed = machine.shared
        self._races = races
        self._granule = granule
        self._shift = granule.bit_length() - 1
        lanes = machine.lanes
        slots, width = lanes.blocks, max(self._window.stride // granule, 1)
        self._bases = self._window.bases(granule)
        warps = -(-(lanes.width // 32) // 8) * 8
        self._writer = np.zeros((slots, width), np.int32)
        self._fresh = np.zeros((slots, width), bool)
        self._readers = np.zeros((slots, width, warps), bool)
        self._reader_rows = self._readers.reshape(-1).view(np.uint64).reshape(slots * width, warps // 8)
        self._ordered = np.zeros((slots, width), bool)
        self._warps = warps
        self._warp_in_block = (lanes.iota % lanes.width) >> 5
        own = np.zeros((lanes.width // 32, warps), bool)
        own[np.arange(lanes.width // 32), np.arange(lanes.width // 32)] = True
        self._others = ~((own.view(np.uint8) * np.uint8(255)).view(np.uint64))
        self._written_since = False
        self._read_since = False
        self._complete = False
        self._recent: dict[int, tuple[Site, Array, Array]] = {}

    def reset(self) -> None:
        """Start a batch: fresh blocks."""
        self._writer.fill(0)
        self._complete = False
        self.barrier(np.ones(len(self._writer), bool))

    def barrier(self, blocks: Array) -> None:
        """These block slots have passed a barrier."""
        everyone = bool(blocks.all())
        if self._written_since:
            self._fresh[blocks] = False
            self._complete = bool(self._writer.all())
            self._written_since = not everyone
        if self._read_since:
            self._readers[blocks] = False
            self._read_since = not everyone
        if everyone:
            self._recent.clear()

    def access(self, site: Site, lanes: Array, offsets: Array, values: Array | None) -> None:
        """Some lanes access shared memory; called before a store takes effect."""
        first = (offsets.astype(np.int64) >> self._shift) + self._bases[lanes]
        pieces = max(1, site.size >> self._shift)
        for piece in range(pieces):
            places = first + piece if piece else first
            if site.action == "load":
                self._read(site, lanes, places)
            else:
                self._write(site, lanes, places, _piece(values, piece, pieces))
        self._recent[site.number] = (site, lanes, first)

    def _read(self, site: Site, lanes: Array, places: Array) -> None:
        if not self._complete or self._written_since:
            writer = self._writer.reshape(-1).take(places)
            empty = writer == 0
            if empty.any():
                self._report_empty(site, lanes[empty], places[empty])
            if self._races and self._written_since:
                clash = self._fresh.reshape(-1).take(places) & ~empty & (((writer - 1) >> 5) != (lanes >> 5))
                if site.synchronizing:
                    clash &= ~self._ordered.reshape(-1).take(places)
                if clash.any():
                    where = int(np.flatnonzero(clash)[0])
                    self._report(site, int(lanes[where]), int(places[where]), int(writer[where]) - 1, "write")
        if self._races and not site.synchronizing:
            self._readers.reshape(-1)[places * self._warps + self._warp_in_block[lanes]] = True
            self._read_since = True

    def _write(self, site: Site, lanes: Array, places: Array, values: Array | None) -> None:
        ordered = site.synchronizing
        writers = self._writer.reshape(-1)
        if self._races:
            if self._written_since:
                self._against_writes(site, lanes, places, values, writers.take(places))
            if self._read_since:
                rows = self._reader_rows.take(places, axis=0) & self._others[self._warp_in_block[lanes]]
                clash = rows.any(axis=1)
                if clash.any() and values is not None and site.action == "store":
                    clash &= ~self._unchanged(places, values)
                if clash.any():
                    where = int(np.flatnonzero(clash)[0])
                    self._report(site, int(lanes[where]), int(places[where]), None, "read")
        writers[places] = lanes + 1
        if self._races and site.action == "store" and values is not None:
            self._same_instruction(site, lanes, places, values, writers.take(places) - 1)
        self._fresh.reshape(-1)[places] = True
        self._ordered.reshape(-1)[places] = ordered
        self._written_since = True

    def _against_writes(self, site: Site, lanes: Array, places: Array, values: Array | None, writer: Array) -> None:
        clash = self._fresh.reshape(-1).take(places) & (((writer - 1) >> 5) != (lanes >> 5)) & (writer != 0)
        if site.synchronizing:
            clash &= ~self._ordered.reshape(-1).take(places)
        if clash.any() and values is not None and site.action == "store":
            clash &= ~self._unchanged(places, values)
        if clash.any():
            where = int(np.flatnonzero(clash)[0])
            self._report(site, int(lanes[where]), int(places[where]), int(writer[where]) - 1, "write")

    def _unchanged(self, places: Array, values: Array) -> Array:
        """Whether memory holds already what is stored."""
        memory = self._window.rows(np.dtype(f"u{self._granule}"), 1)
        return np.asarray(memory.take(places) == values)

    def _same_instruction(self, site: Site, lanes: Array, places: Array, values: Array, winner: Array) -> None:
        lost = winner != lanes
        if not lost.any():
            return
        position = np.searchsorted(lanes, winner[lost])
        differs = values[lost] != values[position]
        if differs.any():
            where = int(np.flatnonzero(lost)[np.flatnonzero(differs)[0]])
            self._report(site, int(lanes[where]), int(places[where]), int(winner[where]), "same")

    def _report_empty(self, site: Site, lanes: Array, places: Array) -> None:
        offset = int(places[0] - self._bases[lanes[0]]) * self._granule
        name = self._window.names(offset) or "shared memory"
        self._machine.findings.report(
            "uninitialised-shared",
            site.position,
            lanes,
            lambda: f"reads byte {offset} of shared memory ({name}), which no thread of the block has written",
            buffer=name,
            offset=offset,
        )

    def _report(self, site: Site, lane: int, place: int, other: int | None, kind: str) -> None:
        offset = (place - int(self._bases[lane])) * self._granule
        name = self._window.names(offset) or "shared memory"
        partner, line = self._partner(lane, place, other, kind, site)
        thread = self._machine.lanes.thread
        who = f"thread {thread[partner]}" if partner is not None else "a thread of another warp"
        at = f" at line {line}" if line else ""
        doing = {"load": "reads", "store": "writes", "atomic": "atomically updates"}[site.action]
        if kind == "same":
            text = f"writes {name} (byte {offset} of shared memory) and {who} writes another value there in the same instruction"
        else:
            did = "writes" if kind == "write" else "reads"
            text = (
                f"{doing} {name} (byte {offset} of shared memory), which {who} {did}{at} with no barrier between them"
            )
        lanes = np.array([lane] if partner is None else [lane, partner])
        self._machine.findings.report("shared-race", site.position, lanes, lambda: text, buffer=name, offset=offset)

    def _partner(
        self, lane: int, place: int, other: int | None, kind: str, site: Site
    ) -> tuple[int | None, int | None]:
        """The lane on the other side and its line, as far as the latest accesses of each instruction tell."""
        for earlier, lanes, first in self._recent.values():
            if (earlier.action == "load") != (kind == "read"):
                continue
            pieces = max(1, earlier.size >> self._shift)
            hit = (place >= first) & (place < first + pieces)
            hit &= (lanes == other) if other is not None else ((lanes >> 5) != (lane >> 5))
            if hit.any():
                found = int(lanes[np.flatnonzero(hit)[0]])
                return found, earlier.position.line if earlier.position else None
        line = site.position.line if kind == "same" and site.position else None
        return other, line


def _piece(values: Array | None, piece: int, pieces: int) -> Array | None:
    """One granule of what each lane stores."""
    if values is None:
        return None
    data = np.ascontiguousarray(values)
    raw = data.view(np.uint8).reshape(len(data), -1)
    size = raw.shape[1] // pieces
    part = np.ascontiguousarray(raw[:, piece * size : (piece + 1) * size])
    return part.view(np.dtype(f"u{size}")).reshape(-1)
