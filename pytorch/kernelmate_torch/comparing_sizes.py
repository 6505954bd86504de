"""Sizes at which a ported module is compared with the old one."""

from __future__ import annotations

from kernelmate_torch.program import ModelProgram

SMALL = (3, 5, 9, 7, 11, 6)
"""Values of free sizes besides those of the example, as far as they are smaller."""


def small_sizes(program: ModelProgram) -> dict[str, int]:
    """Returns small numbers for the program's symbols.

    With inputs of whole numbers, which may be indices, only the first axis of each input is small: the others bound values.
    """
    inputs = [one.tensor for one in program.nodes if one.kind == "input" and one.tensor is not None]
    first = {one.shape[0] for one in inputs if one.shape}
    indexed = any("float" not in one.dtype for one in inputs)
    symbols = [name for name in program.symbols if name.isidentifier()]
    return {
        name: program.symbols[name] if indexed and name not in first else min(SMALL[place % len(SMALL)], program.symbols[name])
        for place, name in enumerate(symbols)
    }  # fmt: skip


def sizes_to_try(program: ModelProgram, *, largest: int) -> list[dict[str, int]]:
    """Returns numbers for the program's symbols: small ones, and those of the example, the free ones up to `largest`."""
    small = small_sizes(program)
    limited = {name: max(small[name], min(program.symbols[name], largest)) for name in small}
    return [small] if limited == small else [small, limited]
