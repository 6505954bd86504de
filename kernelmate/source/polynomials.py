"""Polynomials in names with integer coefficients, the form in which subscripts are analysed."""

from __future__ import annotations

import itertools
from collections.abc import Collection

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
