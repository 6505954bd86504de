"""Launches of a Triton kernel in Triton's syntax: `k[grid](x, y, n, BLOCK=1024)`."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernelmate.errors import ContractError, UsageError
from kernelmate.records import Contract, Kernel, LaunchShape
from kernelmate.source import launch_shape
from kernelmate.source.triton import function_of
from kernelmate.source.triton_contract import values_of
from kernelmate_widgets.cells import short_name


def triton_arguments(
    kernel: Kernel, contract: Contract, values: Sequence[object], named: Mapping[str, object]
) -> list[object]:
    """Return the values of a launch's arguments, in the order of the contract's arguments.

    Args:
        kernel: the jitted function.
        contract: the contract, which has the judged constants.
        values: positional arguments, in the order of the function's parameters.
        named: keyword arguments: parameters, constants and settings such as `num_warps`.

    Raises:
        UsageError: an argument is missing, given twice or unknown, or a constant differs from the judged one.
    """
    name = short_name(kernel)
    parameters = [one.name for one in function_of(kernel).parameters]
    if len(values) > len(parameters):
        raise UsageError(
            f"{name} takes {len(parameters)} arguments ({', '.join(parameters)}); {len(values)} were given.",
            hint="Give the arguments in the function's order.",
        )
    given = dict(zip(parameters, values, strict=False))
    twice = next((one for one in named if one in given), None)
    if twice is not None:
        raise UsageError(f"{name} is given {twice} twice.", hint="Give it by its position or by its name.")
    given |= named
    judged = values_of(contract)
    unknown = next((one for one in given if one not in parameters and one not in judged), None)
    if unknown is not None:
        raise UsageError(f"{name} has no parameter {unknown}.", hint=f"It has {', '.join(parameters)}.")
    for one, text in judged.items():
        if one in given and not _is_judged(given[one], text):
            raise UsageError(
                f"{one} = {given[one]} is not what was judged: {one} = {text}.",
                hint="Leave it out, or change `options` in the contract and run the cell again.",
            )
    missing = [one.name for one in contract.args if one.name not in given]
    if missing:
        raise UsageError(
            f"{name} is launched without {', '.join(missing)}.", hint="Give each argument of the contract."
        )
    return [given[one.name] for one in contract.args]


def triton_shape(kernel: Kernel, grid: Any, contract: Contract) -> LaunchShape:
    """Return the launch for a Triton grid: a number, a tuple of up to three, or a function of the constants.

    Raises:
        UsageError: the value is not a grid.
    """
    if callable(grid):
        grid = grid({name: _value(text) for name, text in values_of(contract).items()})
    sides = grid if isinstance(grid, tuple | list) else (grid,)
    if not 1 <= len(sides) <= 3 or not all(hasattr(one, "__index__") and not isinstance(one, bool) for one in sides):
        raise UsageError(
            f"{grid!r} is not a grid.", hint=f"Write {short_name(kernel)}[(blocks,)](...), with up to three numbers."
        )
    fixed = replace(contract, grid=tuple(str(int(one)) for one in sides))
    try:
        return launch_shape(fixed, contract.sizes[0])
    except ContractError as error:
        raise UsageError(error.message, hint=error.hint) from None


def _is_judged(value: object, text: str) -> bool:
    """Returns True if a constant equals the judged one; types such as `tl.float32` are compared by name."""
    expected = _value(text)
    if isinstance(expected, str) and not isinstance(value, str):
        return str(value).rpartition(".")[2] in (expected.rpartition(".")[2], _SHORT.get(expected.rpartition(".")[2]))
    return type(value) is not bool and value == expected if not isinstance(expected, bool) else value is expected


_SHORT = {"float16": "fp16", "float32": "fp32", "float64": "fp64", "bfloat16": "bf16"}
"""Triton's short names of its types."""


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
