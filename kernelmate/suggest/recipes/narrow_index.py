"""Replaces 64-bit indices by 32-bit ones if the contract's `require` bounds every array below 2^31 elements.

Applies to local variables, casts and arguments of `long long`, `size_t` and similar types that are only indices, counts
or bounds; a cast address keeps its type. A 64-bit index takes two registers and several instructions per product.
Improves registers and time. If `require` gives no bound, the candidate's contract gets one, and the reason says so.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kernelmate.records import Claim, Contract
from kernelmate.source import apply_edits, size_allowed, write_contract
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite, covered
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree, statement_expression
from kernelmate.suggest.syntax_effects import BUILTINS, fresh, indent_of, indent_step, root_name, statements
from kernelmate.suggest.syntax_loops import loops


class Bounds:
    """Upper bounds of products of sizes, read from comparisons such as `rows * cols < 2**31`.

    Args:
        require: a contract's conditions, all of which hold.
    """

    def __init__(self, require: Sequence[str]) -> None:
        self._known: dict[tuple[str, ...], float] = {}
        for text in require:
            for product, most in _comparisons(ast.parse(text.strip(), mode="eval").body):
                self._known[product] = min(most, self._known.get(product, math.inf))

    def largest(self, expression: str) -> float:
        """Returns the upper bound of the expression; infinite if there is none."""
        return self._most(ast.parse(expression.strip(), mode="eval").body)

    def _most(self, node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() as value):
                return value
            case ast.BinOp(op=ast.Mult()) | ast.Name():
                names, others = _factors(node)
                return self._product(tuple(sorted(names))) * math.prod(self._most(other) for other in others)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._most(left) + self._most(right)
            case ast.BinOp(left=left, op=ast.Sub() | ast.FloorDiv()):
                return self._most(left)
            case ast.Call(func=ast.Name(id="cdiv"), args=[work, _]):
                return self._most(work)
            case ast.Call(func=ast.Name(id="min"), args=args):
                return min(self._most(one) for one in args)
            case ast.Call(func=ast.Name(id="max"), args=args):
                return max(self._most(one) for one in args)
        return math.inf

    def _product(self, names: tuple[str, ...]) -> float:
        """Returns the upper bound of a product of sizes that follows from known bounds; sizes are never negative."""
        if not names:
            return 1
        best = math.inf
        for known, most in self._known.items():
            rest = list(names)
            if names[0] in known and all(name in rest and not rest.remove(name) for name in known):  # type: ignore[func-returns-value]
                best = min(best, most * self._product(tuple(rest)))
        return best


def _factors(node: ast.expr) -> tuple[list[str], list[ast.expr]]:
    """Splits a product into the names that are multiplied, and all other factors."""
    if isinstance(node, ast.Name):
        return [node.id], []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _factors(node.left), _factors(node.right)
        return left[0] + right[0], left[1] + right[1]
    return [], [node]


def _comparisons(node: ast.expr) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yields products of names with their upper bounds: `a * b < 10` bounds `a` and `b` by 9."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for value in node.values:
            yield from _comparisons(value)
    if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.ops[0], ast.Lt | ast.LtE):
        return
    names, others = _factors(node.left)
    most = _constant(node.comparators[0])
    if names and not others and most is not None:
        yield tuple(sorted(names)), most - isinstance(node.ops[0], ast.Lt)


def _constant(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.BinOp(left=ast.Constant(value=int() as base), op=ast.Pow(), right=ast.Constant(value=int() as power)):
            return base**power if 0 <= power < 64 else None
        case ast.BinOp(left=left, op=ast.Sub(), right=ast.Constant(value=int() as less)):
            most = _constant(left)
            return None if most is None else most - less
    return None


WIDE = frozenset({"long long", "unsigned long long", "size_t", "int64_t", "uint64_t", "long", "unsigned long", "ptrdiff_t", "long long int", "long int"})  # fmt: skip
INTS = frozenset({"int", "unsigned", "unsigned int"})
COUNTED = 31
"""Bits of a signed index that counts elements."""
STRIDED = 30
"""Bits of an index that a loop increments by a stride, which passes the last element before the loop ends."""


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that makes all 64-bit index variables, arguments and casts 32-bit."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    wide = {
        v.name for v in tree.variables.values() if v is not None and v.type in WIDE and not v.pointers and not v.dims
    }
    narrow = _only_counting(tree, wide)
    edits = [*_of_variables(tree, narrow), *_of_casts(tree, narrow)]
    if not edits:
        return
    bits = STRIDED if any(loop.step != "1" and loop.name in narrow for loop in loops(tree)) else COUNTED
    missing = _missing(request.contract, _indexed(tree, edits, narrow), bits)
    contract = replace(request.contract, require=(*request.contract.require, *missing))
    kernel = apply_edits(request.kernel, edits)
    if missing:
        if not all(size_allowed(contract, size) for size in contract.sizes):
            return
        kernel = write_contract(kernel, contract)
    named = f" ({', '.join(sorted(narrow))})" if narrow else ""
    why = f"Indices of 64 bits{named} take two registers each, and "
    if missing:
        why += f"32 bits are enough for smaller problems only: the contract now requires {' and '.join(missing)}."
    else:
        why += "the contract's require bounds every array below what 32 bits count."
    yield Rewrite(kernel, contract, why)


CLAIMS = (Claim(r" take two registers each, and", "registers", instead=" are wider than they need be, and"),)
RECIPE = Recipe("narrow-index", ("registers", "time", "occupancy"), (), rewrites, claims=CLAIMS)


def _indexed(tree: Tree, edits: Sequence[Edit], narrow: set[str]) -> set[str]:
    """Returns the arrays that narrowed variables may index: those in a statement with them, directly or by pointer."""
    changed = [start for start, _, _ in edits]
    used = {use.start_byte for name in narrow for use in tree.uses(name)}
    met: set[str] = set()
    for statement in tree.walk("declaration", "expression_statement", "condition_clause", "for_statement"):
        first, last = tree.span(statement)
        if any(first <= start < last for start in changed) or any(statement.start_byte <= use < statement.end_byte for use in used):  # fmt: skip
            met |= {tree.text(node) for node in tree.walk("identifier", under=statement)}
    for _ in range(4):
        pointers = [v for v in tree.variables.values() if v is not None and v.name in met and v.pointers and v.value is not None]  # fmt: skip
        met |= {root for v in pointers if v.value is not None and (root := root_name(tree, v.value)) is not None}
    return met


def _missing(contract: Contract, indexed: set[str], bits: int) -> list[str]:
    """Returns requirements that the contract lacks for indices of `bits` bits.

    They bound every indexed array and every side of the grid below 2**`bits` elements.
    """
    told = [f"{a.name} < 2**31" for a in contract.args if a.shape is None and a.value is None and a.dtype == "int32"]
    bounds = Bounds([*contract.require, *told])
    counts = [" * ".join(extent if re.fullmatch(r"\w+", extent) else f"({extent})" for extent in a.shape) for a in contract.args if a.shape and a.name in indexed]  # fmt: skip
    counts += [known[0] for side in contract.grid if (known := covered(side)) is not None]
    open_ = {
        tuple(sorted(count.split(" * "))): count for count in reversed(counts) if bounds.largest(count) >= 1 << bits
    }
    most = [one for factors, one in open_.items() if not any(set(factors) < set(others) for others in open_)]
    return [f"{one} < 2**{bits}" for one in reversed(most)]


def _only_counting(tree: Tree, names: set[str]) -> set[str]:
    """Returns the names that are only used in indices, comparisons, loop headers, or values of other such names."""
    left = {name for name in names if tree.uses(name) and not _given_address(tree, name)}
    while True:
        bad = {name for name in left if not all(_counts(tree, use, left) for use in tree.uses(name))}
        if not bad:
            return left
        left -= bad


def _counts(tree: Tree, use: Node, among: set[str]) -> bool:
    node = use
    while node.parent is not None:
        parent = node.parent
        if parent.type in {"subscript_argument_list", "condition_clause"}:
            return True
        if parent.type == "subscript_expression":
            return parent.child_by_field_name("argument") != node
        if parent.type == "for_statement":
            return True
        if parent.type == "init_declarator":
            name = tree.name_node(parent)
            variable = None if name is None else tree.variable(tree.text(name))
            return variable is not None and (variable.name in among or bool(variable.pointers) or variable.type in {"int", "unsigned", "unsigned int"})  # fmt: skip
        if parent.type == "assignment_expression":
            target = parent.child_by_field_name("left")
            return target is not None and tree.text(target) in among
        if parent.type == "binary_expression":
            sign = parent.child_by_field_name("operator")
            if sign is not None and tree.text(sign) in {"<", ">", "<=", ">=", "==", "!="}:
                return True
        elif parent.type == "update_expression":
            return tree.text(node) in among
        elif parent.type not in {
            "parenthesized_expression",
            "conditional_expression",
            "cast_expression",
            "unary_expression",
        }:
            return statement_expression(parent) is not None and parent.type == "expression_statement"
        node = parent
    return False


def _given_address(tree: Tree, name: str) -> bool:
    """Returns True if a converted address is ever assigned to the variable."""
    given = [variable.value for variable in (tree.variable(name),) if variable is not None]
    for use in tree.uses(name):
        parent = use.parent
        if parent is not None and parent.type == "assignment_expression" and parent.child_by_field_name("left") == use:
            given.append(parent.child_by_field_name("right"))
    casts = (cast for value in given if value is not None for cast in tree.walk("cast_expression", under=value))
    return any(_is_address(tree, cast) for cast in casts)


def _is_address(tree: Tree, cast: Node) -> bool:
    """Returns True if the operand of the cast is a pointer, an array, or an address computed from one."""
    operand = cast.child_by_field_name("value")
    if operand is None:
        return False
    taken = (tree.text(node).startswith("&") for node in tree.walk("pointer_expression", under=operand))
    return any(taken) or any(_names_address(tree, node) for node in tree.walk("identifier", under=operand))


def _names_address(tree: Tree, node: Node) -> bool:
    """Returns True if a name denotes a pointer or an array here, and not an element of it."""
    variable = tree.variable(tree.text(node))
    levels = 0 if variable is None else variable.pointers + len(variable.dims)
    at = node
    while levels and at.parent is not None:
        parent = at.parent
        element = parent.type == "subscript_expression" and parent.child_by_field_name("argument") == at
        if not element and parent.type not in {"pointer_expression", "parenthesized_expression"}:
            break
        levels -= parent.type != "parenthesized_expression"
        at = parent
    return levels > 0


def _of_variables(tree: Tree, names: set[str]) -> Iterator[Edit]:
    """Yields declarations with the narrow type; arguments get a copy at the kernel's beginning."""
    copies: list[str] = []
    seen: set[int] = set()
    for name in sorted(names):
        variable = tree.variable(name)
        if variable is None:
            continue
        kind = variable.declaration.child_by_field_name("type")
        if variable.declaration.type == "parameter_declaration":
            copy = fresh(tree, f"{name}_32")
            copies.append(f"const int {copy} = (int){name};")
            for use in tree.uses(name):
                yield tree.replace(use, copy)
        elif kind is not None and kind.id not in seen:
            declared = {
                tree.text(n)
                for d in variable.declaration.children_by_field_name("declarator")
                if (n := tree.name_node(d))
            }
            if declared <= names:
                seen.add(kind.id)
                yield tree.replace(kind, "int")
    if copies:
        first = statements(tree.body)[0]
        indent = indent_of(tree, first) or indent_step(tree)
        start = tree.span(tree.body)[0] + 1
        yield start, start, "".join(f"\n{indent}{copy}" for copy in copies)


def _of_casts(tree: Tree, narrow: set[str]) -> Iterator[Edit]:
    """Yields edits of casts inside indices: to 32 bits, or removed if the operand has 32 bits already."""
    for cast in tree.walk("cast_expression"):
        kind, value = cast.child_by_field_name("type"), cast.child_by_field_name("value")
        if kind is None or value is None or re.sub(r"\s+", " ", tree.text(kind)) not in WIDE:
            continue
        if not _counts(tree, cast, set(tree.variables)) or _is_address(tree, cast):
            continue
        if all(_has_32_bits(tree, node, narrow) for node in tree.walk("identifier", under=value)):
            yield tree.span(cast)[0], tree.span(value)[0], ""
        else:
            yield tree.replace(kind, "int")


def _has_32_bits(tree: Tree, node: Node, narrow: set[str]) -> bool:
    """Returns True if a name is a builtin variable, or is declared with 32 bits everywhere."""
    name = tree.text(node)
    if name in BUILTINS or name in narrow:
        return True
    variable = tree.variable(name)
    if variable is not None:
        return variable.type in INTS
    kinds = {
        tree.text(kind)
        for place in tree.walk("declaration")
        for declarator in place.children_by_field_name("declarator")
        if (declared := tree.name_node(declarator)) is not None and tree.text(declared) == name
        if (kind := place.child_by_field_name("type")) is not None
    }
    return bool(kinds) and kinds <= INTS
