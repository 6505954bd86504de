"""Device functions that reduce over the threads of a warp or block and return the result to every thread.

Those of argmax and argmin combine pairs of a value and its position.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import GUARD, KernelText, block_of, fresh_names
from kernelmate.synthesis.nan_values import kinds_that_keep_nan

EXTREMES = {"argmax": ("max", ">"), "argmin": ("min", "<")}
"""For each reduction to a position, the corresponding value reduction, and the comparison."""

STARTS = {"sum": 0.0, "prod": 1.0, "max": -float("inf"), "min": float("inf"), "logaddexp": -float("inf")}
RESULT_NAMES = {"sum": "sum", "prod": "product", "max": "largest", "min": "smallest"}
"""For reductions of floats, and the scan `logaddexp`, their initial values and names for their results."""

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
        comment = f"// Returns true if a value replaces the best so far: if it is {order}, or equal and earlier."
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
            stored = [f"{names.values}[{slot} = {value};", f"{names.indices}[{slot} = {at};"]
            body = [
                f"__shared__ {ctype} {names.values}[{team.threads} / 32]{team.slots};",
                f"__shared__ {index} {names.indices}[{team.threads} / 32]{team.slots};",
                *body,
                GUARD,
                *(block_of(f"if ({team.leads})", stored) if team.leads else stored),
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


WARP = 32

MOST_THREADS = 1024
"""Maximum number of threads of a block (CUDA C++ Programming Guide, Technical Specifications)."""

_COMBINE = {
    "sum": "{0} += {1};",
    "prod": "{0} *= {1};",
    "max": "{0} = fmax{2}({0}, {1});",
    "min": "{0} = fmin{2}({0}, {1});",
    "xor": "{0} ^= {1};",
    "and": "{0} &= {1};",
    "or": "{0} |= {1};",
}

LOG_SUM = "logaddexp"
"""The kind of scans that NumPy's `logaddexp.accumulate` computes."""

_KEEPING = {"max": ">", "min": "<"}
"""Comparison operators of reductions whose CUDA functions drop NaN."""


@dataclass(frozen=True, slots=True)
class Team:
    """The threads that compute a row: a warp, a few adjacent threads of a warp, or a whole block."""

    name: str
    threads: int
    block: int

    @property
    def noun(self) -> str:
        """The first word of the names of functions of this team."""
        return "block_column" if self.name == "column" else "lanes" if self.threads < WARP else self.name


class Reductions:
    """Writer of the device functions for the reductions in one kernel.

    Args:
        graph: what the kernel computes.
        kernel: the kernel that they belong to.
        team: the threads whose values are combined.
        threads: the name of the constant for the threads per block.
        within: the reductions of a warp in the same kernel, whose functions those of a block call; None if there are no others.

    Attributes:
        names: the names of the functions' locals.
        extremes: functions for argmax and argmin.
        lanes: the number of threads of a warp that share a result, or its name.
        shares: True if warps exchange values in shared memory.
        slots: dimension of the shared array for each warp's columns.
        slot: a thread's own index along it.
        leads: the condition under which a thread stores to it; empty if all do.
    """

    def __init__(
        self, graph: Graph, kernel: KernelText, team: Team, threads: str, within: Reductions | None = None
    ) -> None:
        self.kernel, self.team, self.threads, self._warps = kernel, team, threads, within
        self.lanes = str(team.threads)
        self.names = fresh_names(kernel, "value", "offset", "partial", "first", "second", warp="w", own="mask")
        self._functions: dict[tuple[str, str], str] = {}
        self._keeping: dict[str, str] = {} if within is None else within._keeping
        self._keep_nan = kinds_that_keep_nan(graph)
        self.extremes = Extremes(self)
        self.shares, self.slots, self.slot = team.name != "warp", "", ""
        self.leads = f"threadIdx.x % {WARP} == 0"

    @property
    def mask(self) -> str:
        """The shuffle mask: all lanes, or a local with those that share a row, since other lanes may have no row."""
        return self.names.own if self.team.noun == "lanes" else "0xffffffffu"

    def exchange(self, statements: Sequence[str]) -> list[str]:
        """Returns the loop in which the threads of a warp exchange values at halved distances."""
        offset, lanes = self.names.offset, f"threadIdx.x % {WARP} / {self.lanes} * {self.lanes}"
        declared = [
            "// Only the lanes that share a result: others may have none.",
            f"const unsigned int {self.names.own} = {(1 << self.team.threads) - 1:#x}u << ({lanes});",
        ]
        first = (
            f"{self.lanes} / 2"
            if not self.lanes.isdigit() and self.team.noun == "lanes"
            else str(min(WARP, self.team.threads) // 2)
        )
        return declared * (self.team.noun == "lanes") + block_of(
            f"for (int {offset} = {first}; {offset} > 0; {offset} /= 2)", statements
        )

    def combined(self, kind: str, target: str, value: str, ctype: str = "") -> str:
        """Returns the statement that combines a value into a target; without a type, in the kernel's floating type."""
        if kind in _KEEPING and ctype not in ("", self.kernel.real):
            wide = ctype == "long long" and not value.startswith(("static_cast<long long>(", "__shfl"))
            return f"{target} = {kind}({target}, {f'static_cast<long long>({value})' if wide else value});"
        if kind in self._keep_nan or kind == LOG_SUM:
            if kind not in self._keeping:
                wanted = "log_add_exp" if kind == LOG_SUM else f"nan_{kind}"
                self._keeping[kind] = self.kernel.names.outermost(wanted)
            return f"{target} = {self._keeping[kind]}({target}, {value});"
        return _COMBINE[kind].format(target, value, "f" if self.kernel.real == "float" else "")

    def is_larger(self, value: str, largest: str) -> str:
        """Returns the condition under which a value replaces the largest one so far."""
        return f"!({value} <= {largest})" if "max" in self._keep_nan else f"{value} > {largest}"

    def joined(self, kind: str, first: str, second: str) -> str:
        """Returns the expression that combines two values."""
        signs = {"sum": "+", "prod": "*", "xor": "^", "and": "&", "or": "|"}
        if kind in signs:
            return f"{first} {signs[kind]} {second}"
        return self.combined(kind, first, second).removeprefix(f"{first} = ").removesuffix(";")

    def function(self, kind: str, ctype: str) -> str:
        """Returns the name of the function for a reduction of a C++ type."""
        if (kind, ctype) not in self._functions:
            wanted = f"{self.team.noun}_{kind}"
            wanted = f"{kind}_of_{self.team.noun}" if wanted == self.kernel.kernel.name else wanted
            self._functions[kind, ctype] = self.kernel.names.outermost(wanted)
        return self._functions[kind, ctype]

    def texts(self) -> list[str]:
        """Returns definitions of the used functions, each followed by an empty line; those of `within` are its own."""
        functions = self._texts()
        lines: list[str] = []
        first, second, ctype = self.names.first, self.names.second, self.kernel.real
        suffix = "f" if ctype == "float" else ""
        for kind, name in self._keeping.items() if self._warps is None else ():
            if kind == LOG_SUM:
                comment, body = self._log_sum(suffix)
            else:
                body = [f"return {first} {_KEEPING[kind]} {second} || isnan({first}) ? {first} : {second};"]
                comment = f"// As np.{kind} and unlike f{kind}{suffix}, returns NaN if either argument is NaN."
            lines += [
                comment,
                self._device(f"{ctype} {name}({ctype} {first}, {ctype} {second})", body),
                "",
            ]
        return [*lines, *self.extremes.texts(), *functions]

    def _log_sum(self, suffix: str) -> tuple[str, list[str]]:
        """Returns the comment and the statements of a function like `np.logaddexp`, of which the arguments may be infinite."""
        first, second, log_two = self.names.first, self.names.second, f"{math.log(2):.9g}{suffix}"
        if not suffix:
            log_two = repr(math.log(2))
        comment = (
            "// Logarithm of the sum of two exponentials. Equal infinities, whose difference is NaN, give themselves."
        )
        return comment, [
            f"if ({first} == {second}) return {first} + {log_two};",
            f"return fmax{suffix}({first}, {second}) + log1p{suffix}(exp{suffix}(-fabs{suffix}({first} - {second})));",
        ]

    def _texts(self) -> list[str]:
        lines: list[str] = []
        value = self.names.value
        for (kind, ctype), name in self._functions.items():
            if self._warps is not None:
                warp = self._warps.function(kind, ctype)
            else:
                warp = name if self.team.name == "warp" else self.kernel.names.outermost(f"warp_{kind}")
                lines += [self._device(f"{ctype} {warp}({ctype} {value})", self._within(kind, ctype)), ""]
            if self.team.name == "block":
                lines += [self._device(f"{ctype} {name}({ctype} {value})", self._across(kind, warp, ctype)), ""]
        return lines

    def _within(self, kind: str, ctype: str) -> list[str]:
        """Returns statements that combine a warp's values at halved distances."""
        return [*self.exchange([self.exchanged(kind, ctype)]), f"return {self.names.value};"]

    def exchanged(self, kind: str, ctype: str) -> str:
        """Returns the statement that combines a lane's value with that of another lane."""
        value = self.names.value
        return self.combined(kind, value, f"__shfl_xor_sync({self.mask}, {value}, {self.names.offset})", ctype)

    def _across(self, kind: str, warp: str, ctype: str) -> list[str]:
        """Returns statements in which every thread combines the results of all warps, in the same order."""
        value, partial, index = self.names.value, self.names.partial, self.names.warp
        warps = f"{self.threads} / {WARP}"
        return [
            f"__shared__ {ctype} {partial}[{warps}];",
            f"{value} = {warp}({value});",
            GUARD,
            f"if (threadIdx.x % {WARP} == 0) {partial}[threadIdx.x / {WARP}] = {value};",
            "__syncthreads();",
            f"{value} = {partial}[0];",
            *block_of(
                f"for (int {index} = 1; {index} < {warps}; ++{index})",
                [self.combined(kind, value, f"{partial}[{index}]", ctype)],
            ),
            f"return {value};",
        ]

    def _device(self, signature: str, body: Sequence[str]) -> str:
        return self.kernel.definition(f"static __device__ __forceinline__ {signature}", body)
