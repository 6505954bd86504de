"""Recurrences whose next state reduces over the whole state: recurrent networks, hidden Markov models, Markov chains.

A block keeps the vectors of one sequence in shared memory, those before a step and those after it. A few neighbouring
lanes compute each element. Traffic: each block reads the matrices once per step, mostly from the caches; everything else is read
and written once. Arithmetic: that of the graph for each step, one after the other.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kernelmate.source import evaluate
from kernelmate.synthesis.axes import address
from kernelmate.synthesis.elements import Elements, aligned
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph, Node
from kernelmate.synthesis.index_maps import ORDINARY, AxisMap
from kernelmate.synthesis.kernel_text import STATIC_BYTES, KernelText, WrittenKernel, block_of, fresh_names
from kernelmate.synthesis.names import position_name
from kernelmate.synthesis.plan import Key, Refused
from kernelmate.synthesis.reductions import WARP, Reductions, Team, start_of

MOST_THREADS = 1024
"""Threads of a block (CUDA C++ Programming Guide, Technical Specifications)."""

FEW_LANES = 4
"""Lanes that share an element if elements are neighbours in memory: a warp then reads eight of them, a sector of 32 bytes."""

AHEAD = 4
"""Number of a sum's terms whose loads overlap."""

_STARTS = {"sum": 0.0, "prod": 1.0}
_WORDS = {"sum": "sum", "prod": "product", "max": "largest", "min": "smallest"}

_Target: TypeAlias = "tuple[str, str, str]"
"""A place to store a value to: the name of the array, empty for shared memory; the element; the value's dtype in NumPy."""


@dataclass(frozen=True, slots=True)
class _VectorSteps(Elements):
    """Plan in which an index has the text of a position for each axis, or None for an axis of length 1.

    Attributes:
        loops: the variable of each reduction by its node.
    """

    loops: dict[int, str] = field(default_factory=dict, kw_only=True)

    def operands(self, key: Key) -> tuple[Key, ...]:
        """Returns where the operands of an operation are evaluated; for a reduction, at its variable."""
        node, index = self.node(key), key[1]
        match node.op:
            case "map" | "cast" | "view":
                return Elements.operands(self, key)
            case "reduce":
                axis = int(node.data[1] or 0)
                return ((node.args[0], (*index[:axis], self.loops[key[0]], *index[axis:])),)
            case "window":
                return (self._windowed(node, index),)
            case "input" | "scalar" | "size" | "constant" | "iota" | "state" | "recur":
                return ()
        raise Refused(f"it has another operation ({node.op}) beside a recurrence over vectors")

    def _windowed(self, node: Node, index: Sequence[Any]) -> Key:
        maps = [AxisMap.of(one) for one in node.data]
        if len(node.args) > 1 or any(one.beyond != ORDINARY or one.every != 1 for one in maps):
            raise Refused("it pads or mirrors arrays within a step")
        found: list[Any] = []
        for one, side in zip(maps, self.graph.nodes[node.args[0]].shape, strict=True):
            terms = [f"{step} * {index[place]}" if step != 1 else f"{index[place]}" for place, step in one.terms if index[place] is not None]  # fmt: skip
            offset = [] if one.offset == "0" else [f"{{{one.offset}}}"]
            found.append(None if side == "1" else " + ".join([*terms, *offset]) or "0")
        return node.args[0], tuple(found)

    def access(self, key: Key) -> str:
        """Returns `element`: nothing is moved out of loops, which compilers do."""
        return "element"


def is_over_vectors(graph: Graph) -> bool:
    """Returns True if what follows a state reduces over states."""
    depends = set[int]()
    for place, node in enumerate(graph.nodes):
        if node.op == "state" or (node.op != "recur" and depends.intersection(node.args)):
            depends.add(place)
    return any(node.op == "reduce" and place in depends for place, node in enumerate(graph.nodes))


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields the generated kernel.

    Raises:
        Refused: the schedule does not apply.
    """
    carried = [node for node in graph.nodes if node.op == "recur"]
    if len({(node.data[0], node.data[3:], node.args) for node in carried}) != 1:
        raise Refused("it has recurrences of several loops")
    sides = [side for axis, side in enumerate(_shape(carried[0])) if axis != _axis(carried[0])]
    reason: Refused | None = None
    for vector in reversed(range(len(sides))):
        try:
            yield _VectorText(graph, kernel.again(), carried[0], vector).written()
        except Refused as error:
            reason = reason or error
            continue
        return
    raise reason or Refused("it carries single numbers")


def _axis(node: Node) -> int:
    return int(node.data[3] or 0)


def _shape(node: Node) -> tuple[str, ...]:
    """Returns the shape of the states of all steps."""
    return (*node.shape[: _axis(node)], str(node.data[5]), *node.shape[_axis(node) + 1 :])


class _StepExpressions(Expressions):
    """Writer of expressions in which parts of arrays are read by their positions."""

    def _bare(self, key: Key) -> Key:
        if self.plan.node(key).op == "window":
            return self._bare(self.plan.operands(key)[0])
        return super()._bare(key)


class _VectorText:
    """Writer of the kernel's text.

    Args:
        vector: the axis of the vectors among those of a state.

    Attributes:
        at: the text of the position along each axis of a state.
        buffer: where states are read: before the loop nowhere, in a step where those of the step before are.
        same: for each state, the results that it is stored to.
    """

    def __init__(self, graph: Graph, kernel: KernelText, carried: Node, vector: int) -> None:
        self.graph, self.kernel, self.carried = graph, kernel, carried
        self.plan = _VectorSteps(graph, (), 0, (), "free")
        self.outputs = [one.name for one in kernel.outputs()]
        shape, self.axis = _shape(carried), _axis(carried)
        self.steps = shape[self.axis]
        sides = [side for axis, side in enumerate(shape) if axis != self.axis]
        self.outer = [axis for axis in range(len(sides)) if axis != vector]
        self.sides, self.vector = sides, vector
        values = len(carried.args) // 2
        self.starts, self.next = carried.args[:values], carried.args[values:]
        if {graph.nodes[one].dtype[:5] for one in carried.args} != {"float"}:
            raise Refused("it carries other than floating-point states")
        self.names = fresh_names(kernel, "step", "lane", "now", "following", "carried", "before")
        words = {vector: "element"} | ({self.outer[0]: "sequence"} if len(self.outer) == 1 else {})
        self.at = [kernel.names.fresh(words.get(axis, position_name(side))) for axis, side in enumerate(sides)]
        self.length = self._text_of(sides[vector])
        threads = int(evaluate(sides[vector], kernel.contract.sizes[0]))
        self.lanes = self._lanes(threads)
        self.threads = min(MOST_THREADS, -(-threads * self.lanes // WARP) * WARP)
        self.names.kThreads, own = kernel.threads(self.threads)
        self.names.kLanes, lanes = kernel.constant("Lanes", self.lanes, "neighbouring threads that share an element")
        self.constants = [*own, *(lanes if self.lanes > 1 else [])]
        self.expressions = _StepExpressions(self.plan, kernel, self._leaf, frozenset({"element"}))
        self.reductions = Reductions(self.plan, kernel, Team("warp", self.lanes, self.threads), self.names.kThreads)
        self.read = [str(node.data[0]) for node in graph.nodes if node.op == "input"]
        if {*self.read} & {*self.outputs}:
            raise Refused("it reads an array that it writes")
        self.buffer, self._steps = "", True
        self.uses_before = False
        self.same: list[list[_Target]] = [[] for _ in self.next]

    def _lanes(self, elements: int) -> int:
        """Returns how many lanes share an element: few if neighbouring elements are what is contiguous in a matrix."""
        reduced = [place for place, node in enumerate(self.graph.nodes) if node.op == "reduce"]
        most = WARP if all(self._is_contiguous(place) for place in reduced) else FEW_LANES
        fits = max(1, MOST_THREADS // max(elements, 1))
        return 1 << (min(most, fits, max(elements, 1)).bit_length() - 1)

    def _is_contiguous(self, reduced: int) -> bool:
        """Returns True if the terms of a reduction are neighbours in all matrices."""
        plan = _VectorSteps(self.graph, (), 0, (), "free", loops=dict.fromkeys(range(len(self.graph.nodes)), "term"))
        stack: list[Key] = [(reduced, tuple("element" for _ in self.graph.nodes[reduced].shape))]
        while stack:
            key = stack.pop()
            stack += plan.operands(key)
            places = [one for one in key[1] if one is not None]
            if plan.node(key).op == "input" and "term" in places[:-1]:
                return False
        return True

    def _text_of(self, side: str) -> str:
        text = self.kernel.size(side)
        return text if re.fullmatch(r"\w+", text) else f"({text})"

    # ------------------------------------------------------------------------------------------------ values

    def _leaf(self, key: Key) -> str:
        node = self.plan.node(key)
        if node.op == "scalar":
            return self.kernel.loaded(str(node.data[0]), str(node.data[0]))
        if node.op == "iota":
            return "0" if key[1][0] is None else self._position(key[1][0])
        name = str(node.data[0])
        return self.kernel.loaded(name, f"{name}[{self._offset(node.shape, key[1])}]")

    def _offset(self, shape: Sequence[str], index: Sequence[Any]) -> str:
        """Returns the offset of an array's element."""
        long = [
            (self._text_of(side), self._position(one))
            for side, one in zip(shape, index, strict=True)
            if one is not None
        ]
        return address(tuple(range(len(long))), [side for side, _ in long], dict(enumerate(one for _, one in long)))

    def _position(self, text: Any) -> str:
        """Returns a position in C++; sizes in braces are expressions of the contract."""
        return re.sub(r"\{(.*?)\}", lambda found: self._text_of(found[1]), str(text))

    def _state(self, key: Key) -> str:
        """Returns the place of a carried element in shared memory.

        Raises:
            Refused: it is an element of another step or sequence.
        """
        node = self.plan.node(key)
        index = [*key[1]]
        step = index.pop(self.axis)
        last = node.op == "recur" and node.data[2] == "last"
        if not self.buffer or step != (None if last else self.names.step) or last == self._steps:
            raise Refused("it needs states of other steps")
        if any(index[axis] != (None if self.sides[axis] == "1" else self.at[axis]) for axis in self.outer):
            raise Refused("its states are mixed along several axes")
        buffer = self.buffer
        if node.op == "recur" and node.data[2] == "before":
            buffer, self.uses_before = self.names.now, True
        number = int(node.data[1] or 0)
        front = f"{number} * {self.length} + " if number > 1 else f"{self.length} + " * number
        return f"{buffer}[{front}{self._position(index[self.vector])}]"

    def _evaluated(self, roots: Sequence[Key], lines: list[str]) -> list[str]:
        """Returns the texts of some values; statements that compute them, reductions first, go to `lines`."""
        for states, reductions in self._levels(roots):
            self.expressions.known |= {key: self._state(key) for key in states}
            for _, group in itertools.groupby(sorted(reductions, key=self._length_of), key=self._length_of):
                lines += self._reduced(list(group))
        return self.expressions.locals_for(roots, lines)

    def _levels(self, roots: Sequence[Key]) -> Iterator[tuple[list[Key], list[Key]]]:
        """Yields states, and reductions that depend on those yielded before alone."""
        depth: dict[Key, int] = {}
        states = dict[Key, None]()

        def visit(key: Key) -> int:
            if key not in depth:
                node = self.plan.node(key)
                if node.op == "reduce":
                    if self._is_in_loop(key):
                        raise Refused("it reduces what it has reduced in the same step for each state")
                    self.plan.loops.setdefault(key[0], self.kernel.names.fresh("other"))
                if node.op in ("state", "recur"):
                    states[key] = None
                below = max((visit(one) for one in self.plan.operands(key)), default=0)
                depth[key] = below + (node.op == "reduce")
            return depth[key]

        most = max((visit(key) for key in roots), default=0)
        yield [*states], []
        for level in range(1, most + 1):
            yield [], [key for key, found in depth.items() if found == level and self.plan.node(key).op == "reduce"]

    def _is_in_loop(self, key: Key) -> bool:
        """Returns True if a reduction has a result for each term of another one."""
        words = {word for one in key[1] if one is not None for word in re.findall(r"[A-Za-z_]\w*", str(one))}
        return not words.isdisjoint(self.plan.loops.values())

    def _length_of(self, key: Key) -> str:
        node = self.plan.node(key)
        return self.graph.nodes[node.args[0]].shape[int(node.data[1] or 0)]

    def _reduced(self, keys: Sequence[Key]) -> list[str]:
        """Returns the loop that computes reductions over axes of one length, and their combination over lanes."""
        expressions, real = self.expressions, self.kernel.real
        infinity = [expressions.number(sign * float("inf")) for sign in (-1, 1)]
        variable = self.plan.loops[keys[0][0]]
        known = dict(expressions.known)
        totals, lines = [], list[str]()
        for key in keys:
            kind = str(self.plan.node(key).data[0])
            if kind not in ("sum", "prod", "max", "min") or not self.plan.node(key).dtype.startswith("float"):
                raise Refused(f"it reduces states by {kind}")
            totals.append(self.kernel.names.fresh(_WORDS[kind]))
            start = start_of(kind, real, infinity) if kind in ("max", "min") else expressions.number(_STARTS[kind])
            lines.append(f"{real} {totals[-1]} = {start};")
        body: list[str] = []
        operands = [self._at(self.plan.operands(key)[0], self.plan.loops[key[0]], variable) for key in keys]
        texts = expressions.locals_for(operands, body)
        kinds = [str(self.plan.node(key).data[0]) for key in keys]
        body += [self.reductions.combined(*one) for one in zip(kinds, totals, texts, strict=True)]
        first, step = (self.names.lane, self.names.kLanes) if self.lanes > 1 else ("0", "1")
        advance = f"{variable} += {step}" if step != "1" else f"++{variable}"
        head = f"for (int {variable} = {first}; {variable} < {self._text_of(self._length_of(keys[0]))}; {advance})"
        lines += [f"#pragma unroll {AHEAD}", *block_of(head, body)]
        expressions.known = known | dict(zip(keys, totals, strict=True))
        if self.lanes > 1:
            lines += [f"{one} = {self.reductions.function(kind, real)}({one});" for kind, one in zip(kinds, totals, strict=True)]  # fmt: skip
        return lines

    def _at(self, key: Key, old: str, new: str) -> Key:
        """Returns a key with another variable, for a loop that several reductions share; its states become known."""
        index = tuple(re.sub(rf"\b{old}\b", new, one) if isinstance(one, str) else one for one in key[1])
        stack: list[Key] = [(key[0], index)]
        while stack:
            one = stack.pop()
            node = self.plan.node(one)
            if node.op in ("state", "recur"):
                self.expressions.known[one] = self._state(one)
            elif node.op != "reduce":
                stack += self.plan.operands(one)
        return key[0], index

    # ------------------------------------------------------------------------------------------------ statements

    def _elements(self, at: str, length: str, roots: Sequence[Key], targets: Sequence[Sequence[_Target]]) -> list[str]:
        """Returns the loop over the elements that a thread computes, each of which is stored in some places."""
        self.expressions.known = {}
        lines: list[str] = []
        texts = self._evaluated(roots, lines)
        stores: list[str] = []
        for text, places in zip(texts, targets, strict=True):
            if len(places) > 1 and not re.fullmatch(r"\w+", text):
                name = self.kernel.names.fresh("next")
                stores.append(f"const {self.kernel.real} {name} = {text};")
                text = name
            for array, place, dtype in places:
                stores.append(f"{place} = {self.kernel.stored(array, text, dtype) if array else text};")
        lines += block_of(f"if ({self.names.lane} == 0)", stores) if self.lanes > 1 else stores
        thread = f"threadIdx.x / {self.names.kLanes}" if self.lanes > 1 else "threadIdx.x"
        each = f"{self.names.kThreads} / {self.names.kLanes}" if self.lanes > 1 else self.names.kThreads
        if not at:
            return block_of(f"if ({thread} == 0)", lines)
        return block_of(f"for (int {at} = {thread}; {at} < {length}; {at} += {each})", lines)

    def _results(self, *, steps: bool) -> list[str]:
        """Returns statements that store the results of a step, or those after all steps."""
        self._steps = steps
        lines: list[str] = []
        for output, name in zip(self.graph.outputs, self.outputs, strict=True):
            if self._is_of_steps(output) == steps:
                lines += self._result(output, name)
        return lines

    def _is_of_steps(self, output: int) -> bool:
        """Returns True if a result has elements for each step."""
        seen, stack = set[int](), [output]
        while stack:
            place = stack.pop()
            node = self.graph.nodes[place]
            if place in seen:
                continue
            seen.add(place)
            if node.op == "recur":
                return node.data[2] != "last"
            stack += node.args
        raise Refused("it has a result that does not depend on the recurrence")

    def _result(self, output: int, name: str) -> list[str]:
        """Returns the loop that stores one result, for the first assignment of its axes that uses a step's own states."""
        shape = self.graph.nodes[output].shape
        fixed = [(self.steps, self.names.step)] * self._steps + [(self.sides[one], self.at[one]) for one in self.outer]
        own = self.at[self.vector]
        long = [axis for axis, side in enumerate(shape) if side != "1"]
        reason: Refused | None = None
        for order in itertools.permutations(long, len(fixed)):
            rest = [axis for axis in long if axis not in order]
            if len(rest) > 1 or any(shape[axis] != side for axis, (side, _) in zip(order, fixed, strict=True)):
                continue
            at = {axis: text for axis, (_, text) in zip(order, fixed, strict=True)} | dict.fromkeys(rest, own)
            index = tuple(at.get(axis) for axis in range(len(shape)))
            place = f"{name}[{self._offset(shape, index)}]"
            before, target = self.uses_before, (name, place, self.graph.nodes[output].dtype)
            state = self.expressions.bare((output, index))
            try:
                if rest and self._is_next(state, shape[rest[0]]):
                    self.same[int(self.plan.node(state).data[1] or 0)].append(target)
                    return []
                length = self._text_of(shape[rest[0]]) if rest else ""
                return self._elements(own if rest else "", length, [(output, index)], [[target]])
            except Refused as error:
                reason, self.uses_before = reason or error, before
        raise reason or Refused("its results have other axes than its states")

    def _is_next(self, key: Key, side: str) -> bool:
        """Returns True if a value is the element of the state after the step that the same thread has computed."""
        node = self.plan.node(key)
        if node.op != "recur" or node.data[2] != "all" or side != self.sides[self.vector]:
            return False
        index = [one for axis, one in enumerate(key[1]) if axis != self.axis]
        return self._state(key) != "" and index[self.vector] == self.at[self.vector]

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, real = self.kernel, self.names, self.kernel.real
        count = len(self.next)
        total = self.length if count == 1 else f"{count} * {self.length}"
        vector = self.at[self.vector]
        index = [None if side == "1" else self.at[axis] for axis, side in enumerate(self.sides)]
        first = [(one, self._indexed(one, None, index)) for one in self.starts]
        starts = self._elements(vector, self.length, first, [[one] for one in self._places(names.now)])
        self.buffer = names.following
        results = self._results(steps=True)
        self.buffer = names.now
        follow = [(one, self._indexed(one, names.step, index)) for one in self.next]
        places = [[one, *self.same[number]] for number, one in enumerate(self._places(names.following))]
        step = self._elements(vector, self.length, follow, places)
        last = self._results(steps=False)
        body = [*step, "__syncthreads();", *results, *(["__syncthreads();"] if self.uses_before else [])]
        body += [
            f"{real}* const {names.before} = {names.now};",
            f"{names.now} = {names.following};",
            f"{names.following} = {names.before};",
        ]
        at, steps = names.step, self._text_of(self.steps)
        head = f"for (int {at} = 0; {at} < {steps}; ++{at})"
        if self.carried.data[4]:
            head = f"for (int {at} = {steps} - 1; {at} >= 0; --{at})"
        outer = [self.sides[one] for one in self.outer if self.sides[one] != "1"]
        lines = [
            f"extern __shared__ {real} {names.carried}[];",
            f"{real}* {names.now} = {names.carried};  // the vectors of the step before",
            f"{real}* {names.following} = {names.carried} + {total};",
            *self._sequence(),
            *([f"const int {names.lane} = threadIdx.x % {names.kLanes};"] if self.lanes > 1 else []),
            *starts,
            "__syncthreads();",
            *block_of(head, body),
            *last,
        ]
        each = 2 * count * (8 if real == "double" else 4)
        shared = f"{each} * {self.sides[self.vector]}"
        if max(evaluate(shared, size) for size in kernel.contract.sizes) > STATIC_BYTES:
            raise Refused("its states need more than 48 KiB of shared memory")
        why = "a block for each sequence keeps its state in shared memory, and computes each element of the next state from all of it."
        return WrittenKernel(
            f"recurrence-vectors-{self.lanes}",
            f"Written from the reference: {why}{kernel.promise(self.read)}",
            kernel.definition(kernel.head(f"__launch_bounds__({names.kThreads}) "), lines),
            "\n".join([*self.constants, "", *self.reductions.texts()]).strip(),
            (" * ".join(outer) or "1",),
            self.threads,
            shared=shared,
        )

    def _places(self, buffer: str) -> list[_Target]:
        """Returns the place of a thread's element in a buffer, for each vector that is carried."""
        vector = self.at[self.vector]
        fronts = [
            f"{number} * {self.length} + " if number > 1 else f"{self.length} + " * number
            for number in range(len(self.next))
        ]
        return [("", f"{buffer}[{front}{vector}]", "") for front in fronts]

    def _sequence(self) -> list[str]:
        """Returns the declarations of a block's positions along the axes other than that of the vectors."""
        outer, lines, left = [one for one in self.outer if self.sides[one] != "1"], list[str](), "blockIdx.x"
        for number, axis in enumerate(reversed(outer)):
            more = number + 1 < len(outer)
            side = self._text_of(self.sides[axis])
            lines.append(f"const int {self.at[axis]} = {f'{left} % {side}' if more else left};")
            left = f"{left} / {side}"
        return lines

    def _indexed(self, place: int, step: str | None, index: Sequence[str | None]) -> tuple[str | None, ...]:
        """Returns the index of a state, or of what broadcasts to one."""
        return aligned(self.graph.nodes[place], (*index[: self.axis], step, *index[self.axis :]))
