"""What a kernel must compute: the contract's reference, in float64, on inputs rounded to their dtype first."""

from __future__ import annotations

import ast
import inspect
import keyword
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from kernelmate.checks.kinds import Array, Arrays, is_float, is_inexact, wide
from kernelmate.checks.userfiles import call_user, load_function
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Contract, Size
from kernelmate.source import argument_shapes, numpy_dtype, scalar_values

Expected = dict[str, Array]


class Reference(Protocol):
    """What says which outputs are right."""

    def __call__(self, arrays: Arrays, size: Size, working: np.dtype[Any] | None = None) -> Expected:
        """Every out and inout array for these inputs, floats in float64.

        Args:
            arrays: inputs by argument, as the kernel gets them or moved a little.
            size: the size they belong to.
            working: the floating dtype to compute in; None is float64. A kernel computes as it does.

        Raises:
            ReferenceFailed: it raised, or gave something else than the contract says.
        """
        ...


_FORBIDDEN = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.JoinedStr)
_FILES = frozenset(
    {
        "load", "save", "savez", "savez_compressed", "savetxt", "loadtxt", "genfromtxt", "fromregex", "fromfile",
        "tofile", "dump", "dumps", "memmap", "ctypeslib", "f2py", "testing", "lib", "DataSource", "ctypes",
    }
)  # fmt: skip
"""What NumPy has that reaches beyond arrays: an expression has no use for it."""


def python_reference(contract: Contract, directory: Path) -> Reference | None:
    """The contract's reference where it is Python, else None.

    Raises:
        ReferenceFailed: its file or function cannot be loaded, or its expression reaches for what it may not.
    """
    if contract.reference_kind == "function":
        function = load_function(contract.reference or "", directory, contract.line)
        return lambda arrays, size, working=None: _by_function(
            contract, function, _values(contract, arrays, size, working), size, directory
        )
    if contract.reference_kind == "expression":
        code = _checked_expression(contract)
        return lambda arrays, size, working=None: _by_expression(
            contract, code, _values(contract, arrays, size, working), size, directory
        )
    return None


def _values(contract: Contract, arrays: Arrays, size: Size, working: np.dtype[Any] | None) -> dict[str, Any]:
    """Sizes, scalars and arrays by name; a word of Python gets a trailing `_`.

    Arrays are copies, since references may write to what they get.
    """
    dtypes = {a.name: a.dtype for a in contract.args}
    scalars = {name: _scalar(dtypes[name], value) for name, value in scalar_values(contract, size).items()}
    wider = {name: wide(array, working) for name, array in arrays.items()}
    return {_spelled(name): value for name, value in {**dict(size), **scalars, **wider}.items()}


def _spelled(name: str) -> str:
    return name + "_" if keyword.iskeyword(name) else name


def _scalar(dtype: str, value: float) -> Any:
    """A scalar as the kernel gets it: rounded to its dtype, then widened."""
    rounded = np.asarray(value).astype(numpy_dtype(dtype))
    return float(rounded) if is_float(rounded.dtype) else rounded.item()


def _by_function(
    contract: Contract, function: Callable[..., Any], values: dict[str, Any], size: Size, directory: Path
) -> Expected:
    parameters = inspect.signature(function).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    given = {name: value for name, value in values.items() if takes_all or name in parameters}
    missing = [
        p.name
        for p in parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and p.name not in given
    ]
    if missing:
        raise ReferenceFailed(
            f"The reference {contract.reference} takes {', '.join(missing)}, and the kernel has no such argument.",
            line=contract.line,
            hint=f"It may name {', '.join(values)}.",
        )
    with np.errstate(all="ignore"):
        return _shaped(contract, call_user(function, given, contract.reference or "", directory), size)


def _checked_expression(contract: Contract) -> Any:
    text = contract.reference or ""
    tree = ast.parse(text, mode="eval")
    known = {"np", *contract.sizes[0], *(_spelled(a.name) for a in contract.args)}
    known |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    known |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        hidden = isinstance(node, ast.Attribute) and (node.attr.startswith("_") or node.attr in _FILES)
        unknown = isinstance(node, ast.Name) and node.id not in known
        if hidden or unknown or isinstance(node, _FORBIDDEN):
            raise ReferenceFailed(
                f"The reference expression {text!r} may use NumPy's array functions and the arguments only.",
                line=contract.line,
                hint="Write a function in a Python file, and name it as path:function.",
            )
    return compile(tree, "<reference>", "eval")


def _by_expression(contract: Contract, code: Any, values: dict[str, Any], size: Size, directory: Path) -> Expected:
    def evaluate() -> Any:
        # The names were checked; NumPy itself needs the builtins, since its methods import on first use.
        return eval(code, {"np": np, **values})  # noqa: S307

    with np.errstate(all="ignore"):
        return _shaped(contract, call_user(evaluate, {}, contract.reference or "", directory), size)


def _shaped(contract: Contract, returned: Any, size: Size) -> Expected:
    """What a reference returned, as one array per out and inout argument, of the contract's shapes."""
    shapes = argument_shapes(contract, size)
    outputs = [a for a in contract.args if a.direction in ("out", "inout")]
    several = returned if isinstance(returned, tuple | list) else (returned,)
    if len(several) != len(outputs):
        raise ReferenceFailed(
            f"The reference {contract.reference} returned {len(several)} arrays, and the contract has {len(outputs)} out and inout "
            "arguments.",
            line=contract.line,
            hint=f"Return {' and '.join(a.name for a in outputs)}, in this order.",
        )
    expected: Expected = {}
    for argument, value in zip(outputs, several, strict=True):
        array = _numbers(contract, argument.name, value)
        if array.shape != shapes[argument.name]:
            raise ReferenceFailed(
                f"The reference {contract.reference} returned shape {list(array.shape)} for {argument.name}, and the contract says "
                f"{list(shapes[argument.name])} at {_size_text(size)}.",
                line=contract.line,
                hint="Return an array of the contract's shape.",
            )
        expected[argument.name] = _widely(array, numpy_dtype(argument.dtype))
    return expected


def _widely(array: Array, dtype: np.dtype[Any]) -> Array:
    """In the type that outputs of this dtype are compared in; integers as they are."""
    if not is_inexact(dtype):
        return array
    return array.astype(np.complex128 if dtype.kind == "c" else np.float64)


def _numbers(contract: Contract, name: str, value: Any) -> Array:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        array = np.asarray(None)
    what = "an array of objects" if isinstance(value, np.ndarray) else type(value).__name__
    if array.dtype.kind not in "biufcV":
        raise ReferenceFailed(
            f"The reference {contract.reference} returned no array of numbers for {name}, but {what}.",
            line=contract.line,
            hint="Return NumPy arrays.",
        )
    return array


def _size_text(size: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in size.items())
