"""Sizes among a kernel's whole-number parameters, by their names: their order in memory, and numbers to begin with."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat

from kernelmate.errors import ContractError
from kernelmate.records import Argument, Kernel, Parameter
from kernelmate.source.dtypes import ENUM
from kernelmate.source.expressions import RESERVED, evaluate_integer
from kernelmate.source.host_arrays import HostArray, divided

ELEMENTS = 65536
"""Approximate number of elements at the first inferred size."""

MOST_ELEMENTS = 2 * ELEMENTS
"""Largest product of the sizes that host code gives, above which they are halved."""

_MOST_WORK = 1 << 23
"""Threads of a launch, times the iterations of each, above which sizes are halved: an emulator runs them in seconds."""

_NOT_EXTENTS = re.compile(
    r"(?i)(?:seed|offset|steps?|iters?|iterations?|axis|(?:\w+_)?mode|flags?|strides?|inc[xy]?|pad(?:ding)?|radius|dilation|"
    r"shift|start|begin|device|rank|use_\w+|is_\w+|has_\w+|level|octave|mask|lane|delta|"
    r"(?!num|n_|count)\w*(?:idx|index|thresh|threshold|_level|_mask|_diff))\Z"
)
_INNER_FIRST = (("width", "height"), ("w", "h"), ("nx", "ny"), ("cols", "rows"), ("ncols", "nrows"), ("dimx", "dimy"))
_ODD = ((853,), (37, 53), (13, 11, 7), (7, 5, 3, 11))


def is_size(parameter: Parameter, dtype: str) -> bool:
    """Returns True for a parameter that is a size by its type and name."""
    name = parameter.name
    usable = name.isascii() and not keyword.iskeyword(name) and name not in RESERVED
    return (
        "int" in dtype
        and usable
        and not parameter.base.startswith(f"{ENUM} ")
        and not _NOT_EXTENTS.match(name)
        and not is_leading(name)
    )


def is_leading(name: str) -> bool:
    """Returns True for the name of a row's length in memory."""
    return re.fullmatch(r"ld[a-d]?|(?:\w+_)?pitch", name.lower()) is not None


def guessed_value(parameter: Parameter, dtype: str, whole: Sequence[str]) -> str | None:
    """Returns a guessed value for a scalar of unknown value, by its name (such as a row's length); None for a size."""
    name = parameter.name
    if name in whole:
        return None
    if parameter.base.startswith(f"{ENUM} "):
        return "0"
    if is_leading(name):
        by_letter = {extent.lower(): extent for extent in whole}
        inner = by_letter.get("k" if name.lower() == "lda" else "n" if name.lower().startswith("ld") else "")
        return inner or (whole[-1] if whole else "1")
    return "1.0" if "float" in dtype or "complex" in dtype else "1"


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


def sizes_of(extents: Sequence[str], threads: int | None = None) -> tuple[Mapping[str, int], ...]:
    """Returns two initial sizes: about 65536 elements with round dimensions, and a small one with odd dimensions.

    A kernel without sizes whose number of threads is fixed has arrays of a fixed size: one element for each thread.
    """
    if not extents:
        return ({},)
    if tuple(extents) == (ONLY_SIZE,) and threads is not None and threads <= MOST_ELEMENTS:
        return ({ONLY_SIZE: threads},) * 2
    side = max(2, 2 ** round(math.log2(ELEMENTS) / len(extents)))
    odd = (*_ODD[min(len(extents), len(_ODD)) - 1], *repeat(1, len(extents)))
    return (dict.fromkeys(extents, side), dict(zip(extents, odd, strict=False)))


ONLY_SIZE = "n"
"""Name of the size of a kernel without parameters that are sizes."""


def largest_array(arrays: Mapping[str, HostArray], item_bytes: Mapping[str, int]) -> tuple[str, int] | None:
    """Returns the array with the most elements, of those whose number of elements the host code states as a number, and that number.

    Args:
        arrays: by parameter.
        item_bytes: of an element of each parameter.
    """
    found: list[tuple[int, str]] = []
    for name, array in arrays.items():
        shape = array.shape
        if shape is None and array.nbytes is not None:
            shape = divided(array.nbytes, item_bytes[name], ())
        elements = counted(shape, [{}]) if shape is not None else None
        if elements:
            found.append((elements[0], name))
    count, name = max(found, default=(0, ""))
    return (name, count) if name else None


def rounded(values: Mapping[str, int], sides: Sequence[str], block: Sequence[str]) -> dict[str, int]:
    """Returns sizes rounded up to multiples of what a launch's sides divide them by: to 128 for `n` by `n // 128`.

    `block` are the sides of the block, which `sides` may name.
    """
    by_name = dict(zip(("block_x", "block_y", "block_z"), block, strict=False))
    by_name["block"] = block[0] if len(block) == 1 else ""
    found = dict(values)
    for name, written in re.findall(r"\b([A-Za-z_]\w*) // (\w+)", " ".join(sides)):
        divisor = by_name.get(written, written)
        if name in found and divisor.isdigit() and 0 < int(divisor) <= ELEMENTS:
            found[name] = -(-found[name] // int(divisor)) * int(divisor)
    return found


def shrunk_sizes(values: Mapping[str, int], most: int) -> dict[str, int]:
    """Returns sizes whose product is at most `most`: the largest ones are halved until it is."""
    found = dict(values)
    while found and math.prod(found.values()) > most:
        largest = max(found, key=lambda name: found[name])
        if found[largest] < 2:
            break
        found[largest] //= 2
    return found


def bounded(
    size: Mapping[str, int],
    args: Sequence[Argument],
    known: Mapping[str, int],
    work: Callable[[Mapping[str, int]], int],
) -> Mapping[str, int]:
    """Returns a size whose values are halved until every array and launch is small enough for the emulator.

    Values that host code gives, `known`, are halved after the guessed ones, the largest first.

    Args:
        size: the size.
        args: the arguments.
        known: the values that host code gives.
        work: the number of iterations of a launch at a size.
    """
    shapes = [one.shape for one in args if one.shape is not None]

    def load(at: Mapping[str, int]) -> tuple[int, int]:
        """Returns the iterations and the elements of the largest array that exceed their limits at a size, each 0 if it is within its limit."""
        elements = max((max(counted(shape, [at]) or [0]) for shape in shapes), default=0)
        iterations = work(at)
        return iterations * (iterations > _MOST_WORK), elements * (elements > 8 * MOST_ELEMENTS)

    while any(load(size)):
        guessed = {name for name, value in size.items() if name not in known and value > 1}
        largest = {name for name, value in size.items() if value == max(size.values()) and value > 1}
        others = [{name} for name, value in sorted(size.items(), key=lambda item: -item[1]) if value > 1]
        smaller = (
            {name: value // 2 if name in halved else value for name, value in size.items()}
            for halved in (guessed, largest, *others)
            if halved
        )
        found = next((one for one in smaller if (work(one) or not work(size)) and load(one) < load(size)), None)
        if found is None:
            break
        size = found
    return size


def counted(shape: Sequence[str], sizes: Sequence[Mapping[str, int]]) -> list[int] | None:
    """Returns the number of elements at each size; None if a side is not a positive number at one of them."""
    counts = []
    for size in sizes:
        try:
            sides = [evaluate_integer(side, size, "side") for side in shape]
        except ContractError:
            return None
        if any(side < 1 for side in sides):
            return None
        counts.append(math.prod(sides))
    return counts


def commented_sides(kernel: Kernel, parameter: Parameter, extents: Sequence[str]) -> tuple[str, ...] | None:
    """Returns the sides that a comment gives a parameter: `const float* points, // (N, P, 3)`, or `// points: (N, P, 3)`."""
    sides = r"[^\n(\[]*[(\[]([\w \t,*/]+)[)\]]"
    name = re.escape(parameter.name)
    above = kernel.unit.text[max(kernel.start - 2000, 0) : kernel.start] if kernel.unit.language != "python" else ""
    comment = re.search(r"(?:(?:^[ \t]*//[^\n]*\n)+|/\*(?:(?!\*/).)*\*/\s*)\Z", above, re.DOTALL | re.MULTILINE)
    head = kernel.source.partition("{")[0]
    beside = re.search(rf"\b{name}\s*,?[ \t]*(?://|/\*){sides}", head)
    text = (comment[0] if comment is not None else "") + kernel.source
    found = beside or re.search(
        rf"^[ \t]*(?://+|/?\*+)[ \t]*(?:[@\\]param(?:\[\w+\])?[ \t]+)?{name}[ \t]*:{sides}", text, re.MULTILINE
    )
    return None if found is None else _commented(found[1], extents)


def _commented(text: str, extents: Sequence[str]) -> tuple[str, ...] | None:
    by_name = {name.lower(): name for name in extents}
    if len(by_name) < len(extents):
        return None
    sides = []
    for part in text.split(","):
        quotient = re.fullmatch(r"\s*(\w+)\s*/\s*(\w+)\s*", part)
        words = re.split(r"([A-Za-z_]\w*)", f"cdiv({quotient[1]}, {quotient[2]})" if quotient else part.strip())
        known = {**by_name, "cdiv": "cdiv"}
        if not part.strip() or any(re.match(r"[A-Za-z_]", word) and word.lower() not in known for word in words):
            return None
        sides.append("".join(known.get(word.lower(), word) for word in words))
    return tuple(sides)
