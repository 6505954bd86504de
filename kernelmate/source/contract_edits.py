"""Writes a contract into its block, or a new block above its kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernelmate.records import Contract, Kernel
from kernelmate.source.blocks import ContractBlock, block_of
from kernelmate.source.contract import parse_contract, uses_no_dynamic_shared
from kernelmate.source.document import Document
from kernelmate.source.line_ends import normal_text
from kernelmate.source.python import with_python_file
from kernelmate.source.render import number_or_text, render_contract, side_list, string_list
from kernelmate.source.rewrite import apply_edits, same_kernel


def write_contract(kernel: Kernel, contract: Contract, origins: Mapping[str, str] | None = None) -> Kernel:
    """Returns the kernel with this contract as its block, within its changed unit.

    An existing block is replaced in place; if only grid, block, shared or require differ, or a reference is added, only
    those values change, and comments and layout stay. A new block goes above the kernel and its template line, with the `origins` of
    an inferred contract's lines as comments.

    Raises:
        ContractError: the existing block cannot be read.
        SourceError: the text cannot be written.
    """
    block = block_of(kernel)
    if block is None:
        start = _line_start(kernel.unit.text, kernel.start)
        written = render_contract(contract, "cuda", indent=_indent(kernel.unit.text, start), origins=origins)
        return apply_edits(kernel, [(start, start, written)])
    edits = _value_edits(kernel, block, contract)
    if edits is None:
        return _replace_block(kernel, block, contract)
    edited = _edit_block(kernel, block, edits)
    current = parse_contract(kernel)
    ended = current is not None and current.shared != contract.shared == "0"
    return _without_shared(edited) if ended and uses_no_dynamic_shared(edited) else edited


def _without_shared(kernel: Kernel) -> Kernel:
    """Removes a redundant `shared = 0` line from a kernel's block."""
    block = block_of(kernel)
    if block is None or block.span is None:
        return kernel
    start, end = block.span
    match = re.search(r"^[ \t]*//[ \t]*shared[ \t]*=[ \t]*0[ \t]*\n", kernel.unit.text[start:end], re.MULTILINE)
    return kernel if match is None else apply_edits(kernel, [(start + match.start(), start + match.end(), "")])


def _line_start(text: str, offset: int) -> int:
    return text.rfind("\n", 0, offset) + 1


def _indent(text: str, start: int) -> str:
    end = start
    while end < len(text) and text[end] in " \t":
        end += 1
    return text[start:end]


def _replace_block(kernel: Kernel, block: ContractBlock, contract: Contract) -> Kernel:
    named = block.kernel_key is not None
    if block.span is not None:
        indent = _indent(kernel.unit.text, block.span[0])
        return apply_edits(kernel, [(*block.span, render_contract(contract, "cuda", named=named, indent=indent))])
    lines = normal_text(kernel.unit.file_text or "").split("\n")
    first = block.file_position(block.opening.line, None)[0]
    last = first + len(block.lines) + (1 if block.closed else 0)
    indent = _indent(lines[first - 1], 0)
    written = render_contract(contract, "python", named=named, indent=indent).rstrip("\n").split("\n")
    changed = "\n".join([*lines[: first - 1], *written, *lines[last:]])
    return same_kernel(kernel, with_python_file(kernel.unit, changed))


def _value_edits(kernel: Kernel, block: ContractBlock, contract: Contract) -> list[tuple[int, int, str]] | None:
    """Returns replacements in the block's TOML if only keys differ that a candidate may change; else None."""
    current = parse_contract(kernel)
    if current is None or (current.reference is not None and contract.reference != current.reference):
        return None
    same = replace(contract, grid=current.grid, block=current.block, shared=current.shared, require=current.require)
    same = replace(same, reference=current.reference, reference_kind=current.reference_kind)
    if same != replace(
        current, line=contract.line, inferred=contract.inferred, guessed=contract.guessed, indexed=contract.indexed
    ):
        return None
    document = Document.read(block)
    wanted = {
        "grid": side_list(contract.grid),
        "block": side_list(contract.block),
        "shared": number_or_text(contract.shared),
        "require": string_list(contract.require),
        "reference": "" if contract.reference is None else number_or_text(contract.reference),
    }
    edits = []
    for key, value in wanted.items():
        if getattr(contract, key) == getattr(current, key):
            continue
        span = document.spans.get((key,))
        if span is not None and "\n" not in document.text[span.value : span.end]:
            edits.append((span.value, span.end, value))
        elif span is None:
            after = document.spans[("block",)].end
            end = document.text.find("\n", after)
            end = len(document.text) if end < 0 else end
            edits.append((end, end, f"\n{key} = {value}"))
        else:
            return None
    return edits


def _edit_block(kernel: Kernel, block: ContractBlock, edits: Sequence[tuple[int, int, str]]) -> Kernel:
    """Applies edits of the TOML to the comment lines that contain it."""
    toml = block.toml
    changes = []
    for start, end, new in sorted(edits):
        row = toml.count("\n", 0, start)
        line = block.lines[row]
        column = line.column + start - (toml.rfind("\n", 0, start) + 1)
        marker = "//" if block.span is not None else "#"
        lead = "" if not new.startswith("\n") else new
        changes.append((line.line, column, end - start, new if not lead else lead.replace("\n", f"\n\0{marker} ")))
    if block.span is None:
        lines = normal_text(kernel.unit.file_text or "").split("\n")
        shift = (kernel.unit.contract_line or 1) - 1
        for line_number, column, width, new in reversed(changes):
            index = line_number + shift - 1
            text = lines[index]
            new = new.replace("\0", _indent(text, 0))
            lines[index] = text[: column - 1] + new + text[column - 1 + width :]
        return same_kernel(kernel, with_python_file(kernel.unit, "\n".join(lines)))
    starts = _starts(kernel.unit.text)
    located = [
        (
            starts[line_number - 1] + column - 1,
            starts[line_number - 1] + column - 1 + width,
            new.replace("\0", _indent(kernel.unit.text, starts[line_number - 1])),
        )
        for line_number, column, width, new in changes
    ]
    return apply_edits(kernel, located)


def _starts(text: str) -> list[int]:
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    return starts
