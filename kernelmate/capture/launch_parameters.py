"""Parameters that launches pass: their names and dtypes by the kernel, their values and buffers by the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmate.capture.records import CapturedBuffer, CapturedLaunch
from kernelmate.errors import UsageError
from kernelmate.records import Argument, Kernel, Parameter, Tolerance
from kernelmate.source import numpy_dtype
from kernelmate.source.dtypes import ITEM_BYTES

RTOL = {"float64": 1e-12, "complex128": 1e-12, "float32": 1e-5, "complex64": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}
"""Relative tolerances of captured outputs by dtype: about 9,000 unit roundoffs of 2^-53, 170 of 2^-24, 4 of 2^-11, 5 of 2^-8.
None can be derived, since the reference only returns what the kernel computed."""

NARROW_RTOL = 0.1
"""The same for 8-bit floats."""


def most_frequent_kind(launches: Sequence[CapturedLaunch], notes: list[str]) -> list[CapturedLaunch]:
    """Returns the launches of the most frequent kind: one text, the same constants, and the same parameters that share memory."""

    def kind(launch: CapturedLaunch) -> tuple[Any, ...]:
        return (
            launch.kernel,
            launch.source,
            launch.options,
            launch.cooperative,
            launch.cluster,
            aliases_of(launch),
            len(launch.parameters),
        )

    kinds = Counter(map(kind, launches))
    most = kinds.most_common(1)[0][0]
    kept = [launch for launch in launches if kind(launch) == most]
    if len(kept) < len(launches):
        notes.append(
            f"{len(launches) - len(kept)} of {len(launches)} recorded launches are left out: they are of another instance or text of the "
            "kernel, with other constants, or with other arrays that share memory"
        )
    return kept


def aliases_of(launch: CapturedLaunch) -> tuple[int | None, ...]:
    """Returns for each parameter the first one before it with the same address, where the launch changes that memory."""
    found: list[int | None] = []
    for place, one in enumerate(launch.parameters):
        same = [
            other
            for other, before in enumerate(launch.parameters[:place])
            if one.buffer is not None and before.buffer is not None and one.buffer.address == before.buffer.address
            and one.buffer.bytes == before.buffer.bytes and (one.buffer.changed or before.buffer.changed)
        ]  # fmt: skip
        found.append(same[0] if same else None)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class LaunchParameter:
    """A parameter of the kernel: its number among those that are passed, its name, dtype, and whether it points to an array."""

    number: int
    name: str
    dtype: str
    pointer: bool
    const: bool


def passed_parameters(kernel: Kernel, launches: Sequence[CapturedLaunch]) -> list[LaunchParameter]:
    """Returns the kernel's parameters as its launches passed them.

    Raises:
        UsageError: their number or a type is another, or one is neither a number nor a pointer to numbers on the device.
    """
    declared = kernel.signature.parameters
    passed = launches[0].parameters
    if kernel.unit.language == "triton":
        constant = {option.partition("=")[0] for option in launches[0].options}
        declared = tuple(one for one in declared if one.name not in constant)
    if len(declared) != len(passed):
        names = ", ".join(one.name for one in declared)
        raise UsageError(
            f"{kernel.name} has {len(declared)} parameters ({names}), and its launches passed {len(passed)}.",
            file=kernel.unit.path,
            hint="Name the text that the program launched with --source FILE::KERNEL.",
        )
    found = []
    for number, (one, given) in enumerate(zip(declared, passed, strict=True)):
        pointer = any(launch.parameters[number].buffer is not None for launch in launches)
        dtype = _dtype(one, given.dtype, pointer)
        if launches[0].language == "numba" and pointer and dtype != given.dtype:
            raise UsageError(
                f"{one.name} of {kernel.name} is an array of {dtype}, and the program passed one of {given.dtype}.",
                file=kernel.unit.path,
                hint="Numba compiles a kernel for the arrays that it gets: give both the same type.",
            )
        complex_number = dtype is not None and not pointer and numpy_dtype(dtype).kind == "c"
        host = one.pointer and not pointer and kernel.unit.language != "triton"
        if dtype is None or complex_number or host:
            what = "a null pointer or host memory" if host and dtype is not None else f"of type {one.type}"
            raise UsageError(
                f"{one.name} of {kernel.name} is {what}: contracts are captured for real numbers and for pointers to numbers on the device.",
                file=kernel.unit.path,
                hint="The launches were recorded; write the contract by hand (docs/contract.md, Structs).",
            )
        found.append(LaunchParameter(number, one.name, dtype, pointer, one.const))
    return found


def _dtype(parameter: Parameter, given: str | None, pointer: bool) -> str | None:
    """Returns the dtype of a parameter: its own, unless it is a type for bits and the program's array says what they are."""
    own = parameter.dtype
    given = given if given in ITEM_BYTES else None  # a struct's bytes have none
    if own is None or given is None:
        return own or given
    bits = numpy_dtype(own).kind in "iu" and (numpy_dtype(own).itemsize == 1 or numpy_dtype(own).kind == "u")
    same = numpy_dtype(own).itemsize in (1, numpy_dtype(given).itemsize)
    return given if pointer and bits and same else own


def alias_targets(launch: CapturedLaunch, parameters: Sequence[LaunchParameter]) -> dict[int, int]:
    """Returns for each parameter that is an alias the one before it whose array it shares, which may be written."""
    targets: dict[int, int] = {}
    heads: dict[int, int] = {}
    for place, first in enumerate(aliases_of(launch)):
        group = place if first is None else first
        if group in heads:
            targets[place] = heads[group]
        elif not parameters[place].const:
            heads[group] = place
    return targets


def buffer_of(launch: CapturedLaunch, one: LaunchParameter) -> CapturedBuffer:
    """Returns the memory that a pointer parameter points to in a launch.

    Raises:
        UsageError: it is a null pointer there.
    """
    buffer = launch.parameters[one.number].buffer
    if buffer is None:
        raise UsageError(
            f"{one.name} is a null pointer in some launches and an array in others, which no contract describes.",
            hint="Capture the part of the program that passes an array.",
        )
    return buffer


def scalar_of(launch: CapturedLaunch, one: LaunchParameter) -> Any:
    """Returns the value of a number as the kernel gets it.

    CuPy passes the bytes of what the program gives, and the kernel reads as many as its type has; Numba converts the value.
    """
    dtype = numpy_dtype(one.dtype)
    given = launch.parameters[one.number]
    if launch.language == "numba" and given.dtype is not None:
        return np.frombuffer(given.passed, given.dtype)[0].astype(dtype)
    if len(given.passed) < dtype.itemsize:
        raise UsageError(
            f"{one.name} is {one.dtype}, and the program passed {len(given.passed)} bytes for it.",
            hint="Pass a NumPy scalar of the parameter's type, or name the text that was launched with --source FILE::KERNEL.",
        )
    return np.frombuffer(given.passed[: dtype.itemsize], dtype)[0]


def number_text(value: Any) -> str:
    """Returns a number as an expression that gives the same value of its dtype."""
    if isinstance(value, (np.integer, np.bool_)):
        return str(int(value))
    number = float(str(value)) if isinstance(value, np.floating) else float(value)
    return repr(number)


def last_change(buffer: CapturedBuffer) -> int:
    """Returns the offset of the last byte that a launch changed."""
    before, after = np.fromfile(buffer.before, np.uint8), np.fromfile(buffer.after, np.uint8)
    return int(np.flatnonzero(before != after)[-1])


def output_tolerance(
    parameters: Sequence[LaunchParameter], arrays: Mapping[str, Argument], launches: Sequence[CapturedLaunch]
) -> Tolerance | None:
    """Returns a tolerance for floating-point outputs; None without any.

    The relative part is the largest of the outputs' `RTOL`; the absolute part is that times the smallest root mean square
    of a recorded output.
    """
    rtol, scales = 0.0, []
    for one in parameters:
        argument = arrays.get(one.name)
        if argument is None or argument.direction == "in" or numpy_dtype(one.dtype).kind in "iub":
            continue
        rtol = max(rtol, RTOL.get(one.dtype, NARROW_RTOL))
        for launch in launches:
            contents = np.fromfile(buffer_of(launch, one).after, numpy_dtype(one.dtype))
            finite = np.abs(contents.astype(np.complex128 if contents.dtype.kind == "c" else np.float64))
            finite = finite[np.isfinite(finite)]
            scales.append(float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0)
    if not rtol:
        return None
    scale = min((one for one in scales if one > 0), default=1.0)
    return Tolerance(rtol, float(f"{rtol * scale:.1g}"))
