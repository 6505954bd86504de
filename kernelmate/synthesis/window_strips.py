"""C++ text of windows for a few adjacent columns: strips of rows in registers, loaded in packs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelmate.synthesis.graph import Node
from kernelmate.synthesis.index_maps import ORDINARY, AxisMap, Linear, never_negative
from kernelmate.synthesis.kernel_text import KernelText, block_of
from kernelmate.synthesis.packs import Packs
from kernelmate.synthesis.plan import Key
from kernelmate.synthesis.window_plan import Windows, parsed, walked
from kernelmate.synthesis.window_registers import RowsText, WindowBox, moved, span

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
    """Returns an element's column offset from the thread's; None without one, or if its row may not exist."""
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
