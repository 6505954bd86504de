"""Collects what a launch does wrong: one finding per code, line and buffer, however many threads do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelmate.backends.emulator.lanes import Lanes
from kernelmate.backends.emulator.program import Position
from kernelmate.backends.emulator.types import Array
from kernelmate.records import Finding, Severity

_THREADS_NAMED = 4


class Stop(Exception):
    """The launch cannot go on; the finding that says why has been reported."""


@dataclass
class _Entry:
    severity: Severity
    position: Position | None
    buffer: str | None
    offset: int | None
    text: str
    block: tuple[int, ...]
    threads: list[int]
    times: int


class Findings:
    """The findings of one launch, in the order in which they came up."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._entries: dict[tuple[str, int, str | None], _Entry] = {}

    def report(
        self,
        code: str,
        position: Position | None,
        lanes: Array,
        describe: Callable[[], str],
        *,
        buffer: str | None = None,
        offset: int | None = None,
        severity: Severity = "error",
    ) -> None:
        """Note that `lanes` did what `describe` says; it is called for the first of a kind only."""
        key = (code, position.line if position else 0, buffer)
        entry = self._entries.get(key)
        if entry is not None:
            entry.times += len(lanes)
            return
        geometry = self._lanes
        block = geometry.slot[lanes[0]]
        same = lanes[geometry.slot[lanes] == block][: 8 * _THREADS_NAMED]
        threads = list(dict.fromkeys(int(thread) for thread in geometry.thread[same]))[:_THREADS_NAMED]
        place = tuple(int(axis[lanes[0]]) for axis in geometry.block_index)
        self._entries[key] = _Entry(severity, position, buffer, offset, describe(), place, threads, len(lanes))

    def __len__(self) -> int:
        return len(self._entries)

    def finish(self) -> tuple[Finding, ...]:
        """All of them as records; where a race is found, what it leaves unwritten is no second cause."""
        raced = {buffer for code, _, buffer in self._entries if code == "shared-race"}
        return tuple(
            Finding(
                code,
                entry.severity,
                _message(entry),
                None,
                entry.position.line if entry.position else None,
                entry.position.column if entry.position else None,
                buffer,
                entry.offset,
                tuple(entry.threads),
            )
            for (code, _, buffer), entry in self._entries.items()
            if not (code == "uninitialised-shared" and buffer in raced)
        )


def _message(entry: _Entry) -> str:
    many = f"threads {', '.join(map(str, entry.threads))}" if len(entry.threads) > 1 else f"thread {entry.threads[0]}"
    more = f", {entry.times} times in all" if entry.times > len(entry.threads) else ""
    return f"{entry.text}, by {many} of block {entry.block}{more}"


def plural(count: int, noun: str) -> str:
    """`1 byte`, `4 bytes`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
