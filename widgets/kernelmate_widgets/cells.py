"""Conversion of a cell's text to a unit, and selection of its kernel."""

from __future__ import annotations

import json
import keyword
import os
from dataclasses import replace
from pathlib import PurePath

from kernelmate.errors import SourceError
from kernelmate.records import Anchor, Kernel, Unit
from kernelmate.source import find_kernels, parse_contract
from kernelmate.source.blocks import find_pipelines
from kernelmate.source.cuda import refuse_unclosed
from kernelmate.source.line_ends import normal_text
from kernelmate.source.triton import triton_unit

MAGIC = "%%kernelmate"


def cell_unit(body: str, raw: str | None = None, name: str = "cell") -> Unit:
    """Returns a cell without its magic line as a unit; messages use the line numbers that the cell's editor shows.

    Args:
        body: the text below the magic line.
        raw: the whole cell as typed, if known: empty lines may precede the magic.
        name: the unit's name in messages.
    """
    lines = (raw or "").split("\n")
    first = next((number for number, line in enumerate(lines, 1) if line.lstrip().startswith(MAGIC)), 1)
    text = normal_text(body)
    anchors = (Anchor(1, 1, first + 1, 1),)
    jitted = triton_unit(name, text)
    if jitted is not None:
        return replace(jitted, anchors=anchors)
    return Unit(path=name, text=text, language="text", anchors=anchors, file_text=text)


def notebook_name(session: str | None = None) -> str:
    """Returns the name of this notebook's text in the history.

    It is the notebook's file name in angle brackets, or `<notebook>` if the server does not provide it.
    """
    path = os.environ.get("JPY_SESSION_NAME") if session is None else session
    return f"<{PurePath(path).name if path else 'notebook'}>"


def chosen_kernel(unit: Unit, name: str | None) -> Kernel:
    """Returns the kernel or pipeline of a cell to judge.

    It is the one named `name`, else the only one, else the only one with a contract.

    Raises:
        SourceError: there is none, or the choice is ambiguous.
        ContractError: a contract is invalid.
    """
    kernels = (*find_kernels(unit), *find_pipelines(unit))
    if not kernels:
        refuse_unclosed(unit)
        hint = "A kernel is a __global__ function with a body, or a Python function with @triton.jit."
        raise SourceError("There is no kernel in this cell.", file=unit.path, hint=hint)
    named = [kernel for kernel in kernels if name is not None and short_name(kernel) == name]
    if len(named) == 1:
        return named[0]
    if len(kernels) == 1:
        return kernels[0]
    # A kernel that serves as another's reference usually has no contract.
    written = [kernel for kernel in kernels if parse_contract(kernel) is not None]
    if len(written) == 1:
        return written[0]
    names = ", ".join(short_name(kernel) for kernel in kernels)
    raise SourceError(
        f"The cell has {len(kernels)} kernels: {names}.",
        file=unit.path,
        hint=f"Name one: {MAGIC} {short_name(kernels[0])}.",
    )


def short_name(kernel: Kernel) -> str:
    """Returns the kernel's name without namespaces, the default name to bind it under."""
    return kernel.name.rpartition("::")[2]


def is_name(text: str) -> bool:
    """Returns True if the text is a valid Python name."""
    return text.isidentifier() and not keyword.iskeyword(text)


def quoted(text: str) -> str:
    """Returns text in double quotes, as an argument of a magic line."""
    return json.dumps(text, ensure_ascii=False)
