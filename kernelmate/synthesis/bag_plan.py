"""Plan of reductions over gathered rows, or over rows between offsets.

Its domain has the axes of the results, and one more axis that the reductions remove. A bag is the set of rows that one
result reduces.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from kernelmate.synthesis.elements import BY_NUMBER, Elements, axes_in
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import KernelText
from kernelmate.synthesis.plan import Key, Refused, walk

REDUCING = ("reduce", "segment")
"""Operations whose results a loop over a bag computes."""

START = {"sum": 0.0, "prod": 1.0, "max": -float("inf"), "min": float("inf")}
NAMES = {"sum": "sum", "prod": "product", "max": "max_value", "min": "min_value"}


@dataclass(frozen=True, slots=True)
class Offsets:
    """Offsets of rows whose elements are stored consecutively.

    Attributes:
        name: the argument that holds an offset for each row.
        fewest: the minimum number of elements of a row.
        stop: the end of the last row as a contract expression, if the argument has no offset for it.
        rows: the number of rows, as an expression.
    """

    name: str
    fewest: int
    stop: str
    rows: str

    @property
    def note(self) -> str:
        """Returns the comment after the declaration of a row's end."""
        return "  // one element at least, as in reduceat" if self.fewest else ""

    def bounds(self, row: str, kernel: KernelText) -> tuple[str, str]:
        """Returns the first element of a row, and the end of the row, in C++."""
        following = f"{self.name}[{row} + 1]"
        if self.stop:
            following = f"{row} + 1 < {kernel.size(self.rows)} ? {following} : {kernel.size(self.stop)}"
        if self.fewest:
            first = f"{self.name}[{row}] + {self.fewest}"
            following = f"max({following}, {first})"
        return f"{self.name}[{row}]", following


def offsets_of(graph: Graph) -> Offsets:
    """Returns the offsets of a graph's segments.

    Raises:
        Refused: segments have different offsets, or computed ones.
    """
    several = [node for node in graph.nodes if node.op in ("segment", "repeat")]
    found: set[Offsets] = set()
    for one in several:
        node = graph.nodes[one.args[0]]
        while node.op in ("cast", "view"):
            node = graph.nodes[node.args[0]]
        if node.op != "input":
            raise Refused("its rows begin at offsets that it computes")
        rows, elements = one.shape[0], graph.nodes[one.args[1]].shape[0]
        if one.op == "repeat":
            rows, elements = elements, rows
        stop = elements if node.shape[0] == rows else ""
        found.add(Offsets(str(node.data[0]), int(one.data[1] or 0) if one.op == "segment" else 0, stop, rows))
    if len(found) > 1:
        raise Refused("it reduces along rows that several vectors describe")
    return found.pop()


@dataclass(frozen=True, slots=True)
class Bags(Elements):
    """A plan over the axes of the results and one more axis, along which reductions run.

    Attributes:
        depth: the length of that axis, which comes after the results' own.
        offsets: offsets along that axis at which the elements of each result begin; None if each result reduces the
            whole axis.
    """

    depth: str = "1"
    offsets: Offsets | None = None

    def operands(self, key: Key) -> tuple[Key, ...]:
        """Returns the keys of an operation's operands; for a reduction, along the reduced axis."""
        node, index = self.node(key), key[1]
        if node.op != "reduce":
            return Elements.operands(self, key)
        axis = int(node.data[1] or 0)
        taken: Any = None if self.graph.nodes[node.args[0]].shape[axis] == "1" else self.summed
        return ((node.args[0], (*index[:axis], taken, *index[axis:])),)


def bags_of(graph: Graph) -> Bags:
    """Returns the plan of a graph.

    Raises:
        Refused: results have different shapes, or reductions run along several axes or have fewer axes than the
            results.
    """
    nodes = graph.nodes
    domain = tuple(side for side in nodes[graph.outputs[0]].shape if side != "1")
    outputs = []
    for one in graph.outputs:
        if tuple(side for side in nodes[one].shape if side != "1") != domain or not domain:
            raise Refused("its outputs have different shapes")
        axes = iter(range(len(domain)))
        outputs.append((one, tuple(None if side == "1" else next(axes) for side in nodes[one].shape)))
    reductions = [node for node in nodes if node.op in REDUCING]
    between = any(node.op == "segment" for node in reductions)
    sides = {
        nodes[node.args[1]].shape[0] if node.op == "segment" else nodes[node.args[0]].shape[int(node.data[1] or 0)]
        for node in reductions
    }
    if len(sides) != 1 or any(node.data[0] not in START for node in reductions):
        raise Refused("it reduces elements selected by index along several axes")
    if between and any(node.op == "reduce" for node in reductions):
        raise Refused("it reduces rows between offsets along other axes besides")
    summed = len(domain)
    inner = frozenset({summed - 1, summed})
    offsets = offsets_of(graph) if between else None
    plan = Bags(graph, domain, 0, tuple(outputs), "map", (), inner, summed, sides.pop(), offsets)
    sums = sums_of(plan)
    whole = [key for key in sums if axes_in(key[1]) == {*range(len(domain))}]
    if any(plan.node(one).op in REDUCING for key in sums for one in inside(plan, [key])[:-1]) or not whole:
        raise Refused("it reduces elements selected by index, and uses them for more than one result")
    if not between and not any(plan.node(one).op in BY_NUMBER for one in inside(plan, whole)):
        raise Refused("it selects rows of an array by index")
    return plan


def sums_of(plan: Bags) -> list[Key]:
    """Returns the reductions in the order of their dependences."""
    return [key for key in walk(plan) if plan.node(key).op in REDUCING]


def inside(plan: Bags, keys: Sequence[Key], known: Collection[Key] = ()) -> list[Key]:
    """Returns the operations that a plan's given values are computed from, operands first, and these values.

    Operations that only `known` values depend on are left out.
    """
    seen: dict[Key, None] = {}

    def visit(key: Key) -> None:
        if key not in seen:
            for one in plan.operands(key) if key not in known else ():
                visit(one)
            seen[key] = None

    for key in keys:
        visit(key)
    return list(seen)


def behind_one_another(plan: Bags) -> bool:
    """Returns True if the elements of a bag, and never those along the results' last axis, are contiguous."""
    lasts = []
    for key in inside(plan, sums_of(plan)):
        used = [one for one in key[1] if one is not None]
        if plan.node(key).op == "input" and used:
            lasts.append(used[-1])
    return plan.summed in lasts and plan.summed - 1 not in lasts


def taken(plan: Bags, keys: Sequence[Key], text: KernelText, expressions: Expressions, texts: Sequence[str], at: str = "") -> tuple[list[str], dict[Key, tuple[str, str]]]:  # fmt: skip
    """Returns statements that add one value to each reduction, and each reduction's local and its type.

    `at` is appended to the local's name, such as a subscript.
    """
    lines: list[str] = []
    locals_: dict[Key, tuple[str, str]] = {}
    for key, value in zip(keys, texts, strict=True):
        kind, ctype = str(plan.node(key).data[0]), expressions.type_of(key)
        if ctype != expressions.real and (kind != "sum" or ctype == "bool"):
            raise Refused(f"the {kind} of {plan.node(key).dtype}")
        locals_[key] = text.names.fresh(NAMES[kind]), ctype
        lines += combined(kind, locals_[key][0] + at, value, ctype, text)
    return lines, locals_


def combined(kind: str, name: str, value: str, ctype: str, text: KernelText) -> list[str]:
    """Returns statements that combine a value with a local; NaN is preserved, as in NumPy."""
    if kind in ("sum", "prod"):
        return [f"{name} {'+' if kind == 'sum' else '*'}= {value};"]
    lines = []
    if not value.isidentifier():
        held = text.names.fresh("value")
        lines, value = [f"const {ctype} {held} = {value};"], held
    return [*lines, f"if ({value} {'>' if kind == 'max' else '<'} {name} || isnan({value})) {name} = {value};"]
