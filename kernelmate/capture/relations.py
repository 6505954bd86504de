"""Expressions over sizes that have observed values at every captured launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

Values = tuple[int, ...]
"""Values of one quantity, one for each launch."""

POWERS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Constants that are tried as divisors: elements of a vector, of a tile, of a block."""

_SMALLEST = 2
"""Values below this are not evidence of a relation: 0 and 1 occur everywhere."""


@dataclass(frozen=True, slots=True)
class Relation:
    """An expression that has the observed value at every launch.

    Attributes:
        text: the expression.
        others: as simple expressions that fit as well, so that `text` may be a coincidence.
    """

    text: str
    others: tuple[str, ...] = ()


def find_relation(
    wanted: Values, sizes: Mapping[str, Values], block: Mapping[str, Values] | None = None
) -> Relation | None:
    """Returns the simplest expression for observed values; None if the search finds none.

    The search tries, in this order: a name; rounded-up quotients by the block; products; both together; sums, products and
    quotients with a constant; minima with a constant. A value that is the same at every launch is a name, a quotient by the
    block or a product where the names are constant, too, else the number itself.

    Args:
        wanted: the values.
        sizes: the values of each name that an expression may use, in the order of preference.
        block: names of the block's number of threads and sides that it may use, for a grid or shared memory.
    """
    constant = len(set(wanted)) == 1
    if constant and wanted[0] < _SMALLEST:
        return Relation(str(wanted[0]))
    names = {name: values for name, values in sizes.items() if max(values, default=0) >= _SMALLEST}
    levels = [_names, _block_quotients, _products, _products_and_quotients]
    found = _first(levels, wanted, names, block or {})
    if found is not None or constant:
        return found or Relation(str(wanted[0]))
    return _first([_with_constant, _block_tiles, _quotients, _bounded], wanted, names, block or {})


Level = Callable[[Values, Mapping[str, Values], Mapping[str, Values]], Iterator[tuple[str, Values]]]
"""Gives expressions of one degree of complexity with their values: of the wanted values, the sizes and the block."""


def _first(levels: Sequence[Level], wanted: Values, sizes: Mapping[str, Values], block: Mapping[str, Values]) -> Relation | None:  # fmt: skip
    for level in levels:
        fitting = list(dict.fromkeys(text for text, values in level(wanted, sizes, block) if values == wanted))
        if fitting:
            return Relation(fitting[0], tuple(fitting[1:]))
    return None


def _names(_wanted: Values, sizes: Mapping[str, Values], _block: Mapping[str, Values]) -> Iterator[tuple[str, Values]]:
    yield from sizes.items()


def _block_quotients(_wanted: Values, sizes: Mapping[str, Values], block: Mapping[str, Values]) -> Iterator[tuple[str, Values]]:  # fmt: skip
    for name, values in sizes.items():
        for divisor, by in block.items():
            yield f"cdiv({name}, {divisor})", _each(cdiv, values, by)


def _products(
    _wanted: Values, sizes: Mapping[str, Values], _block: Mapping[str, Values]
) -> Iterator[tuple[str, Values]]:
    for count in (2, 3):
        for names in combinations(sizes, count):
            product = sizes[names[0]]
            for name in names[1:]:
                product = _each(_times, product, sizes[name])
            yield " * ".join(names), product


def _products_and_quotients(wanted: Values, sizes: Mapping[str, Values], block: Mapping[str, Values]) -> Iterator[tuple[str, Values]]:  # fmt: skip
    for text, values in _products(wanted, sizes, block):
        for divisor, by in block.items():
            yield f"cdiv({text}, {divisor})", _each(cdiv, values, by)
    quotients = list(_block_quotients(wanted, sizes, block))
    for text, values in quotients:
        for name, other in sizes.items():
            yield f"{name} * {text}", _each(_times, other, values)
    for (text, values), (other_text, other) in combinations(quotients, 2):
        yield f"{text} * {other_text}", _each(_times, values, other)


def _with_constant(
    wanted: Values, sizes: Mapping[str, Values], block: Mapping[str, Values]
) -> Iterator[tuple[str, Values]]:
    """Fits one constant: as a factor, a summand or a divisor that rounds down."""
    bases = [*sizes.items(), *block.items(), *_products(wanted, sizes, block)]
    for text, values in bases:
        if values[0] and wanted[0] % values[0] == 0:
            factor = wanted[0] // values[0]
            yield f"{text} * {factor}", tuple(one * factor for one in values)
    for text, values in bases:
        apart = wanted[0] - values[0]
        yield f"{text} {'+' if apart > 0 else '-'} {abs(apart)}", tuple(one + apart for one in values)
    for text, values in sizes.items():
        for by in POWERS:
            yield f"{text} // {by}", tuple(one // by for one in values)


def _block_tiles(
    wanted: Values, sizes: Mapping[str, Values], block: Mapping[str, Values]
) -> Iterator[tuple[str, Values]]:
    """Quotients by several elements for each thread of a block."""
    for text, values in [*sizes.items(), *_products(wanted, sizes, block)]:
        for divisor, threads in block.items():
            for by in POWERS[:6]:
                tiles = tuple(cdiv(one, by * count) for one, count in zip(values, threads, strict=True))
                yield f"cdiv({text}, {by} * {divisor})", tiles


def _quotients(
    wanted: Values, sizes: Mapping[str, Values], _block: Mapping[str, Values]
) -> Iterator[tuple[str, Values]]:
    """Rounded-up quotients by a constant, and products with them."""
    quotients = [
        (f"cdiv({name}, {by})", tuple(cdiv(one, by) for one in values))
        for name, values in sizes.items()
        for by in POWERS
    ]
    yield from quotients
    for text, values in quotients:
        for name, other in sizes.items():
            yield f"{name} * {text}", _each(_times, other, values)
        if values[0] and wanted[0] % values[0] == 0:
            yield f"{text} * {wanted[0] // values[0]}", tuple(one * (wanted[0] // values[0]) for one in values)
    for (text, values), (other_text, other) in combinations(quotients, 2):
        yield f"{text} * {other_text}", _each(_times, values, other)


def _bounded(wanted: Values, sizes: Mapping[str, Values], block: Mapping[str, Values]) -> Iterator[tuple[str, Values]]:
    """Yields minima of an expression and the largest wanted value, as in the grid of a grid-stride loop."""
    bound = max(wanted)
    for level in (_names, _block_quotients, _products_and_quotients):
        for text, values in level(wanted, sizes, block):
            if len(set(values)) > 1:
                yield f"min({text}, {bound})", tuple(min(one, bound) for one in values)


def _each(function: Callable[[int, int], int], left: Values, right: Values) -> Values:
    return tuple(function(one, other) for one, other in zip(left, right, strict=True))


def _times(left: int, right: int) -> int:
    return left * right


def cdiv(number: int, by: int) -> int:
    """Returns a quotient, rounded up; 0 where there is none."""
    return -(-number // by) if by else 0


def find_fraction(
    wanted: Sequence[float], sizes: Mapping[str, Values], rounded: Callable[[float], float]
) -> str | None:
    """Returns an expression for a floating-point parameter that changes with sizes: `1 / n`, `n ** -0.5`; None if there is none.

    Args:
        wanted: its values.
        sizes: the values of each name.
        rounded: rounds a number to the parameter's dtype.
    """
    products = [*sizes.items(), *_products((), sizes, {})]
    for form, function in _FRACTIONS.items():
        for text, values in products:
            named = f"({text})" if " " in text and form != "{}" else text
            if all(values) and [rounded(function(one)) for one in values] == list(wanted):
                return form.format(named)
    return None


_FRACTIONS: dict[str, Callable[[int], float]] = {
    "{}": float,
    "1 / {}": lambda one: 1 / one,
    "{} ** -0.5": lambda one: one**-0.5,
    "{} ** 0.5": lambda one: one**0.5,
}
