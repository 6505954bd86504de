"""Statements that compute the results of a thread, shortened: sums in one expression, and small matrices by two loops."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from kernelmate.synthesis.kernel_text import block_of

FEWEST_LOOPED = 9
"""Fewest results of a small matrix, 3 x 3, that are computed in loops."""

_PLACE = r"at\[((?:\d+ \* )?[a-z]\w*)?(?: \+ )?(\d+)?\]"
"""Place of an element in a pack of a thread: that of the result, and a constant."""


def _multiple(factor: int, name: str) -> str:
    return name if factor == 1 else f"{factor} * {name}"


def looped(body: list[str], loop_names: Callable[[], tuple[str, str]]) -> list[str]:
    """Returns the statements of one result per row and column of a small matrix as two loops, if they differ only in places."""
    split = [re.split(_PLACE, line) for line in body]
    places = [[int(one or 0) for one in parts[2::3]] for parts in split]
    alike = {(*parts[::3], *parts[1::3]) for parts in split}
    if len(body) < FEWEST_LOOPED or len(alike) > 1 or not re.match(r"\w+\.at\[", body[0]):
        return body
    if len({tuple(there - here for here, there in zip(*two, strict=True)) for two in pairwise(places)}) == 1:
        return body  # no matrix: each result needs the elements at its own place
    for cols in (one for one in range(len(body) - 1, 1, -1) if len(body) % one == 0):
        down = [last - first for first, last in zip(places[0], places[cols], strict=True)]
        along = [last - first for first, last in zip(places[0], places[1], strict=True)]
        if places != [
            [first + i // cols * d + i % cols * a for first, d, a in zip(places[0], down, along, strict=True)]
            for i in range(len(body))
        ]:
            continue
        row, col = loop_names()
        text = split[0][0]
        for n, first in enumerate(places[0]):
            moving = [_multiple(by, name) for by, name in ((down[n], row), (along[n], col)) if by]
            terms = [*filter(None, [split[0][3 * n + 1]]), *moving, *([str(first)] if first else [])]
            text += f"at[{' + '.join(terms) or '0'}]{split[0][3 * n + 3]}"
        inner = block_of(f"for (int {col} = 0; {col} < {cols}; ++{col})", [text])
        outer = block_of(f"for (int {row} = 0; {row} < {len(body) // cols}; ++{row})", ["#pragma unroll", *inner])
        return ["#pragma unroll", *outer]
    return body


def summed(body: Sequence[str]) -> list[str]:
    """Returns the lines with a sum that starts at zero and its few terms joined to one expression."""
    lines: list[str] = []
    for line in body:
        begun = re.fullmatch(r"(?:const )?(float|double) (\w+) = (.+);", lines[-1]) if lines else None
        added = re.fullmatch(r"(\w+) \+= (.+);", line)
        if begun is None or added is None or added[1] != begun[2] or re.search(r"[?<>=&|]", added[2]):
            lines.append(line)
            continue
        front = "" if re.fullmatch(r"0\.0f?", begun[3]) else f"{begun[3]} + "
        lines[-1] = f"const {begun[1]} {begun[2]} = {front}{added[2]};"
    return _stored_at_once(lines)


def _stored_at_once(lines: Sequence[str]) -> list[str]:
    """Returns the lines with sums of elements that are only stored as the stored values."""
    sums = {one[1]: one[2] for one in (re.fullmatch(r"const \w+ (\w+) = ([^;?]+);", line) for line in lines) if one}
    uses = Counter(re.findall(r"\w+", " ".join(lines)))
    found: list[str] = []
    stored: set[str] = set()
    for line in lines:
        store = re.fullmatch(r"(\w+\.at\[[^\]]+\] = )(\w+);", line)
        if store is not None and uses[store[2]] == 2 and store[2] in sums:
            stored.add(store[2])
            line = f"{store[1]}{sums[store[2]]};"
        found.append(line)
    return [line for line in found if (one := re.match(r"const \w+ (\w+) = ", line)) is None or one[1] not in stored]
