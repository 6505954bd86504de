"""A block-wide tree reduction in shared memory becomes one of warp shuffles: an element per warp instead of per thread."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernelmate.records import Claim, Contract, Kernel
from kernelmate.source import apply_edits, change_launch, launch_shape
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes import sequential_reduction
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.recipes.restructure import WarpFunctions
from kernelmate.suggest.syntax import (
    ELEMENT_BYTES,
    Edit,
    Node,
    Tree,
    Variable,
    integer_constants,
    integer_value,
    is_barrier,
    read_tree,
    statement_expression,
)
from kernelmate.suggest.syntax_effects import indent_of, indent_step, operator
from kernelmate.suggest.syntax_loops import previous

WARPS = 32
"""Elements that are enough for any block: 1024 threads are 32 warps."""

ZERO = {
    "float": "0.0f", "double": "0.0", "int": "0", "unsigned": "0u", "unsigned int": "0u", "long long": "0ll", "unsigned long long": "0ull",
}  # fmt: skip
"""What adds nothing, for the types that shuffles carry."""

EXTREMES = frozenset({"fmaxf", "fminf", "fmax", "fmin", "max", "min"})


@dataclass(frozen=True, slots=True)
class Step:
    """One array that a tree loop reduces: by addition (`function` None), or by a function such as `fmaxf`."""

    array: str
    function: str | None


@dataclass(frozen=True, slots=True)
class Reduction:
    """One tree reduction: the statements from the first store to the loop, and what each array is filled with."""

    first: Node
    last: Node
    thread: str
    steps: tuple[Step, ...]
    values: tuple[Node, ...]


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """One candidate: every array rewritten whose only uses are tree reductions and their results.

    A tree whose active threads are spread out is brought into the usual form first.
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
        reduction for loop in tree.walk("for_statement") if (reduction := _reduction(tree, loop, threads)) is not None
    ]
    arrays = _arrays(tree, found, threads)
    found = [reduction for reduction in found if all(step.array in arrays for step in reduction.steps)]
    used = {step.array for reduction in found for step in reduction.steps}
    if not found or used != set(arrays):
        return
    functions = WarpFunctions(tree)
    edits = [_replace(tree, reduction, arrays, functions) for reduction in found]
    edits += [functions.edit()]
    ordered = sorted(arrays.values(), key=lambda variable: variable.node.start_byte)
    edits += [edit for place, variable in enumerate(ordered) for edit in _shrink(tree, variable, told=place > 0)]
    yield from _finish(request, apply_edits(request.kernel, edits), arrays, len(found), threads)


CLAIMS = (Claim(r": \d+ bytes of shared memory per block less", "shared_bytes"),)
RECIPE = Recipe("warp-reduction", ("shared_bytes", "time", "occupancy"), (), rewrites, claims=CLAIMS)


def block_threads(contract: Contract, least: int = 64) -> int | None:
    """Threads of a block, where they are one line of whole warps and the same at every size."""
    shapes = [launch_shape(contract, size) for size in contract.sizes]
    lengths = {shape.block[0] for shape in shapes}
    if len(lengths) != 1 or any(shape.block[1:] != (1, 1) for shape in shapes):
        return None
    threads = lengths.pop()
    return threads if threads % 32 == 0 and threads >= least else None


# ------------------------------------------------------------------------------------------- finding them


def _reduction(tree: Tree, loop: Node, threads: int) -> Reduction | None:
    """The reduction that a `for` statement is the tree of, with the stores before it."""
    offset = _offset(tree, loop, threads)
    body = loop.child_by_field_name("body")
    if offset is None or body is None or body.type != "compound_statement":
        return None
    parts = [child for child in body.named_children if child.type != "comment"]
    if len(parts) != 2 or is_barrier(tree, parts[0]) == is_barrier(tree, parts[1]):
        return None
    guarded = parts[1] if is_barrier(tree, parts[0]) else parts[0]
    thread = _guard(tree, guarded, offset)
    if thread is None:
        return None
    steps = [_step(tree, statement, thread, offset) for statement in _guarded_statements(guarded)]
    if not steps or None in steps:
        return None
    known = tuple(step for step in steps if step is not None)
    stores = _stores(tree, loop, thread, [step.array for step in known], barrier_inside=is_barrier(tree, parts[0]))
    if stores is None or len({step.array for step in known}) != len(known):
        return None
    first, values = stores
    return Reduction(first, loop, thread, known, values)


def _offset(tree: Tree, loop: Node, threads: int) -> str | None:
    """The name of a loop variable that goes from half the block to 1, halved each time."""
    start, condition, update = (loop.child_by_field_name(name) for name in ("initializer", "condition", "update"))
    if start is None or condition is None or update is None or start.type != "declaration":
        return None
    declarators = start.children_by_field_name("declarator")
    if len(declarators) != 1 or declarators[0].type != "init_declarator":
        return None
    name_node = declarators[0].child_by_field_name("declarator")
    value = declarators[0].child_by_field_name("value")
    if name_node is None or value is None:
        return None
    name = tree.text(name_node)
    ends = {f"{name}>0", f"{name}>=1", f"0<{name}", f"{name}!=0", name, f"{name}>0u"}
    halves = {f"{name}>>=1", f"{name}/=2", f"{name}={name}/2", f"{name}={name}>>1"}
    good = _plain(tree, condition) in ends and _plain(tree, update) in halves and _is_half(tree, value, threads)
    return name if good else None


def _is_half(tree: Tree, node: Node, threads: int) -> bool:
    text = (
        _plain(tree, node).replace("u", "") if not re.search(r"[A-Za-z]{2}", _plain(tree, node)) else _plain(tree, node)
    )
    if text in {"blockDim.x/2", "blockDim.x>>1"}:
        return True
    halved = re.fullmatch(r"(\w+)(?:/2|>>1)", text)
    constants = integer_constants(tree.kernel.unit.text)
    if halved is not None:
        return _block_length(tree, halved[1]) or integer_value(halved[1], constants) == threads
    return integer_value(text, constants) == threads // 2


def _block_length(tree: Tree, name: str) -> bool:
    variable = tree.variable(name)
    return variable is not None and variable.value is not None and _plain(tree, variable.value) == "blockDim.x"


def _plain(tree: Tree, node: Node) -> str:
    text = re.sub(r"\s+", "", tree.text(node))
    while text.startswith("(") and text.endswith(")") and "(" not in text[1:-1]:
        text = text[1:-1]
    return text


def _guard(tree: Tree, statement: Node, offset: str) -> str | None:
    """How `if (t < offset)` spells the thread's number."""
    if statement.type != "if_statement" or statement.child_by_field_name("alternative") is not None:
        return None
    condition = statement.child_by_field_name("condition")
    match = (
        None if condition is None else re.fullmatch(rf"([\w.]+)<{offset}|{offset}>([\w.]+)", _plain(tree, condition))
    )
    thread = (match[1] or match[2]) if match else None
    return thread if thread is not None and _is_thread(tree, thread) else None


def _is_thread(tree: Tree, text: str) -> bool:
    """The expression is threadIdx.x, or a variable that is it and nothing else."""
    if text == "threadIdx.x":
        return True
    variable = tree.variable(text)
    if variable is None or variable.value is None or _plain(tree, variable.value) != "threadIdx.x":
        return False
    return not any(
        use.parent is not None
        and (
            use.parent.type == "update_expression"
            or (use.parent.type == "assignment_expression" and use.parent.child_by_field_name("left") == use)
        )
        for use in tree.uses(text)
    )


def _guarded_statements(guarded: Node) -> list[Node]:
    consequence = guarded.child_by_field_name("consequence")
    if consequence is None:
        return []
    if consequence.type == "compound_statement":
        return [child for child in consequence.named_children if child.type != "comment"]
    return [consequence]


def _step(tree: Tree, statement: Node, thread: str, offset: str) -> Step | None:
    """`a[t] += a[t + o]`, `a[t] = a[t] + a[t + o]`, `a[t] = fmaxf(a[t], a[t + o])`."""
    expression = statement_expression(statement)
    text = "" if expression is None else _plain(tree, expression)
    t, o = re.escape(thread), re.escape(offset)
    far = rf"\1\[(?:{t}\+{o}|{o}\+{t})\]"
    near = rf"\1\[{t}\]"
    for pattern in (rf"(\w+)\[{t}\]\+={far}", rf"(\w+)\[{t}\]={near}\+{far}", rf"(\w+)\[{t}\]={far}\+{near}"):
        if match := re.fullmatch(pattern, text):
            return Step(match[1], None)
    match = re.fullmatch(rf"(\w+)\[{t}\]=(\w+)\((?:{near},{far}|{far},{near})\)", text)
    return Step(match[1], match[2]) if match and match[2] in EXTREMES else None


def _stores(
    tree: Tree, loop: Node, thread: str, arrays: Sequence[str], *, barrier_inside: bool
) -> tuple[Node, tuple[Node, ...]] | None:
    """The first of the stores `a[t] = value;` just before the loop, and their values in the order of `arrays`."""
    before = previous(loop)
    if is_barrier(tree, before):
        before = None if before is None else previous(before)
    elif not barrier_inside:
        return None
    values: dict[str, Node] = {}
    first = None
    while before is not None and len(values) < len(arrays):
        expression = statement_expression(before) if before.type == "expression_statement" else None
        if expression is None or expression.type != "assignment_expression":
            return None
        left, right = expression.child_by_field_name("left"), expression.child_by_field_name("right")
        operator = expression.child_by_field_name("operator")
        match = None if left is None else re.fullmatch(rf"(\w+)\[{re.escape(thread)}\]", _plain(tree, left))
        if match is None or match[1] not in arrays or right is None or operator is None or tree.text(operator) != "=":
            return None
        if match[1] in values or any(tree.text(node) in arrays for node in tree.walk("identifier", under=right)):
            return None
        values[match[1]] = right
        first = before
        before = previous(before)
    if first is None or set(values) != set(arrays):
        return None
    return first, tuple(values[array] for array in arrays)


def _arrays(tree: Tree, found: Sequence[Reduction], threads: int) -> dict[str, Variable]:
    """The arrays that can shrink: nothing but reductions and reads of element 0 uses them."""
    inside = [(reduction.first.start_byte, reduction.last.end_byte) for reduction in found]
    constants = integer_constants(tree.kernel.unit.text)
    dynamic = [variable for variable in tree.shared_arrays() if "extern" in variable.qualifiers]
    good: dict[str, Variable] = {}
    for name in {step.array for reduction in found for step in reduction.steps}:
        variable = tree.variable(name)
        if variable is None or not variable.shared or len(variable.dims) != 1 or variable.type not in ZERO:
            continue
        if "volatile" in variable.qualifiers or ("extern" in variable.qualifiers and len(dynamic) > 1):
            continue
        size = integer_value(variable.dims[0], constants) if variable.dims[0] else threads
        others = [use for use in tree.uses(name) if not any(low <= use.start_byte < high for low, high in inside)]
        if size is not None and size > WARPS and all(_is_result(tree, use) for use in others):
            good[name] = variable
    return good


def _is_result(tree: Tree, use: Node) -> bool:
    """`a[0]`, read."""
    element = use.parent
    if element is None or element.type != "subscript_expression" or not _plain(tree, element).endswith("[0]"):
        return False
    parent = element.parent
    if parent is None or parent.type in {
        "update_expression",
        "pointer_expression",
        "subscript_expression",
        "field_expression",
    }:
        return False
    left = parent.child_by_field_name("left") if parent.type == "assignment_expression" else None
    return left is None or left.id != element.id


# ------------------------------------------------------------------------------------------- changing them


def _replace(tree: Tree, reduction: Reduction, arrays: dict[str, Variable], functions: WarpFunctions) -> Edit:
    """The statements that join the block's values by warps; every step's result is in its array's first element."""
    start = tree.span(reduction.first)[0]
    step, thread = indent_step(tree), reduction.thread
    before: list[str] = []
    joined: list[tuple[str, str, str]] = []
    for one, value in zip(reduction.steps, reduction.values, strict=True):
        kind = arrays[one.array].type
        name = tree.text(value)
        if not _is_spent(tree, value, reduction, kind):
            name = functions.value_name("value" if len(reduction.steps) == 1 else f"{one.array}_value")
            before.append(f"{kind} {name} = {tree.text(value)};")
        joined.append((one.array, name, functions.name(one.function, kind)))
    lines = [*before, *(f"{name} = {helper}({name});" for _, name, helper in joined)]
    lines += _braced(
        f"if ({thread} % 32 == 0)", [f"{array}[{thread} / 32] = {name};" for array, name, _ in joined], step
    )
    lines += ["__syncthreads();", f"if ({thread} < 32) {{"]
    for one, (array, name, helper) in zip(reduction.steps, joined, strict=True):
        other = ZERO[arrays[array].type] if one.function is None else name
        lines.append(f"{step}{name} = {helper}({thread} < blockDim.x / 32 ? {array}[{thread}] : {other});")
    results = _braced(f"if ({thread} == 0)", [f"{array}[0] = {name};" for array, name, _ in joined], step)
    lines += [*(f"{step}{line}" for line in results), "}", "__syncthreads();"]
    return start, tree.span(reduction.last)[1], f"\n{indent_of(tree, reduction.first)}".join(lines)


def _is_spent(tree: Tree, value: Node, reduction: Reduction, kind: str) -> bool:
    """The value is a variable that is not read again, so that it may hold the warp's."""
    variable = tree.variable(tree.text(value)) if value.type == "identifier" else None
    if (
        variable is None
        or variable.dims
        or variable.pointers
        or variable.type != kind
        or "const" in variable.qualifiers
    ):
        return False
    block = reduction.first.parent
    declared = variable.declaration.parent
    if block is None or declared is None or block.id != declared.id:
        return False
    later = [use for use in tree.uses(variable.name) if use.start_byte >= reduction.last.end_byte]
    return not later or _is_assigned(tree, later[0], block)


def _is_assigned(tree: Tree, use: Node, block: Node) -> bool:
    """The use is the left side of `name = ...;`, a statement of the block itself, whose right side does not name it."""
    parent = use.parent
    if parent is None or parent.type != "assignment_expression" or operator(tree, parent) != "=":
        return False
    left, right, statement = parent.child_by_field_name("left"), parent.child_by_field_name("right"), parent.parent
    alone = statement is not None and statement.parent is not None and statement.parent.id == block.id
    named = {tree.text(node) for node in tree.walk("identifier", under=right)}
    return alone and left is not None and left.id == use.id and tree.text(use) not in named


def _braced(head: str, statements: Sequence[str], step: str) -> list[str]:
    if len(statements) == 1:
        return [f"{head} {statements[0]}"]
    return [f"{head} {{", *(f"{step}{statement}" for statement in statements), "}"]


def _shrink(tree: Tree, variable: Variable, *, told: bool) -> Iterator[Edit]:
    """The array with an element per warp; a comment says so unless it was `told` of another one."""
    if "extern" in variable.qualifiers:
        return
    array = next(tree.walk("array_declarator", under=variable.node))
    size = array.child_by_field_name("size")
    if size is not None:
        yield tree.replace(size, str(WARPS))
        end = tree.span(variable.declaration)[1]
        if not told and tree.kernel.unit.text[end : end + 1] == "\n":
            yield end, end, "  // one element per warp"


def _finish(
    request: SuggestRequest, kernel: Kernel, arrays: dict[str, Variable], count: int, threads: int
) -> Iterator[Rewrite]:
    contract = request.contract
    dynamic = [variable for variable in arrays.values() if "extern" in variable.qualifiers]
    saved = 0
    if dynamic:
        needed = WARPS * ELEMENT_BYTES[dynamic[0].type]
        had = launch_shape(contract, contract.sizes[0]).shared_bytes
        if had > needed:
            saved += had - needed
            contract = replace(contract, shared=f"{WARPS} * {ELEMENT_BYTES[dynamic[0].type]}")
            kernel = change_launch(kernel, shared=contract.shared, contract=request.contract)
    constants = integer_constants(request.kernel.unit.text)
    for variable in arrays.values():
        if "extern" not in variable.qualifiers:
            saved += ((integer_value(variable.dims[0], constants) or WARPS) - WARPS) * ELEMENT_BYTES[variable.type]
    names = " and ".join(arrays)
    barriers = threads.bit_length()
    yield Rewrite(
        kernel,
        contract,
        f"A tree in shared memory keeps one element per thread in {names} and takes {barriers} barriers; shuffles within warps "
        f"keep one per warp and take 2: {saved} bytes of shared memory per block less"
        f"{'' if count == 1 else f', in {count} reductions'}.",
    )
