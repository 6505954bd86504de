"""CUDA text that has no file: a notebook's cell."""

from __future__ import annotations

from kernelmate.records import Unit
from kernelmate.source.line_ends import normal_text


def text_unit(text: str, path: str = "<cell>") -> Unit:
    """A unit of plain text; positions in it are those of the cell.

    Args:
        text: CUDA text, the cell's magic line taken off.
        path: what error messages call it.
    """
    return Unit(path=path, text=normal_text(text), language="text", file_text=text)
