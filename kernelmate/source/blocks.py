"""Contract blocks in comments: their places, their TOML text, and the kernel that each belongs to."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelmate.caching import text_cache
from kernelmate.records import Kernel, Signature, Unit
from kernelmate.source.cuda import find_definitions
from kernelmate.source.python import lines_of_functions, lines_of_texts
from kernelmate.source.tokens import lex
from kernelmate.source.triton import triton_kernels

_OPENING = re.compile(r"[ \t]*///[ \t]*kernelmate[ \t]*\Z")
_CLOSING = re.compile(r"[ \t]*///[ \t]*\Z")
_NAME_KEY = re.compile(r"""^[ \t]*(kernel|pipeline)[ \t]*=[ \t]*["']([^"'\n]*)["']""", re.MULTILINE)
_TABLE = re.compile(r"^[ \t]*\[{1,2}[ \t]*\w", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CommentLine:
    """One comment line: the text after the marker, its line, and the text's column, both in the block's own text."""

    content: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class ContractBlock:
    """One contract block.

    Attributes:
        lines: the TOML lines, markers excluded.
        opening: the line of `/// kernelmate`.
        span: offsets of the whole lines in the unit's text; None for a block above a Python statement.
        closed: whether `/// ` ends it.
    """

    unit: Unit
    opening: CommentLine
    lines: tuple[CommentLine, ...]
    span: tuple[int, int] | None
    closed: bool

    @property
    def toml(self) -> str:
        """Returns the TOML document."""
        return "\n".join(line.content for line in self.lines)

    @property
    def kernel_key(self) -> str | None:
        """Returns the value of its `kernel` key, even if the TOML is invalid."""
        return self._named("kernel")

    @property
    def pipeline_key(self) -> str | None:
        """Returns the value of its `pipeline` key, even if the TOML is invalid; None for the contract of a kernel."""
        return self._named("pipeline")

    def _named(self, key: str) -> str | None:
        text = self.toml
        table = _TABLE.search(text)
        found = _NAME_KEY.finditer(text if table is None else text[: table.start()])
        return next((match.group(2) for match in found if match.group(1) == key), None)

    def place(self, line: int, column: int | None) -> tuple[int, int | None]:
        """Returns the file's line and column of a position in the TOML document (both from 1)."""
        if not self.lines:
            return self.file_position(self.opening.line, self.opening.column)
        if line > len(self.lines):
            last = self.lines[-1]
            return self.file_position(last.line, last.column + len(last.content))
        at = self.lines[max(line, 1) - 1]
        return self.file_position(at.line, None if column is None else at.column + column - 1)

    def file_position(self, line: int, column: int | None) -> tuple[int, int | None]:
        """Converts a position in the text that contains the block to a position in the file."""
        if self.span is None:
            return (self.unit.contract_line or 1) + line - 1, column
        return self.unit.locate(line, column)


@text_cache(64)
def find_blocks(unit: Unit) -> tuple[ContractBlock, ...]:
    """Returns the contract blocks of a unit in order; those above a Python statement come first."""
    outside = _blocks(unit, _hash_runs(unit.contract_text), None) if unit.contract_text else []
    if unit.language != "triton":
        return (*outside, *_blocks(unit, _slash_runs(unit.text), unit.text))
    return tuple(_blocks(unit, [run for run in _hash_runs(unit.text) if _may_be_triton(unit, run[0].line)], unit.text))


def _may_be_triton(unit: Unit, line: int) -> bool:
    """Returns False for comments that belong to a kernel in a string, or in a function with no Triton kernel below them."""
    if any(first <= line < last for first, last in lines_of_texts(unit.text)):
        return False
    kernels = [one.line for one in triton_kernels(unit)]
    around = [last for first, last in lines_of_functions(unit.text) if first < line <= last]
    return all(any(line < kernel <= last for kernel in kernels) for last in around)


def _slash_runs(text: str) -> list[list[CommentLine]]:
    """Returns groups of `//` comments on consecutive lines without code."""
    lexed = lex(text)
    found = []
    for comment in lexed.comments:
        if comment.first_on_line:
            line, column = lexed.position(comment.start)
            found.append(_comment_line(text[comment.start + 2 : comment.end], line, column + 2))
    return _runs(found, text.split("\n"))


def _hash_runs(text: str) -> list[list[CommentLine]]:
    found, lines = [], text.split("\n")
    for number, line in enumerate(lines, 1):
        stripped = line.lstrip()
        if stripped.startswith("#"):
            found.append(_comment_line(stripped[1:], number, len(line) - len(stripped) + 2))
    return _runs(found, lines)


def _comment_line(content: str, line: int, column: int) -> CommentLine:
    if content.startswith(" "):
        return CommentLine(content[1:].rstrip("\r"), line, column + 1)
    return CommentLine(content.rstrip("\r"), line, column)


def _runs(comments: Sequence[CommentLine], lines: Sequence[str]) -> list[list[CommentLine]]:
    """Returns groups of comments on consecutive lines; blank lines inside a contract block belong to its group."""
    runs: list[list[CommentLine]] = []
    for number, comment in enumerate(comments):
        last = runs[-1][-1].line if runs else 0
        between = lines[last : comment.line - 1]
        if runs and not between:
            runs[-1].append(comment)
        elif runs and not "".join(between).strip() and _is_open(runs[-1]) and _closes(comments[number:], lines):
            runs[-1] += [CommentLine("", line, 1) for line in range(last + 1, comment.line)]
            runs[-1].append(comment)
        else:
            runs.append([comment])
    return runs


def _is_open(run: Sequence[CommentLine]) -> bool:
    """Returns True if a group of comments ends inside a contract block."""
    marks = [line for line in run if _OPENING.match(line.content) or _CLOSING.match(line.content)]
    return bool(marks) and _OPENING.match(marks[-1].content) is not None


def _closes(comments: Sequence[CommentLine], lines: Sequence[str]) -> bool:
    """Returns True if a block is closed by these comments before another one opens or anything but comments follows."""
    last = comments[0].line
    for comment in comments:
        if "".join(lines[last : comment.line - 1]).strip() or _OPENING.match(comment.content):
            return False
        if _CLOSING.match(comment.content):
            return True
        last = comment.line
    return False


def _blocks(unit: Unit, runs: Sequence[Sequence[CommentLine]], text: str | None) -> list[ContractBlock]:
    found = []
    for run in runs:
        index = 0
        while index < len(run):
            if not _OPENING.match(run[index].content):
                index += 1
                continue
            end = index + 1
            while end < len(run) and not _CLOSING.match(run[end].content) and not _OPENING.match(run[end].content):
                end += 1
            closed = end < len(run) and bool(_CLOSING.match(run[end].content))
            last = run[end] if closed else run[end - 1]
            span = None if text is None else _whole_lines(text, run[index].line, last.line)
            found.append(ContractBlock(unit, run[index], tuple(run[index + 1 : end]), span, closed))
            index = end + 1 if closed else end
    return found


def _whole_lines(text: str, first: int, last: int) -> tuple[int, int]:
    starts = lex(text).line_starts
    return starts[first - 1], starts[last] if last < len(starts) else len(text)


def owner_of(block: ContractBlock, kernels: Sequence[Kernel]) -> Kernel | None:
    """Returns the kernel that a block belongs to: the one it names, else the next one below; None for a pipeline's."""
    if block.pipeline_key is not None:
        return None
    named = block.kernel_key
    if named is not None:
        return kernel_named(kernels, named)
    if block.span is None:
        return kernels[0] if kernels else None
    return next((kernel for kernel in kernels if kernel.start >= block.span[1]), None)


@text_cache(64)
def find_kernels(unit: Unit) -> tuple[Kernel, ...]:
    """Returns the kernels of a unit in order, each with its signature, launches and contract block.

    Incomplete code yields the kernels that can be recognised; `parse_contract` reports invalid contracts.
    """
    definitions = triton_kernels(unit) if unit.language == "triton" else find_definitions(unit)
    spans: dict[int, tuple[int, int]] = {}
    for block in find_blocks(unit):
        owner = owner_of(block, definitions)
        if owner is not None and block.span is not None:
            spans.setdefault(owner.start, block.span)
    return tuple(replace(kernel, contract_span=spans.get(kernel.start)) for kernel in definitions)


@text_cache(64)
def find_pipelines(unit: Unit) -> tuple[Kernel, ...]:
    """Returns the pipelines of a unit in order of their blocks: kernels that are made of others (`Kernel.parts`).

    Blocks whose TOML is incomplete have no parts but themselves; `parse_contract` reports their mistakes.
    """
    kernels = find_kernels(unit)
    found = []
    for block in find_blocks(unit):
        name = block.pipeline_key
        if name is None or block.span is None or unit.language == "triton":
            continue
        taken = [one for one in (kernel_named(kernels, text) for text in _launched(block)) if one is not None]
        parts = sorted({block.span, *((one.start, one.end) for one in taken)})
        (start, end), named = block.span, _named_line(block)
        last = len(unit.text[:end].rstrip("\n"))
        found.append(
            Kernel(
                unit, name, Signature(()), start, last, named.line, named.column, contract_span=block.span,
                parts=tuple(parts),
            )
        )  # fmt: skip
    return tuple(found)


def _named_line(block: ContractBlock) -> CommentLine:
    """Returns the line with a pipeline's name, from the name on."""
    for one in block.lines:
        match = _NAME_KEY.match(one.content)
        if match is not None and match[1] == "pipeline":
            return replace(one, content=one.content[match.start(2) :], column=one.column + match.start(2))
    return block.opening


def _launched(block: ContractBlock) -> tuple[str, ...]:
    """Returns the kernels that the stages of a block name, as far as it can be read."""
    try:
        stages = tomllib.loads(block.toml).get("stages", [])
    except (ValueError, RecursionError):
        return ()
    named = [one.get("kernel") for one in stages if isinstance(one, dict)] if isinstance(stages, list) else []
    return tuple(name for name in named if isinstance(name, str))


def kernel_named(kernels: Sequence[Kernel], name: str) -> Kernel | None:
    """Returns the first kernel of a name, which may leave namespaces out and may have template arguments."""
    plain = name.partition("<")[0].strip()
    exact = [kernel for kernel in kernels if kernel.name == plain]
    return next(iter(exact or [kernel for kernel in kernels if kernel.name.endswith(f"::{plain}")]), None)


def block_of(kernel: Kernel) -> ContractBlock | None:
    """Returns the contract block that belongs to a kernel or a pipeline; None if there is none."""
    if kernel.parts:
        return next((block for block in find_blocks(kernel.unit) if block.span == kernel.contract_span), None)
    kernels = find_kernels(kernel.unit)
    for block in find_blocks(kernel.unit):
        owner = owner_of(block, kernels)
        if owner is not None and owner.start == kernel.start:
            return block
    return None


_REFERENCE = re.compile(r"""^[ \t]*reference[ \t]*=[ \t]*["']([\w:]+)["']""", re.MULTILINE)


def compared_with(kernel: Kernel) -> tuple[str, ...]:
    """Returns the names of the unit's other kernels, and of its pipelines, whose contracts name a kernel as their reference."""
    kernels = find_kernels(kernel.unit)
    found: list[str] = []
    for block in find_blocks(kernel.unit):
        text = block.toml
        table = _TABLE.search(text)
        named = _REFERENCE.search(text if table is None else text[: table.start()])
        owner = owner_of(block, kernels)
        name = block.pipeline_key or (owner.name if owner is not None else None)
        reference = None if named is None else kernel_named(kernels, named[1])
        if reference is not None and reference.name == kernel.name and name not in (None, kernel.name):
            found.append(str(name))
    return tuple(dict.fromkeys(found))
