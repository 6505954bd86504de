"""C++ accesses to the elements that a row uses: whole rows, vectors along some axes, scalars and positions."""

from __future__ import annotations

import re
from contextlib import suppress
from types import SimpleNamespace

from kernelmate.records import Size
from kernelmate.source import evaluate
from kernelmate.synthesis.axes import address, order_of
from kernelmate.synthesis.identities import always
from kernelmate.synthesis.packs import Packs
from kernelmate.synthesis.plan import FLAT, Key, Refused
from kernelmate.synthesis.schedules.passes import Passes


class RowElements(Passes):
    """Accesses to the elements of arrays in a schedule that goes over rows.

    Attributes:
        names: names of the function's locals. packs: packs of the arrays that are accessed element after element.
        pointers: by array, the local that points to a row.
        firsts: for each axis of another shape the name of its position, the position at which a row begins, and the number
            of elements per position.
    """

    names: SimpleNamespace
    packs: Packs
    pointers: dict[str, str]
    firsts: dict[str, tuple[str, str, str]]

    def _leaf(self, key: Key) -> str:
        node = self.plan.node(key)
        if node.op == "iota":
            return self._position(key)
        name = str(node.data[0])
        if node.op == "scalar":
            return self.kernel.loaded(name, name)
        access = self.plan.access(key)
        if access == "part":
            return self.kernel.loaded(name, f"{name}[{self._part(key)}]")
        if access == "across":
            return self.kernel.loaded(name, f"{name}[{self._across(key)}]")
        if access.startswith("@"):
            return self.kernel.loaded(name, f"{self.pointers[name]}[{self.expressions.at[access]}]")
        texts = {"once": f"{name}[0]", "row": f"{name}[{self.names.row}]"}
        return self.kernel.loaded(name, texts.get(access) or f"{self.packs.locals[name]}.at[{self.names.j}]")

    def _position(self, key: Key) -> str:
        """Returns the position along an axis, of a row or within it."""
        access = self.plan.access(key)
        if access == "across":
            return f"static_cast<long long>({self._across(key)})"
        if access == "column":
            return f"{self.names.c} + {self.names.j}"
        if access == "once":
            return "0"
        # Signed: values computed from the row number, a size_t, would wrap below zero.
        return f"static_cast<long long>({self.names.row if access == 'row' else self._part(key)})"

    def _meet_across(self, key: Key) -> None:
        """Names the position along an axis of another shape at which a row begins.

        A row has an integer number of its elements.

        Raises:
            Refused: it has not, at least not at every size.
        """
        axis = next(str(one) for one in key[1] if one is not None)
        inner, _, side = axis.removeprefix(f"{FLAT}/").partition("%")
        columns = self.plan.columns

        def fits(size: Size) -> bool:
            behind, row = int(evaluate(inner, size)), int(evaluate(columns, size))
            steps = row // behind if behind and row % behind == 0 else 0
            return row == 0 or (steps > 0 and (not side or int(evaluate(side, size)) % steps == 0))

        if not always(self.kernel.contract, fits):
            raise Refused("it meets an array along an axis that crosses its rows")
        if axis not in self.firsts:
            name = self.kernel.names.fresh(side[:-1] if re.fullmatch(r"\w+s", side) else "part")
            behind = self.kernel.size(inner)
            first = self.kernel.names.fresh(f"first_{name}")
            self.firsts[axis] = name, first, behind if behind.isidentifier() else f"({behind})"

    def _first_across(self, axis: str, behind: str) -> str:
        """Returns the position at which a row begins along an axis of another shape.

        `behind` is the number of the row's elements per position.
        """
        names, plan, kernel = self.names, self.plan, self.kernel
        inner, _, side = axis.removeprefix(f"{FLAT}/").partition("%")
        rows = plan.domain[plan.split - 1] if plan.split else ""

        def divided(size: Size) -> bool:
            count = int(evaluate(rows, size))
            return int(evaluate(side, size)) == count * (
                int(evaluate(plan.columns, size)) // int(evaluate(inner, size))
            )

        if side and rows and always(kernel.contract, divided):
            with suppress(Refused):
                count, length = (one if one.isidentifier() else f"({one})" for one in map(kernel.size, (rows, side)))
                return f"static_cast<int>({names.row} % {count}) * ({length} / {count})"
        length = kernel.size(side) if side else ""
        within = f" % {length if length.isidentifier() else f'({length})'}" if side else ""
        return f"static_cast<int>({names.row} * {names.columns} / {behind}{within})"

    def _across(self, key: Key) -> str:
        """Returns the name of the position along an axis of another shape."""
        return self.firsts[next(str(one) for one in key[1] if one is not None)][0]

    def _part(self, key: Key) -> str:
        """Returns the index of an element in an array with some axes of the rows."""
        domain, split = self.plan.domain, self.plan.split
        order = order_of(key[1])
        lengths = {axis: self.kernel.size(domain[axis]) for axis in order[1:] if isinstance(axis, int)}
        at: dict[int | str, str] = {}
        for axis in (one for one in order if isinstance(one, int)):
            inner = self.kernel.size(" * ".join(domain[axis + 1 : split]) or "1")
            inner = inner if re.fullmatch(r"\w+", inner) else f"({inner})"
            text = self.names.row if inner == "1" else f"{self.names.row} / {inner}"
            side = self.kernel.size(domain[axis])
            side = side if re.fullmatch(r"\w+", side) else f"({side})"
            at[axis] = text if axis == 0 else f"{text} % {side}"
        if len(order) > 1:
            at = {axis: f"({text})" if " " in text else text for axis, text in at.items()}
        return address(order, lengths, at)
