"""A cell's text as a unit with kernels, and which of them is meant."""

from __future__ import annotations

import json
import keyword
import os
from pathlib import PurePath

from kernelmate.errors import SourceError
from kernelmate.records import Anchor, Kernel, Unit
from kernelmate.source import find_kernels, parse_contract
from kernelmate.source.line_ends import normal_text

MAGIC = "%%kernelmate"


def cell_unit(body: str, raw: str | None = None, name: str = "cell") -> Unit:
    """A cell without its magic line as a unit; what is said of a line of it names the line that the cell's editor shows.

    Args:
        body: the text below the magic line.
        raw: the whole cell as typed, where it is known: empty lines may come before the magic.
        name: what messages call it.
    """
    lines = (raw or "").split("\n")
    first = next((number for number, line in enumerate(lines, 1) if line.lstrip().startswith(MAGIC)), 1)
    text = normal_text(body)
    return Unit(path=name, text=text, language="text", anchors=(Anchor(1, 1, first + 1, 1),), file_text=text)


def file_lines(unit: Unit) -> str:
    """The unit's text at the lines that messages name: as a file of the cell would have it."""
    return "\n" * (unit.locate(1, 1)[0] - 1) + unit.text


def place_name(session: str | None = None) -> str:
    """Name of this notebook's text in the history: the notebook's name, if its server tells it, in brackets."""
    path = os.environ.get("JPY_SESSION_NAME") if session is None else session
    return f"<{PurePath(path).name if path else 'notebook'}>"


def chosen_kernel(unit: Unit, name: str | None) -> Kernel:
    """The kernel of a cell that is judged: the one called NAME, else the only one, else the only one with a contract.

    Raises:
        SourceError: there is none, or it is not clear which is meant. ContractError: a contract is wrong.
    """
    kernels = find_kernels(unit)
    if not kernels:
        hint = "A kernel is a __global__ function with a body."
        raise SourceError("There is no kernel in this cell.", file=unit.path, hint=hint)
    named = [kernel for kernel in kernels if name is not None and short_name(kernel) == name]
    if len(named) == 1:
        return named[0]
    if len(kernels) == 1:
        return kernels[0]
    # A kernel that serves as another's reference has no contract of its own, as a rule.
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
    """The kernel's name without its namespaces: what it is bound under."""
    return kernel.name.rpartition("::")[2]


def is_name(text: str) -> bool:
    """True if Python takes the text as a name."""
    return text.isidentifier() and not keyword.iskeyword(text)


def quoted(text: str) -> str:
    """Text in double quotes, as it may be typed in a magic line."""
    return json.dumps(text, ensure_ascii=False)
