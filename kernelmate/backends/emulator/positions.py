"""Maps `.loc` directives to positions in the user's text.

A `.loc` in an inlined function names its call site, which may itself be inlined: the chain is followed outwards to the
file of the kernel.
"""

from __future__ import annotations

import re

from kernelmate.backends.emulator.program import Position

_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*?inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_LONGEST_CHAIN = 64

Place = tuple[int, int, int]


class LocPositions:
    """Follows the `.loc` directives of one function. `home` is the file number of the user's unit."""

    def __init__(self, home: int | None) -> None:
        self._home = home
        self._callers: dict[Place, Place] = {}
        self._resolved: dict[Place, Position | None] = {}
        self.current: Position | None = None

    def read(self, line: str) -> None:
        """Take in one `.loc` line."""
        match = _LOC.match(line)
        if match is None:
            return
        file, row, column = (int(part) for part in match.groups()[:3])
        place = (file, row, column)
        if self._home is None:
            self._home = file
        if match.group(4) is not None:
            caller = (int(match.group(4)), int(match.group(5)), int(match.group(6)))
            if caller != place and self._callers.get(place) != caller:
                self._callers[place] = caller
                self._resolved.clear()
        if place not in self._resolved:
            self._resolved[place] = self._resolve(place)
        found = self._resolved[place]
        if found is not None:
            self.current = found

    def _resolve(self, place: Place) -> Position | None:
        for _ in range(_LONGEST_CHAIN):
            if place[0] == self._home and place[1] > 0:
                return Position(place[1], max(place[2], 1))
            outer = self._callers.get(place)
            if outer is None:
                return None
            place = outer
        return None
