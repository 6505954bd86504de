"""Writes accepted versions into the notebook as cells: the magic line with the launch, and the kernel's text.

This package's JupyterLab extension writes into cells, connected by a comm; other front ends get the text as the next
cell.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Literal

from kernelmate.records import Contract
from kernelmate_widgets.cells import MAGIC, quoted, short_name
from kernelmate_widgets.handle import KernelHandle, KernelVersion
from kernelmate_widgets.notebook_state import BoundKernel

Place = Literal["cell", "below", "nowhere"]
"""The place where an accepted version is written: its kernel's cell, a new cell below it, or nowhere."""

TARGET = "kernelmate.cells"
"""Name of the comm between this module and the JupyterLab extension."""


def cell_of(known: BoundKernel, handle: KernelHandle, version: KernelVersion) -> str:
    """Returns the text of the cell that defines a version, magic line included.

    For the cell's own version, it is the cell as it was run.
    """
    if version is handle.first:
        return known.cell
    if handle.first.kernel.parts and not version.kernel.parts:  # the cell has both, each with a contract
        others = [word for word in known.line.split(" ") if word != handle.name]
        known = replace(known, line=" ".join([short_name(version.kernel), *others]))
    return cell_text(known, version, handle.first.contract)


def cell_text(known: BoundKernel, version: KernelVersion, before: Contract) -> str:
    """Returns a cell with another version of its kernel, and with the version's launch if that differs."""
    line = without_option(known.line, "prompt")
    if known.contract is not None:  # a written contract changes with the text; live arrays leave the launch to the line
        line = with_launch(line, version.contract, before)
    return f"{MAGIC} {line.strip()}".rstrip() + f"\n{version.source}"


def with_launch(line: str, contract: Contract, before: Contract) -> str:
    """Returns a magic line whose `--grid`, `--block` and `--shared` have the contract's values where these changed."""
    launches = (
        ("grid", ",".join(contract.grid), ",".join(before.grid)),
        ("block", ",".join(contract.block), ",".join(before.block)),
        ("shared", contract.shared, before.shared),
    )
    for name, value, old in launches:
        if value != old:
            said = quoted(value) if re.search(r"\s", value) else value
            line = f"{without_option(line, name).rstrip()} --{name} {said}"
    return line


def without_option(line: str, name: str) -> str:
    """Returns a magic line without an option and its value."""
    return re.sub(rf"""(?<!\S)--{name}(?:\s+|=)(?:"(?:[^"\\]|\\.)*"|'[^']*'|\S+)\s*""", "", line)


class CellWriter:
    """Writes text into cells of this kernel's notebook.

    Args:
        shell: IPython's shell.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._comm: Any = None
        self._listens = False

    def connect(self) -> None:
        """Opens the comm to the front end; does nothing outside a Jupyter kernel."""
        if not hasattr(self._shell, "kernel"):
            return
        from comm import create_comm

        self._comm = create_comm(target_name=TARGET)
        self._comm.on_msg(lambda _: self._heard(listens=True))
        self._comm.on_close(lambda _: self._heard(listens=False))

    def _heard(self, *, listens: bool) -> None:
        self._listens = listens

    def write(self, cell: str | None, text: str, place: Place, *, running: bool) -> str:
        """Writes a version's text, and returns a sentence on where it is.

        Args:
            cell: identifier of the cell that defined the kernel; None if the front end gave none.
            text: the whole cell.
            place: the place to write to.
            running: True while a cell runs; without the extension, only then can the next cell be created.
        """
        if place == "nowhere":
            return ""
        if self._listens and cell is not None:
            self._comm.send({"cell": cell, "text": text, "below": place == "below"})
            if place == "below":
                return "Its text is in a new cell below the kernel's."
            return "Its text is in its cell, where the editor's undo has the one before."
        if running:
            self._shell.set_next_input(text)
            return "Its text is in the next cell."
        return ""


def running_cell(shell: Any) -> str | None:
    """Returns the identifier of the running cell; None if the front end does not send it."""
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    found = (parent.get("metadata") or {}).get("cellId") if isinstance(parent, dict) else None
    return found if isinstance(found, str) else None
