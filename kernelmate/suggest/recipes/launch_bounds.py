"""Limits the registers per thread by `__launch_bounds__` and `__maxnreg__`.

Applies if all sizes launch the same number of threads per block. With that number alone, a kernel that spills may use
more registers. A minimum of blocks per SM limits registers below their present number, for the objectives registers and
occupancy. The verdict rejects candidates whose spills cost time.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.records import Contract
from kernelmate.source import apply_edits, launch_shape
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import Tree, read_tree

REGISTERS_PER_SM = 65536
"""32-bit registers of an SM: CUDA C++ Programming Guide, Technical Specifications, 5.0 to 12.x."""
UNIT = 8
"""Granularity of registers per thread: a warp allocates them in units of 256."""
LEAST = 24
"""Smallest number of registers per thread that ptxas uses for compute capability 9.0, from its own warning."""
CAPS = 3
"""Number of limits below the present number to try."""


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields bounds for the objective: the number of threads alone against spills; else register limits.

    The mildest limit comes first.
    """
    tree = read_tree(request.kernel)
    threads = _threads(request.contract)
    resources = request.verdict.resources
    if tree is None or threads is None or resources is None:
        return
    spills = bool(resources.spill_bytes)
    if request.objective.metric in {"time", "local_bytes"}:
        if spills:
            why = f"The kernel spills {resources.spill_bytes} bytes per thread; told that blocks have {threads} threads and no more, the compiler may give each thread more registers."  # fmt: skip
            yield _bounded(request, tree, f"__launch_bounds__({threads})", why)
        return
    limiter = request.verdict.occupancy.limiter if request.verdict.occupancy is not None else None
    if request.objective.metric == "occupancy" and limiter != "registers":
        return
    for one in request.objective.constraints:
        if one.kind == "registers" and one.bound is not None and LEAST <= one.bound < resources.registers:
            cap = int(one.bound) // UNIT * UNIT
            why = f"The compiler may take {cap} registers per thread, as was asked for, instead of the {resources.registers} that it takes by itself."  # fmt: skip
            yield _bounded(request, tree, f"__maxnreg__({cap})", why)
    caps = _caps(threads, resources.registers)
    for blocks, cap in caps:
        why = f"At least {blocks} blocks of {threads} threads must fit an SM, so a thread may take {cap} registers instead of {resources.registers}."  # fmt: skip
        yield _bounded(request, tree, f"__launch_bounds__({threads}, {blocks})", why)
    for cap in _tight_caps(resources.registers, {cap for _, cap in caps}):
        why = f"The compiler may take {cap} registers per thread instead of the {resources.registers} that it takes by itself."
        yield _bounded(request, tree, f"__maxnreg__({cap})", why)


RECIPE = Recipe("launch-bounds", ("registers", "occupancy", "local_bytes", "time"), ("local_bytes", "time"), rewrites)


def _threads(contract: Contract) -> int | None:
    counts = {launch_shape(contract, size).threads for size in contract.sizes}
    return counts.pop() if len(counts) == 1 else None


def _caps(threads: int, registers: int) -> list[tuple[int, int]]:
    """Returns numbers of blocks per SM with the registers per thread that they allow.

    Only limits below the present registers are included; the largest comes first.
    """
    caps: dict[int, int] = {}
    for blocks in range(1, 33):
        if blocks * threads > 2048:
            break
        cap = REGISTERS_PER_SM // (blocks * threads) // UNIT * UNIT
        if LEAST <= cap < registers and cap not in caps:
            caps[cap] = blocks
    return [(caps[cap], cap) for cap in sorted(caps, reverse=True)[:CAPS]]


def _tight_caps(registers: int, tried: set[int]) -> list[int]:
    """Returns limits below the present registers that only `__maxnreg__` can set, the largest first."""
    first = (registers - 1) // UNIT * UNIT
    return [cap for cap in range(first, LEAST - 1, -UNIT) if cap not in tried][: CAPS - len(tried)]


def _bounded(request: SuggestRequest, tree: Tree, text: str, why: str) -> Rewrite:
    present = next((child for child in tree.function.children if child.type == "launch_bounds"), None)
    if present is not None:
        return Rewrite(apply_edits(request.kernel, [tree.replace(present, text)]), request.contract, why)
    declarator = tree.function.child_by_field_name("declarator")
    start = tree.span(declarator if declarator is not None else tree.body)[0]
    return Rewrite(apply_edits(request.kernel, [(start, start, f"{text} ")]), request.contract, why)
