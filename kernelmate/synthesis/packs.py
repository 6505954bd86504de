"""Packs: adjacent elements of an array that are loaded or stored in one access of up to 16 bytes."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmate.synthesis.kernel_text import ITEM_BYTES, WIDEST, KernelText, type_word
from kernelmate.synthesis.names import Names

ALIGNED = "// Packed accesses need aligned arrays; other arrays, and the tail, go element by element."
ALIGNED_ROWS = "// Packed accesses need aligned rows; other rows go element by element."
"""Comment above the condition under which packs are used."""


def pack_struct(name: str, element: str, count: str) -> list[str]:
    """Returns the definition of the struct for a pack."""
    return [f"struct alignas({count} * sizeof({element})) {name} {{", f"  {element} at[{count}];", "};"]


class Packs:
    """Pack types of the arrays that a kernel accesses contiguously.

    Args:
        kernel: the context of the kernel.
        arrays: names of the arrays.
        names: the names of locals.
        wide: the name of the constant for the elements per pack, a template parameter of helpers.

    Attributes:
        shared: the declarations of the pack types if they are at file level.
    """

    def __init__(self, kernel: KernelText, arrays: Sequence[str], names: Names, wide: str = "") -> None:
        self.kernel, self.arrays = kernel, list(arrays)
        elements = list(dict.fromkeys(kernel.element(one) for one in arrays))
        self.types = {one: names.fresh("Pack" if len(elements) == 1 else f"{type_word(one)}Pack") for one in elements}
        self.locals = {one: names.fresh(f"{one}_pack") for one in arrays}
        self.wide, self.shared = wide, list[str]()
        self.width = max((WIDEST // ITEM_BYTES[kernel.arguments[one].dtype] for one in arrays), default=1)
        self.width = min(
            self.width, max(1, WIDEST // max((ITEM_BYTES[kernel.arguments[one].dtype] for one in arrays), default=16))
        )

    def type_of(self, array: str) -> str:
        """Returns the pack type of an array."""
        return self.types[self.kernel.element(array)]

    def share(self, count: str) -> None:
        """Declares the pack types at file level; if a pack has several elements, as templates of their number."""
        if self.width > 1:
            for name in self.types.values():
                self.kernel.names.release(name)
            plain = {element: self.kernel.names.outermost(name) for element, name in self.types.items()}
            self.shared = [
                self.kernel.styled("\n".join([f"template <int {count}>", *pack_struct(name, element, count)]))
                for element, name in plain.items()
            ]
            self.types = {element: f"{name}<{count}>" for element, name in plain.items()}

    def structs(self, count: str) -> list[str]:
        """Returns the declarations of the pack types."""
        if self.shared:
            return []
        return [line for element, name in self.types.items() for line in pack_struct(name, element, count)]

    def constant(self) -> str:
        """Returns the declaration of the number of elements per pack, for a kernel whose helpers use the packs."""
        return f"constexpr int {self.wide} = {self.width};  // neighbouring elements per access"

    def aligned(self, count: str = "") -> str:
        """Returns the condition that every array is aligned to its pack size; empty if the contract guarantees it.

        Args:
            count: the name of the constant for the elements per pack, where a type of the row's helper is not visible.
        """
        groups: dict[str, list[str]] = {}
        for one in dict.fromkeys(self.kernel.others.get(one, one) for one in self.arrays):
            promised = self.kernel.arguments[one].align or 0
            if promised % WIDEST or not promised:
                groups.setdefault(self.kernel.element(one), []).append(f"reinterpret_cast<size_t>({one})")
        tests = []
        for element, addresses in groups.items():
            joined = f"({' | '.join(addresses)})" if len(addresses) > 1 else addresses[0]
            bytes_ = f"({count} * sizeof({element}))" if count and not self.shared else f"sizeof({self.types[element]})"
            tests.append(f"{joined} % {bytes_} == 0")
        return " && ".join(tests)

    def bytes_at_once(self) -> str:
        """Returns the bytes of one access as text; several values are joined by "or" if arrays have different types."""
        several = sorted({self.width * ITEM_BYTES[self.kernel.arguments[one].dtype] for one in self.arrays})
        return " or ".join(map(str, several))

    def load(self, array: str, at: str) -> str:
        """Returns the statement that loads a pack."""
        return (
            f"const {self.type_of(array)} {self.locals[array]} = *reinterpret_cast<const {self.type_of(array)}*>({at});"
        )
