"""Matrix products and convolutions in a graph, and the calls of torch that compute the products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelmate.synthesis.graph import Node
from kernelmate.synthesis.torch_views import arranged

LETTERS = "abcdefghijklmnopqrstuvwxyz"

FEW_PARTS = 2
"""Parts of an array up to which products of them with parts of another array are not a convolution."""


@dataclass(frozen=True, slots=True)
class Factor:
    """An operand of a product: the node that it is a view of, and for each axis of the product that node's axis, or None."""

    base: int
    axes: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """A sum of products of two arrays along one axis, in which at least one of them lacks an axis."""

    factors: tuple[Factor, Factor]
    axis: int

    @property
    def bases(self) -> tuple[int, int]:
        """Returns the nodes of both operands, without their views."""
        return self.factors[0].base, self.factors[1].base


def product_of(nodes: Sequence[Node], index: int) -> MatrixProduct | None:
    """Returns a node as a matrix product; None if it is not one."""
    node = nodes[index]
    if node.op != "reduce" or node.data[0] != "sum":
        return None
    multiplied = nodes[node.args[0]]
    if multiplied.op != "map" or multiplied.data[0] != "multiply":
        return None
    axis, rank = int(node.data[1] or 0), len(multiplied.shape)
    left, right = (_factor(nodes, one, rank) for one in multiplied.args)
    if left is None or right is None or left.axes[axis] is None or right.axes[axis] is None:
        return None
    whole = None not in (*left.axes, *right.axes)  # an element-wise product of two whole arrays
    return None if whole else MatrixProduct((left, right), axis)


def is_pure(nodes: Sequence[Node], index: int) -> bool:
    """Returns True for a matrix product of two arguments."""
    found = product_of(nodes, index)
    return found is not None and all(nodes[one].op == "input" for one in found.bases)


def _factor(nodes: Sequence[Node], index: int, rank: int) -> Factor | None:
    """Returns an operand of a product with this number of axes, with its views undone; None for a number."""
    node = nodes[index]
    if not node.shape or len(node.shape) > rank:
        return None
    axes: list[int | None] = [*[None] * (rank - len(node.shape)), *range(len(node.shape))]
    while node.op == "view" or _is_widening(nodes, node):
        if node.op == "view":
            axes = [None if one is None else _axis(node, one) for one in axes]
        index = node.args[0]
        node = nodes[index]
    named = [one for one in axes if one is not None]
    if len(named) != len(node.shape) or any(node.shape[one] == "1" for one in named):
        return None  # an axis of length 1 is dropped or broadcast
    return Factor(index, tuple(axes))


def _is_widening(nodes: Sequence[Node], node: Node) -> bool:
    """Returns True for a cast of one floating-point type to another."""
    return node.op == "cast" and "float" in node.dtype and "float" in nodes[node.args[0]].dtype


def _axis(view: Node, axis: int) -> int | None:
    datum = view.data[axis]
    return None if datum is None else int(datum)


def call_of(product: MatrixProduct, texts: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the function of torch for a product, `matmul` or `einsum`, and the texts of its arguments.

    Args:
        product: the product.
        texts: of both operands, without their views.
    """
    factors, rank, axis = product.factors, len(product.factors[0].axes), product.axis
    rest = [one for one in range(rank) if one != axis]
    both = [one for one in rest if all(factor.axes[one] is not None for factor in factors)]
    own = [[one for one in rest if one not in both and factor.axes[one] is not None] for factor in factors]
    for first, second in ((0, 1), (1, 0)):
        rows, columns = own[first], own[second]
        if [*both, *rows, *columns] != rest or len(rows) > 1 or len(columns) > 1 or (both and not (rows and columns)):
            continue
        orders = {first: [*both, *rows, axis], second: [*both, axis, *columns]}
        return "matmul", [_ordered(texts[place], factors[place], orders[place]) for place in (first, second)]
    sides = (_letters(factor) for factor in factors)
    return "einsum", [f'"{",".join(sides)}->{"".join(LETTERS[one] for one in rest)}"', *texts]


def _ordered(text: str, factor: Factor, order: Sequence[int]) -> str:
    kept = [one for one in (factor.axes[place] for place in order) if one is not None]
    return arranged(text, len(kept), kept, [False] * len(kept))


def _letters(factor: Factor) -> str:
    """Returns the letters of an operand's axes in its own order."""
    named = sorted((own, LETTERS[place]) for place, own in enumerate(factor.axes) if own is not None)
    return "".join(letter for _, letter in named)


def is_convolution(nodes: Sequence[Node]) -> bool:
    """Returns True if many parts of one array are multiplied with parts of another."""
    parts: dict[frozenset[str], set[int]] = {}
    for node in nodes:
        if node.op == "map" and node.data[0] == "multiply":
            named = {name for name in (_part_of(nodes, one) for one in node.args) if name is not None}
            if len(named) == len(node.args):
                parts.setdefault(frozenset(named), set()).update(node.args)
    return any(len(both) > 2 * FEW_PARTS for both in parts.values())


def _part_of(nodes: Sequence[Node], index: int) -> str | None:
    """Returns the argument of which a node is a part; None for anything else."""
    node, windowed = nodes[index], False
    while node.op in ("view", "window", "cast", "reshape"):
        windowed |= node.op == "window"
        node = nodes[node.args[0]]
    return str(node.data[0]) if windowed and node.op == "input" else None
