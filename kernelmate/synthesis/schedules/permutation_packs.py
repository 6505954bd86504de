"""Element-wise operations on arrays with another order of axes, in packs along the last axis."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmate.source import evaluate
from kernelmate.synthesis.axes import address, order_of
from kernelmate.synthesis.expressions import Expressions, Leaf
from kernelmate.synthesis.free_map import FreeMap
from kernelmate.synthesis.kept_text import in_own_order, own_block
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, fresh_names
from kernelmate.synthesis.packs import ALIGNED_ROWS, Packs
from kernelmate.synthesis.plan import Key, Plan, Refused, walk
from kernelmate.synthesis.schedules.pointwise import row_block

BLOCK = 256
"""Threads per block of packs in any row."""


class _PackExpressions(Expressions):
    """Expressions of a pack's elements; subexpressions that all elements share are computed before them."""

    def __init__(
        self, plan: Plan, kernel: KernelText, leaf: Leaf, varying: frozenset[str], packs: ElementPacks
    ) -> None:
        super().__init__(plan, kernel, leaf, varying)
        self._packs = packs

    def varies(self, key: Key) -> bool:
        """Returns True if a value differs between the elements of a pack."""
        node = self.plan.node(key)
        if node.op in ("input", "iota"):
            order = self._packs.axes.order(order_of(key[1]))
            return self._packs.last in order or any(isinstance(one, str) for one in order)
        if not self.plan.operands(key):
            return False
        return node.op not in ("map", "cast", "view", "reshape") or any(map(self.varies, self.plan.operands(key)))

    def element_name(self, array: str, key: Key) -> str:
        """Returns the name for an element; one that a whole row shares is named after the row."""
        return f"{array}_i" if self.varies(key) else f"row_{array}"


class ElementPacks(FreeMap):
    """Text of a kernel with packs along the last axis, which is last in every array that has it."""

    def __init__(self, plan: Plan, kernel: KernelText) -> None:
        super().__init__(plan, kernel)
        if len(self.whole) < 2:
            raise Refused("it has one axis")
        self.last = self.whole[-1]
        self.expressions = _PackExpressions(plan, kernel, self.leaf, frozenset({"flat"}), self)
        if any(self.last in order and order[-1] != self.last for order in self.orders.values()):
            raise Refused("it reads an array in another order of the last axis")
        along = [name for name, order in self.orders.items() if order and order[-1] == self.last]
        self.names = fresh_names(kernel, "base", "row", "column", "j", "kPack", "packed", "count")
        self.packs = Packs(kernel, [*dict.fromkeys([*along, *self.outputs])], kernel.names, self.names.kPack)
        if self.packs.width == 1:
            raise Refused("its elements fill 16 bytes each")
        self.at: dict[int | str, str] = {axis: kernel.names.fresh(self.called(axis)) for axis in self.whole[:-1]}
        if len(self.at) == 1 and not any(self.whole[0] in order for order in self.positions):
            self.at = {self.whole[0]: self.names.row}
        self.at[self.last] = self.names.column

    def position(self, axis: int | str) -> str:
        """Overrides `FreeMap.position`."""
        return f"{self.names.column} + {self.names.j}" if axis == self.last else self.at[axis]

    def element(self, name: str) -> str:
        """Overrides `FreeMap.element`."""
        if name in self.packs.arrays:
            return f"{self.packs.locals[name]}.at[{self.names.j}]"
        return f"{name}[{address(self.orders[name], self.lengths, self.at)}]"

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, packs = self.kernel, self.names, self.packs
        columns = self.lengths[self.last]
        helper = kernel.part_name(self.part)
        results: list[str] = []
        taken = self._taken(results)
        values = self.values(results)
        targets = {
            name: f"{packs.locals[name]}_next" if name in self.orders else packs.locals[name] for name in self.outputs
        }
        copied = {} if results else self._copied(values)
        results += [
            f"{targets[name]}.at[{names.j}] = {value};"
            for name, value in zip(self.outputs, values, strict=True)
            if name not in copied
        ]
        targets |= copied
        place = f"{names.row} * {columns} + {names.column}"
        of_row = [
            *packs.structs(names.kPack),
            *self.opening,
            *self._coordinates(),
            *taken,
            *self.expressions.outer,
        ]
        loads = [self._load(name) for name in packs.arrays if name in self.orders]
        of_row += [line for pointer, _ in loads for line in pointer]
        inner = [
            *(load for _, load in loads),
            *(f"{packs.type_of(name)} {targets[name]};" for name in self.outputs if name not in copied),
            *self._each(results),
            *(
                f"*reinterpret_cast<{packs.type_of(name)}*>({name} + {place}) = {targets[name]};"
                for name in self.outputs
            ),
        ]
        inner, places, comment = self._of_helper(of_row, inner)
        passed = kernel.used(inner)
        front = kernel.wrapped(f"static __device__ __forceinline__ void {helper}(", [*kernel.declared(passed), *places])
        head = f"template <int {names.kPack}>\n{front}"
        return self.launched(helper, passed, "\n".join([comment, kernel.definition(head, inner)]))

    def _copied(self, values: Sequence[str]) -> dict[str, str]:
        """Returns the outputs that are copies of another array, with the local of that array's pack."""
        packs, found = self.packs, dict[str, str]()
        for name, value in zip(self.outputs, values, strict=True):
            for source in packs.arrays:
                alike = packs.type_of(source) == packs.type_of(name)
                if alike and source != name and value == f"{packs.locals[source]}.at[{self.names.j}]":
                    found[name] = packs.locals[source]
        return found

    def _each(self, lines: Sequence[str]) -> list[str]:
        """Returns the loop over the elements of a pack; nothing if all packs are copied whole."""
        names = self.names
        head = f"for (int {names.j} = 0; {names.j} < {names.kPack}; ++{names.j})"
        return ["#pragma unroll", *block_of(head, lines)] if lines else []

    part = "pack"
    """Last word of the helper's name: the part of the result that one call computes."""

    def _of_helper(self, of_row: list[str], of_pack: list[str]) -> tuple[list[str], list[str], str]:
        """Returns the helper's lines, its parameters in addition to the kernel's own, and the comment above it."""
        places = [f"size_t {self.names.row}", f"int {self.names.column}"]
        return [*of_row, *of_pack], places, "// kPack neighbouring elements of one row of the result."

    def _load(self, name: str) -> tuple[list[str], str]:
        """Returns the declaration of a pointer to an array's row, if the address is long, and the load of a pack."""
        place = f"{self.names.row} * {self.lengths[self.last]} + {self.names.column}"
        if not self._is_whole(name):
            place = address(self.orders[name], self.lengths, self.at)
        load = self.packs.load(name, f"{name} + {place}")
        begin = place.removesuffix(f" + {self.names.column}")
        if (len(load) + 4 <= self.kernel.width and self.part == "pack") or begin == place:
            return [], load
        row = self.kernel.names.fresh(f"{name}_row")
        pointer = f"const {self.kernel.element(name)}* {row} = {name} + {begin};"
        return [pointer], self.packs.load(name, f"{row} + {self.names.column}")

    def guard(self) -> str:
        """Returns the condition that rows and addresses consist of whole packs."""
        whole = f"{self.lengths[self.last]} % {self.packs.wide} == 0"
        return " && ".join(filter(None, [whole, self.packs.aligned(self.packs.wide)]))

    def launched(self, helper: str, passed: Sequence[str], text: str) -> WrittenKernel:
        """Returns the kernel with a thread per pack; a block's packs may lie in several rows."""
        kernel, names, sides, columns = self.kernel, self.names, self.axes.sides, self.lengths[self.last]
        width, constant = self.packs.width, [self.packs.constant()]
        if kernel.kernel.launches:  # they divide by it
            self.packs.wide, declared = kernel.constant("PackSize", width, "neighbouring elements per access")
            text, constant = "\n".join([*declared, "", text]), []
        wide, guard = self.packs.wide, self.guard()
        start = f"(static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x) * {wide}"
        arguments = ", ".join(passed)
        count = kernel.count(sides)
        kernel.names.release(names.count)
        names.count = kernel.size_name(count, "count")
        body = [
            *constant,
            *self.opening,
            f"const size_t {names.count} = {count};",
            f"const size_t {names.base} = {start};",
            f"if ({names.base} >= {names.count}) return;",
            ALIGNED_ROWS,
            *block_of(
                f"if ({guard})",
                [f"{helper}<{wide}>({arguments}, {names.base} / {columns}, {names.base} % {columns});", "return;"],
            ),
            *block_of(
                f"for (size_t {names.j} = {names.base}; {names.j} < {names.count} && {names.j} < {names.base} + {wide}; ++{names.j})",
                [f"{helper}<1>({arguments}, {names.j} / {columns}, {names.j} % {columns});"],
            ),
        ]
        total = " * ".join(in_own_order(kernel.contract, sides))
        return WrittenKernel(
            "permutation-packs",
            f"Written from the reference: each thread handles a pack of {width} neighbouring elements along the last axis, in one access "
            "where it is aligned." + kernel.promise(self.known()),
            kernel.definition(kernel.head(), body),
            text,
            (f"cdiv({total}, block * {width})",),
            own_block(kernel.contract, BLOCK),
        )

    def _taken(self, of_element: list[str]) -> list[str]:
        """Returns the indices of gathered rows; those that differ between a pack's elements go to `of_element`."""
        lines: list[str] = []
        chosen = [self.plan.operands(key)[1] for key in walk(self.plan) if self.plan.node(key).op == "take"]
        for one in sorted(chosen, key=self.expressions.varies):
            varies = self.expressions.varies(one)
            (text,) = self.expressions.locals_for([one], of_element if varies else lines)
            self.at[f"@{one[0]}"] = text
        return lines

    def _is_whole(self, name: str) -> bool:
        """Returns True if an array is read in packs at the results' own positions."""
        return name in self.packs.arrays and self.orders[name] == tuple(self.whole)

    def _coordinates(self) -> list[str]:
        """Emits positions along the leading axes, from the row number."""
        orders = [order for name, order in self.orders.items() if not self._is_whole(name)]
        used = {axis for order in [*orders, *self.positions] for axis in order}
        several = sum(axis in used and self.at[axis] != self.names.row for axis in self.whole[:-1]) > 1
        # Divisions of 64 bits take several times as long.
        lines, left = [], f"static_cast<int>({self.names.row})" if several else self.names.row
        for axis in reversed(self.whole[:-1]):
            text = left if axis == self.whole[0] else f"{left} % {self.lengths[axis]}"
            if axis in used and self.at[axis] != self.names.row:
                lines.append(f"const int {self.at[axis]} = {text};")
            left = f"{left} / {self.lengths[axis]}"
        return lines


class RowPacks(ElementPacks):
    """Packs along the last axis, with a block per result row and no division per pack."""

    skips_first = True
    part = "row"

    def _of_helper(self, of_row: list[str], of_pack: list[str]) -> tuple[list[str], list[str], str]:
        """Overrides `ElementPacks._of_helper`: the loop over a row's packs."""
        column, pack = self.names.column, self.names.kPack
        head = f"for (int {column} = threadIdx.x * {pack}; {column} < {self.lengths[self.last]}; {column} += blockDim.x * {pack})"
        comment = "// One row of the result, kPack neighbouring elements at a time."
        return [*of_row, *block_of(head, of_pack)], [f"size_t {self.names.row}"], comment

    def launched(self, helper: str, passed: Sequence[str], text: str) -> WrittenKernel:
        """Returns the kernel with a block per row."""
        kernel, names, columns, width = self.kernel, self.names, self.lengths[self.last], self.packs.width
        arguments = f"{', '.join(passed)}, {names.row}"
        body = [
            *(line for line in self.opening if f" {columns} = " in line),
            f"const size_t {names.row} = blockIdx.x;",
            *kernel.row_guard(names.row, self.axes.sides[:-1], [*passed, *self.opening]),
            self.packs.constant(),
            ALIGNED_ROWS,
            f"if ({self.guard()}) {{",
            f"  {helper}<{self.packs.wide}>({arguments});",
            "} else {",
            f"  {helper}<1>({arguments});",
            "}",
        ]
        headline = int(evaluate(self.axes.sides[self.last], kernel.contract.sizes[0]))
        return WrittenKernel(
            "permutation-rows",
            f"Written from the reference: one block per row of the result, in packs of {width} elements, 16 bytes, where rows are "
            "aligned." + kernel.promise(self.known()),
            kernel.definition(kernel.head(), body),
            text,
            (" * ".join(self.axes.sides[:-1]),),
            row_block(headline, width),
        )
