"""Device functions for argmax and argmin, which combine pairs of a value and its position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelmate.synthesis.kernel_text import GUARD, block_of, fresh_names

if TYPE_CHECKING:
    from kernelmate.synthesis.reductions import Reductions

EXTREMES = {"argmax": ("max", ">"), "argmin": ("min", "<")}
"""For each reduction to a position, the corresponding value reduction, and the comparison."""

LOWEST = {"int": "-2147483647 - 1", "long long": "-9223372036854775807LL - 1"}
HIGHEST = {"int": "2147483647", "long long": "9223372036854775807LL"}
"""Initial values of integer minima, by C++ type."""


class Extremes:
    """Device functions that find extremes and their positions in one kernel.

    Args:
        reductions: the team of threads whose values are combined.
    """

    def __init__(self, reductions: Reductions) -> None:
        self._reductions, self._kernel = reductions, reductions.kernel
        self._names = fresh_names(
            reductions.kernel, "index", "best", "place", "other", "where", "values", "indices", "larger", "smaller"
        )
        self._names.value = reductions.names.value
        self._tests: dict[tuple[str, str], str] = {}
        self._functions: dict[tuple[str, str, str], str] = {}

    def taken(self, kind: str, ctype: str, value: str, position: str, best: str, place: str) -> list[str]:
        """Returns statements that keep the better of a value with its position and the best pair so far."""
        test = self._test(kind, ctype)
        return block_of(f"if ({test}({value}, {position}, {best}, {place}))", [f"{best} = {value};", f"{place} = {position};"])  # fmt: skip

    def function(self, kind: str, ctype: str, index: str) -> str:
        """Returns the name of a function that combines all threads' best values and positions into two variables."""
        self._test(kind, ctype)
        found = self._functions.get((kind, ctype, index))
        if found is None:
            found = self._kernel.names.outermost(f"{self._reductions.team.noun}_{kind}")
            self._functions[kind, ctype, index] = found
        return found

    def _test(self, kind: str, ctype: str) -> str:
        if (kind, ctype) not in self._tests:
            self._tests[kind, ctype] = self._kernel.names.outermost("precedes")
        return self._tests[kind, ctype]

    def texts(self) -> list[str]:
        """Returns definitions of the used functions, each followed by an empty line."""
        lines: list[str] = []
        indices = {(kind, ctype): index for kind, ctype, index in self._functions}
        for (kind, ctype), name in self._tests.items():
            lines += [*self._precedes(kind, ctype, name, indices.get((kind, ctype), "int")), ""]
        for (kind, ctype, index), name in self._functions.items():
            lines += [self._combined(kind, ctype, index, name), ""]
        return lines

    def _precedes(self, kind: str, ctype: str, name: str, index: str) -> list[str]:
        names, (word, sign) = self._names, EXTREMES[kind]
        value, best = names.value, names.best
        order = {"max": "larger", "min": "smaller"}[word]
        beyond = getattr(names, order)
        first, equal = f"{value} {sign} {best}", f"{value} == {best}"
        comment = f"// Whether a value replaces the best so far: it is {order}, or equal and earlier."
        if ctype in ("float", "double"):
            comment += f" NaN is the {order.replace('er', 'est')}, as in NumPy."
            first = f"{first} || (isnan({value}) && !isnan({best}))"
            equal = f"({equal} || isnan({value}))"  # where the best is no number: else the first test held
        body = [
            f"const bool {beyond} = {first};",
            f"return {beyond} || ({names.index} < {names.place} && {equal});",
        ]
        parameters = f"{ctype} {value}, {index} {names.index}, {ctype} {best}, {index} {names.place}"
        return [comment, self._kernel.definition(f"static __device__ __forceinline__ bool {name}({parameters})", body)]

    def _combined(self, kind: str, ctype: str, index: str, name: str) -> str:
        names, team, test = self._names, self._reductions, self._tests[kind, ctype]
        value, at = names.value, names.index

        def kept(other: str, where: str) -> list[str]:
            return block_of(
                f"if ({test}({other}, {where}, {value}, {at}))", [f"{value} = {other};", f"{at} = {where};"]
            )

        offset, warp = team.names.offset, team.names.warp
        body = team.exchange(
            [
                f"const {ctype} {names.other} = __shfl_xor_sync({team.mask}, {value}, {offset});",
                f"const {index} {names.where} = __shfl_xor_sync({team.mask}, {at}, {offset});",
                *kept(names.other, names.where),
            ],
        )
        if team.shares:
            slot = f"threadIdx.x / 32]{team.slot}"
            body = [
                f"__shared__ {ctype} {names.values}[{team.threads} / 32]{team.slots};",
                f"__shared__ {index} {names.indices}[{team.threads} / 32]{team.slots};",
                *body,
                GUARD,
                *block_of(
                    f"if ({team.leads})",
                    [f"{names.values}[{slot} = {value};", f"{names.indices}[{slot} = {at};"],
                ),
                "__syncthreads();",
                f"{value} = {names.values}[0]{team.slot};",
                f"{at} = {names.indices}[0]{team.slot};",
                *block_of(
                    f"for (int {warp} = 1; {warp} < {team.threads} / 32; ++{warp})",
                    kept(f"{names.values}[{warp}]{team.slot}", f"{names.indices}[{warp}]{team.slot}"),
                ),
            ]
        return self._kernel.definition(
            f"static __device__ __forceinline__ void {name}({ctype}& {value}, {index}& {at})", body
        )


def is_extreme(kind: object) -> bool:
    """Returns True if a reduction finds a position."""
    return kind in EXTREMES


def start_of(kind: str, ctype: str, infinity: Sequence[str]) -> str:
    """Returns the initial value of a reduction; `infinity` has the texts of negative and positive infinity."""
    largest = kind in ("max", "argmax")
    if ctype in ("float", "double"):
        return infinity[0] if largest else infinity[1]
    return (LOWEST if largest else HIGHEST)[ctype]
