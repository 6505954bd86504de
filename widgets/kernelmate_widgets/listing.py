"""The versions that a panel lists.

Each has a key for life: what a page asks for by it means the same version after the list was put in another order, and
nothing once that version has left the list.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from kernelmate.records import Judged


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """One version of the list.

    Attributes:
        key: its name in the page, never used again for another version.
        number: its place; 0 is the kernel as it is.
        found: the candidate with its verdict; None for the kernel as it is.
        rejected: put aside by the user.
    """

    key: int
    number: int
    found: Judged | None
    rejected: bool


class VersionList:
    """The kernel as it is, its candidates in their order, and which of them is looked at.

    A search adds to it from a thread of its own while the page asks from another; each method is one step.
    """

    def __init__(self) -> None:
        self._keys = itertools.count()
        self._lock = threading.RLock()
        self.begin()

    def begin(self) -> None:
        """Start anew, with the kernel as it is in view."""
        with self._lock:
            self._first = next(self._keys)
            self._found: list[tuple[int, Judged]] = []
            self._rejected: set[int] = set()
            self._selected = self._first
            self._chosen = False

    def add(self, found: Judged) -> None:
        """One more candidate, at the end."""
        with self._lock:
            self._found.append((next(self._keys), found))

    def arrange(self, candidates: Sequence[Judged], best: int | None) -> None:
        """Versions of a finished search, in its order. The user's choice stays in view; without one, the best is shown."""
        with self._lock:
            left = list(self._found)
            arranged: list[tuple[int, Judged]] = []
            for one in candidates:
                held = next((pair for pair in left if pair[1] is one or pair[1] == one), None)
                if held is not None:
                    left.remove(held)
                arranged.append((next(self._keys) if held is None else held[0], one))
            self._found = arranged
            keys = [key for key, _ in arranged]
            self._rejected &= set(keys)
            if best is not None and not self._chosen:
                self._selected = keys[best]
            elif self._selected not in keys:
                self._selected = self._first

    def select(self, key: int) -> None:
        """Look at a version; one that has left the list changes nothing."""
        with self._lock:
            if any(one.key == key for one in self.versions):
                self._selected, self._chosen = key, True

    def reject(self, key: int) -> None:
        """Put a candidate aside, or take it back in; one that has left the list changes nothing."""
        with self._lock:
            if key in {key for key, _ in self._found}:
                self._rejected ^= {key}

    @property
    def versions(self) -> tuple[ListedVersion, ...]:
        """All of them, the kernel as it is before all others."""
        with self._lock:
            listed = [
                ListedVersion(key, number, one, key in self._rejected)
                for number, (key, one) in enumerate(self._found, 1)
            ]
            return (ListedVersion(self._first, 0, None, False), *listed)

    @property
    def selected(self) -> ListedVersion:
        """The version in view."""
        with self._lock:
            return next(one for one in self.versions if one.key == self._selected)

    @property
    def found(self) -> tuple[Judged, ...]:
        """The candidates in their order."""
        with self._lock:
            return tuple(one for _, one in self._found)

    def number(self, key: int) -> int | None:
        """A candidate's place from 1; None where it is none, or has left the list."""
        return next((one.number for one in self.versions if one.key == key and one.number), None)

    def shows(self, candidates: Sequence[Judged]) -> bool:
        """These are its candidates, in this order."""
        return list(self.found) == list(candidates)
