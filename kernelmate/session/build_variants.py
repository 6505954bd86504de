"""Builds of a candidate with other compiler options, made if its text gives a reason.

Optimised code hides reads of uninitialised variables. Unoptimised code keeps such variables separate, so that the judge
can vary their initial contents. Text that tests the architecture is compiled for architectures on both sides of the
test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import tree_sitter

from kernelmate.checks.guards.compilers import architectures
from kernelmate.compiler import TARGETS
from kernelmate.errors import KernelmateError
from kernelmate.records import BuildVariant, Kernel
from kernelmate.session.preparing import KernelPreparer, PreparedVersion
from kernelmate.suggest.syntax import language

UNOPTIMISED = "--device-debug"
MOST_ARCHITECTURES = 3

_ELSEWHERE = frozenset({"__shared__", "extern", "static", "__constant__", "__device__", "typedef", "constexpr"})
_DECLARED = frozenset({"identifier", "array_declarator", "pointer_declarator"})


def twins_of(prepared: PreparedVersion, baseline: Kernel | None, preparer: KernelPreparer) -> tuple[BuildVariant, ...]:
    """Returns build variants to run beside a version; those that do not compile are left out."""
    kernel = prepared.kernel
    if kernel.unit.built is not None:
        return ()  # only its own compiler could build it otherwise
    if kernel.parts:
        return ()  # what no stage has initialised shows between the stages
    found = []
    if prepared.contract is not None and is_unassigned(kernel):
        found.append(_twin(prepared, preparer, None))
    numbers = architectures(kernel.unit.text, baseline.unit.text) if baseline is not None else frozenset[int]()
    for arch in _architectures(numbers, preparer.target.arch)[:MOST_ARCHITECTURES]:
        found.append(_twin(prepared, preparer, arch))
    return tuple(twin for twin in found if twin is not None)


def _twin(prepared: PreparedVersion, preparer: KernelPreparer, arch: str | None) -> BuildVariant | None:
    assert prepared.contract is not None
    try:
        compiled = preparer.compiled_as(
            prepared.kernel, prepared.contract, prepared.compiled.instance, arch, (UNOPTIMISED,) if arch is None else ()
        )
    except KernelmateError:
        return None
    return BuildVariant(compiled, arch) if compiled.ok else None


def _architectures(numbers: frozenset[int], arch: str) -> list[str]:
    """Returns architectures on either side of each number, and the number itself, the nearest first."""
    known = sorted({int("".join(filter(str.isdigit, target.arch))) for target in TARGETS})
    wanted: dict[str, None] = {}
    for number in sorted(numbers):
        wanted |= {f"sm_{one}": None for one in known if one == number // 10}
        wanted |= {f"sm_{one}": None for one in [one for one in known if one < number // 10][-1:]}
        wanted |= {f"sm_{one}": None for one in [one for one in known if one > number // 10][:1]}
    return [one for one in wanted if one != arch.rstrip("af")]


def is_unassigned(kernel: Kernel) -> bool:
    """Returns True if, judging by the text, a variable of the kernel or its helpers may be read before it has a value."""
    tree = tree_sitter.Parser(language()).parse(kernel.unit.text.encode())
    return any(not _is_assigned_next(node, name) for node, name in _without_value(tree.root_node))


def _without_value(root: tree_sitter.Node) -> Iterator[tuple[tree_sitter.Node, tree_sitter.Node]]:
    """Yields declarations in function bodies, with each declarator without an initialiser."""
    pending = [root]
    while pending:
        node = pending.pop()
        pending += node.named_children
        if node.type != "declaration" or node.parent is None or node.parent.type != "compound_statement":
            continue
        if not _on_device(node):
            continue
        words = {_text(child) for child in node.children if child.type in {"type_qualifier", "storage_class_specifier"}}
        if words & _ELSEWHERE:
            continue
        for declarator in node.children_by_field_name("declarator"):
            if declarator.type in _DECLARED:
                yield node, declarator


def _on_device(node: tree_sitter.Node) -> bool:
    """Returns True if a statement is in a kernel or a device function."""
    function: tree_sitter.Node | None = node
    while function is not None:
        body = function.child_by_field_name("body") if function.type == "function_definition" else None
        if body is not None and function.text is not None:
            head = function.text[: body.start_byte - function.start_byte]
            if b"__global__" in head or b"__device__" in head:
                return True
        function = function.parent
    return False


def _is_assigned_next(declaration: tree_sitter.Node, declarator: tree_sitter.Node) -> bool:
    """Returns True if the first statement that names a variable assigns to all of it on every path."""
    name = declarator
    while name.type != "identifier":
        inner = name.child_by_field_name("declarator")
        if inner is None:
            return False
        name = inner
    following = declaration.next_named_sibling
    while following is not None and not _names(following, _text(name)):
        following = following.next_named_sibling
    if following is None:
        return True
    if following.type == "for_statement":
        if declarator.type == "array_declarator":
            return _fills(following, declarator, _text(name))
        member = _only_member(declaration)
        return member is not None and _fills(following, member, _text(name), member=True)
    if following.type != "expression_statement" or not following.named_children:
        return False
    expression = following.named_children[0]
    if expression.type == "gnu_asm_expression":
        outputs = expression.child_by_field_name("output_operands")
        return outputs is not None and _names(outputs, _text(name)) and '"+' not in _text(outputs)
    return _is_assignment(expression, _text(name), "identifier")


def _only_member(declaration: tree_sitter.Node) -> tree_sitter.Node | None:
    """Returns the declarator of the array that is the only member of a declaration's struct; None for other types."""
    root, kind = declaration, declaration.child_by_field_name("type")
    while root.parent is not None:
        root = root.parent
    pending = [root]
    while pending and kind is not None:
        node = pending.pop()
        pending += node.named_children
        named = node.child_by_field_name("name") if node.type == "struct_specifier" else None
        body = node.child_by_field_name("body")
        if named is None or body is None or _text(named) != _text(kind):
            continue
        members = [one for one in body.named_children if one.type != "comment"]
        found = members[0].children_by_field_name("declarator") if len(members) == 1 else []
        return found[0] if len(found) == 1 and found[0].type == "array_declarator" else None
    return None


def _fills(loop: tree_sitter.Node, declarator: tree_sitter.Node, name: str, *, member: bool = False) -> bool:
    """Returns True if loops over all extents of an array, or of a struct's member, assign each element before reading any."""
    extents = []
    while declarator.type == "array_declarator":
        size, inner = declarator.child_by_field_name("size"), declarator.child_by_field_name("declarator")
        if size is None or inner is None:
            return False
        extents.append(_text(size))
        declarator = inner
    limits: list[str] = []
    statement: tree_sitter.Node | None = loop
    while statement is not None and statement.type == "for_statement":
        limit = _limit(statement)
        if limit is None:
            return False
        limits.append(limit)
        body = statement.child_by_field_name("body")
        within = body.named_children if body is not None and body.type == "compound_statement" else [body]
        statement = next((one for one in within if one is not None and _names(one, name)), None)
    if statement is None or statement.type != "expression_statement" or sorted(limits) != sorted(extents):
        return False
    return _is_assignment(statement.named_children[0], name, "subscript_expression", member=member)


def _limit(loop: tree_sitter.Node) -> str | None:
    """Returns the bound of a loop that counts from 0 in steps of one; None for other loops."""
    first, condition, update = (loop.child_by_field_name(part) for part in ("initializer", "condition", "update"))
    if first is None or condition is None or update is None or "++" not in _text(update):
        return None
    last = condition.child_by_field_name("right")
    upwards = "<" in {child.type for child in condition.children}
    return _text(last) if last is not None and upwards and re.search(r"=\s*0\s*;?$", _text(first)) else None


def _is_assignment(expression: tree_sitter.Node, name: str, kind: str, *, member: bool = False) -> bool:
    left, right = expression.child_by_field_name("left"), expression.child_by_field_name("right")
    if expression.type != "assignment_expression" or left is None or right is None or left.type != kind:
        return False
    steps = []
    while left.type in ("subscript_expression", "field_expression"):
        inner = left.child_by_field_name("argument")
        if inner is None:
            return False
        steps.append(left.type)
        left = inner
    if steps.count("field_expression") != member or (member and steps[-1] != "field_expression"):
        return False
    plain = any(child.type == "=" for child in expression.children)
    return plain and _text(left) == name and not _names(right, name)


def _names(node: tree_sitter.Node, name: str) -> bool:
    pending = [node]
    while pending:
        one = pending.pop()
        if one.type == "identifier" and _text(one) == name:
            return True
        pending += one.named_children
    return False


def _text(node: tree_sitter.Node) -> str:
    return (node.text or b"").decode(errors="replace")
