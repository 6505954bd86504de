"""Arguments of a call, checked against the kernel's parameters before the launch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmate.errors import UsageError
from kernelmate.records import Argument, BackendName, Contract, Kernel, Size
from kernelmate.source import argument_shapes, numpy_dtype, scalar_values
from kernelmate.source.dtypes import ITEM_BYTES
from kernelmate_widgets.arrays import LiveArray, live_array
from kernelmate_widgets.cells import short_name


@dataclass(frozen=True, slots=True)
class CallArgument:
    """One argument of a call: an array, or a scalar of the kernel's dtype."""

    argument: Argument
    array: LiveArray | None = None
    scalar: np.generic | None = None


def read_arguments(
    kernel: Kernel, contract: Contract, values: Sequence[object], backend: BackendName
) -> list[CallArgument]:
    """Reads the arguments of one call.

    Args:
        kernel: the kernel.
        contract: the contract, which defines dtypes and directions.
        values: the user's arguments, in the kernel's order.
        backend: the backend, which determines where arrays must reside.

    Raises:
        UsageError: number, kind, dtype, device or layout of an argument does not fit the kernel.
    """
    if any(one.kind not in ("argument", "null") or one.variable for one in contract.passing):
        raise UsageError(
            f"{short_name(kernel)} takes structs, pointers or variables of its module, which a call here cannot pass.",
            hint="Judge it by its contract, or wrap it in a kernel with one parameter for each argument.",
        )
    if len(values) != len(contract.args):
        raise UsageError(
            f"{short_name(kernel)} takes {len(contract.args)} arguments ({_listed(contract)}); {len(values)} were given.",
            hint="Give the arguments in the kernel's order.",
        )
    given = [_one(argument, value, backend) for argument, value in zip(contract.args, values, strict=True)]
    _check_devices(given)
    return given


def _listed(contract: Contract) -> str:
    return ", ".join(argument.name for argument in contract.args)


def _one(argument: Argument, value: object, backend: BackendName) -> CallArgument:
    if argument.shape is None:
        return CallArgument(argument, scalar=scalar_of(argument, value))
    array = live_array(value)
    if array is None:
        raise UsageError(
            f"{argument.name} takes an array of {argument.dtype}, not {_kind(value)}.",
            hint="Give an array of CuPy, torch or NumPy.",
        )
    if array.dtype != argument.dtype:
        raise UsageError(
            f"{argument.name} takes {argument.dtype}, not {array.where} of {array.dtype}.",
            hint=_cast_hint(argument, array),
        )
    if not array.contiguous:
        fix = f"{argument.name}.contiguous()" if array.library == "torch" else f"ascontiguousarray({argument.name})"
        raise UsageError(
            f"{argument.name} is not contiguous: its elements are not adjacent in memory.",
            hint=f"Give {fix}, which makes a copy.",
        )
    _check_place(argument, array, backend)
    return CallArgument(argument, array)


def _cast_hint(argument: Argument, array: LiveArray) -> str:
    call = "to(torch." if array.library == "torch" else "astype('"
    end = ")" if array.library == "torch" else "')"
    return f"Convert it with .{call}{argument.dtype}{end}, or change the kernel."


def _check_place(argument: Argument, array: LiveArray, backend: BackendName) -> None:
    if backend == "cuda" and array.device is None:
        hint = "Copy it there with cupy.asarray(...), or tensor.cuda()."
        raise UsageError(f"{argument.name} is {array.where}; the kernel runs on a GPU.", hint=hint)
    if backend == "emulator" and array.device is not None:
        hint = "Copy it with .get() or .cpu(), or judge the kernel with --backend cuda."
        raise UsageError(f"{argument.name} is {array.where}; the kernel runs in the emulator.", hint=hint)
    if argument.direction != "in" and not array.writable:
        raise UsageError(f"{argument.name} is written by the kernel and read-only here.", hint="Give a copy of it.")


def _check_devices(given: Sequence[CallArgument]) -> None:
    """Checks that all arrays are on one GPU.

    Raises:
        UsageError: they are on several.
    """
    arrays = [(one.argument, one.array) for one in given if one.array is not None]
    devices = {array.device for _, array in arrays}
    if len(devices) > 1:
        places = ", ".join(f"{argument.name} on {array.device}" for argument, array in arrays)
        raise UsageError(f"The arrays are on different GPUs: {places}.", hint="Copy them to one GPU.")


def scalar_of(argument: Argument, value: object) -> np.generic:
    """Converts a value to a scalar of the kernel's dtype.

    Raises:
        UsageError: the value is not a number, would lose its fraction, or is out of range.
    """
    item = (
        value.item()
        if hasattr(value, "item") and getattr(value, "size", 1) == 1 and live_array(value) is None
        else value
    )
    whole = argument.dtype == "bool" or "int" in argument.dtype
    if isinstance(item, str) or not isinstance(item, bool | int | float | complex):
        raise UsageError(
            f"{argument.name} takes a number ({argument.dtype}), not {_kind(value)}.", hint="Give a plain number."
        )
    if isinstance(item, complex) and "complex" not in argument.dtype:
        raise UsageError(f"{argument.name} takes {argument.dtype}, not a complex number.", hint="Give its real part.")
    if whole and isinstance(item, float):
        raise UsageError(
            f"{argument.name} takes {argument.dtype}, not {item!r}.", hint=f"Give a whole number: int({item!r})."
        )
    if whole and isinstance(item, int):
        low, high = (0, 1) if argument.dtype == "bool" else _range(argument.dtype)
        if not low <= item <= high:
            raise UsageError(
                f"{argument.name} = {item} does not fit {argument.dtype} ({low} to {high}).",
                hint="Give a number in this range.",
            )
    with np.errstate(all="ignore"):
        scalar: Any = np.asarray(item).astype(numpy_dtype(argument.dtype))[()]
    found: np.generic = scalar
    return found


def _range(dtype: str) -> tuple[int, int]:
    bits = 8 * ITEM_BYTES[dtype]
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _kind(value: object) -> str:
    array = live_array(value)
    if array is not None:
        return f"{array.where} of {array.dtype}"
    return "None" if value is None else f"a {type(value).__name__}"


# -------------------------------------------------------------------------------------------------------- sizes


def solve_size(contract: Contract, given: Sequence[CallArgument]) -> Size | None:
    """Returns the size of a call: from scalars that are sizes, else from dimensions of arrays.

    The result is None if the value of a size name remains unknown.
    """
    known: dict[str, int] = {}
    names = tuple(contract.sizes[0])
    for one in given:
        text = one.argument.name if one.argument.value is None else one.argument.value
        if one.scalar is not None and text in names and isinstance(one.scalar.item(), int):
            known.setdefault(text, int(one.scalar.item()))
    for one in given:
        shape = one.argument.shape
        if one.array is not None and shape is not None and len(shape) == len(one.array.shape):
            for text, extent in zip(shape, one.array.shape, strict=True):
                if text in names:
                    known.setdefault(text, extent)
    return {name: known[name] for name in names} if set(names) <= set(known) else None


def check_against(contract: Contract, size: Size, given: Sequence[CallArgument]) -> None:
    """Checks arrays and scalars against the contract at a size, to prevent out-of-bounds accesses.

    Raises:
        UsageError: an array has too few elements, or a scalar contradicts the contract.
    """
    shapes, scalars = argument_shapes(contract, size), scalar_values(contract, size)
    at = size_text(size)
    for one in given:
        name = one.argument.name
        if one.array is not None:
            wanted, held = math.prod(shapes[name]), math.prod(one.array.shape)
            if held < wanted:
                shape = ", ".join(one.argument.shape or ())
                raise UsageError(
                    f"{name} holds {held:,} elements; at {at} the kernel takes {wanted:,} ([{shape}]).",
                    hint="Give a larger array, or smaller sizes.",
                )
        elif one.argument.value is None or one.argument.value in size:
            value: Any = scalars[name]
            if one.scalar is not None and one.scalar.item() != value:
                raise UsageError(
                    f"{name} = {one.scalar.item()} and the arrays do not fit: they make it {value}.",
                    hint="Give the arrays' own extent.",
                )


def size_text(size: Mapping[str, int]) -> str:
    """Formats a size: `rows = 37, cols = 853`."""
    return ", ".join(f"{name} = {value}" for name, value in size.items()) or "this size"
