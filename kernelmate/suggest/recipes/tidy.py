"""Cleanup of the text that a rewrite changed; no other line changes.

Comments that the change made false are corrected, and locals without a remaining use are removed. A pragma is moved
back to its loop. Indentation and braces follow the file's style, and consecutive blank lines are merged. If there is a
`.clang-format` in the file's folder or above it and clang-format is installed, it formats the changed lines.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelmate.errors import KernelmateError
from kernelmate.records import Kernel
from kernelmate.source import apply_edits
from kernelmate.source.line_ends import line_changes
from kernelmate.suggest.recipes.comments import without_stale_comments
from kernelmate.suggest.recipes.sentences import EndedTechnique
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree
from kernelmate.suggest.syntax_effects import indent_step, only_pure_calls
from kernelmate.synthesis.file_style import FileStyle, lines_in_style

LOOPS = frozenset({"for_statement", "while_statement", "do_statement"})
CONTROL = ("if_statement", "for_statement", "while_statement", "else_clause")
FORMAT_TIMEOUT_S = 10.0


def tidied(old: Kernel, new: Kernel, ended: Sequence[EndedTechnique] = ()) -> Kernel:
    """Returns the changed kernel, cleaned up; unchanged if it cannot be parsed.

    `ended` are techniques that the kernel no longer uses; comments that mention them are corrected.
    """
    try:
        new = without_stale_comments(old, new, ended)
        for step in (
            _without_unused,
            _pragmas_before_loops,
            _indented,
            _braces_as_before,
            _styled,
            _braces_as_before,  # of statements that the style puts in braces
            _single_blank_lines,
        ):
            new = step(old, new)
        return _formatted(old, new)
    except (KernelmateError, RecursionError):
        return new


def laid_out(old: Kernel, new: Kernel) -> Kernel:
    """Returns a kernel that was written anew, with the braces of the old one's style and formatted by clang-format."""
    try:
        return _formatted(old, _braces_as_before(old, new))
    except (KernelmateError, RecursionError):
        return new


def changed_lines(old: str, new: str) -> set[int]:
    """Returns the line numbers of `new`, from 0, that are not in `old`."""
    changes = line_changes(old.split("\n"), new.split("\n"))
    return {n for tag, _, _, start, end in changes if tag != "equal" for n in range(start, end)}


# ------------------------------------------------------------------------------------------- statements


def _without_unused(old: Kernel, new: Kernel) -> Kernel:
    """Returns the kernel without local variables that are no longer used, including those that only they used."""
    before = read_tree(old)
    for _ in range(8):
        tree = read_tree(new)
        if tree is None or before is None:
            return new
        edits = [_whole_line(tree, node) for node in _unused(before, tree)]
        if not edits:
            return new
        new = apply_edits(new, edits)
    return new


def _unused(before: Tree, tree: Tree) -> Iterator[Node]:
    """Yields declarations of one variable without uses or side effects, unless it was unused before the rewrite."""
    for name, variable in tree.variables.items():
        if variable is None or variable.declaration.type != "declaration" or tree.uses(name):
            continue
        if before.variable(name) is not None and not before.uses(name):
            continue
        alone = len(variable.declaration.children_by_field_name("declarator")) == 1
        block = variable.declaration.parent
        value = variable.value
        harmless = value is None or (only_pure_calls(tree, value) and not list(tree.walk("assignment_expression", "update_expression", under=value)))  # fmt: skip
        if alone and harmless and block is not None and block.type == "compound_statement":
            yield variable.declaration


def _whole_line(tree: Tree, node: Node) -> Edit:
    """Returns an edit that removes a statement, and its line if that contains nothing else."""
    text = tree.kernel.unit.text
    start, end = tree.span(node)
    line, after = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    rest = text[end:after] if after >= 0 else text[end:]
    if after >= 0 and not text[line:start].strip() and (not rest.strip() or rest.lstrip().startswith("//")):
        return line, after + 1, ""
    return start, end, ""


def _pragmas_before_loops(old: Kernel, new: Kernel) -> Kernel:
    """Returns the kernel with each `#pragma unroll` directly before its loop, if a statement was inserted between them."""
    tree = read_tree(new)
    if tree is None:
        return new
    edits: list[Edit] = []
    before = old.unit.text.split("\n")
    margin = any(line.startswith("#pragma") for line in before) or not any("#pragma" in line for line in before)
    for pragma in tree.walk("preproc_call"):
        following = _next(pragma)
        if "unroll" not in tree.text(pragma) or following is None or following.type in LOOPS:
            continue
        loop: Node | None = following
        while loop is not None and loop.type not in LOOPS:
            loop = _next(loop)
        if loop is None:
            continue
        text = new.unit.text
        line = text.rfind("\n", 0, tree.span(pragma)[0]) + 1
        end = text.find("\n", line) + 1
        place = text.rfind("\n", 0, tree.span(loop)[0]) + 1
        edits += [(line, end, ""), (place, place, text[line:end])]
    new = apply_edits(new, edits) if edits else new
    return new if margin else _pragmas_further_in(old, new)


def _pragmas_further_in(old: Kernel, new: Kernel) -> Kernel:
    """Returns the kernel with changed pragmas indented like the line after them."""
    lines = new.unit.text.split("\n")
    for number in changed_lines(old.unit.text, new.unit.text):
        if lines[number].startswith("#pragma unroll") and number + 1 < len(lines):
            following = lines[number + 1]
            lines[number] = following[: len(following) - len(following.lstrip())] + lines[number]
    return _with_lines(new, lines)


def _next(node: Node) -> Node | None:
    following = node.next_named_sibling
    while following is not None and following.type == "comment":
        following = following.next_named_sibling
    return following


# ------------------------------------------------------------------------------------------- layout


def _indented(old: Kernel, new: Kernel) -> Kernel:
    """Returns the kernel with changed lines that begin a statement or close a block indented by their depth."""
    tree = read_tree(new)
    if tree is None:
        return new
    lines = new.unit.text.split("\n")
    changed = changed_lines(old.unit.text, new.unit.text)
    step, starts = indent_step(tree), _starts(lines)
    for block in [tree.body, *tree.walk("compound_statement")]:
        owner = block if block.parent is None or block.parent.type == "compound_statement" else block.parent
        outer = lines[_line_of(tree, _outermost(owner), starts)]
        outer = outer[: len(outer) - len(outer.lstrip())]
        for child in [one for one in block.named_children if not one.type.startswith("preproc")]:
            _shift(tree, child, lines, starts, changed, outer + step)
        closing = _number(starts, tree.span(block)[1] - 1)
        if closing in changed and lines[closing].lstrip().startswith("}"):
            lines[closing] = outer + lines[closing].lstrip()
    return _with_lines(new, lines)


def _outermost(node: Node) -> Node:
    """Returns the first `if` of an `if`/`else if` chain that contains the node; any other node itself."""
    while node.parent is not None and node.type in {"else_clause", "if_statement"} and node.parent.type in {"else_clause", "if_statement"}:  # fmt: skip
        node = node.parent
    return node


def _shift(tree: Tree, node: Node, lines: list[str], starts: Sequence[int], changed: set[int], indent: str) -> None:
    """Indents a statement that begins a changed line, together with its further lines."""
    first, last = _line_of(tree, node, starts), _number(starts, tree.span(node)[1])
    begins = not tree.kernel.unit.text[starts[first] : tree.span(node)[0]].strip()
    if first not in changed or not begins:
        return
    own = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    for number in range(first, last + 1):
        line = lines[number]
        if own != indent and number in changed and line.startswith(own) and line.strip() and not line.startswith("#"):
            lines[number] = indent + line[len(own) :]


def _starts(lines: Sequence[str]) -> list[int]:
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    return starts


def _number(starts: Sequence[int], offset: int) -> int:
    """Returns the line of an offset."""
    low, high = 0, len(starts) - 1
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if starts[middle] <= offset else (low, middle)
    return low


def _line_of(tree: Tree, node: Node, starts: Sequence[int]) -> int:
    return _number(starts, tree.span(node)[0])


def _braces_as_before(old: Kernel, new: Kernel) -> Kernel:
    """Returns the kernel with opening braces of changed lines on lines of their own, if that is the kernel's style."""
    tree = read_tree(old)
    if tree is None or not _own_lines(tree):
        return new
    changed = changed_lines(old.unit.text, new.unit.text)
    lines: list[str] = []
    for number, line in enumerate(new.unit.text.split("\n")):
        match = (
            re.fullmatch(r"(\s*)(\} )?((?:if|for|while|else|do|struct|(?:static )?__device__)\b.*?) ?\{", line)
            if number in changed
            else None
        )
        if match is None:
            head = _first_line(lines, line) if number in changed and line.endswith(") {") else None
            lines += [line[:-2], f"{head}{{"] if head is not None else [line]
            continue
        lines += [f"{match[1]}}}"] if match[2] else []
        lines += [match[1] + match[3], f"{match[1]}{{"]
    return _with_lines(new, lines)


def _styled(old: Kernel, new: Kernel) -> Kernel:
    """Returns the kernel with changed lines in its file's style: case of locals, place of single statements, and width.

    A text that is not a CUDA file stays as the recipe wrote it.
    """
    if old.unit.language != "cuda":
        return new
    last = new.unit.text.count("\n", 0, new.end)
    changed = changed_lines(old.unit.text, new.unit.text) & set(range(last + 1)) - _lines_of_contract(new)
    return _with_lines(new, lines_in_style(FileStyle.of(old), new.unit.text.split("\n"), changed))


def _first_line(before: Sequence[str], last: str) -> str | None:
    """Returns the indentation of the `if` or loop whose head, over several lines, ends at `last`; None otherwise."""
    depth = last.count(")") - last.count("(")
    for line in reversed(before):
        if depth <= 0:
            return None
        depth += line.count(")") - line.count("(")
        if depth == 0:
            match = re.match(r"(\s*)(?:if|for|while) \(", line)
            return None if match is None else match[1]
    return None


def _own_lines(tree: Tree) -> bool:
    """True if every opening brace of a block in the kernel begins its line; without any, those of the file count, or its own."""
    blocks = [one for one in tree.walk("compound_statement") if one.parent is not None and one.parent.type in CONTROL]
    text = tree.kernel.unit.text
    if not blocks and re.search(r"^[ \t]+(?:if|for|while) ?\(.*\) ?\{[ \t]*$", text, re.MULTILINE):
        return False
    places = [tree.span(one)[0] for one in blocks or [tree.body]]
    return all(not text[text.rfind("\n", 0, place) + 1 : place].strip() for place in places)


def _single_blank_lines(old: Kernel, new: Kernel) -> Kernel:
    """Removes trailing white space of changed lines, and changed blank lines beside a blank line or a block's brace."""
    changed = changed_lines(old.unit.text, new.unit.text)
    lines = new.unit.text.split("\n")
    kept: list[str] = []
    for number, line in enumerate(lines):
        clean = line.rstrip() if number in changed else line
        following = lines[number + 1].strip() if number + 1 < len(lines) else ""
        near = number in changed or number - 1 in changed or number + 1 in changed
        before = kept[-1].strip() if kept else ""
        opens = before.endswith("{") and not before.startswith("namespace")
        remark = before.startswith("//") and kept[-1].startswith((" ", "\t")) and number in changed
        doubled = bool(kept) and (not before or opens or remark)
        if near and not clean.strip() and number + 1 < len(lines) and (doubled or following == "}"):
            continue
        kept.append(clean)
    return _with_lines(new, kept)


def _with_lines(kernel: Kernel, lines: Sequence[str]) -> Kernel:
    text = "\n".join(lines)
    return kernel if text == kernel.unit.text else apply_edits(kernel, [(0, len(kernel.unit.text), text)])


# ------------------------------------------------------------------------------------------- clang-format


def _formatted(old: Kernel, new: Kernel) -> Kernel:
    """Returns the kernel with changed lines formatted by clang-format.

    The kernel is returned unchanged if there is no `.clang-format`, or clang-format is not installed.
    """
    path = Path(new.unit.path).absolute()
    styled = any((folder / name).is_file() for folder in path.parents for name in (".clang-format", "_clang-format"))
    if new.unit.language != "cuda" or not path.is_file() or not styled:
        return new
    program = shutil.which("clang-format") or shutil.which("clang-format", path=str(Path(sys.executable).parent))
    changed = sorted(changed_lines(old.unit.text, new.unit.text) - _lines_of_contract(new))
    if program is None or not changed:
        return new
    ranges = [f"--lines={number + 1}:{number + 1}" for number in changed]
    command = [program, "--style=file", f"--assume-filename={path}", *ranges]
    try:
        done = subprocess.run(command, input=new.unit.text, capture_output=True, text=True, encoding="utf-8", timeout=FORMAT_TIMEOUT_S, check=True)  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return new
    return _with_lines(new, done.stdout.split("\n"))


def _lines_of_contract(kernel: Kernel) -> set[int]:
    """Returns the line numbers of the contract block, which clang-format must not wrap."""
    if kernel.contract_span is None:
        return set()
    first, last = (kernel.unit.text.count("\n", 0, offset) for offset in kernel.contract_span)
    return set(range(first, last + 1))
