"""Types of arithmetic expressions, and expressions that are double only by their spelling."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kernelmate.suggest.syntax import Node, Tree

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
class ArithmeticExpression:
    """Facts about an arithmetic expression.

    `literals` and `functions` are its parts that are double only by spelling. `has_float` is True if a part is float;
    `convertible` is False if another part is double or unknown.
    """

    literals: list[Node] = field(default_factory=list)
    functions: list[Node] = field(default_factory=list)
    has_float: bool = False
    convertible: bool = True


@dataclass(frozen=True, slots=True)
class LiteralMacro:
    """An object-like macro for one double literal that only this kernel uses; `span` is the literal's offsets."""

    text: str
    span: tuple[int, int]


def operator_of(node: Node) -> str:
    """Returns the operator of an expression as text; empty if it has none."""
    operator = node.child_by_field_name("operator")
    return "" if operator is None or operator.text is None else operator.text.decode()


def function_name(tree: Tree, call: Node) -> str:
    """Returns the name of the called function, without the namespace `std::`."""
    function = call.child_by_field_name("function")
    if function is None:
        return ""
    return tree.text(function).removeprefix("::").removeprefix("std::")


def kind_of(tree: Tree, node: Node, found: ArithmeticExpression, macros: dict[str, LiteralMacro]) -> str | None:
    """Returns the type of an expression: `float`, `double`, `int`, or None if unknown, in which case it is not changed.

    Args:
        tree: the tree of the kernel.
        node: the expression.
        found: facts about the expression, extended by this call.
        macros: macros of double literals by name.
    """
    kind = _find_kind(tree, node, found, macros)
    if kind is None:
        found.convertible = False
    elif kind == "float":
        found.has_float = True
    return kind


def _find_kind(tree: Tree, node: Node, found: ArithmeticExpression, macros: dict[str, LiteralMacro]) -> str | None:
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
        return kind_of(tree, children[0], found, macros)
    if node.type == "binary_expression":
        if operator_of(node) not in {"+", "-", "*", "/"}:
            return "int"
        return _wider([kind_of(tree, child, found, macros) for child in children])
    if node.type == "conditional_expression":
        branches = [node.child_by_field_name("consequence"), node.child_by_field_name("alternative")]
        return _wider([kind_of(tree, branch, found, macros) for branch in branches if branch is not None])
    if node.type == "call_expression":
        return _call_kind(tree, node, found, macros)
    if node.type == "cast_expression":
        return _given(type_kind(tree.text(children[0])), found)
    return None


def _given(kind: str | None, found: ArithmeticExpression) -> str | None:
    """Returns the kind of a declared type; records in `found` that a double type cannot be converted."""
    if kind == "double":
        found.convertible = False
    return kind


def _literal_kind(node: Node, text: str, found: ArithmeticExpression) -> str | None:
    if DOUBLE_LITERAL.fullmatch(text):
        found.literals.append(node)
        return _in_range(text, "double")
    if FLOAT_LITERAL.fullmatch(text):
        return "float"
    return "int" if INTEGER_LITERAL.fullmatch(text) else None


def _in_range(text: str, kind: str) -> str | None:
    """Returns the kind of a literal; None if it would become 0 or infinite in float."""
    plain = text.replace("'", "")
    value = float.fromhex(plain) if plain.lower().startswith("0x") else float(plain)
    return kind if value == 0 or FLOAT_MIN <= abs(value) <= FLOAT_MAX else None


def _leaf_kind(tree: Tree, node: Node) -> str | None:
    """Returns the type of a variable, an element of an array, or a component such as `threadIdx.x`."""
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
    return type_kind(variable.type)


def type_kind(text: str) -> str | None:
    """Returns the kind of a declared type: `float`, `double`, `int`, or None for any other."""
    words: list[str] = [word for word in re.findall(r"\w+", text) if word not in {"const", "volatile", "std"}]
    if words == ["float"] or words == ["double"]:
        return words[0]
    return "int" if words and set(words) <= INTEGERS and "*" not in text else None


def _wider(kinds: list[str | None]) -> str | None:
    if None in kinds or not kinds:
        return None
    return next((kind for kind in ("double", "float", "int") if kind in kinds), None)


def _call_kind(tree: Tree, call: Node, found: ArithmeticExpression, macros: dict[str, LiteralMacro]) -> str | None:
    name = function_name(tree, call)
    arguments = call.child_by_field_name("arguments")
    if arguments is None:
        return None
    if name in FUNCTIONS or name in EITHER:
        kinds = [kind_of(tree, argument, found, macros) for argument in arguments.named_children]
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
    return _given(type_kind(name), found) if name in INTEGERS | {"float", "double"} else None
