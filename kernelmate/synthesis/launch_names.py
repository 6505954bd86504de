"""Names that a file gives to constants of a kernel and of its launches."""

from __future__ import annotations

import re

import numpy as np

from kernelmate.records import Kernel
from kernelmate.source.folding import folded
from kernelmate.synthesis.names import without_comments

_GIVEN = re.compile(r"\bconst(?:expr)? (?:float|double) (\w+) = (-?[\d.]+(?:e-?\d+)?)f?;")
_PLAIN = frozenset({0.0, 0.5, 1.0, 2.0, 3.0, 4.0, -1.0})
"""Numbers that are always written as literals, even if a constant has their value."""


def has_own_block(kernel: Kernel) -> bool:
    """Returns True if all launches use one constant above the kernel as block size, and nothing else uses that."""
    text = kernel.unit.text
    names = {text[slice(*site.block_span)].strip() for site in kernel.launches}
    name = names.pop() if len(names) == 1 else ""
    head = rf"^(?:static )?const(?:expr)? (?:int|unsigned|unsigned int) {name} = \d+;"
    given = list(re.finditer(head, text, re.MULTILINE)) if name.isidentifier() else []
    if len(given) != 1 or given[0].end() > kernel.start:
        return False
    blank = text
    for start, end in [given[0].span(), (kernel.start, kernel.end), *(site.block_span for site in kernel.launches)]:
        blank = blank[:start] + re.sub(r"[^\n]", " ", blank[start:end]) + blank[end:]
    return re.search(rf"\b{name}\b", without_comments(blank)) is None


def file_constant(kernel: Kernel, value: str, word: str) -> str | None:
    """Returns the file-level integer constant with a value above a kernel, whose name contains one of some words.

    `word` is a regular expression of alternatives.
    """
    text = without_comments(kernel.unit.text[: kernel.start])
    head = r"^(?:static )?const(?:expr)? (?:int|unsigned|unsigned int|uint32_t|size_t)"
    own = re.search(rf"{head} (\w*(?:{word})\w*) = {value}u?;", text, re.MULTILINE | re.IGNORECASE)
    return None if own is None else own[1]


def named_numbers(kernel: Kernel, real: str) -> dict[float, str]:
    """Returns texts of floating numbers, by value: constants that the kernel uses, or 1 minus one of them."""
    text = without_comments(kernel.unit.text)
    used = {one.rpartition("::")[2]: one for one in re.findall(r"[A-Za-z_][\w:]*", without_comments(kernel.source))}
    given = [(used[found[1]], float(found[2])) for found in _GIVEN.finditer(text) if found[1] in used]
    single = real == "float"
    exact = (lambda value: float(np.float32(value))) if single else float
    found: dict[float, str] = {}
    for name, value in given:
        if sum(other == name for other, _ in given) == 1 and value not in _PLAIN:
            value = exact(value)
            found.setdefault(exact(1.0 - value), f"({'1.0f' if single else '1.0'} - {name})")
            found[value] = name
    return {value: name for value, name in found.items() if value not in _PLAIN}


def with_warp_names(kernel: Kernel, definition: str, helpers: str, width: int) -> tuple[str, str]:
    """Return a generated kernel and its helpers with named constants for the warp size and the full lane mask.

    The file's own constants are used if it has them, else new ones are declared above the helpers.
    """
    if not re.search(r"0xffffffffu|threadIdx\.x [%/] 32\b", definition + helpers):
        return definition, helpers
    declared: list[str] = []
    for value, wanted, head, patterns in _WARP:
        own = file_constant(kernel, value, "warp|mask|lane")
        name = own or wanted
        if own is None and re.search(rf"\b{name}\b", kernel.unit.text):
            continue
        before = definition, helpers
        definition, helpers = (_renamed(one, patterns, name, width) for one in before)
        if own is None and (definition, helpers) != before:
            declared.append(f"{head} {name} = {value}{'u' if 'unsigned' in head else ''};")
    if not declared:
        return definition, helpers
    gap = "\n" if helpers.startswith("constexpr") else "\n\n" if helpers else ""
    return definition, "\n".join(declared) + gap + helpers


def _renamed(text: str, patterns: tuple[tuple[str, str], ...], name: str, width: int) -> str:
    lines: list[str] = []
    for line in text.split("\n"):
        new = line
        for pattern, instead in patterns:
            new = re.sub(pattern, instead.replace("@", name), new)
        lines += [line] if new == line else folded(new, width)
    return "\n".join(lines)


_WARP = (
    (
        "32",
        "kWarpSize",
        "constexpr int",
        (
            (r"(threadIdx\.x [%/]|\bk\w+ /) 32\b", r"\1 @"),
            (r"\+= 32\b", "+= @"),
            (r"(\(i\w* \*|int \w+ =) 32\b(?= \* k|.*\b(?:lane|tid)\b)", r"\1 @"),
            (r"\b(offset\w*) = 16; \1 >", r"\1 = @ / 2; \1 >"),
            (r"\b(offset\w*) < 32;", r"\1 < @;"),
            (r"(\blane\w* ==) 31\b", r"\1 @ - 1"),
            (r"(% @ ==|_sync\(0xffffffffu, \w+,) 31\b".replace("@", r"\w+"), r"\1 @ - 1"),
        ),
    ),
    ("0xffffffff", "kAllLanes", "constexpr unsigned int", ((r"\b0xffffffffu", "@"),)),
)
"""For the warp size and the full lane mask: value, usual name, declaration, and patterns of uses."""
