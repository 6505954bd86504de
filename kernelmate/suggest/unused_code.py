"""Removal of helpers and constants that only a replaced kernel used, and of the comments above them."""

from __future__ import annotations

import re

from kernelmate.records import Kernel
from kernelmate.source import apply_edits
from kernelmate.suggest.pieces import (
    INCLUDED,
    NAMESPACES,
    launch_numbers,
    names_of,
    own_headers,
    own_helpers,
    pieces_of,
    without_kernel,
)
from kernelmate.suggest.syntax import Edit
from kernelmate.synthesis.names import without_comments

_FLOATING = re.compile(r"\s*(?:static )?const(?:expr)? (?:float|double)\b")
"""Declarations of floating-point constants."""


def without_own_helpers(kernel: Kernel) -> Kernel:
    """Returns the file without code that only the kernel uses.

    The new kernel defines its own helpers, which may have the same names.
    """
    own = {name: one for name, one in _own(kernel).items() if not _FLOATING.match(one[2])}  # a new kernel may name them
    named = [name for name in own if _uses(kernel.source, name)]
    while more := [name for name in own if name not in named and any(_uses(own[one][2], name) for one in named)]:
        named += more
    return _without(kernel, [own[name][:2] for name in named if not _in_launches(kernel, name)])


def without_unused_numbers(old: Kernel, new: Kernel) -> Kernel:
    """Returns the changed file without constants that only launches used and that are now unused."""
    before = _own(old)
    return _without(
        new,
        [
            (start, end)
            for name, (start, end, text) in _own(new).items()
            if name in before and before[name][2] == text and len(re.findall(rf"\b{name}\b", new.unit.text)) == 1
        ],
    )


def without_unused_headers(old: Kernel, new: Kernel) -> Kernel:
    """Returns the changed file without headers of numeric limits that only the old kernel used."""
    unit = new.unit
    if unit.language == "python" or unit.path.endswith(INCLUDED):
        return new
    own = own_headers(list(pieces_of(without_kernel(old), NAMESPACES)))
    headers = {"".join(words[3:-1]): names for words, names in own.items()}
    edits: list[Edit] = []
    for line in re.finditer(r"^#[ \t]*include[ \t]*<([\w.]+)>[^\n]*\n", unit.text, re.MULTILINE):
        names = headers.get(line[1])
        if (
            names is not None
            and names.search(without_comments(old.unit.text))
            and not names.search(without_comments(new.unit.text))
        ):
            alone = unit.text[: line.start()].endswith("\n\n") and unit.text[line.end() :].startswith("\n")
            edits.append((line.start(), line.end() + alone, ""))
    return apply_edits(new, edits) if edits else new


def _own(kernel: Kernel) -> dict[str, tuple[int, int, str]]:
    """Returns the parts that only the kernel or a launch uses, by name: offsets and text.

    The result is empty for a Python file and for a header.
    """
    unit = kernel.unit
    if unit.language == "python" or unit.path.endswith(INCLUDED):
        return {}
    text = unit.text
    for start, end in filter(None, [(kernel.start, kernel.end), kernel.contract_span]):
        blank = re.sub(r"[^\n]", " ", text[start:end])
        text = text[:start] + (";" + blank[1:] if start == kernel.start else blank) + text[end:]
    pieces = list(pieces_of(text, NAMESPACES, launch_numbers(text)))
    own, raw = own_helpers(pieces), text.encode("utf-8", "surrogatepass")
    found = {}
    for piece in pieces:
        if piece.words in own:
            ends = (piece.node.start_byte, piece.node.end_byte)
            start, end = (len(raw[:offset].decode("utf-8", "surrogatepass")) for offset in ends)
            found[next(iter(names_of(piece.node)))[1]] = start, end, piece.text
    return found


def _uses(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _in_launches(kernel: Kernel, name: str) -> bool:
    """Returns True if launches in the file use the name, so that its value may change later."""
    return any(_uses(launch, name) for launch in re.findall(r"<<<.*?>>>|\bdim3\b[^;]*;", kernel.unit.text, re.DOTALL))


def _without(kernel: Kernel, spans: list[tuple[int, int]]) -> Kernel:
    text = kernel.unit.text
    edits: list[Edit] = []
    for start, end in spans:
        line = text.rfind("\n", 0, start) + 1
        if text[line:start].strip():
            continue
        first = line
        while first > 0 and re.match(r"\s*//", text[(above := text.rfind("\n", 0, first - 1) + 1) : first]):
            first = above
        header = not text[:first].strip()
        first = line if header else first  # a comment at the top is the file's
        after = text.find("\n", end) + 1 or len(text)
        if text[end:after].strip() and not text[end:after].lstrip().startswith("//"):
            continue
        if text[after : after + 1] == "\n" and (header or text[max(first - 2, 0) : first] == "\n\n"):
            after += 1
        edits.append((first, after, ""))
    return apply_edits(kernel, edits) if edits else kernel
