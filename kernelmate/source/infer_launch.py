"""Infers a launch from those in host code, else from the kernel's block and thread indices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kernelmate.errors import ContractError
from kernelmate.records import Contract, Kernel, Size
from kernelmate.source.dtypes import ITEM_BYTES, c_type_dtype
from kernelmate.source.expressions import evaluate_integer
from kernelmate.source.infer_host import HostFacts, Selection
from kernelmate.source.infer_loops import KernelLoops
from kernelmate.source.launch import launch_shape
from kernelmate.source.tokens import Token, lex

DEFAULT_BLOCK = 256
_OUTER = ("rows", "planes", "blocks")
"""Names of sizes that a kernel takes only through its grid."""


@dataclass(frozen=True, slots=True)
class LaunchGuess:
    """Grid, block and shared bytes as contract expressions; `more` are sizes beyond the kernel's parameters.

    `known` names those of the three that the host code says.
    """

    grid: tuple[str, ...]
    block: tuple[str, ...]
    shared: str = "0"
    more: tuple[str, ...] = ()
    known: frozenset[str] = frozenset()

    def fixed_threads(self, whole: Sequence[str]) -> int | None:
        """Returns the number of threads of a kernel without sizes, of the parameters `whole`, if host code says grid and block as numbers.

        Such a kernel takes the number of elements from constants, so that no other number may be tried.
        """
        sides = (*self.grid, *self.block)
        fixed = self.known >= {"grid", "block"} and all(side.isdigit() for side in sides)
        return math.prod(map(int, sides)) if fixed and not whole and not self.more else None


def written_launch(kernel: Kernel, extents: Sequence[str], facts: HostFacts) -> LaunchGuess | None:
    """Returns the launch stated by host code, completed from the kernel's indices; None if its grid is not known.

    Args:
        kernel: the kernel.
        extents: the sizes among its parameters, the outermost in memory first.
        facts: what one launch says.
    """
    if not facts.grid:
        return None
    guessed = launch_by_indices(kernel, extents)
    block = facts.block or (
        guessed.block if len(guessed.block) == 1 or "block_" in str(facts.grid) else (str(DEFAULT_BLOCK),)
    )
    shared = guessed.shared if facts.shared is None else facts.shared
    known = {"grid", *(["block"] if facts.block else []), *([] if facts.shared is None else ["shared"])}
    return LaunchGuess(facts.grid, block, shared, facts.more, frozenset(known))


def partly_written(guess: LaunchGuess, facts: HostFacts) -> LaunchGuess:
    """Returns a guessed launch with the block that host code states, if the grid is not known."""
    if not facts.block or facts.grid or len(facts.block) != len(guess.block):
        return guess
    return replace(guess, block=facts.block, known=frozenset({"block"}))


def is_legal(guess: LaunchGuess, sizes: Sequence[Size]) -> bool:
    """Returns True if a launch is valid at every size."""
    contract = Contract("", tuple(sizes), guess.grid, guess.block, (), guess.shared)
    try:
        for size in sizes:
            launch_shape(contract, size)
    except ContractError:
        return False
    return True


def work_of(guess: LaunchGuess, size: Size, loops: KernelLoops) -> int:
    """Returns the threads of a launch, times the iterations that each makes; 0 if it is not valid."""
    try:
        shape = launch_shape(Contract("", (size,), guess.grid, guess.block, (), guess.shared), size)
    except ContractError:
        return 0
    return math.prod((*shape.grid, *shape.block, loops.iterations(size, shape)))


def scaled_launch(launch: LaunchGuess, values: Mapping[int, HostFacts], chosen: Selection) -> LaunchGuess:
    """Returns a launch in which numbers that are the same multiple of the selecting size in most launches follow that size."""
    own = (*launch.grid, *launch.block, launch.shared)
    shapes = [(value, (*one.grid, *one.block, str(one.shared))) for value, one in values.items()]
    shapes = [(value, shape) for value, shape in shapes if len(shape) == len(own)]
    texts = []
    for number, text in enumerate(own):
        factor = int(text) // chosen.value if text.isdigit() else 0
        same = sum(shape[number] == text for _, shape in shapes)
        multiples = sum(shape[number] == str(value * factor) for value, shape in shapes)
        follows = factor and multiples > same
        texts.append(text if not follows else chosen.size if factor == 1 else f"{chosen.size} * {factor}")
    first, last = len(launch.grid), len(own) - 1
    return replace(launch, grid=tuple(texts[:first]), block=tuple(texts[first:last]), shared=texts[last])


def is_launched(facts: HostFacts, launch: LaunchGuess, size: str, value: int) -> bool:
    """Returns True if the known parts of a launch equal a contract's launch shape at a value of the selecting size."""
    known = (
        *zip(facts.grid, launch.grid, strict=False),
        *zip(facts.block, launch.block, strict=False),
        (facts.shared or launch.shared, launch.shared),
    )
    lengths = len(facts.grid) in (0, len(launch.grid)) and len(facts.block) in (0, len(launch.block))
    return lengths and all(text == one or text == str(_at(one, size, value)) for text, one in known)


def _at(text: str, size: str, value: int) -> int | None:
    try:
        return evaluate_integer(text, {size: value}, "side")
    except ContractError:
        return None


# ------------------------------------------------------------------------------------------- the kernel's indices


def launch_by_indices(kernel: Kernel, extents: Sequence[str]) -> LaunchGuess:
    """Returns a launch by the axes that the kernel reads; x runs along the innermost extent.

    A grid axis without a matching extent among the parameters gets a size of its own.
    """
    tokens = lex(kernel.source).tokens
    shared = _dynamic_shared(tokens)
    bounds = kernel.signature.launch_bounds
    threads = str(min(bounds[0], 1024) if bounds and bounds[0] > 0 else DEFAULT_BLOCK)
    thread_axes, block_axes = _axes(tokens, "threadIdx"), _axes(tokens, "blockIdx")
    by_row = _block_is_row(tokens)
    needed = 1 + max("xyz".find(axis) for axis in {"x", *thread_axes, *block_axes}) + by_row
    if not extents and needed == 1:
        return LaunchGuess(("cdiv(n, block)",), (threads,), shared)
    missing = max(0, needed - max(len(extents), 1))
    more = tuple(name for name in _OUTER if name not in extents)[:missing]
    inner = tuple(reversed((*more, *(extents or ("n",)))))
    if not extents:
        more = (*more, "n")
    if by_row:
        return LaunchGuess(_grid(inner[1:], (), block_axes), (threads,), shared, more)
    block = {1: (threads,), 2: ("16", "16"), 3: ("8", "8", "4")}[1 + max("xyz".find(a) for a in {"x", *thread_axes})]
    return LaunchGuess(_grid(inner, block, block_axes), block, shared, more)


def _grid(inner: Sequence[str], block: Sequence[str], block_axes: set[str]) -> tuple[str, ...]:
    """Returns one grid expression per axis, divided by the block's if it has one.

    The last axis covers the remaining extents.

    Args:
        inner: extents that the grid runs over, the innermost first.
        block: the block's dimensions; empty if blocks are addressed by number alone.
        block_axes: axes of `blockIdx` that the kernel reads.
    """
    count = max(len(block), 1 + max("xyz".find(axis) for axis in {"x", *block_axes}))
    sides = []
    for axis in range(count):
        extent = " * ".join(reversed(inner[axis:])) if axis == count - 1 else inner[axis]
        divisor = "block" if len(block) == 1 else f"block_{'xyz'[axis]}"
        sides.append(f"cdiv({extent}, {divisor})" if axis < len(block) else extent)
    return tuple(sides)


def _axes(tokens: Sequence[Token], name: str) -> set[str]:
    return {
        tokens[index + 2].text
        for index in range(len(tokens) - 2)
        if tokens[index].text == name and tokens[index + 1].text == "." and tokens[index + 2].text in ("x", "y", "z")
    }


def _block_is_row(tokens: Sequence[Token]) -> bool:
    """Returns True if blockIdx.x is used, and never multiplied by the block's width or a constant."""
    used = False
    for index in range(len(tokens) - 2):
        if tokens[index].text != "blockIdx" or tokens[index + 2].text != "x":
            continue
        used = True
        before = [token.text for token in tokens[max(0, index - 4) : index]]
        after = [token.text for token in tokens[index + 3 : index + 5]]
        factor = after[1] if after[:1] == ["*"] and len(after) > 1 else ""
        if before[-1:] == ["*"]:
            factor = "blockDim" if "blockDim" in before else before[-2] if len(before) > 1 else ""
        if factor == "blockDim" or factor[:1].isdigit() or factor.isupper():
            return False
    return used


def _dynamic_shared(tokens: Sequence[Token]) -> str:
    """Returns one element per thread if the kernel declares `extern __shared__ float name[]`."""
    for index in range(len(tokens) - 3):
        if tokens[index].text == "extern" and tokens[index + 1].text == "__shared__":
            for word in tokens[index + 2 : index + 6]:
                dtype, vector = c_type_dtype(word.text)
                if dtype is not None:
                    return f"block * {ITEM_BYTES[dtype] * vector}"
            return "block * 4"
    return "0"
