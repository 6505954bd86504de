"""Sums and centred sums of squares in one pass.

Each thread computes partial results from a few values in registers; they are combined without cancellation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelmate.records import Contract
from kernelmate.synthesis.identities import always_equal
from kernelmate.synthesis.kernel_text import block_of, fresh_names
from kernelmate.synthesis.plan import Key, Plan, behind
from kernelmate.synthesis.reductions import WARP, Reductions


@dataclass(frozen=True, slots=True)
class Centred:
    """A sum, and the sum of squared differences from the mean.

    Attributes:
        total: the sum.
        squares: the sum of squared differences.
        value: the elements that both are computed from.
    """

    total: Key
    squares: Key
    value: Key


def centred_of(plan: Plan, contract: Contract, levels: Sequence[Sequence[Key]]) -> Centred | None:
    """Returns the sum and the centred sum of squares if a plan's reductions are exactly these two; else None."""
    if [len(keys) for keys in levels] != [1, 1]:
        return None
    (total,), (squares,) = levels
    if any(plan.node(one).data[0] != "sum" or not plan.node(one).dtype.startswith("float") for one in (total, squares)):
        return None
    product = behind(plan, plan.operands(squares)[0])
    if plan.node(product).op != "map" or plan.node(product).data[0] not in ("multiply", "square"):
        return None
    differences = {behind(plan, one) for one in plan.operands(product)}
    difference = differences.pop()
    if differences or plan.node(difference).op != "map" or plan.node(difference).data[0] != "subtract":
        return None
    value, mean = (behind(plan, one) for one in plan.operands(difference))
    if value != behind(plan, plan.operands(total)[0]) or not plan.node(value).dtype.startswith("float"):
        return None
    return Centred(total, squares, value) if _is_mean(plan, contract, mean, total) else None


def _is_mean(plan: Plan, contract: Contract, key: Key, total: Key) -> bool:
    """Returns True if a value is a sum divided by the number of its elements."""
    if plan.node(key).op != "map" or plan.node(key).data[0] != "divide":
        return False
    above, below = (behind(plan, one) for one in plan.operands(key))
    number = plan.node(below)
    if above[0] != total[0] or number.op not in ("size", "constant"):
        return False
    return always_equal(contract, str(number.data[0]), " * ".join(plan.domain[axis] for axis in plan.gone))


class Moments:
    """The type and the device functions that compute the moments in one kernel.

    Args:
        reductions: the reductions of the same kernel.
        columns: name of the constant with the number of columns per block.
        ahead: name of the constant with the number of values that a thread loads before it uses the first.
        apart: True if no two threads of a warp have the same column, so that shuffles combine nothing.

    Attributes:
        type: name of the type of moments.
        part: name of the function that computes the moments of some values.
        block: name of the function that combines the moments of all threads of a column.
    """

    def __init__(self, reductions: Reductions, columns: str, ahead: str, *, apart: bool = False) -> None:
        kernel = reductions.kernel
        self.apart = apart
        self.kernel, self.threads, self.columns, self.ahead = kernel, reductions.threads, columns, ahead
        outermost = kernel.names.outermost
        self.type, self.joined, self.part = outermost("Moments"), outermost("merge_moments"), outermost("moments_of")
        self.warp, self.block = outermost("warp_moments"), outermost("block_moments")
        self.names = fresh_names(
            kernel, "left", "right", "weight", "squares", "values", "count", "k", "mean", "difference", "total", apart="delta", found="stats"
        )  # fmt: skip
        self.names.offset, self.names.partial, self.names.warp = (
            getattr(reductions.names, one) for one in ("offset", "partial", "warp")
        )
        self.names.slot = kernel.names.fresh("slot")

    def texts(self) -> list[str]:
        """Returns the definitions, each followed by an empty line."""
        names, real, zero, found = self.names, self.kernel.real, self._zero, self.names.found
        comment = "// Sum of some values, sum of their squared differences from their mean, and their number."
        fields = f"  {real} total, squares, count;"
        values = f"const {real} (&{names.values})[{self.ahead}]"
        return [
            *[comment, self.kernel.styled("\n".join([f"struct {self.type} {{", fields, "};"])), ""],
            "// Chan, Golub and LeVeque (1983): means are subtracted before anything is squared, so that no digits are lost.",
            *self._device(
                f"{self.joined}(const {self.type}& {names.left}, const {self.type}& {names.right})", self._join()
            ),
            "// Of the first `count` values; the others are zero.",
            *self._device(f"{self.part}({values}, int {names.count})", self._found(zero)),
            *([] if self.apart else self._device(f"{self.warp}({self.type} {found})", self._exchange())),
            *self._device(f"{self.block}({self.type} {found})", self._across()),
        ]

    @property
    def _zero(self) -> str:
        return "0.0f" if self.kernel.real == "float" else "0.0"

    def _join(self) -> list[str]:
        names, real = self.names, self.kernel.real
        one, two, apart, squares = names.left, names.right, names.apart, names.squares
        return [
            f"if ({two}.count == {self._zero}) return {one};",
            f"if ({one}.count == {self._zero}) return {two};",
            f"const {real} {names.weight} = {one}.count * {two}.count / ({one}.count + {two}.count);",
            f"const {real} {apart} = {one}.total / {one}.count - {two}.total / {two}.count;",
            f"const {real} {squares} = {one}.squares + {two}.squares + {apart} * {apart} * {names.weight};",
            f"return {{{one}.total + {two}.total, {squares}, {one}.count + {two}.count}};",
        ]

    def _found(self, zero: str) -> list[str]:
        names, real, found = self.names, self.kernel.real, self.names.found
        each = ["#pragma unroll", f"for (int {names.k} = 0; {names.k} < {self.ahead}; ++{names.k})"]
        at = f"{names.values}[{names.k}]"
        return [
            f"{self.type} {found} = {{{zero}, {zero}, static_cast<{real}>({names.count})}};",
            *[each[0], *block_of(each[1], [f"{found}.total += {at};"])],
            f"if ({names.count} == 0) return {found};",
            f"const {real} {names.mean} = {found}.total / {found}.count;",
            each[0],
            *block_of(
                each[1],
                [
                    f"const {real} {names.difference} = {names.k} < {names.count} ? {at} - {names.mean} : {zero};",
                    f"{found}.squares += {names.difference} * {names.difference};",
                ],
            ),
            f"return {found};",
        ]

    def _exchange(self) -> list[str]:
        """Returns statements that combine the moments of a warp's threads with the same column, at halved distances."""
        offset, found = self.names.offset, self.names.found
        fields = {one: getattr(self.names, one) for one in ("total", "squares", "count")}
        condition = f"{offset} > 0" if self.columns == "1" else f"{offset} >= {self.columns}"
        return [
            *block_of(
                f"for (int {offset} = {WARP // 2}; {condition}; {offset} /= 2)",
                [
                    *(
                        f"const {self.kernel.real} {local} = __shfl_xor_sync(0xffffffffu, {found}.{field}, {offset});"
                        for field, local in fields.items()
                    ),
                    f"{found} = {self.joined}({found}, {{{', '.join(fields.values())}}});",
                ],
            ),
            f"return {found};",
        ]

    def _across(self) -> list[str]:
        """Returns statements in which every warp combines the results of all warps, in the same order."""
        names, found, one = self.names, self.names.found, self.columns == "1"
        lane, warps, warp = f"threadIdx.x % {WARP}", f"{self.threads} / {WARP}", names.warp
        slots, slot = ("", "") if one else (f"[{self.columns}]", f"[{names.slot}]")
        leads = f"{lane} == 0" if one else f"{lane} < {self.columns}"
        begin, step = (lane, str(WARP)) if one else (f"{lane} / {self.columns}", f"{WARP} / {self.columns}")
        if self.apart:
            return [
                f"__shared__ {self.type} {names.partial}[{warps}]{slots};",
                f"const int {names.slot} = threadIdx.x % {self.columns};",
                f"{names.partial}[threadIdx.x / {WARP}]{slot} = {found};",
                "__syncthreads();",
                f"{found} = {names.partial}[0]{slot};",
                *block_of(
                    f"for (int {warp} = 1; {warp} < {warps}; ++{warp})",
                    [f"{found} = {self.joined}({found}, {names.partial}[{warp}]{slot});"],
                ),
                f"return {found};",
            ]
        return [
            f"__shared__ {self.type} {names.partial}[{warps}]{slots};",
            *([] if one else [f"const int {names.slot} = threadIdx.x % {self.columns};"]),
            f"{found} = {self.warp}({found});",
            f"if ({leads}) {names.partial}[threadIdx.x / {WARP}]{slot} = {found};",
            "__syncthreads();",
            f"{found} = {{}};",
            *block_of(
                f"for (int {warp} = {begin}; {warp} < {warps}; {warp} += {step})",
                [f"{found} = {self.joined}({found}, {names.partial}[{warp}]{slot});"],
            ),
            f"return {self.warp}({found});",
        ]

    def _device(self, signature: str, body: Sequence[str]) -> list[str]:
        return [self.kernel.definition(f"static __device__ __forceinline__ {self.type} {signature}", body), ""]
