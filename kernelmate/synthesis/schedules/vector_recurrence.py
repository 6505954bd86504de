"""Recurrences whose next state reduces over the whole state: recurrent networks, hidden Markov models, Markov chains.

A block keeps the vectors of one sequence in shared memory, those before a step and those after it, and single numbers in
registers. A few neighbouring lanes compute each element; reductions to one number are computed by each warp. Traffic: each
block reads the matrices once per step, mostly from the caches; everything else is read and written once. Arithmetic: that
of the graph for each step, one after the other.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence

from kernelmate.source import evaluate
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import STATIC_BYTES, KernelText, WrittenKernel, block_of
from kernelmate.synthesis.plan import Index, Key, Refused
from kernelmate.synthesis.recurrence_steps import LoopSteps, loop_steps
from kernelmate.synthesis.reductions import MOST_THREADS, WARP, Reductions, Team
from kernelmate.synthesis.schedules.vector_stages import OTHER, OWN, StagedVector, Stages, variables, with_short_sums
from kernelmate.synthesis.schedules.vector_text import AHEAD, CarriedPlaces, StepText, StepValue

FEW_LANES = 4
"""Lanes that share an element if elements are neighbours in memory: a warp then reads eight of them, a sector of 32 bytes."""

MOST_REPEATED = 1 << 22
"""Maximum number of terms of sums that all blocks together compute again: a few microseconds of a GPU."""

MOST_IN_BLOCK = 1 << 20
"""Maximum number of terms that a single block reduces if no other one shares the work."""


def is_over_vectors(graph: Graph) -> bool:
    """Returns True if a value that depends on a recurrence's state reduces it or takes a part of it."""
    depends = set[int]()
    for place, node in enumerate(graph.nodes):
        if node.op == "state" or (node.op != "recur" and depends.intersection(node.args)):
            depends.add(place)
    return any(node.op in ("reduce", "window") and place in depends for place, node in enumerate(graph.nodes))


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields the generated kernel.

    Raises:
        Refused: the schedule does not apply.
    """
    steps = loop_steps(with_short_sums(graph))
    sides = max((one.sides for one in steps.carried), key=len)
    reasons: list[Refused] = []
    for vector in (-1, *reversed(range(len(sides)))):
        try:
            yield _VectorText(steps, kernel.again(), sides, vector).written()
        except Refused as error:
            reasons.append(error)
            continue
        return
    raise reasons[min(1, len(reasons) - 1)]


def staged(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields the kernel of a graph without a loop, in which reductions need vectors of others: a block for each row of results.

    A single number is computed by one block.

    Raises:
        Refused: the schedule does not apply, or its blocks would mostly compute the same.
    """
    graph = with_short_sums(graph)
    sides = [side for side in graph.nodes[graph.outputs[0]].shape if side != "1"]
    if any(node.op in ("recur", "state") for node in graph.nodes):
        raise Refused("it carries values from step to step")
    if all(node.op != "reduce" for node in graph.nodes):
        raise Refused("it reduces nothing")
    steps = LoopSteps(graph, (), tuple(False for _ in graph.outputs), "1", backwards=False)
    yield _VectorText(steps, kernel, sides, len(sides) - 1).written()


class _VectorText:
    """Writer of the kernel's text.

    Args:
        sides: the sides of the largest carried values.
        vector: the axis of the vectors among them; -1 if there are none.
    """

    def __init__(self, steps: LoopSteps, kernel: KernelText, sides: Sequence[str], vector: int) -> None:
        self.places = CarriedPlaces(steps, kernel, sides, vector)
        self.outputs = [one.name for one in kernel.outputs()]
        self.read = [str(node.data[0]) for node in steps.graph.nodes if node.op == "input"]
        self.replaced: dict[str, Index] = {}

    def _stages(self, kept: dict[Key, tuple[str, ...]] | None = None, before: Stages | None = None) -> Stages:
        one = self.places
        return Stages(
            one.plan,
            one.expressions.bare,
            one.said,
            one.is_state,
            one.names.step,
            one.kernel.names.fresh,
            kept or {},
            before,
        )

    def _starts(self, stages: Stages) -> list[StepValue]:
        """Returns the values before the first step."""
        return [self._carried(stages, number, one.start, None, self.places.names.now) for number, one in enumerate(self.places.steps.carried)]  # fmt: skip

    def _follow(self, begin: Stages) -> tuple[Stages, list[StepValue]]:
        """Returns the values after a step, in terms of those before it and of what is computed before the loop."""
        kept = dict[Key, tuple[str, ...]]()
        for number, front in self.places.fronts.items():
            place = self.places.steps.carried[number].following
            key = self.places.expressions.bare((place, self.places.indexed(place, number, self.places.names.step)))
            kept[key] = (*kept.get(key, ()), f"{self.places.names.following}[{front}")
        stages = self._stages(kept, begin)
        return stages, [
            self._carried(stages, number, one.following, self.places.names.step, self.places.names.following)
            for number, one in enumerate(self.places.steps.carried)
        ]

    def _carried(self, stages: Stages, number: int, place: int, step: str | None, buffer: str) -> StepValue:
        key = self.places.expressions.bare((place, self.places.indexed(place, number, step)))
        if number in self.places.registers:
            return StepValue(key, "", stages.level(key, ""), (), number)
        side = self.places.lengths[number]
        target = ("", f"{buffer}[{self.places.fronts[number]}{self.places.names.own}]", "")
        return StepValue(key, side, stages.level(key, side), (target,))

    def _results(self, stages: Stages, *, steps: bool) -> tuple[Stages, list[StepValue]]:
        """Returns the results of a step, or those after all steps."""
        found: list[StepValue] = []
        for output, name, own in zip(self.places.graph.outputs, self.outputs, self.places.steps.of_steps, strict=True):
            if own == steps:
                stages, value = self._result(stages, output, name, steps=steps)
                found.append(value)
        return stages, found

    def _result(self, stages: Stages, output: int, name: str, *, steps: bool) -> tuple[Stages, StepValue]:
        """Returns one result, for the first assignment of its axes that needs no states of other steps or sequences."""
        shape = self.places.graph.nodes[output].shape
        fixed = [(self.places.steps.count, self.places.names.step)] * steps
        fixed += [(self.places.sides[one], self.places.at[one]) for one in self.places.outer]
        long = [axis for axis, side in enumerate(shape) if side != "1"]
        reason: Refused | None = None
        for order in itertools.permutations(long, len(fixed)):
            rest = [axis for axis in long if axis not in order]
            if len(rest) > 1 or any(shape[axis] != side for axis, (side, _) in zip(order, fixed, strict=True)):
                continue
            at = {axis: text for axis, (_, text) in zip(order, fixed, strict=True)} | dict.fromkeys(rest, OWN)
            index = tuple(at.get(axis) for axis in range(len(shape)))
            side, tried = shape[rest[0]] if rest else "", stages.copy()
            try:
                level = tried.level((output, index), side)
            except Refused as error:
                reason = reason or error
                continue
            target = (name, f"{name}[{self.places.offset(shape, index)}]", self.places.graph.nodes[output].dtype)
            if name in self.read:
                if steps:
                    raise Refused(f"it reads {name}, and writes it at each step")
                self.replaced[name] = index
            return tried, StepValue(self.places.expressions.bare((output, index)), side, level, (target,))
        raise reason or Refused("its results have other axes than its states")

    def _has_warp_lane(self, phases: Sequence[Stages]) -> bool:
        """Returns True if warps reduce to single numbers, and other lanes share an element."""
        return bool(self.places.fronts) and self.lanes < WARP and any(one.numbers for one in phases)

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names = self.places.kernel, self.places.names
        begin = self._stages()
        starts = self._starts(begin)
        follow, step = self._follow(begin)
        follow, results = self._results(follow, steps=True)
        end, last = self._results(self._stages(), steps=False)
        phases = (begin, follow, end)
        if not self.places.steps.carried:
            self._check_repeated(end)
        constants = self._threads(phases, [*starts, *step, *results, *last])
        declared, shared = self._shared([one for stages in phases for one in stages.owned()])
        text = StepText(self.places, self.lanes, self.of_lanes, self.of_numbers)
        first = text.computed(begin, starts, begins=True)
        text.invariant = {key: held for key, held in self.places.expressions.known.items() if key in begin.numbers}
        body = text.computed(follow, [*step, *results])
        body += ["__syncthreads();"] if text.late else []
        if self.places.fronts:
            body += [
                f"{kernel.real}* const {names.before} = {names.now};",
                f"{names.now} = {names.following};",
                f"{names.following} = {names.before};",
            ]
        at, count = names.step, self.places.text_of(self.places.steps.count)
        head = f"for (int {at} = 0; {at} < {count}; ++{at})"
        if self.places.steps.backwards:
            head = f"for (int {at} = {count} - 1; {at} >= 0; --{at})"
        loop = block_of(head, body) if self.places.steps.carried else []
        early = len(self.places.reads)
        after = text.computed(end, last)
        self._check_replaced(early)
        lines = [
            *declared,
            *self._sequence(),
            *([f"const int {names.lane} = threadIdx.x % {names.kLanes};"] if self.lanes > 1 else []),
            *([f"const int {names.warp_lane} = threadIdx.x % {WARP};"] if self._has_warp_lane(phases) else []),
            *first,
            *loop,
            *after,
        ]
        return self._kernel(constants, lines, shared)

    def _check_replaced(self, early: int) -> None:
        """Checks that results which replace an array are written after all reads of it, and by the block that reads it.

        Args:
            early: the number of reads before the last barrier.

        Raises:
            Refused: they are not.
        """
        blocks = {*self.places.at.values()}
        for place, (name, index) in enumerate(self.places.reads):
            written = self.replaced.get(name, index)
            own = all(one == other for one, other in zip(index, written, strict=True) if other in blocks)
            if not own or (index != written and (place >= early or not self.places.fronts)):
                raise Refused(f"{name} is read where another thread may have written it")

    def _kernel(self, constants: Sequence[str], lines: Sequence[str], shared: str) -> WrittenKernel:
        if shared and max(evaluate(shared, size) for size in self.places.kernel.contract.sizes) > STATIC_BYTES:
            raise Refused("its states need more than 48 KiB of shared memory")
        why = "a block for each sequence keeps its state in shared memory, and computes each element of the next state from all of it."
        if not self.places.fronts:
            why = "a block for each sequence reduces to the next state, which each thread keeps in registers."
        kernel, name = self.places.kernel, "recurrence-vectors"
        if not self.places.steps.carried:
            name = "staged-vectors"
            why = "a block for each row of results keeps what its reductions need of others in shared memory."
        return WrittenKernel(
            f"{name}-{self.lanes}",
            f"Written from the reference: {why}{kernel.promise(self.read)}",
            kernel.definition(kernel.head(f"__launch_bounds__({self.places.names.kThreads}) "), lines),
            "\n".join(
                [
                    *constants,
                    "",
                    *(line for one in dict.fromkeys([self.of_lanes, self.of_numbers]) for line in one.texts()),
                ]
            ).strip(),
            (" * ".join(self.places.sides[one] for one in self.places.outer) or "1",),
            self.threads,
            shared=shared or 0,
        )

    def _check_repeated(self, stages: Stages) -> None:
        """Checks that most work is not repeated by every block, and that a single block does not do too much of it.

        Raises:
            Refused: they do.
        """
        size, plan = self.places.kernel.contract.sizes[0], self.places.plan
        own, common = 0, 0
        for key in (*stages.numbers, *stages.of_elements):
            places = [axis for axis, one in enumerate(key[1]) if variables([one])]
            sides = [plan.reduced_side(key), *(plan.node(key).shape[axis] for axis in places)]
            terms = math.prod(int(evaluate(side, size)) for side in sides)
            depends = any(stages.depends_on(key, name) for name in self.places.at.values())
            own, common = own + terms * depends, common + terms * (not depends)
        blocks = math.prod(int(evaluate(self.places.sides[axis], size)) for axis in self.places.outer)
        if (blocks > 1 and common > own and common * blocks > MOST_REPEATED) or (
            blocks == 1 and common > MOST_IN_BLOCK
        ):
            raise Refused("its results depend on reductions that each block would have to repeat")

    def _threads(self, phases: Sequence[Stages], values: Sequence[StepValue]) -> list[str]:
        """Determines the threads of a block, and those that share an element; returns the constants' declarations."""
        size = self.places.kernel.contract.sizes[0]
        sides = {one.side for one in values if one.side}
        sides |= {one.side for stages in phases for one in stages.staged.values()}
        longest = max((int(evaluate(side, size)) for side in sides), default=0)
        self.lanes = self._lanes(longest, [key for stages in phases for key in stages.of_elements])
        threads = longest * self.lanes
        if not self.places.fronts:
            terms = {self.places.plan.reduced_side(key) for stages in phases for key in stages.numbers}
            threads = max([threads, *(-(-int(evaluate(side, size)) // AHEAD) for side in terms)])
        self.threads = min(MOST_THREADS, -(-max(threads, 1) // WARP) * WARP)
        self.places.names.kThreads, own = self.places.kernel.threads(self.threads)
        self.places.names.kLanes, lanes = self.places.kernel.constant(
            "Lanes", self.lanes, "neighbouring threads that share an element"
        )
        of_lanes, of_numbers = Team("warp", self.lanes, self.threads), Team("warp", WARP, self.threads)
        if not self.places.fronts:
            of_numbers = Team("block", self.threads, self.threads)
        self.of_lanes = Reductions(self.places.plan.graph, self.places.kernel, of_lanes, self.places.names.kThreads)
        self.of_lanes.lanes = self.places.names.kLanes
        self.of_numbers = self.of_lanes
        if of_numbers != of_lanes:
            self.of_numbers = Reductions(
                self.places.plan.graph, self.places.kernel, of_numbers, self.places.names.kThreads
            )
        return [*own, *(lanes if self.lanes > 1 else [])]

    def _lanes(self, elements: int, reduced: Sequence[Key]) -> int:
        """Returns how many lanes share an element: few if neighbouring elements are what is contiguous in a matrix."""
        if not reduced:
            return 1
        most = WARP if all(map(self._is_contiguous, reduced)) else FEW_LANES
        fits = max(1, MOST_THREADS // max(elements, 1))
        return 1 << (min(most, fits, max(elements, 1)).bit_length() - 1)

    def _is_contiguous(self, reduced: Key) -> bool:
        """Returns True if the terms of a reduction are neighbours in all matrices."""
        stack = [*self.places.plan.operands(reduced)]
        while stack:
            key = stack.pop()
            node, places = self.places.plan.node(key), [one for one in key[1] if one is not None]
            stack += self.places.plan.operands(key) if node.op != "reduce" else ()
            if node.op == "input" and any(OTHER in variables([one]) for one in places[:-1]):
                return False
        return True

    def _shared(self, staged: Sequence[StagedVector]) -> tuple[list[str], str]:
        """Returns the declarations of arrays in shared memory, and their bytes as an expression of the contract."""
        names, real = self.places.names, self.places.kernel.real
        before, lines, parts = names.carried, list[str](), [*self.places.lengths.values()] * 2
        if parts:
            total = self.places.elements()
            before = f"{names.following} + {total}"
            lines += [
                f"{real}* {names.now} = {names.carried};  // the vectors of the step before",
                f"{real}* {names.following} = {names.carried} + {total};",
            ]
        for one in staged:
            name = one.buffers[0].removesuffix("[")
            lines.append(f"{real}* const {name} = {before};")
            parts.append(one.side)
            before = f"{name} + {self.places.text_of(one.side)}"
        if not parts:
            return [], ""
        terms = [f"{(8 if real == 'double' else 4) * times} * {side}" for side, times in Counter(parts).items()]
        return [f"extern __shared__ {real} {names.carried}[];", *lines], " + ".join(terms)

    def _sequence(self) -> list[str]:
        """Returns the declarations of a block's positions along the axes other than that of the vectors."""
        lines, left = list[str](), "blockIdx.x"
        for number, axis in enumerate(reversed(self.places.outer)):
            more = number + 1 < len(self.places.outer)
            side = self.places.text_of(self.places.sides[axis])
            lines.append(f"const int {self.places.at[axis]} = {f'{left} % {side}' if more else left};")
            left = f"{left} / {side}"
        return lines
