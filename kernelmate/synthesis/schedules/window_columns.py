"""Windows along rows, a few adjacent results per thread: shared elements are loaded once, in packs, into registers.

Traffic: each array is read and written once; packs of 16 bytes come from L1 for each group of results, where single elements would
come for each element of a window. Arithmetic: that of the graph for each element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelmate.source import evaluate
from kernelmate.synthesis.graph import Node
from kernelmate.synthesis.index_maps import ORDINARY, AxisMap, Linear, never_negative
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, fresh_names
from kernelmate.synthesis.packs import ALIGNED_ROWS, Packs
from kernelmate.synthesis.plan import Key, Refused
from kernelmate.synthesis.schedules.window_threads import BLOCK, WARP, WindowThreads, with_locals
from kernelmate.synthesis.window_plan import Windows, parsed, walked
from kernelmate.synthesis.window_registers import MOST_REGISTERS, RowsText, WindowBox, moved, span

Strip = tuple[str, str]
"""The name of an array, and the indices before the last, as text."""


def strips_of(plan: Windows) -> dict[Strip, tuple[int, int]]:
    """Returns the smallest and largest column offset, from a thread's own, of the reads of each row of an array.

    Left out are rows that may not exist, and those of which an element does not move with the column.
    """
    found: dict[Strip, list[Linear | None]] = {}
    for key in walked(plan):
        if plan.is_leaf(key) and plan.node(key).shape:
            found.setdefault(_strip(plan, key), []).append(_distance(plan, key))
    known = {strip: [one for one in away if one is not None] for strip, away in found.items() if None not in away}
    return {strip: span(plan, away) for strip, away in known.items()}


def column_of(plan: Windows) -> str:
    """Returns the variable of the results' last axis."""
    return f"__{len(plan.domain) - 1}"


def _strip(plan: Windows, key: Key) -> Strip:
    return plan.name(key), " ".join(map(str, key[1][:-1]))


def _distance(plan: Windows, key: Key) -> Linear | None:
    """Returns an element's column offset from the thread's; None if there is none, or if its row may not exist."""
    *rows, last = key[1]
    column = column_of(plan)
    if last is None or any(one is None or "value(" in str(one) for one in key[1]):
        return None
    away = parsed(str(last)).plus(Linear(((column, 1),)), -1)
    if any(not name.startswith("__r") or plan.ranges[name].terms for name, _ in away.terms):
        return None
    for text, side in zip(rows, plan.node(key).shape, strict=False):
        at = parsed(str(text))
        inside = never_negative(at, plan.ranges) and never_negative(parsed(side).plus(at, -1).plus(-1), plan.ranges)
        if not inside or any(name == column or name.startswith("__r") for name, _ in at.terms):
            return None
    return away


class ColumnsText(RowsText):
    """Writes the values of one column of a thread, from strips of rows in registers.

    Args:
        plan: the plan of the windows.
        kernel: the kernel whose parameters hold sizes.
        positions: the locals of the positions.
        names: the locals of a thread's first column and of a column's number, and the constant for the number of columns.
        packs: the packs of the arrays.
        packed: the local that is true where rows are aligned.
        kind: the C++ type of a column's index.
    """

    def __init__(
        self,
        plan: Windows,
        kernel: KernelText,
        positions: Mapping[str, str],
        names: Sequence[str],
        packs: Packs,
        packed: str,
        kind: str,
    ) -> None:
        column = column_of(plan)
        super().__init__(plan, kernel, positions, "", column, names)
        self._moving, self._packs, self._packed, self._kind = column, packs, packed, kind
        self._pack, self._each, self._at = (self.names.fresh(one) for one in ("p", "k", "in_col"))

    def _find_boxes(self, reads: Sequence[Key], rows: int) -> None:
        each = self._packs.width
        for strip, (low, high) in strips_of(self.plan).items():
            # Whole packs, so that each begins at a multiple of its length.
            ends = low // each * each, -(-(high + each) // each) * each - 1
            word = "values" if ends == (0, each - 1) else "window"
            self._boxes[strip] = WindowBox(self.names.fresh(f"{strip[0]}_{word}"), (0, 0), ends)

    def _group(self, key: Key) -> Strip:
        return _strip(self.plan, key)

    def _distances(self, key: Key) -> list[Linear] | None:
        away = _distance(self.plan, key) if key[1] else None
        return None if away is None else [away]

    def _leads_inside(self, node: Node) -> bool:
        return all(AxisMap.of(one).beyond == ORDINARY for one in node.data[:-1])

    def _load_boxes(self, reads: Sequence[Key]) -> None:
        """Emits the loads of each strip: in packs where they are aligned and inside, else element by element."""
        for strip, box in self._boxes.items():
            (key, *_) = [one for one in reads if self._group(one) == strip]
            name, shape = strip[0], self.plan.node(key).shape
            pointer, self._lines = name, self.before
            rows = [parsed(str(one)) for one in key[1][:-1]]
            if any(one != Linear() for one in rows):
                pointer = self.names.fresh(f"{name}_row")
                start = self.address(shape, [*rows, Linear()])
                self.before.append(f"const {self._kernel.element(name)}* {pointer} = {name} + {start};")
            low, more = box.columns[0], box.columns[1] - box.columns[0] + 1 - self._packs.width
            kind, length = self.type_of(key), self.number_text(parsed(shape[-1]))[0]
            if low == more == 0:
                self.before.append(f"{kind} {box.local}[{self._count}];")
                self.before += self._loads(key, pointer, self._first, f"{box.local}[", length, [])
                continue
            p, c, count = self._pack, self._at, f"{self._count} + {more}" if more else self._count
            # Aligned rows are of whole packs, so that none up to the thread's own pack ends beyond its row. A vector may
            # end within a pack.
            above = more + low > 0 or len(self.plan.domain) < 2
            tests = [*[f"{c} >= 0"] * (low < 0), *[f"{c} + {self._count} <= {length}"] * above]
            self.before += [
                f"{kind} {box.local}[{count}];",
                "#pragma unroll",
                *block_of(
                    f"for (int {p} = 0; {p} < {count}; {p} += {self._count})",
                    [
                        f"const {self._kind} {c} = {self._first} + {p}{moved(low)};",
                        *self._loads(key, pointer, c, f"{box.local}[{p} + ", length, tests),
                    ],
                ),
            ]

    def _loads(self, key: Key, pointer: str, at: str, local: str, length: str, tests: Sequence[str]) -> list[str]:
        """Returns the statements that load a pack of a strip into registers.

        Args:
            key: an element of the strip.
            pointer: its row.
            at: the column of the pack's first element.
            local: the beginning of the text of a register.
            length: of the row.
            tests: conditions for the pack to be inside the row.
        """
        name, k = self.plan.name(key), self._each
        fill = self._fill(self._group(key), self.type_of(key))
        if len(self.plan.domain) < 2 and not tests:
            tests = [f"{at} + {self._count} <= {length}"]
        head = f"for (int {k} = 0; {k} < {self._count}; ++{k})"
        value = self._kernel.loaded(name, f"{pointer}[{at} + {k}]")
        single = [f"{local}{k}] = {at} + {k} < {length} ? {value} : {fill};"]
        if any(">= 0" in one for one in tests):
            test = self.names.fresh("inside")
            single = [
                f"const bool {test} = {at} + {k} >= 0 && {at} + {k} < {length};",
                f"{local}{k}] = {test} ? {value} : {fill};",
            ]
        return [
            f"if ({' && '.join([self._packed, *tests])}) {{",
            f"  {self._packs.load(name, f'{pointer} + {at}')}",
            "#pragma unroll",
            f"  {head} {local}{k}] = {self._kernel.loaded(name, f'{self._packs.locals[name]}.at[{k}]')};",
            "} else {",
            "#pragma unroll",
            *(f"  {line}" for line in block_of(head, single)),
            "}",
        ]

    def _boxed(self, key: Key, box: WindowBox) -> str:
        (along,) = self._distances(key) or (Linear(),)
        at = along.plus(-box.columns[0])
        return (
            f"{box.local}[{self._step}]" if at == Linear() else f"{box.local}[{self._step} + {self.number_text(at)[0]}]"
        )


FEWEST = 4
"""Minimum number of adjacent elements that a result reads; with fewer, a thread would use little of a pack."""


def widest(plan: Windows) -> int:
    """Returns the largest number of adjacent row elements that a result reads; 0 without strips of rows."""
    return max((high - low + 1 for low, high in strips_of(plan).values()), default=0)


class WindowColumns(WindowThreads):
    """Text of a kernel with a thread per group of adjacent columns, with shared elements in registers."""

    def __init__(self, plan: Windows, kernel: KernelText) -> None:
        strips = strips_of(plan)
        if widest(plan) < FEWEST:
            raise Refused("its columns share too few elements")
        targets = [target.name for target in plan.targets]
        if {plan.name(key) for key in walked(plan) if plan.is_leaf(key)} & {*targets}:
            raise Refused("it reads what it writes")
        if any(parsed(str(target.place[-1])) != Linear(((column_of(plan), 1),)) for target in plan.targets):
            raise Refused("results are not stored column by column")
        self.packs = Packs(kernel, [*dict.fromkeys([*(name for name, _ in strips), *targets])], kernel.names)
        self.columns = self.packs.width
        most = sum(high - low + 1 + 2 * self.columns for low, high in strips.values())
        if most > MOST_REGISTERS or self.columns < 2:
            raise Refused("its columns share more than registers hold")
        super().__init__(plan, kernel)
        self.local = fresh_names(kernel, "kColumns", "first", "j", "packed")

    def _block(self) -> tuple[int, ...] | int:
        """Returns one block dimension for signals and long rows, else as many rows as fill a block."""
        if self.rank < 2:
            return BLOCK
        columns, width = int(evaluate(self.sides[0], self.kernel.contract.sizes[0])), WARP
        while width < BLOCK and width * self.columns < columns:
            width *= 2
        return (width, BLOCK // width)

    def _column(self) -> str:
        return str(self.local.first)

    def _column_from(self, number: str, kind: str = "int") -> str:
        return f"const {kind} {self.local.first} = ({number}) * {self.local.kColumns};"

    def _blocks_across(self, local: str, columns: str) -> str:
        taken = f"(blockDim.x * {self.local.kColumns})"
        return f"const int {local} = ({columns} + {taken[1:-1]} - 1) / {taken};"

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        local, packs, kernel, plan = self.local, self.packs, self.kernel, self.plan
        lines = self._positions()
        column, length, kind = (
            self.names[0],
            self.lengths[0],
            "long long" if self.rank == 1 and self._is_wide() else "int",
        )
        names = (local.first, local.j, local.kColumns)
        text = ColumnsText(plan, kernel, self._variables(), names, packs, local.packed, kind)
        body: list[str] = []
        values = text.values(body, self.columns)
        held = {target.name: packs.locals[target.name] for target in plan.targets}
        for target, value in zip(plan.targets, values, strict=True):
            stored = kernel.stored(target.name, value, plan.node(target.key).dtype)
            body.append(f"{held[target.name]}.at[{local.j}] = {stored};")
        loop = [
            *(f"{packs.type_of(one)} {name};" for one, name in held.items()),
            "#pragma unroll",
            *block_of(
                f"for (int {local.j} = 0; {local.j} < {local.kColumns}; ++{local.j})",
                [f"const {kind} {column} = {local.first} + {local.j};", f"if ({column} >= {length}) break;", *body],
            ),
        ]
        constant = f"constexpr int {local.kColumns} = {self.columns};  // columns per thread, which share their neighbours in registers"
        return WrittenKernel(
            "windows-columns",
            f"Written from the reference: a thread for {self.columns} neighbouring columns of a row, which loads what they share once, "
            f"{packs.bytes_at_once()} bytes at a time." + kernel.promise(self._read()),
            kernel.definition(
                kernel.head(),
                [
                    constant,
                    *packs.structs(str(local.kColumns)),
                    *with_locals(
                        [
                            *lines,
                            ALIGNED_ROWS,
                            f"const bool {local.packed} = {self._aligned()};",
                            *text.before,
                            *loop,
                            *self._stored(text, held, length),
                        ]
                    ),
                ],
            ),
            "",
            self._grid(),
            self.block,
        )

    def _aligned(self) -> str:
        """Returns the condition that all rows begin at addresses of whole packs."""
        shapes = [self.plan.node(key).shape for key in walked(self.plan) if self.plan.is_leaf(key)]
        sides = [shape[-1] for shape in (*shapes, *(target.shape for target in self.plan.targets)) if len(shape) > 1]
        lengths = dict.fromkeys(self.kernel.size(one) for one in sides if not one.isdigit() or int(one) % self.columns)
        tests = [
            f"{one if one.isidentifier() or one.isdigit() else f'({one})'} % {self.local.kColumns} == 0"
            for one in lengths
        ]
        aligned = self.packs.aligned()
        return " && ".join([*tests, *[aligned] * bool(aligned)]) or "true"

    def _stored(self, text: ColumnsText, held: dict[str, str], length: str) -> list[str]:
        """Returns the statements that store the results: in packs where they are aligned and whole, else element by element."""
        local = self.local
        packed, single = [], []
        for target in self.plan.targets:
            rows = [parsed(str(one)) for one in target.place[:-1]]
            start = text.address(target.shape, [*rows, Linear()])
            at = str(local.first) if start == "0" else f"{start} + {local.first}"
            name, pack = target.name, held[target.name]
            packed.append(f"*reinterpret_cast<{self.packs.type_of(name)}*>({name} + {at}) = {pack};")
            single.append(f"{name}[{at} + {local.j}] = {pack}.at[{local.j}];")
        # Rows of whole packs end with one; a signal may have any length.
        whole = (
            f"{local.packed} && {local.first} + {local.kColumns} <= {length}" if self.rank < 2 else str(local.packed)
        )
        return [
            f"if ({whole}) {{",
            *(f"  {line}" for line in packed),
            "} else {",
            "#pragma unroll",
            *(
                f"  {line}"
                for line in block_of(
                    f"for (int {local.j} = 0; {local.j} < {local.kColumns}; ++{local.j})",
                    [f"if ({local.first} + {local.j} < {length}) {single[0]}"]
                    if len(single) == 1
                    else block_of(f"if ({local.first} + {local.j} < {length})", single),
                )
            ),
            "}",
        ]
