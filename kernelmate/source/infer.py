"""Infers a contract from the signature, the launches in the file, and the kernel's thread indices."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from itertools import repeat
from math import log2

from kernelmate.errors import ContractError
from kernelmate.records import Argument, Contract, Direction, Kernel, Parameter
from kernelmate.source.dtypes import c_type_dtype
from kernelmate.source.expressions import RESERVED
from kernelmate.source.infer_accesses import array_accesses
from kernelmate.source.infer_launch import guess_launch
from kernelmate.source.instances import template_arguments, used_instances
from kernelmate.source.template_uses import MOST_INSTANCES, inferred_instances

_INDEX_TYPES = frozenset({"int32", "int64", "uint32", "uint64"})
ELEMENTS = 65536
"""Approximate number of elements at the first inferred size."""

_NOT_EXTENTS = re.compile(
    r"(?i)(?:seed|offset|steps?|iters?|iterations?|axis|mode|flags?|strides?|inc[xy]?|pad(?:ding)?|radius|dilation|"
    r"shift|start|begin|device|rank|use_\w+|is_\w+|has_\w+)\Z"
)
_INNER_FIRST = (("width", "height"), ("w", "h"), ("nx", "ny"), ("cols", "rows"), ("ncols", "nrows"), ("dimx", "dimy"))
_ODD = ((853,), (37, 53), (13, 11, 7), (7, 5, 3, 11))


def infer_contract(kernel: Kernel) -> Contract:
    """Return a contract for a kernel that has none, with `inferred` set.

    A const pointer is an input, any other pointer is read and written, unless its subscripts show that each element is
    written and none read; they give its shape too, where they are sums of bounded indices. An integer is a size of its own name; a
    floating-point scalar is 1. Grid and block come from the first launch in the file that is plain arithmetic.

    Raises:
        ContractError: a parameter's type does not determine its data, or a template has no instance in the file.
    """
    instances: tuple[str, ...] = ()
    bound: Mapping[str, str] = {}
    if kernel.signature.template_parameters:
        instances = used_instances(kernel) or tuple(one.text for one in inferred_instances(kernel)[:MOST_INSTANCES])
        if not instances:
            _fail_without_instance(kernel)
        parsed = template_arguments(instances[0])
        if parsed is not None:
            bound = dict(zip(kernel.signature.template_parameters, parsed[1], strict=False))
        instances = tuple(text for text in instances if _same_types(kernel, text, bound))
    types = {p.name: _type(kernel, p, bound) for p in kernel.signature.parameters}
    whole = [p.name for p in kernel.signature.parameters if not p.pointer and _is_size(p, types[p.name][0])]
    extents = _ordered(whole)
    matrix = _matmul(whole, [p.name for p in kernel.signature.parameters if p.pointer])
    launch = guess_launch(kernel, matrix_of(whole) if matrix else extents, sizes_of)
    extents = (*launch.more, *extents) or ("n",)
    return Contract(
        kernel=kernel.name,
        sizes=sizes_of(extents),
        grid=launch.grid,
        block=launch.block,
        args=_arguments(kernel, types, whole, extents, matrix, launch.grid),
        shared=launch.shared,
        instances=instances,
        inferred=True,
    )


def _fail_without_instance(kernel: Kernel) -> None:
    line, column = kernel.unit.locate(kernel.line, kernel.column)
    arguments = ", ".join(["float", "256", "1", "1"][: len(kernel.signature.template_parameters)])
    raise ContractError(
        f"{kernel.name} is a template, and neither its file nor its project shows its template arguments.",
        file=kernel.unit.path,
        line=line,
        column=column,
        hint=f'Give it a contract with instances = ["{kernel.name}<{arguments}>"].',
    )


def _same_types(kernel: Kernel, instance: str, bound: Mapping[str, str]) -> bool:
    """Returns True if an instance gives the parameters the same dtypes as the first one, since a contract has one dtype each."""
    parsed = template_arguments(instance)
    if parsed is None:
        return False
    other = dict(zip(kernel.signature.template_parameters, parsed[1], strict=False))
    bases = {parameter.base for parameter in kernel.signature.parameters} & set(bound)
    return all(c_type_dtype(other.get(base, ""))[0] == c_type_dtype(bound[base])[0] for base in bases)


# ------------------------------------------------------------------------------------------------- arguments


def _arguments(
    kernel: Kernel,
    types: Mapping[str, tuple[str, int]],
    whole: Sequence[str],
    extents: tuple[str, ...],
    matrix: Mapping[str, tuple[str, ...]],
    grid: Sequence[str],
) -> tuple[Argument, ...]:
    args = []
    used = array_accesses(kernel, extents, grid)
    for parameter in kernel.signature.parameters:
        dtype, vector = types[parameter.name]
        if parameter.pointer:
            seen = used[parameter.name]
            shape = seen.shape or matrix.get(parameter.name, extents)
            last = shape[-1] if vector == 1 else f"{shape[-1]} * {vector}"
            direction: Direction = "in" if parameter.const else seen.direction or "inout"
            drawn = _index_range(extents) if parameter.const and dtype in _INDEX_TYPES and vector == 1 else None
            args.append(Argument(parameter.name, direction, dtype, (*shape[:-1], last), drawn))
        else:
            args.append(Argument(parameter.name, None, dtype, value=_value(parameter.name, dtype, whole)))
    return tuple(args)


def _index_range(extents: Sequence[str]) -> str:
    """Returns the distribution of read-only integers, which may be indices.

    Values below every extent are valid for every array.
    """
    smallest = extents[0] if len(extents) == 1 else f"min({', '.join(extents)})"
    return f"integers(0, {smallest})"


def _type(kernel: Kernel, parameter: Parameter, bound: Mapping[str, str]) -> tuple[str, int]:
    dtype, vector = parameter.dtype, parameter.vector
    if dtype is None and parameter.base in bound:
        dtype, vector = c_type_dtype(bound[parameter.base])
    if dtype is None and parameter.base == "void" and parameter.pointer:
        dtype = "uint8"
    if dtype is None or (vector > 1 and not parameter.pointer) or "*" in parameter.base:
        line, column = kernel.unit.locate(parameter.line, parameter.column)
        raise ContractError(
            f"The element type of {parameter.name} ({parameter.type}) cannot be inferred.",
            file=kernel.unit.path,
            line=line,
            column=column,
            hint=f"Write a contract above {kernel.name} that gives its dtype."
            if parameter.pointer
            else "Pass plain numbers instead: a contract cannot fill a struct.",
        )
    return dtype, vector


def _is_size(parameter: Parameter, dtype: str) -> bool:
    name = parameter.name
    usable = name.isascii() and not keyword.iskeyword(name) and name not in RESERVED
    return "int" in dtype and usable and not _NOT_EXTENTS.match(name) and not _is_leading(name)


def _is_leading(name: str) -> bool:
    return re.fullmatch(r"ld[a-d]?", name.lower()) is not None


def _value(name: str, dtype: str, whole: Sequence[str]) -> str | None:
    if name in whole:
        return None
    if _is_leading(name):
        by_letter = {extent.lower(): extent for extent in whole}
        inner = by_letter.get("k" if name.lower() == "lda" else "n")
        return inner or (whole[-1] if whole else "1")
    return "1.0" if "float" in dtype or "complex" in dtype else "1"


def _ordered(whole: Sequence[str]) -> tuple[str, ...]:
    """Orders extents, the outermost first; some pairs of names indicate that the inner one comes first."""
    lower = [name.lower() for name in whole]
    for inner, outer in _INNER_FIRST:
        if inner in lower and outer in lower and lower.index(inner) < lower.index(outer):
            ordered = list(whole)
            first, second = lower.index(inner), lower.index(outer)
            ordered[first], ordered[second] = ordered[second], ordered[first]
            return tuple(ordered)
    return tuple(whole)


def matrix_of(whole: Sequence[str]) -> tuple[str, ...]:
    """Returns rows and columns of the product if the sizes are called M, N, K; else nothing."""
    letters = {name.lower(): name for name in whole}
    return (letters["m"], letters["n"]) if sorted(letters) == ["k", "m", "n"] else ()


def _matmul(whole: Sequence[str], pointers: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Returns the shapes of the three matrices if the sizes are called M, N, K."""
    if not matrix_of(whole) or len(pointers) < 3:
        return {}
    m, n = matrix_of(whole)
    k = next(name for name in whole if name.lower() == "k")
    return {pointers[0]: (m, k), pointers[1]: (k, n), **dict.fromkeys(pointers[2:], (m, n))}


def sizes_of(extents: Sequence[str]) -> tuple[Mapping[str, int], ...]:
    """Returns two initial sizes: about 65536 elements with round dimensions, and a small one with odd dimensions."""
    if not extents:
        return ({},)
    side = max(2, 2 ** round(log2(ELEMENTS) / len(extents)))
    odd = (*_ODD[min(len(extents), len(_ODD)) - 1], *repeat(1, len(extents)))
    return (dict.fromkeys(extents, side), dict(zip(extents, odd, strict=False)))
