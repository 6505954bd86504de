"""Applies edits to a kernel within its unit, and to the unit within the user's file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from kernelmate.errors import SourceError
from kernelmate.records import Kernel, Unit
from kernelmate.source.blocks import find_kernels, find_pipelines
from kernelmate.source.line_ends import normal_text, restored
from kernelmate.source.python import with_python_text

Edit = tuple[int, int, str]
"""Start and end offset of the replaced text, and the new text."""


def apply_edits(kernel: Kernel, edits: Sequence[Edit]) -> Kernel:
    """Returns the same kernel after edits of its unit's text.

    Args:
        kernel: the kernel to find again.
        edits: offsets into `kernel.unit.text`, in any order, not overlapping.

    Raises:
        SourceError: edits overlap or leave the text, the kernel is gone afterwards, or its Python string cannot hold
            the new text.
    """
    text = edited_text(kernel.unit.text, edits, kernel.unit.path)
    return same_kernel(kernel, with_text(kernel.unit, text))


def edited_text(text: str, edits: Sequence[Edit], path: str) -> str:
    """Returns a text after edits of separate parts of it.

    Args:
        text: the text.
        edits: offsets into it, in any order.
        path: its file, for errors.

    Raises:
        SourceError: edits overlap or leave the text.
    """
    position = len(text)
    for start, end, new in sorted(edits, key=lambda edit: (edit[0], edit[1]), reverse=True):
        if not 0 <= start <= end <= position:
            raise SourceError(
                f"An edit at offset {start} overlaps another or leaves the text.",
                file=path,
                hint="Make edits of separate parts of the text.",
            )
        text = text[:start] + new + text[end:]
        position = start
    return text


def helpers_offset(kernel: Kernel) -> int:
    """Returns the offset of the kernel's contract, or of the kernel if headers or declarations lie between them.

    It is above `extern "C" {`, since helpers may be templates.
    """
    if kernel.contract_span is None or kernel.contract_span[1] > kernel.start:
        return kernel.start
    first, end = kernel.contract_span
    between = re.sub(
        r"//[^\n]*|/\*.*?\*/", lambda found: " " * len(found[0]), kernel.unit.text[end : kernel.start], flags=re.DOTALL
    )
    linkage = re.search(r'extern\s+"C"\s*\{', between)
    place = len(between) if linkage is None else linkage.start()
    return end + place if between[:place].strip() else first


def with_text(unit: Unit, text: str) -> Unit:
    """Returns the unit with another text, its whole file changed accordingly.

    Raises:
        SourceError: the unit is a Python string that cannot hold the text.
    """
    if unit.language == "python":
        return with_python_text(unit, text)
    file_text = restored(unit.file_text if unit.file_text is not None else unit.text, text)
    return replace(unit, text=text, file_text=file_text)


def same_kernel(kernel: Kernel, unit: Unit) -> Kernel:
    """Returns the kernel of a changed unit that has this kernel's name; of several, the one with the same number.

    Raises:
        SourceError: the unit has no such kernel.
    """
    found = find_pipelines if kernel.parts else find_kernels
    before = [other.start for other in found(kernel.unit) if other.name == kernel.name]
    after = [other for other in found(unit) if other.name == kernel.name]
    if after:
        number = before.index(kernel.start) if kernel.start in before and len(before) == len(after) else 0
        return replace(after[number], distinction=kernel.distinction)
    raise SourceError(
        f"{kernel.name} is gone after the change.",
        file=unit.path,
        hint="Keep the kernel's name, and its braces balanced.",
    )


def file_text(kernel: Kernel) -> str:
    """Returns the user's whole file with the unit's text in it; line ends and byte order mark are kept.

    Raises:
        SourceError: the unit is a Python string that cannot hold its text.
    """
    unit = kernel.unit
    if unit.file_text is None:
        return unit.text
    if unit.language != "python":
        return unit.file_text if normal_text(unit.file_text) == unit.text else restored(unit.file_text, unit.text)
    return with_python_text(unit, unit.text).file_text or unit.text
