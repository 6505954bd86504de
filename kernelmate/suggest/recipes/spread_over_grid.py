"""Distributes a loop of one block (or one thread) over the whole GPU.

Applies to kernels launched with a single block whose loop has independent iterations. The loop becomes a grid-stride
loop, and the contract launches one thread for each iteration. Improves time.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.source import apply_edits, launch_shape
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite, relaunch
from kernelmate.suggest.recipes.independent import independent_turns
from kernelmate.suggest.syntax import Tree, integer_constants, read_tree
from kernelmate.suggest.syntax_effects import constant_after_start, fresh, only_pure_calls, plain, statements
from kernelmate.suggest.syntax_loops import CountingLoop, read_loop

THREADS = 256
"""Threads per block for a kernel that was launched with a single one."""


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate with a grid-stride loop and a thread for every iteration."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    shapes = [launch_shape(request.contract, size) for size in request.contract.sizes]
    if any(shape.blocks != 1 or shape.block[1:] != (1, 1) for shape in shapes):
        return
    loop = _only_loop(tree)
    if loop is None or loop.inclusive or not independent_turns(tree, loop):
        return
    alone = all(shape.threads == 1 for shape in shapes)
    start = plain(tree, loop.start)
    strided = _is(tree, start, "threadIdx.x") and _is(tree, loop.step, "blockDim.x")
    serial = alone and start == "0" and loop.step == "1"
    if not (strided or serial) or (strided and "threadIdx" in "".join(tree.text(part) for part in loop.body)):
        return
    bound = _contract_expression(request, tree, loop)
    if bound is None:
        return
    edits = _edits(tree, loop)
    block = (str(THREADS),) if alone else request.contract.block
    kernel, contract = relaunch(
        request, apply_edits(request.kernel, edits), grid=(f"cdiv({bound}, block)",), block=block
    )
    turns = launch_shape(contract, contract.sizes[0]).blocks
    why = f"One block works while the rest of the GPU idles, though the iterations of the loop are independent: {turns} blocks share them."  # fmt: skip
    yield Rewrite(kernel, contract, why)


RECIPE = Recipe("spread-over-grid", ("time",), (), rewrites)


def _only_loop(tree: Tree) -> CountingLoop | None:
    """Returns the kernel's only outermost loop, if all other statements declare scalars; else None."""
    found = None
    for statement in statements(tree.body):
        if statement.type == "declaration":
            plain_declaration = not any(word in tree.text(statement) for word in ("__shared__", "extern", "static"))
            if plain_declaration and only_pure_calls(tree, statement):
                continue
            return None
        loop = read_loop(tree, statement)
        if loop is None or found is not None or loop.node.type != "for_statement" or not loop.declared:
            return None
        found = loop
    return found


def _is(tree: Tree, text: str, wanted: str) -> bool:
    """Returns True if the text is the builtin variable `wanted`, or a variable with its value."""
    text = "".join(text.split())
    if text == wanted:
        return True
    variable = tree.variable(text)
    return (
        variable is not None
        and variable.value is not None
        and constant_after_start(tree, text)
        and plain(tree, variable.value) == wanted
    )


def _contract_expression(request: SuggestRequest, tree: Tree, loop: CountingLoop) -> str | None:
    """Returns the loop's bound as a contract expression: a size that is an argument, or a number; None for others."""
    text = plain(tree, loop.bound)
    if text.isdigit():
        return text
    argument = next((a for a in request.contract.args if a.name == text and a.shape is None), None)
    if argument is not None:
        return text if argument.value is None else argument.value
    constant = integer_constants(tree.kernel.unit.text).get(text)
    return None if constant is None or tree.variable(text) is not None else str(constant.value)


def _edits(tree: Tree, loop: CountingLoop) -> list[tuple[int, int, str]]:
    """Returns edits that start and advance the loop by the thread's index in the grid and the grid's size."""
    update = loop.node.child_by_field_name("update")
    if update is None:
        return []
    stride = fresh(tree, "stride")
    kind = loop.declared
    edits = [
        tree.replace(loop.start, "blockIdx.x * blockDim.x + threadIdx.x"),
        tree.replace(update, f"{loop.name} += {stride}"),
    ]
    start = tree.span(loop.node)[0]
    line = tree.kernel.unit.text.rfind("\n", 0, start) + 1
    indent = tree.kernel.unit.text[line:start]
    edits.append(
        (start, start, f"const {kind} {stride} = gridDim.x * blockDim.x;\n{indent if not indent.strip() else '  '}")
    )
    return edits
