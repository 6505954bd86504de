"""Places a generated kernel in the user's file: definition, helpers, contract and launches."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace

from kernelmate.errors import SourceError
from kernelmate.records import Contract, Kernel
from kernelmate.source import apply_edits, change_launch, helpers_offset, parse_contract
from kernelmate.source.folding import folded, width_of, without_contracts
from kernelmate.synthesis.file_style import FileStyle, in_file_style
from kernelmate.synthesis.identities import always_equal
from kernelmate.synthesis.kept_text import has_own_block, with_own_locals, with_own_rows, with_warp_names
from kernelmate.synthesis.kernel_text import GUARD, WrittenKernel
from kernelmate.synthesis.launch_names import (
    is_seen,
    open_scopes,
    scope_in_launches,
    with_named_block,
    with_named_lanes,
    with_named_numbers,
    with_own_threads,
)
from kernelmate.synthesis.names import without_comments
from kernelmate.synthesis.own_reductions import with_own_reductions
from kernelmate.synthesis.qualifiers import GENERATED, with_qualifiers
from kernelmate.synthesis.template_threads import definitions_of, threads_parameter, with_threads_parameter
from kernelmate.synthesis.wide_sizes import with_wide_indices


def placed(kernel: Kernel, contract: Contract, written: WrittenKernel) -> tuple[Kernel, Contract]:
    """Returns the user's file with the generated kernel in place of its own, and with launches and contract adapted.

    Raises:
        KernelmateError: a launch in the file cannot be adapted, or is invalid at a listed size.
    """
    definition, helpers = with_own_reductions(kernel.unit.text[: kernel.start], written.definition, written.helpers)
    definition, helpers = with_warp_names(kernel, definition, helpers, width_of(kernel.unit.text))
    definition, helpers = _with_shared_helpers(kernel, definition, _used_constants(definition, helpers))
    helpers = _without_needless_barriers(definition, helpers)
    definition, helpers = with_wide_indices(kernel, definition, helpers)
    block = _block_of(kernel, contract, written)
    parameter = threads_parameter(kernel, contract, block)
    if parameter:
        width = width_of(kernel.unit.text)
        definition, helpers = with_threads_parameter(parameter, block[0], definition, helpers, width)
    definition = with_own_locals(kernel, definition, helpers)
    definition, helpers = with_own_rows(kernel, definition, helpers)
    definition, helpers = _with_launched_constants(kernel, written, definition, helpers)
    helpers, definition = in_file_style(FileStyle.of(kernel, replaced=True), helpers, definition)
    written = replace(written, definition=definition, helpers=helpers)
    edits = [(kernel.start, kernel.end, _in_own_comments(kernel, written.definition))]
    named = re.search(r"^constexpr int (\w+) = (\d+);  // threads per block$", written.helpers, re.MULTILINE)
    scope = scope_in_launches(kernel)
    named_block = f"{scope}{named[1]}" if named is not None and block == (named[2],) and scope is not None else ""
    if named_block and has_own_block(kernel):
        edits += sorted({(*site.block_span, named_block) for site in kernel.launches})
    if written.helpers:
        text = kernel.unit.text
        above = _above_comment(text, helpers_offset(kernel))
        before = text[:above].rstrip("\n")
        added = _in_own_comments(kernel, _linked_as_needed(kernel, written.helpers))
        opening = "\n\n" if before else "\n" if kernel.unit.language == "python" and text.startswith("\n") else ""
        edits.append((len(before), above, f"{opening}{added}\n\n"))
    changed = _with_headers(apply_edits(kernel, edits))
    grid = _grid(contract, written, block)
    changed = change_launch(changed, contract=contract, grid=grid, block=block, shared=str(written.shared))
    changed = with_named_block(changed, named_block, block)
    changed = with_own_threads(changed, named)
    changed = _with_limit_comment(kernel, _with_grid_comment(changed, written, grid), written)
    changed = with_named_lanes(with_named_numbers(changed, written), written)
    in_force = parse_contract(changed) if kernel.contract_span is not None else None
    fallback = replace(contract, grid=grid, block=block, shared=str(written.shared))
    return changed, fallback if in_force is None else replace(fallback, line=in_force.line)


def _block_of(kernel: Kernel, contract: Contract, written: WrittenKernel) -> tuple[str, ...]:
    """Returns the sides of the block, without those of 1 that the text does not use.

    Raises:
        SourceError: as `_block_of_instances`.
    """
    block = tuple(map(str, (written.block,) if isinstance(written.block, int) else written.block))
    if not re.search(r"\b(?:threadIdx|blockDim)\.[yz]\b", written.definition + written.helpers):
        block = tuple(side for number, side in enumerate(block) if number == 0 or side != "1")
    return _block_of_instances(kernel, contract, written, block)


_HEADERS = {"std::is_same_v": "type_traits", "__half2float": "cuda_fp16.h"}
"""Headers of names that generated kernels use even if no parameter has a type of the header."""


def _with_headers(kernel: Kernel) -> Kernel:
    """Returns the kernel with missing headers of names in `_HEADERS` added to its file."""
    for name, header in _HEADERS.items():
        if name in kernel.source and not re.search(rf"#\s*include\s*[<\"]{re.escape(header)}[>\"]", kernel.unit.text):
            kernel = _with_header(kernel, header)
    return kernel


def _with_header(kernel: Kernel, header: str) -> Kernel:
    """Returns the kernel with a header added to its file."""
    text = kernel.unit.text
    # Before the first one, which is above the kernel whatever conditions others stand under.
    included = re.search(r"^[ \t]*#[ \t]*include[ \t]*[<\"]", text, re.MULTILINE)
    above = included is not None and included.start() < kernel.start and "#if" not in text[: included.start()]
    line = f"#include <{header}>\n"
    if included is not None and above:
        return apply_edits(kernel, [(included.start(), included.start(), line)])
    # Below the comment on the file.
    head = re.match(r"\s*(?:(?://(?! ///)[^\n]*\n)+|/\*.*?\*/[ \t]*\n)", text, re.DOTALL)
    if head is not None:
        gap = "" if text[head.end() :].startswith("\n") else "\n"
        return apply_edits(kernel, [(head.end(), head.end(), f"\n{line}{gap}")])
    start = len(text) - len(text.lstrip())
    return apply_edits(kernel, [(start, start, f"{line}\n")])


def _without_needless_barriers(definition: str, helpers: str) -> str:
    """Returns the helpers without the first barrier of functions that a launch calls once: no earlier call reads."""
    pieces = definitions_of(helpers)
    lines = [line for line in helpers.split("\n") if line.strip() == GUARD]
    for number, piece in enumerate(pieces):
        name = re.search(r"^static __device__ [^\n(]*?\b(\w+)\(", piece, re.MULTILINE)
        if name is not None and lines and lines[0] in piece and _called_once(name[1], [*pieces, definition]):
            pieces[number] = piece.replace(f"{lines[0]}\n", "", 1)
    return "\n\n".join(pieces)


def _called_once(name: str, pieces: Sequence[str]) -> bool:
    """Returns True if a kernel calls a function at most once: outside of loops and other bodies, or in two branches of one test."""
    calls = [
        (piece, found)
        for piece in pieces
        for found in re.finditer(rf"\b{name}(?:<\w+>)?\(", piece)
        if not re.match(r"(?:static )?__device__ ", piece[piece.rfind("\n", 0, found.start()) + 1 :])
    ]
    callers = {piece for piece, _ in calls}
    if len(callers) != 1:
        return False
    (caller,) = callers
    lines = [caller[caller.rfind("\n", 0, found.start()) + 1 : found.start()] for _, found in calls]
    if any(re.match(r"\s*(?:for|while) \(", line) for line in lines):
        return False
    depths = [_open_bodies(caller[: found.start()]) for _, found in calls]
    if len(calls) == 2:
        between = caller[calls[0][1].end() : calls[1][1].start()]
        alternative = re.search(r"\}\s*else\s*\{[^{}]*$", between) is not None and between.count("}") == 1
        inner = [one and re.match(r"(?:if \(|\} else)", one[-1]) is not None and len(one) == 1 for one in depths]
        alone = alternative and all(inner)
    else:
        alone = len(calls) == 1 and not depths[0]
    if not alone:
        return False
    own = re.search(r"^static __device__ [^\n(]*?\b(\w+)\(", caller, re.MULTILINE)
    return own is None or _called_once(own[1], pieces)


def _open_bodies(text: str) -> list[str]:
    """Returns the heads of the bodies within a function that are open at the end of a text."""
    heads: list[str] = []
    for line in text.split("\n"):
        code = line.partition("//")[0].strip()
        if code.startswith("}") and heads:
            heads.pop()
        if code.count("{") > code.count("}") or re.fullmatch(r"\} else .*\{", code):
            heads.append(code)
    return heads[1:]


def _block_of_instances(
    kernel: Kernel, contract: Contract, written: WrittenKernel, block: tuple[str, ...]
) -> tuple[str, ...]:
    """Returns the block; if template arguments give the old number of threads, the old one.

    Raises:
        SourceError: the text is written for another number of threads than the template arguments give.
    """
    old, new = (_product(one) if all(side.isdigit() for side in one) else 0 for one in (contract.block, block))
    numbers = {int(one) for text in contract.instances for one in re.findall(r"(?<![\w.])\d+(?![\w.])", text)}
    if kernel.signature.template_parameters and old in numbers and new != old:
        text = written.definition + written.helpers
        if len(block) == 1 and "blockDim.x" in text and not re.search(rf"\b{new}\b", text):
            return contract.block  # any number of threads serves
        raise SourceError(
            f"The instances of {kernel.name} give {old} threads as a template argument, and the new block has {new}.",
            file=kernel.unit.path,
            line=kernel.line,
            hint="List instances with other numbers of threads in the contract.",
        )
    return block


def _used_constants(definition: str, helpers: str) -> str:
    """Returns the helpers without constants that nothing else uses; constants that a launch may use are kept."""
    lines = helpers.split("\n")
    kept = [line for line in lines if not _is_unused(line, definition + helpers)]
    return "\n".join(kept).strip("\n")


def _is_unused(line: str, text: str) -> bool:
    named = re.match(r"constexpr [\w ]+ (\w+) = ", line)
    return (
        named is not None
        and not line.endswith("// threads per block")
        and len(re.findall(rf"\b{named[1]}\b", text)) == 1
    )


def _with_launched_constants(kernel: Kernel, written: WrittenKernel, definition: str, helpers: str) -> tuple[str, str]:
    """Returns a kernel and its helpers, where launches see those of the kernel's constants that give their numbers.

    A constant becomes one of the file if the file has no other use for its name and no other constant has its value.
    """
    local = list(re.finditer(r"^[ \t]+constexpr int (\w+) = (\d+);((?:  //[^\n]*)?)\n", definition, re.MULTILINE))
    block = (written.block,) if isinstance(written.block, int) else written.block
    numbers = {*re.findall(r"(?<![\w.])\d+(?![\w.])", ", ".join([*written.grid, *map(str, block)]))}
    file = without_comments(kernel.unit.text)
    several = len(re.findall(r"\b__global__\b", file)) > 1
    if several or not kernel.launches or not is_seen(kernel):
        return definition, helpers
    values = [*(one[2] for one in local), *re.findall(r"^constexpr int \w+ = (\d+);", helpers, re.MULTILINE)]
    moved: list[str] = []
    for one in local:
        used = re.search(rf"\b{one[1]}\b", file + helpers)
        if one[2] in numbers and one[2] != "1" and values.count(one[2]) == 1 and used is None and one[3]:
            definition = definition.replace(one[0], "", 1)
            moved.append(one[0].strip())
    if not moved:
        return definition, helpers
    definition = re.sub(r"(\{\n)\n+", r"\1", definition, count=1)
    first = re.match(r"(?:constexpr [^\n]*\n?)*", helpers)
    assert first is not None
    rest = helpers[first.end() :].lstrip("\n")
    return definition, "\n".join([*first[0].strip().split("\n"), *moved]).strip() + f"\n\n{rest}" * bool(rest)


def _with_shared_helpers(kernel: Kernel, definition: str, helpers: str) -> tuple[str, str]:
    """Returns a kernel and its helpers without helpers that the file has from an earlier generated kernel."""
    above = kernel.unit.text[: kernel.start]
    for piece in helpers.split("\n\n"):
        numbered = re.search(r"^(?:static )?__device__ [^\n(]*?\b((\w+?)_\d+)\(", piece, re.MULTILINE)
        if numbered is None or not piece.endswith("\n}"):
            continue
        plain = re.sub(rf"\b{numbered[1]}\b", numbered[2], piece)
        if _in_own_comments(kernel, _linked_as_needed(kernel, plain)) in above:
            helpers = "\n\n".join(one for one in helpers.split("\n\n") if one != piece)
            definition, helpers = (re.sub(rf"\b{numbered[1]}\b", numbered[2], one) for one in (definition, helpers))
    return definition, helpers


def _linked_as_needed(kernel: Kernel, helpers: str) -> str:
    """Returns the helpers without `static` if they are placed in an unnamed namespace, which has the same effect."""
    unnamed = any(re.fullmatch(r"namespace\s*\{", one) for one in open_scopes(kernel.unit.text[: kernel.start]))
    width = width_of(kernel.unit.text)
    return with_qualifiers(helpers, GENERATED.removeprefix("static "), width) if unnamed else helpers


_LINE_COMMENTS = re.compile(r"^[ \t]*// [^\n]*(?:\n[ \t]*// [^\n]*)*$|(?<=\S)[ \t]+// [^\n]*$", re.MULTILINE)


def _in_own_comments(kernel: Kernel, text: str) -> str:
    """Returns a generated text with its comments between `/*` and `*/` if the file has no others outside of contracts."""
    file = without_contracts(kernel.unit.text)
    if "/*" not in file or re.search(r"(?<!:)//", re.sub(r"/\*.*?\*/", "", file, flags=re.DOTALL)):
        return text
    width = width_of(kernel.unit.text)

    def between(found: re.Match[str]) -> str:
        lines = [one.strip().removeprefix("//").strip() for one in found[0].strip().split("\n")]
        lead = found[0][: len(found[0]) - len(found[0].lstrip())]
        if (
            not found[0].startswith(("\t", " ", "//"))
            or text[text.rfind("\n", 0, found.start()) + 1 : found.start()].strip()
        ):
            return f"{lead}/* {lines[0]} */"
        filled = textwrap.wrap(" ".join(lines), width - len(lead) - 6, break_long_words=False, break_on_hyphens=False)
        return f"{lead}/* " + f"\n{lead}   ".join(filled) + " */"

    return _LINE_COMMENTS.sub(between, text)


def _with_grid_comment(kernel: Kernel, written: WrittenKernel, grid: tuple[str, ...]) -> Kernel:
    """Adds a comment on what the grid counts to the contract: after the grid, or above it if the line is too long."""
    if not written.grid_comment or kernel.contract_span is None or len(grid) != 1:
        return kernel
    start, end = kernel.contract_span
    line = re.search(rf'^//\s*grid = "{re.escape(grid[0])}"$', kernel.unit.text[start:end], re.MULTILINE)
    if line is None:
        return kernel
    if len(line[0]) + len(f"  # {written.grid_comment}") > width_of(kernel.unit.text):
        place, comment = start + line.start(), f"// # {written.grid_comment}\n"
    else:
        place, comment = start + line.end(), f"  # {written.grid_comment}"
    return apply_edits(kernel, [(place, place, comment)])


def _with_limit_comment(old: Kernel, kernel: Kernel, written: WrittenKernel) -> Kernel:
    """Adds the reason for the largest number of blocks to its new declaration in the host code: beside it, or above it."""
    comment = written.grid_comment.rpartition("; ")[2]
    found = re.search(r"^([ \t]*)const int (?:max_blocks|maxBlocks) = [^;\n]*;$", kernel.unit.text, re.MULTILINE)
    if not comment or found is None or found[0] in old.unit.text:
        return kernel
    line = "\n".join(folded(f"{found[0]}  // {comment}", width_of(old.unit.text)))
    return apply_edits(kernel, [(*found.span(), _in_own_comments(old, line))])


def _grid(contract: Contract, written: WrittenKernel, block: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the grid without redundant parentheses, or the contract's grid if it is always equal."""
    sides = tuple(ast.unparse(ast.parse(one, mode="eval")) for one in written.grid)
    if block == contract.block and len(sides) == len(contract.grid):
        length = dict(zip(("block_x", "block_y", "block_z"), [*block, "1", "1"], strict=False))
        length["block"] = str(_product(block)) if all(side.isdigit() for side in block) else "block"
        if all(
            always_equal(contract, _filled(old, length), _filled(new, length))
            for old, new in zip(contract.grid, sides, strict=True)
        ):
            return contract.grid
    return sides


def _product(sides: tuple[str, ...]) -> int:
    result = 1
    for side in sides:
        result *= int(side)
    return result


def _filled(expression: str, names: dict[str, str]) -> str:
    return re.sub(r"\bblock(?:_[xyz])?\b", lambda name: names[name[0]], expression)


_LICENCE = re.compile(r"copyright|licen[cs]e|SPDX|all rights reserved|@file", re.IGNORECASE)


def _above_comment(text: str, start: int) -> int:
    """Returns the offset above the comments directly before an offset; a licence at the file's start is skipped."""
    place = start
    while place > 0:
        before = text.rfind("\n", 0, place - 1) + 1
        line = text[before:place].strip()
        if line.endswith("*/"):
            before = text.rfind("\n", 0, text.rfind("/*", 0, place) + 1) + 1
            line = text[before:place].strip()
        if not line.startswith(("//", "/*")):
            return place
        place = before
    return start if _LICENCE.search(text[:start]) else 0
