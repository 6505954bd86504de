"""Several loops along one axis, each in terms of the results of those before it: tridiagonal systems, filters forwards and backwards.

A thread for each result without that axis runs all loops. Values of each step that a later loop needs are kept in a result's own array
if that is written last, or else in shared memory, a column for each thread. Traffic: that of the reference, and each kept result twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from kernelmate.source import evaluate
from kernelmate.synthesis.axes import leaf_text, position_lines
from kernelmate.synthesis.early_exits import without_copies
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import (
    ITEM_BYTES,
    MULTIPROCESSORS,
    STATIC_BYTES,
    KernelText,
    WrittenKernel,
    block_of,
    fresh_names,
)
from kernelmate.synthesis.names import position_name
from kernelmate.synthesis.plan import Key, Refused
from kernelmate.synthesis.recurrences import ALL, BEFORE, LAST
from kernelmate.synthesis.reductions import RESULT_NAMES, STARTS, WARP, Reductions, Team
from kernelmate.synthesis.schedules.sweep_plan import (
    STEP,
    SweepLoop,
    SweepLoops,
    Sweeps,
    scans_as_loops,
    without_first_steps,
)
from kernelmate.synthesis.schedules.vector_text import PositionTexts, StepExpressions
from kernelmate.synthesis.stacked import StackedResult, separate_results

THREADS = (128, 64, 32, 16, 8)
"""Numbers of threads per block, of which those below a warp are for kept results that need much shared memory."""

AHEAD = 4
"""Number of steps whose loads overlap: carried values depend on each other, loads do not."""


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields the generated kernel.

    Raises:
        Refused: its loops are along different axes, or keep more for each thread than shared memory holds.
    """
    graph = without_first_steps(scans_as_loops(graph))
    separate = separate_results(graph)
    results = [StackedResult(number, 0, graph.nodes[one].shape, None) for number, one in enumerate(graph.outputs)]
    if separate is not None:
        graph, results = separate
    counts = {str(node.data[5]) for node in graph.nodes if node.op == "recur"}
    if len(counts) != 1:
        raise Refused("its loops have different lengths" if counts else "it has no loops")
    shape = max((graph.nodes[one].shape for one in graph.outputs), key=len)
    (count,) = counts
    reasons: list[Refused] = []
    places = [axis for axis, side in enumerate(shape) if side == count]
    for axis in places or [-1]:
        try:
            yield _SweepText(graph, results, kernel.again(), (shape, axis, count)).written()
            return
        except Refused as reason:
            reasons.append(reason)
    raise reasons[0]


class _SweepText(PositionTexts):
    """Writer of the kernel's text.

    Args:
        graph: whose outputs are values of stacked results, or whole ones.
        results: where these belong.
        domain: the largest output's shape, its axis of steps, which is -1 if outputs have none, and the number of steps.

    Attributes:
        all: what the loops compute.
        keys: the outputs, at a thread's positions.
        loops: the loops in order.
        kept: for each result that later loops need, the text of the element in which a step stores it.
        shared: those in shared memory.
        after: the locals that are known after the loop that is being written.
        folded: those of its reductions.
        loaded: elements that are the same in all steps, with the locals that hold them.
    """

    def __init__(self, graph: Graph, results: Sequence[StackedResult], kernel: KernelText, domain: tuple[Sequence[str], int, str]) -> None:  # fmt: skip
        shape, axis, self.count = domain
        self.graph, self.kernel, self.results = graph, kernel, results
        names = [one.name for one in kernel.outputs()]
        self.outputs = [names[one.output] for one in results]
        self.names = fresh_names(kernel, "i", "kept", STEP)
        self.plan = Sweeps(graph, (), 0, (), "free")
        self.expressions = StepExpressions(self.plan, kernel, self._leaf, frozenset({"element"}))
        self.expressions.steps, self.expressions.position = self.plan, self.position
        self.sides = [side for place, side in enumerate(shape) if place != axis and side != "1"]
        if not self.sides:
            raise Refused("it has a single result for each step")
        own = [position_name(side) for side in self.sides]
        self.at = [self.names.i] if own == ["outer"] else [kernel.names.position(one) for one in own]
        self.loaded: dict[str, str] = {}
        self.all = SweepLoops(self.plan, domain, self.at, self.expressions.bare)
        self.keys, self.loops = self.all.keys, self.all.loops
        self.after: dict[Key, str] = {}
        self.folded: dict[Key, str] = {}
        self.kept: dict[Key, str] = {}
        self.shared: list[Key] = []
        self._keep()

    def _keep(self) -> None:
        """Chooses storage for the results of each step that later loops need: an output's element or shared memory."""
        free = {number for number, key in enumerate(self.keys) if self._is_free(number)}
        for place, loop in enumerate(self.loops):
            for key in loop.results:
                users = [later for later in range(place + 1, len(self.loops)) if self.all.is_used(key, later)]
                if STEP not in key[1] or not users:
                    continue
                stored = next((one for one in loop.stores if self.expressions.bare(self.keys[one]) == key), None)
                held = stored if stored is not None and self._is_real(stored) else next((one for one in sorted(free) if self.all.writer(one) >= users[-1] and self._is_unread(one, place)), None)  # fmt: skip
                if held is None:
                    self.shared.append(key)
                    continue
                free.discard(held)
                self.kept[key] = self._element(held)

    def _element(self, number: int) -> str:
        """Returns the text of an output's element at a step."""
        place, result = [*self.keys[number][1]], self.results[number]
        if result.axis is not None:
            place.insert(result.axis, str(result.number))
        return f"{self.outputs[number]}[{self.offset(result.shape, place)}]"

    def _is_real(self, number: int) -> bool:
        """Returns True if an output's array holds values in the type of the arithmetic."""
        return self.kernel.element(self.outputs[number]) == self.kernel.real

    def _is_free(self, number: int) -> bool:
        """Returns True if an output's array has room for other values until its own are stored."""
        return self._is_real(number) and STEP in self.keys[number][1]

    def _is_unread(self, number: int, place: int) -> bool:
        """Returns True if no later loop reads an output's old values."""
        return all(where <= place for where, _ in self.all.reads(self.outputs[number]))

    def position(self, text: object) -> str:
        """Returns a position in C++."""
        return re.sub(rf"\b{STEP}\b", str(self.names.step), super().position(text))

    def _leaf(self, key: Key) -> str:
        node, index = self.plan.node(key), key[1]
        return leaf_text(
            self.kernel, node,
            lambda: "0" if index[0] is None else self.position(index[0]), lambda: self.offset(node.shape, index),
        )  # fmt: skip

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        self._check_overwritten()
        kernel, names = self.kernel, self.names
        threads = self._threads()
        names.kThreads, constants = kernel.threads(threads)
        self.reductions = Reductions(self.plan.graph, kernel, Team("warp", WARP, threads), names.kThreads)
        arrays = {key: kernel.names.fresh(self._said(key)) for key in self.shared}
        bytes_each = ITEM_BYTES["float64" if kernel.real == "double" else "float32"]
        opening: list[str] = []
        if arrays:
            opening.append(
                f"extern __shared__ {kernel.real} {names.kept}[];  // for each step, an element for each thread"
            )
        for number, (key, name) in enumerate(arrays.items()):
            first = (
                f"{number} * " * (number > 1) + f"{self.text_of(self.count)} * {names.kThreads} + " if number else ""
            )
            opening.append(f"{kernel.real}* const {name} = {names.kept} + {first}threadIdx.x;")
            self.kept[key] = f"{name}[{names.step} * {names.kThreads}]"
        body: list[str] = []
        for place in range(len(self.loops)):
            body += ["", *self._loop(place)]
        rest = [number for number, key in enumerate(self.keys) if STEP not in key[1]]
        if rest:
            body += ["", *self._stores(rest)]
        lines = [*self._thread(), *opening, *body]
        read = dict.fromkeys(str(node.data[0]) for node in self.graph.nodes if node.op == "input")
        sides = " * ".join(self.sides)
        why = "a thread for each of the results runs the loops one after another, with carried values in registers"
        why += " and what a later loop needs of each step in shared memory." if arrays else "."
        return WrittenKernel(
            "sweeps",
            f"Written from the reference: {why}{kernel.promise(read)}",
            kernel.definition(kernel.head(), lines),
            "\n".join([*constants, "", *self.reductions.texts()]).strip(),
            (f"cdiv({sides}, {threads})",),
            threads,
            shared=f"{bytes_each * len(arrays) * threads} * {self.count}" if arrays else 0,
        )

    def _threads(self) -> int:
        """Returns the threads per block: the most that leave work for all multiprocessors, as far as kept results fit.

        Raises:
            Refused: kept results of few threads exceed a block's shared memory.
        """
        sizes = self.kernel.contract.sizes
        spread = math.prod(int(evaluate(side, sizes[0])) for side in self.sides) // MULTIPROCESSORS
        counts = [one for one in THREADS if one <= max(spread, WARP)]
        width = ITEM_BYTES["float64" if self.kernel.real == "double" else "float32"] * len(self.shared)
        most = max(int(evaluate(self.count, size)) for size in sizes)
        found = next((one for one in counts if one * width * most <= STATIC_BYTES), None)
        if found is None:
            raise Refused(f"what its later loops need of {most} steps of earlier ones is more than a block's shared memory; give the kernel a scratch array that is also a result")  # fmt: skip
        return found

    def _check_overwritten(self) -> None:
        """Checks that each result replaces only the element that its thread reads, after it was read.

        Raises:
            Refused: it does not.
        """
        for number, (_, own) in enumerate(self.keys):
            last = self.all.writer(number) if STEP in own else len(self.loops)
            if any(index != own or place > last for place, index in self.all.reads(self.outputs[number])):
                raise Refused(f"{self.outputs[number]} is read where another thread may have written it")

    def _said(self, key: Key) -> str:
        """Returns a name for the result of a recurrence: the reference's."""
        node = self.plan.node(key)
        following = self.graph.nodes[self.all.turns(key)[len(node.args) // 2 + int(node.data[1] or 0)][0]]
        return next((one for one in (node.name, following.name) if one and one not in self.outputs), "value")

    def _thread(self) -> list[str]:
        """Returns the declarations of a thread's positions."""
        names, count = self.names, self.kernel.count(self.sides)
        first = f"blockIdx.x * {names.kThreads} + threadIdx.x"
        if len(self.sides) == 1:
            return [f"const int {self.at[0]} = {first};", f"if ({self.at[0]} >= {count}) return;"]
        lengths = {axis: self.text_of(side) for axis, side in enumerate(self.sides)}
        return [
            f"const int {names.i} = {first};",
            f"if ({names.i} >= {count}) return;",
            *(line.replace(f"static_cast<int>({names.i})", str(names.i)) for line in position_lines(str(names.i), range(len(self.sides)), lengths, dict(enumerate(self.at)))),
        ]  # fmt: skip

    def _loop(self, place: int) -> list[str]:
        """Returns a loop, preceded by the declarations of the variables that it carries."""
        loop, expressions, kernel = self.loops[place], self.expressions, self.kernel
        lines: list[str] = []
        carried: dict[tuple[int, int], str] = {}
        for result in self._firsts(loop):
            turns = self.all.turns(result)
            half = len(turns) // 2
            for number in range(half):
                said = self.graph.nodes[turns[half + number][0]].name
                (text,) = expressions.locals_for([self.all.start(turns[number])], lines)
                if not said:
                    said = self._state_name(result, number)
                wanted = said if kernel.names.is_free(said) else f"last_{said}" if said else "carried"
                name = kernel.names.fresh(wanted)
                lines.append(f"{kernel.real} {name} = {text};")
                carried[int(self.plan.node(result).data[0] or 0), number] = name
        body = self._step(place, carried)
        for key in loop.folds:
            kind = str(self.plan.node(key).data[0])
            lines.append(f"{kernel.real} {self.folded[key]} = {expressions.number(STARTS[kind])};")
        step, count = self.names.step, kernel.size(self.count)
        head = f"for (int {step} = 0; {step} < {count}; ++{step})"
        if loop.backwards:
            head = f"for (int {step} = {count} - 1; {step} >= 0; --{step})"
        expressions.known = dict(self.after)
        body = self._hoisted(without_copies(body), lines)
        return [*lines, f"#pragma unroll {AHEAD}", *block_of(head, body)]

    def _state_name(self, result: Key, number: int) -> str:
        """Returns the reference's name of a carried value, if a local may have it."""
        loop, free = self.plan.node(result).data[0], self.kernel.names.is_free
        states = [
            node.name for node in self.graph.nodes if node.op in ("state", "recur") and node.data[:2] == (loop, number)
        ]
        return next((name for name in states if name and free(name)), "")

    def _hoisted(self, body: Sequence[str], lines: list[str]) -> list[str]:
        """Returns a loop's statements with elements of the thread's own position loaded before it, once for all loops."""
        kernel, text = self.kernel, "\n".join(body)
        same = re.compile(rf"\b(\w+)\[{self.at[0]}\]") if len(self.at) == 1 else None
        for name in dict.fromkeys(same.findall(text)) if same is not None else ():
            element = f"{name}[{self.at[0]}]"
            if kernel.arguments[name].direction != "in" or kernel.element(name) != kernel.real:
                continue
            if element not in self.loaded:
                self.loaded[element] = kernel.names.fresh(f"{name}_i")
                lines.insert(0, f"const {kernel.real} {self.loaded[element]} = {element};")
            text = text.replace(element, self.loaded[element])
        return text.split("\n")

    def _firsts(self, loop: SweepLoop) -> list[Key]:
        """Returns one result of each recurrence of a loop."""
        found: dict[int, Key] = {}
        for key in loop.results:
            found.setdefault(int(self.plan.node(key).data[0] or 0), key)
        return [found[number] for number in loop.numbers]

    def _step(self, place: int, carried: Mapping[tuple[int, int], str]) -> list[str]:
        """Returns the statements of a step: values after it, then the results, then the update of what is carried."""
        loop = self.loops[place]
        self.after, self.folded = dict(self.expressions.known), {}
        body = self._kept_values(place)
        updates: dict[str, str] = {}
        for result in self._firsts(loop):
            updates |= self._advanced(loop, result, carried, body)
        stored = {self.expressions.bare(self.keys[one]) for one in loop.stores}
        mine = [key for key in loop.results if key in self.kept and key not in stored]
        body += self._stores(loop.stores, [f"{self.kept[key]} = {self.expressions.known[key]};" for key in mine])
        for key in loop.folds:
            kind = str(self.plan.node(key).data[0])
            (text,) = self.expressions.locals_for([self.plan.operands(key)[0]], body)
            self.folded[key] = self.after[key] = self.kernel.names.fresh(RESULT_NAMES[kind])
            body.append(self.reductions.combined(kind, self.folded[key], text, self.kernel.real))
        for name in re.findall(r"^ *const \w+ (\w+) = ", "\n".join(body), re.MULTILINE):
            self.kernel.names.release(name)  # the next loop may use it again
        return [*body, *self._updated(updates)]

    def _updated(self, updates: Mapping[str, str]) -> list[str]:
        """Returns the assignments of new values, given by local, such that each reads the others' previous values."""
        left, lines = {name: text for name, text in updates.items() if name != text}, list[str]()
        while left:
            free = next((name for name in left if name not in left.values()), None)
            if free is None:  # values are exchanged
                first = next(iter(left))
                held = self.kernel.names.fresh(f"old_{first.removeprefix('last_')}")
                lines.append(f"const {self.kernel.real} {held} = {first};")
                left = {name: held if text == first else text for name, text in left.items()}
                continue
            lines.append(f"{free} = {left.pop(free)};")
        return lines

    def _kept_values(self, place: int) -> list[str]:
        """Returns the declarations of what a loop needs of a step of earlier loops."""
        lines: list[str] = []
        for key, text in self.kept.items():
            if key not in self.loops[place].results and self.all.is_used(key, place):
                name = self.expressions.known[key] = self.kernel.names.fresh(f"{self._said(key)}_i")
                lines.append(f"const {self.kernel.real} {name} = {text};")
        return lines

    def _advanced(
        self, loop: SweepLoop, result: Key, carried: Mapping[tuple[int, int], str], body: list[str]
    ) -> dict[str, str]:
        """Returns the new values of a recurrence's carried locals, whose computation goes to `body`."""
        expressions, number = self.expressions, int(self.plan.node(result).data[0] or 0)
        turns, updates = self.all.turns(result), dict[str, str]()
        results = [(one, self.plan.node(one).data) for one in loop.results if self.plan.node(one).data[0] == number]
        for index, node in enumerate(self.graph.nodes):
            if node.op == "state" and node.data[0] == number:
                expressions.known[index, self.all.state_index(result)] = carried[number, int(node.data[1] or 0)]
        expressions.known |= {one: carried[number, int(data[1] or 0)] for one, data in results if data[2] == BEFORE}
        for state, following in enumerate(turns[len(turns) // 2 :]):
            mine = carried[number, state]
            text = expressions.named(following, body, f"next_{mine.removeprefix('last_')}")
            updates[mine] = text
            expressions.known |= {one: text for one, data in results if data[1] == state and data[2] == ALL}
            self.after |= {one: mine for one, data in results if data[1] == state and data[2] == LAST}
        return updates

    def _stores(self, numbers: Sequence[int], kept: Sequence[str] = ()) -> list[str]:
        """Returns the statements that compute and store some outputs; `kept` and all stores follow the loads."""
        lines: list[str] = []
        keys = [self.keys[one] for one in numbers]
        texts = self.expressions.locals_for(keys, lines)
        stores: list[str] = []
        for key, number, text in zip(keys, numbers, texts, strict=True):
            if len(keys) + len(kept) > 1 and any(re.search(rf"\b{one}\[", text) for one in self.outputs):
                text = self.expressions.named(key, lines, f"next_{self.outputs[number]}")
            value = self.kernel.stored(self.outputs[number], text, self.graph.nodes[key[0]].dtype)
            stores.append(f"{self._element(number)} = {value};")
        return [*lines, *kept, *stores]
