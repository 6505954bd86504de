"""Mistakes in indices: the right value at the wrong place."""

from __future__ import annotations

import re

from kernelmate_training.corpus.slips import Change, each


def wrong_index(text: str, start: int) -> list[Change]:
    """Rows and columns, axes, or the block's number and its first thread taken for each other."""

    def swap(match: re.Match[str]) -> tuple[str, str] | None:
        row, width, col = match.groups()
        return (
            (f"{col} * {width} + {row}", f"The index exchanges {row} and {col}: it must be `{row} * {width} + {col}`.")
            if row != col
            else None
        )

    products = each(r"(?<![\w.*])(\w+) \* (\w+) \+ (\w+)(?![\w.(])", text, start, swap)
    axes = each(
        r"threadIdx\.x",
        text,
        start,
        lambda m: (
            ("threadIdx.y", "The thread's number along x is meant: threadIdx.x.") if "threadIdx.y" in text else None
        ),
    )
    grids = each(
        r"blockIdx\.x \* blockDim\.x",
        text,
        start,
        lambda m: ("blockIdx.x", "The block's number has to be multiplied by blockDim.x."),
    )
    return products + axes + grids


def wrong_width(text: str, start: int) -> list[Change]:
    """The row's length and the number of rows exchanged in an index."""

    def exchanged(match: re.Match[str]) -> tuple[str, str] | None:
        row, width = match.groups()
        bounds = dict(re.findall(r"(\w+) (?:<|>=) ([A-Za-z_]\w*)", text[start:]))
        other = bounds.get(row)
        if other is None or other == width or bounds.get(width) is not None:
            return None
        return f"[{row} * {other} + ", f"A row has {width} elements, not {other}: the index is `{row} * {width} + ...`."

    return each(r"\[(\w+) \* ([A-Za-z_]\w*) \+ ", text, start, exchanged)


def other_layout(text: str, start: int) -> list[Change]:
    """All accesses of one array as if its columns lay in memory one after the other."""
    bounds = dict(re.findall(r"(\w+) (?:<|>=) ([A-Za-z_]\w*)", text[start:]))
    changes = []
    for name in dict.fromkeys(re.findall(r"\b(\w+)\[\w+ \* \w+ \+ \w+\]", text[start:])):
        pattern = re.compile(rf"\b{name}\[(\w+) \* (\w+) \+ (\w+)\]")
        places = set(pattern.findall(text[start:]))
        if len(places) != 1:
            continue
        (row, width, col) = places.pop()
        rows = bounds.get(row)
        if rows is None or rows == width or not width.isidentifier() or bounds.get(col) != width:
            continue
        put = pattern.sub(f"{name}[{col} * {rows} + {row}]", text[start:])
        words = f"`{name}` has rows of {width} elements: its index is `{row} * {width} + {col}`."
        changes.append((start, len(text), put, words))
    return changes
