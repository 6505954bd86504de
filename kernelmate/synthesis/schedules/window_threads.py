"""A thread for each position of the result of windows: the base of the schedules that read windows of arrays.

Traffic: each array is read and written once; neighbours come from L1. Arithmetic: that of the graph for each element.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence

from kernelmate.errors import ContractError
from kernelmate.records import Size
from kernelmate.source import evaluate, launch_shape
from kernelmate.synthesis.index_maps import existing
from kernelmate.synthesis.kept_text import own_position
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel
from kernelmate.synthesis.names import position_name
from kernelmate.synthesis.own_grids import fits_side
from kernelmate.synthesis.plan import Key, Refused
from kernelmate.synthesis.window_plan import StoreTarget, Windows, parsed, walked
from kernelmate.synthesis.window_text import WindowText

BLOCK = 256
"""Threads per block."""

WARP = 32

_DEFAULTS = ("col", "row", "plane")


class WindowThreads:
    """Text of a kernel with a thread per position, in blocks of one or two axes."""

    step, columns = 1, 1
    """Rows and columns of a thread."""

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
        self.native = self.native or self._is_native(fits_side)
        self.names = [kernel.names.fresh(self._wanted(axis)) for axis in range(min(self.rank, 3))]
        self.outer: list[str] = []

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        lines = self._positions()
        text = WindowText(self.plan, self.kernel, self._variables())
        values = text.values(lines)
        lines += self._stores(text, values, lines)
        lines = self._with_index(lines)
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

    def _with_index(self, lines: list[str]) -> list[str]:
        """Returns the statements with a local for the index of the result's element, if it is written more than once."""
        stored = re.search(r"\w+\[(.*static_cast<size_t>.*)\] = [^\[\]]+;$", lines[-1])
        if stored is None:
            return lines
        # Not as a part of a product, which would multiply the whole index.
        place = re.compile(rf"(?<![-*/%] ){re.escape(stored[1])}(?!\w| [*/%])")
        used = [at for at, line in enumerate(lines) if place.search(line)]
        if len(used) < 2 or lines[used[0]].startswith(" "):
            return lines
        name = self.kernel.names.fresh("i")
        lines = [place.sub(name, line) for line in lines]
        return [*lines[: used[0]], f"const size_t {name} = {stored[1]};", *lines[used[0] :]]

    def _is_own(self, key: Key, target: StoreTarget) -> bool:
        """Returns True if a leaf is the element that a result replaces."""
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

    def _is_native(self, fits: Callable[[int, int], bool] = operator.le) -> bool:
        """Returns True if the grid's second and third dimensions fit like the kernel's own, since they are limited to 65535."""
        if len(self.kernel.contract.grid) < min(self.rank, 3) or not self.shapes:
            return self.rank < 2
        for size, (_, high, deep) in self.shapes:
            sides = [int(evaluate(side, size)) for side in self.sides]
            if self.rank > 1 and not fits(-(-sides[1] // (self._height() * self.step)), high):
                return False
            if not fits(math.prod(sides[2:]), deep):
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
        """Returns the user's name of a position, or a generic name."""
        letter = "xyz"[axis]
        own = own_position(self.kernel.kernel.source, letter)
        if own and self.native and (own not in ("row", "col") or own == _DEFAULTS[axis]):
            return own
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
            kind, number = (
                ("long long", "static_cast<long long>(blockIdx.x)") if self._is_wide() else ("int", "blockIdx.x")
            )
            return [
                *lines,
                self._column_from(f"{number} * blockDim.x + threadIdx.x", kind),
                f"if ({self._column()} >= {lengths[0]}) return;",
            ]
        lines += self._native() if self.native else self._folded(lengths, width, height)
        if self.rank > 3:
            lines += self._outer()
        tests = [f"{self._column()} >= {lengths[0]}", *([f"{self._row()} >= {lengths[1]}"] if height > 1 else [])]
        return [*lines, f"if ({' || '.join(tests)}) return;"]

    def _is_wide(self) -> bool:
        """Returns True if a position needs 64 bits: an axis may have as many elements as an int counts."""
        return not any(
            call in str(one)
            for key in walked(self.plan)
            for one in key[1]
            for call in ("edge(", "reflect(", "symmetric(")
        )

    def _native(self) -> list[str]:
        lines = []
        for axis, name in enumerate(self.names):
            letter = "xyz"[axis]
            inside = axis < 2 and (axis == 0 or self._height() > 1)
            text = f"blockIdx.{letter}{f' * blockDim.{letter} + threadIdx.{letter}' if inside else ''}"
            declared = (self._column_from, self._row_from)[axis](text) if axis < 2 else f"const int {name} = {text};"
            lines.append(declared)
        return lines

    def _column(self) -> str:
        return self.names[0]

    def _column_from(self, number: str, kind: str = "int") -> str:
        """Returns the declaration of the column's local, from the thread's index."""
        return f"const {kind} {self._column()} = {number};"

    def _row(self) -> str:
        return self.names[1]

    def _row_from(self, number: str) -> str:
        """Returns the declaration of the row's local, from the thread's index."""
        return f"const int {self._row()} = {number};"

    def _folded(self, lengths: list[str], width: int, height: int) -> list[str]:
        """Returns positions computed from one block index: grid dimensions after the first are limited to 65535."""
        across = self.kernel.names.fresh("across")
        lines = [self._blocks_across(across, lengths[0])]
        lines.append(self._column_from(f"blockIdx.x % {across} * blockDim.x + threadIdx.x"))
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

    def _blocks_across(self, local: str, columns: str) -> str:
        return f"const int {local} = ({columns} + blockDim.x - 1) / blockDim.x;"

    def _blocks_down(self, local: str, rows: str) -> str:
        return f"const int {local} = ({rows} + blockDim.y - 1) / blockDim.y;"

    def _outer(self) -> list[str]:
        """Emits positions along the axes before the last two, from the plane index."""
        lines, left = [], self.names[2]
        sides = self.plan.domain[: self.rank - 2]
        self.outer = [self.kernel.names.position(position_name(one)) for one in sides]
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
        blocks = [f"cdiv({_inner(self.sides[0])}, {width * self.columns})"]
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


def with_locals(lines: Sequence[str]) -> list[str]:
    """Replaces repeated extents and row offsets by their declared names, in lines of one block."""
    found: list[str] = []
    lines = _with_planes(lines)
    known: list[tuple[re.Pattern[str], str]] = []
    for line in lines:
        for pattern, instead in known:
            line = pattern.sub(instead, line)
        found.append(line)
        length = re.fullmatch(r"const int (\w+) = ((?:\w+|\(\w+ \+ \w+\))(?: [*/] \w+)+);", line)
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


_PART = re.compile(r"const int (\w+) = (\w+) ([%/]) (\w+);")
"""A position along an axis, from a plane's index."""


def _with_planes(lines: Sequence[str]) -> list[str]:
    """Returns the lines with a plane's index in place of the sum that its quotient and its remainder give again."""
    parts = {(found[2], found[4], found[3]): found[1] for line in lines if (found := _PART.fullmatch(line))}
    lines = list(lines)
    for (plane, length, sign), inner in parts.items():
        outer = parts.get((plane, length, "/"))
        if sign == "/" or outer is None:
            continue
        again = f"(static_cast<size_t>({outer}) * {length} + {inner})"
        lines = [line.replace(again, f"static_cast<size_t>({plane})") for line in lines]
        for name in (outer, inner):
            if sum(len(re.findall(rf"\b{name}\b", line)) for line in lines) == 1:
                lines = [line for line in lines if not line.startswith(f"const int {name} = ")]
    return lines
