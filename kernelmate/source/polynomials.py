"""Polynomials in names with integer coefficients, the form in which subscripts are analysed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence

Poly = dict[tuple[str, ...], int]
"""Coefficients of products of names; the empty product is the constant."""


def added(left: Poly, right: Poly, sign: int) -> Poly:
    """Returns the sum of two polynomials, or with the sign -1 their difference."""
    found = dict(left)
    for product, factor in right.items():
        found[product] = found.get(product, 0) + sign * factor
    return {product: factor for product, factor in found.items() if factor}


def multiplied(left: Poly, right: Poly) -> Poly:
    """Returns the product of two polynomials."""
    found: Poly = {}
    for first, second in itertools.product(left.items(), right.items()):
        product = tuple(sorted((*first[0], *second[0])))
        found[product] = found.get(product, 0) + first[1] * second[1]
    return {product: factor for product, factor in found.items() if factor}


def split_offset(poly: Poly, extents: Collection[str]) -> tuple[Poly, Poly]:
    """Returns the terms with index variables, and those with sizes alone: `i` and `2 * n` of `i + 2 * n`."""
    offset = {product: factor for product, factor in poly.items() if product and set(product) <= set(extents)}
    return {product: factor for product, factor in poly.items() if product not in offset}, offset


def with_planes(rest: Poly, plane: tuple[str, ...], count: str, index: str) -> Poly:
    """Returns a subscript to which multiples of a product are added, with an index for them: `(r * 2 + p) * n + c` for `2 * r * n + c`.

    Args:
        rest: the subscript without these multiples.
        plane: the product, `n` here.
        count: the number of multiples as the name of a size, "2" here.
        index: the name of the index, `p` here.
    """
    found: Poly = {tuple(sorted((index, *plane))): 1}
    for product, factor in rest.items():
        around = factor % int(count) == 0 and set(plane) < set(product)
        found[tuple(sorted((*product, count))) if around else product] = factor // int(count) if around else factor
    return found


def pitches_of(text: str, names: Sequence[str], bounds: Mapping[str, Collection[tuple[str, ...]]]) -> Mapping[str, str]:
    """Returns the names that are row lengths, `pitch` of `y * pitch + x`, each with the only size that `x` is below.

    Args:
        text: code with one blank between tokens.
        names: names that may be row lengths.
        bounds: the sizes that variables are compared with.
    """
    found: dict[str, str] = {}
    for name in names:
        rows = rf"\b\w+ \* {name}\b|\b{name} \* \w+"
        inner = {a or b for a, b in re.findall(rf"(?:{rows}) \+ (\w+)(?= [\];)+])|[\[(=] (\w+) \+ (?:{rows})", text)}
        sizes = {bound for index in inner for bound in bounds.get(index, [()])}
        if len(sizes) == 1 and len(size := sizes.pop()) == 1:
            found[name] = size[0]
    return found
