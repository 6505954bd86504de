"""CUDA text without a file: a notebook's cell."""

from __future__ import annotations

from kernelmate.records import Unit
from kernelmate.source.line_ends import normal_text


def text_unit(text: str, path: str = "<cell>") -> Unit:
    """Returns a unit of plain text; positions in it are those of the cell.

    Args:
        text: CUDA text without the cell's magic line.
        path: its name in error messages.
    """
    return Unit(path=path, text=normal_text(text), language="text", file_text=text)
