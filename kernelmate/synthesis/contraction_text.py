"""C++ text around a matrix product: tile assignment, values computed from each sum, and stores."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from kernelmate.source import evaluate
from kernelmate.synthesis.axes import address
from kernelmate.synthesis.contraction_shape import ContractionShape
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.kept_text import own_column
from kernelmate.synthesis.kernel_text import ITEM_BYTES, WIDEST, KernelText, fresh_names, type_word
from kernelmate.synthesis.packs import pack_struct
from kernelmate.synthesis.plan import Key, Plan, Refused, walk

_UPWARDS = {"less": (0, 1), "less_equal": (0, 1), "greater": (1, 0), "greater_equal": (1, 0)}
"""For each comparison, the indices of the operands: first the one whose growth makes it false, then the other."""


def computed_where(plan: Plan, output: Key, name: str) -> Key | None:
    """Returns the condition under which an output is computed; elsewhere it keeps the contents of array `name`."""
    node = plan.node(output)
    if node.op in ("view", "cast"):
        return computed_where(plan, plan.operands(output)[0], name)
    if node.op != "map" or node.data[0] != "where":
        return None
    condition, _, old = (_behind(plan, one) for one in plan.operands(output))
    same = plan.node(old).op == "input" and plan.node(old).data[0] == name and old[1] == output[1]
    is_comparison = plan.node(condition).op == "map" and plan.node(condition).data[0] in _UPWARDS
    return condition if same and is_comparison and any(_sides(plan, condition)) else None


def corner(plan: Plan, condition: Key) -> dict[int, bool]:
    """Returns the corner of a comparison: for each axis, True for its last position.

    If the comparison holds anywhere, it holds at this corner.
    """
    return {axis: last for last, key in _sides(plan, condition) for axis in _axes(plan, key)}


def _sides(plan: Plan, condition: Key) -> list[tuple[bool, Key]]:
    """Returns the operands of a comparison of values that increase along separate axes; empty otherwise."""
    operands = plan.operands(condition)
    low, high = (operands[place] for place in _UPWARDS[str(plan.node(condition).data[0])])
    apart = {*_axes(plan, low)}.isdisjoint(_axes(plan, high))
    return [(False, low), (True, high)] if apart and _grows(plan, low) and _grows(plan, high) else []


def _axes(plan: Plan, key: Key) -> Iterator[int]:
    below = replace(plan, outputs=(key,))
    for one in walk(below):
        if plan.node(one).op == "iota":
            yield from (axis for axis in one[1] if isinstance(axis, int))


def _grows(plan: Plan, key: Key) -> bool:
    """Returns True if an integer never decreases with the position."""
    node, operands = plan.node(key), plan.operands(key)
    if node.op in ("iota", "size", "constant"):
        return True
    if node.op in ("view", "cast"):
        return node.dtype[:3] in ("int", "uin") and _grows(plan, operands[0])
    if node.op != "map" or node.dtype[:3] not in ("int", "uin"):
        return False
    if node.data[0] == "add":
        return all(_grows(plan, one) for one in operands)
    by = plan.node(_behind(plan, operands[-1]))
    fixed = by.op in ("constant", "size")
    positive = by.op == "size" or (by.op == "constant" and isinstance(by.data[0], int) and by.data[0] > 0)
    if node.data[0] == "subtract":
        return fixed and _grows(plan, operands[0])
    return node.data[0] in ("floor_divide", "multiply") and positive and _grows(plan, operands[0])


def _behind(plan: Plan, key: Key) -> Key:
    return _behind(plan, plan.operands(key)[0]) if plan.node(key).op in ("view", "cast") else key


class ContractionText:
    """Text shared by all matrix-product schedules.

    Args:
        shape: the axes.
        kernel: the kernel whose text is written.
        operands: names of the arrays that are read in tiles.
        wanted: preferred names of further locals.

    Attributes:
        total: the C++ type of a sum.
        whole: by array, the local that is true if the array may be accessed in packs.
        packs: the pack type of each array.
        structs: the declarations of the pack types.
        lengths: the lengths of the axes, in C++.
        at: the position along each axis.
    """

    def __init__(self, shape: ContractionShape, kernel: KernelText, operands: Iterable[str], *wanted: str) -> None:
        self.shape, self.kernel, self.plan = shape, kernel, shape.plan
        self.operands = list(operands)
        if {*self.operands} & {*shape.rest}:
            raise Refused("it needs an array of a matrix product again for the results")
        self.expressions = Expressions(self.plan, kernel, self.leaf, frozenset({"flat"}))
        self.total = self.expressions.type_of(shape.reduction)
        for one in shape.reductions:
            if self.expressions.type_of(one) not in (kernel.real, "int", "unsigned int", "long long"):
                raise Refused(f"the sum of {self.plan.node(one).dtype}")
        shared = ("kTileM", "kTileN", "kTileK", "kPack", "i", "j", "place")
        self.names = fresh_names(kernel, *shared, *wanted)
        self.names.sum = kernel.names.fresh("sums")
        self.names.across, self.names.down = (kernel.names.fresh(f"tiles_{one}") for one in ("across", "down"))
        for side, name in (("m", "row"), ("n", own_column(kernel.kernel.source)), ("k", "inner")):
            more = {side: name, f"{side}_first": f"first_{name}", f"{side}_thread": f"thread_{name}"}
            self.names.__dict__.update({one: kernel.names.fresh(wanted) for one, wanted in more.items()})
        self.outputs = self.stored()
        self.packs: dict[str, str] = {}
        self.structs: list[str] = []
        self.whole: dict[str, str] = {}
        self.opening: list[str] = []
        sides = {shape.m: "height", shape.n: "width", shape.k: "depth"}
        self.lengths = shape.axes.lengths(kernel, sides, self.opening, skipped=shape.outermost)
        self.at: dict[int | str, str] = {axis: kernel.names.position("batch") for axis in shape.batch}
        for axis, name in ((shape.m, self.names.m), (shape.n, self.names.n), (shape.k, self.names.k)):
            self.at[axis] = name

    def stored(self) -> list[str]:
        """Returns the arrays that have an element for each result of the contraction."""
        return [one.name for one in self.kernel.outputs()]

    def leaf(self, key: Key) -> str:
        """Returns the text of an element that is used outside the sum, at a result's row and column."""
        node = self.plan.node(key)
        if node.op == "iota":
            return f"static_cast<long long>({self.at[self.shape.position(key)]})"
        name = str(node.data[0])
        if node.op == "scalar":
            return self.kernel.loaded(name, name)
        order = {**self.shape.left, **self.shape.right, **self.shape.rest}[name]
        if order == tuple(self.shape.whole):
            return self.kernel.loaded(name, f"{name}[{self.names.place}]")
        return self.kernel.loaded(name, f"{name}[{address(order, self.lengths, self.at)}]")

    def side(self, name: str) -> int:
        """Returns the axis of an operand that is not summed."""
        return self.shape.m if name in self.shape.left else self.shape.n

    def order(self, name: str) -> tuple[int | str, ...]:
        """Returns the axis order of an operand in memory."""
        return (self.shape.left if name in self.shape.left else self.shape.right)[name]

    def along(self, name: str) -> int:
        """Returns the axis along which a thread loads packs from an operand: its own axis or the summation axis."""
        last = next(axis for axis in reversed(self.order(name)) if isinstance(axis, int))
        return self.side(name) if last == self.side(name) else self.shape.k

    def blocks(self, m: int, n: int) -> str:
        """Returns the number of blocks with tiles of m x n results, as a contract expression."""
        sides = self.shape.axes.sides
        counts = [f"cdiv({sides[self.shape.m]}, {m})", f"cdiv({sides[self.shape.n]}, {n})"]
        return " * ".join([*counts, *(sides[one] for one in self.shape.batch)])

    def promise(self, m: int, n: int, beside: Iterable[str] = ()) -> str:
        """Describes the arithmetic at the headline size, and the traffic of tiles of m x n from global memory and L2.

        `beside` are further arrays that are read once.
        """
        size = self.kernel.contract.sizes[0]
        count = math.prod(int(evaluate(side, size)) for side in self.shape.axes.sides)
        widths = {name: ITEM_BYTES[self.kernel.arguments[name].dtype] for name in self.operands}
        read = sum(count * width / (n if name in self.shape.left else m) for name, width in widths.items())
        moved = self.kernel.promise(dict.fromkeys([*self.shape.left, *self.shape.right, *self.shape.rest, *beside]))
        return f"{moved} It computes {2 * count / 1e9:.3g} GFLOP, and reads {read / 1e6:.3g} MB, most of it from L2."

    def take_packs(self, arrays: Iterable[str], word: str, count: str) -> None:
        """Assigns arrays a pack type of `count` elements; arrays of equal element type share one."""
        arrays = list(arrays)
        met = dict.fromkeys(map(self.kernel.element, arrays))
        types = {one: self.kernel.names.fresh(word if len(met) == 1 else f"{type_word(one)}{word}") for one in met}
        self.packs.update({name: types[self.kernel.element(name)] for name in arrays})
        self.structs += [line for element, pack in types.items() for line in pack_struct(pack, element, count)]

    def position_in_grid(self, *, grouped: bool = False, across: bool = True) -> list[str]:
        """Emits extents, the number of tiles along n (and along m, with batches or grouping), and the batch index.

        Args:
            grouped: True if blocks need the number of tiles along m.
            across: False if a block computes all tiles along n.
        """
        names, shape, lengths = self.names, self.shape, self.lengths
        lines = [*self.opening]
        if across:
            lines.append(f"const int {names.across} = ({lengths[shape.n]} + {names.kTileN} - 1) / {names.kTileN};")
        if shape.batch or grouped:
            lines.append(f"const int {names.down} = ({lengths[shape.m]} + {names.kTileM} - 1) / {names.kTileM};")
        if shape.batch:
            left = f"blockIdx.x / {names.across} / {names.down}" if across else f"blockIdx.x / {names.down}"
            for number, axis in enumerate(reversed(shape.batch), 1):
                rest = "" if number == len(shape.batch) else f" % {lengths[axis]}"
                lines.append(f"const int {self.at[axis]} = {left}{rest};")
                left = f"{left} / {lengths[axis]}"
        return lines

    def untouched(self) -> list[str]:
        """Emits the early exit of a block that computes no result, because all of them keep their contents."""
        shape, names = self.shape, self.names
        condition = computed_where(self.plan, self.plan.outputs[0], self.outputs[0])
        if condition is None or len(self.outputs) > 1:
            return []
        firsts = {shape.m: (names.m_first, names.kTileM), shape.n: (names.n_first, names.kTileN)}
        places = {shape.axes.order((axis,))[0]: last for axis, last in corner(self.plan, condition).items()}
        if not {*places} <= {*firsts}:
            return []
        before, self.at = self.at, dict(self.at)
        for axis, last in places.items():
            first, tile = firsts[int(axis)]
            self.at[axis] = f"{first} + {tile} - 1" if last else str(first)
        (text,) = Expressions(self.plan, self.kernel, self.leaf, frozenset()).locals_for([condition], [])
        self.at = before
        return ["// Of results that stay as they are, whole tiles are left out.", f"if (!({text})) return;"]

    def whole_lines(self, counts: Mapping[str, str]) -> list[str]:
        """Emits tests that each array's packs are aligned and do not cross rows.

        `counts` has the name of the constant with the elements per pack.
        """
        lines = []
        for name, count in counts.items():
            axis = self.shape.n if name in self.outputs else self.along(name)
            order = tuple(self.shape.whole) if name in self.outputs else self.order(name)
            if order[-1] != axis:
                continue
            tests = [f"{self.lengths[axis]} % {count} == 0"]
            if (self.kernel.arguments[name].align or 1) % WIDEST:
                bytes_ = (
                    f"sizeof({self.packs[name]})"
                    if name in self.packs
                    else f"({count} * sizeof({self.kernel.element(name)}))"
                )
                tests.append(f"reinterpret_cast<size_t>({name}) % {bytes_} == 0")
            self.whole[name] = self.kernel.names.fresh(f"{name}_aligned")
            lines.append(f"const bool {self.whole[name]} = {' && '.join(tests)};")
        return [*(["// Packed accesses need aligned rows."] if lines else []), *lines]

    def placed(self) -> str:
        """Returns the declaration of the local variable that holds a result's offset in elements."""
        return f"const size_t {self.names.place} = {address(tuple(self.shape.whole), self.lengths, self.at)};"

    def with_place(self, lines: list[str]) -> list[str]:
        """Returns lines after the declaration of a result's offset; an offset used once is inserted instead."""
        declared, name = self.placed(), self.names.place
        if len(re.findall(rf"\b{name}\b", " ".join(lines))) > 1:
            return [declared, *lines]
        return [re.sub(rf"\b{name}\b", declared.partition(" = ")[2].removesuffix(";"), line) for line in lines]

    def values(self, totals: Mapping[Key, str], factors: Iterable[Key] = ()) -> tuple[list[str], dict[str, str]]:
        """Computes the text of each output's element from the sums at its row and column.

        Args:
            totals: the text of each sum.
            factors: factors of the only sum that are applied after it.

        Returns:
            Lines that precede the elements, which may use `place`, the element's offset; and the text of each output's
                element.
        """
        shape, kernel = self.shape, self.kernel
        lines: list[str] = []
        self.expressions.known.update(totals)
        keys = list(factors)
        if keys:
            texts = [f"({one})" if " " in one else one for one in self.expressions.locals_for(keys, lines)]
            product = kernel.names.fresh("total")
            lines.append(f"const {self.total} {product} = {' * '.join([totals[shape.reduction], *texts])};")
            self.expressions.known[shape.reduction] = product
        found = {}
        for name, key, text in zip(
            self.outputs, self.plan.outputs, self.expressions.locals_for(self.plan.outputs, lines), strict=True
        ):
            if len(self.outputs) > 1 and name in shape.rest:
                raise Refused(f"{name} is read for several results")
            found[name] = kernel.stored(name, text, self.plan.node(key).dtype)
        return lines, found
