"""Generates a Python file that launches a new kernel on CuPy arrays and compares it with its reference."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from kernelmate.errors import UsageError
from kernelmate.records import Argument, Contract

_BOUNDS = {"bool": (0, 2), "int8": (-128, 128), "uint8": (0, 256)}
"""Ranges of random integers in the example's arrays; wider types have 0 to 99."""


def example_text(contract: Contract, path: Path, takes: Sequence[str]) -> str:
    """Returns the file's text.

    Args:
        contract: the contract of the kernel; its reference is a function.
        path: the kernel's file, in the folder of the example.
        takes: the reference's parameters.

    Raises:
        UsageError: CuPy has no arrays of one of the dtypes.
    """
    brain = next((one for one in contract.args if one.dtype == "bfloat16"), None)
    if brain is not None:
        raise UsageError(f"--example: CuPy has no bfloat16, which {brain.name} has.", hint="Leave out --example.")
    where, _, function = (contract.reference or "").rpartition(":")
    called = {*_words(contract.grid), *(word for one in contract.args for word in _words(one.shape or ()))}
    arrays = [one for one in contract.args if one.shape is not None]
    lines = [
        f'"""Launches {contract.kernel} of {path.name} by CuPy, and holds it against {function} of {Path(where).name}."""',
        "",
        "import sys",
        "from pathlib import Path",
        "",
        "import cupy as cp",
        "import numpy as np",
        "",
        "folder = Path(__file__).resolve().parent",
        f"sys.path.insert(0, str((folder / {_quoted(where)}).parent))",
        f"from {Path(where).stem} import {function} as reference  # noqa: E402",
        "",
        *(["", *_CDIV, "", ""] if "cdiv" in called else []),
        *(f"{name} = {value}" for name, value in contract.sizes[0].items()),
        *(f"{one.name} = {one.value}" for one in contract.args if one.shape is None and one.value is not None),
        *(f"{one.name} = {_array(one)}" for one in arrays),
        "",
        f'kernel = cp.RawKernel((folder / "{path.name}").read_text(), "{contract.kernel}", options=("--std=c++17",))',
        f"block = {contract.block[0]}",
        f"kernel({_tuple(contract.grid)}, (block,), ({', '.join(map(_passed, contract.args))}))",
        "",
        *_held(contract, takes),
    ]
    return "\n".join(lines) + "\n"


_CDIV = ("def cdiv(a, b):", "    return -(-a // b)")


def _words(texts: tuple[str, ...]) -> set[str]:
    return {word for text in texts for word in re.findall(r"\w+", text)}


def _quoted(text: str) -> str:
    return f'"{text}"'


def _tuple(sides: tuple[str, ...]) -> str:
    return f"({', '.join(sides)}{',' if len(sides) == 1 else ''})"


def _array(argument: Argument) -> str:
    shape = _tuple(argument.shape or ())
    dtype = f"cp.{'bool_' if argument.dtype == 'bool' else argument.dtype}"
    if argument.direction in ("out", "scratch"):
        return f"cp.{argument.distribution or 'empty'}({shape}, {dtype})"
    if argument.dtype.startswith("float"):
        return f"cp.random.standard_normal({shape}).astype({dtype})"
    low, high = map(str, _BOUNDS.get(argument.dtype, (0, 100)))
    drawn = re.fullmatch(r"integers\(([^,]+),([^,]+)\)", argument.distribution or "")
    if drawn is not None:
        low, high = drawn[1].strip(), drawn[2].strip()
    return f"cp.random.randint({low}, {high}, {shape}).astype({dtype})"


def _passed(argument: Argument) -> str:
    return argument.name if argument.shape is not None else f"np.{argument.dtype}({argument.name})"


def _on_host(argument: Argument) -> str:
    """Returns the text of an argument in the form that the reference takes: floating arrays in float64."""
    if argument.shape is None:
        return argument.name
    return f"{argument.name}.get(){'.astype(np.float64)' if argument.dtype.startswith('float') else ''}"


def _held(contract: Contract, takes: Sequence[str]) -> list[str]:
    """Returns lines that print each result's deviation from the reference."""
    results = [one.name for one in contract.args if one.direction == "out"]
    given = [f"{one.name}={_on_host(one)}" for one in contract.args if one.name in takes]
    return [
        f"wanted = reference({', '.join(given)})",
        f"for name, got, want in zip(({', '.join(map(_quoted, results))},), {_tuple(tuple(results))}, {'wanted' if len(results) > 1 else '(wanted,)'}):",
        '    print(f"{name}: at most {np.abs(got.get() - np.asarray(want, np.float64)).max():.3g} from the reference")',
    ]
