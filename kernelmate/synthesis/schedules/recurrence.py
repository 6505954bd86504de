"""Recurrences along an axis that is not the last one: a thread per column carries its values in registers from row to row.

Traffic: each array is read and written once, in whole sectors. Arithmetic: that of the graph. The order is that of the reference.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kernelmate.synthesis.axes import address
from kernelmate.synthesis.early_exits import with_exit
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of
from kernelmate.synthesis.names import words_of
from kernelmate.synthesis.plan import Key, Plan, Refused, walk
from kernelmate.synthesis.schedules.column_scan import BLOCK, ColumnScan
from kernelmate.synthesis.schedules.row_recurrence import RowRecurrence, linear_scans
from kernelmate.synthesis.schedules.scan import plan_of_scans, written_by

AHEAD = 8
"""Number of rows whose loads overlap: carried values depend on each other, loads do not."""


STEPS = "a thread for each result repeats the steps with its values in registers; arrays are read once."
"""Method of loops that only repeat steps, along no array."""


class ColumnRecurrence(ColumnScan):
    """Text of a kernel with a thread per column, whose carried values are locals.

    Attributes:
        states: keys of the carried values before a row.
        starts: initial values.
        nexts: values after a row.
        along_arrays: True if arrays have the axis of the loop; False if it only repeats steps.
    """

    schedule = "recurrence-columns"
    why = (
        "a thread for each column carries its values in registers from row to row, and neighbours read and "
        "write whole sectors, each element once."
    )

    def __init__(self, plan: Plan, kernel: KernelText) -> None:
        self.along_arrays = _reads_along(plan)
        if not self.along_arrays:
            self.words = (self.words[0], "step")
        super().__init__(plan, kernel)
        if self.scans:
            raise Refused("it has a recurrence beside a scan")
        first = self.recurrences[0]
        operands = plan.operands(first)
        self.starts, self.nexts = operands[: len(operands) // 2], operands[len(operands) // 2 :]
        if len({plan.node(key).data[0] for key in self.recurrences}) > 1:
            raise Refused("it has recurrences of several loops")
        found = {plan.node(key).data[1]: key for key in walk(plan) if plan.node(key).op == "state"}
        self.states = [found.get(number) for number in range(len(self.starts))]
        self.types = [self.expressions.type_of(key) for key in self.nexts]
        named = [plan.node(key).name if key is not None else "" for key in self.states]
        self.carried = [kernel.names.fresh(self._name(name, place)) for place, name in enumerate(named)]

    def _name(self, said: str, place: int) -> str:
        """Returns a name for a carried value: the reference's own, or that of its result."""
        if said and self.kernel.names.is_free(said):
            return said
        for key, name in zip(self.plan.outputs, self.outputs, strict=True):
            if self.expressions.bare(key) in self._results(place, "all"):
                return f"{name}_i"
        node = self.plan.node(self.nexts[place])
        return f"last_{node.data[0]}" if node.op == "input" else "carried"

    def _results(self, number: int, kind: str) -> list[Key]:
        """Returns the keys of the results of one kind (`all`, `before` or `last`) of carried value `number`."""
        return [key for key in self.recurrences if self.plan.node(key).data[1:3] == (number, kind)]

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, expressions = self.kernel, self.names, self.expressions
        declared: list[str] = []
        texts = expressions.locals_for(self.starts, declared)
        declared += [f"{ctype} {name} = {text};" for ctype, name, text in zip(self.types, self.carried, texts, strict=True)]  # fmt: skip
        for number, name in enumerate(self.carried):
            self._know(number, "before", name)
        pairs = list(zip(self.plan.outputs, self.outputs, strict=True))
        whole = [(key, name) for key, name in pairs if self.is_whole(key)]
        place = address(self.layout.every, self.lengths, self.at)
        body = self._turn(whole, lambda name: f"{name}[{place}]")
        if not whole:
            flags = [
                name
                for number, name in enumerate(self.carried)
                if f"bool {name} = true;" in declared and self._stays(number)
            ]
            body = with_exit(body, self.carried, names.row, flags)
            declared = [
                line
                for line in declared
                if not any(line == f"bool {one} = true;" for one in flags if one not in words_of(" ".join(body)))
            ]
        body = [re.sub(r"^(\w+) = \1 \+ (\w+);$", r"\1 += \2;", line) for line in body]
        length = self.lengths[self.along]
        head = f"for (int {names.row} = 0; {names.row} < {length}; ++{names.row})"
        if self.backwards:
            head = f"for (int {names.row} = {length} - 1; {names.row} >= 0; --{names.row})"
        lines = [*self._thread(), *expressions.outer, *declared, f"#pragma unroll {AHEAD}", *block_of(head, body)]
        expressions.outer = []
        single = [(key, name) for key, name in pairs if not self.is_whole(key)]
        if single:
            expressions.known = {key: name for key, name in expressions.known.items() if not expressions.varies(key)}
            for number, name in enumerate(self.carried):
                self._know(number, "last", name)
            at = address(self.layout.single, self.lengths, self.at)
            after = self.stores(single, lambda name: f"{name}[{at}]")
            lines += [*expressions.outer, *after]
        return WrittenKernel(
            self.schedule,
            f"Written from the reference: {self.why if self.along_arrays else STEPS}" + kernel.promise(self.inputs),
            "\n".join([*self.reductions.texts(), kernel.definition(kernel.head(), lines)]),
            "",
            (f"cdiv({self.count}, block)",),
            BLOCK,
        )

    def _stays(self, number: int) -> bool:
        """Returns True if no result needs what carried value `number` is after the loop."""
        return not any(self._results(number, kind) for kind in ("all", "before", "last"))

    def _conditions(self) -> list[Key]:
        """Returns the conditions that several carried values depend on."""
        found: list[list[Key]] = []
        for following in dict.fromkeys(map(self.expressions.bare, self.nexts)):
            stack, seen = [following], dict[Key, None]()
            while stack:
                key = stack.pop()
                if key in seen:
                    continue
                node = self.plan.node(key)
                if node.op == "map" and node.dtype == "bool":
                    seen[key] = None
                else:
                    stack += map(self.expressions.bare, self.plan.operands(key))
            found.append(list(seen))
        return [key for key, count in Counter(one for several in found for one in several).items() if count > 1]

    def _know(self, number: int, kind: str, name: str) -> None:
        """Records that a local now holds a result of a carried value."""
        state = self.states[number]
        if kind == "before" and state is not None:
            self.expressions.known[state] = name
        self.expressions.known |= dict.fromkeys(self._results(number, kind), name)

    def _turn(self, whole: Sequence[tuple[Key, str]], place: object) -> list[str]:
        """Returns the statements of one row: results from the carried values, their update, and the other results."""
        body: list[str] = []
        early = [pair for pair in whole if self._needs(pair[0], "before")]
        late = [pair for pair in whole if pair not in early]
        if any(self._needs(key, "all") for key, _ in early):
            raise Refused("a result needs what a row begins with and what it ends with")
        for key in self.nexts:
            if self.plan.node(self.expressions.bare(key)).op == "input":
                self.expressions.named(key, body, f"{self.plan.node(self.expressions.bare(key)).data[0]}_i")
        for key in self._conditions():
            self.expressions.named(key, body, "active")
        body += self.stores(early, place) if early else []  # type: ignore[arg-type]
        left = list(range(len(self.carried)))
        while left:
            number = next((one for one in left if not self._is_needed(one, left)), None)
            if number is None:
                nexts = {one: self.expressions.bare(self.nexts[one]) for one in left}
                computed = [one for one, key in nexts.items() if self.plan.node(key).op != "state" and key not in self.expressions.known]  # fmt: skip
                if not computed:
                    raise Refused("its values before a row are exchanged")
                self._hold(computed[0], body)
                continue
            left.remove(number)
            self._advance(number, body)
        return body + (self.stores(late, place) if late else [])  # type: ignore[arg-type]

    def _advance(self, number: int, body: list[str]) -> None:
        """Appends the update of a carried local to `body`."""
        name, expressions = self.carried[number], self.expressions
        (text,) = expressions.locals_for([self.nexts[number]], body)
        body.append(f"{name} = {text};")
        for key in [key for key, held in expressions.known.items() if held == name]:
            del expressions.known[key]
        self._know(number, "all", name)
        following = expressions.bare(self.nexts[number])
        if self.plan.node(following).op not in ("state", "input"):
            expressions.known[following] = name

    def _hold(self, number: int, body: list[str]) -> None:
        """Declares a local for the updated value, which is needed together with the previous value."""
        name = self.expressions.named(self.nexts[number], body, f"next_{self.carried[number]}")
        self._know(number, "all", name)

    def _is_needed(self, number: int, left: Sequence[int]) -> bool:
        """Returns True if the previous value is still needed for other updates."""
        state = self.states[number]
        return any(one != number and state is not None and self._reaches(self.nexts[one], state) for one in left)

    def _reaches(self, key: Key, wanted: Key) -> bool:
        key = self.expressions.bare(key)
        if key == wanted:
            return True
        if key in self.expressions.known and self.plan.node(key).op != "state":
            return False
        return any(self._reaches(one, wanted) for one in self.plan.operands(key))

    def _needs(self, key: Key, kind: str) -> bool:
        node = self.plan.node(key)
        if node.op == "recur":
            return node.data[2] == kind
        return any(self._needs(one, kind) for one in self.plan.operands(key))


def _reads_along(plan: Plan) -> bool:
    """Returns True if an array that is read or written has the axis of the loop."""
    keys = [key for key in walk(plan) if plan.node(key).op in ("input", "iota")]
    keys += [
        key for key in plan.outputs if len([side for side in plan.node(key).shape if side != "1"]) == len(plan.domain)
    ]
    return any(one in plan.gone for key in keys for one in key[1])


class RowThreads(ColumnRecurrence):
    """Text of a kernel with a thread per row, for recurrences along rows that are not linear scans."""

    schedule = "recurrence-rows"
    words = ("row", "col")
    why = "a thread for each row carries its values in registers along it; the sectors of a row are read once each if they stay in the L1 cache."


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels: a thread per column, a scan of steps along rows, or a thread per row.

    Raises:
        Refused: the schedule does not apply.
    """
    plan = plan_of_scans(graph)
    if plan.kind == "columns":
        yield ColumnRecurrence(plan, kernel.again()).written()
        return
    try:
        yield from written_by(linear_scans(graph), kernel, RowRecurrence)
    except Refused as reason:
        try:
            yield RowThreads(replace(plan, kind="columns"), kernel.again()).written()
        except Refused:
            raise reason from None
