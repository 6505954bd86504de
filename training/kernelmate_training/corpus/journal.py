"""Results of groups in one file, from which an interrupted run resumes.

Each group is a line of JSON with its facts, followed by its rows and its rejected rows, one line each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from kernelmate_training.corpus.examples import StoredRow

PARTS = "parts.jsonl"


@dataclass(slots=True)
class GroupResult:
    """The result of one group.

    Attributes:
        number, family: the group's number and family.
        rows: rows for training.
        rejected: correct pairs that were not better.
        texts, right: numbers of judged versions, and of correct ones.
        pairs, better: numbers of pairs, and of pairs whose second version is better.
        broken, failing, mended: numbers of mistakes, of those that fail, and of repaired ones.
        tried: number of rewritten versions that were evaluated.
        wrong: errors of versions that were not correct.
        lost: the reason that the group has no result; empty if it has one.
    """

    number: int
    family: str
    rows: list[StoredRow] = field(default_factory=list)
    rejected: list[StoredRow] = field(default_factory=list)
    texts: int = 0
    right: int = 0
    pairs: int = 0
    better: int = 0
    broken: int = 0
    failing: int = 0
    mended: int = 0
    tried: int = 0
    wrong: list[str] = field(default_factory=list)
    lost: str = ""


COUNTED = ("texts", "right", "pairs", "better", "broken", "failing", "mended", "tried")
"""Names of the counts of each group."""

_KEPT = ("task", "metric", "mark", "content", "kind", "family", "split", "flaws")


class Journal:
    """The file of results of a folder, open for appending; a partial record of an earlier run is removed.

    Attributes:
        places: offset of each group, by number.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / PARTS
        self.places: dict[int, int] = {}
        self._known()
        self._file = self.path.open("ab")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def add(self, found: GroupResult) -> None:
        """Writes a group's results as one record."""
        head = {"number": found.number, "family": found.family, "lost": found.lost, "wrong": found.wrong}
        head |= {name: getattr(found, name) for name in COUNTED}
        head |= {"rows": [_facts(row) for row in found.rows], "rejected": [_facts(row) for row in found.rejected]}
        lines = [
            json.dumps(head, allow_nan=False),
            *(row.line for row in found.rows),
            *(row.line for row in found.rejected),
        ]
        self.places[found.number] = self._file.tell()
        self._file.write(("\n".join(lines) + "\n").encode())
        self._file.flush()

    def in_order(self, numbers: Iterator[int] | None = None) -> Iterator[GroupResult]:
        """Yields results by number; all of them if no numbers are given."""
        with self.path.open("rb") as file:
            for number in sorted(self.places) if numbers is None else numbers:
                file.seek(self.places[number])
                found = _read(file)
                assert found is not None, "only whole groups have places"
                yield found

    def _known(self) -> None:
        if not self.path.exists():
            return
        whole = 0
        with self.path.open("rb") as file:
            while (found := _read(file)) is not None:
                self.places[found.number] = whole
                whole = file.tell()
        if whole < self.path.stat().st_size:
            os.truncate(self.path, whole)


def _facts(row: StoredRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _KEPT}


def _read(file: BinaryIO) -> GroupResult | None:
    """Returns the group that begins at the file's position; None if there is none, or only part of one."""
    try:
        head = json.loads(_line(file))
        rows, rejected = ([_row(facts, _line(file).decode()) for facts in head[name]] for name in ("rows", "rejected"))
        rows = list(rows)
        rejected = list(rejected)
        counts = {name: int(head[name]) for name in COUNTED}
        return GroupResult(
            int(head["number"]), head["family"], rows, rejected, wrong=head["wrong"], lost=head["lost"], **counts
        )
    except (ValueError, KeyError, EOFError):
        return None


def _row(facts: dict[str, Any], line: str) -> StoredRow:
    return StoredRow(line, **{**facts, "flaws": tuple(facts["flaws"])})


def _line(file: BinaryIO) -> bytes:
    line = file.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return line[:-1]
