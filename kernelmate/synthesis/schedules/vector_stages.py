"""Order in which the values of a step of a recurrence over vectors are computed, and those kept in shared memory.

A reduction over values that are themselves reductions needs these as a vector in shared memory: they are computed in one
level of a step, and read in a later one, after a barrier.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernelmate.synthesis.elements import BY_NUMBER, COSTLY, Elements, aligned, may_be_negative
from kernelmate.synthesis.graph import Graph, Node, sorted_graph
from kernelmate.synthesis.index_maps import ABOVE, EDGE, ORDINARY, OTHERWISE, WRAP, AxisMap, linear
from kernelmate.synthesis.plan import Key, Refused
from kernelmate.synthesis.size_text import ATOM, PRODUCT, SUM, bound

OWN, OTHER = "element", "other"
"""Position of the element that a thread computes, and of a term of a reduction, in the index of a value."""

SHORT = 4
"""Number of elements up to which a reduction has no loop."""

COMBINING = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
"""The operation on two values of a reduction of each kind."""

BEFORE_LOOP = -1
"""Level of what is computed before the loop."""


def _place(one: AxisMap, index: Sequence[Any]) -> str:
    """Returns the position in an array of an element of a window, with sizes in braces."""
    terms = [
        f"{step} * {bound((str(index[axis]), SUM if ' ' in str(index[axis]) else ATOM), PRODUCT)}"
        if step != 1
        else f"{index[axis]}"
        for axis, step in one.terms
        if index[axis] is not None
    ]
    offset = linear(one.offset)
    if offset.terms or not terms:
        return " + ".join([*terms, *[f"{{{one.offset}}}"] * (one.offset != "0")]) or "0"
    inner = re.fullmatch(r"(\w+) ([+-]) (\d+)", terms[-1])  # a window of a window
    constant = offset.constant + (0 if inner is None else int(f"{inner[2]}{inner[3]}"))
    text = " + ".join([*terms[:-1], terms[-1] if inner is None else inner[1]])
    return f"{text} {'-' if constant < 0 else '+'} {abs(constant)}" if constant else text


def _is_below(one: AxisMap) -> bool:
    """Returns True if a window begins before its array."""
    offset = linear(one.offset)
    return not offset.terms and offset.constant < 0


@dataclass(frozen=True, slots=True)
class VectorSteps(Elements):
    """Plan in which an index has the text of a position for each axis, or None for an axis of length 1.

    An element that a number selects has a position as `@2<element>`: the number is the third of `selected`, and depends on
    what the brackets hold.
    """

    selected: list[Key] = field(default_factory=list, kw_only=True, compare=False)

    def operands(self, key: Key) -> tuple[Key, ...]:
        """Returns where the operands of an operation are evaluated; for a reduction, at one of its terms."""
        node, index = self.node(key), key[1]
        match node.op:
            case "map" | "cast" | "view":
                return Elements.operands(self, key)
            case "reduce":
                axis = int(node.data[1] or 0)
                return ((node.args[0], (*index[:axis], OTHER, *index[axis:])),)
            case "window":
                others = node.args[1:]
                return (self._windowed(node, index), *((one, aligned(self.graph.nodes[one], index)) for one in others))
            case _ if node.op in BY_NUMBER:
                source, *_ = Elements.operands(self, key)
                return (
                    (source[0], tuple(self._selecting(one) if isinstance(one, tuple) else one for one in source[1])),
                )
            case "input" | "scalar" | "size" | "constant" | "iota" | "state" | "recur":
                return ()
        raise Refused(f"it has another operation ({node.op}) beside reductions")

    def _selecting(self, chosen: Key) -> str:
        """Returns the position that a number selects.

        Raises:
            Refused: the number is computed by reductions or from states, or may count from the end.
        """
        stack = [chosen]
        while stack:
            one = stack.pop()
            if self.node(one).op in ("reduce", "state", "recur"):
                raise Refused("it selects elements by indices that it computes in a step")
            stack += self.operands(one)
        if may_be_negative(self.graph, chosen[0]):
            raise Refused("it selects elements by computed indices that may be negative")
        if chosen not in self.selected:
            self.selected.append(chosen)
        within = " ".join(str(one) for one in chosen[1] if one is not None)
        return f"@{self.selected.index(chosen)}<{re.sub('[<>]', ' ', within)}>"

    def _windowed(self, node: Node, index: Sequence[Any]) -> Key:
        found: list[Any] = []
        for one, side in zip(map(AxisMap.of, node.data), self.graph.nodes[node.args[0]].shape, strict=True):
            if one.every != 1 or one.beyond not in (ORDINARY, OTHERWISE, ABOVE, WRAP, EDGE):
                raise Refused("it mirrors or spreads arrays within a step")
            place = "0" if side == "1" else _place(one, index)
            if one.beyond == WRAP:
                far = _is_below(one) and linear(one.offset).constant < -1  # perhaps more than the whole axis
                place = f"(({place}) % {{{side}}} + {{{side}}}) % {{{side}}}" if far else f"({place}{f' + {{{side}}}' * _is_below(one)}) % {{{side}}}"  # fmt: skip
            elif one.beyond == EDGE:
                place = f"min(max({place}, 0), {{{side}}} - 1)"
            found.append(None if side == "1" else place)
        return node.args[0], tuple(found)

    def inside(self, key: Key) -> str:
        """Returns the condition under which a window has an element of its array; empty if it always has."""
        node, tests = self.node(key), list[str]()
        for one, side in zip(map(AxisMap.of, node.data), self.graph.nodes[node.args[0]].shape, strict=True):
            if one.beyond not in (OTHERWISE, ABOVE):
                continue
            place = _place(one, key[1])
            below = _is_below(one) and " + " not in place
            sides = [node.shape[axis] for axis, _ in one.terms]
            counted = not linear(one.offset).terms and all(step > 0 for _, step in one.terms)
            if one.beyond == OTHERWISE and (below or not counted):
                tests.append(re.sub(r"^(\w+) - (\d+) >= 0$", r"\1 >= \2", f"{place} >= 0"))
            if not (below and sides == [side]):
                tests.append(f"{place} < {{{side}}}")
        return " && ".join(tests)

    def access(self, key: Key) -> str:
        """Returns `element`: nothing is moved out of loops, which compilers do."""
        return "element"

    def reduced_side(self, key: Key) -> str:
        """Returns the number of a reduction's terms."""
        node = self.node(key)
        return self.graph.nodes[node.args[0]].shape[int(node.data[1] or 0)]


def variables(index: Iterable[Any]) -> set[str]:
    """Returns which of `OWN` and `OTHER` an index depends on."""
    return {word for one in index if one is not None for word in re.findall(r"[A-Za-z_]\w*", str(one))} & {OWN, OTHER}


@dataclass(frozen=True, slots=True)
class StagedVector:
    """A vector in shared memory.

    Attributes:
        key: the value at a thread's own element.
        side: the number of elements.
        level: number of the step's barriers before it is computed.
        buffers: text of each location up to the element's index, which ends in `[` or ` + `; the first is read.
    """

    key: Key
    side: str
    level: int
    buffers: tuple[str, ...]


@dataclass(slots=True)
class Stages:
    """The values that are computed together before the loop, in a step or after it, by level.

    Attributes:
        bare: returns the key below operations without effect.
        said: returns the reference's name for a value.
        is_state: checks a state's index, and says if it is one.
        step: the position along the steps in an index.
        fresh: returns a new name for a local.
        kept: the locations (as `StagedVector.buffers`) of values that are stored anyway, by vector.
        before: the stages before the loop, which get the reductions that are the same in all steps; their level is -1.
        staged: the vectors in shared memory.
        numbers, of_elements: the level of each reduction to one number for the whole block, and to one for each element.
    """

    plan: VectorSteps
    bare: Callable[[Key], Key]
    said: Callable[[Key], str]
    is_state: Callable[[Key], bool]
    step: str
    fresh: Callable[[str], str]
    kept: Mapping[Key, tuple[str, ...]]
    before: Stages | None = None
    staged: dict[Key, StagedVector] = field(default_factory=dict)
    numbers: dict[Key, int] = field(default_factory=dict)
    of_elements: dict[Key, int] = field(default_factory=dict)
    _levels: dict[tuple[Key, str], int] = field(default_factory=dict)
    _open: set[Key] = field(default_factory=set)
    _parted: set[tuple[Key, bool]] = field(default_factory=set)

    def level(self, key: Key, side: str) -> int:
        """Returns the level at which a value can be computed: the number of a step's barriers before it.

        Args:
            key: the value.
            side: the number of elements of the loop that computes it; empty for a single value.

        Raises:
            Refused: it reduces reductions that are not vectors.
        """
        key = self.bare(key)
        if (key, side) not in self._levels:
            self._levels[key, side] = self._level(key, side)
        return self._levels[key, side]

    def _level(self, key: Key, side: str) -> int:
        if self.is_state(key):
            return 0
        vector = self.vector_of(key)
        if vector is not None:
            return vector.level + (not self.is_own(key, vector, side))
        if self.plan.node(key).op == "reduce":
            if self.before is not None and self._is_invariant(key) and self._moved(key, self.before):
                return BEFORE_LOOP
            return self._reduction_level(key, side)
        return max((self.level(one, side) for one in self.plan.operands(key)), default=0)

    def is_own(self, key: Key, vector: StagedVector, side: str) -> bool:
        """Returns True if a loop of some length that computes a vector also needs this element of it."""
        return vector.key == key and vector.side == side

    def _moved(self, key: Key, before: Stages) -> bool:
        """Computes a reduction before the loop, if it is one number or an element of a vector."""
        if not variables(key[1]):
            before.level(key, "")
            return True
        if not self._is_vector(key):
            return False
        own, side = self._canonical(key)
        if before.vector_of(key) is None:
            before._add(own, side, ())
        self.staged[own] = replace(before.staged[own], level=BEFORE_LOOP)
        return True

    def _is_invariant(self, key: Key) -> bool:
        """Returns True if a value is the same in all steps."""
        return not self.depends_on(key, self.step)

    def depends_on(self, key: Key, position: str) -> bool:
        """Returns True if a value depends on carried values, or on a position along an axis."""
        below = self._reached(key, lambda one: True)
        return any(self.plan.node(one).op in ("state", "recur") or position in one[1] for one in below)

    def _reached(self, key: Key, goes_on: Callable[[Key], bool]) -> Iterator[Key]:
        """Yields a value and those that it is computed from, each once, up to those of which a condition is true."""
        seen, stack = set[Key](), [key]
        while stack:
            one = self.bare(stack.pop())
            if one not in seen:
                seen.add(one)
                yield one
                stack += self.plan.operands(one) if goes_on(one) else ()

    def _reduction_level(self, key: Key, side: str) -> int:
        operand = self.plan.operands(key)[0]
        for inner in self.reductions([operand]):
            if OTHER not in variables(inner[1]):
                self.level(inner, side)
        self._stage(operand, each=OWN in variables(key[1]))
        found = self.level(operand, side)
        known = self.of_elements if OWN in variables(key[1]) else self.numbers
        known[key] = found
        return found

    def reductions(self, roots: Iterable[Key]) -> list[Key]:
        """Returns the reductions that some values need and that are neither within others nor elements of vectors."""
        found, seen, stack = dict[Key, None](), set[Key](), [*roots]
        while stack:
            key = self.bare(stack.pop())
            if key in seen or self.is_state(key):
                continue
            seen.add(key)
            if self.vector_of(key) is not None:
                continue
            if self.plan.node(key).op == "reduce":
                found[key] = None
            else:
                stack += reversed(self.plan.operands(key))
        return [*found]

    def _stage(self, key: Key, *, each: bool) -> None:
        """Makes vectors of parts of a reduction's operand: those that are reductions themselves, or costly to repeat."""
        key = self.bare(key)
        if (key, each) in self._parted or self.is_state(key) or self.vector_of(key) is not None:
            return
        self._parted.add((key, each))
        found = variables(key[1])
        if found == {OTHER} and self._is_vector(key) and self._needs_vector(key, each=each):
            self._add(*self._canonical(key), ())
        elif self.plan.node(key).op == "reduce":
            if OTHER in found:
                raise Refused("it reduces a matrix of reductions in each step")
        else:
            for one in self.plan.operands(key):
                self._stage(one, each=each)

    def _is_vector(self, key: Key) -> bool:
        return sum(bool(variables([one])) for one in key[1]) == 1

    def _needs_vector(self, key: Key, *, each: bool) -> bool:
        of_terms = [one for one in self.reductions([key]) if OTHER in variables(one[1])]
        if of_terms:
            return True
        inner = self._reached(key, lambda one: self.plan.node(one).op != "reduce" and self.vector_of(one) is None)
        nodes = [self.plan.node(one) for one in inner]
        depends = any(one.op in ("state", "recur", "reduce") for one in nodes)
        return each and depends and any(one.op == "map" and one.data[0] in COSTLY for one in nodes)

    def _canonical(self, key: Key) -> tuple[Key, str]:
        """Returns a vector's value at a thread's own element, and the number of its elements."""
        place = next(axis for axis, one in enumerate(key[1]) if variables([one]))
        return (key[0], (*key[1][:place], OWN, *key[1][place + 1 :])), self.plan.node(key).shape[place]

    def vector_of(self, key: Key) -> StagedVector | None:
        """Returns the vector of which a value is an element, if it is in shared memory."""
        if not self._is_vector(key) or self.plan.node(key).op in ("input", "iota"):
            return None
        own, side = self._canonical(key)
        if own in self.kept and own not in self.staged and own not in self._open:
            self._add(own, side, self.kept[own])
        return self.staged.get(own)

    def _add(self, own: Key, side: str, buffers: tuple[str, ...]) -> None:
        """Adds a vector, in the given locations or, without any, in a new array."""
        node = self.plan.node(own)
        if not node.dtype.startswith("float"):
            raise Refused(f"it reduces {node.dtype} values that are reductions themselves")
        self._open.add(own)
        level = self.level(own, side)
        self._open.discard(own)
        if own in self.staged:  # it is computed before the loop
            return
        if not buffers:
            buffers = (f"{self.fresh(self.said(own) or 'staged')}[",)
        self.staged[own] = StagedVector(own, side, level, buffers)

    def owned(self) -> list[StagedVector]:
        """Returns the vectors that are computed among these values and have arrays of their own."""
        return [one for one in self.staged.values() if one.key not in self.kept and one.level >= 0]

    def place(self, key: Key) -> str:
        """Returns the position of a vector's element."""
        return next(str(one) for one in key[1] if variables([one]))

    def copy(self) -> Stages:
        """Returns stages to which values may be added without changing these."""
        return replace(
            self,
            staged=dict(self.staged),
            numbers=dict(self.numbers),
            of_elements=dict(self.of_elements),
            _levels=dict(self._levels),
            _parted=set(self._parted),
        )


def with_short_sums(graph: Graph) -> Graph:
    """Returns a graph in which reductions of a few elements, as coordinates, are operations on these elements."""
    nodes = list(graph.nodes)
    for index, node in enumerate(graph.nodes):
        side = graph.nodes[node.args[0]].shape[int(node.data[1] or 0)] if node.op == "reduce" else ""
        if not side.isdigit() or not 1 < int(side) <= SHORT or str(node.data[0]) not in COMBINING:
            continue
        axis, rank = int(node.data[1] or 0), len(node.shape)
        found = -1
        for place in range(int(side)):
            kept = [AxisMap("0", ((one, 1),)).text() for one in range(rank)]
            data = (*kept[:axis], AxisMap(str(place)).text(), *kept[axis:])
            nodes.append(Node("window", node.args, node.shape, node.dtype, data))
            if place:
                nodes.append(
                    Node("map", (found, len(nodes) - 1), node.shape, node.dtype, (COMBINING[str(node.data[0])],))
                )
            found = len(nodes) - 1
        nodes[index] = replace(nodes[found], name=node.name)
    return graph if len(nodes) == len(graph.nodes) else sorted_graph(nodes, graph.outputs)
