"""Replaces shared arrays sized for the largest block by dynamic ones sized for the block that is launched.

Applies to static arrays that are written only at the thread's own index and have more elements than the block has
threads. Improves shared memory, and occupancy if shared memory limits it. The contract and the launches in the file
request the dynamic bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelmate.records import Contract
from kernelmate.source import apply_edits, launch_shape
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite, relaunch
from kernelmate.suggest.syntax import (
    ELEMENT_BYTES,
    DeclaredVariable,
    Edit,
    Tree,
    integer_constants,
    integer_value,
    read_tree,
)
from kernelmate.suggest.syntax_effects import (  # fmt: skip
    constant_after_start,
    element_accesses,
    index_of,
    is_written,
    plain,
    root_name,
)


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that places all static arrays larger than the block in one dynamic array."""
    tree = read_tree(request.kernel)
    threads = _threads(request.contract)
    if tree is None or threads is None or request.contract.shared.strip() != "0":
        return
    if any("extern" in variable.qualifiers for variable in tree.shared_arrays()):
        return
    found = [variable for variable in tree.shared_arrays() if _oversized(tree, variable, threads)]
    kinds = {variable.type for variable in found}
    if len(kinds) != 1:
        return
    size = ELEMENT_BYTES[kinds.pop()] * len(found)
    kernel = apply_edits(request.kernel, _edits(tree, found))
    kernel, contract = relaunch(request, kernel, shared=f"block * {size}")
    constants = integer_constants(request.kernel.unit.text)
    elements = [integer_value(variable.dims[0], constants) or 0 for variable in found]
    had = sum(ELEMENT_BYTES[v.type] * count for v, count in zip(found, elements, strict=True))
    names = " and ".join(variable.name for variable in found)
    why = f"{names} hold {elements[0]} elements each, of which a block of {threads} threads uses {threads}: sized at the launch, it takes {threads * size} bytes instead of {had}."  # fmt: skip
    yield Rewrite(kernel, contract, why)


RECIPE = Recipe("dynamic-shared", ("shared_bytes", "occupancy"), (), rewrites)


def _threads(contract: Contract) -> int | None:
    """Returns the number of threads of a block that is one-dimensional and equal at every size; else None."""
    shapes = {launch_shape(contract, size).block for size in contract.sizes}
    block = shapes.pop()
    return block[0] if not shapes and block[1:] == (1, 1) else None


def _oversized(tree: Tree, variable: DeclaredVariable, threads: int) -> bool:
    """True if the array has more elements than the block has threads, and none beyond the block's length is written."""
    if len(variable.dims) != 1 or variable.type not in ELEMENT_BYTES or "volatile" in variable.qualifiers:
        return False
    elements = integer_value(variable.dims[0], integer_constants(tree.kernel.unit.text))
    accesses = [element for element in element_accesses(tree) if root_name(tree, element) == variable.name]
    if elements is None or elements <= threads or len(accesses) != len(tree.uses(variable.name)):
        return False
    if len(variable.declaration.children_by_field_name("declarator")) != 1:
        return False
    for element in accesses:
        index = index_of(element)
        if index is None:
            return False
        if is_written(tree, element) and not _is_thread(tree, plain(tree, index)):
            return False
    return True


def _is_thread(tree: Tree, text: str) -> bool:
    variable = tree.variable(text)
    if text == "threadIdx.x":
        return True
    known = variable is not None and variable.value is not None and plain(tree, variable.value) == "threadIdx.x"
    return known and constant_after_start(tree, text)


def _edits(tree: Tree, found: Sequence[DeclaredVariable]) -> list[Edit]:
    first = found[0]
    edits = [tree.replace(first.declaration, f"extern __shared__ {first.type} {first.name}[];")]
    for number, variable in enumerate(found[1:], 1):
        times = "" if number == 1 else f"{number} * "
        edits.append(
            tree.replace(variable.declaration, f"{variable.type}* {variable.name} = {first.name} + {times}blockDim.x;")
        )
    return edits
