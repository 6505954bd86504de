"""Reductions over a block or a warp: trees in shared memory, shuffles, and inefficient forms of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernelmate_training.corpus.drafting import Code, Flaws, Style

Op = Literal["sum", "max", "min"]

FULL = "0xffffffffu"


def joined(op: Op, one: str, other: str, real: str = "float") -> str:
    """Returns the expression that combines two values."""
    if op == "sum":
        return f"{one} + {other}"
    if real == "int":
        return f"{op}({one}, {other})"
    return f"f{op}{'f' if real == 'float' else ''}({one}, {other})"


def neutral(op: Op, real: str = "float", *, doubles: bool = False) -> str:
    """Returns the neutral element of an operation, as C++ text."""
    if real == "int":
        return {"sum": "0", "max": "-2147483647", "min": "2147483647"}[op]
    suffix = "f" if real == "float" and not doubles else ""
    return {"sum": f"0.0{suffix}", "max": f"-1e30{suffix}", "min": f"1e30{suffix}"}[op]


def grown(op: Op, acc: str, value: str, real: str = "float") -> str:
    """Returns the statement that combines a value with an accumulator."""
    return f"{acc} += {value};" if op == "sum" else f"{acc} = {joined(op, acc, value, real)};"


@dataclass(frozen=True, slots=True)
class ReducingThreads:
    """The threads that reduce together.

    Attributes:
        style: the author's style.
        threads: threads of the block.
        tid: spelling of the thread's index.
        flaws: flaws of the version; `shared_tree`, `modulo_tree`, `extra_barriers` and `oversized_shared` matter here.
        real: the type of the values.
    """

    style: Style
    threads: int
    tid: str
    flaws: Flaws
    real: str = "float"

    @property
    def tree(self) -> bool:
        """True if the reduction uses a tree in shared memory."""
        return bool(self.flaws & {"shared_tree", "modulo_tree"})

    @property
    def elements(self) -> int:
        """Number of shared-memory elements for one reduction."""
        if "oversized_shared" in self.flaws:
            return 1024
        return self.threads if self.tree else self.threads // 32

    def shuffled(self, code: Code, op: Op, value: str) -> None:
        """Writes a reduction after which all lanes of a warp have the warp's result in `value`."""
        name = self.style.n("half")
        count = f"{name} >>= 1" if self.style.turned else f"{name} /= 2"
        shuffle = f"__shfl_xor_sync({FULL}, {value}, {name})"
        code(f"for (int {name} = 16; {name} > 0; {count}) {grown(op, value, shuffle, self.real)}")

    def reduce(self, code: Code, op: Op, value: str, buffer: str, *, again: bool) -> None:
        """Writes a reduction after which all threads of the block have the block's result in `value`.

        `again` is True if the buffer is used later.
        """
        if self.tree:
            self._tree(code, op, value, buffer)
            code(f"{value} = {buffer}[0];")
        else:
            self._by_warps(code, op, value, buffer)
        if again or "extra_barriers" in self.flaws:
            code("__syncthreads();")

    def _tree(self, code: Code, op: Op, value: str, buffer: str) -> None:
        half, tid = self.style.n("half"), self.tid
        code(f"{buffer}[{tid}] = {value};", "__syncthreads();")
        if "modulo_tree" in self.flaws:
            code.open(f"for (int {half} = 1; {half} < blockDim.x; {half} *= 2)")
            condition = f"{tid} % (2 * {half}) == 0"
        else:
            count = f"{half} >>= 1" if self.style.turned else f"{half} /= 2"
            code.open(f"for (int {half} = blockDim.x / 2; {half} > 0; {count})")
            condition = f"{tid} < {half}"
        code.when(condition, grown(op, f"{buffer}[{tid}]", f"{buffer}[{tid} + {half}]", self.real))
        code("__syncthreads();")
        if "extra_barriers" in self.flaws:
            code("__syncthreads();")
        code.close()

    def _by_warps(self, code: Code, op: Op, value: str, buffer: str) -> None:
        warp = self.style.n("warp")
        self.shuffled(code, op, value)
        code(f"if ({self.tid} % 32 == 0) {buffer}[{self.tid} / 32] = {value};", "__syncthreads();")
        code(f"{value} = {buffer}[0];")
        if self.threads > 32:
            code(
                f"for (int {warp} = 1; {warp} < {self.threads // 32}; ++{warp}) {grown(op, value, f'{buffer}[{warp}]', self.real)}"
            )
