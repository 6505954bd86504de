"""Replaces a block-wide tree reduction in shared memory by warp shuffles, which need one element per warp."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kernelmate.records import Claim, Kernel
from kernelmate.source import apply_edits, change_launch, launch_shape
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes import sequential_reduction
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.recipes.block_trees import Reduction, block_threads, reduced_arrays, tree_reduction
from kernelmate.suggest.recipes.restructure import WARPS, BlockReductions
from kernelmate.suggest.syntax import (
    ELEMENT_BYTES,
    DeclaredVariable,
    Edit,
    Node,
    Tree,
    integer_constants,
    integer_value,
    is_barrier,
    read_tree,
)
from kernelmate.suggest.syntax_effects import element_accesses, indent_of, names, only_pure_calls, root_name, writes
from kernelmate.suggest.syntax_loops import enclosing_loops, previous


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that changes all arrays, if tree reductions and reads of their results are their only uses.

    A tree whose active threads are not adjacent is first rewritten by `sequential_reduction`.
    """
    found = list(_of(request))
    if not found:
        for usual in sequential_reduction.rewrites(request):
            found += _of(replace(request, kernel=usual.kernel, contract=usual.contract))
    yield from found[:1]


def _of(request: SuggestRequest) -> Iterator[Rewrite]:
    tree = read_tree(request.kernel)
    threads = block_threads(request.contract)
    if tree is None or threads is None:
        return
    found = [
        reduction
        for loop in tree.walk("for_statement")
        if (reduction := tree_reduction(tree, loop, threads)) is not None
    ]
    arrays = reduced_arrays(tree, found, threads)
    found = [reduction for reduction in found if all(step.array in arrays for step in reduction.steps)]
    used = {step.array for reduction in found for step in reduction.steps}
    if not found or used != set(arrays):
        return
    reads = _reads(tree, found, arrays)
    if reads is None:
        return
    functions = BlockReductions(tree)
    edits = [edit for one in found for edit in _replace(tree, one, reads, arrays, functions)]
    edits += [functions.edit(), *_without_arrays(tree, arrays)]
    changed = apply_edits(request.kernel, edits)
    yield from _finish(request, changed, arrays, functions.count, len(found), threads)


CLAIMS = (Claim(r": \d+ bytes of shared memory per block less", "shared_bytes"),)
RECIPE = Recipe("warp-reduction", ("shared_bytes", "time", "occupancy"), (), rewrites, claims=CLAIMS)


def _reads(
    tree: Tree, found: Sequence[Reduction], arrays: dict[str, DeclaredVariable]
) -> dict[tuple[int, str], list[Node]] | None:
    """Returns the reads of each reduction's results, by its offset and the array.

    The result is None if a read may see another result.

    The result becomes a variable of the block that contains the reduction.
    """
    reads: dict[tuple[int, str], list[Node]] = {}
    for array, variable in arrays.items():
        if any(other.name not in arrays for other in _declared_with(tree, variable)):
            return None
        mine = [one for one in found if array in {step.array for step in one.steps}]
        for use in tree.uses(array):
            if any(one.first.start_byte <= use.start_byte < one.last.end_byte for one in mine):
                continue
            before = [one for one in mine if one.last.end_byte <= use.start_byte]
            last = max(before, key=lambda one: one.first.start_byte, default=None)
            block = None if last is None else last.first.parent
            if last is None or block is None or not block.start_byte <= use.start_byte < block.end_byte:
                return None
            reads.setdefault((last.first.start_byte, array), []).append(use)
    return reads


def _without_arrays(tree: Tree, arrays: dict[str, DeclaredVariable]) -> list[Edit]:
    """Returns edits that remove the arrays' declarations, and comments beside them."""
    nodes = {variable.declaration.id: variable.declaration for variable in arrays.values()}
    return [tree.replace(node, "") for node in nodes.values()]


def _declared_with(tree: Tree, variable: DeclaredVariable) -> list[DeclaredVariable]:
    """Returns the variables that are declared in the same declaration."""
    known = (one for one in tree.variables.values() if one is not None)
    return [one for one in known if one.declaration.id == variable.declaration.id]


def _replace(
    tree: Tree, reduction: Reduction, reads: dict[tuple[int, str], list[Node]], arrays: dict[str, DeclaredVariable], functions: BlockReductions
) -> Iterator[Edit]:  # fmt: skip
    """Yields edits by which a function reduces the block's values, and a variable holds the result."""
    lines: list[str] = []
    again = len(reduction.steps) > 1 or bool(enclosing_loops(reduction.first))
    end = tree.span(reduction.last)[1]
    for step, value in zip(reduction.steps, reduction.values, strict=True):
        kind, uses = arrays[step.array].type, reads.get((reduction.first.start_byte, step.array), [])
        helper = functions.name(step.function, kind, again=again)
        target = _assigned(tree, reduction, uses, kind) if len(reduction.steps) == 1 else None
        if target is not None:
            # `total = s[0];` right after the tree.
            statement, declares, name = target
            lines.append(f"{declares}{name} = {helper}({tree.text(value)});")
            end = _after_barrier(tree, statement, arrays)
            continue
        name = tree.text(value)
        elsewhere = {other for one in reduction.values if one.id != value.id for other in names(tree, one)}
        if name not in elsewhere and _is_spent(tree, value, reduction, kind):
            lines.append(f"{name} = {helper}({name});")
        else:
            word = "total" if step.function is None else "largest" if "max" in step.function else "smallest"
            name = functions.value_name(word if len(reduction.steps) == 1 else f"{step.array}_{word}")
            lines.append(f"const {kind} {name} = {helper}({tree.text(value)});")
        for use in uses:
            assert use.parent is not None
            yield tree.replace(use.parent, name)
    yield _from_barrier(tree, reduction.first, arrays), end, f"\n{indent_of(tree, reduction.first)}".join(lines)


def _assigned(tree: Tree, reduction: Reduction, uses: Sequence[Node], kind: str) -> tuple[Node, str, str] | None:
    """Returns the statement after the tree that only reads its result, its declaration, and the variable's name.

    The result is None if there is no such statement, or the result is also read elsewhere.
    """
    following = reduction.last.next_named_sibling
    if following is None or len(uses) != 1 or not following.start_byte <= uses[0].start_byte < following.end_byte:
        return None
    element = uses[0].parent
    text = re.sub(r"\s+", " ", tree.text(following))
    match = (
        re.fullmatch(rf"((?:const )?{re.escape(kind)} )?(\w+) = {re.escape(tree.text(element))};", text)
        if element
        else None
    )
    variable = None if match is None else tree.variable(match[2])
    if match is None or variable is None or variable.type != kind or variable.dims or variable.pointers:
        return None
    return following, match[1] or "", match[2]


def _after_barrier(tree: Tree, statement: Node, arrays: dict[str, DeclaredVariable]) -> int:
    """Returns the end of a statement, or of a barrier after it that only protects the array from the next reduction."""
    end = tree.span(statement)[1]
    barrier = statement.next_named_sibling
    if not is_barrier(tree, barrier) or enclosing_loops(statement):
        return end
    assert barrier is not None
    if not _is_for(tree, barrier, arrays):
        return end
    note = barrier.next_sibling
    end = tree.span(barrier)[1]
    text = tree.kernel.unit.text
    if note is not None and note.type == "comment" and "\n" not in text[end : tree.span(note)[0]]:
        end = tree.span(note)[1]
    return end


def _from_barrier(tree: Tree, first: Node, arrays: dict[str, DeclaredVariable]) -> int:
    """Returns the start of the tree's first store, or of a barrier before it that only separates two reductions."""
    barrier = previous(first)
    if barrier is None or not is_barrier(tree, barrier) or enclosing_loops(first) or not _is_for(tree, barrier, arrays):
        return tree.span(first)[0]
    taken = previous(barrier)
    if taken is not None and any(root_name(tree, one) in arrays for one in element_accesses(tree, taken)):
        return tree.span(first)[0]  # the tree before has it
    return tree.span(barrier)[0]


def _is_for(tree: Tree, barrier: Node, arrays: dict[str, DeclaredVariable]) -> bool:
    """Returns True if the barrier orders only accesses to these arrays: no other shared data is written before it."""
    early = (place for place in writes(tree, tree.body) if place.start_byte < barrier.start_byte)
    outside = any(place.type != "identifier" and root_name(tree, place) not in arrays for place in early)
    others = any(one.name not in arrays for one in tree.shared_arrays())
    return not others and not outside and only_pure_calls(tree, tree.body, frozenset({"__syncthreads"}))


def _is_spent(tree: Tree, value: Node, reduction: Reduction, kind: str) -> bool:
    """Returns True if the value is a variable of the same block that is unused after the tree, so it may take over."""
    variable = tree.variable(tree.text(value)) if value.type == "identifier" else None
    if (
        variable is None
        or variable.dims
        or variable.pointers
        or variable.type != kind
        or "const" in variable.qualifiers
    ):
        return False
    block, declared = reduction.first.parent, variable.declaration.parent
    if block is None or declared is None or block.id != declared.id:
        return False
    return not any(use.start_byte >= reduction.last.end_byte for use in tree.uses(variable.name))


def _finish(
    request: SuggestRequest,
    kernel: Kernel,
    arrays: dict[str, DeclaredVariable],
    functions: int,
    count: int,
    threads: int,
) -> Iterator[Rewrite]:
    contract = request.contract
    constants = integer_constants(request.kernel.unit.text)
    kinds = {variable.type for variable in arrays.values()}
    saved = -functions * WARPS * max(ELEMENT_BYTES[kind] for kind in kinds)
    for variable in arrays.values():
        if "extern" in variable.qualifiers:
            saved += launch_shape(contract, contract.sizes[0]).shared_bytes
            contract = replace(contract, shared="0")
            kernel = change_launch(kernel, shared="0", contract=request.contract)
        else:
            saved += (integer_value(variable.dims[0], constants) or WARPS) * ELEMENT_BYTES[variable.type]
    less = f": {saved} bytes of shared memory per block less" if saved > 0 else ""
    listed, barriers = " and ".join(arrays), threads.bit_length()
    yield Rewrite(
        kernel,
        contract,
        f"A tree in shared memory keeps one element per thread in {listed} and takes {barriers} barriers; shuffles within warps "
        f"keep one per warp and take {1 if count == 1 else 2}{less}{'' if count == 1 else f', in {count} reductions'}.",
    )
