"""Sizes among a kernel's whole-number parameters, by their names: their order in memory, and numbers to begin with."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Mapping, Sequence
from itertools import repeat

from kernelmate.records import Parameter
from kernelmate.source.expressions import RESERVED

ELEMENTS = 65536
"""Approximate number of elements at the first inferred size."""

_NOT_EXTENTS = re.compile(
    r"(?i)(?:seed|offset|steps?|iters?|iterations?|axis|(?:\w+_)?mode|flags?|strides?|inc[xy]?|pad(?:ding)?|radius|dilation|"
    r"shift|start|begin|device|rank|use_\w+|is_\w+|has_\w+)\Z"
)
_INNER_FIRST = (("width", "height"), ("w", "h"), ("nx", "ny"), ("cols", "rows"), ("ncols", "nrows"), ("dimx", "dimy"))
_ODD = ((853,), (37, 53), (13, 11, 7), (7, 5, 3, 11))


def is_size(parameter: Parameter, dtype: str) -> bool:
    """Returns True for a parameter that is a size by its type and name."""
    name = parameter.name
    usable = name.isascii() and not keyword.iskeyword(name) and name not in RESERVED
    return "int" in dtype and usable and not _NOT_EXTENTS.match(name) and not is_leading(name)


def is_leading(name: str) -> bool:
    """Returns True for the name of a row's length in memory."""
    return re.fullmatch(r"ld[a-d]?|(?:\w+_)?pitch", name.lower()) is not None


def ordered(whole: Sequence[str]) -> tuple[str, ...]:
    """Returns extents, the outermost first; some pairs of names indicate that the inner one comes first."""
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


def matmul(whole: Sequence[str], pointers: Sequence[str]) -> dict[str, tuple[str, ...]]:
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
    side = max(2, 2 ** round(math.log2(ELEMENTS) / len(extents)))
    odd = (*_ODD[min(len(extents), len(_ODD)) - 1], *repeat(1, len(extents)))
    return (dict.fromkeys(extents, side), dict(zip(extents, odd, strict=False)))


def shrunk(values: Mapping[str, int], most: int) -> dict[str, int]:
    """Returns sizes whose product is at most `most`: the largest ones are halved until it is."""
    found = dict(values)
    while math.prod(found.values()) > most:
        largest = max(found, key=lambda name: found[name])
        if found[largest] < 2:
            break
        found[largest] //= 2
    return found
