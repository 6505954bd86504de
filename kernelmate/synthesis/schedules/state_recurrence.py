"""Recurrences whose state has an axis that each result sums over: selective scans, linear attention with decay.

A few neighbouring lanes carry the states of one result in registers from step to step, and sum what each contributes by shuffles. Traffic:
an array without the axis of the states is read once for each of its elements, the others once for each result, mostly from the L1 cache.
Arithmetic: that of the graph, and one combination per step and halving of the lanes. The order of a sum depends on the number of states
alone, so results are bit-stable.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelmate.source import evaluate
from kernelmate.synthesis.axes import address, leaf_text, position_lines
from kernelmate.synthesis.elements import Elements, aligned
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph, Node
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, fresh_names, indented
from kernelmate.synthesis.names import position_name
from kernelmate.synthesis.plan import Key, Refused, walk
from kernelmate.synthesis.reductions import WARP, Reductions, Team

BLOCK = 128
"""Threads per block: few, since results are few and each takes as long as all steps."""

MOST_STATES = 8
"""Maximum number of states that a lane keeps in registers."""

AHEAD = 4
"""Number of steps whose loads overlap: states depend on each other, loads do not."""


@dataclass(frozen=True, slots=True)
class _States(Elements):
    """Plan of a recurrence over states.

    Attributes:
        along: the axis of the steps.
        summed: the axis of the states, as of `Elements`.
    """

    along: int = 0

    def operands(self, key: Key) -> tuple[Key, ...]:
        """Returns where the operands of an operation are evaluated; for a sum, along the states."""
        node, index = self.node(key), key[1]
        if node.op == "state":
            return ()
        if node.op in ("recur", "scan"):
            steps = (*index[: self.along], self.along, *index[self.along + 1 :])
            return tuple((one, aligned(self.graph.nodes[one], steps)) for one in node.args)
        if node.op == "reduce":
            axis = int(node.data[1] or 0)
            return ((node.args[0], (*index[:axis], self.summed, *index[axis:])),)
        return Elements.operands(self, key)


def sums_states(graph: Graph) -> bool:
    """Returns True if a graph sums the states of a scan or recurrence along another axis than its steps."""
    steps = {(tuple(sorted(_steps_of(one))), _steps_of(one)[_axis(one)]) for one in graph.nodes if one.op in ("recur", "scan")}  # fmt: skip
    for node in graph.nodes:
        if node.op == "reduce" and node.data[0] == "sum":
            shape = graph.nodes[node.args[0]].shape
            if any(tuple(sorted(shape)) == states and shape[int(node.data[1] or 0)] != side for states, side in steps):
                return True
    return False


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields the generated kernel.

    Raises:
        Refused: the schedule does not apply.
    """
    yield _StateText(_plan(graph), kernel.again()).written()


def _plan(graph: Graph) -> _States:
    """Returns the plan, whose domain is that of the states of all steps."""
    nodes = graph.nodes
    carried = [node for node in nodes if node.op in ("recur", "scan")]
    sums = [node for node in nodes if node.op == "reduce"]
    shapes = {(*_steps_of(node), _axis(node), bool(node.data[4 if node.op == "recur" else 2])) for node in carried}
    if len(shapes) != 1 or not sums:
        raise Refused("its outputs have other shapes than what it scans")
    if any(node.op == "scan" and node.data[0] != "sum" for node in carried):
        raise Refused("it sums what it scans by another operation than a sum")
    if not all(node.dtype.startswith("float") for node in (*carried, *sums)):
        raise Refused("it carries other than floating-point states")
    if any(node.op == "recur" and len(node.args) > 2 for node in carried):
        raise Refused("it carries several states from step to step")
    along = _axis(carried[0])
    domain = _steps_of(carried[0])
    if len({node.data[0] for node in carried if node.op == "recur"}) > 1 or "1" in domain:
        raise Refused("it has recurrences of several loops")
    reduced = {nodes[node.args[0]].shape[int(node.data[1] or 0)] for node in sums}
    if any(node.data[0] != "sum" or sorted(nodes[node.args[0]].shape) != sorted(domain) for node in sums):
        raise Refused("it reduces other than sums of the states of each step")
    for summed in (axis for axis, side in enumerate(domain) if axis != along and {side} == reduced):
        orders = [itertools.permutations({*range(len(domain))} - {gone}) for gone in (summed, along)]
        for of_sums, of_states in itertools.product(*orders):
            outputs = [(one, of_sums if _is_sum(graph, one) else of_states) for one in graph.outputs]
            plan = _States(graph, domain, 0, tuple(outputs), "map", (), frozenset({summed}), summed, along)
            if all(nodes[one].shape == tuple(domain[axis] for axis in index) for one, index in outputs) and _is_straight(plan):  # fmt: skip
                return plan
    raise Refused("its outputs have other shapes than sums of the states of each step, or the last states")


def _is_sum(graph: Graph, output: int) -> bool:
    """True if a result needs sums of states, and is not the states after the last step."""
    node = graph.nodes[output]
    while node.op in ("view", "cast"):
        node = graph.nodes[node.args[0]]
    return node.op != "recur" or node.data[2] != "last"


def _is_straight(plan: _States) -> bool:
    """True if each result needs only the states of its own step, or the last ones."""
    whole = tuple(range(len(plan.domain)))
    last = tuple(None if axis == plan.along else axis for axis in whole)
    found = [key for key in walk(plan) if plan.node(key).op in ("recur", "scan", "state")]
    return all(key[1] == (last if plan.node(key).data[2:3] == ("last",) else whole) for key in found)


def _steps_of(node: Node) -> tuple[str, ...]:
    """Returns the shape of the states of all steps."""
    if node.op == "scan":
        return node.shape
    return (*node.shape[: _axis(node)], str(node.data[5]), *node.shape[_axis(node) + 1 :])


def _axis(node: Node) -> int:
    """Returns the axis of the steps of a scan or recurrence."""
    return int(node.data[1 if node.op == "scan" else 3] or 0)


class _StateText:
    """Writer of the kernel's text.

    Attributes:
        carried: the key of the states after each step.
        sums: the sum of each result.
        turns: True if there may be more states than registers hold: they are then processed in groups, each of which adds to the results.
        at: the position along each axis.
    """

    def __init__(self, plan: _States, kernel: KernelText) -> None:
        self.plan, self.kernel = plan, kernel
        self.outputs = [one.name for one in kernel.outputs()]
        self.read = list(
            dict.fromkeys(str(plan.node(key).data[0]) for key in walk(plan) if plan.node(key).op == "input")
        )
        if {*self.read} & {*self.outputs}:
            raise Refused("it reads an array that it writes")
        states = int(evaluate(plan.domain[plan.summed], kernel.contract.sizes[0]))
        self.lanes = min(WARP, max(2, 1 << (states - 1).bit_length()))
        each = -(-states // self.lanes)
        if each > MOST_STATES:
            raise Refused(f"it has more than {WARP * MOST_STATES} states for each result")
        self.names = fresh_names(kernel, "i", "lane", "first", "k", "state")
        self.names.kThreads, constants = kernel.threads(BLOCK)
        self.names.kLanes, lanes = kernel.constant("Lanes", self.lanes, "neighbouring threads that share a result")
        self.names.kStates, own = kernel.constant("States", each, "states that a thread keeps in registers")
        self.constants = [*constants, *lanes, *own]
        words = {plan.along: "step", plan.summed: "element"}
        self.at: dict[int | str, str] = {
            axis: kernel.names.fresh(words.get(axis) or position_name(side)) for axis, side in enumerate(plan.domain)
        }
        sides = {axis: kernel.size(side) for axis, side in enumerate(plan.domain)}
        self.lengths = {axis: side if re.fullmatch(r"\w+", side) else f"({side})" for axis, side in sides.items()}
        self.expressions = Expressions(plan, kernel, self._leaf, frozenset({"inner"}))
        self.reductions = Reductions(plan.graph, kernel, Team("warp", self.lanes, BLOCK), self.names.kThreads)
        self.reductions.lanes = self.names.kLanes
        side = self.lengths[plan.summed]
        self.turns = not side.isdigit()
        self.guarded = self.turns or int(side) != self.lanes * each
        found = dict.fromkeys(
            key for key in walk(plan) if plan.node(key).op in ("recur", "scan") and plan.node(key).data[2] != "last"
        )
        if not found:
            raise Refused("it needs the last states alone")
        self.carried = next((key for key in found if plan.node(key).data[2] != "before"), next(iter(found)))
        if len({key for key in found if plan.node(key).data[2] != "before"}) > 1:
            raise Refused("it carries several states from step to step")
        self.before = [key for key in found if plan.node(key).data[2] == "before"]
        pairs = list(zip(plan.outputs, self.outputs, strict=True))
        self.results = [pair for pair in pairs if _is_sum(plan.graph, pair[0][0])]
        self.last = [pair for pair in pairs if pair not in self.results]
        self.sums = [self._sum(key) for key, _ in self.results]
        if self.turns and any(kernel.element(name) != kernel.real for _, name in self.results):
            raise Refused("partial sums of more states than registers hold have no place in its results")

    def _sum(self, output: Key) -> Key:
        """Returns the only sum that a result needs."""
        found, stack = set[Key](), [output]
        while stack:
            key = stack.pop()
            if self.plan.node(key).op == "reduce":
                found.add(key)
            else:
                stack += self.plan.operands(key)
        if len(found) != 1:
            raise Refused("a result needs other than one sum of states")
        return found.pop()

    def _leaf(self, key: Key) -> str:
        index = key[1]
        return leaf_text(
            self.kernel, self.plan.node(key),
            lambda: "0" if index[0] is None else self.at[int(str(index[0]))],
            lambda: self._address(index),
        )  # fmt: skip

    def _address(self, index: Sequence[object]) -> str:
        """Returns the offset of an array's element."""
        return address(tuple(int(str(one)) for one in index if one is not None), self.lengths, self.at)

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        plan, kernel, names = self.plan, self.kernel, self.names
        outer = [axis for axis in range(len(plan.domain)) if axis not in (plan.along, plan.summed)]
        if not outer:
            raise Refused("it has a single result for each step")
        node = plan.node(self.carried)
        at, length = self.at[plan.along], self.lengths[plan.along]
        head = f"for (int {at} = 0; {at} < {length}; ++{at})"
        if node.data[4 if node.op == "recur" else 2]:
            head = f"for (int {at} = {length} - 1; {at} >= 0; --{at})"
        starts = self._starts()
        body = [*starts, f"#pragma unroll {AHEAD}", *block_of(head, self._step()), *self._last_states()]
        if self.turns:
            body = [
                "// States beyond those in registers are taken in further turns, which add to the results.",
                f"int {names.first} = 0;",
                "do {",
                *indented([*body, f"{names.first} += {names.kLanes} * {names.kStates};"]),
                f"}} while ({names.first} < {self.lengths[plan.summed]});",
            ]
        sides = [plan.domain[axis] for axis in outer]
        lines = [
            f"const int {names.lane} = threadIdx.x % {names.kLanes};",
            f"const size_t {names.i} = (static_cast<size_t>(blockIdx.x) * {names.kThreads} + threadIdx.x) / {names.kLanes};",
            f"if ({names.i} >= {kernel.count(sides)}) return;",
            *position_lines(names.i, outer, self.lengths, self.at),
            *body,
        ]
        why = f"{self.lanes} neighbouring threads carry the states of a result in registers from step to step, and add them by shuffles."
        return WrittenKernel(
            f"recurrence-states-{self.lanes}",
            f"Written from the reference: {why}{kernel.promise(self.read)}",
            kernel.definition(kernel.head(), lines),
            "\n".join([*self.constants, "", *self.reductions.texts()]).strip(),
            (f"cdiv({' * '.join(sides)} * {self.lanes}, block)",),
            BLOCK,
        )

    def _starts(self) -> list[str]:
        """Returns statements before the first step: the states, and what all steps read for each of them."""
        plan, names, expressions = self.plan, self.names, self.expressions
        node, real = plan.node(self.carried), self.kernel.real
        lines: list[str] = []
        text = expressions.number(0.0)
        if node.op == "recur":
            (text,) = expressions.locals_for([plan.operands(self.carried)[0]], lines)
        outer, expressions.outer = expressions.outer, []
        zero = text == expressions.number(0.0)
        declared = [f"{real} {names.state}[{names.kStates}]{' = {}' * zero};"]
        lines += [] if zero else [f"{names.state}[{names.k}] = {text};"]
        expressions.known = {key: name for key, name in expressions.known.items() if not expressions.varies(key)}
        start = (self.carried, plan.operands(self.carried)[0]) if node.op == "recur" else None
        for key in walk(plan, unless=start):
            if plan.node(key).op == "input" and plan.summed in key[1] and plan.along not in key[1]:
                held = self.kernel.names.fresh(f"{plan.node(key).data[0]}_kept")
                declared.append(f"{real} {held}[{names.kStates}];")
                lines.append(f"{held}[{names.k}] = {self._leaf(key)};")
                expressions.known[key] = f"{held}[{names.k}]"
        return [*outer, *declared, *(self._of_states(lines) if lines else [])]

    def _of_states(self, lines: list[str]) -> list[str]:
        """Returns the loop over a thread's states."""
        names, at = self.names, self.at[self.plan.summed]
        place = f"{names.k} * {names.kLanes} + {names.lane}"
        used = re.search(rf"\b{at}\b", "\n".join(lines)) is not None or self.guarded
        body = [f"const int {at} = {f'{names.first} + ' * self.turns}{place};"] if used else []
        body += block_of(f"if ({at} < {self.lengths[self.plan.summed]})", lines) if self.guarded else lines
        head = f"for (int {names.k} = 0; {names.k} < {names.kStates}; ++{names.k})"
        return ["#pragma unroll", *block_of(head, body)]

    def _step(self) -> list[str]:
        """Returns the statements of one step: new states, their sums, and the results."""
        plan, expressions, real = self.plan, self.expressions, self.kernel.real
        state, body = f"{self.names.state}[{self.names.k}]", list[str]()
        old = state
        states = [key for key in walk(plan) if plan.node(key).op == "state"]
        if self.before:
            old = self.kernel.names.fresh("before")
            body.append(f"const {real} {old} = {state};")
        expressions.known |= dict.fromkeys([*states, *self.before], old)
        adds = plan.node(self.carried).op == "scan"
        following = plan.operands(self.carried)[not adds]
        (text,) = expressions.locals_for([following], body)
        body.append(f"{state} {'+=' if adds else '='} {text};")
        if not self.before:
            expressions.known = {key: held for key, held in expressions.known.items() if key not in states}
        if self.carried not in self.before:
            expressions.known[self.carried] = state
        if not adds:
            expressions.known[expressions.bare(following)] = state
        sums = list(dict.fromkeys(self.sums))
        totals = [self.kernel.names.fresh("sum") for _ in sums]
        summands = expressions.locals_for([plan.operands(one)[0] for one in sums], body)
        body += [f"{total} += {one};" for total, one in zip(totals, summands, strict=True)]
        outer, expressions.outer = expressions.outer, []
        function = self.reductions.function("sum", real)
        expressions.known = {key: held for key, held in expressions.known.items() if not expressions.varies(key)}
        expressions.known |= dict(zip(sums, totals, strict=True))
        return [
            *outer,
            *(f"{real} {total} = {expressions.number(0.0)};" for total in totals),
            *self._of_states(body),
            *(f"{total} = {function}({total});" for total in totals),
            *block_of(f"if ({self.names.lane} == 0)", self._results()),
        ]

    def _results(self) -> list[str]:
        """Returns statements that store the results of a step, to which each group of states adds."""
        plan, expressions, names = self.plan, self.expressions, self.names
        places = [f"{name}[{self._address(key[1])}]" for key, name in self.results]
        lines: list[str] = []
        if self.turns:  # a sum of several results is in the place of each until the last turn
            for key, place in dict(zip(self.sums, places, strict=True)).items():
                lines.append(f"if ({names.first} > 0) {expressions.known[key]} += {place};  // of the states before")
        texts = expressions.locals_for([key for key, _ in self.results], lines)
        for (output, name), key, place, text in zip(self.results, self.sums, places, texts, strict=True):
            value = self.kernel.stored(name, text, plan.node(output).dtype)
            partial = self.turns and value != expressions.known[key]
            more = f"{names.first} + {names.kLanes} * {names.kStates} < {self.lengths[plan.summed]}"
            lines.append(f"{place} = {f'{more} ? {expressions.known[key]} : ' * partial}{value};")
        return lines

    def _last_states(self) -> list[str]:
        """Returns statements that store the states after the last step."""
        state, lines = f"{self.names.state}[{self.names.k}]", list[str]()
        for key, name in self.last:
            value = self.kernel.stored(name, state, self.plan.node(key).dtype)
            lines.append(f"{name}[{self._address(key[1])}] = {value};")
        return self._of_states(lines) if lines else []
