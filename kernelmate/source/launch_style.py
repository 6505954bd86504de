"""Lays changed launches out in the style of their file: wrapped at its width, arguments aligned."""

from __future__ import annotations

import re

from kernelmate.records import Kernel
from kernelmate.source.folding import filled, width_of
from kernelmate.source.launches import ParsedLaunch, find_launches
from kernelmate.source.rewrite import Edit, edited_text, same_kernel, with_text

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def with_launches_in_style(old: Kernel, new: Kernel) -> Kernel:
    """Returns the kernel with changed launches wrapped to the file's width, continuation lines below the first argument."""
    text = in_style(old.unit.text, new.unit.text)
    return new if text == new.unit.text else same_kernel(new, with_text(new.unit, text))


def in_style(before: str, after: str) -> str:
    """Returns a changed text with its changed launches wrapped and aligned as in the text before."""
    return _with_wrapped_launches(before, _with_aligned_arguments(before, after))


def _with_wrapped_launches(was: str, text: str) -> str:
    """Breaks changed launches that have a line beyond the file's width as clang-format does."""
    width = width_of(was)
    edits: list[Edit] = []
    for before, after in zip(find_launches(was), find_launches(text), strict=False):
        line = text.rfind("\n", 0, after.start) + 1
        end = text.find("\n", after.end) if "\n" in text[after.end :] else len(text)
        longest = max(map(len, text[line:end].split("\n")))
        changed = was[before.start : before.end] != text[after.start : after.end]
        alone = not text[line : after.start].strip() and not text[:line].endswith("\\\n")  # macros stay in one line
        if (
            not changed
            or not alone
            or longest <= width
            or not after.arguments
            or COMMENT.search(text[after.start : after.end])
        ):
            continue
        edits.append(
            (after.start, after.end, _wrapped_launch(text, after, width - len(text[after.end : end].rstrip())))
        )
    return edited_text(text, edits, "")


def _wrapped_launch(text: str, launch: ParsedLaunch, width: int) -> str:
    """Returns a launch over several lines: its configuration below its first side, its arguments below the first."""
    configuration, arguments = (
        [" ".join(text[start:end].split()) for start, end in spans]
        for spans in (launch.configuration, launch.arguments)
    )
    head = text[launch.start : launch.configuration[0][0]]
    last = head.rpartition("\n")[2]  # the configuration may begin on a line of its own
    column = len(last) + (0 if "\n" in head else _column(text, launch.start))
    head += filled(configuration, column, width, ">>>(")
    lead = "" if "\n" in head else " " * _column(text, launch.start)
    column = len(f"{lead}{head}".rpartition("\n")[2])
    indent = re.match(r"[ \t]*", text[text.rfind("\n", 0, launch.start) + 1 :])
    deeper = (indent[0] if indent is not None else "") + ("\t" if indent is not None and "\t" in indent[0] else "    ")
    beside, below = (filled(arguments, one, width, ")") for one in (column, len(deeper)))
    more = beside.count("\n") - below.count("\n") - 1
    fits = column + max(map(len, arguments)) < width and (more < 0 or (more == 0 and 3 * column <= 2 * width))
    return head + beside if fits else f"{head}\n{deeper}{below}"


def _with_aligned_arguments(was: str, text: str) -> str:
    """Re-indents continuation lines of changed launches that were aligned with the first argument."""
    edits: list[Edit] = []
    for before, after in zip(find_launches(was), find_launches(text), strict=False):
        if not before.arguments or not after.arguments:
            continue
        columns = [_column(was, before.arguments[0][0]), _column(text, after.arguments[0][0])]
        shift, place = columns[1] - columns[0], after.arguments[0][0]
        while shift and (place := text.find("\n", place, after.end)) >= 0 and (place := place + 1):
            indent = re.match(r" *", text[place:])
            width = 0 if indent is None else indent.end()
            if width == columns[0]:
                edits.append((place, place + width, " " * (width + shift)))
    return edited_text(text, edits, "")


def _column(text: str, offset: int) -> int:
    return offset - (text.rfind("\n", 0, offset) + 1)


def limit_name(host: str) -> str:
    """Returns the name for the largest number of blocks of a launch, in the case of a host function's other names."""
    words = {*re.findall(r"\b(?!cuda|block|grid|thread)[a-z]\w*\b(?! *[(<])", host)}
    camel, snake = (sum(re.search(case, one) is not None for one in words) for case in (r"[a-z][A-Z]", r"[a-z]_(?!t\b)[a-z]"))  # fmt: skip
    return "maxBlocks" if camel > snake else "max_blocks"
