"""Search for kernels of the exam, or near-duplicates of them, in a corpus, by overlap of normalised tokens."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmate.errors import SourceError
from kernelmate_training.corpus_files import opened, rows_file
from kernelmate_training.exam.goals import KERNELS
from kernelmate_training.overlap import NEAR, Nearest, Overlaps

SHOWN = 5


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a comparison of texts with the exam's kernels.

    Attributes:
        texts: number of compared texts.
        nearest: the most similar texts with their location, the most similar first.
        near: all near-duplicates.
        bound: smallest overlap of a near-duplicate.
    """

    texts: int
    nearest: tuple[tuple[str, Nearest], ...]
    near: tuple[tuple[str, Nearest], ...]
    bound: float

    def lines(self) -> Iterator[str]:
        """Yields the report as text."""
        yield f"{self.texts} texts; {len(self.near)} overlap by {self.bound:.0%} or more with a kernel of the exam."
        for place, one in self.near or self.nearest:
            yield f"  {place}: {one.overlap:.0%} of {one.name}"


def exam_texts() -> dict[str, str]:
    """Returns the exam's kernels by name."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(KERNELS.glob("*.cu"))}


def hold_against(texts: Iterable[tuple[str, str]], bound: float | None = None) -> Report:
    """Compare texts with the exam's kernels.

    Args:
        texts: each text with its location.
        bound: smallest overlap of a near-duplicate; None for the corpus' own bound.
    """
    limit = NEAR if bound is None else bound
    overlaps = Overlaps(exam_texts())
    found = [(place, overlaps.nearest(text)) for place, text in dict(_once(texts)).items()]
    found.sort(key=lambda one: (-one[1].overlap, one[0]))
    return Report(len(found), tuple(found[:SHOWN]), tuple(one for one in found if one[1].overlap >= limit), limit)


def nearest_of(corpus: Path, bound: float | None = None) -> Report:
    """Compare a corpus with the exam: its folder with `corpus.jsonl`, or such a file, compressed by xz or not.

    Raises:
        SourceError: there is no corpus, or a line is not an example.
    """
    path = rows_file(corpus)
    if not path.is_file():
        raise SourceError(f"There is no corpus at {corpus}.", hint="Give a folder with corpus.jsonl, or a .jsonl file.")
    try:
        return hold_against(_of_corpus(path), bound)
    except (lzma.LZMAError, EOFError) as error:
        raise SourceError(f"{path} cannot be unpacked: {error}.") from None


def _of_corpus(path: Path) -> Iterator[tuple[str, str]]:
    with opened(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row: dict[str, Any] = json.loads(line)
                sides = [(side, row[side]) for side in ("before", "after")]
                found = [(f"{path.name}:{number} {side}", str(one["source"])) for side, one in sides if one is not None]
            except (ValueError, KeyError, TypeError, AttributeError):
                raise SourceError(f"{path}:{number}: this line is not an example of a corpus.") from None
            yield from found


def _once(texts: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yields each text once, with its first location."""
    seen: set[str] = set()
    for place, text in texts:
        if text not in seen:
            seen.add(text)
            yield place, text
