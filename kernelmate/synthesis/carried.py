"""Positions along axes of a domain whose elements a thread takes at equal distances, carried on without divisions."""

from __future__ import annotations

from collections.abc import Mapping

from kernelmate.synthesis.axes import Axes, address, order_of
from kernelmate.synthesis.kernel_text import KernelText, block_of
from kernelmate.synthesis.names import singular
from kernelmate.synthesis.plan import Key, Plan, Refused, walk


class CarriedPositions:
    """Positions along those axes by which arrays are read: the digits of the number of a thread's element.

    From one element to the next each digit grows by that of the distance, and by one if the digit after it began anew.

    Args:
        plan: of a domain without rows.
        kernel: the kernel's text.
    """

    def __init__(self, plan: Plan, kernel: KernelText) -> None:
        leaves = [key for key in walk(plan) if plan.node(key).op in ("input", "iota")]
        orders = [order_of(key[1]) for key in leaves if plan.access(key) == "part"]
        self._axes = Axes.merged(plan.domain, [tuple(range(len(plan.domain))), *orders])
        first = min((int(self._axes.order(order)[0]) for order in orders), default=len(self._axes.sides))
        self._places = [*range(first, len(self._axes.sides))]
        self._at: dict[int | str, str] = {}
        self._steps: dict[int, str] = {}
        for place in self._places:
            usual = "col" if place == self._places[-1] else "row" if place == self._places[-1] - 1 else "outer"
            self._at[place] = kernel.names.fresh(singular(self._axes.sides[place], usual))
            self._steps[place] = kernel.names.fresh(f"{self._at[place]}_step")
        self._opening: list[str] = []
        self._lengths = self._axes.lengths(kernel, {}, self._opening, 0) if self._places else []
        self._declared = False

    def text(self, key: Key, selected: Mapping[str, str]) -> str:
        """Returns the index of an element in an array with some of the domain's axes, or the position along one axis.

        Args:
            key: the array or the positions.
            selected: the texts of positions that values select, by axis as `@4`.

        Raises:
            Refused: a position follows from a value that was not computed.
        """
        order = self._axes.order(order_of(key[1]))
        if any(str(one).startswith("@") and one not in selected for one in order):
            raise Refused("it selects elements by indices of several steps")
        at: dict[int | str, str] = dict(self._at)
        at.update(selected.items())
        return address(order, self._lengths, at)

    def opening(self, first: str, step: str) -> list[str]:
        """Returns the declarations of the positions of a thread's first element, or assignments if they are declared.

        Args:
            first: the number of the element.
            step: the number of elements from each of a thread's elements to its next.
        """
        if not self._places:
            return []
        kind = "" if self._declared else "int "
        lines = [] if self._declared else [*self._opening]
        lines += [f"{kind}{self._at[place]} = {self._digit(first, place)};" for place in self._places]
        if not self._declared:
            lines.append("// Steps are added to positions, so that no other element needs a division.")
            lines += [f"const int {self._steps[place]} = {self._digit(step, place)};" for place in self._places]
        self._declared = True
        return lines

    def advance(self) -> list[str]:
        """Returns the statements that advance the positions to a thread's next element."""
        lines = [f"{self._at[place]} += {self._steps[place]};" for place in self._places]
        for place in reversed(self._places):
            at, side = self._at[place], self._lengths[place]
            carried = [f"{at} -= {side};", *([f"++{self._at[place - 1]};"] if place - 1 in self._at else [])]
            lines += block_of(f"if ({at} >= {side})", carried) if place > 0 else []
        return lines

    def _digit(self, number: str, place: int) -> str:
        """Returns the position along an axis of the element with a number."""
        behind = " * ".join(self._lengths[place + 1 :])
        text = number if not behind else f"{number} / {behind if behind.isidentifier() else f'({behind})'}"
        return text if place == 0 else f"{text} % {self._lengths[place]}"
