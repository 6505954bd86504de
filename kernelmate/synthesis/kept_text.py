"""Text of the user's file that a generated kernel keeps.

These are names of constants of a kernel and of its launches, and comments in its parameter list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kernelmate.records import Contract, Kernel
from kernelmate.source.folding import folded
from kernelmate.synthesis.names import without_comments

_GIVEN = re.compile(
    r"(?:\bconst(?:expr)? (?:float|double) (?=\w+ = [^;]*;)|^#[ \t]*define[ \t]+(?=[^\n]*[.eE]))(\w+)(?: = |[ \t]+)"
    r"\(?(-?[\d.]+(?:[eE][-+]?\d+)?)[fF]?\)?(?:;|[ \t]*$)",
    re.MULTILINE,
)
"""Declarations of floating-point constants, and macros with floating-point numbers."""
_PLAIN = frozenset({0.0, 0.5, 1.0, 2.0, 3.0, 4.0, -1.0})
"""Numbers that are always written as literals, even if a constant has their value."""


def own_position(source: str, letter: str) -> str:
    """Returns the baseline's name for a thread's position along a side of the grid, x, y or z; empty if it has none."""
    return _of_thread(source, letter) or _of_block(source, letter)


def _of_block(source: str, letter: str) -> str:
    """Returns the baseline's name for the number of a block along a side of the grid."""
    found = re.search(rf"\b(\w+) = {_BLOCK_INDEX.format(letter)}[;,]", source)
    return "" if found is None else found[1]


def _of_thread(source: str, letter: str) -> str:
    """Returns the baseline's name for the number of a thread along a side of the grid."""
    index, block, thread = _BLOCK_INDEX.format(letter), rf"(?:blockDim\.{letter}|\w+)", rf"threadIdx\.{letter}"
    start = rf"(?:{index} \* {block}|{block} \* {index})"
    found = re.search(rf"\b(\w+) = (?:{start} \+ {thread}|{thread} \+ {start})[;,]", source)
    return "" if found is None else found[1]


_BLOCK_INDEX = r"(?:static_cast<[\w ]+>\(blockIdx\.{0}\)|(?:\([\w ]+\))?blockIdx\.{0})"
"""The number of a block along a side of the grid, which may be cast."""

_NUMBERING = frozenset(
    {"bid", "blk", "block", "block_id", "blockId", "gid", "idx", "index", "tid", "thread", "thread_id"}
)
"""Names of positions that say nothing of what they count."""


def own_column(source: str) -> str:
    """Returns the baseline's name for a thread's column, if that is a usual one, such as `col`; else `column`."""
    found = re.search(r"\b(col|c) = [^;]*\bthreadIdx\.x\b", without_comments(source))
    return "column" if found is None else found[1]


def own_row(source: str, rows: str, grid: Sequence[str]) -> str:
    """Returns the baseline's name for the row that a block or a thread computes; empty if no name denotes a row.

    Args:
        source: the baseline's text.
        rows: the number of rows, by its C++ name.
        grid: the baseline's grid.
    """
    name = _of_block(source, "x") if tuple(grid) == (rows,) else ""
    if not name:
        name = _of_thread(source, "x")
        name = name if re.search(rf"\b{name} (?:>=|<) {rows}\b", source) else ""
    if not name:  # as of a warp for each row
        tested = re.findall(rf"\b(\w+) (?:>=|<) {rows}\b", source)
        name = next((one for one in tested if re.search(rf"\b{one} = [^;]*\bblockIdx\.x\b", source)), "")
    return name if len(name) > 2 and name not in _NUMBERING else ""


def own_subscript(source: str, array: str) -> str:
    """Returns the baseline's name for a position in an array: its only subscript, if that is a name; else empty."""
    names = {*re.findall(rf"\b{array}\[([^\[\]]+)\]", without_comments(source))}
    name = names.pop() if len(names) == 1 else ""
    return name if re.fullmatch(r"[A-Za-z]\w*", name) and name not in _NUMBERING else ""


def own_block(contract: Contract, usual: int) -> int:
    """Returns the baseline's threads per block if they suit any kernel whose threads are independent, else `usual`."""
    side, *others = contract.block
    own = int(side) if side.isdigit() and not others else 0
    return own if own % 32 == 0 and usual // 2 <= own <= 2 * usual else usual


def in_own_order(contract: Contract, sides: Sequence[str]) -> list[str]:
    """Returns the factors of a product in the order in which the baseline's grid has them."""
    for side in contract.grid:
        product = re.match(r"cdiv\((\w+(?: \* \w+)+), ", side)
        if product is not None and sorted(product[1].split(" * ")) == sorted(sides):
            return product[1].split(" * ")
    return list(sides)


def has_own_block(kernel: Kernel) -> bool:
    """Returns True if all launches use one unsigned constant above the kernel as block size that has no other use."""
    text = kernel.unit.text
    names = {text[slice(*site.block_span)].strip() for site in kernel.launches}
    name = names.pop() if len(names) == 1 else ""
    head = rf"^(?:static )?const(?:expr)? unsigned(?: int)? {name} = \d+;"
    given = list(re.finditer(head, text, re.MULTILINE)) if name.isidentifier() else []
    if len(given) != 1 or given[0].end() > kernel.start:
        return False
    blank = text
    for start, end in [given[0].span(), (kernel.start, kernel.end), *(site.block_span for site in kernel.launches)]:
        blank = blank[:start] + re.sub(r"[^\n]", " ", blank[start:end]) + blank[end:]
    return re.search(rf"\b{name}\b", without_comments(blank)) is None


def file_constant(kernel: Kernel, value: str, word: str) -> str | None:
    """Returns the name of a file-level integer constant above a kernel with a value, if the name contains one of some words.

    `word` is a regular expression of alternatives.
    """
    text = without_comments(kernel.unit.text[: kernel.start])
    head = r"^(?:static )?const(?:expr)? (?:int|unsigned|unsigned int|uint32_t|size_t)"
    name = rf"(\w*(?:{word})\w*)"
    own = re.search(
        rf"{head} {name} = {value}u?;|^#[ \t]*define[ \t]+{name}[ \t]+\(?{value}u?\)?[ \t]*$",
        text,
        re.MULTILINE | re.IGNORECASE,
    )
    return None if own is None else own[own.lastindex or 1]


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


def with_own_locals(kernel: Kernel, definition: str, helpers: str) -> str:
    """Returns a generated kernel whose constant sizes have the names and values that the replaced one gave them.

    A size that is `width / POOL_SIZE` there is declared so here; further places with its value have its name.
    """
    source, file = without_comments(kernel.source), without_comments(kernel.unit.text)
    macros = dict(re.findall(r"^#[ \t]*define[ \t]+(\w+)[ \t]+\(?(\d+)\)?[ \t]*$", file, re.MULTILINE))
    own: dict[str, tuple[str, str]] = {}
    for name, value in re.findall(r"\b(?:int|size_t|\w+_t|auto) (\w+) = (\w+ / \w+);", source):
        plain = re.sub(r"\w+", lambda word: macros.get(word[0], word[0]), value)
        own.setdefault(plain, (name, value))
    for found in re.finditer(r"^[ \t]+const \w+ (\w+) = (\w+ / \d+);$", definition, re.MULTILINE):
        name, value = own.get(found[2], ("", ""))
        if not name or (name != found[1] and re.search(rf"\b{name}\b", definition + helpers)):
            continue
        head, declared, rest = definition.partition(found[0])
        if re.search(rf"\b{found[1]}\b", head):
            continue
        rest = re.sub(rf"\b{found[1]}\b", name, rest)
        rest = re.sub(rf"\({re.escape(found[2])}\)", name, rest)
        definition = head + declared.replace(f"{found[1]} = {found[2]}", f"{name} = {value}") + rest
    return definition


_POINTER = re.compile(r"\*[ \t]*(?:const )?(\w+) = &?(\w+)(?: \+ |\[)([^;]*);")


def with_own_rows(kernel: Kernel, definition: str, helpers: str) -> tuple[str, str]:
    """Returns a generated kernel and its helpers whose pointers to rows have the names that the replaced kernel gave them."""
    words = {
        *re.findall(r"\w+", without_comments(definition + helpers)),
        *(one.name for one in kernel.signature.parameters),
    }
    own: dict[str, list[str]] = {}
    for name, array, offset in _POINTER.findall(without_comments(kernel.source)):
        own.setdefault(array, []).extend([name] * ("threadIdx" not in offset))
    declared = {found[0] for found in _POINTER.findall(definition + helpers)}
    for array, names in own.items():
        row = f"{array}_row"
        if row in declared and len(names) == 1 and len(names[0]) > 1 and names[0] not in words:
            definition, helpers = (re.sub(rf"\b{row}\b", names[0], one) for one in (definition, helpers))
            words.add(names[0])
    return definition, helpers


def with_warp_names(kernel: Kernel, definition: str, helpers: str, width: int) -> tuple[str, str]:
    """Returns a generated kernel and its helpers with named constants for the warp size and the full lane mask.

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


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(slots=True)
class ParameterNotes:
    """Comments of one parameter: those on separate lines above it, and the one after it."""

    above: list[str] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)


def parameter_notes(source: str, names: Sequence[str]) -> list[ParameterNotes]:
    """Returns the comments of each parameter; empty if there are none, or if the list cannot be parsed.

    Args:
        source: the text that follows the list's opening parenthesis.
        names: the names of the parameters, in order.
    """
    plain = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)
    end = _closing(plain)
    places, start = [], 0
    for name in names:
        found = re.compile(rf"\b{re.escape(name)}\b(?=[^\w]*?(?:,|\)))").search(plain, start, end + 1)
        if found is None:
            return []
        places.append(found.start())
        start = found.end()
    notes = [ParameterNotes() for _ in names]
    for comment in _COMMENT.finditer(source, 0, end):
        line = source.rfind("\n", 0, comment.start()) + 1
        before = [number for number, place in enumerate(places) if line <= place < comment.start()]
        following = [number for number, place in enumerate(places) if place > comment.start()]
        if before or not following:
            notes[before[-1] if before else -1].behind.append(comment[0].rstrip())
        elif "\n" in source[comment.end() : places[following[0]]]:
            notes[following[0]].above.append(comment[0].rstrip())
        else:
            notes[following[0]].behind.append(comment[0].rstrip())
    return notes if any(one.above or one.behind for one in notes) else []


def noted_parameters(front: str, parts: Sequence[str], notes: Sequence[ParameterNotes]) -> str:
    """Returns a function's head with one parameter per line, and the comments after them aligned."""
    indent = " " * (len(front) - front.rfind("\n") - 1)
    codes = [f"{part}{',' if number + 1 < len(parts) else ')'}" for number, part in enumerate(parts)]
    column = max((len(code) for code, note in zip(codes, notes, strict=True) if note.behind), default=0)
    lines: list[str] = []
    for code, note in zip(codes, notes, strict=True):
        lines += [f"{indent}{one}" for one in note.above]
        lines.append(f"{indent}{code.ljust(column)}  {' '.join(note.behind)}" if note.behind else f"{indent}{code}")
    if notes[0].above:
        return f"{front}\n" + "\n".join(lines)
    return front + "\n".join(lines)[len(indent) :]


def own_list(front: str, parts: Sequence[str], names: Sequence[str], source: str) -> str:
    """Returns a function's head with the layout of a list that has comments, or each parameter on a line of its own.

    The result is empty for another list.

    Args:
        front: the head up to its opening parenthesis.
        parts: the parameters, as they are declared now.
        names: their names.
        source: the text that follows the opening parenthesis of the list.
    """
    if notes := parameter_notes(source, names):
        bare = len(names) - next((at for at, one in enumerate(reversed(notes)) if one.above or one.behind), 0)
        last = source[: _closing(_COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source))].rpartition("\n")[
            2
        ]
        if len(names) - bare > 1 and all(re.search(rf"\b{one}\b", last) for one in names[bare:]):
            parts, notes = [*parts[:bare], ", ".join(parts[bare:])], notes[: bare + 1]
        return noted_parameters(front, parts, notes)
    lines = source[: _closing(source)].rstrip().split("\n")
    below = not lines[0].strip()
    lines = lines[below:]
    if len(parts) < 2 or len(lines) != len(parts) or any("," in one.rstrip().removesuffix(",") for one in lines):
        return ""
    if not below:
        return noted_parameters(front, parts, [ParameterNotes() for _ in parts])
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    return f"{front}\n{indent}" + f",\n{indent}".join(parts) + ")"


def _closing(plain: str) -> int:
    """Returns the offset of the list's closing parenthesis in a text without comments."""
    depth = 0
    for place, letter in enumerate(plain):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return place
    return len(plain)
