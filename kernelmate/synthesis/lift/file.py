"""Syntax tree of a kernel's file, and the state that executing its statements changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tree_sitter
import tree_sitter_cuda

from kernelmate.records import Contract, Kernel
from kernelmate.synthesis.lift.arithmetic import DTYPES
from kernelmate.synthesis.lift.polynomials import NotLifted, Poly, Space, multiples, size_expression
from kernelmate.synthesis.lift.sharing import SharedAccesses
from kernelmate.synthesis.lift.threads import ThreadBlock
from kernelmate.synthesis.lift.values import Index, Scalar, Substitution

Node = tree_sitter.Node
_LANGUAGE = tree_sitter.Language(tree_sitter_cuda.language())


@dataclass(frozen=True)
class Pointer:
    """An address in an array argument."""

    array: str
    at: Poly
    kind: str


@dataclass(frozen=True)
class LocalArray:
    """An array of one thread, with constant indices; elements that were not assigned are None."""

    kind: str
    sides: tuple[int, ...]
    values: tuple[Any, ...]

    def position(self, at: tuple[Poly, ...]) -> int:
        """Returns the position of an element in `values`.

        Raises:
            NotLifted: the index is not constant, or is out of range.
        """
        position = 0
        for one, side in zip(at, self.sides, strict=True):
            if one.constant is None or not 0 <= one.constant < side:
                raise NotLifted("a thread's own array is indexed by something that is not constant")
            position = position * side + one.constant
        return position


@dataclass(frozen=True)
class ArrayStore:
    """A store to an element of an argument; `op` is the reduction of an atomic operation."""

    array: str
    at: Poly
    value: Any
    path: tuple[Any, ...]
    loops: tuple[str, ...]
    line: int
    epoch: int
    op: str = ""


@dataclass
class ThreadState:
    """The state that statements change.

    `kept` maps the text of an element to the local that holds it during a loop.
    """

    names: dict[str, Any] = field(default_factory=dict)
    path: tuple[Any, ...] = ()
    loops: tuple[str, ...] = ()
    epoch: int = 0
    stores: list[ArrayStore] = field(default_factory=list)
    loads: list[tuple[str, Poly, int, tuple[str, ...]]] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)


def parsed(text: str) -> tuple[bytes, Node]:
    """Returns the syntax tree of a text."""
    data = text.encode()
    return data, tree_sitter.Parser(_LANGUAGE).parse(data).root_node


class KernelFile:
    """Syntax tree of a kernel's file: its definition, device functions and constants."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.data, self.root = parsed(kernel.unit.text)
        self.functions: dict[str, Node] = {}
        self.constants: dict[str, Node] = {}
        self._collect(self.root)
        self.function = self._definition()

    def text(self, node: Node | None) -> str:
        """Returns a node's text."""
        return "" if node is None else self.data[node.start_byte : node.end_byte].decode()

    def line(self, node: Node) -> int:
        """Returns the line of a node in the unit's text."""
        return node.start_point[0] + 1

    def walk(self, node: Node, *types: str) -> list[Node]:
        """Returns the descendants of a node with some types, including the node itself."""
        found, stack = [], [node]
        while stack:
            one = stack.pop()
            if one.type in types:
                found.append(one)
            stack.extend(reversed(one.named_children))
        return found

    def _collect(self, root: Node) -> None:
        for node in self.walk(root, "function_definition", "preproc_def", "declaration", "field_declaration"):
            if node.type == "preproc_def":
                value = node.child_by_field_name("value")
                if value is not None:
                    self.constants[self.text(node.child_by_field_name("name"))] = value
            elif node.type == "function_definition":
                name = self._function_name(node)
                self.functions[name] = node
            elif node.type == "field_declaration":
                value = node.child_by_field_name("default_value")
                if value is not None:
                    self.constants[self.text(node.child_by_field_name("declarator"))] = value
            elif not self._inside_function(node):
                for one in node.children_by_field_name("declarator"):
                    value = one.child_by_field_name("value") if one.type == "init_declarator" else None
                    if value is not None:
                        self.constants[self.text(one.child_by_field_name("declarator"))] = value

    def _inside_function(self, node: Node) -> bool:
        parent = node.parent
        while parent is not None and parent.type != "function_definition":
            parent = parent.parent
        return parent is not None

    def _function_name(self, node: Node) -> str:
        declarator = node.child_by_field_name("declarator")
        while declarator is not None and declarator.type != "function_declarator":
            declarator = declarator.child_by_field_name("declarator")
        return self.text(None if declarator is None else declarator.child_by_field_name("declarator"))

    def _definition(self) -> Node:
        first = len(self.kernel.unit.text[: self.kernel.start].encode())
        last = len(self.kernel.unit.text[: self.kernel.end].encode())
        for node in self.walk(self.root, "function_definition"):
            if first <= node.start_byte and node.end_byte <= last:
                broken = next(iter(self.walk(node, "ERROR")), None)
                if broken is not None or node.has_error:
                    raise NotLifted(
                        "the parser does not know a part of it", None if broken is None else self.line(broken)
                    )
                if node.parent is not None and node.parent.type == "template_declaration":
                    raise NotLifted("it is a template", self.line(node))
                return node
        raise NotLifted("the parser does not find its definition", self.kernel.line)

    def _names_warps(self) -> bool:
        for node in self.walk(self.root, "identifier", "number_literal"):
            text = self.text(node)
            if text.startswith("__shfl") or text == "warpSize":
                return True
            around = "" if node.parent is None else self.text(node.parent)
            if text in ("32", "31", "5") and any(one in around for one in ("threadIdx", "%", "/", "&", ">>", "tid")):
                return True
        return False


class LaunchedKernel(KernelFile):
    """A kernel with grid, block and arguments of its contract."""

    def __init__(self, kernel: Kernel, contract: Contract) -> None:
        super().__init__(kernel)
        self.contract = contract
        self.space = Space({})
        self._sizes = Substitution(self.space, multiples(contract.require))
        self.state = ThreadState()
        sides = [self._side(contract.block, axis) for axis in range(3)]
        warps = sides[1] == sides[2] == 1 and sides[0] % 32 == 0 and sides[0] > 32 and self._names_warps()
        self.block = ThreadBlock((sides[0], sides[1], sides[2]), self.space, warps=warps)
        self.sharing = SharedAccesses(self.block, self.space)
        self.grid = [self._grid(axis) for axis in range(3)]
        self._parameters()

    # ------------------------------------------------------------------------------------------------ the launch

    def _side(self, texts: tuple[str, ...], axis: int) -> int:
        if axis >= len(texts):
            return 1
        value = size_expression(texts[axis]).constant
        if value is None:
            raise NotLifted("the contract's block depends on a size")
        return value

    def _grid(self, axis: int) -> Poly:
        if axis >= len(self.contract.grid):
            return Poly.number(1)
        sides = self.block.sides
        known = {"block": sides[0] * sides[1] * sides[2], "block_x": sides[0], "block_y": sides[1], "block_z": sides[2]}
        put = Substitution(self.space, {name: Poly.number(value) for name, value in known.items()})
        grid = put.poly(self._size(self.contract.grid[axis]))
        self.space.extents[f"%b{'xyz'[axis]}"] = grid
        return grid

    def _size(self, text: str) -> Poly:
        """Parses an expression over sizes; sizes that are products are split into factors."""
        return self._sizes.poly(size_expression(text))

    def _parameters(self) -> None:
        for argument in self.contract.args:
            kind = DTYPES.get(argument.dtype, argument.dtype)
            if argument.shape is not None:
                value: Any = Pointer(argument.name, Poly.number(0), kind)
            elif kind == "float":
                value = Scalar(argument.name)
            else:
                text = argument.value
                number = text is None or size_expression(text).constant is not None
                value = Index(self._size(argument.name) if number or text is None else self._size(text))
                if argument.fixed and text is not None:
                    value = Index(self._size(text))
            self.state.names[argument.name] = value


def statements_of(node: Node | None) -> list[Node]:
    """Returns the statements of a block, or a single statement, without comments."""
    if node is None:
        return []
    inside = node.named_children if node.type == "compound_statement" else [node]
    return [one for one in inside if one.type not in ("comment", "preproc_call")]


def condition_of(clause: Node | None) -> Node:
    """Returns the expression of a condition."""
    assert clause is not None
    value = clause.child_by_field_name("value") if clause.type == "condition_clause" else clause
    return value if value is not None else clause.named_children[0]


def before_jump(node: Node) -> list[Node] | None:
    """Returns the statements before the return or continue that ends an `if` statement; None if it ends otherwise."""
    if node.type != "if_statement" or node.child_by_field_name("alternative") is not None:
        return None
    inside = statements_of(node.child_by_field_name("consequence"))
    leaves = bool(inside) and inside[-1].type in ("return_statement", "continue_statement")
    return inside[:-1] if leaves else None
