"""Plan of element-wise evaluation with gathers: besides axes, an index may contain keys of selecting values."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelmate.synthesis.axes import in_sum
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph, Node
from kernelmate.synthesis.kernel_text import KernelText
from kernelmate.synthesis.names import RESERVED, Names
from kernelmate.synthesis.plan import Key, Plan, Refused

BY_NUMBER = ("take", "pick", "along", "gather")
"""Operations that select elements of one axis by index."""

COSTLY = frozenset(
    {"exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "sinpi", "cospi", "tan", "tanh", "sinh", "cosh", "power", "erf", "divide"}
)  # fmt: skip
"""Operations that are not repeated for several results."""

ADDING = ("scatter", "segment")
"""Operations that sum elements along an axis that their results do not have."""


@dataclass(frozen=True, slots=True)
class Elements(Plan):
    """A plan whose indices may contain keys of integer values that select elements.

    Attributes:
        inner: the axes along which a thread has several elements; values that do not vary along them are computed once.
        summed: the axis that sums by index remove.
    """

    inner: frozenset[int] = frozenset()
    summed: int = -1

    def operands(self, key: Key) -> tuple[Key, ...]:
        """Returns the keys of an operation's operands."""
        return _operands(self.graph, key, self.summed)

    def access(self, key: Key) -> str:
        """Returns `inner` for values that differ between a thread's elements; otherwise `outer`."""
        return "inner" if axes_in(key[1]) & self.inner else "outer"


def axes_in(index: Iterable[Any]) -> set[int]:
    """Returns the axes of an index, including those of selecting values in it."""
    found: set[int] = set()
    for one in index:
        if isinstance(one, tuple):
            found |= axes_in(one[1])
        elif isinstance(one, int):
            found.add(one)
    return found


def chosen_by(graph: Graph, key: Key) -> tuple[int, Any]:
    """Returns the selected axis of the first operand, and the key of the selecting values, or their axis."""
    node, index = graph.nodes[key[0]], key[1]
    source, numbers = (graph.nodes[one] for one in node.args)
    axis = {"take": 0, "gather": len(source.shape) - 1}.get(node.op)
    place = int(node.data[0] or 0) if axis is None else axis
    mine = index if node.op in ("gather", "along") else index[place : place + len(numbers.shape)]
    chosen = node.args[1]
    within = tuple(None if side == "1" else one for side, one in zip(numbers.shape, mine, strict=True))
    while graph.nodes[chosen].op in ("cast", "view"):
        source = graph.nodes[graph.nodes[chosen].args[0]]
        if graph.nodes[chosen].op == "view":
            places = [*graph.nodes[chosen].data]
            within = tuple(
                None if side == "1" else within[places.index(axis)] for axis, side in enumerate(source.shape)
            )
        elif source.dtype[:3] not in ("int", "uin"):
            break
        chosen = graph.nodes[chosen].args[0]
    if graph.nodes[chosen].op == "iota":
        return place, within[0]
    return place, (chosen, within)


def _operands(graph: Graph, key: Key, summed: int) -> tuple[Key, ...]:
    node, index = graph.nodes[key[0]], key[1]
    if node.op in ("map", "cast"):
        return tuple((one, aligned(graph.nodes[one], index)) for one in node.args)
    if node.op == "view":
        source = graph.nodes[node.args[0]]
        places = {axis: place for place, axis in enumerate(node.data) if axis is not None}
        sides = enumerate(source.shape)
        # An axis `#1/3` is only there in a view of a part of an array.
        inner = (None if side == "1" else side if side.startswith("#") else index[places[axis]] for axis, side in sides)
        return ((node.args[0], tuple(inner)),)
    if node.op in BY_NUMBER:
        source = graph.nodes[node.args[0]]
        place, chosen = chosen_by(graph, key)
        numbers = 1 if node.op == "along" else 0 if node.op == "gather" else len(graph.nodes[node.args[1]].shape)
        whole: tuple[Any, ...] = (*index[:place], chosen, *index[place + numbers :])
        found = (
            node.args[0],
            tuple(None if side == "1" else one for side, one in zip(source.shape, whole, strict=True)),
        )
        return (found, chosen) if isinstance(chosen, tuple) else (found,)
    if node.op == "repeat":
        values = graph.nodes[node.args[1]]
        return ((node.args[1], _of_summand(values, (0, *index[1:]))),)
    if node.op in ADDING:
        summands = node.args if node.op == "scatter" else node.args[1:]
        return tuple((one, _of_summand(graph.nodes[one], (summed, *index[1:]))) for one in summands)
    if node.op not in ("input", "scalar", "size", "constant", "iota"):
        raise Refused(f"it selects elements by index beside another operation ({node.op})")
    return ()


def _of_summand(node: Node, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the index of an element of an operand whose axes may be shorter than those of the result."""
    return tuple(None if side == "1" else one for side, one in zip(node.shape, index, strict=False))


def aligned(arg: Node, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the index of an operand under NumPy's broadcasting."""
    behind = index[len(index) - len(arg.shape) :]
    return tuple(None if side == "1" else one for side, one in zip(arg.shape, behind, strict=True))


class Numbers:
    """Writer of local variables for selecting indices, and of addresses that use them."""

    def __init__(self, plan: Elements, kernel: KernelText, at: Mapping[int, str]) -> None:
        self.plan, self.kernel, self.at = plan, kernel, at
        self._ints = set[str]()

    def taken(self, roots: Iterable[Key], expressions: Expressions, lines: list[str]) -> None:
        """Declares local variables for the indices that select elements which some values need.

        The declarations go to `lines`, or before them if all elements have the values in common.
        """
        for key in self._needed(roots, expressions.known):
            node = self.plan.node(key)
            place, chosen = chosen_by(self.plan.graph, key)
            if not isinstance(chosen, tuple) or chosen in expressions.known:
                continue
            target = lines if expressions.varies(chosen) else expressions.outer
            (text,) = expressions.locals_for([chosen], target)
            plain = re.fullmatch(r"static_cast<long long>\((\w+)\) \+ (\d+)", text)
            if plain is not None and len(self.plan.graph.nodes[node.args[0]].shape) == 1:
                expressions.known[chosen] = f"{plain[1]} + {plain[2]}"
                continue
            side = self.plan.graph.nodes[node.args[0]].shape[place]
            kind = expressions.type_of(chosen)
            if kind == "long long" and self._counts_int(side):
                kind, text = "int", self._narrowed(text)
            if not re.fullmatch(r"[a-zA-Z_]\w*|\d+|\w+ - 1", text):
                name = self.kernel.names.fresh(number_name(self.plan.node(chosen), self.kernel.names, side))
                target.append(f"const {kind} {name} = {text};")
                text = name
            if may_be_negative(self.plan.graph, chosen[0]):
                name, length = self.kernel.names.fresh("wrapped"), self.kernel.size(side)
                target.append(f"const {kind} {name} = {text} < 0 ? {text} + {length} : {text};")
                text = name
            if kind == "int":
                self._ints.add(text)
            expressions.known[chosen] = text

    def _counts_int(self, side: str) -> bool:
        """Returns True if an `int` can count the elements of an axis, so that indices along it are `int`."""
        sizes = set(re.findall(r"[A-Za-z_]\w*", side))
        return all(one in self.kernel.arguments and self.kernel.arguments[one].dtype == "int32" for one in sizes)

    def _narrowed(self, text: str) -> str:
        """Returns the text of an element's index as `int`, if its operands have that type."""
        front = "static_cast<long long>("
        if text.startswith(f"{front}") and text.endswith(")"):
            inside = text[len(front) : -1]
            depth = list(itertools.accumulate((one == "(") - (one == ")") for one in inside))
            if not depth or min(depth) >= 0:
                return f"static_cast<int>({inside})"
        words = re.findall(r"[A-Za-z_]\w*", " ".join(self.at.values()))
        places = {one for one in words if not one.startswith("row")}  # rows are a size_t
        sizes = {one.name for one in self.kernel.contract.args if one.shape is None and one.dtype == "int32"}
        known = {*self._ints, *places, *sizes}

        def plain(found: re.Match[str]) -> str:
            words = re.findall(r"[A-Za-z_]\w*", found[1])
            return found[1] if all(one in known for one in words) else found[0]

        found = re.sub(r"static_cast<long long>\(([\w +-]+)\)", plain, text)
        return text if "static_cast<long long>" in found else found  # overloads of min and max need equal types

    def _needed(self, roots: Iterable[Key], known: Mapping[Key, str]) -> list[Key]:
        """Returns the gathers that some values depend on, without those that only known values depend on.

        A gather comes after those that its index depends on, and before those of which it takes elements: their indices contain its own.
        """
        found: list[Key] = []
        seen: set[Key] = set()

        def visit(key: Key) -> None:
            if key in seen or key in known:
                return
            seen.add(key)
            operands = self.plan.operands(key)
            if self.plan.node(key).op in BY_NUMBER:
                for one in operands[1:]:
                    visit(one)
                found.append(key)
                operands = operands[:1]
            for one in operands:
                visit(one)

        for root in roots:
            visit(root)
        return found

    def address(self, key: Key, expressions: Expressions) -> str:
        """Returns the text of an element's offset in an array."""
        sides = self.plan.node(key).shape
        text = ""
        for one, side in zip(key[1], sides, strict=True):
            if one is None:
                continue
            if isinstance(one, str):  # `#1/3`: the second of three parts of a row
                number, _, count = one[1:].partition("/")
                front = f"static_cast<size_t>({text}) * {count}" if text else ""
                text = " + ".join(part for part in (front, number if number != "0" or not text else "") if part)
                continue
            here = expressions.known[one] if isinstance(one, tuple) else self.at[int(one)]
            if not text:
                text = here
                continue
            length = self.kernel.size(side)
            length = length if length.isidentifier() or length.isdigit() else f"({length})"
            front = f"static_cast<size_t>({text})" if "static_cast" not in text else f"({text})"
            text = f"{front} * {length} + {in_sum(here)}"
        return text or "0"


def number_name(numbers: Node, names: Names, side: str = "") -> str:
    """Returns a name for an index along an axis: `column` for an array `columns`, or the reference's name."""
    if numbers.op != "input":
        own = numbers.name not in RESERVED and names.is_free(numbers.name)
        return numbers.name if numbers.name and own else {"height": "in_row", "width": "in_col"}.get(side, "index")
    return names.element_name(str(numbers.data[0]))


def may_be_negative(graph: Graph, index: int) -> bool:
    """Returns True if computed indices may be negative, counting from the end as in NumPy.

    Indices that are read from arrays are used unchanged.
    """
    return graph.nodes[index].op != "input" and not never_negative(graph, index)


def never_negative(graph: Graph, index: int) -> bool:
    """Returns True if a value is known to be at least zero."""
    node = graph.nodes[index]
    known = (never_negative(graph, one) for one in node.args)
    match node.op:
        case "iota" | "size":
            return True
        case "constant":
            return isinstance(node.data[0], int | float) and node.data[0] >= 0
        case "input":
            return node.dtype[:3] in ("int", "uin", "boo")
        case "cast" | "view" | "pick" | "take" | "along" | "gather":
            return next(known)
        case "window":
            return all(known)
        case "map" if node.data[0] in ("square", "exp", "absolute", "searchsorted"):
            return True
        case "map" if node.data[0] == "maximum":
            return any(known)
        case "map" if node.data[0] == "multiply" and node.args[0] == node.args[1]:
            return True
        case "map" if node.data[0] == "where":
            return all(itertools.islice(known, 1, None))
        case "map" if node.data[0] == "subtract":
            first, second = (graph.nodes[one] for one in node.args)
            return first.op == "size" and second.op == "iota" and f"({second.shape[0]} - 1)" == first.data[0]
        case "map":
            kept = (
                "add",
                "multiply",
                "divide",
                "floor_divide",
                "remainder",
                "minimum",
                "floor",
                "ceil",
                "rint",
                "trunc",
                "sqrt",
            )
            return node.data[0] in kept and all(known)
    return False
