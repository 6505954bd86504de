"""Other constants for Triton kernels: warps, stages, block sizes, and configurations of `autotune`."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from kernelmate.errors import KernelmateError, SourceError
from kernelmate.records import Contract, Kernel, MetricName
from kernelmate.source import parse_contract, same_kernel, with_text
from kernelmate.source.triton import SETTINGS, function_definitions, function_of, parsed, with_launch_values
from kernelmate.source.triton_modules import library_names

METRICS: frozenset[MetricName] = frozenset({"time", "registers", "shared_bytes", "occupancy", "local_bytes"})
"""Metrics that a kernel's constants affect."""

MOST_WARPS, MOST_STAGES = 16, 5
LEAST_BLOCK = 16
"""Smallest value of a constant that is treated as a block size; tensor cores need at least 16."""

_PYTHON = ("range", "min", "max", "float", "int", "len", "print")
"""Functions of Python that kernels call."""


def setting_changes(kernel: Kernel, values: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yields sets of values that differ from the present ones, configurations of `autotune` first.

    The others are of `num_warps`, lengths of blocks doubled and halved, and `num_stages` of a kernel with products in a loop.
    """
    seen: set[tuple[tuple[str, str], ...]] = set()
    for changes in _all_changes(kernel, values):
        own = {name: value for name, value in changes.items() if values.get(name) != value and name in values}
        key = tuple(sorted(own.items()))
        if own and key not in seen:
            seen.add(key)
            yield own


def _all_changes(kernel: Kernel, values: Mapping[str, str]) -> Iterator[dict[str, str]]:
    for configuration in function_of(kernel).configurations:
        yield dict(configuration)
    warps, stages = int(values["num_warps"]), int(values["num_stages"])
    for other in (warps * 2, warps // 2, warps * 4):
        if 1 <= other <= MOST_WARPS:
            yield {"num_warps": str(other)}
    for name, value in values.items():
        if name in SETTINGS or not value.isdigit():
            continue
        length = int(value)
        if length >= LEAST_BLOCK and length & (length - 1) == 0:
            yield {name: str(2 * length)}
            yield {name: str(2 * length), "num_warps": str(min(2 * warps, MOST_WARPS))}
            if length > LEAST_BLOCK:
                yield {name: str(length // 2)}
    if _has_stages(kernel):
        yield from ({"num_stages": str(other)} for other in range(1, MOST_STAGES + 1) if other != stages)


def _has_stages(kernel: Kernel) -> bool:
    """Returns True if a loop has products, which a function that it calls may have.

    Of loops without `tl.dot`, Triton 3.9 generates the same code for all numbers of stages of a launch.
    """
    tree, line = parsed(kernel.unit.text), function_of(kernel).line
    assert tree is not None, "a kernel is a function of a tree"
    function = next(one for one in function_definitions(tree) if one.lineno == line)
    libraries = library_names(kernel)
    calls = (
        ast.unparse(call.func)
        for loop in ast.walk(function)
        if isinstance(loop, ast.For | ast.While)
        for call in ast.walk(loop)
        if isinstance(call, ast.Call)
    )
    names = ((name, name.partition(".")[0]) for name in calls)
    return any(
        re.fullmatch(r"(.*\.)?dot(_scaled)?", name)
        or (first == name and first not in libraries and first not in _PYTHON)
        for name, first in names
    )


def change_reason(values: Mapping[str, str], changes: Mapping[str, str]) -> str:
    """Returns the reason of a change of values: the new ones and the old ones."""
    words = {"num_warps": "warps of a block", "num_stages": "stages of loads ahead"}
    changed = [f"{value} {words.get(name, f'as {name}')} in place of {values[name]}" for name, value in changes.items()]
    return ", ".join(changed)


def with_values(
    kernel: Kernel, values: Mapping[str, str], changes: Mapping[str, str]
) -> tuple[Kernel, Contract] | None:
    """Returns the kernel with other values in its contract and its launches; None if they cannot be written."""
    if kernel.contract_span is None:
        return None
    start, end = kernel.contract_span
    text = kernel.unit.text
    block = text[start:end]
    for name, value in changes.items():
        quoted = re.compile(rf"(\"|'){re.escape(name)}[ \t]*=[ \t]*{re.escape(values[name])}\1")
        if quoted.search(block):
            block = quoted.sub(rf"\g<1>{name}={value}\g<1>", block, count=1)
        else:
            block = _with_option(block, f"{name}={value}")
    try:
        changed = with_launch_values(text[:start] + block + text[end:], kernel.name, changes)
        new = same_kernel(kernel, with_text(kernel.unit, changed))
        contract = parse_contract(new)
    except KernelmateError:
        return None
    return None if contract is None else (new, contract)


def with_key(kernel: Kernel, key: str, entries: Sequence[str]) -> Kernel:
    """Returns the kernel with a list of texts as a key of its contract.

    Raises:
        SourceError: the kernel has no contract in its file, or is gone with the new text.
    """
    if kernel.contract_span is None:
        raise SourceError(f"{kernel.name} has no contract to be changed.", file=kernel.unit.path)
    start, end = kernel.contract_span
    block, text = kernel.unit.text[start:end], kernel.unit.text
    written = f"{key} = [{', '.join(json.dumps(one) for one in entries)}]"
    listed = re.search(rf"^([ \t]*#[ \t]*){key}[ \t]*=[ \t]*(?:\[.*?\]|[^\n]*)", block, re.MULTILINE | re.DOTALL)
    if listed is not None:
        block = block[: listed.start()] + listed[1] + written + block[listed.end() :]
    else:
        opening, _, rest = block.partition("\n")
        block = f"{opening}\n{opening[: opening.index('#')]}# {written}\n{rest}"
    return same_kernel(kernel, with_text(kernel.unit, text[:start] + block + text[end:]))


def _with_option(block: str, option: str) -> str:
    """Returns a contract's text with one more option."""
    listed = re.search(r"^([ \t]*#[ \t]*options[ \t]*=[ \t]*\[)(.*?)\]", block, re.MULTILINE | re.DOTALL)
    if listed is not None:
        inner = f'{listed[2].rstrip().rstrip(",")}, "{option}"' if listed[2].strip() else f'"{option}"'
        return block[: listed.start()] + f"{listed[1]}{inner}]" + block[listed.end() :]
    opening, _, rest = block.partition("\n")
    head = opening[: opening.index("#")] + "# "
    return f'{opening}\n{head}options = ["{option}"]\n{rest}'
