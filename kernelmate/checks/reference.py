"""References of contracts, evaluated in float64 on inputs that were first rounded to their dtype."""

from __future__ import annotations

import ast
import inspect
import keyword
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from kernelmate.checks import reference_process
from kernelmate.checks.array_modules import module_for, narrow_type, rounded_number, with_array_module
from kernelmate.checks.canonical import canonical
from kernelmate.checks.device_arrays import DeviceArray, NotAvailable, unwrapped
from kernelmate.checks.evaluations import Expected, Reference
from kernelmate.checks.precision import Array, Arrays, is_float, is_fused, is_inexact, module_of, on_device, wide
from kernelmate.checks.reference_messages import Call
from kernelmate.checks.torch_reference import on_tensors, uses_torch
from kernelmate.checks.userfiles import call_user, load_function, note_helpers
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Contract, Size
from kernelmate.source import argument_shapes, numpy_dtype, scalar_values

_FORBIDDEN = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.JoinedStr)
_FILES = frozenset(
    {
        "load", "save", "savez", "savez_compressed", "savetxt", "loadtxt", "genfromtxt", "fromregex", "fromfile",
        "tofile", "dump", "dumps", "memmap", "ctypeslib", "f2py", "testing", "lib", "DataSource", "ctypes",
    }
)  # fmt: skip
"""NumPy names that access files; an expression must not use them."""


def python_reference(contract: Contract, directory: Path) -> Reference | None:
    """Returns the contract's reference if it is Python, else None.

    It runs in the reference process if there is one. For CuPy arrays, and for working types narrower than float64,
    NumPy is replaced in the function (`array_modules`), so that arrays and scalars it creates have that type as well.

    Raises:
        ReferenceFailed: its file or function cannot be loaded, or its expression uses a forbidden name.
    """
    process = reference_process.current()
    if process is not None and contract.reference_kind in ("function", "expression"):
        return _IsolatedReference(contract, directory, process)
    return _reference_here(contract, directory)


def _reference_here(contract: Contract, directory: Path) -> Reference | None:
    """Returns the reference in this process; see `python_reference`."""
    if contract.reference_kind == "function":
        function = load_function(contract.reference or "", directory, contract.line)
        return _PythonReference(contract, directory, _UserFunction(contract, function, directory))
    if contract.reference_kind == "expression":
        return _PythonReference(contract, directory, _Expression(contract, checked_expression(contract), directory))
    return None


class _IsolatedReference:
    """A reference in a separate process; arrays on a GPU cannot be sent there and are evaluated in this process."""

    def __init__(self, contract: Contract, directory: Path, process: reference_process.ReferenceProcess) -> None:
        self._contract, self._directory, self._process = contract, directory, process
        self._number, helpers = process.load(contract, directory)
        note_helpers(contract.reference, directory, helpers)
        self._here: Reference | None = None
        self._seconds: tuple[dict[str, int], float] = {}, math.inf

    def __call__(self, arrays: Arrays, size: Size, working: np.dtype[Any] | None = None) -> Expected:
        """Implements `Reference.__call__`."""
        return self.several([(arrays, working)], size)[0]

    def seconds(self, size: Size) -> float:
        """Implements `Batching.seconds`."""
        last, seconds = self._seconds
        return seconds if last == dict(size) else math.inf

    def several(self, calls: Sequence[Call], size: Size) -> list[Expected]:
        """Implements `Batching.several`."""
        if not any(on_device(array) for arrays, _ in calls for array in arrays.values()):
            begun = time.perf_counter()
            answers = self._process.evaluate(self._number, self._contract, calls, size)
            self._seconds = dict(size), (time.perf_counter() - begun) / len(calls)
            return answers
        self._here = self._here or _reference_here(self._contract, self._directory)
        assert self._here is not None
        return [self._here(arrays, size, working) for arrays, working in calls]


class _Callable(Protocol):
    """A reference's Python code, for arrays of one module and one floating type."""

    def __call__(self, values: dict[str, Any], size: Size, *, device: bool, working: np.dtype[Any] | None) -> Expected:
        """Returns the outputs for these values; `device` and `working` select the NumPy replacement."""
        ...


class _PythonReference:
    """A Python reference: implements `Reference` over a function or an expression."""

    def __init__(self, contract: Contract, directory: Path, python: _Callable) -> None:
        self._contract, self._directory, self._python = contract, directory, python

    def __call__(self, arrays: Arrays, size: Size, working: np.dtype[Any] | None = None) -> Expected:
        """Implements `Reference.__call__`."""
        return canonical(self._contract, size, self._answer(arrays, size, working), arrays)

    def _answer(self, arrays: Arrays, size: Size, working: np.dtype[Any] | None) -> Expected:
        """Returns the outputs as the reference gives them."""
        device = any(on_device(array) for array in arrays.values())
        narrower = working if working is not None and working.itemsize < 8 else None
        values = _values(self._contract, arrays, size, working)
        if device:
            DeviceArray.library = module_of(next(array for array in arrays.values() if on_device(array)))
            held = {n: DeviceArray(v, narrower) if on_device(v) else v for n, v in values.items()}
            return self._python(held, size, device=True, working=narrower)
        if narrower is None:
            return self._python(values, size, device=False, working=None)
        try:
            typed = {n: v.view(narrow_type(narrower)) if isinstance(v, np.ndarray) else v for n, v in values.items()}
            return self._python(typed, size, device=False, working=narrower)
        except ReferenceFailed:
            # Not every function accepts a subclass of NumPy's array.
            return self._python(_values(self._contract, arrays, size, working), size, device=False, working=None)


def _values(contract: Contract, arrays: Arrays, size: Size, working: np.dtype[Any] | None) -> dict[str, Any]:
    """Returns sizes, scalars and arrays by name; a name that is a Python keyword gets a trailing `_`.

    Arrays are copies, since references may modify their arguments.
    """
    dtypes = {a.name: a.dtype for a in contract.args}
    scalars = {name: _scalar(dtypes[name], value) for name, value in scalar_values(contract, size).items()}
    scalars |= {name: _scalar(dtypes[name], arrays[name].item()) for name in scalars if name in arrays}
    number = rounded_number(working)
    if number is not None:
        scalars = {name: number(value) if type(value) is float else value for name, value in scalars.items()}
    wider = {name: wide(array, working) for name, array in arrays.items() if name not in scalars}
    return {spelled(name): value for name, value in {**dict(size), **scalars, **wider}.items()}


def spelled(name: str) -> str:
    """Returns the parameter name of an argument in a reference: a trailing `_` is added to a Python keyword."""
    return name + "_" if keyword.iskeyword(name) else name


def _scalar(dtype: str, value: float) -> Any:
    """Returns a scalar as the kernel gets it: rounded to its dtype, then widened."""
    rounded = np.asarray(value).astype(numpy_dtype(dtype))
    return float(rounded) if is_float(rounded.dtype) else rounded.item()


class _UserFunction:
    """A reference that is a user's function."""

    def __init__(self, contract: Contract, function: Callable[..., Any], directory: Path) -> None:
        self._contract, self._function, self._directory = contract, function, directory
        self._of_torch = uses_torch(function)
        self._rebuilt: dict[tuple[bool, np.dtype[Any] | None, bool], Callable[..., Any]] = {}
        if not self._of_torch:
            self._rebuilt[False, None, False] = function

    @cached_property
    def _parameters(self) -> Parameters:
        return inspect.signature(self._function).parameters

    def __call__(self, values: dict[str, Any], size: Size, *, device: bool, working: np.dtype[Any] | None) -> Expected:
        """Implements `_Callable.__call__`."""
        contract = self._contract
        given = named(contract, self._parameters, values)
        key = device, working, is_fused(working)
        if key not in self._rebuilt and self._of_torch:
            self._rebuilt[key] = on_tensors(self._function, contract, device=device, working=working)
        elif key not in self._rebuilt:
            folder = (self._directory / (contract.reference or "").rpartition(":")[0]).parent
            self._rebuilt[key] = _with_module(
                contract, lambda: with_array_module(self._function, folder, device=device, working=working)
            )
        with np.errstate(all="ignore"):
            returned = call_user(self._rebuilt[key], given, contract.reference or "", self._directory)
            return _shaped(contract, returned, size, device=device)


Parameters = Mapping[str, inspect.Parameter]
"""A function's parameters, by name."""


def named(contract: Contract, parameters: Parameters, values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values that a function with these parameters takes by name.

    Raises:
        ReferenceFailed: it has a parameter that no value is given for.
    """
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
    return given


def _with_module(contract: Contract, make: Callable[[], Any]) -> Any:
    """Returns the result of `make`, with a clear error if the reference names a module that CuPy lacks.

    Raises:
        ReferenceFailed: CuPy lacks one.
    """
    try:
        return make()
    except NotAvailable as missing:
        raise ReferenceFailed(
            f"The reference {contract.reference!r} cannot run on a GPU: CuPy has no {missing}."
        ) from None


def checked_expression(contract: Contract) -> Any:
    """Returns the compiled expression of a contract.

    Raises:
        ReferenceFailed: it uses names beyond arrays and NumPy.
    """
    text = contract.reference or ""
    tree = ast.parse(text, mode="eval")
    known = {"np", *contract.sizes[0], *(spelled(a.name) for a in contract.args)}
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


class _Expression:
    """A reference that is a NumPy expression of the contract."""

    def __init__(self, contract: Contract, code: Any, directory: Path) -> None:
        self._contract, self._code, self._directory = contract, code, directory

    def __call__(self, values: dict[str, Any], size: Size, *, device: bool, working: np.dtype[Any] | None) -> Expected:
        """Implements `_Callable.__call__`."""
        contract, numpy = self._contract, np
        if device or working is not None:
            numpy = _with_module(contract, lambda: module_for(np, device=device, working=working))

        def evaluate() -> Any:
            # The names were checked; NumPy itself needs the builtins, since its methods import on first use.
            return eval(self._code, {"np": numpy, **values})  # noqa: S307

        with np.errstate(all="ignore"):
            returned = call_user(evaluate, {}, contract.reference or "", self._directory)
            return _shaped(contract, returned, size, device=device)


def _shaped(contract: Contract, returned: Any, size: Size, *, device: bool = False) -> Expected:
    """Converts a reference's result to one array per out and inout argument, of the contract's shapes."""
    shapes = argument_shapes(contract, size)
    outputs = [a for a in contract.args if a.direction in ("out", "inout")]
    several = returned if isinstance(returned, tuple | list) else (returned,)
    if len(several) != len(outputs):
        raise ReferenceFailed(
            f"The reference {contract.reference} returned {len(several)} arrays, and the contract has {len(outputs)} out and inout "
            "arguments.",
            line=contract.line,
            hint=f"Return {' and '.join(a.name for a in outputs)}, in this order."
            if outputs
            else "Write out or inout for the arrays that the kernel writes.",
        )
    expected: Expected = {}
    for argument, value in zip(outputs, several, strict=True):
        array = _numbers(contract, argument.name, value, device=device)
        if array.shape == () and shapes[argument.name] == (1,):
            array = array.reshape(1)
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
    """Converts to the type in which outputs of this dtype are compared, contiguous; integers are unchanged."""
    wanted = np.dtype(np.complex128 if dtype.kind == "c" else np.float64) if is_inexact(dtype) else array.dtype
    return module_of(array).ascontiguousarray(array, wanted)  # type: ignore[no-any-return]


def _numbers(contract: Contract, name: str, value: Any, *, device: bool) -> Array:
    try:
        array = DeviceArray.library.asarray(unwrapped(value)) if device else np.asarray(value)
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
