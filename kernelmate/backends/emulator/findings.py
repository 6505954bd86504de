"""Collects a launch's errors: one finding per code, line and buffer, whatever the number of threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelmate.backends.emulator.lanes import Lanes
from kernelmate.backends.emulator.program import Position
from kernelmate.backends.emulator.types import Array
from kernelmate.records import Finding, FindingCode, Severity

_THREADS_NAMED = 4


class LaunchStopped(Exception):
    """The launch cannot continue; the finding with the reason has been reported."""


@dataclass
class _FindingEntry:
    severity: Severity
    position: Position | None
    buffer: str | None
    offset: int | None
    text: str
    block: tuple[int, ...]
    threads: list[int]
    times: int


@dataclass(frozen=True, slots=True)
class Race:
    """Two unordered accesses.

    Attributes:
        code: `shared-race` or `global-race`.
        positions: the positions of the later and of the earlier access.
        threads: linear thread indices in their blocks, in the same order.
        times: number of accesses it represents.
    """

    code: FindingCode
    severity: Severity
    positions: tuple[Position | None, Position | None]
    buffer: str
    offset: int
    threads: tuple[int, int]
    text: str
    times: int

    @property
    def lines(self) -> frozenset[int]:
        """The lines of both accesses; 0 for an unknown one."""
        return frozenset(position.line if position else 0 for position in self.positions)


class Races:
    """The races of one launch. Races that share a line or a buffer have one cause: the missing synchronisation there."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, Severity, str, frozenset[int]], tuple[Race, int]] = {}

    def report(self, race: Race) -> None:
        """Records a race; the first race of its lines and buffer represents the others."""
        key = (race.code, race.severity, race.buffer, race.lines)
        first, times = self._found.get(key, (race, 0))
        self._found[key] = (first, times + race.times)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def buffers(self) -> frozenset[str]:
        """Returns the buffers with races that are not notes."""
        return frozenset(race.buffer for race, _ in self._found.values() if race.severity == "error")

    def finish(self) -> tuple[Finding, ...]:
        """Returns one finding for each cause."""
        raced = self.buffers
        findings = []
        for severity in ("error", "note"):
            causes: list[tuple[set[int | str], list[tuple[Race, int]]]] = []
            for race, times in self._found.values():
                if race.severity != severity or (severity == "note" and race.buffer in raced):
                    continue
                marks: set[int | str] = {*race.lines, race.buffer}
                members = [(race, times)]
                for cause in [cause for cause in causes if cause[1][0][0].code == race.code and cause[0] & marks]:
                    causes.remove(cause)
                    marks |= cause[0]
                    members = cause[1] + members
                causes.append((marks, members))
            findings += [_finding_of(members) for _, members in causes]
        return tuple(findings)


def _finding_of(members: list[tuple[Race, int]]) -> Finding:
    first = members[0][0]
    position = first.positions[0]
    times = sum(count for _, count in members)
    more = f" ({times} times in all)" if times > 1 else ""
    others = sorted({race.buffer for race, _ in members} - {first.buffer})
    also = f"; the same goes for {', '.join(others)}" if others else ""
    return Finding(
        first.code,
        first.severity,
        f"{first.text}{more}{also}",
        None,
        position.line if position else None,
        position.column if position else None,
        first.buffer,
        first.offset,
        first.threads,
    )


class Findings:
    """The findings of one launch, in order of detection, races last."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._entries: dict[tuple[FindingCode, int, str | None], _FindingEntry] = {}
        self.races = Races()

    def report(
        self,
        code: FindingCode,
        position: Position | None,
        lanes: Array,
        describe: Callable[[], str],
        *,
        buffer: str | None = None,
        offset: int | None = None,
        severity: Severity = "error",
    ) -> None:
        """Reports an action of `lanes`, which `describe` returns as text.

        It is called only for the first of a kind, or the first error.
        """
        key = (code, position.line if position else 0, buffer)
        entry = self._entries.get(key)
        if entry is not None and (entry.severity == "error" or severity != "error"):
            entry.times += len(lanes)
            return
        geometry = self._lanes
        block = geometry.slot[lanes[0]]
        same = lanes[geometry.slot[lanes] == block][: 8 * _THREADS_NAMED]
        threads = list(dict.fromkeys(int(thread) for thread in geometry.thread[same]))[:_THREADS_NAMED]
        place = tuple(int(axis[lanes[0]]) for axis in geometry.block_index)
        self._entries[key] = _FindingEntry(severity, position, buffer, offset, describe(), place, threads, len(lanes))

    @property
    def codes(self) -> frozenset[FindingCode]:
        """Returns the reported codes without races."""
        return frozenset(code for code, _, _ in self._entries)

    def __len__(self) -> int:
        return len(self._entries) + len(self.races)

    def finish(self) -> tuple[Finding, ...]:
        """Returns all findings; uninitialised reads that a race explains are dropped."""
        raced = self.races.buffers
        entries = tuple(
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
            if not (code == FindingCode.UNINITIALISED_SHARED and buffer in raced)
        )
        return entries + self.races.finish()


def _message(entry: _FindingEntry) -> str:
    many = f"threads {', '.join(map(str, entry.threads))}" if len(entry.threads) > 1 else f"thread {entry.threads[0]}"
    more = f", {entry.times} times in all" if entry.times > len(entry.threads) else ""
    return f"{entry.text}, by {many} of block {entry.block}{more}"


def at_line(position: Position | None) -> str:
    """Formats a position within a sentence: ` at line 7`; empty if the line is unknown."""
    return f" at line {position.line}" if position is not None and position.line else ""


def plural(count: int, noun: str) -> str:
    """Formats a count: `1 byte`, `4 bytes`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
