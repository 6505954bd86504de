"""Double literals and functions in float code: `0.5` makes the whole expression double, on some GPUs 64 times slower."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from kernelmate.records import Kernel
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree

FLOAT_MAX = 3.4028234663852886e38
FLOAT_MIN = 1.1754943508222875e-38

FUNCTIONS = frozenset(
    [
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "cbrt",
        "ceil",
        "copysign",
        "cos",
        "cosh",
        "cospi",
        "erf",
        "erfc",
        "erfcinv",
        "erfcx",
        "erfinv",
        "exp",
        "exp10",
        "exp2",
        "expm1",
        "fabs",
        "fdim",
        "floor",
        "fma",
        "fmax",
        "fmin",
        "fmod",
        "hypot",
        "ldexp",
        "lgamma",
        "log",
        "log10",
        "log1p",
        "log2",
        "nearbyint",
        "normcdf",
        "pow",
        "remainder",
        "rhypot",
        "rint",
        "round",
        "rsqrt",
        "sin",
        "sinh",
        "sinpi",
        "sqrt",
        "tan",
        "tanh",
        "tgamma",
        "trunc",
    ]
)
"""Double functions whose float version has the same name with an `f`."""

EITHER = frozenset({"min", "max", "abs"})
"""Overloaded functions that take the type of their arguments."""

ROUNDED = frozenset({"ceil", "floor", "round", "rint", "trunc", "nearbyint"})

DOUBLE_LITERAL = re.compile(
    r"(?:\d[\d']*\.[\d']*|\.\d[\d']*)(?:[eE][+-]?\d+)?|\d[\d']*[eE][+-]?\d+|0[xX][\da-fA-F]*\.?[\da-fA-F]*[pP][+-]?\d+"
)
FLOAT_LITERAL = re.compile(rf"(?:{DOUBLE_LITERAL.pattern})[fF]")
INTEGER_LITERAL = re.compile(r"(?:0[xX][\da-fA-F']+|0[bB][01']+|\d[\d']*)[uUlLzZ]*")

INTEGERS = frozenset(
    [
        "int",
        "unsigned",
        "short",
        "long",
        "char",
        "bool",
        "size_t",
        "int8_t",
        "int16_t",
        "int32_t",
        "int64_t",
        "uint8_t",
        "uint16_t",
        "uint32_t",
        "uint64_t",
        "uint",
        "ptrdiff_t",
        "signed",
    ]
)


@dataclass(slots=True)
class Expression:
    """One arithmetic expression: what is double in it by spelling only, and whether anything else is."""

    literals: list[Node] = field(default_factory=list)
    functions: list[Node] = field(default_factory=list)
    has_float: bool = False
    convertible: bool = True


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """One candidate: every expression whose doubles come from spelling alone, and whose result becomes a float."""
    tree = read_tree(request.kernel)
    if tree is None or ".f64" not in request.compiled.ptx:
        return
    macros = _literal_macros(request.kernel)
    edits: dict[tuple[int, int], str] = {}
    changed: list[str] = []
    for top in _tops(tree, macros):
        expression = Expression()
        kind = _kind(tree, top, expression, macros)
        if kind != "double" or not expression.convertible or not _becomes_float(tree, top, expression, macros):
            continue
        for start, end, new in _edits(tree, expression, macros):
            edits[start, end] = new
        changed += [tree.text(node) for node in (*expression.literals, *expression.functions)]
    if edits:
        kernel = apply_edits(request.kernel, [(start, end, new) for (start, end), new in edits.items()])
        yield Rewrite(kernel, request.contract, _why(request, changed))


RECIPE = Recipe("float-literals", ("time", "registers"), ("accuracy",), rewrites)


@dataclass(frozen=True, slots=True)
class Macro:
    """An object-like macro that is one double literal, used in this kernel only; `span` is the literal's."""

    text: str
    span: tuple[int, int]


def _literal_macros(kernel: Kernel) -> dict[str, Macro]:
    text = kernel.unit.text
    found: dict[str, Macro] = {}
    for match in re.finditer(
        r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\(?([-\w.+']+)\)?[ \t]*(?://.*)?$", text, re.MULTILINE
    ):
        literal = match[2].lstrip("-")
        if not DOUBLE_LITERAL.fullmatch(literal):
            continue
        outside = text[: match.start()] + text[match.end() : kernel.start] + text[kernel.end :]
        if not re.search(rf"\b{match[1]}\b", outside):
            end = match.end(2)
            found[match[1]] = Macro(literal, (end - len(literal), end))
    return found


def _tops(tree: Tree, macros: dict[str, Macro]) -> Iterator[Node]:
    """The largest arithmetic expression around each double literal or double function, each once."""
    seen: set[int] = set()
    for node in tree.walk("number_literal", "call_expression", "identifier"):
        if node.type == "number_literal" and not DOUBLE_LITERAL.fullmatch(tree.text(node)):
            continue
        if node.type == "identifier" and tree.text(node) not in macros:
            continue
        if node.type == "call_expression" and _function(tree, node) not in FUNCTIONS:
            continue
        top = _top(tree, node)
        if top.id not in seen:
            seen.add(top.id)
            yield top


def _top(tree: Tree, node: Node) -> Node:
    while node.parent is not None:
        parent = node.parent
        if parent.type == "argument_list":
            call = parent.parent
            if call is None or _function(tree, call) not in FUNCTIONS | EITHER:
                return node
            node = call
        elif _carries_type(parent, node):
            node = parent
        else:
            return node
    return node


def _carries_type(parent: Node, node: Node) -> bool:
    """The parent's type follows from this operand's."""
    if parent.type == "binary_expression":
        return _operator(parent) in {"+", "-", "*", "/"}
    if parent.type == "conditional_expression":
        return not _is_condition(parent, node)
    return parent.type in {"parenthesized_expression", "unary_expression"}


def _is_condition(parent: Node, node: Node) -> bool:
    condition = parent.child_by_field_name("condition")
    return condition is not None and condition.id == node.id


def _operator(node: Node) -> str:
    operator = node.child_by_field_name("operator")
    return "" if operator is None or operator.text is None else operator.text.decode()


def _function(tree: Tree, call: Node) -> str:
    function = call.child_by_field_name("function")
    if function is None:
        return ""
    return tree.text(function).removeprefix("::").removeprefix("std::")


# -------------------------------------------------------------------------------------------- types


def _kind(tree: Tree, node: Node, found: Expression, macros: dict[str, Macro]) -> str | None:
    """`float`, `double`, `int` or None (unknown: then the expression stays as it is)."""
    kind = _find_kind(tree, node, found, macros)
    if kind is None:
        found.convertible = False
    elif kind == "float":
        found.has_float = True
    return kind


def _find_kind(tree: Tree, node: Node, found: Expression, macros: dict[str, Macro]) -> str | None:
    text = tree.text(node)
    children = node.named_children
    if node.type == "number_literal":
        return _literal_kind(node, text, found)
    if node.type == "identifier" and text in macros and tree.variable(text) is None:
        found.literals.append(node)
        return _in_range(macros[text].text, "double")
    if node.type in {"identifier", "subscript_expression", "pointer_expression", "field_expression"}:
        return _given(_leaf_kind(tree, node), found)
    if node.type in {"parenthesized_expression", "unary_expression"} and len(children) == 1:
        if node.type == "unary_expression" and text[0] not in "+-":
            return "int"
        return _kind(tree, children[0], found, macros)
    if node.type == "binary_expression":
        if _operator(node) not in {"+", "-", "*", "/"}:
            return "int"
        return _wider([_kind(tree, child, found, macros) for child in children])
    if node.type == "conditional_expression":
        branches = [node.child_by_field_name("consequence"), node.child_by_field_name("alternative")]
        return _wider([_kind(tree, branch, found, macros) for branch in branches if branch is not None])
    if node.type == "call_expression":
        return _call_kind(tree, node, found, macros)
    if node.type == "cast_expression":
        return _given(_type_kind(tree.text(children[0])), found)
    return None


def _given(kind: str | None, found: Expression) -> str | None:
    """The type of what is declared so: a double that is no matter of spelling keeps the expression as it is."""
    if kind == "double":
        found.convertible = False
    return kind


def _literal_kind(node: Node, text: str, found: Expression) -> str | None:
    if DOUBLE_LITERAL.fullmatch(text):
        found.literals.append(node)
        return _in_range(text, "double")
    if FLOAT_LITERAL.fullmatch(text):
        return "float"
    return "int" if INTEGER_LITERAL.fullmatch(text) else None


def _in_range(text: str, kind: str) -> str | None:
    """A literal that float can hold; one that would become 0 or infinite stays double."""
    plain = text.replace("'", "")
    value = float.fromhex(plain) if plain.lower().startswith("0x") else float(plain)
    return kind if value == 0 or FLOAT_MIN <= abs(value) <= min(FLOAT_MAX, inf) else None


def _leaf_kind(tree: Tree, node: Node) -> str | None:
    """The type of a variable, an element of an array, or a component such as `threadIdx.x`."""
    text = tree.text(node).replace(" ", "")
    if re.fullmatch(r"(?:threadIdx|blockIdx|blockDim|gridDim)\.[xyz]|warpSize", text):
        return "int"
    levels, root = 0, node
    component = False
    while root.type != "identifier":
        if root.type == "subscript_expression" or tree.text(root).startswith("*"):
            levels += 1
        elif root.type == "field_expression":
            component = True
        elif root.type not in {"parenthesized_expression", "binary_expression"}:
            return None
        inner = (
            root.child_by_field_name("argument")
            or root.child_by_field_name("left")
            or next(iter(root.named_children), None)
        )
        if inner is None:
            return None
        root = inner
    variable = tree.variable(tree.text(root))
    if variable is None or variable.pointers + len(variable.dims) != levels:
        return None
    if component:
        return "float" if re.fullmatch(r"(?:const )?float[234]", variable.type) else None
    return _type_kind(variable.type)


def _type_kind(text: str) -> str | None:
    words: list[str] = [word for word in re.findall(r"\w+", text) if word not in {"const", "volatile", "std"}]
    if words == ["float"] or words == ["double"]:
        return words[0]
    return "int" if words and set(words) <= INTEGERS and "*" not in text else None


def _wider(kinds: list[str | None]) -> str | None:
    if None in kinds or not kinds:
        return None
    return next((kind for kind in ("double", "float", "int") if kind in kinds), None)


def _call_kind(tree: Tree, call: Node, found: Expression, macros: dict[str, Macro]) -> str | None:
    name = _function(tree, call)
    arguments = call.child_by_field_name("arguments")
    if arguments is None:
        return None
    if name in FUNCTIONS or name in EITHER:
        kinds = [_kind(tree, argument, found, macros) for argument in arguments.named_children]
        wider = _wider(kinds)
        if name in EITHER:
            return wider
        function = call.child_by_field_name("function")
        if wider in {"double", "int"} or (name == "pow" and "int" in kinds):
            wider = "double"
        if function is not None and wider is not None:
            found.functions.append(function)
        return wider
    if re.fullmatch(
        r"__(?:f\w+_r[nzud]|(?:exp|log|sin|cos|pow|tan|exp10|log2|log10)f|fdividef|saturatef|int2float_\w+|half2float|ldg)",
        name,
    ):
        return "float" if name != "__ldg" else None
    if name.removesuffix("f") in FUNCTIONS and name.endswith("f"):
        return "float"
    return _given(_type_kind(name), found) if name in INTEGERS | {"float", "double"} else None


# -------------------------------------------------------------------------------------------- what becomes of it


def _becomes_float(tree: Tree, top: Node, expression: Expression, macros: dict[str, Macro]) -> bool:
    """The result is stored as a float, compared with one, or is an argument of a float function."""
    parent = top.parent
    if parent is None:
        return False
    other: Node | None = None
    if parent.type == "init_declarator":
        declared = next((v for v in tree.variables.values() if v is not None and v.node.id == parent.id), None)
        return (
            declared is not None
            and not declared.pointers
            and not declared.dims
            and _type_kind(declared.type) == "float"
        )
    if parent.type == "assignment_expression":
        other = parent.child_by_field_name("left")
        if other is not None and other.id == top.id:
            return False
    elif parent.type == "binary_expression":
        sides = [side for side in parent.named_children if side.id != top.id]
        other = sides[0] if len(sides) == 1 else None
        if other is not None and expression.has_float and _kind(tree, other, Expression(), macros) == "double":
            return _only_spelling(tree, other, macros)
    elif parent.type == "cast_expression":
        return _type_kind(tree.text(parent.named_children[0])) == "float"
    elif parent.type == "argument_list":
        call = parent.parent
        name = "" if call is None else _function(tree, call)
        return name == "float" or (name.endswith("f") and name.removesuffix("f") in FUNCTIONS)
    if other is None or _operator(parent) in {"%=", "<<=", ">>=", "&=", "|=", "^="}:
        return False
    return _kind(tree, other, Expression(), macros) == "float"


def _only_spelling(tree: Tree, node: Node, macros: dict[str, Macro]) -> bool:
    """A double for no other reason than its literals and functions."""
    expression = Expression()
    _kind(tree, node, expression, macros)
    return expression.convertible and bool(expression.literals or expression.functions)


def _edits(tree: Tree, expression: Expression, macros: dict[str, Macro]) -> Iterator[Edit]:
    for node in expression.literals:
        text = tree.text(node)
        end = macros[text].span[1] if text in macros else tree.span(node)[1]
        yield end, end, "f"
    for node in expression.functions:
        start, end = tree.span(node)
        yield start, end, tree.text(node).removeprefix("std::") + "f"


def _why(request: SuggestRequest, changed: list[str]) -> str:
    names = list(dict.fromkeys(changed))
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    target = request.target
    ratio = target.fp32_tflops / target.fp64_tflops if target.fp64_tflops else 0
    operations = len(re.findall(r"\.f64\b", request.compiled.ptx))
    slower = f", which {target.name} does at 1/{ratio:.0f} of its float rate" if ratio >= 1.5 else ""
    return f"{shown} in float code make {operations} double-precision instructions{slower}; as floats there are none of them."
