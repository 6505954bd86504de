"""Addresses that the lanes of a warp access: indices evaluated for the threads of one block at the headline size.

There is no symbolic algebra: an index is computed for concrete threads, with loops at their first iteration, so that
casts, divisions, remainders and intermediate variables have their exact values. Values that depend on memory or on
calls are None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from kernelmate.errors import KernelmateError
from kernelmate.records import Contract, LaunchShape
from kernelmate.source import launch_shape, scalar_values
from kernelmate.suggest.syntax import ELEMENT_BYTES, Node, Tree, integer_constants, strip_parentheses
from kernelmate.suggest.syntax_effects import call_name, element_accesses, index_of, is_written, operator, root_name
from kernelmate.suggest.syntax_loops import enclosing_loops, loops

_DEEPEST = 40
LOOP_TURNS = 8
"""Assumed number of iterations of each loop, to weight accesses relative to each other."""

Thread = tuple[int, int, int]


def _truncated(a: float, b: float) -> float:
    quotient = abs(int(a)) // abs(int(b))
    return quotient if (a < 0) == (b < 0) else -quotient


_BINARY: Mapping[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _truncated,
    "%": lambda a, b: a - b * _truncated(a, b),
    "<<": lambda a, b: int(a) << int(b),
    ">>": lambda a, b: int(a) >> int(b),
    "&": lambda a, b: int(a) & int(b),
    "|": lambda a, b: int(a) | int(b),
    "^": lambda a, b: int(a) ^ int(b),
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "&&": lambda a, b: bool(a) and bool(b),
    "||": lambda a, b: bool(a) or bool(b),
}


@dataclass(frozen=True, slots=True)
class ElementAccess:
    """Accesses to an element of global memory.

    `width` is the element's size in bytes, `weight` the assumed number of accesses.
    """

    element: Node
    array: str
    width: int
    weight: int
    stored: bool


class LaneEvaluator:
    """Evaluator of a kernel's expressions for given threads of the first block.

    Args:
        tree: the kernel.
        contract: gives the sizes and the launch.

    Raises:
        KernelmateError: the contract's launch cannot be evaluated.
    """

    def __init__(self, tree: Tree, contract: Contract) -> None:
        self.tree = tree
        self.size = contract.sizes[0]
        self.shape: LaunchShape = launch_shape(contract, self.size)
        self._scalars: Mapping[str, float] = {
            name: value for name, value in scalar_values(contract, self.size).items() if isinstance(value, int | float)
        }
        self._constants = {name: one.value for name, one in integer_constants(tree.kernel.unit.text).items()}
        self._loops = {loop.name: loop for loop in reversed(loops(tree))}
        self._contract = contract

    def value(self, node: Node, thread: Thread, known: Mapping[str, float] | None = None) -> int | None:
        """Returns the value of an integer expression for one thread; None if unknown.

        `known` has values of variables, such as a loop variable.
        """
        try:
            found = self._value(node, thread, known or {}, 0)
        except (ArithmeticError, ValueError, TypeError, RecursionError):
            return None
        return None if found is None else int(found)

    def accesses(self) -> Iterator[ElementAccess]:
        """Yields element accesses through pointer parameters of the kernel, or through local pointers into them."""
        widths = {p.name: p for p in self.tree.kernel.signature.parameters if p.pointer}
        arguments = {argument.name: argument for argument in self._contract.args}
        for element in element_accesses(self.tree):
            name = root_name(self.tree, element)
            if name is None:
                continue
            origin = self.origin(name)
            if origin not in widths or index_of(element) is None:
                continue
            width = ELEMENT_BYTES.get(widths[origin].base) or _item_bytes(arguments[origin].dtype) or 4
            turns = LOOP_TURNS ** min(len(enclosing_loops(element)), 3)
            yield ElementAccess(element, origin, width, turns, is_written(self.tree, element))

    def origin(self, name: str) -> str | None:
        """Returns the pointer parameter of this name, or the one that a local pointer of this name is derived from."""
        for _ in range(_DEEPEST):
            if any(p.name == name and p.pointer for p in self.tree.kernel.signature.parameters):
                return name
            variable = self.tree.variable(name)
            if variable is None or variable.pointers != 1 or variable.value is None:
                return None
            base = root_name(self.tree, variable.value)
            if base is None:
                return None
            name = base
        return None

    def address(self, element: Node, thread: Thread, known: Mapping[str, float] | None = None) -> int | None:
        """Returns the element's offset from the array's start in elements, for one thread; None if unknown."""
        index = index_of(element)
        base = element.child_by_field_name("argument")
        if index is None or base is None:
            return None
        at, start = self.value(index, thread, known), self._pointer(base, thread, known or {}, 0)
        return None if at is None or start is None else at + int(start)

    def warp(self, block: Thread | None = None) -> list[Thread]:
        """Returns the threads of a block's first warp, with x varying fastest."""
        sides = block or self.shape.block
        threads = ((x, y, z) for z, y, x in product(*(range(side) for side in reversed(sides))))
        return [thread for thread, _ in zip(threads, range(32), strict=False)]

    def sectors(self, access: ElementAccess, threads: list[Thread]) -> int | None:
        """Returns the number of 32-byte sectors that one access of these threads touches; None if unknown."""
        places = [self.address(access.element, thread) for thread in threads]
        known = [place for place in places if place is not None]
        if len(known) != len(places):
            return None
        return len({place * access.width // 32 for place in known})

    # ------------------------------------------------------------------------------------ evaluation

    def _pointer(self, node: Node, thread: Thread, known: Mapping[str, float], depth: int) -> float | None:
        """Returns the offset of a pointer expression into its array in elements; None if unknown."""
        node = strip_parentheses(node)
        if node.type == "identifier":
            name = self.tree.text(node)
            if any(p.name == name for p in self.tree.kernel.signature.parameters):
                return 0
            variable = self.tree.variable(name)
            if variable is None or variable.value is None or depth > _DEEPEST:
                return None
            return self._pointer(variable.value, thread, known, depth + 1)
        if node.type == "pointer_expression" and operator(self.tree, node) == "&":
            argument = strip_parentheses(node.named_children[0])
            base, index = argument.child_by_field_name("argument"), index_of(argument)
            if argument.type != "subscript_expression" or base is None or index is None:
                return None
            return _sum(self._pointer(base, thread, known, depth + 1), self._value(index, thread, known, depth + 1))
        if node.type == "binary_expression" and operator(self.tree, node) == "+":
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            if left is None or right is None:
                return None
            start = self._pointer(left, thread, known, depth + 1)
            if start is not None:
                return _sum(start, self._value(right, thread, known, depth + 1))
        return None

    def _value(self, node: Node, thread: Thread, known: Mapping[str, float], depth: int) -> float | None:
        if depth > _DEEPEST:
            return None
        node = strip_parentheses(node)
        text = self.tree.text(node)
        if node.type == "number_literal":
            return float(int(text.rstrip("uUlL").replace("'", ""), 0))
        if node.type == "field_expression":
            return self._builtin(re.sub(r"\s", "", text), thread)
        if node.type == "identifier":
            return self._named(text, thread, known, depth)
        if node.type == "cast_expression":
            return self._field(node, "value", thread, known, depth)
        if node.type == "unary_expression":
            inner = self._field(node, "argument", thread, known, depth)
            sign = operator(self.tree, node)
            if inner is None or sign not in {"-", "+", "!"}:
                return None
            return -inner if sign == "-" else float(not inner) if sign == "!" else inner
        if node.type == "conditional_expression":
            chosen = self._field(node, "condition", thread, known, depth)
            return (
                None
                if chosen is None
                else self._field(node, "consequence" if chosen else "alternative", thread, known, depth)
            )
        if node.type == "binary_expression":
            left, right = (self._field(node, side, thread, known, depth) for side in ("left", "right"))
            apply = _BINARY.get(operator(self.tree, node))
            return None if left is None or right is None or apply is None else float(apply(left, right))
        if node.type == "call_expression":
            return self._call(node, thread, known, depth)
        return None

    def _field(self, node: Node, field: str, thread: Thread, known: Mapping[str, float], depth: int) -> float | None:
        child = node.child_by_field_name(field)
        return None if child is None else self._value(child, thread, known, depth + 1)

    def _builtin(self, text: str, thread: Thread) -> float | None:
        match = re.fullmatch(r"(threadIdx|blockIdx|blockDim|gridDim)\.([xyz])", text)
        if match is None:
            return None
        axis = "xyz".index(match[2])
        return float(
            {"threadIdx": thread, "blockIdx": (0, 0, 0), "blockDim": self.shape.block, "gridDim": self.shape.grid}[
                match[1]
            ][axis]
        )

    def _named(self, name: str, thread: Thread, known: Mapping[str, float], depth: int) -> float | None:
        if name in known:
            return known[name]
        if name in self._loops:
            return self._value(self._loops[name].start, thread, known, depth + 1)
        if name in self._scalars:
            return self._scalars[name]
        variable = self.tree.variable(name)
        if name in self._constants and name not in self.tree.variables:
            return float(self._constants[name])
        if variable is None or variable.value is None or variable.pointers or variable.dims:
            return None
        return self._value(variable.value, thread, known, depth + 1)

    def _call(self, node: Node, thread: Thread, known: Mapping[str, float], depth: int) -> float | None:
        name = call_name(self.tree, node).removeprefix("std::")
        arguments = node.child_by_field_name("arguments")
        values = (
            [] if arguments is None else [self._value(a, thread, known, depth + 1) for a in arguments.named_children]
        )
        numbers = [value for value in values if value is not None]
        if len(numbers) != len(values) or not numbers:
            return None
        if name in {"min", "max"}:
            return min(numbers) if name == "min" else max(numbers)
        if len(numbers) == 1 and (name in {"int", "unsigned", "size_t"} or name.startswith("static_cast<")):
            return numbers[0]
        return None


def lanes_of(tree: Tree, contract: Contract) -> LaneEvaluator | None:
    """Returns an evaluator for a kernel; None if its launch cannot be evaluated."""
    try:
        return LaneEvaluator(tree, contract)
    except (KernelmateError, ArithmeticError):
        return None


def turns_of_threads(tree: Tree, contract: Contract) -> int | None:
    """Returns the largest number of iterations, at the headline size, of loops that the block's threads share.

    More threads than that would be idle. The result is None if there is no loop from `threadIdx.x` in steps of
    `blockDim.x`, if threads also share loops in another way, or if iterations cannot be counted.
    """
    lanes = lanes_of(tree, contract)
    most = None
    for loop in loops(tree):
        step = "".join(loop.step.split())
        if step.isdigit():
            continue
        if lanes is None or step != "blockDim.x":
            return None
        variable = tree.variable(tree.text(loop.start)) if loop.start.type == "identifier" else None
        start = loop.start if variable is None or variable.value is None else variable.value
        if "".join(tree.text(start).split()) != "threadIdx.x":
            continue  # what another such loop left
        bound = tree.variable(tree.text(loop.bound)) if loop.bound.type == "identifier" else None
        given = None if bound is None else bound.value
        if given is not None and given.type == "conditional_expression":
            given = given.child_by_field_name("consequence")
        turns = lanes.value(given or loop.bound, (0, 0, 0))
        if turns is None:
            return None
        most = max(turns, most or 0)
    return most


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _item_bytes(dtype: str) -> int:
    match = re.search(r"(\d+)(?:_.*)?$", dtype)
    return int(match[1]) // 8 if match else 1
