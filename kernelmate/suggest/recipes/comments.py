"""Correction of comments that a rewrite made false: clauses and sentences are removed, or name the new technique.

`techniques.py` lists the techniques that each recipe ends. Contract blocks, licences, comments of other functions, and
all other lines of a corrected comment do not change.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import tree_sitter

from kernelmate.caching import text_cache
from kernelmate.records import Kernel
from kernelmate.source import apply_edits
from kernelmate.source.folding import width_of
from kernelmate.suggest.recipes.sentences import EndedTechnique, corrected, names_other_kernel
from kernelmate.suggest.syntax import Edit, Node, Tree, language, read_tree

KEPT = re.compile(
    r"copyright|licen[cs]e|SPDX|all rights reserved|kernelmate|clang-format|NOLINT|@(?:file|author)", re.I
)
"""Comments that do not describe a kernel's method, or that programs read."""
ITEM = re.compile(r"(?:[-*+]|\d+[.)]|[@\\]\w+)\s")
DRAWN = re.compile(r"\S {3,}\S|[|+][-=]{2,}|[-=]{4,}|^\s*\|")
"""Tables and drawings in comments, which are not reflowed."""
FILLED = 60
"""Columns from which on the lines of a comment are taken as filled to their limit."""


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment, or line comments directly below each other.

    Attributes:
        start, end: offsets in the unit's text.
        trailing: True if code precedes it on its line.
    """

    start: int
    end: int
    text: str
    column: int
    trailing: bool


def without_stale_comments(old: Kernel, new: Kernel, ended: Sequence[EndedTechnique], method: str = "") -> Kernel:
    """Returns the new kernel with comments corrected that are true only of the old one.

    Args:
        old: the kernel before the change.
        new: the kernel after the change.
        ended: techniques that the change ends.
        method: a sentence on the method of the new kernel. It replaces the first comment outside the kernel that
            describes the old method.
    """
    if old.source == new.source:
        return new
    before = read_tree(old)
    known = [_words(one.text) for one in comments(old.unit.text)]
    still = _code_of(new.source)
    ended = [one for one in ended if not one.holds_for(still)]
    gone = frozenset[str]() if before is None else _gone(before, new)
    edits: list[Edit] = []
    for comment in _attached(new):
        if not any(_words(comment.text) in one for one in known) or KEPT.search(comment.text):
            continue
        inside = new.start <= comment.start < new.end
        if inside and _lost_its_code(old, new, comment):
            edits.append(_taken_out(new.unit.text, comment))
        elif (text := _rewritten(new, comment, ended, gone, "" if inside else method)) != comment.text:
            edits.append((comment.start, comment.end, text) if text else _taken_out(new.unit.text, comment))
            method = method if inside else ""
    return apply_edits(new, edits) if edits else new


def code(tree: Tree) -> str:
    """Returns the text of a kernel without its comments."""
    text = tree.kernel.source
    for node in reversed(list(tree.walk("comment", under=tree.function))):
        start, end = (offset - tree.kernel.start for offset in tree.span(node))
        text = f"{text[:start]} {text[end:]}"
    return text


@text_cache(32)
def comments(text: str) -> tuple[Comment, ...]:
    """Returns the comments of a unit; line comments directly below each other are joined."""
    data = text.encode()
    found: list[Comment] = []
    for node in _nodes(data, "comment"):
        start, end = _span(data, node, text)
        line = text.rfind("\n", 0, start) + 1
        one = Comment(start, end, text[start:end], start - line, bool(text[line:start].strip()))
        last = found[-1] if found else None
        near = last is not None and not text[last.end : start].strip() and text.count("\n", last.end, start) == 1
        joined = one.text.startswith("//") and not one.trailing and last is not None and last.text.startswith("//")
        if last is not None and near and joined and last.column == one.column:
            found[-1] = Comment(last.start, end, text[last.start : end], last.column, last.trailing)
        else:
            found.append(one)
    return tuple(found)


def _span(data: bytes, node: Node, text: str) -> tuple[int, int]:
    """Returns a node's offsets in the text."""
    if len(data) == len(text):
        return node.start_byte, node.end_byte
    return len(data[: node.start_byte].decode()), len(data[: node.end_byte].decode())


def _nodes(data: bytes, kind: str) -> list[Node]:
    """Returns the nodes of a kind in a text, in order."""
    root = tree_sitter.Parser(language()).parse(data).root_node
    found = tree_sitter.QueryCursor(_query(kind)).captures(root)
    return sorted(found.get("found", []), key=lambda node: node.start_byte)


@cache
def _query(kind: str) -> tree_sitter.Query:
    # Compiling one takes longer than a search for it.
    return tree_sitter.Query(language(), f"({kind}) @found")


def _words(text: str) -> str:
    return " ".join(re.sub(r"^\s*(?://+|/\*+|\*+)", "", text, flags=re.MULTILINE).split())


def _attached(kernel: Kernel) -> Iterator[Comment]:
    """Yields the kernel's comments: inside it, between it and the function before it, and at the top of the file."""
    text = kernel.unit.text
    functions = _functions(text)
    above = max((end for _, end in functions if end <= kernel.start), default=0)
    first = min((start for start, _ in functions), default=kernel.start)
    for comment in comments(text):
        span = kernel.contract_span
        if span is not None and comment.start < span[1] and span[0] < comment.end:
            yield from _beside_contract(kernel, comment, span)
        elif above <= comment.start < kernel.end or comment.end <= first:
            yield comment


def _beside_contract(kernel: Kernel, comment: Comment, span: tuple[int, int]) -> Iterator[Comment]:
    """Yields the parts of a comment directly above and below the contract block."""
    text = kernel.unit.text
    for start, end in ((comment.start, span[0]), (span[1], comment.end)):
        part = text[start:end]
        start += len(part) - len(part.lstrip())
        if part.strip():
            yield Comment(start, start + len(part.strip()), part.strip(), comment.column, False)


@text_cache(32)
def _functions(text: str) -> tuple[tuple[int, int], ...]:
    """Returns the offsets of the unit's outermost functions."""
    data = text.encode()
    found: list[Node] = []
    for node in _nodes(data, "function_definition"):
        if not found or node.start_byte >= found[-1].end_byte:
            found.append(node)
    return tuple(_span(data, node, text) for node in found)


def _gone(before: Tree, new: Kernel) -> frozenset[str]:
    """Returns names that the kernel declared and the changed unit lacks, except those that are also ordinary words."""
    left = set(re.findall(r"[A-Za-z_]\w*", _code_of(new.unit.text)))
    return frozenset(name for name in before.variables if name not in left)


def _code_of(text: str) -> str:
    data = text.encode()
    for node in reversed(_nodes(data, "comment")):
        data = data[: node.start_byte] + b" " + data[node.end_byte :]
    return data.decode()


def _lost_its_code(old: Kernel, new: Kernel, comment: Comment) -> bool:
    """Returns True if the statement beside or below a comment was removed."""
    words = _words(comment.text)
    were = [one for one in comments(old.unit.text) if _words(one.text) == words and old.start <= one.start < old.end]
    if len(were) != 1:
        return False
    then, now = _code_beside(old, were[0]), _code_beside(new, comment)
    return (bool(then) and not now) or (then != now and now == "}" and not comment.trailing)


def _code_beside(kernel: Kernel, comment: Comment) -> str:
    text = kernel.unit.text
    if comment.trailing:
        return text[text.rfind("\n", 0, comment.start) + 1 : comment.start].strip()
    line = text.rfind("\n", 0, comment.start) + 1
    following = text[comment.end : kernel.end].lstrip()
    before = text[line : comment.start].strip()
    return before or following.split("\n", 1)[0].strip()


def _taken_out(text: str, comment: Comment) -> Edit:
    """Returns an edit that removes a comment, and its lines if they contain nothing else."""
    start, end = comment.start, comment.end
    line, after = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    after = len(text) if after < 0 else after
    if not text[line:start].strip() and not text[end:after].strip():
        return line, min(after + 1, len(text)), ""
    return len(text[:start].rstrip(" \t")), end, ""


# ------------------------------------------------------------------------------------------- one comment's lines


def _rewritten(
    kernel: Kernel, comment: Comment, ended: Sequence[EndedTechnique], gone: Iterable[str], method: str
) -> str:
    """Returns the comment's text with its paragraphs corrected and reflowed.

    `method` is appended to the first paragraph that lost a clause.
    """
    inside = kernel.start <= comment.start < kernel.end
    lines = comment.text.split("\n")
    block = comment.text.startswith("/*")
    closing = ""
    if block:
        body = lines[-1].removesuffix("*/").rstrip()
        closing = lines[-1][len(body) :]
        alone = len(lines) > 1 and not body.strip(" *")
        lines[-1:] = [] if alone else [body]
        closing = f"\n{body}{closing}" if alone else closing
    parts = [_split(line, block, first=number == 0) for number, line in enumerate(lines)]
    kept: list[str] = []
    changed = False
    others = _other_kernels(kernel)
    own = inside or (
        _stands_above(kernel, comment) and not names_other_kernel(comment.text, _leaf(kernel.name), others)
    )
    for paragraph in _paragraphs(parts):
        texts = [parts[number][1].strip() for number in paragraph]
        text = " ".join(texts)
        drawn = any(DRAWN.search(one) for one in texts)
        now = (
            text
            if drawn
            else corrected(text, ended, gone, _leaf(kernel.name), others=() if own else others, head=not inside)
        )
        if now != text and method:
            said = method if own or not others else f"In {_leaf(kernel.name)}, {method[0].lower()}{method[1:]}"
            ended_by = "" if not now or now[-1] in ".:;!?" else "."
            now = f"{now}{ended_by} {said}".strip()
            method = ""
        changed = changed or now != text
        if now == text:
            kept += [lines[number] for number in paragraph]
        elif now:
            same = _same_lines(texts, now)
            kept += [lines[number] for number in paragraph[:same]]
            rest = now[len(" ".join(texts[:same])) :].strip()
            kept += _wrapped(rest, parts, paragraph[same:], comment, _width(kernel.unit.text, comment))
    return _joined(kept, comment, block, closing) if changed else comment.text


def _split(line: str, block: bool, *, first: bool) -> tuple[str, str]:
    """Splits a line of a comment into its opening (`/*`, `*` or `//` and blanks) and its text."""
    opening = r"/\*[*!]?[ \t]*" if first else r"[ \t]*(?:\*(?!/))?[ \t]*"
    match = re.match(opening if block else r"[ \t]*//[/!]?<?[ \t]*", line)
    end = 0 if match is None else match.end()
    return line[:end], line[end:].rstrip()


def _paragraphs(parts: Sequence[tuple[str, str]]) -> Iterator[list[int]]:
    """Yields the line numbers of each paragraph; an empty line or a list item begins a new one."""
    current: list[int] = []
    for number, (prefix, text) in enumerate(parts):
        before = parts[number - 1][1] if number else ""
        opener = number > 1 and prefix.strip() != parts[number - 1][0].strip()
        table = bool(DRAWN.search(text)) or bool(DRAWN.search(before))
        if current and (not text or ITEM.match(text) or not before or opener or table):
            yield current
            current = []
        current.append(number)
    if current:
        yield current


def _same_lines(texts: Sequence[str], now: str) -> int:
    """Returns the number of lines at the beginning of a paragraph that the corrected text keeps."""
    same = 0
    while same + 1 < len(texts) and now.startswith(" ".join(texts[: same + 1]) + " "):
        same += 1
    return same


def _wrapped(
    text: str, parts: Sequence[tuple[str, str]], paragraph: Sequence[int], comment: Comment, width: int
) -> list[str]:
    first = parts[paragraph[0]][0]
    indent = " " * comment.column
    if len(paragraph) > 1:
        later = parts[paragraph[1]][0]
    elif paragraph[0] > 0:
        later = first
    else:
        later = indent + (first if first.startswith("//") else " " * len(first))
    begins = paragraph[0] == 0
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=(indent if begins else "") + first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [lines[0][len(indent) :] if begins else lines[0], *lines[1:]]


def _joined(lines: list[str], comment: Comment, block: bool, closing: str) -> str:
    """Returns the comment's lines with its delimiters; empty if no text is left."""
    signs = r"\s*(?:/\*+!?|\*+|//+[!<]?)?\s*"
    if not any(re.sub(f"^{signs}", "", line).strip() for line in lines):
        return ""
    if not block:
        while not lines[0].strip(" \t/!<"):
            lines.pop(0)
        while not lines[-1].strip(" \t/!<"):
            lines.pop()
        return "\n".join([lines[0].lstrip(), *lines[1:]])
    if not lines[0].startswith("/*"):
        opener = re.match(r"/\*[*!]?[ \t]*", comment.text)
        lines[0] = (opener.group() if opener is not None else "/* ") + re.sub(f"^{signs}", "", lines[0])
    return "\n".join(lines).rstrip() + (closing if closing.startswith("\n") else f" {closing.lstrip()}")


def _width(text: str, comment: Comment) -> int:
    """Returns the width of a comment in columns: its longest line, or the file's limit for one whose lines are short."""
    line = text.rfind("\n", 0, comment.start) + 1
    own = max(len(one) for one in text[line : comment.end].split("\n"))
    return own if "\n" in comment.text and own >= FILLED else max(own, width_of(text))


def _stands_above(kernel: Kernel, comment: Comment) -> bool:
    """Returns True if a comment is directly above the kernel or its contract."""
    starts = [kernel.start] if kernel.contract_span is None else [kernel.start, kernel.contract_span[0]]
    return any(
        re.fullmatch(r"[ \t]*\n?[ \t]*", kernel.unit.text[comment.end : start])
        for start in starts
        if start >= comment.end
    )


def _leaf(name: str) -> str:
    return name.rpartition("::")[2]


def _other_kernels(kernel: Kernel) -> tuple[str, ...]:
    """Returns the names of the unit's other kernels."""
    names = re.findall(r"__global__[^;{(]*?(?:__launch_bounds__\s*\([^)]*\)+)?[^;{(]*?\b(\w+)\s*\(", kernel.unit.text)
    return tuple(dict.fromkeys(name for name in names if name not in {_leaf(kernel.name), "__launch_bounds__"}))
