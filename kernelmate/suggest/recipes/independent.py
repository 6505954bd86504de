"""Loops whose iterations may run in any order, by any thread."""

from __future__ import annotations

from kernelmate.suggest.syntax import Tree
from kernelmate.suggest.syntax_effects import (
    call_name,
    declared_names,
    element_accesses,
    index_of,
    is_written,
    names,
    only_pure_calls,
    plain,
    root_name,
    written_names,
)
from kernelmate.suggest.syntax_loops import CountingLoop

ATOMICS = frozenset({"atomicAdd", "atomicMax", "atomicMin", "atomicAnd", "atomicOr", "atomicXor"})


def independent_turns(tree: Tree, loop: CountingLoop) -> bool:
    """Returns True if no iteration depends on another.

    An iteration may write its own variables, elements whose index depends on the loop variable if the loop accesses the
    array in no other way, and targets of atomics whose old value is not used.
    """
    if next(tree.walk("return_statement", "break_statement", "goto_statement", under=loop.block), None) is not None:
        return False
    if not only_pure_calls(tree, loop.block, ATOMICS):
        return False
    own = declared_names(tree, loop.block) | {loop.name}
    for call in tree.walk("call_expression", under=loop.block):
        if call_name(tree, call) in ATOMICS and (call.parent is None or call.parent.type != "expression_statement"):
            return False
    atomic = _atomic_targets(tree, loop)
    for name in written_names(tree, loop.block) - own - atomic:
        if not _own_element(tree, loop, name, own):
            return False
    return not any(name in atomic for name in _read_arrays(tree, loop))


def _atomic_targets(tree: Tree, loop: CountingLoop) -> set[str]:
    found = set()
    for call in tree.walk("call_expression", under=loop.block):
        arguments = call.child_by_field_name("arguments")
        if call_name(tree, call) in ATOMICS and arguments is not None and arguments.named_children:
            found |= names(tree, arguments.named_children[0]) & {
                p.name for p in tree.kernel.signature.parameters if p.pointer
            }
    return found


def _read_arrays(tree: Tree, loop: CountingLoop) -> set[str]:
    found = set()
    for element in element_accesses(tree, loop.block):
        inside_atomic = element.parent is not None and element.parent.type == "pointer_expression"
        name = root_name(tree, element)
        if name is not None and not inside_atomic and not is_written(tree, element):
            found.add(name)
    return found


def _own_element(tree: Tree, loop: CountingLoop, name: str, own: set[str]) -> bool:
    """Returns True if the loop accesses the array at one index only, which depends on the loop variable."""
    variable = tree.variable(name)
    if variable is None or not variable.pointers:
        return False
    uses = [use for use in tree.uses(name) if loop.block.start_byte <= use.start_byte < loop.block.end_byte]
    elements = [element for element in element_accesses(tree, loop.block) if root_name(tree, element) == name]
    indices = [index_of(element) for element in elements]
    if len(uses) != len(elements) or any(index is None for index in indices):
        return False
    texts = {plain(tree, index) for index in indices if index is not None}
    first = indices[0]
    return len(texts) == 1 and first is not None and _depends(tree, names(tree, first), loop, own)


def _depends(tree: Tree, used: set[str], loop: CountingLoop, own: set[str]) -> bool:
    if loop.name in used:
        return True
    for name in used & own:
        variable = tree.variable(name)
        if variable is not None and variable.value is not None and loop.name in names(tree, variable.value):
            return True
    return False
