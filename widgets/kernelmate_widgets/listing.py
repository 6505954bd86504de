"""The list of versions in a panel.

Each version has a permanent key, so that requests from the page refer to the same version after the list is sorted, and
to none after the version was removed.
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
        key: its identifier in the page; keys are never reused.
        number: its position; 0 is the present kernel.
        found: the candidate with its verdict; None for the present kernel.
        rejected: True if the user rejected it.
    """

    key: int
    number: int
    found: Judged | None
    rejected: bool


class VersionList:
    """The present kernel, its candidates in order, and the selected one.

    A search adds candidates in one thread while the page reads in another; each method is atomic.
    """

    def __init__(self) -> None:
        self._keys = itertools.count()
        self._lock = threading.RLock()
        self.begin()

    def begin(self) -> None:
        """Empties the list except for the present kernel, and selects that."""
        with self._lock:
            self._first = next(self._keys)
            self._found: list[tuple[int, Judged]] = []
            self._rejected: set[int] = set()
            self._selected = self._first
            self._chosen = False

    def add(self, found: Judged) -> None:
        """Appends a candidate."""
        with self._lock:
            self._found.append((next(self._keys), found))

    def arrange(self, candidates: Sequence[Judged], best: int | None) -> None:
        """Sets the versions of a finished search, in its order.

        The user's selection is kept; without one, the best candidate is selected.
        """
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
        """Selects a version; ignores a version that was removed from the list."""
        with self._lock:
            if any(one.key == key for one in self.versions):
                self._selected, self._chosen = key, True

    def reject(self, key: int) -> None:
        """Toggles a candidate's rejection; ignores a candidate that was removed from the list."""
        with self._lock:
            if key in {key for key, _ in self._found}:
                self._rejected ^= {key}

    @property
    def versions(self) -> tuple[ListedVersion, ...]:
        """Returns all versions, the present kernel first."""
        with self._lock:
            listed = [
                ListedVersion(key, number, one, key in self._rejected)
                for number, (key, one) in enumerate(self._found, 1)
            ]
            return (ListedVersion(self._first, 0, None, False), *listed)

    @property
    def selected(self) -> ListedVersion:
        """The selected version."""
        with self._lock:
            return next(one for one in self.versions if one.key == self._selected)

    @property
    def found(self) -> tuple[Judged, ...]:
        """The candidates, in the list's order."""
        with self._lock:
            return tuple(one for _, one in self._found)

    def number(self, key: int) -> int | None:
        """Returns a candidate's position from 1; None if the key is not that of a listed candidate."""
        return next((one.number for one in self.versions if one.key == key and one.number), None)

    def shows(self, candidates: Sequence[Judged]) -> bool:
        """Returns True if the list has exactly these candidates, in this order."""
        return list(self.found) == list(candidates)
