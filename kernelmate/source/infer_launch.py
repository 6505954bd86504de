"""Infers a launch from those in the file, else from the kernel's block and thread indices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelmate.errors import ContractError
from kernelmate.records import Contract, Kernel
from kernelmate.source.dtypes import ITEM_BYTES, c_type_dtype
from kernelmate.source.host_code import Untranslatable
from kernelmate.source.host_reader import HostReader, tidied
from kernelmate.source.launch import launch_shape
from kernelmate.source.launches import find_launches
from kernelmate.source.python_launches import PythonReader, find_python_launches
from kernelmate.source.tokens import Token, lex

DEFAULT_BLOCK = 256
_OUTER = ("rows", "planes", "blocks")
"""Names of sizes that a kernel takes only through its grid."""


@dataclass(frozen=True, slots=True)
class LaunchGuess:
    """Grid, block and shared bytes as contract expressions; `more` are sizes beyond the kernel's parameters."""

    grid: tuple[str, ...]
    block: tuple[str, ...]
    shared: str = "0"
    more: tuple[str, ...] = ()


Sizes = Callable[[Sequence[str]], Sequence[Mapping[str, int]]]


def guess_launch(kernel: Kernel, extents: Sequence[str], sizes: Sizes) -> LaunchGuess:
    """Return the first launch in the file that is plain arithmetic and legal, else one from the kernel's own indices.

    Args:
        kernel: the kernel.
        extents: the sizes among its parameters, the outermost in memory first.
        sizes: concrete sizes for given extents.
    """
    written = _called(kernel, extents) if kernel.unit.language == "python" else _written(kernel, extents)
    for guess in written:
        if _is_legal(guess, (*guess.more, *extents), sizes):
            return guess
    return _by_indices(kernel, extents)


def _is_legal(guess: LaunchGuess, extents: Sequence[str], sizes: Sizes) -> bool:
    listed = tuple(sizes(extents))
    contract = Contract("", listed, guess.grid, guess.block, (), guess.shared)
    try:
        for size in listed:
            launch_shape(contract, size)
    except ContractError:
        return False
    return True


# ------------------------------------------------------------------------------------------- launches in the file


def _written(kernel: Kernel, extents: Sequence[str]) -> Iterator[LaunchGuess]:
    text = kernel.unit.text
    launches = {launch.start: launch for launch in find_launches(text)}
    for site in kernel.launches:
        arguments = [text[start:end] for start, end in launches[site.start].arguments]
        reader = HostReader(lex(text).tokens, site.start, _host_names(kernel, arguments, extents), site.block)
        try:
            block = reader.block_sides()
            grid = reader.grid_sides(site.grid)
            shared = "0" if site.shared is None else reader.expression(site.shared)
        except Untranslatable:
            continue
        yield _tidy(grid, block, shared, tuple(reader.free))


def _called(kernel: Kernel, extents: Sequence[str]) -> Iterator[LaunchGuess]:
    file, launches = find_python_launches(kernel.unit, kernel.name)
    for launch in launches:
        names = _host_names(kernel, launch.arguments or (), extents)
        reader = PythonReader(file, {name: size for name, size in names.items() if size is not None})
        try:
            block, grid = reader.sides(launch.block), reader.sides(launch.grid)
            shared = "0" if launch.shared is None else reader.expression(launch.shared)
        except Untranslatable:
            continue
        yield _tidy(grid, block, shared, ())


def _host_names(kernel: Kernel, arguments: Sequence[str], extents: Sequence[str]) -> dict[str, str | None]:
    """Returns the host's expression for each size; None if it passes several."""
    names: dict[str, str | None] = {}
    for parameter, written in zip(kernel.signature.parameters, arguments, strict=False):
        if parameter.name in extents:
            names[written] = None if written in names else parameter.name
    return names


def _tidy(grid: tuple[str, ...], block: tuple[str, ...], shared: str, free: tuple[str, ...]) -> LaunchGuess:
    threads = int(block[0]) if len(block) == 1 and block[0].isdigit() else None
    return LaunchGuess(tuple(tidied(side, threads) for side in grid), block, tidied(shared, threads), free)


# ------------------------------------------------------------------------------------------- the kernel's indices


def _by_indices(kernel: Kernel, extents: Sequence[str]) -> LaunchGuess:
    """Derive block and grid from the axes that the kernel reads; x runs along the innermost extent.

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
    """Return one grid expression per axis, divided by the block's if it has one.

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
