"""Sums of products of names with whole coefficients, as which subscripts are read."""

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
