"""A kernel's syntax tree for recipes: nodes with offsets into the unit's text, names, and simple types.

A recipe applies only if it can analyse the tree with certainty, so functions return None or False in doubt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import tree_sitter
import tree_sitter_cuda

from kernelmate.caching import text_cache
from kernelmate.records import Kernel

_LANGUAGE = tree_sitter.Language(tree_sitter_cuda.language())

Node = tree_sitter.Node
Edit = tuple[int, int, str]
"""Start and end offset in the unit's text, and the text that replaces it."""


@dataclass(frozen=True, slots=True)
class DeclaredVariable:
    """One name that a kernel declares.

    Attributes:
        name: as written.
        type: its type without qualifiers, pointers and arrays: `float`, `unsigned int`.
        pointers: levels of pointer.
        dims: the texts of its array sizes, outermost first (empty text for `[]`).
        qualifiers: `const`, `__shared__`, `volatile`, `extern`, ...
        node: the declarator.
        declaration: the whole declaration or parameter.
        value: what it is initialised with, or None.
    """

    name: str
    type: str
    pointers: int
    dims: tuple[str, ...]
    qualifiers: frozenset[str]
    node: Node
    declaration: Node
    value: Node | None

    @property
    def shared(self) -> bool:
        """True if it is declared `__shared__`."""
        return "__shared__" in self.qualifiers


def language() -> tree_sitter.Language:
    """Returns the grammar of the parser."""
    return _LANGUAGE


class Tree:
    """The syntax tree of one kernel's definition; created by `read_tree`, which returns None if parsing fails."""

    def __init__(self, kernel: Kernel, function: Node, body: Node, source: str) -> None:
        self.kernel = kernel
        self.function = function
        self.body = body
        self._source = source
        self.bytes = source.encode()
        self._plain = len(self.bytes) == len(source)

    def text(self, node: Node) -> str:
        """Returns the node's text."""
        return self.bytes[node.start_byte : node.end_byte].decode()

    def span(self, node: Node) -> tuple[int, int]:
        """Returns the node's offsets in the unit's text."""
        return self._offset(node.start_byte), self._offset(node.end_byte)

    def replace(self, node: Node, text: str) -> Edit:
        """Returns an edit that replaces the node by a text."""
        return (*self.span(node), text)

    def _offset(self, byte: int) -> int:
        return self.kernel.start + (byte if self._plain else len(self.bytes[:byte].decode()))

    def walk(self, *types: str, under: Node | None = None) -> Iterator[Node]:
        """Yields nodes of the given types (all named nodes by default), in order of position."""
        stack = [under or self.body]
        while stack:
            node = stack.pop()
            if not types or node.type in types:
                yield node
            stack.extend(reversed(node.named_children))

    @cached_property
    def variables(self) -> dict[str, DeclaredVariable | None]:
        """Every name that the kernel declares; None for a name declared twice."""
        found: dict[str, DeclaredVariable | None] = {}
        parameters = next(self.walk("parameter_list", under=self.function), None)
        places = [] if parameters is None else list(self.walk("parameter_declaration", under=parameters))
        places += list(self.walk("declaration", "for_range_loop", "lambda_expression"))
        for place in places:
            for variable in self._declared(place):
                found[variable.name] = None if variable.name in found else variable
        return found

    def variable(self, name: str) -> DeclaredVariable | None:
        """Returns the kernel's declaration of this name, if there is exactly one."""
        return self.variables.get(name)

    def shared_arrays(self) -> list[DeclaredVariable]:
        """Returns the `__shared__` arrays of the kernel's outermost block, in order."""
        found = [v for v in self.variables.values() if v is not None and v.shared and v.dims]
        return [v for v in found if v.declaration.parent is not None and v.declaration.parent.id == self.body.id]

    def uses(self, name: str) -> list[Node]:
        """Returns the identifiers of this name in the body, except in its declaration."""
        variable = self.variables.get(name)
        declared = None if variable is None else self.name_node(variable.node)
        return [node for node in self._identifiers.get(name, []) if declared is None or node.id != declared.id]

    @cached_property
    def _identifiers(self) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        for node in self.walk("identifier"):
            found.setdefault(self.text(node), []).append(node)
        return found

    def names_in_scope(self) -> frozenset[str]:
        """Returns all names visible in the kernel: its own, and the file's outside of other functions' bodies."""
        return _names_in_scope(self.kernel.unit.text, self.kernel.start, self.kernel.end)

    def name_node(self, declarator: Node) -> Node | None:
        """Returns the identifier that a declarator declares."""
        node: Node | None = declarator
        while node is not None and node.type != "identifier":
            node = node.child_by_field_name("declarator") or next(
                (
                    child
                    for child in node.named_children
                    if child.type.endswith("declarator") or child.type == "identifier"
                ),
                None,
            )
        return node

    def _declared(self, place: Node) -> Iterator[DeclaredVariable]:
        type_node = place.child_by_field_name("type")
        qualifiers = frozenset(
            self.text(child)
            for child in place.children
            if child.type in {"type_qualifier", "storage_class_specifier"} or child.type in {"__shared__", "extern"}
        )
        type_text = "" if type_node is None else " ".join(self.text(type_node).split())
        for declarator in place.children_by_field_name("declarator"):
            value = declarator.child_by_field_name("value") if declarator.type == "init_declarator" else None
            pointers, dims = 0, []
            node: Node | None = declarator
            while node is not None and node.type != "identifier":
                if node.type == "pointer_declarator":
                    pointers += 1
                if node.type == "array_declarator":
                    size = node.child_by_field_name("size")
                    dims.append("" if size is None else self.text(size))
                inner = node.child_by_field_name("declarator")
                if inner is None:
                    inner = next(
                        (c for c in node.named_children if c.type.endswith("declarator") or c.type == "identifier"),
                        None,
                    )
                node = inner
            if node is not None:
                yield DeclaredVariable(
                    self.text(node), type_text, pointers, tuple(reversed(dims)), qualifiers, declarator, place, value
                )


@text_cache(32)
def read_tree(kernel: Kernel) -> Tree | None:
    """Returns the tree of a kernel's definition; None if the parser finds an error."""
    source = kernel.source
    parsed = tree_sitter.Parser(_LANGUAGE).parse(source.encode())
    root = parsed.root_node
    if root.has_error:
        return None
    stack = [root]
    while stack:
        node = stack.pop(0)
        if node.type == "function_definition":
            body = node.child_by_field_name("body")
            if body is None or body.type != "compound_statement":
                return None
            return Tree(kernel, node, body, source)
        stack.extend(node.named_children)
    return None


_CONSTANT = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(?P<macro>\w+)[ \t]+\(?(?P<macro_value>\d+)[uU]?\)?[ \t]*(?://.*|/\*.*)?$"
    r"|\b(?:static[ \t]+|constexpr[ \t]+|const[ \t]+|__device__[ \t]+)+(?:unsigned[ \t]+)?(?:int|unsigned|size_t)[ \t]+"
    r"(?P<name>\w+)[ \t]*=[ \t]*(?P<value>\d+)[uU]?[ \t]*;",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class IntegerConstant:
    """An integer that the unit names once; `span` has the offsets of its digits."""

    name: str
    value: int
    span: tuple[int, int]


@text_cache(32)
def integer_constants(text: str) -> dict[str, IntegerConstant]:
    """Returns integers that a unit names by `#define` or a constant, if the name is defined exactly once."""
    found: dict[str, IntegerConstant] = {}
    twice: set[str] = set()
    for match in _CONSTANT.finditer(text):
        name, group = (match["macro"], "macro_value") if match["macro"] else (match["name"], "value")
        if name in found or len(re.findall(rf"#[ \t]*(?:define|undef)[ \t]+{name}\b", text)) > 1:
            twice.add(name)
        found[name] = IntegerConstant(name, int(match[group]), match.span(group))
    return {name: constant for name, constant in found.items() if name not in twice}


@text_cache(32)
def _names_in_scope(text: str, start: int, end: int) -> frozenset[str]:
    """Returns the words of a text outside comments.

    Parameter lists and bodies of functions count only if they begin in [`start`, `end`).
    """
    data = text.encode()
    first, last = len(text[:start].encode()), len(text[:end].encode())
    stack, words = [tree_sitter.Parser(_LANGUAGE).parse(data).root_node], set()
    while stack:
        node = stack.pop()
        owner = node.parent.type if node.parent is not None else ""
        body = node.type == "compound_statement" and owner == "function_definition"
        local = body or node.type == "parameter_list"
        if node.type == "comment" or (local and not first <= node.start_byte < last):
            continue
        if not node.children or node.type.startswith("preproc"):
            words |= set(re.findall(r"[A-Za-z_]\w*", data[node.start_byte : node.end_byte].decode()))
        stack.extend(node.children)
    return frozenset(words)


def integer_value(text: str, constants: dict[str, IntegerConstant]) -> int | None:
    """Returns the value of a size such as `32`, `TILE` or `TILE * 2 + 1`; None if unknown."""
    spelled = re.sub(r"[A-Za-z_]\w*", lambda word: _spell_constant(word.group(), constants), text)
    if not re.fullmatch(r"[\d\s+*()-]+", spelled):
        return None
    try:
        return _evaluate(spelled)
    except (ValueError, IndexError):
        return None


def _spell_constant(word: str, constants: dict[str, IntegerConstant]) -> str:
    return str(constants[word].value) if word in constants else word


def _evaluate(text: str) -> int:
    """Evaluates a sum of products of integers and parentheses."""
    tokens = re.findall(r"\d+|[+*()-]", text)
    value = _sum(tokens)
    if tokens:
        raise ValueError(text)
    return value


def _sum(tokens: list[str]) -> int:
    value = _product(tokens)
    while tokens and tokens[0] in "+-":
        sign = 1 if tokens.pop(0) == "+" else -1
        value += sign * _product(tokens)
    return value


def _product(tokens: list[str]) -> int:
    value = _atom(tokens)
    while tokens and tokens[0] == "*":
        tokens.pop(0)
        value *= _atom(tokens)
    return value


def _atom(tokens: list[str]) -> int:
    first = tokens.pop(0)
    if first == "(":
        value = _sum(tokens)
        if tokens.pop(0) != ")":
            raise ValueError(first)
        return value
    return int(first)


def plain_type(tree: Tree, name: str) -> str:
    """Returns the type that a `typedef` or `using` name of the unit stands for; any other name unchanged."""
    for _ in range(4):
        text = tree.kernel.unit.text
        match = re.search(rf"\busing\s+{re.escape(name)}\s*=\s*([\w ]+?)\s*;", text) or re.search(
            rf"\btypedef\s+([\w ]+?)\s+{re.escape(name)}\s*;", text
        )
        if match is None:
            break
        name = " ".join(match[1].split())
    return name


def strip_parentheses(node: Node) -> Node:
    """Returns the expression inside any number of parentheses."""
    while node.type == "parenthesized_expression" and len(node.named_children) == 1:
        node = node.named_children[0]
    return node


def statement_expression(node: Node | None) -> Node | None:
    """Returns the expression of an expression statement, which may be alone in braces; None for other statements."""
    while node is not None and node.type == "compound_statement":
        inner = [child for child in node.named_children if child.type != "comment"]
        node = inner[0] if len(inner) == 1 else None
    if node is None or node.type != "expression_statement" or not node.named_children:
        return None
    return node.named_children[0]


def is_barrier(tree: Tree, node: Node | None) -> bool:
    """Returns True if the node is the statement `__syncthreads();`."""
    expression = statement_expression(node)
    return expression is not None and tree.text(expression).replace(" ", "") == "__syncthreads()"


ELEMENT_BYTES = {
    "float": 4, "int": 4, "unsigned": 4, "unsigned int": 4, "int32_t": 4, "uint32_t": 4, "__half2": 4, "half2": 4, "uint": 4,
    "double": 8, "long long": 8, "unsigned long long": 8, "int64_t": 8, "uint64_t": 8, "float2": 8, "int2": 8,
    "half": 2, "__half": 2, "__nv_bfloat16": 2, "short": 2, "unsigned short": 2, "int16_t": 2, "uint16_t": 2,
    "char": 1, "unsigned char": 1, "signed char": 1, "bool": 1, "int8_t": 1, "uint8_t": 1, "float4": 16, "int4": 16,
}  # fmt: skip
"""Sizes in bytes of the element types of shared arrays."""
