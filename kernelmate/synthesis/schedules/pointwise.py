"""Element-wise maps: a pack of adjacent elements per thread, in one access of 16 bytes where the addresses allow it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

from kernelmate.source import evaluate
from kernelmate.source.expressions import as_factor
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.identities import always_equal
from kernelmate.synthesis.kept_text import in_own_order, own_block, own_position
from kernelmate.synthesis.kernel_text import (
    ITEM_BYTES,
    WIDEST,
    KernelText,
    WrittenKernel,
    block_of,
    fresh_names,
    those_written,
)
from kernelmate.synthesis.names import words_of
from kernelmate.synthesis.packs import ALIGNED, ALIGNED_ROWS, Packs
from kernelmate.synthesis.plan import Key, Plan, Refused, walk

BLOCK = 256
"""Threads per block: enough for full occupancy on every GPU since sm_50, few enough for short tails."""

LONG_ROW = 2048
"""Row length from which a block per row is tried before packs across rows: two packs of floats per thread."""


def written(plan: Plan, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the schedule does not apply.
    """
    if not plan.split:
        flat, *others = [plan, *(replace(plan, split=split) for split in range(1, len(plan.domain)))]
        try:
            yield _text(flat, kernel, _Flat)
        except Refused as reason:
            # A kernel without a parameter for the number of rows can still have a block per row.
            found = next((one for one in others if _is_known(kernel, one.columns)), None)
            if found is None:
                raise reason from None
            yield _text(found, kernel, _ByRows)
        return
    ways: list[type[_Flat | _ByRows]] = [_Flat, _ByRows]
    if _headline(plan, kernel) >= LONG_ROW:
        ways.reverse()
    yield from those_written(partial(_text, plan, kernel, way) for way in ways)


def _is_known(kernel: KernelText, size: str) -> bool:
    try:
        return bool(kernel.size(size))
    except Refused:
        return False


def _text(plan: Plan, kernel: KernelText, way: type[_Flat | _ByRows]) -> WrittenKernel:
    return way(plan, kernel.again()).written()


def _headline(plan: Plan, kernel: KernelText) -> int:
    return int(evaluate(plan.columns, kernel.contract.sizes[0]))


def _without_copies(
    lines: Sequence[str], finals: Sequence[str], types: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Returns statements that assign results where they are computed, if nothing after that needs their earlier values.

    Args:
        lines: declarations of constants, in order.
        finals: assignments of results.
        types: the results, which are references, with their types.
    """
    lines, left = list(lines), list(finals)
    for final in finals:
        result, _, local = final.removesuffix(";").partition(" = ")
        declared = f"const {types[result]} {local} = "
        place = next((place for place, line in enumerate(lines) if line.startswith(declared)), None)
        uses = [*lines[(place or 0) + 1 :], *(one for one in left if one != final)]
        if place is None or any(re.search(rf"\b{result}\b", one) for one in uses) or "\n" in lines[place]:
            continue
        lines[place] = _compound(f"{result} = {lines[place].removeprefix(declared)}")
        lines[place + 1 :] = [re.sub(rf"\b{local}\b", result, one) for one in lines[place + 1 :]]
        left = [re.sub(rf"\b{local}\b", result, one) for one in left if one != final]
    return lines, left


def _compound(assignment: str) -> str:
    """Returns `x -= y;` for `x = x - y;` where `y` is not a sum."""
    found = re.fullmatch(r"(\w+) = \1 ([-+*]) ([^;]*);", assignment)
    if found is None:
        return assignment
    flat, before = found[3], ""
    while before != flat:  # calls and parentheses become factors
        before, flat = flat, re.sub(r"[\w:]*\([^()]*\)", "_", flat)
    factors = r"[\w.\[\]]+(?: [*/] [\w.\[\]]+)*" if found[2] != "*" else r"[\w.\[\]]+(?: \* [\w.\[\]]+)*"
    return f"{found[1]} {found[2]}= {found[3]};" if re.fullmatch(factors, flat) else assignment


class _Elements:
    """A function of one element, and the access to its operands.

    Attributes:
        inputs: arrays that are read, with their access.
        outputs: arrays that are written.
        packed: those that are accessed in packs.
        straddled: True if no row is whole packs, as with three channels: a value for each column is then read for each element.
    """

    def __init__(self, plan: Plan, kernel: KernelText, varying: frozenset[str], names: SimpleNamespace) -> None:
        self.names = names
        self.plan, self.kernel, self.varying = plan, kernel, varying
        self.outputs = [one.name for one in kernel.outputs()]
        self.inputs: dict[str, str] = {}
        self.positions: list[str] = []
        for key in walk(plan):
            node = plan.node(key)
            if node.op == "input":
                self._meet(str(node.data[0]), plan.access(key))
            elif node.op == "iota" and plan.access(key) not in ("once", *self.positions):
                self.positions.append(plan.access(key))
        for key, name in zip(plan.outputs, self.outputs, strict=True):
            if name in self.inputs and self.inputs[name] != "flat":
                raise Refused(f"{name} is read where another thread may have written it")
            if len([one for one in plan.node(key).shape if one != "1"]) != len(plan.domain):
                raise Refused("its outputs have different shapes")
        self.flat = [one.name for one in kernel.contract.args if self._is_flat(one.name)]
        self.columns = [name for name, access in self.inputs.items() if access == "column"]
        width = WIDEST // max((ITEM_BYTES[kernel.arguments[one].dtype] for one in self.flat), default=WIDEST)
        self.straddled = plan.split > 0 and plan.columns.isdigit() and int(plan.columns) % width != 0
        packed = self.flat if self.straddled else [*self.flat, *self.columns]
        self.packs = Packs(kernel, packed, kernel.names)
        self.locals = {name: kernel.names.element(name) for name in dict.fromkeys([*self.inputs, *self.outputs])}
        self.expressions = Expressions(plan, kernel, self._leaf, varying)

    def _is_flat(self, name: str) -> bool:
        return self.inputs.get(name) == "flat" or name in self.outputs

    def _meet(self, name: str, access: str) -> None:
        if self.inputs.setdefault(name, access) != access:
            raise Refused(f"it reads {name} along different axes")

    def _leaf(self, key: Key) -> str:
        node = self.plan.node(key)
        if node.op == "iota":
            return self._place(self.plan.access(key))
        name = str(node.data[0])
        if node.op == "scalar":
            return self.kernel.loaded(name, name)
        access = self.inputs[name]
        if access == "once":
            return self.kernel.loaded(name, f"{name}[0]")
        if access not in self.varying:
            return self.kernel.loaded(name, f"{name}[{self.names.row}]")
        return self.kernel.loaded(name, self.locals[name])

    def function(self, name: str) -> list[str]:
        """Returns the lambda for one element: operands by value, several results by reference."""
        lines: list[str] = []
        texts = self.expressions.locals_for(self.plan.outputs, lines)
        kinds = [self.plan.node(key).dtype for key in self.plan.outputs]
        several = len(texts) > 1 and any(one in self.inputs for one in self.outputs)
        finals: list[str] = []
        for target, text, kind in zip(self.outputs, texts, kinds, strict=True):
            value = self.kernel.stored(target, text, kind)
            if several and not re.fullmatch(
                r"\w+", value
            ):  # an array that is changed may still be read for the next output
                held = self.kernel.names.fresh(f"new_{target}")
                lines.append(f"const {self.kernel.element(target)} {held} = {value};")
                value = held
            finals.append(f"return {value};" if self.single else f"{self.locals[target]} = {value};")
        if several:
            kinds_of = {self.locals[one]: self.kernel.element(one) for one in self.outputs}
            lines, finals = _without_copies(lines, finals, kinds_of)
        # Values from outside: parameters, and what is computed once for all elements.
        outside = {*self.kernel.parameters, *re.findall(r"(\w+) =", " ".join(self.expressions.outer)), self.names.row}
        captured = "=" if outside & words_of(" ".join([*lines, *finals])) else ""
        head = f"const auto {name} = [{captured}]({', '.join(self._declared())})"
        return [*block_of(head, [*lines, *finals])[:-1], "};"]

    def _place(self, access: str) -> str:
        """Returns the name of an element's position along the axes of an access."""
        return str({"flat": self.names.position, "row": self.names.row, "column": self.names.column}[access])

    @property
    def single(self) -> bool:
        """Returns True for a single result, which the function returns; several are written by reference."""
        return len(self.outputs) == 1

    def _read(self) -> list[str]:
        found = [one for one in self.kernel.parameters if self.inputs.get(one) in self.varying]
        return [one for one in found if self.single or one not in self.outputs]

    def _declared(self) -> list[str]:
        kernel = self.kernel
        places = [f"long long {self._place(one)}" for one in self.positions if one in self.varying]
        written = [] if self.single else self.outputs
        given = [
            f"{kernel.element(one)}{'&' * (one in written)} {self.locals[one]}"
            for one in self._in_order(self._read(), written)
        ]
        return [*given, *places]

    def _in_order(self, *arrays: Sequence[str]) -> list[str]:
        """Returns arrays in the order of the kernel's parameters."""
        return [one for one in self.kernel.parameters if any(one in some for some in arrays)]

    def call(self, name: str, texts: dict[str, str]) -> str:
        """Returns a call of the lambda, with the text of each array's element and position."""
        places = [texts[f"@{one}"] for one in self.positions if one in self.varying]
        values = [texts[one] for one in self._in_order(self._read(), [] if self.single else self.outputs)]
        called = f"{name}({', '.join([*values, *places])});"
        return f"{texts[self.outputs[0]]} = {called}" if self.single else called


class _Flat:
    """Packs over all elements, regardless of rows."""

    varying = frozenset({"flat", "row", "column"})

    def __init__(self, plan: Plan, kernel: KernelText) -> None:
        self.plan, self.kernel = plan, kernel
        self.names = fresh_names(
            kernel, "position", "row", "column", "count", "base", "i", "j", "kPack", "aligned", element="compute"
        )
        self.columns = kernel.size(plan.columns) if plan.split else "1"
        self.elements = _Elements(plan, kernel, self.varying, self.names)
        self.constant, self.above = self._constants()

    def _constants(self) -> tuple[list[str], list[str]]:
        """Returns the declarations of the pack size: in the kernel, and above it if launches divide by it."""
        width, comment = self.elements.packs.width, "elements per thread"
        if width > 1 and self.kernel.kernel.launches:
            self.kernel.names.release(self.names.kPack)
            self.names.kPack, declared = self.kernel.constant("Pack", width, comment)
            return [], declared
        return [f"constexpr int {self.names.kPack} = {width};  // {comment}"], []

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, packs, plan = self.kernel, self.elements.packs, self.plan
        function = self.elements.function(self.names.element)
        wide = packs.width > 1
        body = self._sizes()
        body += packs.structs(self.names.kPack) if wide else []
        body += [*self.elements.expressions.outer, *function]
        body += self._packed() if wide else self._single()
        total = " * ".join(in_own_order(kernel.contract, plan.domain)) or "1"
        return WrittenKernel(
            "pointwise",
            _why(packs, "all rows as one array" if plan.split else "") + kernel.promise(self.elements.inputs),
            kernel.definition(kernel.head(), body),
            "\n".join(self.above),
            (f"cdiv({total}, block * {packs.width})" if wide else f"cdiv({total}, block)",),
            own_block(kernel.contract, BLOCK),
        )

    def _sizes(self) -> list[str]:
        width, names = self.elements.packs.width, self.names
        lines = []
        if width > 1:
            lines += self.constant
        count = self.kernel.count(self.plan.domain)
        if count.isidentifier():
            names.count = count
        else:
            self.kernel.names.release(names.count)
            names.count = self.kernel.size_name(count, "count")
            lines.append(f"const size_t {names.count} = {count};")
        start = "static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x"
        first = f"({start}) * {names.kPack}" if width > 1 else start
        lines.append(f"const size_t {names.base} = {first};")
        if width == 1 or self.plan.split:  # else the tail's loop has no turn
            lines.append(f"if ({names.base} >= {names.count}) return;")
        return lines

    def _texts(self, at: str) -> dict[str, str]:
        """Returns each array's element and position, for an element's index."""
        columns = as_factor(self.columns)
        texts = {name: f"{name}[{at}]" for name in self.elements.flat}
        for name, access in self.elements.inputs.items():
            if access in ("row", "column"):
                texts[name] = f"{name}[{at} {'/' if access == 'row' else '%'} {columns}]"
        return {**texts, "@flat": at, "@row": f"{at} / {columns}", "@column": f"{at} % {columns}"}

    def _single(self) -> list[str]:
        return [self.elements.call(self.names.element, self._texts(self.names.base))]

    def _packed(self) -> list[str]:
        names, elements, packs = self.names, self.elements, self.elements.packs
        first, j, kpack = names.base, names.j, names.kPack
        texts = {name: f"{packs.locals[name]}.at[{j}]" for name in packs.arrays}
        lines: list[str] = []
        columns = as_factor(self.columns)
        # Rows of any length if no pack is read along a row: only packs that straddle two rows are handled by element.
        straddled = elements.straddled
        split = self.plan.split > 0 and not straddled
        anywhere = split and all(name in elements.flat for name in packs.arrays)
        places: list[str] = []
        if straddled:
            texts = {**self._texts(f"({first} + {j})"), **texts}
        if split:
            met = [*elements.inputs.values(), *elements.positions]
            if "row" in met:
                places.append(f"const size_t {names.row} = {first} / {columns};")
            if "column" in met or anywhere:
                places.append(f"const size_t {names.column} = {first} % {columns};")
        lines += [] if anywhere else places
        for name, access in elements.inputs.items():
            if access == "row" and split:
                texts[name] = f"{name}[{names.row}]"
        if not straddled:
            texts |= {"@flat": f"{first} + {j}", "@row": names.row, "@column": f"{names.column} + {j}"}
        lines += _pack_lines(elements, names.element, texts, first, names.column, j, kpack)
        aligned = packs.aligned()
        guard = [names.aligned if aligned else "", f"{first} + {kpack} <= {names.count}"]
        if split:
            guard.append(f"{names.column} + {kpack} <= {columns}" if anywhere else f"{columns} % {kpack} == 0")
        i = names.i
        tail = block_of(
            f"for (size_t {i} = {first}; {i} < {names.count} && {i} < {first} + {kpack}; ++{i})",
            [elements.call(names.element, self._texts(i))],
        )
        if anywhere:
            guard = [one for one in guard if one != f"{first} + {kpack} <= {names.count}"]  # rows are whole
        return [
            *(places if anywhere else []),
            ALIGNED,
            *([f"const bool {names.aligned} = {aligned};"] if aligned else []),
            *block_of(f"if ({' && '.join(filter(None, guard))})", [*lines, "return;"]),
            *tail,
        ]


class _ByRows:
    """A block per row, or a row of blocks, with packs along it: no division, and row-constant values are read once."""

    varying = frozenset({"flat", "column"})

    def __init__(self, plan: Plan, kernel: KernelText) -> None:
        self.plan, self.kernel = plan, kernel
        self.down = _rows_per_block(plan, kernel)
        self.names = fresh_names(
            kernel, "position", "column", "base", "i", "j", "kPack", "columns", "first", "stride",
            element="compute", row=(self.down and own_position(kernel.kernel.source, "y")) or "row",
        )  # fmt: skip
        self.elements = _Elements(plan, kernel, self.varying, self.names)
        if self.elements.straddled:
            raise Refused("its rows are shorter than packs, or no whole packs")

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, packs, plan = self.kernel, self.elements.packs, self.plan
        length = kernel.size(plan.columns)
        if packs.width == 1:
            raise Refused("its elements fill 16 bytes each")
        function = self.elements.function(self.names.element)
        kpack, row = self.names.kPack, self.names.row
        body = [f"constexpr int {kpack} = {packs.width};  // elements per thread and step"]
        body += packs.structs(kpack)
        body += self._position()
        if re.fullmatch(r"\w+", length):
            self.names.columns = length
        else:
            body.append(f"const int {self.names.columns} = {length};")
        inner = [*self.elements.expressions.outer, *function, *self._loop()]
        guard = [f"if ({row} >= {kernel.size(plan.row_count)}) return;"] if self.down > 1 else []
        body += [*(guard or kernel.row_guard(row, plan.domain[: plan.split], [*body, *inner])), *inner]
        block = row_block(_headline(plan, kernel), packs.width)
        grid: tuple[str, ...] = (plan.row_count,)
        if self.down:
            block = min(block, int(kernel.contract.block[0]))
            grid = (f"cdiv({plan.columns}, {block * packs.width if self.down > 1 else f'block * {packs.width}'})", kernel.contract.grid[1])  # fmt: skip
        spread = "rows along the second side of the grid" if self.down else "one block per row"
        return WrittenKernel(
            "pointwise-rows",
            _why(packs, f"{spread}, so that no index needs a division") + kernel.promise(self.elements.inputs),
            kernel.definition(kernel.head(), body),
            "",
            grid,
            (block, self.down) if self.down > 1 else block,
        )

    def _position(self) -> list[str]:
        """Returns the declarations of the row, and of the thread's place among those of the row if it has several blocks."""
        names = self.names
        if not self.down:
            return [f"const size_t {names.row} = blockIdx.x;"]
        row = "blockIdx.y * blockDim.y + threadIdx.y" if self.down > 1 else "blockIdx.y"
        first = f"const int {names.first} = blockIdx.x * blockDim.x + threadIdx.x;"
        return [f"const size_t {names.row} = {row};", first, f"const int {names.stride} = gridDim.x * blockDim.x;"]

    def _loop(self) -> list[str]:
        elements, packs, columns = self.elements, self.elements.packs, self.names.columns
        j, kpack, column, first = self.names.j, self.names.kPack, self.names.column, self.names.base
        index = self.names.i
        single = {name: f"{name}[{index}]" for name in elements.flat}
        single |= {name: f"{name}[{column}]" for name in elements.columns}
        single |= {"@column": column, "@flat": index}
        texts = {name: f"{packs.locals[name]}.at[{j}]" for name in packs.arrays}
        texts |= {"@column": f"{column} + {j}", "@flat": f"{first} + {j}"}
        lines = _pack_lines(elements, self.names.element, texts, first, column, j, kpack)
        guard = " && ".join(filter(None, [f"{columns} % {kpack} == 0", packs.aligned()]))

        start, stride = (self.names.first, self.names.stride) if self.down else ("threadIdx.x", "blockDim.x")

        def over(step: str, body: list[str], place: str) -> list[str]:
            head = f"for (int {column} = {start}{step}; {column} < {columns}; {column} += {stride}{step})"
            return block_of(head, [f"const size_t {place} = {self.names.row} * {columns} + {column};", *body])

        return [
            ALIGNED_ROWS,
            *block_of(f"if ({guard})", over(f" * {kpack}", lines, first))[:-1],
            *block_of("} else", over("", [elements.call(self.names.element, single)], index)),
        ]


def _rows_per_block(plan: Plan, kernel: KernelText) -> int:
    """Returns the rows of a block if the baseline has its rows along the second side of the grid, which is kept; else 0."""
    contract, source = kernel.contract, kernel.kernel.source
    block = contract.block
    named = own_position(source, "y") or (len(block) == 1 and "blockIdx.y" in source)
    if len(contract.grid) != 2 or len(block) > 2 or not named or not all(side.isdigit() for side in block):
        return 0
    down = int(block[1]) if len(block) > 1 else 1
    side = re.sub(r"\bblock_y\b", str(down), contract.grid[1])
    covered = f"cdiv({plan.row_count}, {down})" if down > 1 else plan.row_count
    if not _is_known(kernel, plan.row_count) and down > 1:
        return 0
    return down if always_equal(contract, side, covered) else 0


def _pack_lines(elements: _Elements, function: str, texts: dict[str, str], first: str, column: str, j: str, kpack: str) -> list[str]:  # fmt: skip
    """Returns loads, the elements of a pack, and stores."""
    packs, lines = elements.packs, []
    for name in [one for one in packs.arrays if one in elements.inputs]:
        load = packs.load(name, f"{name} + {first if name in elements.flat else column}")
        lines.append(load.removeprefix("const ") if name in elements.outputs else load)
    stored = [one for one in packs.arrays if one not in elements.inputs]
    lines += [f"{packs.type_of(name)} {packs.locals[name]};" for name in stored]
    lines.append("#pragma unroll")
    lines += block_of(f"for (int {j} = 0; {j} < {kpack}; ++{j})", [elements.call(function, texts)])
    for name in elements.outputs:
        lines.append(f"*reinterpret_cast<{packs.type_of(name)}*>({name} + {first}) = {packs.locals[name]};")
    return lines


def row_block(columns: int, width: int) -> int:
    """Returns the number of threads for a row: one per pack, in whole warps, at most 256."""
    block = 32
    while block < BLOCK and block * width < columns:
        block *= 2
    return block


def _why(packs: Packs, more: str) -> str:
    one = f"each thread handles {packs.width} neighbouring elements in accesses of {packs.bytes_at_once()} bytes"
    return f"Written from the reference: {one if packs.width > 1 else 'one element per thread'}{', ' + more if more else ''}."
