"""Reads, writes and calls of a kernel's statements, as far as they follow from the syntax tree."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from kernelmate.suggest.syntax import Node, Tree, strip_parentheses

BUILTINS = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})

BARRIERS = frozenset({"__syncthreads", "__syncthreads_count", "__syncthreads_and", "__syncthreads_or"})

_PURE = re.compile(
    r"(?:__)?(?:f(?:max|min|abs|ma|mod|div|dim)|exp(?:2|10|m1)?|log(?:2|10|1p)?|pow|r?sqrt|rcp|sin|cos|tan|tanh|atan2?|asin|acos|sinh|cosh"
    r"|erfc?|hypot|cbrt|ceil|floor|round|rint|trunc|copysign|isnan|isinf|isfinite|signbit|l?abs|max|min|u?mul24|mulhi|clz|popc|ffs|float_as_u?int|u?int_as_float)f?"
    r"|__(?:f(?:div|add|mul|sub|rcp|sqrt|ma)_?\w*|int\w*2\w+|uint2\w+|float2?\w*2\w+|double2\w+|half\w*2\w+|bfloat16\w*|h\w+2?|low2\w+|high2\w+"
    r"|ll2\w+|expf|logf|log2f|log10f|exp10f|powf|sinf|cosf|tanf|saturatef|dp4a|brev|fdividef|ldg|ldcs|ldcg|ldca)"
    r"|(?:std::)?(?:max|min|abs|fabs|sqrt|exp|log|pow)"
    r"|float|double|int|unsigned|bool|char|short|long|size_t|u?int(?:8|16|32|64)_t|__half2?|half2?|__nv_bfloat162?|make_\w+|T|sizeof"
    r"|static_cast<[^&*]*>|reinterpret_cast<.*>"
)
"""Functions of the CUDA headers whose result depends only on their arguments, without side effects."""


def names(tree: Tree, node: Node) -> set[str]:
    """Returns all identifiers below a node, itself included."""
    return {tree.text(found) for found in tree.walk("identifier", under=node)}


def operator(tree: Tree, node: Node) -> str:
    """Returns the operator of a binary, unary, update or assignment expression."""
    found = node.child_by_field_name("operator")
    return "" if found is None else tree.text(found)


def plain(tree: Tree, node: Node) -> str:
    """Returns a node's text without white space, comments and outermost parentheses."""
    node = strip_parentheses(node)
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", tree.text(node), flags=re.DOTALL)
    text = re.sub(r"(?<=\w)\s+(?=\w)", " ", text)
    return re.sub(r"(?<!\w)\s+|\s+(?!\w)", "", text)


def root_name(tree: Tree, place: Node) -> str | None:
    """Returns the variable of an element, component or dereferenced pointer: `a` of `a[i].x` and `*(a + i)`.

    The result is None otherwise.
    """
    node = strip_parentheses(place)
    while node.type != "identifier":
        inner = node.child_by_field_name("argument") or node.child_by_field_name("left")
        if inner is None or node.type not in {
            "subscript_expression",
            "field_expression",
            "pointer_expression",
            "binary_expression",
        }:
            return None
        node = strip_parentheses(inner)
    return tree.text(node)


def writes(tree: Tree, node: Node) -> Iterator[Node]:
    """Yields the expressions that the code below a node writes to.

    These are assignment targets, operands of `++`, and arguments with `&` of atomics and calls.
    """
    for found in tree.walk("assignment_expression", "update_expression", "pointer_expression", under=node):
        if found.type == "assignment_expression":
            left = found.child_by_field_name("left")
        elif found.type == "update_expression" or operator(tree, found) == "&":
            left = found.child_by_field_name("argument")
        else:
            continue
        if left is not None:
            yield strip_parentheses(left)


def written_names(tree: Tree, node: Node) -> set[str]:
    """Returns variables that the code below a node writes, at least in part; "?" for a written expression without a name."""
    return {root_name(tree, place) or "?" for place in writes(tree, node)} | {
        name for call in tree.walk("call_expression", under=node) for name in _passed_pointers(tree, call)
    }


def _passed_pointers(tree: Tree, call: Node) -> Iterator[str]:
    """Yields pointers and arrays that a call receives and could write through."""
    if _PURE.fullmatch(call_name(tree, call)):
        return
    arguments = call.child_by_field_name("arguments")
    for argument in () if arguments is None else arguments.named_children:
        argument = strip_parentheses(argument)
        name = root_name(tree, argument) if argument.type in {"identifier", "binary_expression"} else None
        variable = None if name is None else tree.variable(name)
        if name is not None and (variable is None or variable.pointers or variable.dims):
            yield name


def call_name(tree: Tree, call: Node) -> str:
    """Returns the name of the called function as written, without a leading `::`."""
    function = call.child_by_field_name("function")
    if function is None:
        return ""
    name = tree.text(function).replace(" ", "").removeprefix("::")
    cast = re.fullmatch(r"\((\w+)\)", name)
    if cast and re.search(rf"\btypedef\b[^;{{}}]*\b{cast[1]}\s*;|\busing\s+{cast[1]}\s*=", tree.kernel.unit.text):
        return f"static_cast<{cast[1]}>"  # `(byte)(x)` is a cast where byte is a type, which the grammar cannot know
    return name


def calls(tree: Tree, node: Node | None = None) -> set[str]:
    """Returns the names of all functions called below a node."""
    return {call_name(tree, call) for call in tree.walk("call_expression", under=node)}


def only_pure_calls(tree: Tree, node: Node, also: frozenset[str] = frozenset()) -> bool:
    """Returns True if only functions without side effects, and those in `also`, are called below a node."""
    return all(_PURE.fullmatch(name) or name in also for name in calls(tree, node))


def declared_names(tree: Tree, node: Node) -> set[str]:
    """Returns the names declared below a node."""
    return {
        variable.name
        for variable in tree.variables.values()
        if variable is not None and node.start_byte <= variable.node.start_byte < node.end_byte
    }


def constant_after_start(tree: Tree, name: str) -> bool:
    """Returns True if the variable is initialised in its declaration and never assigned after it."""
    variable = tree.variable(name)
    if variable is None or variable.dims:
        return False
    return variable.value is not None and name not in written_names(tree, tree.body)


def element_accesses(tree: Tree, node: Node | None = None) -> Iterator[Node]:
    """Yields the outermost subscript expressions below a node, in order."""
    for found in tree.walk("subscript_expression", under=node):
        parent = found.parent
        if parent is not None and parent.type == "subscript_expression":
            argument = parent.child_by_field_name("argument")
            if argument is not None and argument.id == found.id:
                continue
        yield found


def is_written(tree: Tree, element: Node) -> bool:
    """Returns True if the element is assigned or incremented, or its address is taken."""
    node = element
    while node.parent is not None and node.parent.type in {"parenthesized_expression", "field_expression"}:
        node = node.parent
    parent = node.parent
    if parent is None:
        return False
    if parent.type == "assignment_expression":
        left = parent.child_by_field_name("left")
        return left is not None and left.id == node.id
    return parent.type == "update_expression" or (parent.type == "pointer_expression" and operator(tree, parent) == "&")


def stores_in_part(tree: Tree, body: Node, arrays: Collection[str]) -> bool:
    """Returns True if an element of one of the arrays is stored only under a condition."""
    for element in element_accesses(tree, body):
        name = root_name(tree, element)
        if name not in arrays or not is_written(tree, element):
            continue
        node = element.parent
        while node is not None and node.id != body.id:
            if node.type in {"if_statement", "conditional_expression", "switch_statement"}:
                return True
            node = node.parent
    return False


def statements(block: Node) -> list[Node]:
    """Returns the statements of a block, or the single statement in its place, without comments."""
    if block.type == "compound_statement":
        return [child for child in block.named_children if child.type != "comment"]
    return [block]


def index_of(element: Node) -> Node | None:
    """Returns the index of a one-dimensional subscript expression; None for others."""
    argument = element.child_by_field_name("argument")
    if argument is None or argument.type == "subscript_expression":
        return None
    indices = element.child_by_field_name("indices")
    if indices is None:
        return element.child_by_field_name("index")
    inner = [child for child in indices.named_children if child.type != "comment"]
    return inner[0] if len(inner) == 1 else None


def indent_of(tree: Tree, node: Node) -> str:
    """Returns the white space at the beginning of the node's line."""
    text = tree.kernel.unit.text
    start = tree.span(node)[0]
    line = text.rfind("\n", 0, start) + 1
    return (
        text[line : len(text[line:]) - len(text[line:].lstrip(" \t")) + line]
        if text[line:start].strip()
        else text[line:start]
    )


def indent_step(tree: Tree) -> str:
    """Returns one level of indentation in the style of the kernel's author."""
    for statement in statements(tree.body):
        own = indent_of(tree, statement)
        if own:
            outer = indent_of(tree, tree.function)
            return own[len(outer) :] or "  "
    return "  "


def fresh(tree: Tree, name: str) -> str:
    """Returns a name based on this one that is unused in the kernel and outside of functions."""
    known = tree.names_in_scope()
    while name in known:
        name += "_"
    return name


def substitute(tree: Tree, node: Node, changes: dict[str, str]) -> str:
    """Returns a node's text with identifiers replaced by name, except members of the same name."""
    edits = [(found.start_byte, found.end_byte, changes[name]) for found in tree.walk("identifier", under=node) if (name := tree.text(found)) in changes]  # fmt: skip
    return replaced(tree, node, edits)


def replaced(tree: Tree, node: Node, edits: list[tuple[int, int, str]]) -> str:
    """Returns a node's text with parts of it replaced; `edits` have byte offsets in the tree."""
    data = tree.bytes[node.start_byte : node.end_byte]
    for start, end, text in sorted(edits, reverse=True):
        data = data[: start - node.start_byte] + text.encode() + data[end - node.start_byte :]
    return data.decode()


def body_span(tree: Tree, loop: Node, block: Node) -> tuple[int, int]:
    """Returns the offsets from the end of a loop's head to the end of its body, to replace the body."""
    closing = [child for child in loop.children if child.type == ")" and child.end_byte <= block.start_byte]
    if not closing:
        return tree.span(block)
    return tree.span(closing[-1])[1], tree.span(block)[1]


def reindented(text: str, old: str, new: str) -> str:
    """Returns the text with the indentation of all lines after the first replaced, except preprocessor lines."""
    first, *rest = text.split("\n")
    moved = [
        new + line[len(old) :] if line.startswith(old) and line.strip() and not line.startswith("#") else line
        for line in rest
    ]
    return "\n".join([first, *moved])
