"""The results of a reference whose contract has none yet: shapes, dtypes and the graph. Runs in the evaluator."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelmate.checks.precision import is_inexact
from kernelmate.checks.reference import named, spelled
from kernelmate.checks.userfiles import call_user, load_function
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Contract, Size
from kernelmate.source import argument_shapes, numpy_dtype, scalar_values
from kernelmate.synthesis.trace import trace


@dataclass(frozen=True, slots=True)
class Results:
    """Results of a reference.

    Attributes:
        graph: text of `Graph.text`; None if the reference cannot be traced.
        dtypes: the dtypes of each result, as the reference returns it for arrays of the contract's dtypes.
        refusal: the reason that it cannot be traced, with `file` and `line`.
    """

    graph: str | None
    dtypes: tuple[str, ...]
    refusal: str | None = None
    file: str | None = None
    line: int | None = None

    @staticmethod
    def of(text: str) -> Results:
        """Reads results from `traced_text`."""
        held = json.loads(text)
        return Results(**{**held, "dtypes": tuple(held["dtypes"])})


def traced_text(contract: Contract, directory: Path) -> str:
    """Return the graph of a contract's reference as text; for a contract without results its `Results`, as JSON.

    Raises:
        ReferenceFailed: the reference cannot be loaded, raises, or, where the contract has results, cannot be traced.
    """
    if any(one.direction in ("out", "inout") for one in contract.args):
        return trace(contract, directory).text()
    dtypes = _dtypes(contract, directory)
    try:
        results = Results(trace(contract, directory).text(), dtypes)
    except ReferenceFailed as error:
        results = Results(None, dtypes, error.message, error.file, error.line)
    return json.dumps(asdict(results))


def _dtypes(contract: Contract, directory: Path) -> tuple[str, ...]:
    """Returns the dtypes of the results, from a run at the smallest size on arrays of the contract's dtypes.

    Raises:
        ReferenceFailed: the reference raises, or returns something else than arrays of numbers.
    """
    size = min(contract.sizes, key=lambda one: sum(one.values()))
    try:
        returned = _returned(contract, directory, size)
    except ReferenceFailed as error:
        if size == contract.sizes[0]:
            raise
        _returned(contract, directory, contract.sizes[0])
        at = ", ".join(f"{name}={value}" for name, value in size.items())
        error.message = f"{error.message.rstrip('.')}, at {at}; at the example's size it does not."
        error.hint = f'Say what sizes must fulfil, as in --require "{next(iter(size))} % 4 == 0".'
        raise
    several = returned if isinstance(returned, tuple | list) else (returned,)
    return tuple(_dtype(contract, one) for one in several)


def _returned(contract: Contract, directory: Path, size: Size) -> Any:
    function = load_function(contract.reference or "", directory, contract.line)
    given = named(contract, inspect.signature(function).parameters, _values(contract, size))
    with np.errstate(all="ignore"):
        return call_user(function, given, contract.reference or "", directory)


def _values(contract: Contract, size: Size) -> dict[str, Any]:
    """Returns sizes, scalars, and arrays of ones; integers are zero, a valid index in every array."""
    shapes = argument_shapes(contract, size)
    values: dict[str, Any] = {**size, **scalar_values(contract, size)}
    for name, shape in shapes.items():
        dtype = numpy_dtype(next(one.dtype for one in contract.args if one.name == name))
        values[name] = np.full(shape, 1 if is_inexact(dtype) else 0, dtype)
    return {spelled(name): value for name, value in values.items()}


def _dtype(contract: Contract, value: Any) -> str:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        array = np.asarray(None)
    if array.dtype.kind not in "biufcV":
        raise ReferenceFailed(
            f"The reference {contract.reference} returned a {type(value).__name__}, which is not an array of numbers.",
            line=contract.line,
            hint="Return a NumPy array, or several as a tuple.",
        )
    return array.dtype.name
