"""C++ text of windows for a few adjacent results, with shared elements loaded into registers first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelmate.synthesis.graph import Node
from kernelmate.synthesis.index_maps import ORDINARY, OTHERWISE, AxisMap, Linear, never_negative
from kernelmate.synthesis.kernel_text import KernelText, block_of
from kernelmate.synthesis.plan import Key, Refused
from kernelmate.synthesis.window_plan import Windows, parsed
from kernelmate.synthesis.window_text import WindowText

MOST_REGISTERS = 64
"""Maximum number of an array's elements that a thread keeps in registers."""

_Group = tuple[str, str]


@dataclass(frozen=True, slots=True)
class WindowBox:
    """A range of rows and columns around a thread's own, as smallest and largest offsets."""

    local: str
    rows: tuple[int, int]
    columns: tuple[int, int]


def span(plan: Windows, values: Iterable[Linear]) -> tuple[int, int]:
    """Returns the smallest and largest value of sums that depend on loop variables."""
    low, high = [], []
    for value in values:
        ends = [factor * (plan.ranges[name].constant - 1) for name, factor in value.terms]
        low.append(value.constant + sum(min(one, 0) for one in ends))
        high.append(value.constant + sum(max(one, 0) for one in ends))
    return min(low), max(high)


class RowsText(WindowText):
    """Writes the values of one row of a thread, from registers if rows share elements of an array.

    Args:
        plan: the plan of the windows.
        kernel: the kernel whose parameters hold sizes.
        positions: the locals of the positions.
        row, column: the variables of the rows and of the columns.
        first: the local of a thread's first row.
        step: the local of a row's number.
        count: the constant for the number of rows.

    Attributes:
        before: lines to be written before the loop over the rows.
    """

    def __init__(
        self,
        plan: Windows,
        kernel: KernelText,
        positions: Mapping[str, str],
        row: str,
        column: str,
        names: Sequence[str],
    ) -> None:
        super().__init__(plan, kernel, positions)
        self._row, self._column = row, column
        self._moving = row
        self._first, self._step, self._count = names
        self.before: list[str] = []
        self._boxes: dict[_Group, WindowBox] = {}
        self._taps: dict[_Group, str] = {}

    def values(self, lines: list[str], rows: int = 4) -> list[str]:
        """Overrides `WindowText.values`.

        Raises:
            Refused: the rows share no elements.
        """
        reads = list(self._reads())
        self._find_boxes(reads, rows)
        if not self._boxes:
            raise Refused("its rows share no elements")
        self.before += self._tables()
        rest = [key for key in reads if self._group(key) not in self._boxes]
        moving = [key for key in rest if self._moving in " ".join(map(str, key[1]))]
        self._point([key for key in rest if key not in moving], self.before)
        self._load_taps([key for key in rest if key not in moving])
        self._load_boxes(reads)
        self._point(moving, lines)
        self._lines = lines
        return self.locals_for([target.key for target in self.plan.targets], lines)

    def _group(self, key: Key) -> _Group:
        return self.plan.name(key), " ".join(map(str, key[1][:-2]))

    def _distances(self, key: Key) -> list[Linear] | None:
        """Returns an element's distance from the thread's row and column; None if it does not move with them."""
        if len(key[1]) < 2:
            return None
        found = []
        for text, variable in zip(key[1][-2:], (self._row, self._column), strict=True):
            away = parsed(str(text)).plus(Linear(((variable, 1),)), -1)
            if any(not name.startswith("__r") or self.plan.ranges[name].terms for name, _ in away.terms):
                return None
            found.append(away)
        if self._row in self._group(key)[1] or "value(" in self._group(key)[1]:
            return None
        return found

    def _find_boxes(self, reads: Sequence[Key], rows: int) -> None:
        groups: dict[_Group, list[Key]] = {}
        for key in reads:
            groups.setdefault(self._group(key), []).append(key)
        for group, keys in groups.items():
            away = [self._distances(key) for key in keys]
            found = [one for one in away if one is not None]
            if len(found) < len(away):
                continue
            box = span(self.plan, (one[0] for one in found)), span(self.plan, (one[1] for one in found))
            height, width = (high - low for low, high in box)
            if height and (rows + height) * (width + 1) <= MOST_REGISTERS:
                self._boxes[group] = WindowBox(self.names.fresh(f"{group[0]}_window"), *box)

    def _load_boxes(self, reads: Sequence[Key]) -> None:
        """Emits the loads of each box, with values beyond the array's ends."""
        for group, box in self._boxes.items():
            keys = [key for key in reads if self._group(key) == group]
            name, shape = group[0], self.plan.node(keys[0]).shape
            a, b, r, c = (self.names.fresh(one) for one in ("a", "b", "in_row", "in_col"))
            height, width = box.rows[1] - box.rows[0], box.columns[1] - box.columns[0] + 1
            at = [parsed(str(one)) for one in keys[0][1][:-2]]
            variables = {"__row": r, "__column": c}
            self._positions.update(variables)
            here, kind, inside = (
                [Linear(((one, 1),)) for one in variables],
                self.type_of(keys[0]),
                " && ".join(filter(None, [*self._tests_before(at, shape), self._inside(box, shape, r, c)])),
            )
            pointer, self._lines = name, self.before
            if any(one.terms for one in at):
                pointer = self.names.fresh(f"{name}_plane")
                start = self.address(shape, [*at, Linear(), Linear()])
                self.before.append(f"const {self._kernel.element(name)}* {pointer} = {name} + {start};")
            value = self._kernel.loaded(name, f"{pointer}[{self.address(shape[-2:], here)}]")
            fill = self._fill(group, kind)
            column = self._positions[self._column]
            along = f"{column} + {b}{moved(box.columns[0])}" if width > 1 else f"{column}{moved(box.columns[0])}"
            element = f"{box.local}[{a}][{b}]" if width > 1 else f"{box.local}[{a}]"
            inner = [f"const int {r} = {self._first} + {a}{moved(box.rows[0])}, {c} = {along};"]
            if " && " in inside:
                test = self.names.fresh("inside")
                inner.append(f"const bool {test} = {inside};")
                inside = test
            inner.append(f"{element} = {inside} ? {value} : {fill};")
            if width > 1:
                inner = ["#pragma unroll", *block_of(f"for (int {b} = 0; {b} < {width}; ++{b})", inner)]
            self.before += [
                f"{kind} {box.local}[{self._count} + {height}]{f'[{width}]' if width > 1 else ''};",
                "#pragma unroll",
                *block_of(f"for (int {a} = 0; {a} < {self._count} + {height}; ++{a})", inner),
            ]

    def _tests_before(self, at: Sequence[Linear], shape: Sequence[str]) -> list[str]:
        """Returns the conditions that positions along the axes before rows and columns are inside the array, where that is not known."""
        found = []
        for one, side in zip(at, shape, strict=False):
            values = (one, parsed(side).plus(one, -1).plus(-1))
            found += [self._test(value.text()) for value in values if not never_negative(value, self.plan.ranges)]
        return found

    def _inside(self, box: WindowBox, shape: Sequence[str], r: str, c: str) -> str:
        """Returns the condition that a row and a column are inside the array."""
        tests = []
        column = self.plan.ranges[self._column]
        fits = never_negative(parsed(shape[-1]).plus(column, -1).plus(-box.columns[1]))
        for local, side, low, exact in ((r, shape[-2], box.rows[0], False), (c, shape[-1], box.columns[0], fits)):
            if low < 0:
                tests.append(f"{local} >= 0")
            if not exact:
                tests.append(f"{local} < {self.number_text(parsed(side))[0]}")
        return " && ".join(tests)

    def _fill(self, group: _Group, kind: str) -> str:
        """Returns the value beyond the ends: a border's value, or zero if unused.

        Raises:
            Refused: there are borders of several values.
        """
        values = set()
        stack, seen = list(self.plan.outputs), set()
        while stack:
            key = stack.pop()
            if key in seen:
                continue
            seen.add(key)
            if self._is_border(key) and self._group(self._source(key)) == group:
                values.add(self.plan.operands(key)[1])
            stack += self.plan.operands(key)
        if len({self.plan.node(one).data for one in values}) > 1:
            raise Refused("it has borders of several values")
        if not values:
            return self.number(0.0) if kind == self.real else "0"
        (one, *_) = values
        return self._as_real(one[0], self._constant(self.plan.node(one)))[0] if kind == self.real else str(self.plan.node(one).data[0])  # fmt: skip

    def _source(self, key: Key) -> Key:
        """Returns a window's source, without casts that have no effect."""
        (inner, *_) = self.plan.operands(key)
        while self.plan.node(inner).op == "cast" and self._is_noise(inner):
            (inner,) = self.plan.operands(inner)
        return inner

    def _is_border(self, key: Key) -> bool:
        """Returns True if a key is an array with a constant border: the registers hold the border too."""
        node = self.plan.node(key)
        if node.op != "window" or len(node.args) < 2 or self.plan.graph.nodes[node.args[1]].op != "constant":
            return False
        plain = all(AxisMap.of(one).beyond in (ORDINARY, OTHERWISE) and AxisMap.of(one).every == 1 for one in node.data)
        if not plain or len(self.plan.operands(key)) < 2:
            return False
        source = self._source(key)
        return self.plan.is_leaf(source) and self._distances(source) is not None and self._leads_inside(node)

    def _leads_inside(self, node: Node) -> bool:
        """Returns True if no axis before the rows and columns has a border."""
        return all(AxisMap.of(one).beyond == ORDINARY for one in node.data[:-2])

    def _bare(self, key: Key) -> Key:
        if self._is_border(key) and self._group(self._source(key)) in self._boxes:
            return self._source(key)
        return super()._bare(key)

    def _load_taps(self, keys: Sequence[Key]) -> None:
        """Emits loads of values that are the same for all rows, before the loop."""
        groups: dict[_Group, list[Key]] = {}
        for key in keys:
            base, _ = self._split(key)
            groups.setdefault((self.plan.name(key), " ".join(one.text() for one in base)), []).append(key)
        for group, several in groups.items():
            spans = [self._flat(key) for key in several]
            known = [one for one in spans if one is not None]
            if len(known) < len(spans) or not self._is_safe(several[0]):
                continue
            low, high = span(self.plan, known)
            if low < 0 or not 4 <= high + 1 <= MOST_REGISTERS:
                continue
            name, pointer = group[0], self._pointers.get(group, group[0])
            single = name.removesuffix("s") if len(name) > 2 else f"{name}_tap"
            local, k = self.names.fresh(single if single != name else f"{name}_tap"), self.names.fresh("k")
            kind = self.type_of(several[0])
            value = self._kernel.loaded(name, f"{pointer}[{k}]")
            self.before += [
                f"{kind} {local}[{high + 1}];",
                "#pragma unroll",
                f"for (int {k} = 0; {k} < {high + 1}; ++{k}) {local}[{k}] = {value};",
            ]
            self._taps[group] = local

    def _flat(self, key: Key) -> Linear | None:
        """Returns an element's distance from its pointer if that needs no size."""
        total, stride = Linear(), 1
        shape = self.plan.node(key).shape
        base, rest = self._split(key)
        for axis in reversed(range(len(shape))):
            if rest[axis] != Linear():
                if stride < 0:
                    return None
                total = total.plus(rest[axis], stride)
            stride = stride * int(shape[axis]) if shape[axis].isdigit() and stride > 0 else -1
        group = self.plan.name(key), " ".join(one.text() for one in base)
        if any(one.terms for one in base) and group not in self._pointers:
            return None
        fixed = all(not self.plan.ranges[name].terms for name, _ in total.terms)
        return total if fixed else None

    def _element(self, key: Key) -> str:
        node = self.plan.node(key)
        if not self.plan.is_leaf(key):
            return super()._element(key)
        box = self._boxes.get(self._group(key))
        if box is not None:
            return self._boxed(key, box)
        base, _ = self._split(key)
        taps = self._taps.get((self.plan.name(key), " ".join(one.text() for one in base)))
        flat = self._flat(key) if taps is not None else None
        if taps is not None and flat is not None and node.op in ("input", "reshape"):
            return f"{taps}[{self.number_text(flat)[0]}]"
        return super()._element(key)

    def _boxed(self, key: Key, box: WindowBox) -> str:
        """Returns the text of an element that is in registers."""
        down, along = self._distances(key) or (Linear(), Linear())
        row = down.plus(-box.rows[0])
        at = self._step if row == Linear() else f"{self._step} + {self.number_text(row)[0]}"
        column = f"[{self.number_text(along.plus(-box.columns[0]))[0]}]"
        return f"{box.local}[{at}]{column if box.columns[0] < box.columns[1] else ''}"

    def _is_safe(self, key: Key) -> bool:
        boxed = self.plan.is_leaf(key) and self._group(key) in self._boxes
        return boxed or super()._is_safe(key)


def moved(by: int) -> str:
    """Returns the text that adds a number; empty for zero."""
    return "" if by == 0 else f" {'-' if by < 0 else '+'} {abs(by)}"
