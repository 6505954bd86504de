"""Reads a contract's `[args]` and `[symbols]`, and checks them against the kernel's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from kernelmate.records import Argument, Kernel, Parameter, Passed
from kernelmate.source.document import KEYS, Document
from kernelmate.source.expressions import names_in, nearest_hint
from kernelmate.source.passing import PassingReader


def read_arguments(
    document: Document, kernel: Kernel, sizes: Sequence[str]
) -> tuple[tuple[Argument, ...], tuple[Passed, ...]]:
    """Returns the arguments of every parameter and variable in order, and how they are passed (`Contract.passing`).

    Raises:
        ContractError: an unknown, missing or misplaced argument, or an entry that is wrong in itself.
    """
    parameters = {parameter.name: parameter for parameter in kernel.signature.parameters}
    entries = document.data.get("args", {})
    if not isinstance(entries, dict):
        document.fail(("args",), "args must be a table.", "Write [args] with one line for each parameter below it.")
    for name in entries:
        if name not in parameters:
            _fail_unknown(document, kernel, name)
    missing = [parameter for parameter in parameters.values() if parameter.name not in entries]
    if missing:
        _fail_missing(document, kernel, missing[0], sizes)
    # A table of its own, `[args.params]`, stands behind the other entries wherever its parameter is.
    plain = [name for name in entries if not isinstance(entries[name], dict)]
    for name, wanted in zip(plain, (name for name in parameters if name in plain), strict=True):
        if name != wanted:
            message = f"{name} stands where {kernel.name} takes {wanted}."
            hint = f"Write the arguments in the kernel's order: {', '.join(parameters)}."
            document.fail(("args", name), message, hint, key=True)
    reader = PassingReader(document, kernel, sizes)
    reader.read(entries, parameters)
    found = tuple(reader.args)
    check_compared(document, found, sizes)
    return found, () if reader.plain() else tuple(reader.passing)


def check_compared(document: Document, args: Sequence[Argument], sizes: Sequence[str]) -> None:
    """Checks the arguments that outputs name for their extent, mask or order.

    Raises:
        ContractError: at the entry that names an unsuitable one.
    """
    arrays = {one.name: one for one in args if one.shape is not None}
    for one in args:
        if one.extent is not None and one.extent[1] not in arrays:
            document.expression(("args", one.name), one.extent[1], [*sizes, *arrays])
            names = [name for name, _ in names_in(one.extent[1]) if name in arrays]
            if names:
                hint = f"Write {names[0]} alone, or an expression over sizes."
                document.fail(("args", one.name), f"{one.extent[1]!r} computes with the array {names[0]}.", hint)
        for name in (one.extent[1] if one.extent is not None else None, one.mask, one.paired):
            if name is None or (name in sizes and name not in arrays) or not name.isidentifier():
                continue
            if name not in arrays or name == one.name:
                others = [other for other in arrays if other != one.name]
                document.fail(("args", one.name), f"{name!r} is no other array.", nearest_hint(name, others))
            _check_named(document, one, arrays[name])


def _check_named(document: Document, one: Argument, other: Argument) -> None:
    """Checks that an array can decide what is compared of an output."""
    if one.paired == other.name:
        if not other.unordered or other.paired is not None or other.extent != one.extent:
            hint = f"Write the same extent and `unordered` for {other.name}, without `with`."
            document.fail(("args", one.name), f"{other.name} is not an unordered output like {one.name}.", hint)
        return
    if other.direction == "scratch" or other.partly:
        hint = f"Make {other.name} an output that is compared as a whole."
        document.fail(("args", one.name), f"{other.name} is not compared as a whole, so it can decide nothing.", hint)
    if "int" not in other.dtype and other.dtype != "bool":
        document.fail(("args", one.name), f"{other.name} holds {other.dtype}, not integers.", "Name an integer array.")
    if one.mask == other.name:
        if other.shape != one.shape:
            document.fail(("args", one.name), f"The mask {other.name} has another shape.", f"Give it {one.name}'s.")
        return
    assert one.extent is not None
    assert one.shape is not None
    lead = one.shape[: one.extent[0]]
    if other.shape != lead and not (not lead and other.shape == ("1",)):
        wanted = ", ".join(lead) or "1"
        message = f"{other.name} counts the elements of {one.name} along axis {one.extent[0]}, and has another shape."
        document.fail(("args", one.name), message, f"Write {other.name} with the shape [{wanted}].")


def _fail_unknown(document: Document, kernel: Kernel, name: str) -> NoReturn:
    if name in KEYS:
        message = f"{name!r} stands in [args], where only arguments may."
        document.fail(("args", name), message, "Move it above the line [args].", key=True)
    names = [parameter.name for parameter in kernel.signature.parameters]
    document.fail(("args", name), f"{kernel.name} has no parameter {name!r}.", nearest_hint(name, names), key=True)


def _fail_missing(document: Document, kernel: Kernel, parameter: Parameter, sizes: Sequence[str]) -> NoReturn:
    dtype = parameter.dtype or "float32"
    if parameter.pointer:
        entry = f"{'in' if parameter.const else 'out'} {dtype}[{', '.join(list(sizes)[:2])}]"
    else:
        entry = dtype if parameter.name in sizes else f"{dtype} = 1"
    message = f"[args] lacks {parameter.name} ({parameter.type}), which {kernel.name} takes."
    document.fail(("args",), message, f'Add {parameter.name} = "{entry}" in the kernel\'s order.')
