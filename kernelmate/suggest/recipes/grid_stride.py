"""Replaces one thread per element by a grid-stride loop over fewer blocks.

Applies to one-dimensional kernels whose threads do independent work below a bound. With fewer blocks, fixed costs of a
block (clearing shared counters, a last atomic) occur less often. Improves time, most for privatised sums and
histograms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.records import Contract, Kernel
from kernelmate.source import apply_edits, launch_shape
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite, relaunch
from kernelmate.suggest.recipes.independent import ATOMICS
from kernelmate.suggest.recipes.restructure import without_early_returns
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree
from kernelmate.suggest.syntax_effects import (  # fmt: skip
    constant_after_start,
    declared_names,
    fresh,
    only_pure_calls,
    operator,
    statements,
    writes,
)
from kernelmate.suggest.syntax_loops import CountingLoop, guarded, is_global_index, is_grid_stride, loops

BLOCKS_PER_SM = (4, 1, 16)
"""Numbers of blocks per SM to try as the grid's size, if that is smaller than the present grid."""


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields candidates with other numbers of blocks; a kernel without a grid-stride loop gets one first."""
    if len(request.contract.grid) > 1 and any(side.strip() != "1" for side in request.contract.grid[1:]):
        return
    yield from _other_caps(request)
    kernel = without_early_returns(request.kernel)
    tree = None if kernel is None else read_tree(kernel)
    if kernel is None or tree is None:
        return
    edits = _edits(tree, _width(request.contract))
    if not edits:
        return
    blocks = launch_shape(request.contract, request.contract.sizes[0]).blocks
    looped = apply_edits(kernel, edits)
    for per_sm in BLOCKS_PER_SM:
        most = request.target.sms * per_sm
        if most < blocks:
            changed, contract = relaunch(request, looped, grid=(f"min({request.contract.grid[0]}, {most})",))
            why = f"{most} blocks ({per_sm} per SM) stay resident and process the data in strides, instead of {blocks} blocks that start and end."  # fmt: skip
            yield Rewrite(_format_cap(request, changed, most, per_sm), contract, why)


RECIPE = Recipe("grid-stride", ("time",), (), rewrites)


def _other_caps(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields other numbers of blocks for a kernel with grid-stride loops, which permit any number."""
    match = re.fullmatch(r"\s*min\((cdiv\([^()]*\)),\s*(\d+)\s*\)\s*", request.contract.grid[0])
    tree = read_tree(request.kernel)
    if match is None or tree is None:
        return
    found = loops(tree)
    if not any(is_grid_stride(tree, loop.step) for loop in found) or _counts_blocks(tree, found):
        return
    for per_sm in BLOCKS_PER_SM:
        most = request.target.sms * per_sm
        grid = f"min({match[1]}, {most})"
        if most == int(match[2]):
            continue
        kernel, contract = relaunch(request, request.kernel, grid=(grid,))
        before, after = (launch_shape(one, one.sizes[0]).blocks for one in (request.contract, contract))
        if before != after:
            why = f"{after} blocks ({per_sm} per SM at most) instead of {before} share the strided loop."
            yield Rewrite(_format_cap(request, kernel, most, per_sm), contract, why)


def _format_cap(request: SuggestRequest, kernel: Kernel, most: int, per_sm: int) -> Kernel:
    """Returns the kernel with a comment beside its launches that explains the number of blocks."""
    text, edits = kernel.unit.text, []
    for start, end in (site.grid_span for site in kernel.launches):
        line = text.find("\n", end)
        if line > 0 and text[start:end].strip() == str(most) and text[end:line].endswith(";"):
            each = "one block" if per_sm == 1 else f"{per_sm} blocks"
            edits.append((line, line, f"  // {each} for each of the {request.target.sms} SMs ({request.target.name})"))
    return apply_edits(kernel, edits) if edits else kernel


def _counts_blocks(tree: Tree, found: list[CountingLoop]) -> bool:
    """Returns True if the grid size or the block index is used for anything but the stride.

    Results may then depend on the number of blocks.
    """
    strided = [loop.node for loop in found if is_grid_stride(tree, loop.step)]
    for use in tree.walk("field_expression"):
        if not tree.text(use).startswith(("gridDim", "blockIdx")):
            continue
        in_head = any(node.start_byte <= use.start_byte < _body_start(node) for node in strided)
        declared = use.parent
        while declared is not None and declared.type not in {"init_declarator", "compound_statement"}:
            declared = declared.parent
        if not in_head and (declared is None or declared.type != "init_declarator"):
            return True
    return False


def _body_start(loop: Node) -> int:
    body = loop.child_by_field_name("body")
    return loop.end_byte if body is None else body.start_byte


def _width(contract: Contract) -> int | None:
    """Returns the block's length if it is a number."""
    return int(contract.block[0]) if contract.block[0].strip().isdigit() else None


def _edits(tree: Tree, width: int | None) -> list[Edit]:
    """Rewrites `if (i < n) {...}` as a loop over i; no edits if the kernel has another form."""
    within = statements(tree.body)
    guard = guarded(tree, within)
    if guard is None or guard.returns or len(guard.conjuncts) != 1:
        return []
    match = re.fullmatch(r"(\w+)\s*<\s*([\w.]+)|([\w.]+)\s*>\s*(\w+)", guard.inside)
    if match is None:
        return []
    name, bound = (match[1], match[2]) if match[1] else (match[4], match[3])
    index = tree.variable(name)
    if index is None or index.value is None or not is_global_index(tree, index.value, "x", width):
        return []
    if not constant_after_start(tree, name) or not _independent(tree, guard.node):
        return []
    if any(name in tree.text(one) for one in within if one.id not in {guard.node.id, index.declaration.id}):
        return []
    body = guard.node.child_by_field_name("consequence")
    if body is None or len(index.declaration.children_by_field_name("declarator")) != 1:
        return []
    head_end = tree.span(body)[0]
    stride = fresh(tree, "stride")
    head = f"for (; {name} < {bound}; {name} += {stride}) "
    edits: list[Edit] = [(tree.span(guard.node)[0], head_end, head)]
    kind = index.declaration.child_by_field_name("type")
    end = tree.span(index.declaration)[1]
    text = tree.kernel.unit.text
    line = text.rfind("\n", 0, tree.span(index.declaration)[0]) + 1
    indent = re.match(r"[ \t]*", text[line:])
    edits.append((end, end, f"\n{indent[0] if indent else ''}const {tree.text(kind) if kind else 'int'} {stride} = gridDim.x * blockDim.x;"))  # fmt: skip
    qualifier = next(
        (c for c in index.declaration.children if c.type == "type_qualifier" and tree.text(c) == "const"), None
    )
    if qualifier is not None:
        start = tree.span(qualifier)[0]
        after = qualifier.next_sibling
        edits.append((start, tree.span(after)[0] if after is not None else start, ""))
    return edits


def _independent(tree: Tree, guard: Node) -> bool:
    """True if the guarded code writes only array elements, its own variables and sums, without barriers or shuffles."""
    if not only_pure_calls(tree, guard, ATOMICS):
        return False
    own = declared_names(tree, guard)
    return all(
        place.type != "identifier" or tree.text(place) in own | _summed(tree, guard) for place in writes(tree, guard)
    )


def _summed(tree: Tree, guard: Node) -> set[str]:
    """Returns variables from outside the guard that are only added to: their sums may continue over iterations."""
    changed: dict[str, bool] = {}
    for place in writes(tree, guard):
        parent = place.parent
        if place.type == "identifier" and parent is not None:
            added = parent.type == "assignment_expression" and operator(tree, parent) == "+="
            changed[tree.text(place)] = changed.get(tree.text(place), True) and added
    return {name for name, added in changed.items() if added}
