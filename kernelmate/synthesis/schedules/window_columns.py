"""Windows along rows, a few adjacent results per thread: shared elements are loaded once, in packs, into registers.

Traffic: each array is read and written once; packs of 16 bytes come from L1 for each group of results, where single elements would
come for each element of a window. Arithmetic: that of the graph for each element.
"""

from __future__ import annotations

from kernelmate.source import evaluate
from kernelmate.synthesis.index_maps import Linear
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, fresh_names
from kernelmate.synthesis.packs import ALIGNED_ROWS, Packs
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.schedules.window_threads import BLOCK, WARP, WindowThreads, with_locals
from kernelmate.synthesis.window_plan import Windows, parsed, walked
from kernelmate.synthesis.window_registers import MOST_REGISTERS
from kernelmate.synthesis.window_strips import ColumnsText, column_of, strips_of

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
