"""Initialises the variable that accumulates a sum, product or extreme.

Local variables are initialised in their declaration, shared ones by the block's threads before a barrier, and elements
of an output by the thread that accumulates them.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.records import WRONG_OUTPUTS
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Rewrite
from kernelmate.suggest.repairs.base import UNINITIALISED, Repair
from kernelmate.suggest.syntax import DeclaredVariable, Edit, Node, Tree, read_tree, statement_expression
from kernelmate.suggest.syntax_effects import (
    call_name,
    element_accesses,
    indent_of,
    index_of,
    is_written,
    operator,
    plain,
    root_name,
)
from kernelmate.suggest.syntax_loops import enclosing_loops, invariant

_STARTS = {"+=": "0", "-=": "0", "|=": "0", "^=": "0", "*=": "1"}


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate for all uninitialised local and shared variables, then one for each accumulated output."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    edits, told = [], []
    for name, start in _gathered(tree):
        variable = tree.variable(name)
        if variable is None or variable.value is not None or variable.pointers or "extern" in variable.qualifiers:
            continue
        edits.append(_shared(tree, variable, start) if variable.shared else _local(tree, variable, start))
        told.append(f"`{name}`")
    if edits:
        why = f"{' and '.join(told)} accumulates values but has no initial value; it is initialised."
        yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)
    yield from _outputs(request, tree)


REPAIR = Repair("unset-start", ("correct",), (), rewrites, UNINITIALISED | WRONG_OUTPUTS)


def _gathered(tree: Tree) -> Iterator[tuple[str, str]]:
    """Yields accumulated variables, once each, with their initial value."""
    seen: set[str] = set()
    for node in tree.walk("assignment_expression", "call_expression", "update_expression"):
        found = _of_update(tree, node)
        if found is not None and found[0] not in seen and _begins_with(tree, found[0], node):
            seen.add(found[0])
            yield found


def _of_update(tree: Tree, node: Node) -> tuple[str, str] | None:
    if node.type == "call_expression":
        arguments = node.child_by_field_name("arguments")
        if call_name(tree, node) != "atomicAdd" or arguments is None or not arguments.named_children:
            return None
        first = arguments.named_children[0]
        place = first.child_by_field_name("argument") if first.type == "pointer_expression" else first
        name = None if place is None else root_name(tree, place)
        return None if name is None else (name, "0")
    place = node.child_by_field_name("argument" if node.type == "update_expression" else "left")
    name = None if place is None else root_name(tree, place)
    if place is None or name is None:
        return None
    if node.type == "update_expression":
        return name, "0"
    sign, right = operator(tree, node), node.child_by_field_name("right")
    if sign in _STARTS:
        return name, _STARTS[sign]
    if sign != "=" or right is None or right.type != "call_expression" or plain(tree, place) not in plain(tree, right):
        return None
    extreme = call_name(tree, right)
    return {"max": (name, "-INFINITY"), "min": (name, "INFINITY")}.get(extreme.removeprefix("f").removesuffix("f"))


def _begins_with(tree: Tree, name: str, node: Node) -> bool:
    """Returns True if the variable's first use in the text is an accumulation."""
    uses = tree.uses(name)
    return bool(uses) and node.start_byte <= uses[0].start_byte < node.end_byte


def _local(tree: Tree, variable: DeclaredVariable, start: str) -> Edit:
    end = tree.span(variable.node)[1]
    return end, end, " = {}" if variable.dims else f" = {start}"


def _shared(tree: Tree, variable: DeclaredVariable, start: str) -> Edit:
    """Returns the initialisation of a shared variable: a scalar by the first thread, an array by all threads."""
    end, indent = tree.span(variable.declaration)[1], indent_of(tree, variable.declaration)
    number = "threadIdx.x"
    if any(axis in tree.text(tree.body) for axis in ("threadIdx.y", "blockDim.y")):
        number = "threadIdx.y * blockDim.x + threadIdx.x"
    if not variable.dims:
        text = f"if ({number} == 0) {variable.name} = {start};"
    else:
        size = " * ".join(f"({dim})" if not dim.isalnum() else dim for dim in variable.dims)
        element = (
            f"{variable.name}[at]" if len(variable.dims) == 1 else f"(&{variable.name}{'[0]' * len(variable.dims)})[at]"
        )
        step = "blockDim.x * blockDim.y" if number != "threadIdx.x" else "blockDim.x"
        text = f"for (int at = {number}; at < {size}; at += {step}) {element} = {start};"
    return end, end, f"\n{indent}{text}\n{indent}__syncthreads();"


def _outputs(request: SuggestRequest, tree: Tree) -> Iterator[Rewrite]:
    """Yields rewrites of `y[i] += v` for an output: the first iteration stores, or a store precedes the loop."""
    written = {arg.name for arg in request.contract.args if arg.direction == "out"}
    for element in element_accesses(tree):
        parent, index, name = element.parent, index_of(element), root_name(tree, element)
        if name not in written or parent is None or parent.type != "assignment_expression" or index is None:
            continue
        start = _STARTS.get(operator(tree, parent))
        if start is None or not is_written(tree, element) or statement_expression(parent.parent) is None:
            continue
        loop = next((one for one in reversed(enclosing_loops(parent)) if invariant(tree, index, one)), None)
        if loop is None:
            sign = parent.child_by_field_name("operator")
            assert sign is not None, "an assignment has an operator"
            edit = tree.replace(sign, "=")
            why = f"`{name}` is an output, whose old contents mean nothing: it is stored, not added to."
        else:
            place = tree.span(loop)[0]
            edit = (place, place, f"{tree.text(element)} = {start};\n{indent_of(tree, loop)}")
            why = f"`{name}` is an output, whose old contents mean nothing: the element is set before it is added to."
        yield Rewrite(apply_edits(request.kernel, [edit]), request.contract, why)
