"""Kernels of Numba: their source, the code that Numba compiles them to, and how it passes their arguments.

Numba passes a scalar as it is, and an array as values of its own (numba/core/datamodel/models.py, ArrayModel): two addresses
that a GPU does not use, the number of elements and the bytes of one, the address of the first, the extents, and the strides in
bytes, 64 bits each.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernelmate.errors import UsageError
from kernelmate.records import (
    Argument,
    BuiltCode,
    Contract,
    Kernel,
    Member,
    Parameter,
    Passed,
    Signature,
    Target,
    Unit,
)
from kernelmate.source.dtypes import ITEM_BYTES
from kernelmate_widgets.arrays import live_array

_ARRAY = "{name}_{field}"


def is_numba(value: object) -> bool:
    """Returns True for a kernel made by `numba.cuda.jit`, that of Numba's CUDA simulator included."""
    return type(value).__module__.startswith("numba.cuda.") and hasattr(_plain(value), "__code__")


def numba_kernel(value: Any, text: str) -> Kernel:
    """Returns a Numba kernel with the text of the cell or file that defines it; its parameters have no types yet.

    Raises:
        UsageError: it is a device function, Numba simulates it, or its text is not available.
    """
    if type(value).__module__.startswith("numba.cuda.simulator"):
        raise UsageError(
            f"{text} runs in Numba's simulator, which compiles nothing that could be judged.",
            hint="Unset NUMBA_ENABLE_CUDASIM and restart: judging needs no GPU.",
        )
    if getattr(value, "targetoptions", {}).get("device"):
        raise UsageError(f"{text} is a device function.", hint="Name a kernel that calls it.")
    function = _plain(value)
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise UsageError(
            f"The text of {text} is not available.", hint="Define it in a cell or in a file, and run that again."
        ) from None
    whole = "".join(linecache.getlines(function.__code__.co_filename)) or "".join(lines)
    starts = [0, *np.cumsum([len(one) for one in whole.splitlines(keepends=True)]).tolist()]
    name_line = first + next(index for index, one in enumerate(lines) if re.match(r"\s*def\b", one))
    unit = Unit(path=f"<{text}>", text=whole, language="text", file_text=whole)
    parameters = tuple(
        Parameter(name, "", "", None, 1, pointer=False, const=False, restrict=False, line=name_line, column=1)
        for name in inspect.signature(function).parameters
    )
    return Kernel(
        unit, function.__name__, Signature(parameters), starts[first - 1], starts[first - 1 + len(lines)], name_line, 5
    )


def with_types(kernel: Kernel, value: Any, given: Sequence[object]) -> Kernel:
    """Returns a Numba kernel whose parameters have the types of a launch's arguments.

    Args:
        kernel: as returned by `numba_kernel`.
        value: the kernel of the notebook.
        given: the arguments, one for each parameter.

    Raises:
        UsageError: an argument is neither an array nor a number.
    """
    written = _written(_plain(value), kernel)
    parameters = []
    for parameter, one in zip(kernel.signature.parameters, given, strict=True):
        array = live_array(one)
        dtype = array.dtype if array is not None else _scalar_dtype(one)
        if not dtype or not hasattr(np, dtype):  # Numba has no types of ml_dtypes
            raise UsageError(
                f"{parameter.name} is a {type(one).__name__}, which cannot be judged in a Numba kernel.",
                hint="Arrays of numbers, numbers and truth values can be.",
            )
        parameters.append(
            replace(
                parameter,
                type=dtype,
                base=dtype,
                dtype=dtype,
                pointer=array is not None,
                const=array is not None and parameter.name not in written,
            )
        )
    return replace(kernel, signature=replace(kernel.signature, parameters=tuple(parameters)))


def compile_for_contract(kernel: Kernel, value: Any, contract: Contract, target: Target) -> tuple[Kernel, Contract]:
    """Compile a Numba kernel for the types of its contract.

    Returns:
        The kernel with its code, and the contract with the values that Numba passes.

    Raises:
        UsageError: Numba does not compile it, or nvJitLink is missing.
    """
    code = _compiled(value, contract, target)
    args, passing = list(contract.args), []
    for one in contract.args:
        own = Passed(one.name, "argument", (Member(one.name, 0),))
        if one.shape is None:
            passing.append(own)
            continue
        scalars = _scalars(one)
        args += scalars
        passed = [Passed(scalar.name, "argument", (Member(scalar.name, 0),)) for scalar in scalars]
        unused = [Passed(_ARRAY.format(name=one.name, field=field), "null") for field in ("meminfo", "parent")]
        passing += [*unused, *passed[:2], own, *passed[2:]]
    contract = replace(contract, args=tuple(args), passing=tuple(passing))
    return replace(kernel, unit=replace(kernel.unit, built=code)), contract


def _plain(value: Any) -> Any:
    """Returns the Python function that Numba compiles or simulates."""
    return getattr(value, "py_func", None) or getattr(value, "fn", None)


def _scalar_dtype(value: object) -> str:
    """Returns the type that Numba gives a number (numba/core/typing/typeof.py); "" for something else."""
    if isinstance(value, np.generic):
        return value.dtype.name
    names = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
    return names.get(type(value), "")


def _written(function: Any, kernel: Kernel) -> frozenset[str]:
    """Returns the parameters that may be written: assigned by index, or passed to a function, as an atomic one."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(inspect.cleandoc("\n" + kernel.source))):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            found.add(node.value.id)
        elif isinstance(node, ast.Call):
            found.update(one.id for one in node.args if isinstance(one, ast.Name))
        elif isinstance(node, ast.Assign | ast.Attribute | ast.NamedExpr):
            inner = node.value  # `row = x[i]` and `x.T` are other names of an array
            inner = inner.value if isinstance(inner, ast.Subscript) else inner
            if isinstance(inner, ast.Name) and not _is_field(node):
                found.add(inner.id)
    return frozenset(found & set(function.__code__.co_varnames[: function.__code__.co_argcount]))


def _is_field(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("shape", "size", "ndim", "strides", "itemsize")


def _scalars(one: Argument) -> list[Argument]:
    """Returns number of elements, bytes of an element, extents and strides of an array of the C order."""
    shape = [f"({side})" for side in one.shape or ()]
    width = ITEM_BYTES[one.dtype]
    strides = [" * ".join([str(width), *shape[index + 1 :]]) for index in range(len(shape))]
    values = {
        "nitems": " * ".join(shape) or "1",
        "itemsize": str(width),
        **{f"shape_{index}": side for index, side in enumerate(shape)},
        **{f"stride_{index}": text for index, text in enumerate(strides)},
    }
    return [
        Argument(_ARRAY.format(name=one.name, field=field), None, "int64", value=text) for field, text in values.items()
    ]


def _compiled(value: Any, contract: Contract, target: Target) -> BuiltCode:
    import numba
    from numba import cuda
    from numba.core import types

    kinds = []
    for one in contract.args:
        kind = numba.from_dtype(np.dtype(one.dtype))
        kinds.append(kind if one.shape is None else types.Array(kind, len(one.shape), "C"))
    options = {key: value.targetoptions[key] for key in ("fastmath", "opt") if key in value.targetoptions}
    try:
        ptx, _ = cuda.compile_ptx(_plain(value), tuple(kinds), cc=target.capability, lineinfo=True, **options)
    except Exception as error:
        raise UsageError(
            f"Numba does not compile {contract.kernel}: {type(error).__name__}: {str(error).strip()[:600]}",
            hint="pip install 'kernelmate[numba]' if its libraries are missing; no GPU is needed.",
        ) from error
    symbol = re.findall(r"\.visible \.entry (\w+)\(", ptx)[-1]
    return BuiltCode(f"Numba {numba.__version__}", symbol, target.arch, ptx, _linked(ptx, target.arch, contract.kernel))


def _linked(ptx: str, arch: str, name: str) -> bytes:
    """Returns the CUBIN of a PTX text, made by nvJitLink, which Numba installs."""
    try:
        from cuda.bindings import nvjitlink

        handle = nvjitlink.create(2, [f"-arch={arch}", "-lineinfo"])
        try:
            data = ptx.encode()
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, data, len(data), name)
            nvjitlink.complete(handle)
            cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
            nvjitlink.get_linked_cubin(handle, cubin)
        finally:
            nvjitlink.destroy(handle)
    except Exception as error:
        raise UsageError(
            f"The code of {name} cannot be linked: {type(error).__name__}: {error}",
            hint="Run: pip install 'kernelmate[numba]'. No GPU is needed.",
        ) from error
    return bytes(cubin)
