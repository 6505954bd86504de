"""Last touches on a rewrite before it is offered to a person: names of the field, heads that fit, no block without a head.

Local models choose among the rewrites as the recipes write them, so these touches are not part of the recipes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from kernelmate.records import Candidate, Kernel
from kernelmate.source import apply_edits
from kernelmate.source.folding import folded, width_of, wrapped
from kernelmate.suggest.recipes.tidy import changed_lines
from kernelmate.synthesis.file_style import FileStyle, closing_bracket, in_case, parts_of
from kernelmate.synthesis.names import without_comments, words_of

_PLAIN = {"taken": "count", "shifted": "shifted_sum", "shifted2": "shifted_squares"}
"""Names of sums in new code, by those that a recipe gives them."""

_COMPARED = re.compile(r"((?<!<)<|(?<!>)>|<=|>=|==) \((\w+(?: \* \w+)+)\)(?= (?:&&|\|\|)|\)| \?|;)")
_LOCAL = re.compile(
    r"^\s*(?:const )?(?:unsigned )?(?:int|float|double|size_t|bool|auto|long|half|__half)\b[*& ]+(\w+)(?= =|[;\[])"
)


def readable(old: Kernel, candidate: Candidate) -> Candidate:
    """Returns a rewrite of a kernel with its new lines as a person would leave them."""
    kernel = candidate.kernel
    if kernel.unit.language != "cuda":
        return candidate
    touches = (_with_plain_names, _without_parentheses, _with_own_literals, _with_bodies, _with_wrapped_head)
    for touch in (*touches, _without_bare_blocks):
        kernel = touch(old, kernel)
    return candidate if kernel is candidate.kernel else replace(candidate, kernel=kernel)


def _with_plain_names(old: Kernel, new: Kernel) -> Kernel:
    """Returns the kernel whose new locals have the field's names, if those are free."""
    was, words = (words_of(without_comments(one.unit.text)) for one in (old, new))
    style = FileStyle.of(old)
    names = {name: in_case(plain, "camel") if style.camel else plain for name, plain in _PLAIN.items()}
    names = {name: plain for name, plain in names.items() if name in words - was and plain not in words}
    if not names:
        return new
    lines = new.unit.text.split("\n")
    for number in changed_lines(old.unit.text, new.unit.text):
        code, mark, comment = lines[number].partition("//")
        lines[number] = re.sub(r"\b\w+\b", lambda word: names.get(word[0], word[0]), code) + mark + comment
    return _with_text(new, lines)


def _without_parentheses(old: Kernel, new: Kernel) -> Kernel:
    """Returns the kernel whose new comparisons have no parentheses around a product, which binds tighter."""
    lines = new.unit.text.split("\n")
    for number in changed_lines(old.unit.text, new.unit.text):
        lines[number] = _COMPARED.sub(r"\1 \2", lines[number])
    return _with_text(new, lines)


def _with_own_literals(old: Kernel, new: Kernel) -> Kernel:
    """Returns the kernel whose new lines have casts of addresses and zeros of floats as the file has them."""
    text, style = without_comments(old.unit.text), FileStyle.of(old)
    zero = re.search(r"(?<![\w.])0\.0?f\b", text)
    pointers = {*re.findall(r"\*[ \t]*(?:__restrict__ )?(\w+)(?=[,)]| =)", without_comments(new.source))}
    lines = new.unit.text.split("\n")
    for number in sorted(changed_lines(old.unit.text, new.unit.text), reverse=True):
        line = lines[number]
        if zero is not None and re.match(r"\s*float \w+ = 0[,;]", line):
            lines[number] = re.sub(r"(?<= = )0(?=[,;])", zero[0], line)
        cast = re.compile(rf"\(size_t\)({'|'.join(pointers)})\b(?![\[(.])") if pointers else None
        if style.c_casts or "_cast<" not in text or cast is None or cast.search(line) is None:
            continue
        lines[number] = cast.sub(r"reinterpret_cast<size_t>(\1)", line)
        if len(lines[number]) > style.width:
            first, last = _statement(lines, number)
            joined = " ".join([lines[first], *(one.strip() for one in lines[first + 1 : last + 1])])
            lines[first : last + 1] = folded(joined, style.width)
    return _with_text(new, lines)


def _statement(lines: Sequence[str], number: int) -> tuple[int, int]:
    """Returns the numbers of the first and the last line of the statement that a line belongs to."""
    first = last = number
    while first and not lines[first - 1].rstrip().endswith((";", "{", "}")) and "//" not in lines[first - 1]:
        first -= 1
    while last + 1 < len(lines) and not lines[last].rstrip().endswith((";", "{")):
        last += 1
    return first, last


_HEAD = re.compile(r"([ \t]*)(?:for|if|while) \(.*\)")


def _with_bodies(old: Kernel, new: Kernel) -> Kernel:
    """Returns the kernel whose new statements below a loop or condition are indented, or in braces if all of the file are."""
    style, lines = FileStyle.of(old), new.unit.text.split("\n")
    for number in sorted(changed_lines(old.unit.text, new.unit.text), reverse=True):
        head = _HEAD.fullmatch(lines[number - 1]) if number else None
        line = lines[number]
        if head is None or not line.startswith(head[1]) or line.strip() in ("", "{") or line[len(head[1])] in " \t":
            continue
        inner = f"{head[1]}{style.indent}{line.strip()}"
        lines[number : number + 1] = [f"{head[1]}{{", inner, f"{head[1]}}}"] if style.apart == "braced" else [inner]
    return _with_text(new, lines)


def _with_wrapped_head(old: Kernel, new: Kernel) -> Kernel:
    """Returns the kernel with its head over several lines if a rewrite made one of its lines too long for the file."""
    text, width = new.unit.text, width_of(old.unit.text)
    start = text.rfind("\n", 0, new.start) + 1
    opening = text.find("(", text.index(new.name.rpartition("::")[2], new.start))
    end = closing_bracket(text, opening)
    head = text[start : end + 1]
    lines = changed_lines(old.unit.text, text)
    first = text.count("\n", 0, start)
    own = range(first, first + head.count("\n") + 1)
    long = any(len(line) > width and number in lines for number, line in zip(own, head.split("\n"), strict=True))
    if not long or "//" in head or "/*" in head:
        return new
    last = text[start:opening].rpartition("\n")[2]
    front = f"{text[start : opening - len(last)]}" if last != text[start:opening] else ""
    again = wrapped(f"{last}(", parts_of(" ".join(text[opening + 1 : end].split())), width)
    return apply_edits(new, [(start + len(front), end + 1, again)])


def _without_bare_blocks(old: Kernel, new: Kernel) -> Kernel:
    """Returns the kernel without the braces of a statement that a rewrite removed, such as `if (i < n)`."""
    lines = new.unit.text.split("\n")
    begin, end = (new.unit.text.count("\n", 0, offset) for offset in (new.start, new.end))
    for first in range(begin + 1, end):
        indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
        if lines[first].strip() != "{" or not indent or not _ends_statement(lines[:first]):
            continue
        last = next((n for n in range(first + 1, len(lines)) if lines[n].rstrip() == f"{indent}}}"), None)
        if last is None or _is_in(old, lines, first) or _clashes(lines[begin : end + 1], first - begin, last - begin):
            continue
        step = len(FileStyle.of(old).indent)
        inner = [one[step:] if one.startswith((" ", "\t")) else one for one in lines[first + 1 : last]]
        return _with_text(new, [*lines[:first], *inner, *lines[last + 1 :]])
    return new


def _ends_statement(before: Sequence[str]) -> bool:
    """Returns True if the lines end with a whole statement, so that a brace after them begins a block without a head."""
    last = next((one for one in reversed(before) if one.strip() and not one.lstrip().startswith(("//", "#"))), "")
    return last.partition("//")[0].rstrip().endswith((";", "}"))


def _is_in(old: Kernel, lines: Sequence[str], first: int) -> bool:
    """Returns True if the old kernel has a block without a head, too."""
    was = old.unit.text.split("\n")
    return any(one == lines[first] and _ends_statement(was[:number]) for number, one in enumerate(was))


def _clashes(lines: Sequence[str], first: int, last: int) -> bool:
    """Returns True if a local of a block has a name that is also declared outside of it."""
    names = {found[1] for one in lines[first + 1 : last] if (found := _LOCAL.match(one))}
    outside = {found[1] for one in [*lines[:first], *lines[last:]] if (found := _LOCAL.match(one))}
    return bool(names & outside)


def _with_text(kernel: Kernel, lines: Sequence[str]) -> Kernel:
    text = "\n".join(lines)
    return apply_edits(kernel, [(0, len(kernel.unit.text), text)]) if text != kernel.unit.text else kernel
