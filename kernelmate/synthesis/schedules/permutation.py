"""Element-wise operations on arrays with another order of axes: through a shared tile, or in packs along the last axis.

Traffic: each array is read and written once, in whole sectors. Arithmetic: that of the graph for each element.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from kernelmate.errors import ContractError
from kernelmate.source import evaluate, launch_shape
from kernelmate.synthesis.axes import Axes, Order, address, order_of
from kernelmate.synthesis.expressions import Expressions, Leaf
from kernelmate.synthesis.kernel_text import ITEM_BYTES, KernelText, WrittenKernel, block_of, fresh_names, those_written
from kernelmate.synthesis.names import position_name, singular
from kernelmate.synthesis.packs import ALIGNED_ROWS, Packs
from kernelmate.synthesis.plan import Key, Plan, Refused, walk
from kernelmate.synthesis.schedules.pointwise import LONG_ROW, row_block

TILE, ROWS = 32, 8
"""Side of a tile, and the rows that a block of 256 threads takes at a time."""

BLOCK = TILE * ROWS

ENOUGH_BLOCKS = 1056
"""Eight blocks for each of 132 multiprocessors; with fewer, smaller tiles are used."""

MOST_HELD = 34000
"""Maximum bytes of shared memory per block: six such blocks fit on a multiprocessor."""


def written(plan: Plan, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the schedule does not apply.
    """
    columns = int(evaluate(plan.domain[-1], kernel.contract.sizes[0])) if plan.domain else 1
    packs: list[type[_Packs]] = [_RowPacks, _Packs] if columns >= LONG_ROW else [_Packs, _RowPacks]
    ways: list[type[_PermutationTiles | _Packs]] = [_WideTiles, _PermutationTiles, *packs]
    yield from those_written(partial(_text, plan, kernel, way) for way in ways)


def _text(plan: Plan, kernel: KernelText, way: type[_PermutationTiles | _Packs]) -> WrittenKernel:
    return way(plan, kernel.again()).written()


class _Free:
    """A map over merged axes, with the index of each array.

    Attributes:
        orders: axes of each array that is read.
        positions: axes of each position.
        whole: axes of the results.
        skips_first: whether the length of the first axis is not needed, since the grid has it.
    """

    skips_first = False

    def __init__(self, plan: Plan, kernel: KernelText) -> None:
        self.plan, self.kernel = plan, kernel
        self.outputs = [one.name for one in kernel.outputs()]
        raw: dict[str, Order] = {}
        every = tuple(range(len(plan.domain)))
        for key in walk(plan):
            node = plan.node(key)
            if node.op == "input":
                name = str(node.data[0])
                if raw.setdefault(name, order_of(key[1])) != order_of(key[1]):
                    raise Refused(f"it reads {name} along different axes")
                if name in self.outputs and raw[name] != every:
                    raise Refused(f"{name} is read where another thread may have written it")
        positions = [order_of(key[1]) for key in walk(plan) if plan.node(key).op == "iota"]
        self.axes = Axes.merged(plan.domain, [every, *raw.values(), *positions])
        self.positions = [self.axes.order(order) for order in positions]
        self.orders = {name: self.axes.order(order) for name, order in raw.items()}
        self.whole = tuple(range(len(self.axes.sides)))
        self.opening: list[str] = []
        skipped = 0 if self.skips_first else None
        if self.skips_first and any(0 in order[1:] for order in self.orders.values()):
            raise Refused("it needs the number of rows for addresses")
        self.lengths = self.axes.lengths(kernel, {}, self.opening, skipped)
        self.expressions = Expressions(plan, kernel, self.leaf, frozenset({"flat"}))

    def leaf(self, key: Key) -> str:
        """Returns the text of an array's element, a scalar or a position."""
        node = self.plan.node(key)
        if node.op == "scalar":
            return self.kernel.loaded(str(node.data[0]), str(node.data[0]))
        if node.op == "iota":
            order = self.axes.order(order_of(key[1]))
            return self.position(order[0]) if order else "0"
        return self.kernel.loaded(str(node.data[0]), self.element(str(node.data[0])))

    def known(self) -> list[str]:
        """Returns the arrays that are read completely; for gathered rows, the traffic is unknown."""
        return [name for name, order in self.orders.items() if not any(isinstance(axis, str) for axis in order)]

    def called(self, axis: int) -> str:
        """Returns the name of a position along an axis: the singular of its length's name, or its first letter."""
        side = self.axes.sides[axis]
        short = position_name(side)
        return singular(side, side[0] if side.isalpha() and self.kernel.names.is_free(side[0]) else short)

    def position(self, axis: int | str) -> str:
        """Returns the text of the position along an axis."""
        raise NotImplementedError

    def element(self, name: str) -> str:
        """Returns the text of an element of an array that is read."""
        raise NotImplementedError

    def values(self, lines: list[str]) -> list[str]:
        """Returns the values stored in each output; locals go to `lines`."""
        texts = self.expressions.locals_for(self.plan.outputs, lines)
        found = []
        for name, key, text in zip(self.outputs, self.plan.outputs, texts, strict=True):
            value = self.kernel.stored(name, text, self.plan.node(key).dtype)
            if len(self.outputs) > 1:  # an array that is changed may still be read for the next output
                held = self.kernel.names.fresh(f"new_{name}")
                lines.append(f"const {self.kernel.element(name)} {held} = {value};")
                value = held
            found.append(value)
        return found


class _PermutationTiles(_Free):
    """Tiles of 32 x 32 elements: read along the source's last axis, written along the target's."""

    side = TILE

    def __init__(self, plan: Plan, kernel: KernelText) -> None:
        super().__init__(plan, kernel)
        last = self.whole[-1] if self.whole else -1
        turned = {order for order in self.orders.values() if last in order and order[-1] != last}
        if len(turned) != 1:
            raise Refused("its arrays are read in several orders" if turned else "no array is read in another order")
        self.turned = turned.pop()
        self.source, self.target = int(self.turned[-1]), last
        names = fresh_names(
            kernel,
            "batch",
            source="col",
            target="row",
            lane="tile_x",
            j="tile_y",
            k="i",
            across="tiles_across",
            down="tiles_down",
        )
        self.names = names
        names.kTile, tile = kernel.local_constant("kTile", self.side, "tile", "elements along a side of a tile")
        names.kRows, rows = kernel.local_constant("kRows", BLOCK // self.side, "rows", "rows of a tile at a time")
        self.constants = [*tile, *rows]
        self.tiles = {
            name: kernel.names.fresh("tile" if len(self.tiled()) == 1 else f"{name}_tile") for name in self.tiled()
        }
        if any(isinstance(axis, str) for order in self.orders.values() for axis in order):
            raise Refused("it selects rows of an array by index")
        self.at: dict[int | str, str] = {axis: kernel.names.fresh(self.called(axis)) for axis in self.whole[:-1]}
        self.at[self.source], self.at[self.target] = names.source, names.target

    def tiled(self) -> list[str]:
        """Returns the arrays that go through a tile."""
        return [name for name, order in self.orders.items() if order == self.turned]

    def position(self, axis: int | str) -> str:
        """As `_Free.position`."""
        return self.at[axis]

    def element(self, name: str) -> str:
        """As `_Free.element`."""
        if name in self.tiles:
            return f"{self.tiles[name]}[{self.names.lane}][{self.names.j}]"
        return f"{name}[{address(self.orders[name], self.lengths, self.at)}]"

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, sides = self.kernel, self.names, self.axes.sides
        blocks = [f"cdiv({sides[axis]}, {self.side})" for axis in (self.source, self.target)]
        native = self._is_native()
        self.thread = (
            ("threadIdx.x", "threadIdx.y")
            if native
            else (f"threadIdx.x % {names.kTile}", f"threadIdx.x / {names.kTile}")
        )
        blocks += [sides[axis] for axis in self.whole if axis not in (self.source, self.target)]
        loads = [
            f"{tile}[{names.j}][{names.lane}] = {name}[{address(self.turned, self.lengths, self.at)}];"
            for name, tile in self.tiles.items()
        ]
        results: list[str] = []
        values = self.values(results)
        place = address(self.whole, self.lengths, self.at)
        results += [f"{name}[{place}] = {value};" for name, value in zip(self.outputs, values, strict=True)]
        body = [
            *self.constants,
            "// One column of padding spreads the elements of a column over all banks.",
            *(
                f"__shared__ {kernel.element(name)} {tile}[{names.kTile}][{names.kTile} + 1];"
                for name, tile in self.tiles.items()
            ),
            *(self._own_block() if native else self._block()),
            f"const int {names.lane} = {self.thread[0]};",
            *self.expressions.outer,
            *self._pass(names.lane, names.j, loads),
            "__syncthreads();",
            *self._pass(names.j, names.lane, results),
        ]
        return WrittenKernel(
            "permutation-tile" if self.side == TILE else f"permutation-tile-{self.side}",
            f"Written from the reference: tiles of {self.side} x {self.side} elements go through shared memory, so that global loads and "
            "stores are both coalesced." + kernel.promise(self.known()),
            kernel.definition(kernel.head(f"__launch_bounds__({self._threads()}) "), body),
            "",
            tuple(blocks) if native else (" * ".join(blocks),),
            (self.side, BLOCK // self.side) if native else BLOCK,
        )

    def _threads(self) -> str:
        """Returns the number of threads per block, by the host's constants if it has them."""
        return str(BLOCK) if self.constants else f"{self.names.kTile} * {self.names.kRows}"

    def _is_native(self) -> bool:
        """Returns True if the baseline has a two-dimensional grid, at least as high as the generated one at every size.

        The second dimension is limited to 65535.
        """
        contract = self.kernel.contract
        if len(contract.grid) != 2 or len(contract.block) != 2 or len(self.whole) != 2:
            return False
        try:
            heights = [(size, launch_shape(contract, size).grid[1]) for size in contract.sizes if all(size.values())]
        except ContractError:
            return False
        rows = self.axes.sides[self.target]
        return all(-(-int(evaluate(rows, size)) // self.side) <= height for size, height in heights)

    def _own_block(self) -> list[str]:
        """Emits the block's tile from its two block indices."""
        self.first = self.kernel.names.fresh("first_col"), self.kernel.names.fresh("first_row")
        tile = self.names.kTile
        return [
            *self.opening,
            *(
                f"const int {first} = blockIdx.{letter} * {tile};"
                for first, letter in zip(self.first, "xy", strict=True)
            ),
        ]

    def _block(self) -> list[str]:
        """Emits the block's tile from its block index."""
        names, lengths = self.names, self.lengths
        rest = [axis for axis in reversed(self.whole) if axis not in (self.source, self.target)]
        lines = [
            *self.opening,
            f"const int {names.across} = ({lengths[self.source]} + {names.kTile} - 1) / {names.kTile};",
        ]
        tile = f"blockIdx.x / {names.across}"
        if rest:
            lines.append(f"const int {names.down} = ({lengths[self.target]} + {names.kTile} - 1) / {names.kTile};")
            left = f"blockIdx.x / {names.across} / {names.down}"
            for number, axis in enumerate(rest):
                final = number + 1 == len(rest)
                lines.append(f"const int {self.at[axis]} = {left}{'' if final else f' % {lengths[axis]}'};")
                left = f"{left} / {lengths[axis]}"
            tile += f" % {names.down}"
        self.first = self.kernel.names.fresh("first_col"), self.kernel.names.fresh("first_row")
        return [
            *lines,
            f"const int {self.first[0]} = blockIdx.x % {names.across} * {names.kTile};",
            f"const int {self.first[1]} = {tile} * {names.kTile};",
        ]

    def _pass(self, source: str, target: str, lines: Sequence[str]) -> list[str]:
        """Returns a loop over a thread's rows of a tile."""
        names, lengths = self.names, self.lengths
        inside = f"{names.source} < {lengths[self.source]} && {names.target} < {lengths[self.target]}"
        return [
            "#pragma unroll",
            *block_of(
                f"for (int {names.k} = 0; {names.k} < {names.kTile}; {names.k} += {names.kRows})",
                [
                    f"const int {names.j} = {self.thread[1]} + {names.k};",
                    f"const int {names.source} = {self.first[0]} + {source}, {names.target} = {self.first[1]} + {target};",
                    *block_of(f"if ({inside})", lines),
                ],
            ),
        ]


class _WideTiles(_PermutationTiles):
    """Tiles of 64 x 64 elements, with sixteen loads in flight per thread."""

    side = 2 * TILE

    def __init__(self, plan: Plan, kernel: KernelText) -> None:
        super().__init__(plan, kernel)
        size = kernel.contract.sizes[0]
        sides = [int(evaluate(self.axes.sides[axis], size)) for axis in (self.source, self.target)]
        rest = [axis for axis in self.whole if axis not in (self.source, self.target)]
        blocks = math.prod(-(-side // self.side) for side in sides)
        blocks *= math.prod(int(evaluate(self.axes.sides[axis], size)) for axis in rest)
        held = sum(ITEM_BYTES[kernel.arguments[name].dtype] for name in self.tiles) * self.side * (self.side + 1)
        if min(sides) < self.side or blocks < ENOUGH_BLOCKS or held > MOST_HELD:
            raise Refused("its tiles would be too large for what is permuted")


class _PackExpressions(Expressions):
    """Expressions of a pack's elements; subexpressions that all elements share are computed before them."""

    def __init__(self, plan: Plan, kernel: KernelText, leaf: Leaf, varying: frozenset[str], packs: _Packs) -> None:
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


class _Packs(_Free):
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
        """As `_Free.position`."""
        return f"{self.names.column} + {self.names.j}" if axis == self.last else self.at[axis]

    def element(self, name: str) -> str:
        """As `_Free.element`."""
        if name in self.packs.arrays:
            return f"{self.packs.locals[name]}.at[{self.names.j}]"
        return f"{name}[{address(self.orders[name], self.lengths, self.at)}]"

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, packs = self.kernel, self.names, self.packs
        columns = self.lengths[self.last]
        helper = kernel.names.outermost(f"{kernel.base_name}_{self.part}")
        results: list[str] = []
        taken = self._taken()
        values = self.values(results)
        targets = {
            name: f"{packs.locals[name]}_next" if name in self.orders else packs.locals[name] for name in self.outputs
        }
        results += [
            f"{targets[name]}.at[{names.j}] = {value};" for name, value in zip(self.outputs, values, strict=True)
        ]
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
            *(f"{packs.type_of(name)} {targets[name]};" for name in self.outputs),
            "#pragma unroll",
            *block_of(f"for (int {names.j} = 0; {names.j} < {names.kPack}; ++{names.j})", results),
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
        """Assigns a pack to each thread, in any row."""
        kernel, names, sides, columns = self.kernel, self.names, self.axes.sides, self.lengths[self.last]
        width, wide, guard = self.packs.width, self.packs.wide, self.guard()
        start = f"(static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x) * {wide}"
        arguments = ", ".join(passed)
        body = [
            self.packs.constant(),
            *self.opening,
            f"const size_t {names.count} = {kernel.count(sides)};",
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
        total = " * ".join(sides)
        return WrittenKernel(
            "permutation-packs",
            f"Written from the reference: each thread handles a pack of {width} neighbouring elements along the last axis, in one access "
            "where it is aligned." + kernel.promise(self.known()),
            kernel.definition(kernel.head(), body),
            text,
            (f"cdiv({total}, block * {width})",),
            BLOCK,
        )

    def _taken(self) -> list[str]:
        """Returns the indices of gathered rows."""
        lines: list[str] = []
        for key in walk(self.plan):
            if self.plan.node(key).op == "take":
                chosen = self.plan.operands(key)[1]
                (text,) = self.expressions.locals_for([chosen], lines)
                self.at[f"@{chosen[0]}"] = text
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


class _RowPacks(_Packs):
    """Packs along the last axis, with a block per result row and no division per pack."""

    skips_first = True
    part = "row"

    def _of_helper(self, of_row: list[str], of_pack: list[str]) -> tuple[list[str], list[str], str]:
        """As `_Packs._of_helper`: the loop over a row's packs."""
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
