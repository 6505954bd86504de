"""Launches of a kernel in other files of its project, which follow a candidate's launch."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelmate.errors import KernelmateError
from kernelmate.records import Contract, FileChange, Kernel
from kernelmate.source.host_text import project_texts
from kernelmate.source.launch_edits import change_launches_in
from kernelmate.source.launches import find_launches
from kernelmate.source.line_ends import normal_text, restored


@dataclass(frozen=True, slots=True)
class LaunchingFile:
    """A file that launches a kernel of another file.

    Attributes:
        path: the file.
        lines: lines of its launches, from 1.
    """

    path: Path
    lines: tuple[int, ...]

    @property
    def places(self) -> tuple[str, ...]:
        """The launches' places: `main.cu:19`."""
        return tuple(f"{self.path.name}:{line}" for line in self.lines)


def launching_files(kernel: Kernel) -> tuple[LaunchingFile, ...]:
    """Returns the other files of a kernel's project that launch it by `<<<...>>>`.

    Files with a kernel of their own of this name are left out. Empty for a kernel that is not in a file.
    """
    path, simple = Path(kernel.unit.path), kernel.name.rpartition("::")[2]
    if not path.is_file():
        return ()
    own = re.compile(rf"__global__[^;{{}}()]*(?:\([^()]*\)[^;{{}}()]*)?\b{re.escape(simple)}\s*\([^;{{]*\{{")
    found = []
    for file, text in project_texts(path):
        if simple in text and "<<" in text and own.search(text) is None:
            lines = _lines(text, simple)
            found += [LaunchingFile(file, lines)] if lines else []
    return tuple(found)


def _lines(text: str, simple: str) -> tuple[int, ...]:
    launches = (one for one in find_launches(text) if one.name.rpartition("::")[2] == simple)
    return tuple(text.count("\n", 0, one.start) + 1 for one in launches)


def read_file(path: Path) -> str:
    """Returns a file's text with its own line ends.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is not UTF-8.
    """
    return path.read_bytes().decode("utf-8")


def following_changes(
    kernel: Kernel,
    files: Sequence[LaunchingFile],
    old: Contract,
    new: Contract,
    read: Callable[[Path], str] = read_file,
) -> tuple[tuple[FileChange, ...], tuple[str, ...]]:
    """Returns the changes by which launches in other files follow a contract, and the places of those that cannot.

    Args:
        kernel: the kernel as it was.
        files: the files that launch it.
        old: its contract.
        new: the candidate's contract.
        read: returns a file's present text; an editor has texts that are not saved.
    """
    changes, left = list[FileChange](), list[str]()
    if (old.grid, old.block, old.shared) == (new.grid, new.block, new.shared):
        return (), ()
    for file in files:
        try:
            before = read(file.path)
            text = normal_text(before)
            changed = change_launches_in(text, str(file.path), kernel, old, new)
        except (KernelmateError, OSError, UnicodeDecodeError):
            left += file.places
            continue
        if changed == text:  # sides that follow by the names of a shared header, or that only a person can change
            left += file.places
            continue
        lines = _lines(text, kernel.name.rpartition("::")[2])
        changes.append(FileChange(str(file.path), before, restored(before, changed), lines))
    return tuple(changes), tuple(left)
