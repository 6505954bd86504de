"""Values passed to a kernel: structs, arrays of pointers, aliases and variables, built from a contract's arguments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kernelmate.backends.base import ArrayArgument, HeldAddress, ScalarArgument
from kernelmate.backends.launch_objects import TENSOR_MAP_BYTES, TensorMap, Texture
from kernelmate.checks.precision import module_of
from kernelmate.compiler.ptx_text import parameter_bytes, variable_bytes
from kernelmate.errors import ContractError
from kernelmate.records import Compiled, Contract, Passed, Size
from kernelmate.source import alias_start, argument_shapes, is_first_use, numpy_dtype

LaunchArgument = ArrayArgument | ScalarArgument

MOST_POINTERS = 1024
"""Maximum number of pointers in an array of pointers; each part of the array is a buffer of its own."""


def passed_arguments(
    contract: Contract, size: Size, arguments: Mapping[str, LaunchArgument], compiled: Compiled
) -> tuple[LaunchArgument, ...]:
    """Returns the arguments that the backend passes, in the order of the kernel's parameters.

    Args:
        contract: says how arguments are passed.
        size: the size of the launch.
        arguments: by name, each as a separate parameter.
        compiled: the compiled kernel, whose PTX has the names of variables.
    """
    if not contract.passing:
        return tuple(arguments.values())
    variables = variable_bytes(compiled.ptx)
    found: list[LaunchArgument] = []
    for one in contract.passing:
        found.extend(_passed(contract, size, one, arguments, _mangled(one, variables)))
    return tuple(found)


def _passed(
    contract: Contract, size: Size, one: Passed, arguments: Mapping[str, LaunchArgument], variable: str | None
) -> Iterator[LaunchArgument]:
    if one.kind == "null":
        yield ScalarArgument(one.name, np.uint64(0))
        return
    members = [(arguments[member.argument], member.offset) for member in one.members]
    first = members[0][0]
    if one.kind == "alias":
        start = alias_start(contract, one, size)
        assert isinstance(first, ArrayArgument)
        yield ScalarArgument(one.name, np.uint64(0), (HeldAddress(0, first.name, start * first.data.dtype.itemsize),))
    elif one.kind == "pointers":
        yield from _pointers(first)
    elif one.box is not None or one.view is not None:
        assert isinstance(first, ArrayArgument)
        if is_first_use(contract, one):
            yield replace(first, passed=False)
        yield _shown(contract, one, first)
    elif one.kind == "argument":
        if not one.variable:
            yield first
        else:
            # A version that does not use a variable has none; its contents are then left as they are.
            yield replace(_as_array(first), passed=False, variable=variable)
    else:
        yield from _struct(one, members, variable)


def _shown(contract: Contract, one: Passed, array: ArrayArgument) -> ScalarArgument:
    """Returns a texture, a surface or a tensor map of an array; a map has the dimensions in reverse order."""
    dtype = next(argument.dtype for argument in contract.args if argument.name == array.name)
    if one.view is not None:
        return ScalarArgument(
            one.name, np.uint64(0), texture=Texture(array.name, dtype, tuple(array.data.shape), one.view)
        )
    assert one.box is not None
    box = one.box
    made = TensorMap(
        array.name, dtype, tuple(array.data.shape[::-1]), box.extents[::-1], box.steps[::-1], box.swizzle, box.nan_fill
    )
    return ScalarArgument(one.name, np.void(bytes(TENSOR_MAP_BYTES)), tensor_map=made)


def _pointers(array: LaunchArgument) -> Iterator[LaunchArgument]:
    """Yields the slices of an array along its first axis, each as a buffer, then the array of their addresses."""
    assert isinstance(array, ArrayArgument)
    names = [f"{array.name}[{number}]" for number in range(array.data.shape[0])]
    for number, name in enumerate(names):
        yield replace(array, name=name, data=array.data[number], passed=False)
    addresses = tuple(HeldAddress(8 * number, name) for number, name in enumerate(names))
    table = np.zeros(len(names), np.uint64)
    yield ArrayArgument(f"{array.name} (pointers)", table, written=False, addresses=addresses)


def _struct(one: Passed, members: list[tuple[LaunchArgument, int]], variable: str | None) -> Iterator[LaunchArgument]:
    raw = np.zeros(one.nbytes, np.uint8)
    addresses = []
    for member, offset in members:
        if isinstance(member, ArrayArgument):
            yield replace(member, passed=False)
            addresses.append(HeldAddress(offset, member.name))
        else:
            held = np.atleast_1d(np.asarray(member.value)).view(np.uint8)
            raw[offset : offset + held.size] = held
    if one.kind == "pointer" or one.variable:
        passed = not one.variable
        yield ArrayArgument(one.name, raw, written=False, addresses=tuple(addresses), passed=passed, variable=variable)
    else:
        yield ScalarArgument(one.name, np.void(raw.tobytes()), tuple(addresses))


def _as_array(argument: LaunchArgument) -> ArrayArgument:
    if isinstance(argument, ArrayArgument):
        return argument
    return ArrayArgument(argument.name, np.atleast_1d(np.asarray(argument.value)), written=False)


def _mangled(one: Passed, variables: Mapping[str, int]) -> str | None:
    """Returns the PTX name of a variable; None for a parameter, or if the code has no such variable."""
    if not one.variable:
        return None
    own = one.name.rpartition("::")[2]
    exact = [name for name in variables if name == own]
    # The Itanium C++ ABI writes a name with its length before it, and an E after one in namespaces.
    inner = [name for name in variables if name.startswith("_Z") and f"{len(own)}{own}" in name]
    return next(iter(exact or inner), None)


def gathered(contract: Contract, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a launch's arrays by the contract's names. The parts of an array of pointers are stacked."""
    found = dict(arrays)
    for one in contract.passing:
        parts = [found.pop(name) for name in _parts(one, found)] if one.kind == "pointers" else []
        if parts:
            found[one.name] = module_of(parts[0]).stack(parts)
    return found


def _parts(one: Passed, arrays: Mapping[str, Any]) -> list[str]:
    names: list[str] = []
    while f"{one.name}[{len(names)}]" in arrays:
        names.append(f"{one.name}[{len(names)}]")
    return names


def check_passing(contract: Contract, size: Size, compiled: Compiled) -> None:
    """Checks that the passed values fit the compiled kernel.

    Raises:
        ContractError: a struct's size differs from its parameter's, a variable is smaller than its array, or an array
            of pointers is too long.
    """
    if not contract.passing:
        return
    shapes = argument_shapes(contract, size)
    variables, taken = variable_bytes(compiled.ptx), parameter_bytes(compiled.ptx, compiled.lowered_name)
    parameters = [one for one in contract.passing if not one.variable]
    for one, nbytes in zip(parameters, taken, strict=False):
        if one.kind == "struct" and one.nbytes != nbytes:
            raise ContractError(
                f"The fields of {one.name} take {one.nbytes} bytes, and the kernel takes {nbytes}.",
                line=contract.line,
                hint="Write every field of the struct, in its order and of its type.",
            )
        if one.kind == "pointers" and not 0 < shapes[one.name][0] <= MOST_POINTERS:
            raise ContractError(
                f"{one.name} has {shapes[one.name][0]} pointers; 1 to {MOST_POINTERS} can be made.", line=contract.line,
                hint="Change the count or the size.",
            )  # fmt: skip
    for one in contract.passing:
        name = _mangled(one, variables)
        if name is not None and _bytes_of(contract, one, shapes) > variables[name]:
            raise ContractError(
                f"{one.name} has {variables[name]} bytes, and the contract's values take "
                f"{_bytes_of(contract, one, shapes)}.",
                line=contract.line,
                hint="Write the shape of the variable, or bound the size by `require`.",
            )


def _bytes_of(contract: Contract, one: Passed, shapes: Mapping[str, tuple[int, ...]]) -> int:
    if one.kind == "struct":
        return one.nbytes
    argument = next(a for a in contract.args if a.name == one.members[0].argument)
    return numpy_dtype(argument.dtype).itemsize * math.prod(shapes.get(argument.name, ()))
