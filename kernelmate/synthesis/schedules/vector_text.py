"""Statements that compute the values of a step of a recurrence over vectors, level by level."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from kernelmate.synthesis.axes import address, leaf_text
from kernelmate.synthesis.elements import BY_NUMBER, aligned
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Node
from kernelmate.synthesis.kernel_text import KernelText, block_of, c_type, fresh_names
from kernelmate.synthesis.names import RESERVED, position_name
from kernelmate.synthesis.plan import Index, Key, Refused
from kernelmate.synthesis.recurrence_steps import LoopSteps
from kernelmate.synthesis.reductions import EXTREMES, RESULT_NAMES, STARTS, WARP, Reductions, is_extreme, start_of
from kernelmate.synthesis.schedules.vector_stages import OTHER, OWN, Stages, VectorSteps
from kernelmate.synthesis.size_text import LOOSE, SUM, bound

AHEAD = 4
"""Number of a sum's terms whose loads overlap."""


Target: TypeAlias = "tuple[str, str, str]"
"""A place to store a value to: the name of the array, empty for shared memory; the element; the value's dtype in NumPy."""


@dataclass(frozen=True, slots=True)
class StepValue:
    """A value that is computed: an element of a vector of `side` elements, or a single number if that is empty.

    Attributes:
        level: the number of barriers before it.
        targets: where it is stored.
        number: which carried number it is next; -1 for others.
    """

    key: Key
    side: str
    level: int
    targets: tuple[Target, ...]
    number: int = -1


class StepExpressions(Expressions):
    """Writer of expressions in which parts of arrays are read by their positions, and nothing is moved out of loops."""

    steps: VectorSteps
    position: Callable[[str], str]

    def varies(self, key: Key) -> bool:
        """Returns True."""
        return True

    def _said(self, key: Key) -> str:
        node = self.plan.node(key)
        return node.name if node.op == "window" and self.names.is_free(node.name) else super()._said(key)

    def _bare(self, key: Key) -> Key:
        node = self.plan.node(key)
        if node.op in BY_NUMBER or (node.op == "window" and len(node.args) == 1):
            return self._bare(self.plan.operands(key)[0])
        return super()._bare(key)

    def _operation(self, key: Key, node: Node, lines: list[str], uses: Mapping[Key, int], *, within: bool) -> tuple[str, int]:  # fmt: skip
        if node.op != "window":
            return super()._operation(key, node, lines, uses, within=within)
        source, other = self.plan.operands(key)
        guarded: list[str] = []
        inside, beyond = (self._text(one, guarded, {}, within=within) for one in (source, other))
        if guarded:
            raise Refused("it pads what it computes in a step")
        test = self.position(self.steps.inside(key))
        return (f"{test} ? {bound(inside, SUM)} : {bound(beyond, SUM)}", LOOSE) if test else inside


class PositionTexts:
    """Writer of positions along axes, and of the offsets of arrays' elements.

    Attributes:
        kernel, plan, expressions: what the texts are for.
    """

    kernel: KernelText
    plan: VectorSteps
    expressions: StepExpressions

    def text_of(self, side: str) -> str:
        """Returns a size in C++, in parentheses if it is more than a name or number."""
        text = self.kernel.size(side)
        return text if re.fullmatch(r"\w+", text) else f"({text})"

    def offset(self, shape: Sequence[str], index: Sequence[Any]) -> str:
        """Returns the offset of an array's element."""
        long = [
            (self.text_of(side), self.position(one)) for side, one in zip(shape, index, strict=True) if one is not None
        ]
        while len(long) > 1 and long[0][1] == "0":
            del long[0]
        return address(tuple(range(len(long))), [side for side, _ in long], dict(enumerate(one for _, one in long)))

    def position(self, text: Any) -> str:
        """Returns a position in C++; sizes in braces are expressions of the contract, and `@2<element>` is a selecting number."""
        selecting = re.fullmatch(r"@(\d+)<.*>", str(text))
        if selecting is not None:
            lines: list[str] = []
            (number,) = self.expressions.locals_for([self.plan.selected[int(selecting[1])]], lines)
            if lines:
                raise Refused("it selects elements by indices of several steps")
            return number
        return _descending(re.sub(r"\{(.*?)\}", lambda found: self.text_of(found[1]), str(text)))


def _descending(text: str) -> str:
    """Returns a position that falls as another one grows as a difference: `n - 1 - step` for `-1 * step + (n - 1)`."""
    found = re.fullmatch(r"-1 \* (\w+) \+ (\w+|\(\w+ [-+] \w+\))", text)
    return f"{found[2].strip('()')} - {found[1]}" if found is not None else text


class CarriedPlaces(PositionTexts):
    """Storage of the values that a loop carries: a block keeps vectors in shared memory, single numbers in registers.

    Args:
        sides: the sides of the largest carried values.
        vector: the axis of the vectors among them; -1 if there are none.

    Attributes:
        at: the text of the position along each axis but that of the vectors.
        registers: the local variable of each carried number, by its index among the carried values.
        reads: the indices at which arrays are read, with the arrays' names.
        fronts, lengths: the offset in shared memory of each carried vector, and its number of elements, by the same index.

    Raises:
        Refused: the values have other shapes, or are not floating-point numbers.
    """

    def __init__(self, steps: LoopSteps, kernel: KernelText, sides: Sequence[str], vector: int) -> None:
        self.steps, self.kernel, self.graph = steps, kernel, steps.graph
        self.reads: list[tuple[str, Index]] = []
        self.plan = VectorSteps(steps.graph, (), 0, (), "free")
        self.outer = [axis for axis in range(len(sides)) if axis != vector and sides[axis] != "1"]
        self.sides, self.vector = sides, vector
        if any(not self.graph.nodes[at].dtype.startswith("float") for one in steps.carried for at in (one.start, one.following)):  # fmt: skip
            raise Refused("it carries other than floating-point states")
        self.names = fresh_names(
            kernel, "step", "lane", "warp_lane", "now", "following", "carried", "before", own=OWN, other=OTHER
        )
        single = {self.outer[0]: "sequence" if steps.carried else "row"} if len(self.outer) == 1 else {}
        self.at = {axis: kernel.names.position(single.get(axis, position_name(sides[axis]))) for axis in self.outer}
        self.registers, self.fronts, self.lengths = dict[int, str](), dict[int, str](), dict[int, str]()
        for number, one in enumerate(steps.carried):
            self._place(number, [side for side in one.sides if side != "1"], one.name)
        self.expressions = StepExpressions(self.plan, kernel, self._leaf, frozenset({"element"}))
        self.expressions.steps, self.expressions.position = self.plan, self.position

    def _place(self, number: int, sides: Sequence[str], name: str) -> None:
        """Assigns a carried value to shared memory or to a register."""
        outer = [self.sides[axis] for axis in self.outer]
        place = sum(axis < self.vector for axis in self.outer)
        if self.vector >= 0 and [*sides[:place], *sides[place + 1 :]] == outer and len(sides) > len(outer):
            self.fronts[number] = f"{self.elements()} + " if self.fronts else ""
            self.lengths[number] = sides[place]
        elif [*sides] == outer:
            own = name if self.kernel.names.is_free(name) or not name else f"{name}_value"
            self.registers[number] = self.kernel.names.fresh(own or "value")
        else:
            raise Refused("it carries values of different shapes from step to step")

    def elements(self) -> str:
        """Returns the number of elements of all vectors in C++."""
        counts = Counter(self.lengths.values())
        return " + ".join(
            f"{count} * {self.text_of(side)}" if count > 1 else self.text_of(side) for side, count in counts.items()
        )

    def _leaf(self, key: Key) -> str:
        node, index = self.plan.node(key), key[1]
        if node.op == "input":
            self.reads.append((str(node.data[0]), index))
        return leaf_text(
            self.kernel,
            node,
            lambda: "0" if index[0] is None else self.position(index[0]),
            lambda: self.offset(node.shape, index),
        )

    def position(self, text: Any) -> str:
        """Returns a position in C++, with the names of a thread's own element and of a term."""
        found = super().position(text)
        return re.sub(rf"\b{OWN}\b", self.names.own, re.sub(rf"\b{OTHER}\b", self.names.other, found))

    def indexed(self, place: int, number: int, step: str | None) -> tuple[str | None, ...]:
        """Returns the index of a carried value, or of what broadcasts to one, at a thread's own element."""
        one = self.steps.carried[number]
        own = {self.vector: OWN} if number in self.fronts else {}
        names = iter([(self.at | own)[axis] for axis in sorted([*self.outer, *own])])
        index = [None if side == "1" else next(names) for side in one.sides]
        return aligned(self.graph.nodes[place], (*index[: one.axis], step, *index[one.axis :]))

    def is_state(self, key: Key) -> bool:
        """Returns True if a value is a carried one.

        Raises:
            Refused: it is one of another step or sequence.
        """
        node = self.plan.node(key)
        if node.op not in ("state", "recur"):
            return False
        number = int(node.data[1] or 0)
        step = None if node.op == "recur" else self.names.step
        axis = self.steps.carried[number].axis
        if key[1][axis] != step:
            raise Refused("it needs states of other steps")
        wanted = self.indexed(key[0], number, step)
        if any(have != want and want != OWN for have, want in zip(key[1], wanted, strict=True)):
            raise Refused("its states are mixed along several axes")
        return True

    def state(self, key: Key) -> str:
        """Returns the text that reads a carried value, or an element of one."""
        node = self.plan.node(key)
        number = int(node.data[1] or 0)
        if number in self.registers:
            return self.registers[number]
        wanted = self.indexed(key[0], number, None)
        place = self.position(key[1][wanted.index(OWN)])
        place = re.sub(r"^\(([^()]*)\)$", r"\1", place)
        return f"{self.names.now}[{self.fronts[number]}{place}]"

    def said(self, key: Key) -> str:
        """Returns the reference's name for a value if it is usable for a local; else an empty string."""
        name = self.expressions.hints.get(key) or self.plan.node(key).name
        return name if name not in RESERVED and self.kernel.names.is_free(name) else ""


class StepText:
    """Writer of the statements that compute values.

    Args:
        lanes: the threads that share an element.
        of_lanes, of_numbers: the reductions of these, and to single numbers.

    Attributes:
        late: True if an array read after the last barrier is overwritten by the next step before its first barrier.
        invariant: the locals of reductions to single numbers before the loop.
    """

    def __init__(self, places: CarriedPlaces, lanes: int, of_lanes: Reductions, of_numbers: Reductions) -> None:
        self.places, self.lanes, self.of_lanes, self.of_numbers = places, lanes, of_lanes, of_numbers
        self.kernel, self.plan = places.kernel, places.plan
        self.names, self.expressions = places.names, places.expressions
        self.late, self.invariant = False, dict[Key, str]()
        self._first, self._state_level = 0, 0  # levels that write to shared memory: the first, and that of the states

    def computed(self, stages: Stages, values: Sequence[StepValue], *, begins: bool = False) -> list[str]:
        """Returns the statements that compute values, level by level; assignments to carried numbers come last."""
        owned = stages.owned()
        vectors = [
            StepValue(one.key, one.side, one.level, (("", f"{one.buffers[0]}{self.names.own}]", ""),)) for one in owned
        ]
        values = _merged([*vectors, *values])
        last = max([0, *(one.level for one in values), *stages.numbers.values()])
        self.expressions.known = dict(self.invariant)
        lines, changes = list[str](), list[tuple[str, str]]()
        written = [(one.level, place) for one in values for array, place, _ in one.targets if not array]
        self._first = min((level for level, _ in written), default=0)
        states = [level for level, place in written if place.startswith(f"{self.names.following}[")]
        self._state_level, self.late = min(states, default=0), False
        for level in range(last + 1):
            mine = [one for one in values if one.level == level]
            shared = any(not array for one in mine for array, _, _ in one.targets)
            lines += self._numbers(stages, level, [one for one in mine if not one.side], changes, begins=begins)
            for side in dict.fromkeys(one.side for one in mine if one.side):
                lines += self._elements(stages, level, [one for one in mine if one.side == side])
            lines += ["__syncthreads();"] * shared
            self.late = self.late and not shared
        return [
            *lines,
            *(f"{self.kernel.real} {own} = {text};" if begins else _changed(own, text) for own, text in changes),
        ]

    def _numbers(self, stages: Stages, level: int, values: Sequence[StepValue], changes: list[tuple[str, str]], *, begins: bool) -> list[str]:  # fmt: skip
        """Returns the statements of a level's reductions to single numbers, and of the values computed from these.

        Carried numbers and their next values are appended to `changes`.
        """
        lines: list[str] = []
        reduced = [key for key, found in stages.numbers.items() if found == level]
        self._reduced_in_order(stages, reduced, level, "", lines)
        self._read(stages, [one.key for one in values], level, "")
        texts = self.expressions.locals_for([one.key for one in values], lines)
        for value, text in zip(values, texts, strict=True):
            own = self.places.registers.get(value.number, "")
            again = own and not begins and (value.targets or len(self.places.registers) > 1)
            if again and (text in self.places.registers.values() or not re.fullmatch(r"\w+", text)):
                name = self.kernel.names.fresh(f"next_{own}")
                lines.append(f"const {self.kernel.real} {name} = {text};")
                self.expressions.known[value.key] = text = name
            stores = [f"{place} = {self.kernel.stored(array, text, dtype)};" for array, place, dtype in value.targets]
            lines += block_of("if (threadIdx.x == 0)", stores) if stores else []
            changes += [(own, text)] if own else []
        return lines

    def _elements(self, stages: Stages, level: int, values: Sequence[StepValue]) -> list[str]:
        """Returns the loop over the elements that a thread computes and stores."""
        known, lines, side = dict(self.expressions.known), list[str](), values[0].side
        keys = [one.key for one in values]
        self._reduced_in_order(stages, keys, level, side, lines)
        reduces = bool(lines)
        self._read(stages, keys, level, side)
        texts = self.expressions.locals_for(keys, lines)
        stores: list[str] = []
        for value, text in zip(values, texts, strict=True):
            if len(value.targets) > 1 and not re.fullmatch(r"[\w.]+", text):  # neither a name nor a number
                name = self.kernel.names.fresh(self.places.said(value.key) or "next")
                stores.append(f"const {self.kernel.real} {name} = {text};")
                text = name
            for array, place, dtype in value.targets:
                stores.append(f"{place} = {self.kernel.stored(array, text, dtype) if array else text};")
        self.expressions.known = known
        own, first, step = self.names.own, "threadIdx.x", self.names.kThreads
        if self.lanes > 1 and reduces:
            stores = block_of(f"if ({self.names.lane} == 0)", stores)
            first, step = f"{first} / {self.names.kLanes}", f"{step} / {self.names.kLanes}"
        head = f"for (int {own} = {first}; {own} < {self.places.text_of(side)}; {own} += {step})"
        return block_of(head, [*lines, *stores])

    def _read(self, stages: Stages, keys: Sequence[Key], level: int, side: str) -> None:
        """Registers the texts that read carried values, and values that earlier levels have stored in shared memory."""
        known, stack = self.expressions.known, [*keys]
        while stack:
            key = self.expressions.bare(stack.pop())
            if key in known:
                continue
            if stages.is_state(key):
                known[key] = self.places.state(key)
                here = known[key].startswith(f"{self.names.now}[") and self._state_level <= self._first
                self.late = self.late or here
                continue
            vector = stages.vector_of(key)
            if vector is not None and vector.level < level:
                known[key] = f"{vector.buffers[0]}{self.places.position(stages.place(key))}]"
                here = vector.key not in stages.kept and 0 <= vector.level <= self._first
                self.late = self.late or here
            elif self.plan.node(key).op != "reduce":
                stack += self.plan.operands(key)

    def _reduced_in_order(self, stages: Stages, roots: Sequence[Key], level: int, side: str, lines: list[str]) -> None:
        """Writes the reductions that some values need, those that others need first."""
        depths: dict[Key, int] = {}

        def depth(key: Key) -> int:
            key = self.expressions.bare(key)
            if key not in depths:
                vector = None if stages.is_state(key) else stages.vector_of(key)
                if (
                    stages.is_state(key)
                    or key in self.expressions.known
                    or (vector is not None and vector.level < level)
                ):
                    return 0
                below = max((depth(one) for one in self.plan.operands(key)), default=0)
                depths[key] = below + (self.plan.node(key).op == "reduce")
            return depths[key]

        for key in roots:
            depth(key)
        found = [key for key in depths if self.plan.node(key).op == "reduce"]
        ordered = sorted(found, key=lambda key: (depths[key], self.plan.reduced_side(key)))
        for _, group in itertools.groupby(ordered, key=lambda key: (depths[key], self.plan.reduced_side(key))):
            lines += self._reduced(stages, [*group], level, side)

    def _reduced(self, stages: Stages, keys: Sequence[Key], level: int, side: str) -> list[str]:
        """Returns the loop that computes reductions over axes of one length, and their combination over threads."""
        expressions, real, other = self.expressions, self.kernel.real, self.names.other
        reductions, first, step = self._team(side)
        known, operands = dict(expressions.known), [self.plan.operands(key)[0] for key in keys]
        self._read(stages, operands, level, side)
        body: list[str] = []
        texts = expressions.locals_for(operands, body)
        results, lines, after = dict[Key, str](), list[str](), list[str]()
        extremes = dict[tuple[str, Key], str]()
        alone = step == "1"
        for key, operand, text in sorted(zip(keys, operands, texts, strict=True), key=lambda one: not self._is_extreme(one[0])):  # fmt: skip
            kind, value = self._kind(key), expressions.bare(operand)
            if (kind, value) in extremes:
                results[key] = extremes[kind, value]
                continue
            word = EXTREMES[kind][0] if is_extreme(kind) else kind
            said = "" if side or is_extreme(kind) else self.places.said(key)
            name = results[key] = self.kernel.names.fresh(said or RESULT_NAMES[word])
            infinity = [expressions.number(sign * float("inf")) for sign in (-1, 1)]
            ctype = c_type(self.plan.node(operand).dtype, real)
            if word in ("max", "min"):
                start = start_of(kind, ctype, infinity)
            else:
                start = expressions.number(STARTS[kind]) if ctype == real else str(int(STARTS[kind]))
            lines.append(f"{ctype} {name} = {start};")
            if is_extreme(kind):
                place = results[key] = self.kernel.names.fresh("place")
                extremes[word, value] = name
                lines.append(f"int {place} = 0;")
                if not re.fullmatch(r"\w+", text):
                    held = self.kernel.names.fresh("candidate")
                    body.append(f"const {real} {held} = {text};")
                    text = held
                body += reductions.extremes.taken(kind, real, text, other, name, place)
                after += [] if alone else [f"{reductions.extremes.function(kind, real, 'int')}({name}, {place});"]
            else:
                body.append(reductions.combined(kind, name, text, ctype))
                after += [] if alone else [f"{name} = {reductions.function(kind, ctype)}({name});"]
        advance = f"{other} += {step}" if step != "1" else f"++{other}"
        head = (
            f"for (int {other} = {first}; {other} < {self.places.text_of(self.plan.reduced_side(keys[0]))}; {advance})"
        )
        expressions.known = known | results
        return [*lines, f"#pragma unroll {AHEAD}", *block_of(head, body), *after]

    def _is_extreme(self, key: Key) -> bool:
        return is_extreme(self.plan.node(key).data[0])

    def _kind(self, key: Key) -> str:
        """Returns the kind of a reduction.

        Raises:
            Refused: threads do not reduce values so.
        """
        kind, operand = str(self.plan.node(key).data[0]), self.plan.graph.nodes[self.plan.node(key).args[0]]
        whole = operand.dtype in ("int32", "int64") and kind in ("sum", "max", "min")
        if not whole and ((kind not in RESULT_NAMES and not is_extreme(kind)) or not operand.dtype.startswith("float")):
            raise Refused(f"it reduces {operand.dtype} values by {kind} in a step")
        return kind

    def _team(self, side: str) -> tuple[Reductions, str, str]:
        """Returns the threads that reduce: those of an element, or else of a warp; their first term, and their number."""
        if side and self.lanes == 1:
            return self.of_lanes, "0", "1"
        if side:
            return self.of_lanes, self.names.lane, self.names.kLanes
        if not self.places.fronts:
            return self.of_numbers, "threadIdx.x", self.names.kThreads
        if self.lanes == WARP:
            return self.of_numbers, self.names.lane, self.names.kLanes
        return self.of_numbers, self.names.warp_lane, str(WARP)


def _merged(values: Sequence[StepValue]) -> list[StepValue]:
    """Returns the values; equal ones are merged into one that is stored wherever they were."""
    found: dict[tuple[Key, str], StepValue] = {}
    others: list[StepValue] = []
    for one in values:
        known = found.get((one.key, one.side))
        if known is not None and min(known.number, one.number) >= 0:
            others.append(one)  # two carried numbers with the same next value
            continue
        if known is not None:
            one = replace(known, targets=(*known.targets, *one.targets), number=max(known.number, one.number))
        found[one.key, one.side] = one
    return [*found.values(), *others]


def _changed(name: str, text: str) -> str:
    """Returns the assignment of a carried number's next value."""
    rest = text.removeprefix(f"{name} + ")
    return f"{name} += {rest};" if rest != text and not re.search("[?<>=&|]", rest) else f"{name} = {text};"
