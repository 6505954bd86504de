"""Launches of a kernel in other files of its project, which follow a candidate's launch."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelmate.errors import KernelmateError
from kernelmate.records import Contract, FileChange, Kernel
from kernelmate.source.host_text import project_texts
from kernelmate.source.launch_edits import change_launches_in
from kernelmate.source.launches import ParsedLaunch, find_launches
from kernelmate.source.line_ends import normal_text, restored


@dataclass(frozen=True, slots=True)
class LaunchingFile:
    """A file that launches a kernel of another file.

    Attributes:
        path: the file.
        lines: lines of its launches, from 1.
        sure: True if it can mean no other kernel of this name: the project has none, or the file includes this kernel's.
    """

    path: Path
    lines: tuple[int, ...]
    sure: bool = True

    @property
    def places(self) -> tuple[str, ...]:
        """The launches' positions: `main.cu:19`."""
        return tuple(f"{self.path.name}:{line}" for line in self.lines)


def launching_files(kernel: Kernel) -> tuple[LaunchingFile, ...]:
    """Returns the other files of a kernel's project that launch it by `<<<...>>>`.

    Files with a kernel of their own of this name are left out. Empty for a kernel that is not in a file.
    """
    path, simple = Path(kernel.unit.path), kernel.name.rpartition("::")[2]
    if not path.is_file():
        return ()
    own = re.compile(rf"__global__[^;{{}}()]*(?:\([^()]*\)[^;{{}}()]*)?\b{re.escape(simple)}\s*\([^;{{]*\{{")
    included = re.compile(rf'#[ \t]*include[ \t]*[<"](?:[^">\n]*/)?{re.escape(path.name)}[">]')
    found, alone = list[LaunchingFile](), True
    for file, text in project_texts(path):
        if simple not in text:
            continue
        if own.search(text) is not None:
            alone = False
        elif "<<" in text and (lines := _lines(text, simple)):
            found.append(LaunchingFile(file, lines, included.search(text) is not None))
    return tuple(replace(one, sure=one.sure or alone) for one in found)


def _launches(text: str, simple: str) -> list[ParsedLaunch]:
    return [one for one in find_launches(text) if one.name.rpartition("::")[2] == simple]


def _lines(text: str, simple: str) -> tuple[int, ...]:
    return tuple(text.count("\n", 0, one.start) + 1 for one in _launches(text, simple))


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
    simple, taken = kernel.name.rpartition("::")[2], len(kernel.signature.parameters)
    if (old.grid, old.block, old.shared) == (new.grid, new.block, new.shared):
        return (), ()
    for file in files:
        try:
            before = read(file.path)
            text = normal_text(before)
            like = file.sure and all(len(one.arguments) == taken for one in _launches(text, simple))
            changed = change_launches_in(text, str(file.path), kernel, old, new) if like else text
        except (KernelmateError, OSError, UnicodeDecodeError):
            left += file.places
            continue
        if changed == text:  # another kernel's, perhaps, or sides that follow by the names of a shared header
            left += file.places
            continue
        changes.append(FileChange(str(file.path), before, restored(before, changed), _lines(text, simple)))
    return tuple(changes), tuple(left)
