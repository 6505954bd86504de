"""Other block sizes and shapes: more warps per SM, a fuller last wave, less shared memory, other neighbouring lanes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log2

from kernelmate.compiler import occupancy
from kernelmate.errors import KernelmateError
from kernelmate.records import Claim, Contract, Kernel, LaunchShape, Occupancy
from kernelmate.source import apply_edits, change_launch, evaluate, find_kernels, launch_shape
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.recipes.literal_blocks import block_sides
from kernelmate.suggest.recipes.restructure import BINS
from kernelmate.suggest.strides import turns_of_threads
from kernelmate.suggest.syntax import IntegerConstant, Tree, integer_constants, read_tree

WARP = 32
MAX_THREADS = 1024
AXES = ("x", "y", "z")

LINES: tuple[int, ...] = (32, 64, 128, 256, 512, 1024)
"""Block sizes tried for a kernel with one-dimensional blocks."""

SHAPES: tuple[tuple[int, int], ...] = (
    (32, 8), (64, 4), (8, 32), (32, 16), (16, 16), (128, 2), (32, 4), (4, 64), (32, 32), (16, 8), (8, 8), (256, 1), (1, 256), (64, 1),
)  # fmt: skip
"""Block shapes tried for a kernel with two-dimensional blocks, wide and tall, the likeliest first."""


@dataclass(frozen=True, slots=True)
class BlockConstant:
    """Constants in the text that determine one side of the block.

    `constants` are changed along with that side, which is `scale` times their value; a `locked` side keeps its length.
    """

    constants: tuple[IntegerConstant, ...]
    locked: bool
    scale: int = 1


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields the kernel for each other block, with all code that depends on the block's size adjusted."""
    tree = read_tree(request.kernel)
    sides = block_sides(request.contract)
    if tree is None or sides is None or _names_size(request.contract.instances, sides):
        return
    if _shapes_name(request.contract, sides):
        return
    ties = tuple(_tie(tree, request, sides, axis) for axis in range(len(sides)))
    contract = follow_block(request.contract, sides)
    if contract is None or _tiled_otherwise(tree, request, sides):
        return
    turns = turns_of_threads(tree, contract)
    most = None if turns is None else -(-turns // WARP) * WARP
    for shape in _shapes(request, sides, ties):
        if most is not None and _product(shape) > max(most, _product(sides)):
            continue
        rewrite = _rewrite(request, contract, sides, shape, ties)
        if rewrite is not None:
            yield rewrite


CLAIMS = (
    Claim(r", occupancy \d+% instead of \d+%", "occupancy", "rises"),
    Claim(r", occupancy down to \d+%", "occupancy"),
)
RECIPE = Recipe(
    "block-size", ("time", "occupancy", "shared_bytes", "global_bytes"), ("registers",), rewrites, claims=CLAIMS
)


def _names_size(instances: Sequence[str], sides: Sequence[int]) -> bool:
    """Returns True if a template argument of an instance equals a side of the block, and so probably is that side."""
    return any(
        int(number) in sides for instance in instances for number in re.findall(r"(?<![\w.])\d+(?![\w.])", instance)
    )


def _shapes_name(contract: Contract, sides: Sequence[int]) -> bool:
    """Returns True if an array's shape or a requirement divides by the block's size, so that results depend on it."""
    shapes = [extent for argument in contract.args for extent in argument.shape or ()]
    divisors = {int(n) for text in (*shapes, *contract.require) for n in re.findall(r"(?:%|//|,)\s*(\d+)", text)}
    return bool(divisors & {length for length in (*sides, _product(sides)) if length >= WARP})


def _tie(tree: Tree, request: SuggestRequest, sides: Sequence[int], axis: int) -> BlockConstant:
    """Returns the code that depends on one side's length: constants that the kernel uses, or literals in it."""
    side, kernel = sides[axis], request.kernel
    if side == 1:
        return BlockConstant((), False)
    warps = _warps(tree, kernel, side, axis)
    if warps is not None:
        return warps
    literals = {_integer(tree.text(node)) for node in tree.walk("number_literal", under=tree.function)}
    threads = 1
    for length in sides:
        threads *= length
    tied = {side, side - 1, threads, threads - 1} | {half for half in (side // 2, threads // 2) if half > WARP}
    if literals & tied or (axis == 0 and _counts_warps(tree, threads // WARP)):
        return BlockConstant((), True)
    named = [
        constant
        for constant in integer_constants(kernel.unit.text).values()
        if constant.value == side
        and re.search(rf"\b{constant.name}\b", kernel.source)
        and not _counts_bins(request.contract, constant)
    ]
    if len(named) > 1 or any(_used_elsewhere(kernel, constant) for constant in named):
        return BlockConstant((), True)
    return BlockConstant(tuple(named), False)


def _counts_bins(contract: Contract, constant: IntegerConstant) -> bool:
    """Returns True if the constant probably is a table's length, by its name and value, and not the block's."""
    extents = {extent for argument in contract.args for extent in argument.shape or ()}
    return str(constant.value) in extents and re.search(BINS, constant.name, re.IGNORECASE) is not None


def _warps(tree: Tree, kernel: Kernel, side: int, axis: int) -> BlockConstant | None:
    """Returns the constant of a block's warps, if `__launch_bounds__` multiplies it by the warp size; else None."""
    bounds = next((child for child in tree.function.children if child.type == "launch_bounds"), None)
    product = None if bounds is None else next(iter(tree.walk("binary_expression", under=bounds)), None)
    match = None if product is None else re.fullmatch(r"(\w+)\s*\*\s*(\w+)", tree.text(product))
    if match is None or axis != 0:
        return None
    constants = integer_constants(kernel.unit.text)
    factors = [(word, constants[word].value if word in constants else _integer(word)) for word in match.groups()]
    for (one, count), (_, length) in (factors, factors[::-1]):
        if length == WARP and count is not None and count * WARP == side and one in constants:
            named_twice = sum(constant.value == side for constant in constants.values())
            if named_twice or _used_elsewhere(kernel, constants[one]):
                return None
            return BlockConstant((constants[one],), False, WARP)
    return None


def _counts_warps(tree: Tree, warps: int) -> bool:
    """Returns True if a loop with a literal number of iterations reads an array with one element per warp."""
    per_warp = {
        match[1]
        for node in tree.walk("subscript_expression")
        if (match := re.fullmatch(rf"(\w+)\s*\[[^\]]*(?:/\s*{WARP}|>>\s*5)\s*\]", tree.text(node)))
    }
    for loop in tree.walk("for_statement"):
        condition = loop.child_by_field_name("condition")
        head = None if condition is None else re.fullmatch(r"(\w+)\s*<\s*(\w+)", tree.text(condition))
        if head is None or _integer(head[2]) != warps:
            continue
        read = (re.fullmatch(rf"(\w+)\s*\[\s*{head[1]}\s*\]", tree.text(node)) for node in tree.walk("subscript_expression", under=loop))  # fmt: skip
        if any(match is not None and match[1] in per_warp for match in read):
            return True
    return False


def _integer(literal: str) -> int | None:
    digits = literal.rstrip("uUlL").replace("'", "")
    try:
        return int(digits, 0)
    except ValueError:
        return None


def _used_elsewhere(kernel: Kernel, constant: IntegerConstant) -> bool:
    """Returns True if another kernel of the unit uses the constant too, so that it cannot change."""
    return any(
        other.start != kernel.start and re.search(rf"\b{constant.name}\b", other.source)
        for other in find_kernels(kernel.unit)
    )


# ------------------------------------------------------------------------------------------- the contract


def follow_block(contract: Contract, sides: Sequence[int]) -> Contract | None:
    """Returns the contract with grid and shared bytes as functions of the block; None if they cannot be derived."""
    grid = tuple(_follow_grid(text, axis, sides) for axis, text in enumerate(contract.grid))
    shared = _follow_shared(contract, sides)
    if shared is None or any(text is None for text in grid):
        return None
    followed = replace(contract, grid=tuple(text for text in grid if text is not None), shared=shared)
    for size in contract.sizes:
        if launch_shape(contract, size) != launch_shape(followed, size):
            return None
    return followed


def _follow_grid(text: str, axis: int, sides: Sequence[int]) -> str | None:
    """Returns a grid expression with divisors that equal a side of the block replaced by the name of that side."""
    text = re.sub(
        r"\(\s*([\w\s*+]+?)\s*\+\s*(\d+)\s*\)\s*//\s*(\d+)",
        lambda m: f"cdiv({m[1]}, {m[3]})" if int(m[2]) == int(m[3]) - 1 else m[0],
        text,
    )
    followed = re.sub(
        r"(?P<head>,|//)\s*(?P<divisor>\d+)(?=\s*(?:\)|$))",
        lambda m: f"{m['head']} {_side_name(int(m['divisor']), axis, sides) or m['divisor']}",
        text,
    )
    left = {int(number) for number in re.findall(r"(?<![\w.])\d+(?![\w.])", followed)}
    return None if any(side in left for side in sides if side > 1) else followed


def _tiled_otherwise(tree: Tree, request: SuggestRequest, sides: Sequence[int]) -> bool:
    """Returns True if the grid counts tiles of several block lengths that the kernel contains as a literal."""
    numbers = {int(number) for side in request.contract.grid for number in re.findall(r"(?<![\w.])\d+(?![\w.])", side)}
    pieces = {number for number in numbers if len(sides) == 1 and number > sides[0] > 1 and number % sides[0] == 0}
    named = {_integer(tree.text(node)) for node in tree.walk("number_literal", under=tree.function)}
    constants = integer_constants(request.kernel.unit.text).values()
    named |= {c.value for c in constants if re.search(rf"\b{c.name}\b", request.kernel.source)}
    return bool(pieces & named)


def _side_name(length: int, axis: int, sides: Sequence[int]) -> str | None:
    if len(sides) == 1:
        several = length % sides[0] == 0 and length > sides[0] > 1
        return "block" if length == sides[0] else f"(block * {length // sides[0]})" if several else None
    order = [axis, *(other for other in range(len(sides)) if other != axis)]
    matching = [other for other in order if other < len(sides) and sides[other] == length]
    return f"block_{AXES[matching[0]]}" if matching and length > 1 else None


def _follow_shared(contract: Contract, sides: Sequence[int]) -> str | None:
    """Returns the dynamic shared bytes as a multiple of the block's size, if they are one."""
    if "block" in contract.shared or not re.fullmatch(r"[\d\s*+()]+", contract.shared):
        return contract.shared
    threads = 1
    for side in sides:
        threads *= side
    total = int(evaluate(contract.shared, {}))
    if total == 0 or total % threads:
        return contract.shared
    return f"block * {total // threads}"


# ------------------------------------------------------------------------------------------- the candidates


def _shapes(
    request: SuggestRequest, sides: tuple[int, ...], ties: Sequence[BlockConstant]
) -> Iterator[tuple[int, ...]]:
    """Yields blocks to try, the most promising first."""
    limit = _thread_limit(request, ties)
    if len(sides) == 1:
        wanted: list[tuple[int, ...]] = [(length,) for length in LINES] if not ties[0].locked else []
    else:
        wanted = [shape for shape in _flat_shapes(sides, ties) if _fits_ties(shape, sides, ties)]
    threads = _product(sides)
    fitting = [
        (*shape, *sides[len(shape) :])
        for shape in wanted
        if shape != sides[: len(shape)] and _product(shape) * _product(sides[len(shape) :]) <= limit
    ]
    if request.objective.metric == "shared_bytes":
        fitting = [shape for shape in fitting if _product(shape) < threads]
    if len(sides) == 1:
        # Where blocks stay as many as they are, a longer one puts more threads to work: of two as near, it comes first.
        longer = -1 if _keeps_grid(request.contract) else 1
        fitting.sort(key=lambda shape: (abs(log2(shape[0] / threads)), longer * shape[0]))
    elif request.objective.metric == "shared_bytes":
        fitting.sort(key=lambda shape: -_product(shape))
    yield from fitting


def _keeps_grid(contract: Contract) -> bool:
    return not any("block" in text or "cdiv" in text for text in contract.grid)


def _flat_shapes(sides: tuple[int, ...], ties: Sequence[BlockConstant]) -> Sequence[tuple[int, int]]:
    """Returns two-dimensional shapes to try; with one side locked, only the other side varies."""
    if ties[0].locked and ties[1].locked:
        return []
    if ties[0].locked:
        return [(sides[0], other) for other in (4, 8, 16, 2, 1, 32)]
    if ties[1].locked:
        return [(other, sides[1]) for other in (32, 64, 16, 128, 8, 256)]
    if ties[0].constants and ties[1].constants and ties[0].constants != ties[1].constants:
        return [(sides[0], other) for other in (4, 8, 16, 2, 32)] + [(other, sides[1]) for other in (16, 32, 64)]
    if ties[1].constants and not ties[0].constants:
        return [(other, sides[1]) for other in (32, 64, 16, 128)]
    if ties[0].constants and not ties[1].constants:
        return [(sides[0], other) for other in (4, 8, 16, 2, 32)]
    return SHAPES


def _fits_ties(shape: tuple[int, int], sides: tuple[int, ...], ties: Sequence[BlockConstant]) -> bool:
    """Returns True if sides that share a constant are equal, and the block has at least one warp."""
    if ties[0].constants and ties[0].constants == ties[1].constants and shape[0] != shape[1]:
        return False
    return _product(shape) * _product(sides[2:]) >= WARP


def _thread_limit(request: SuggestRequest, ties: Sequence[BlockConstant]) -> int:
    """Returns the largest number of threads per block that registers and unchanged launch bounds allow."""
    bounds = re.search(r"__launch_bounds__\s*\(([^)]*)\)", request.kernel.source)
    names = {constant.name for tie in ties for constant in tie.constants}
    if bounds and names & set(re.findall(r"\w+", bounds[1])):
        return MAX_THREADS
    limit = MAX_THREADS
    if request.verdict.resources is not None:
        limit = min(limit, request.verdict.resources.max_threads)
    if request.kernel.signature.launch_bounds:
        limit = min(limit, request.kernel.signature.launch_bounds[0])
    return limit


def _rewrite(
    request: SuggestRequest,
    contract: Contract,
    sides: tuple[int, ...],
    shape: tuple[int, ...],
    ties: Sequence[BlockConstant],
) -> Rewrite | None:
    changed = replace(contract, block=tuple(str(side) for side in shape))
    edits = {
        (*constant.span, str(shape[axis] // tie.scale))
        for axis, tie in enumerate(ties)
        if shape[axis] != sides[axis]
        for constant in tie.constants
    }
    try:
        before = launch_shape(request.contract, request.contract.sizes[0])
        after = launch_shape(changed, changed.sizes[0])
        kernel = apply_edits(request.kernel, sorted(edits)) if edits else request.kernel
        kernel = change_launch(
            kernel, grid=changed.grid, block=changed.block, shared=changed.shared, contract=request.contract
        )
    except KernelmateError:
        return None
    fewer = after.shared_bytes < before.shared_bytes or any(_sizes_shared(request.kernel, edit) for edit in edits)
    if request.objective.metric == "shared_bytes" and not fewer:
        return None
    return Rewrite(kernel, changed, describe(request, changed))


def _sizes_shared(kernel: Kernel, edit: tuple[int, int, str]) -> bool:
    """Returns True if the constant that an edit changes determines the size of a shared array."""
    tree = read_tree(kernel)
    name = next(c.name for c in integer_constants(kernel.unit.text).values() if c.span == edit[:2])
    arrays = [] if tree is None else tree.shared_arrays()
    return any(name in re.findall(r"\w+", dim) for array in arrays for dim in array.dims)


def describe(request: SuggestRequest, contract: Contract) -> str:
    """Describes the difference between two launches, with the occupancy on the target for the baseline's registers.

    Raises:
        KernelmateError: the launch is illegal at the headline size.
    """
    before = launch_shape(request.contract, request.contract.sizes[0])
    after = launch_shape(contract, contract.sizes[0])
    text = f"{_words(after)} threads per block instead of {_words(before)}"
    if after.blocks != before.blocks:
        text += f", {after.blocks} blocks instead of {before.blocks}"
    if after.shared_bytes != before.shared_bytes:
        text += f", {after.shared_bytes} bytes of dynamic shared memory instead of {before.shared_bytes}"
    now = _occupancy(request, after)
    was = request.verdict.occupancy
    if now is not None and was is not None:
        if f"{now.theoretical:.0%}" != f"{was.theoretical:.0%}":
            rises = now.theoretical > was.theoretical
            text += f", occupancy {now.theoretical:.0%} instead of {was.theoretical:.0%}" if rises else f", occupancy down to {now.theoretical:.0%}"  # fmt: skip
        if now.waves is not None and was.waves is not None and f"{now.waves:.2g}" != f"{was.waves:.2g}":
            text += f", {now.waves:.2g} waves instead of {was.waves:.2g}"
    return text + "."


def _occupancy(request: SuggestRequest, shape: LaunchShape) -> Occupancy | None:
    resources = request.verdict.resources
    if resources is None:
        return None
    most = max(resources.max_threads, shape.threads)  # launch bounds of the kernel as it is follow the block
    resources = replace(resources, dynamic_shared_bytes=shape.shared_bytes, max_threads=most)
    return occupancy(request.target, resources, shape)


def _words(shape: LaunchShape) -> str:
    sides = list(shape.block)
    while len(sides) > 1 and sides[-1] == 1:
        sides.pop()
    return " x ".join(str(side) for side in sides)


def _product(sides: Sequence[int]) -> int:
    total = 1
    for side in sides:
        total *= side
    return total
