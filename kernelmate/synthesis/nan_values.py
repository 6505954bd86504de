"""Maxima and minima that must return NaN if an element is NaN; not needed where the result is NaN anyway, as in softmax.

CUDA's `fmaxf` drops NaN, and NumPy's `max` keeps it. In `exp(x - x.max()) / exp(x - x.max()).sum()` the sum is NaN if an
element is, whatever the maximum was, and every result contains the sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelmate.synthesis.graph import Graph, Node

_KINDS = ("max", "min")

_PROPAGATE = frozenset(
    [
        "add",
        "subtract",
        "multiply",
        "divide",
        "true_divide",
        "negative",
        "positive",
        "absolute",
        "fabs",
        "square",
        "sqrt",
        "reciprocal",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "sin",
        "cos",
        "tan",
        "tanh",
        "sinh",
        "cosh",
        "arctan",
        "erf",
        "erfc",
    ]
)
"""Operations of which the result is NaN if an operand is, in NumPy and as they are written in C++."""

_EACH, _EVERY = 1, 2


@dataclass(frozen=True, slots=True)
class _Dependence:
    """Relation of a node to the elements whose maximum is taken.

    Attributes:
        depends: whether it depends on the maximum.
        nan: `_EACH` if an element is NaN where the element at its position is; `_EVERY` if each element that depends on a maximum
            of values one of which is NaN is NaN itself.
        axes: for each axis the axis of the elements that it is; None if its elements are at other positions.
    """

    depends: bool = False
    nan: int = 0
    axes: tuple[int | None, ...] | None = ()


def kinds_that_keep_nan(graph: Graph) -> frozenset[str]:
    """Returns the kinds of extremes of floats, `max` and `min`, whose reductions must not drop NaN in a graph."""
    nodes = graph.nodes
    found = {node.data[0] for node in nodes if node.op == "scan"}
    used = {(arg, node.data[0] if node.op == "reduce" else None) for node in nodes for arg in node.args}
    used |= {(one, None) for one in graph.outputs}
    for index, node in enumerate(nodes):
        if node.op != "reduce" or node.data[0] not in _KINDS or node.data[0] in found:
            continue
        within = {kind for arg, kind in used if arg == index} == {node.data[0]}  # of an extreme along several axes
        if not within and _is_seen(graph, index):
            found.add(node.data[0])
    return frozenset(kind for kind in _KINDS if kind in found)


def _is_seen(graph: Graph, extreme: int) -> bool:
    """Returns True if a result would not be NaN if only the extreme dropped NaN."""
    root, gone = extreme, set[int]()
    kept = list[int]()
    while graph.nodes[root].op == "reduce" and graph.nodes[root].data[0] == graph.nodes[extreme].data[0]:
        kept.append(int(graph.nodes[root].data[1] or 0))
        root = graph.nodes[root].args[0]
    every = list(range(len(graph.nodes[root].shape)))
    for axis in reversed(kept):
        gone.add(every.pop(axis))
    values: list[_Dependence] = []
    same = _widened_alike(graph, root)
    for index, node in enumerate(graph.nodes):
        if index in same:
            values.append(_Dependence(nan=_EACH, axes=tuple(range(len(node.shape)))))
        elif index == extreme:
            values.append(_Dependence(depends=True, axes=tuple(every)))
        else:
            values.append(_value(node, [values[one] for one in node.args], gone))
    return any(values[one].depends and values[one].nan != _EVERY for one in graph.outputs)


def _widened_alike(graph: Graph, root: int) -> set[int]:
    """Returns the values that are NaN where a value is: itself, and those of which it is a cast."""
    found = {root}
    while graph.nodes[root].op == "cast" and "float" in graph.nodes[graph.nodes[root].args[0]].dtype:
        (root,) = graph.nodes[root].args
        found.add(root)
    return found


def _value(node: Node, args: list[_Dependence], gone: set[int]) -> _Dependence:
    depends = any(one.depends for one in args)
    every = any(one.nan == _EVERY for one in args) and all(one.nan == _EVERY for one in args if one.depends)
    elsewhere = _Dependence(depends, _EVERY * every, None)
    match node.op:
        case "map" | "cast":
            return _mapped(node, args, depends, elsewhere)
        case "view":
            (source,) = args
            axes = source.axes
            turned = None if axes is None else tuple(None if one is None else axes[int(one)] for one in node.data)
            return _Dependence(depends, source.nan if turned is not None else elsewhere.nan, turned)
        case "reduce" if node.data[0] in ("sum", "prod"):
            (source,) = args
            if source.axes is None:
                return elsewhere
            axis = int(node.data[1] or 0)
            left = (*source.axes[:axis], *source.axes[axis + 1 :])
            nan = _EVERY if source.nan == _EACH and gone.isdisjoint(left) else source.nan
            return _Dependence(depends, nan, left)
        case "gather" | "along" if args[0].axes is not None and not args[1].depends:
            axes, axis = args[0].axes, -1 if node.op == "gather" else int(node.data[0] or 0)
            chosen = (
                axes[:-1]
                if node.op == "gather"
                else tuple(None if one == axis else own for one, own in enumerate(axes))
            )
            return _Dependence(depends, _EVERY * (args[0].nan == _EVERY), chosen)
        case "gather" | "take" | "pick" | "along" | "window" | "reshape":
            return elsewhere
    return _Dependence(depends, 0, None)


def _mapped(node: Node, args: list[_Dependence], depends: bool, elsewhere: _Dependence) -> _Dependence:
    """Returns the value of an operation on elements at the same positions, by NumPy's broadcasting rules."""
    axes: list[int | None] = [None] * len(node.shape)
    aligned = True
    for one in (one for one in args if one.depends or one.nan):
        for back, axis in enumerate(reversed(one.axes or ()), 1):
            aligned &= axis is None or axes[-back] in (None, axis)
            axes[-back] = axis if axis is not None else axes[-back]
        aligned &= one.axes is not None
    known = [axis for axis in axes if axis is not None]
    aligned &= len(known) == len({*known})
    passes = "float" in node.dtype and (node.op == "cast" or node.data[0] in _PROPAGATE)
    if not aligned:
        return elsewhere if passes else _Dependence(depends, 0, None)
    return _Dependence(depends, max((one.nan for one in args), default=0) if passes else 0, tuple(axes))
