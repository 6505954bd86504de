"""Differences between two versions' SASS, ignoring names of registers, labels and addresses.

Two instructions are equal if opcode, modifiers, immediates, constant-bank offsets and operand kinds are equal, and the
the same sources share a register: `FMUL R3, R5, R5` equals `FMUL R0, R2, R2` but not `FMUL R0, R2, R4`. The assembler's
own choices (register numbers, `.reuse`, branch targets) do not count.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from kernelmate.records import Listing, SassInstruction

Op = Literal["equal", "delete", "insert", "replace"]

_REGISTER = re.compile(r"\b(UR|UP|SB|R|P|B)(\d+)\b")
_LABEL = re.compile(r"\.L_[\w.$]+")
_RETURN = re.compile(r"(?<=MOV )(R\d+), 0x[0-9a-f]+0$")
_STORES = re.compile(
    r"(?:@!?\w+ )?(?:ST|RED|BRA|BSSY|BSYNC|CALL|RET|EXIT|BAR|MEMBAR|SYNCS|DEPBAR|LDGDEPBAR|WARPSYNC|NANOSLEEP)"
)
"""Opcodes whose first operand is not a result."""

_ANCHOR = 4
"""Length of an instruction sequence that serves as an anchor if it is unique in each version."""
_NEAR = 64
"""Maximum distance in instructions to the position at which two long ranges continue after a difference."""
_MOST_PAIRS = 4_000_000
"""Maximum product of two ranges' lengths for a comparison of all pairs of instructions."""


@dataclass(frozen=True, slots=True)
class Change:
    """Corresponding instruction ranges of two versions; ends are exclusive."""

    op: Op
    old: tuple[int, int]
    new: tuple[int, int]


@dataclass(frozen=True, slots=True)
class CodeDiff:
    """Two versions, their equal and changed ranges in order, and counts per instruction class before and after."""

    old: Listing
    new: Listing
    changes: tuple[Change, ...]
    mix: tuple[tuple[str, int, int], ...]

    @property
    def same(self) -> bool:
        """Returns True if the versions differ only in names."""
        return all(change.op == "equal" for change in self.changes)


def compare_code(old: Listing, new: Listing) -> CodeDiff:
    """Returns the differences between two versions' SASS."""
    before = [normal_form(one, old.symbol) for one in old.sass]
    after = [normal_form(one, new.symbol) for one in new.sass]
    kinds = sorted({*old.mix, *new.mix}, key=lambda kind: (-max(old.mix.get(kind, 0), new.mix.get(kind, 0)), kind))
    mix = tuple((kind, old.mix.get(kind, 0), new.mix.get(kind, 0)) for kind in kinds)
    return CodeDiff(old, new, tuple(_changes(before, after)), mix)


def normal_form(instruction: SassInstruction, symbol: str) -> str:
    """Returns an instruction's text without register numbers, `.reuse` and branch targets.

    Args:
        instruction: the instruction to normalise.
        symbol: the kernel's mangled name, which may differ between versions.
    """
    text = _LABEL.sub(".L", instruction.text.replace(".reuse", ""))
    text = text.replace(symbol, "<kernel>")
    if instruction.opcode == "MOV":
        text = _RETURN.sub(r"\1, <address>", text)
    head, space, operands = text.partition(f"{instruction.opcode} ")
    if not space:
        return _REGISTER.sub(r"\1", text)
    result, comma, sources = ("", "", operands) if _STORES.match(text) else operands.partition(",")
    names: dict[str, str] = {}

    def renamed(match: re.Match[str]) -> str:
        return names.setdefault(match[0], f"{match[1]}#{len(names)}")

    return _REGISTER.sub(r"\1", head + space + result) + comma + _REGISTER.sub(renamed, sources)


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[Change]:
    """Yields ranges in order; adjacent ranges of one kind are merged."""
    merged: list[Change] = []
    for change in _stretches(old, new):
        if change.old[0] == change.old[1] and change.new[0] == change.new[1]:
            continue
        last = merged[-1] if merged else None
        if last is not None and (last.op == change.op == "equal" or "equal" not in (last.op, change.op)):
            joined = (last.old[0], change.old[1]), (last.new[0], change.new[1])
            merged[-1] = Change(_op(*joined, equal=last.op == "equal"), *joined)
        else:
            merged.append(change)
    yield from merged


def _op(old: tuple[int, int], new: tuple[int, int], *, equal: bool) -> Op:
    if equal:
        return "equal"
    if old[0] == old[1]:
        return "insert"
    return "delete" if new[0] == new[1] else "replace"


def _stretches(old: Sequence[str], new: Sequence[str]) -> Iterator[Change]:
    """Yields the ranges between anchors, so that long code is not compared pairwise."""
    at_old = at_new = 0
    for index, other in [*_anchors(old, new), (len(old), len(new))]:
        yield from _compared(old, new, (at_old, index), (at_new, other))
        at_old, at_new = index, other


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Returns index pairs, increasing in both, of unique sequences of `_ANCHOR` instructions (patience diff)."""
    if len(old) * len(new) <= _MOST_PAIRS:
        return []
    runs_old, runs_new = _runs(old), _runs(new)
    once_old = {run: index for index, run in enumerate(runs_old)}
    counts_old, counts_new = Counter(runs_old), Counter(runs_new)
    pairs = [
        (once_old[run], index)
        for index, run in enumerate(runs_new)
        if counts_new[run] == 1 and counts_old.get(run) == 1
    ]
    return _rising(pairs)


def _runs(code: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(code[index : index + _ANCHOR]) for index in range(len(code) - _ANCHOR + 1)]


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the longest subsequence of pairs that increases in both members; the input is ordered by the second."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int | None] = []
    for index, (first, _) in enumerate(pairs):
        at = bisect_left(tails, first)
        before.append(ends[at - 1] if at else None)
        if at == len(tails):
            tails.append(first)
            ends.append(index)
        else:
            tails[at], ends[at] = first, index
    found: list[tuple[int, int]] = []
    current = ends[-1] if ends else None
    while current is not None:
        found.append(pairs[current])
        current = before[current]
    return found[::-1]


def _compared(
    old: Sequence[str], new: Sequence[str], of_old: tuple[int, int], of_new: tuple[int, int]
) -> Iterator[Change]:
    (low, high), (below, above) = of_old, of_new
    if (high - low) * (above - below) > _MOST_PAIRS:
        yield from _in_step(old, new, of_old, of_new)
        return
    matcher = difflib.SequenceMatcher(None, old[low:high], new[below:above], autojunk=False)
    for op, first, last, other, end in matcher.get_opcodes():
        span = (low + first, low + last), (below + other, below + end)
        yield Change(_op(*span, equal=op == "equal"), *span)


def _in_step(
    old: Sequence[str], new: Sequence[str], of_old: tuple[int, int], of_new: tuple[int, int]
) -> Iterator[Change]:
    """Yields ranges from a linear comparison that continues after a difference at the nearest equal sequence.

    Used for long, repetitive ranges without anchors; takes linear time.
    """
    (at, high), (beside, above) = of_old, of_new
    while at < high and beside < above:
        run = 0
        while at + run < high and beside + run < above and old[at + run] == new[beside + run]:
            run += 1
        if run:
            yield Change("equal", (at, at + run), (beside, beside + run))
            at, beside = at + run, beside + run
            continue
        gone, come = _next_run(old[at:high], new[beside:above])
        span = (at, at + gone), (beside, beside + come)
        yield Change(_op(*span, equal=False), *span)
        at, beside = at + gone, beside + come
    if at < high or beside < above:
        yield Change(_op((at, high), (beside, above), equal=False), (at, high), (beside, above))


def _next_run(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Returns the numbers of instructions in both versions that precede the nearest equal sequence, or all of them if none is near."""
    for distance in range(1, 2 * _NEAR):
        for gone in range(max(0, distance - _NEAR), min(distance, _NEAR) + 1):
            come = distance - gone
            run = old[gone : gone + _ANCHOR]
            if run and run == new[come : come + _ANCHOR]:
                return gone, come
    return len(old), len(new)
