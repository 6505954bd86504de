"""Windows: stencils, small convolutions, filters, pooling, joined and shifted arrays. A thread for each position of the result.

Traffic: each array is read and written once; neighbours come from L1. Arithmetic: that of the graph for each element.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import partial

from kernelmate.errors import ContractError
from kernelmate.records import Size
from kernelmate.source import evaluate, launch_shape
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.index_maps import existing
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, fresh_names, those_written
from kernelmate.synthesis.names import position_name, words_of
from kernelmate.synthesis.plan import Key, Refused
from kernelmate.synthesis.rolled import rolled
from kernelmate.synthesis.schedules.pointwise import row_block
from kernelmate.synthesis.window_plan import (
    OutputShapes,
    StoreTarget,
    Windows,
    output_shapes,
    parsed,
    walked,
    window_plan,
)
from kernelmate.synthesis.window_registers import RowsText
from kernelmate.synthesis.window_text import WindowText

BLOCK = 256
"""Threads per block."""

WARP = 32

ENOUGH = 300_000
"""Threads that fill the largest GPU: 132 multiprocessors of 2048 (H100)."""

ROWS = 4
"""Neighbouring rows per thread: six column loads instead of twelve for windows of three rows."""

_DEFAULTS = ("col", "row", "plane")


def written(graph: Graph, kernel: KernelText, shapes: OutputShapes | None = None) -> Iterator[WrittenKernel]:
    """Yields the kernel's texts, the one expected to be fastest first.

    Args:
        graph: the traced reference.
        kernel: the kernel to write.
        shapes: shapes of the outputs in place of the contract's, each with as many elements; None for the contract's.

    Raises:
        Refused: the schedule does not apply.
    """
    contract = kernel.contract
    plan = window_plan(rolled(graph), contract.sizes, *(output_shapes(kernel) if shapes is None else shapes))
    count = math.prod(int(evaluate(side, contract.sizes[0])) for side in plan.domain)
    ways: list[type[_Threads]] = [_WindowRows, _Threads] if count >= ROWS * ENOUGH else [_Threads, _WindowRows]
    try:
        yield from those_written(partial(_text, plan, kernel, way) for way in ways)
    except Refused:
        yield _text(plan, kernel, _Grid)


def _text(plan: Windows, kernel: KernelText, way: type[_Threads]) -> WrittenKernel:
    return way(plan, kernel.again()).written()


class _Threads:
    """A thread for each position, in blocks of one or two axes."""

    step = 1

    def __init__(self, plan: Windows, kernel: KernelText) -> None:
        self.plan, self.kernel = plan, kernel
        self.rank = len(plan.domain)
        self.sides = list(reversed(plan.domain))  # the contiguous axis first, as in a grid
        self.shapes = self._shapes()
        self.block = self._block()
        self.native = self._is_native()
        if not self.native and self.rank > 1 and self._height() == 8:
            self.block = (16, 16)  # as high as the blocks of many kernels
            self.native = self._is_native()
            self.block = self.block if self.native else (WARP, 8)
        self.names = [kernel.names.fresh(self._wanted(axis)) for axis in range(min(self.rank, 3))]
        self.outer: list[str] = []

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        lines = self._positions()
        text = WindowText(self.plan, self.kernel, self._variables())
        values = text.values(lines)
        lines += self._stores(text, values, lines)
        return WrittenKernel(
            "windows",
            "Written from the reference: one thread per element of the result; what threads read in common comes from the L1 "
            "cache." + self.kernel.promise(self._read()),
            self.kernel.definition(self.kernel.head(), with_locals(lines)),
            "",
            self._grid(),
            self.block,
        )

    def _stores(self, text: WindowText, values: Sequence[str], lines: list[str]) -> list[str]:
        """Returns statements that store the values; locals go to `lines`."""
        plan, kernel = self.plan, self.kernel
        stores: list[str] = []
        read = {plan.name(key) for key in walked(plan) if plan.is_leaf(key)}
        several = len(plan.targets) > 1 and any(target.name in read for target in plan.targets)
        for target, value in zip(plan.targets, values, strict=True):
            stored = kernel.stored(target.name, value, plan.node(target.key).dtype)
            if several and not re.fullmatch(r"\w+", stored):  # what is changed may still be read
                own = next((known for key, known in text.known.items() if self._is_own(key, target)), target.name)
                held = kernel.names.fresh(f"new_{own}")
                lines.append(f"const {kernel.element(target.name)} {held} = {stored};")
                stored = held
            place = text.address(target.shape, [parsed(str(one)) for one in target.place])
            stores.append(f"{target.name}[{place}] = {stored};")
        return stores

    def _is_own(self, key: Key, target: StoreTarget) -> bool:
        """True if a leaf is the element that a result replaces."""
        places = [
            tuple(str(one) for one in index if one is not None and one != "0") for index in (key[1], target.place)
        ]
        return self.plan.is_leaf(key) and self.plan.name(key) == target.name and places[0] == places[1]

    def _read(self) -> list[str]:
        keys = [key for key in walked(self.plan) if self.plan.is_leaf(key)]
        taken = {self.plan.name(key) for key in keys if any("value(" in str(one) for one in key[1])}
        return [one for one in dict.fromkeys(self.plan.name(key) for key in keys) if one not in taken]

    def _shapes(self) -> list[tuple[Size, tuple[int, int, int]]]:
        """Returns the kernel's own grid at each size that has elements."""
        contract = self.kernel.contract
        try:
            return [(size, launch_shape(contract, size).grid) for size in contract.sizes if all(size.values())]
        except ContractError:
            return []

    def _is_native(self) -> bool:
        """Returns True if the grid's second and third dimensions are at most the kernel's own, since they are limited to 65535."""
        if len(self.kernel.contract.grid) < min(self.rank, 3) or not self.shapes:
            return self.rank < 2
        for size, (_, high, deep) in self.shapes:
            sides = [int(evaluate(side, size)) for side in self.sides]
            if self.rank > 1 and -(-sides[1] // (self._height() * self.step)) > high:
                return False
            if math.prod(sides[2:]) > deep:
                return False
        return True

    def _block(self) -> tuple[int, ...] | int:
        """Returns one dimension for independent rows, else 32 x 8 threads."""
        if self.rank < 2:
            return BLOCK
        columns = int(evaluate(self.sides[0], self.kernel.contract.sizes[0]))
        related = any(
            any(f"__{self.rank - 2}" == name for name, _ in at.terms) and at.constant
            for key in walked(self.plan)
            if self.plan.is_leaf(key)
            for at in (parsed(str(one)) for one in key[1])
        )
        apart = all(high == int(evaluate(self.sides[1], size)) for size, (_, high, _) in self.shapes)
        if not self._is_known(self.sides[1]) or (not related and apart and columns >= BLOCK // 2):
            return (BLOCK, 1)
        width = WARP
        while width > 1 and width >= 2 * columns:
            width //= 2
        return (width, BLOCK // width)

    def _is_known(self, side: str) -> bool:
        try:
            return bool(self.kernel.size(side))
        except Refused:
            return False

    def _wanted(self, axis: int) -> str:
        """Returns the user's own name of a position, or a plain one."""
        letter = "xyz"[axis]
        source = self.kernel.kernel.source
        found = re.search(
            rf"\b(\w+) = blockIdx\.{letter}(?: \* blockDim\.{letter} \+ threadIdx\.{letter})?[;,]", source
        )
        taken = found is not None and found[1] in ("row", "col") and found[1] != _DEFAULTS[axis]
        if found and not taken and self.native:
            return found[1]
        side = self.sides[axis]
        single = side[:-1] if side.isidentifier() and side.endswith("s") and len(side) > 3 else _DEFAULTS[axis]
        return "i" if self.rank == 1 else single

    def _variables(self) -> dict[str, str]:
        names = {f"__{self.rank - 1 - axis}": name for axis, name in enumerate(self.names[:2])}
        if self.rank <= 3:
            return names | {f"__{self.rank - 3}": name for name in self.names[2:]}
        return names | {f"__{axis}": name for axis, name in enumerate(self.outer)}

    def _positions(self) -> list[str]:
        """Returns statements that compute the position of a thread's result."""
        if not self.rank:
            return ["if (blockIdx.x != 0 || threadIdx.x != 0) return;"]
        width, height = self.block if isinstance(self.block, tuple) else (self.block, 1)
        lines: list[str] = []
        lengths: list[str] = []
        for side in self.sides[: 2 if height > 1 or (self.rank > 2 and not self.native) else 1]:
            text = self.kernel.size(side if side.isidentifier() else existing(side).bare())
            if not re.fullmatch(r"\w+", text):
                local = self.kernel.size_name(text, ("columns", "rows")[len(lengths)] if self.rank > 1 else "count")
                lines.append(f"const int {local} = {text};")
                text = local
            lengths.append(text)
        self.lengths = lengths
        if self.rank == 1:
            i = self.names[0]
            kind, number = (
                ("long long", "static_cast<long long>(blockIdx.x)") if self._is_wide() else ("int", "blockIdx.x")
            )
            return [
                *lines,
                f"const {kind} {i} = {number} * blockDim.x + threadIdx.x;",
                f"if ({i} >= {lengths[0]}) return;",
            ]
        lines += self._native() if self.native else self._folded(lengths, width, height)
        if self.rank > 3:
            lines += self._outer()
        tests = [f"{self.names[0]} >= {lengths[0]}", *([f"{self._row()} >= {lengths[1]}"] if height > 1 else [])]
        return [*lines, f"if ({' || '.join(tests)}) return;"]

    def _is_wide(self) -> bool:
        """True if a position needs 64 bits: one axis may have as many elements as an int counts."""
        return not any("edge(" in str(one) for key in walked(self.plan) for one in key[1])

    def _native(self) -> list[str]:
        lines = []
        for axis, name in enumerate(self.names):
            letter = "xyz"[axis]
            inside = axis < 2 and (axis == 0 or self._height() > 1)
            text = f"blockIdx.{letter}{f' * blockDim.{letter} + threadIdx.{letter}' if inside else ''}"
            lines.append(f"const int {name} = {text};" if axis != 1 else self._row_from(text))
        return lines

    def _row(self) -> str:
        return self.names[1]

    def _row_from(self, number: str) -> str:
        """Returns the declaration of the row's local, from the thread's index."""
        return f"const int {self._row()} = {number};"

    def _folded(self, lengths: list[str], width: int, height: int) -> list[str]:
        """Returns positions from one block number, since grid dimensions beyond the first are limited to 65535."""
        across = self.kernel.names.fresh("across")
        lines = [f"const int {across} = ({lengths[0]} + blockDim.x - 1) / blockDim.x;"]
        lines.append(f"const int {self.names[0]} = blockIdx.x % {across} * blockDim.x + threadIdx.x;")
        within = rest = f"blockIdx.x / {across}"
        if self.rank > 2:
            down = lengths[1]
            if height > 1:
                down = self.kernel.names.fresh("down")
                lines.append(self._blocks_down(down, lengths[1]))
            within = f"{rest} % {down}"
            lines.append(f"const int {self.names[2]} = {rest} / {down};")
        lines.append(self._row_from(f"{within}{' * blockDim.y + threadIdx.y' if height > 1 else ''}"))
        return lines

    def _blocks_down(self, local: str, rows: str) -> str:
        return f"const int {local} = ({rows} + blockDim.y - 1) / blockDim.y;"

    def _outer(self) -> list[str]:
        """Emits positions along the axes before the last two, from the plane number."""
        lines, left = [], self.names[2]
        sides = self.plan.domain[: self.rank - 2]
        self.outer = [self.kernel.names.fresh(position_name(one)) for one in sides]
        for axis in range(len(sides) - 1, -1, -1):
            length = self.kernel.size(sides[axis]) if axis else ""
            length = length if re.fullmatch(r"\w*", length) else f"({length})"
            lines.append(f"const int {self.outer[axis]} = {left}{f' % {length}' if axis else ''};")
            left = f"{left} / {length}"
        return lines

    def _height(self) -> int:
        return self.block[1] if isinstance(self.block, tuple) else 1

    def _grid(self) -> tuple[str, ...]:
        if not self.rank:
            return ("1",)
        width = self.block[0] if isinstance(self.block, tuple) else self.block
        blocks = [f"cdiv({_inner(self.sides[0])}, {width})"]
        if self.rank > 1:
            blocks.append(
                f"cdiv({_inner(self.sides[1])}, {self._height() * self.step})" if self._height() > 1 else self.sides[1]
            )
        if self.rank > 2:
            blocks.append(
                _inner(" * ".join(self.plan.domain[: self.rank - 2]))
                if self.rank == 3
                else " * ".join(self.plan.domain[: self.rank - 2])
            )
        return tuple(blocks) if self.native else (" * ".join(blocks),)


def _inner(side: str) -> str:
    return side[1:-1] if side.startswith("(") and side.endswith(")") else side


class _WindowRows(_Threads):
    """A thread for a few neighbouring rows, with shared values in registers."""

    step = ROWS

    def __init__(self, plan: Windows, kernel: KernelText) -> None:
        super().__init__(plan, kernel)
        if self.rank < 2 or self._height() == 1:
            raise Refused("it has no rows that share anything")
        self.local = fresh_names(kernel, "kRows", "first", "j")

    def _row(self) -> str:
        return str(self.local.first)

    def _row_from(self, number: str) -> str:
        return f"const int {self.local.first} = ({number}) * {self.local.kRows};"

    def _blocks_down(self, local: str, rows: str) -> str:
        taken = f"(blockDim.y * {self.local.kRows})"
        return f"const int {local} = ({rows} + {taken[1:-1]} - 1) / {taken};"

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        lines = self._positions()
        row = self.names[1]
        local, height = self.local, self.lengths[1]
        variables = (f"__{self.rank - 2}", f"__{self.rank - 1}")
        text = RowsText(self.plan, self.kernel, self._variables(), *variables, (local.first, local.j, local.kRows))
        body: list[str] = []
        values = text.values(body, ROWS)
        body += self._stores(text, values, body)
        loop = [
            "#pragma unroll",
            *block_of(
                f"for (int {local.j} = 0; {local.j} < {local.kRows}; ++{local.j})",
                [f"const int {row} = {local.first} + {local.j};", f"if ({row} >= {height}) break;", *body],
            ),
        ]
        constant = (
            f"constexpr int {local.kRows} = {ROWS};  // rows per thread, which share their neighbours in registers"
        )
        return WrittenKernel(
            "windows-rows",
            f"Written from the reference: a thread for {ROWS} neighbouring rows of a column, which reads what they share into registers "
            "once." + self.kernel.promise(self._read()),
            self.kernel.definition(self.kernel.head(), [constant, *with_locals([*lines, *text.before, *loop])]),
            "",
            self._grid(),
            self.block,
        )


class _Grid(_Threads):
    """The kernel's own grid, one block per result row: for sizes that only the grid determines."""

    def __init__(self, plan: Windows, kernel: KernelText) -> None:
        grid = kernel.contract.grid
        if len(plan.domain) < 2 or sorted(grid) != sorted(plan.domain[:-1]) or len(set(grid)) != len(grid):
            raise Refused("it needs sizes that the kernel does not get")
        for side, letter in zip(grid, "xyz", strict=False):
            kernel.sizes.setdefault(side, f"gridDim.{letter}")
        super().__init__(plan, kernel)

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, column, sides = self.kernel, self.names[0], self.plan.domain
        positions = {f"__{self.rank - 1}": column}
        lines: list[str] = []
        for side, letter in zip(kernel.contract.grid, "xyz", strict=False):
            axis = self.sides.index(side)
            name = self.names[axis] if axis < len(self.names) else kernel.names.fresh(position_name(side))
            lines.append(f"const int {name} = blockIdx.{letter};")
            positions[f"__{sides.index(side)}"] = name
        length = kernel.size(sides[-1])
        if not re.fullmatch(r"\w+", length):
            local = kernel.size_name(length, "columns")
            lines.append(f"const int {local} = {length};")
            length = local
        text = WindowText(self.plan, kernel, positions)
        body: list[str] = []
        values = text.values(body)
        body += self._stores(text, values, body)
        outside, body = _with_row_pointers(*hoisted(body, column), kernel)
        lines += outside
        loop = block_of(f"for (int {column} = threadIdx.x; {column} < {length}; {column} += blockDim.x)", body)
        given, columns = kernel.contract.block, int(evaluate(sides[-1], kernel.contract.sizes[0]))
        return WrittenKernel(
            "windows-grid",
            "Written from the reference: one block per row of the result; what threads read in common comes from the L1 "
            "cache." + kernel.promise(self._read()),
            kernel.definition(kernel.head(), with_locals([*lines, *loop])),
            "",
            kernel.contract.grid,
            # A block by a formula follows the row's length.
            given if len(given) == 1 and not given[0].isdigit() else row_block(columns, 1),
        )


def hoisted(body: Sequence[str], column: str) -> tuple[list[str], list[str]]:
    """Splits lines into pointers and positions that are the same for a whole row, and the others."""
    outside: list[str] = []
    inside: list[str] = []
    moving = {column}
    for line in body:
        declared = re.match(r"(?:const )?[\w ]+\*? (\w+) = ", line)
        kept = moving & set(re.findall(r"\w+", line))
        if declared and not kept and re.match(r"const (?:int|long long) |(?:const )?\w+\* ", line):
            outside.append(line)
            continue
        inside.append(line)
        moving |= {declared[1]} if declared else set()
    return outside, inside


def _with_row_pointers(outside: list[str], inside: list[str], kernel: KernelText) -> tuple[list[str], list[str]]:
    """Returns the two groups of lines with a pointer for each row of an input that does not change within the loop."""
    moving = {found[1] for line in inside if (found := re.match(r"(?:const )?[\w ]+\*? (\w+) = ", line))}
    place = re.compile(r"\b(\w+)\[(static_cast<size_t>\((\w+)\) \* (\w+|\([^()]*\))) \+ ")
    pointers: dict[tuple[str, str], str] = {}
    for line in inside:
        for array, row, *words in place.findall(line):
            argument = kernel.arguments.get(array)
            if argument is not None and argument.direction == "in" and not moving & words_of(" ".join(words)):
                pointers.setdefault((array, row), kernel.names.fresh(f"{array}_row"))
    declared = [f"const {kernel.element(array)}* {name} = {array} + {row};" for (array, row), name in pointers.items()]
    for (array, row), name in pointers.items():
        inside = [re.sub(rf"\b{array}\[{re.escape(row)} \+ ", f"{name}[", line) for line in inside]
    return [*outside, *declared], inside


def with_locals(lines: Sequence[str]) -> list[str]:
    """Replaces repeated extents and row offsets by their declared names, in lines of one block."""
    found: list[str] = []
    known: list[tuple[re.Pattern[str], str]] = []
    for line in lines:
        for pattern, instead in known:
            line = pattern.sub(instead, line)
        found.append(line)
        length = re.fullmatch(r"const int (\w+) = (\w+(?: [*/] \w+)+);", line)
        row = re.fullmatch(r"(?:const )?[\w ]+\* (\w+) = (\w+) \+ (.+);", line)
        if length is not None:
            text = re.escape(length[2])
            known.append(
                (
                    re.compile(
                        rf"\({text}\)|(?<=[(\[=<>+-] ){text}(?=[;)\]]| [<>+-])|(?<=[(\[]){text}(?=[;)\]]| [<>+-])"
                    ),
                    length[1],
                )
            )
        if row is not None and "?" not in row[3]:
            known.append((re.compile(rf"\b{row[2]}\[{re.escape(row[3])} \+ "), f"{row[1]}["))
    return found
