"""Accumulates in float instead of half: variables and shared arrays of half types become float.

Applies to local variables and shared arrays of `__half` or `__nv_bfloat16`; arguments keep their types. A half has 11
significant bits and a bfloat16 8, so that small terms are lost in a sum of a few hundred elements. Improves accuracy,
and costs shared memory if arrays become wider; arithmetic in float is as fast as in single halves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import DeclaredVariable, Edit, Node, Tree, read_tree, strip_parentheses
from kernelmate.suggest.syntax_effects import call_name, operator, replaced, root_name

NARROW = {
    "__half": ("__half2float", "__float2half"), "half": ("__half2float", "__float2half"),
    "__nv_bfloat16": ("__bfloat162float", "__float2bfloat16"), "nv_bfloat16": ("__bfloat162float", "__float2bfloat16"),
}  # fmt: skip
"""Each half type with its conversions to and from float."""

_PAIRS = re.compile(r"\b(?:__)?half2\b|\b(?:__)?nv_bfloat162\b|\b__h\w+2\b|__(?:low|high|floats?)2?2?\w*half2")
"""Types and functions of two halves at once; kernels that contain any are not changed."""

_BINARY = {
    "__hadd": "+",
    "__hsub": "-",
    "__hmul": "*",
    "__hdiv": "/",
    "__hadd_rn": "+",
    "__hsub_rn": "-",
    "__hmul_rn": "*",
}  # fmt: skip
_COMPARED = {"__hgt": ">", "__hge": ">=", "__hlt": "<", "__hle": "<=", "__heq": "=="}
_FUNCTIONS = {"hexp": "expf", "hlog": "logf", "hsqrt": "sqrtf", "hrsqrt": "rsqrtf", "hsin": "sinf", "hcos": "cosf", "hrcp": "1.0f / ", "__habs": "fabsf", "__hmax": "fmaxf", "__hmin": "fminf"}  # fmt: skip


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate with every local variable and shared array of a half type in float."""
    tree = read_tree(request.kernel)
    if tree is None or _PAIRS.search(request.kernel.source):
        return
    wanted = {v.name: v for v in tree.variables.values() if v is not None and _is_local(v)}
    gathered = [name for name in wanted if _gathers(tree, name)]
    kinds = {NARROW[variable.type] for variable in wanted.values()}
    if not gathered or len(kinds) != 1:
        return
    edits = _Widening(tree, set(wanted), *kinds.pop()).edits(list(wanted.values()))
    if edits is None:
        return
    names = " and ".join(f"`{name}`" for name in gathered)
    why = f"{names} accumulates values in {wanted[gathered[0]].type}, which loses what is smaller than its last bit at every step; in float it keeps 24 bits and is rounded once, where it is stored."  # fmt: skip
    yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)


RECIPE = Recipe("wider-accumulators", ("accuracy",), ("shared_bytes",), rewrites)


def _is_local(variable: DeclaredVariable) -> bool:
    inside = variable.declaration.type == "declaration" and "extern" not in variable.qualifiers
    return inside and variable.type in NARROW and not variable.pointers


def _gathers(tree: Tree, name: str) -> bool:
    """Returns True if the variable accumulates: a value assigned to it depends on itself."""
    for node in tree.walk("assignment_expression"):
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None or root_name(tree, left) != name:
            continue
        own = any(tree.text(one) == name for one in tree.walk("identifier", under=right))
        if operator(tree, node) in {"+=", "-=", "*="} or own:
            return True
    return False


class _Widening:
    """Conversion of expressions of halves to expressions of floats, after some variables have become float.

    Args:
        tree: the kernel.
        names: names of the variables that become float.
        up, down: names of the conversions to and from float.
    """

    def __init__(self, tree: Tree, names: set[str], up: str, down: str) -> None:
        self._tree, self._names, self._up, self._down = tree, names, up, down

    def edits(self, variables: list[DeclaredVariable]) -> list[Edit] | None:
        """Returns edits for the whole kernel; None if the address of a variable is passed on."""
        tree = self._tree
        edits: list[Edit] = []
        for declaration in {v.declaration.id: v.declaration for v in variables}.values():
            kind = declaration.child_by_field_name("type")
            if kind is None:
                return None
            edits.append(tree.replace(kind, "float"))
        done: list[Node] = []
        for node in tree.walk("init_declarator", "assignment_expression"):
            place = node.child_by_field_name("declarator" if node.type == "init_declarator" else "left")
            value = node.child_by_field_name("value" if node.type == "init_declarator" else "right")
            name = None if place is None else self._name_of(place, node)
            if place is None or value is None or name not in self._names:
                continue
            if value.type in {"initializer_list", "assignment_expression"}:
                return None
            edits.append(tree.replace(value, self.float_of(value)))
            done.append(value)
        for use in tree.walk("identifier"):
            if tree.text(use) not in self._names or any(v.start_byte <= use.start_byte < v.end_byte for v in done):
                continue
            edit = self._read(use)
            if edit is None:
                return None
            if edit != (0, 0, "") and edit not in edits:
                edits.append(edit)
        return edits

    def _name_of(self, place: Node, node: Node) -> str | None:
        if node.type == "init_declarator":
            found = self._tree.name_node(place)
            return None if found is None else self._tree.text(found)
        return root_name(self._tree, place)

    def _read(self, use: Node) -> Edit | None:
        """Returns the edit for a use outside of assignments to these variables; (0, 0, "") if none is needed."""
        tree = self._tree
        element = use
        while element.parent is not None and element.parent.type == "subscript_expression":
            if element.parent.child_by_field_name("argument") != element:
                break
            element = element.parent
        parent = element.parent
        if parent is None or parent.type == "pointer_expression":
            return None
        declared = parent.type.endswith("declarator") or parent.type == "declaration"
        left = parent.child_by_field_name("left") if parent.type == "assignment_expression" else None
        if declared or (left is not None and left.id == element.id):
            return 0, 0, ""
        call = parent.parent if parent.type == "argument_list" else None
        if call is not None and call.type == "call_expression":
            if call_name(tree, call) == self._up:
                return tree.replace(call, tree.text(element))
            if call_name(tree, call) in _COMPARED:
                return tree.replace(call, self.float_of(call))
        return tree.replace(element, f"{self._down}({tree.text(element)})")

    def float_of(self, node: Node) -> str:
        """Returns the text of an expression of halves as an expression of floats."""
        tree = self._tree
        node = strip_parentheses(node)
        if node.type in {"identifier", "subscript_expression"} and root_name(tree, node) in self._names:
            return tree.text(node)
        if node.type == "number_literal":
            return tree.text(node)
        if node.type == "binary_expression" and operator(tree, node) in {"+", "-", "*", "/"}:
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            if left is not None and right is not None:
                return f"({self.float_of(left)} {operator(tree, node)} {self.float_of(right)})"
        if node.type == "conditional_expression":
            parts = [node.child_by_field_name(part) for part in ("condition", "consequence", "alternative")]
            if all(part is not None for part in parts):
                condition, yes, no = (part for part in parts if part is not None)
                return f"({self._with_halves(condition)} ? {self.float_of(yes)} : {self.float_of(no)})"
        if node.type == "call_expression":
            return self._float_of_call(node)
        return f"{self._up}({self._with_halves(node)})"

    def _float_of_call(self, call: Node) -> str:
        name = call_name(self._tree, call)
        arguments = call.child_by_field_name("arguments")
        given = [] if arguments is None else arguments.named_children
        if re.fullmatch(r"__float2(?:half|bfloat16)(?:_rn)?|__half|half|__nv_bfloat16", name) and len(given) == 1:
            return f"({self._with_halves(given[0])})"
        if name in _BINARY and len(given) == 2:
            return f"({self.float_of(given[0])} {_BINARY[name]} {self.float_of(given[1])})"
        if name in _COMPARED and len(given) == 2:
            return f"({self.float_of(given[0])} {_COMPARED[name]} {self.float_of(given[1])})"
        if name in {"__hfma", "__hfma_rn"} and len(given) == 3:
            return f"({self.float_of(given[0])} * {self.float_of(given[1])} + {self.float_of(given[2])})"
        if name in _FUNCTIONS:
            return f"{_FUNCTIONS[name]}({', '.join(map(self.float_of, given))})"
        if name.startswith("__shfl_") and len(given) >= 3:
            rest = ", ".join(self._tree.text(one) for one in given[2:])
            return f"{name}({self._tree.text(given[0])}, {self.float_of(given[1])}, {rest})"
        return f"{self._up}({self._with_halves(call)})"

    def _with_halves(self, node: Node) -> str:
        """Returns an expression's text with the variables converted back to halves."""
        tree = self._tree
        changes = []
        for use in tree.walk("identifier", under=node):
            if tree.text(use) not in self._names:
                continue
            element = use
            while (
                element.parent is not None and element.parent.type == "subscript_expression" and element.id != node.id
            ):
                element = element.parent
            call = None if element.parent is None else element.parent.parent
            if call is not None and call.type == "call_expression" and call_name(tree, call) == self._up:
                changes.append((call.start_byte, call.end_byte, tree.text(element)))
            else:
                changes.append((element.start_byte, element.end_byte, f"{self._down}({tree.text(element)})"))
        return replaced(tree, node, changes)
