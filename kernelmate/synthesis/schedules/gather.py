"""Elements by index: packs along the last axis of the result; indices that select rows are computed once per pack.

Traffic: results are written once in packs of 16 bytes. Arrays whose last axis is the result's are read in the same way,
other elements one by one, from the cache if neighbours share them. Arithmetic: that of the graph for each element.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.elements import Elements, Numbers, axes_in
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, fresh_names, those_written
from kernelmate.synthesis.names import position_name
from kernelmate.synthesis.packs import ALIGNED_ROWS, Packs
from kernelmate.synthesis.plan import Refused, walk, without_reshapes
from kernelmate.synthesis.schedules.pointwise import LONG_ROW, row_block

BLOCK = 256


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the schedule does not apply.
    """
    graph = without_reshapes(graph)
    domain = tuple(side for side in graph.nodes[graph.outputs[0]].shape if side != "1")
    outputs = []
    for one in graph.outputs:
        sides = graph.nodes[one].shape
        if tuple(side for side in sides if side != "1") != domain or not domain:
            raise Refused("its outputs have different shapes")
        axes = iter(range(len(domain)))
        outputs.append((one, tuple(None if side == "1" else next(axes) for side in sides)))
    plan = Elements(graph, domain, 0, tuple(outputs), "map", (), frozenset({len(domain) - 1}))
    columns = int(evaluate(domain[-1], kernel.contract.sizes[0]))
    several = [True, False] if columns >= LONG_ROW else [False, True]
    yield from those_written(partial(_text, plan, kernel, by_rows) for by_rows in several)


def _text(plan: Elements, kernel: KernelText, by_rows: bool) -> WrittenKernel:
    return Gather(plan, kernel.again(), by_rows).written()


class Gather:
    """The text for packs over all elements, or for a block per row."""

    name, what, whole = "gather", "what chooses them computed once for each", "the result"
    more: Sequence[str] = ()
    """Further parameters of the helper, before the place of the pack."""

    def __init__(self, plan: Elements, kernel: KernelText, by_rows: bool) -> None:
        self.plan, self.kernel, self.by_rows = plan, kernel, by_rows
        self.last = len(plan.domain) - 1
        if by_rows and not self.last:
            raise Refused("it has one axis")
        self.outputs = [one.name for one in kernel.outputs()]
        self.names = fresh_names(kernel, "row", "column", "j", "kPack", "base", "count", "packed", "columns", "i")
        self.at = {axis: kernel.names.position(position_name(plan.domain[axis])) for axis in range(self.last)}
        if self.last == 1:
            self.at[0] = self.names.row
        self._rows: dict[tuple[str, str], str] = {}
        self.inputs = self._inputs()
        along = [name for name, several in self.inputs.items() if self._along(several)]
        arrays = [one.name for one in kernel.contract.args if one.name in (*along, *self.outputs)]
        self.packs = Packs(kernel, arrays, kernel.names, self.names.kPack)
        self.numbers = Numbers(plan, kernel, {**self.at, self.last: f"({self.names.column} + {self.names.j})"})
        self.expressions = Expressions(plan, kernel, self._leaf, frozenset({"inner"}))

    def _inputs(self) -> dict[str, set[tuple]]:  # type: ignore[type-arg]
        """Returns the indices at which each array is read."""
        found: dict[str, set[tuple]] = {}  # type: ignore[type-arg]
        every = tuple(range(len(self.plan.domain)))
        for key in walk(self.plan):
            node = self.plan.node(key)
            if node.op == "input":
                name = str(node.data[0])
                found.setdefault(name, set()).add(key[1])
                if name in self.outputs and tuple(one for one in key[1] if one is not None) != every:
                    raise Refused(f"{name} is read where another thread may have written it")
        return found

    def _along(self, several: set[tuple]) -> bool:  # type: ignore[type-arg]
        """Returns True if an array is read at a single index, contiguously along the result's last axis."""
        if len(several) != 1:
            return False
        (index,) = several
        used = [one for one in index if one is not None]
        return bool(used) and used[-1] == self.last and self.last not in axes_in(used[:-1])

    def _leaf(self, key: tuple) -> str:  # type: ignore[type-arg]
        node = self.plan.node(key)
        if node.op == "scalar":
            return self.kernel.loaded(str(node.data[0]), str(node.data[0]))
        if node.op == "iota":
            axis = key[1][0]
            if axis is None or axis == self.last:
                return "0" if axis is None else f"{self.names.column} + {self.names.j}"
            if isinstance(axis, tuple):  # the position that a number selects is the number
                return self.expressions.known[axis]
            place = self.at[axis]
            return f"static_cast<long long>({place})" if place == self.names.row else place
        name = str(node.data[0])
        if name in self.packs.arrays and self._along(self.inputs[name]):
            return self.kernel.loaded(name, f"{self.packs.locals[name]}.at[{self.names.j}]")
        return self.kernel.loaded(name, self._element(name, self.numbers.address(key, self.expressions)))

    def _element(self, name: str, address: str) -> str:
        """Returns an element of an array; a row that all elements of a thread share gets a pointer."""
        found = re.fullmatch(r"(\(?static_cast.+) \+ (?:(\w+)|\((\w+ \+ \w+)\))", address)
        row, place = (found[1], found[2] or found[3]) if found is not None else ("", "")
        words = re.findall(r"[A-Za-z_]\w*", row)
        once = not {self.names.column, self.names.j} & {*words}
        declared = [line for line in self.expressions.outer if any(re.search(rf" {one} = ", line) for one in words)]
        known = {*self.at.values(), *self.kernel.parameters, "static_cast", "size_t"}
        if not row or not once or len(declared) < len({*words} - known):
            return f"{name}[{address}]"
        if (name, row) not in self._rows:
            ends = re.search(r"(?: \+ |^static_cast<size_t>\()([A-Za-z_]\w*)\) \* \w+$", row)
            pointer = self.kernel.names.fresh(f"{name}_{ends[1]}" if ends is not None else f"{name}_row")
            self.expressions.outer.append(f"const {self.kernel.element(name)}* {pointer} = {name} + {row};")
            self._rows[name, row] = pointer
        return f"{self._rows[name, row]}[{place}]"

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        results: list[str] = []
        self.numbers.taken(self.plan.outputs, self.expressions, results)
        results += self.stored(results)
        return self.packed([], results, self.loads(walk(self.plan)))

    def stored(self, lines: list[str]) -> list[str]:
        """Returns statements that put one element of each output into its pack; locals go to `lines`."""
        texts = self.expressions.locals_for(self.plan.outputs, lines)
        targets = self._targets()
        return [
            f"{targets[name]}.at[{self.names.j}] = {self.kernel.stored(name, text, self.plan.node(key).dtype)};"
            for name, key, text in zip(self.outputs, self.plan.outputs, texts, strict=True)
        ]

    def _targets(self) -> dict[str, str]:
        """Returns the local of each output's pack."""
        packs = self.packs
        return {
            name: f"{packs.locals[name]}_next" if name in self.inputs else packs.locals[name] for name in self.outputs
        }

    def loads(self, keys: Iterable[tuple]) -> list[str]:  # type: ignore[type-arg]
        """Returns statements that load packs of the arrays among some operations."""
        found = []
        for key in keys:
            node = self.plan.node(key)
            if (
                node.op == "input"
                and str(node.data[0]) in self.packs.arrays
                and self._along(self.inputs[str(node.data[0])])
            ):
                at = self.numbers.address(key, self.expressions)
                # the address of the pack is that of its first element
                at = at.replace(f"({self.names.column} + {self.names.j})", self.names.column)
                found.append(self.packs.load(str(node.data[0]), f"{node.data[0]} + {at}"))
        return found

    def packed(self, before: Sequence[str], results: Sequence[str], loads: Sequence[str]) -> WrittenKernel:
        """Returns the kernel around the statements for one element; `before` are values computed once."""
        kernel, names, packs = self.kernel, self.names, self.packs
        targets = self._targets()
        length = kernel.size(self.plan.domain[-1])
        opening = []
        if length.isidentifier() or length.isdigit():
            names.columns = length
        else:
            opening.append(f"const int {names.columns} = {length};")
        place = f"{names.row} * {names.columns} + {names.column}" if self.last else names.column
        used = self.last or any(
            re.search(rf"\b{names.columns}\b", one) for one in [*self.expressions.outer, *results, *loads]
        )
        inner = [
            *packs.structs(names.kPack), *(opening if used else []), *self._coordinates([*self.expressions.outer, *before, *results, *loads]),
            *self.expressions.outer, *dict.fromkeys(loads), *before,
            *(f"{packs.type_of(name)} {targets[name]};" for name in self.outputs),
            "#pragma unroll",
            *block_of(f"for (int {names.j} = 0; {names.j} < {names.kPack}; ++{names.j})", results),
            *(
                f"*reinterpret_cast<{packs.type_of(name)}*>({name} + {place}) = {targets[name]};"
                for name in self.outputs
            ),
        ]  # fmt: skip
        passed = kernel.used(inner)
        helper = kernel.names.outermost(f"{kernel.base_name}_pack")
        row = [f"size_t {names.row}"] if self.last else []
        column = f"int {names.column}" if self.last else f"long long {names.column}"
        front = kernel.wrapped(
            f"static __device__ __forceinline__ void {helper}(", [*kernel.declared(passed), *self.more, *row, column]
        )
        comment = f"// kPack neighbouring elements of {self.whole}."
        text = "\n".join([comment, kernel.definition(f"template <int {names.kPack}>\n{front}", inner)])
        return self._launched(helper, passed, text, opening)

    def _coordinates(self, lines: Sequence[str]) -> list[str]:
        """Emits the positions along the leading axes that are used, from the row number."""
        if self.last < 2:
            return []
        found, left = [], self.names.row
        for axis in reversed(range(self.last)):
            text = left
            if axis:
                side = self.kernel.size(self.plan.domain[axis])
                side = side if side.isidentifier() or side.isdigit() else f"({side})"
                text, left = f"{left} % {side}", f"{left} / {side}"
            if any(self.at[axis] in line.replace("[", " ").replace("(", " ").replace(")", " ").split() or self.at[axis] in line for line in lines):  # fmt: skip
                found.append(f"const int {self.at[axis]} = {text};")
        return found

    def _launched(self, helper: str, passed: Sequence[str], text: str, opening: Sequence[str]) -> WrittenKernel:
        """Returns the kernel, whose body assigns packs to threads."""
        kernel, names, width, wide = self.kernel, self.names, self.packs.width, self.packs.wide
        arguments = ", ".join(passed)
        deep = any(
            sum(one is not None for one in index) > 1
            for name in self.packs.arrays
            for index in self.inputs.get(name, ())
        )
        whole = [f"{names.columns} % {wide} == 0"] if self.last or deep else []
        guard = " && ".join(filter(None, [*whole, self.packs.aligned(wide)])) or "true"
        known = [name for name, several in self.inputs.items() if self._along(several)]
        promise = f" elements at a time in accesses of 16 bytes where addresses allow it, and {self.what}." + kernel.promise(known)  # fmt: skip
        if self.by_rows:
            columns = int(evaluate(self.plan.domain[-1], kernel.contract.sizes[0]))
            arguments += f", {names.row}, {names.column}"

            def loop(pack: str) -> list[str]:
                scale = f" * {pack}" if pack != "1" else ""
                head = f"for (int {names.column} = threadIdx.x{scale}; {names.column} < {names.columns}; {names.column} += blockDim.x{scale})"
                return block_of(head, [f"{helper}<{pack}>({arguments});"])

            body = [*opening, f"const size_t {names.row} = blockIdx.x;"]
            body += kernel.row_guard(names.row, self.plan.domain[:-1], [*passed, *opening])
            if width > 1:
                body += [
                    self.packs.constant(),
                    ALIGNED_ROWS,
                    f"if ({guard}) {{",
                    *("  " + one for one in loop(wide)),
                ]
                body += ["} else {", *("  " + one for one in loop("1")), "}"]
            else:
                body += loop("1")
            return WrittenKernel(
                f"{self.name}-rows", f"Written from the reference: a block for each row of {self.whole}, {width}{promise}",
                kernel.definition(kernel.head(), body), text, (" * ".join(self.plan.domain[:-1]),), row_block(columns, width),
            )  # fmt: skip

        def at(place: str) -> str:
            return f"{place} / {names.columns}, {place} % {names.columns}" if self.last else place

        start = "static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x"
        first = f"({start}) * {wide}" if width > 1 else start
        count = kernel.count(self.plan.domain)
        body = [
            *([self.packs.constant()] if width > 1 else []),
            *opening,
            *([] if count == names.count else [f"const size_t {names.count} = {count};"]),
        ]
        body += [f"const size_t {names.base} = {first};", f"if ({names.base} >= {names.count}) return;"]
        if width > 1:
            fits = [] if self.last else [f"{names.base} + {wide} <= {names.count}"]
            guard = " && ".join(filter(None, [guard if guard != "true" else "", *fits])) or "true"
            i = names.i
            body += [
                ALIGNED_ROWS,
                *block_of(f"if ({guard})", [f"{helper}<{wide}>({arguments}, {at(names.base)});", "return;"]),
                *block_of(
                    f"for (size_t {i} = {names.base}; {i} < {names.count} && {i} < {names.base} + {wide}; ++{i})",
                    [f"{helper}<1>({arguments}, {at(i)});"],
                ),
            ]
        else:
            body.append(f"{helper}<1>({arguments}, {at(names.base)});")
        return WrittenKernel(
            self.name, f"Written from the reference: packs over all elements of {self.whole}, {width}{promise}",
            kernel.definition(kernel.head(), body), text, (f"cdiv({' * '.join(self.plan.domain)}, block * {width})",), BLOCK,
        )  # fmt: skip
