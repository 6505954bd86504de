"""Loads and stores neighbouring elements 16 bytes at a time, with a scalar tail.

Applies to element-wise work: a thread index, or the variable of a strided loop, indexes `array[i]`; arrays may be row
pointers, and their type may be an alias. Each thread processes as many neighbouring elements as fit into 16 bytes, and
processes them one by one if an array is not aligned to that or fewer elements are left. Improves time by fewer and
wider instructions, and costs registers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from kernelmate.records import Claim, Contract
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite, covered, relaunch
from kernelmate.suggest.recipes.restructure import without_early_returns
from kernelmate.suggest.recipes.row_pointers import above_pragmas, with_row_pointers
from kernelmate.suggest.syntax import ELEMENT_BYTES, Edit, Node, Tree, plain_type, read_tree
from kernelmate.suggest.syntax_effects import (
    constant_after_start,
    element_accesses,
    fresh,
    indent_of,
    indent_step,
    index_of,
    is_written,
    names,
    only_pure_calls,
    operator,
    plain,
    reindented,
    replaced,
    root_name,
    statements,
    stores_in_part,
    writes,
)
from kernelmate.suggest.syntax_loops import CountingLoop, guarded, is_global_index, is_grid_stride, loops

WIDEST = 16
"""Bytes of the widest load: PTX ISA, ld, vectors of 128 bits."""
LONGEST = 4
"""Largest number of statements of the work."""
SHORT = 50
"""Largest length in characters of several statements that are written twice: for whole vectors and for the tail."""
LINE = 110
"""Largest length in characters of a statement that is written once per vector component."""

VECTORS = {
    ("float", 4): "float4", ("float", 2): "float2", ("int", 4): "int4", ("int", 2): "int2", ("unsigned", 4): "uint4",
    ("unsigned int", 4): "uint4", ("unsigned", 2): "uint2", ("unsigned int", 2): "uint2", ("double", 2): "double2",
}  # fmt: skip
"""CUDA's vector types, by element and count."""


@dataclass(frozen=True, slots=True)
class PackedArray:
    """An array that is accessed at the element's own index.

    `type` is as written, `plain` is the type that an alias names.
    """

    name: str
    type: str
    plain: str
    read: bool
    stored: bool


@dataclass(frozen=True, slots=True)
class ElementwiseWork:
    """Element-wise work: the statements `body` for the element number `index`, below `bound`.

    Attributes:
        arrays: the arrays that are accessed at the element.
        count: elements of a vector.
        numbered: True if the body uses the element's number other than as an index of the arrays.
        structs: structs declared in the kernel in place of vector types, by name.
        alike: True to use structs because other work of the kernel uses them.
    """

    index: str
    bound: str
    body: Node
    arrays: tuple[PackedArray, ...]
    count: int
    numbered: bool
    structs: dict[str, str] = field(default_factory=dict)
    alike: bool = False

    def vector(self, tree: Tree, one: PackedArray) -> str:
        """Returns the type of a vector: CUDA's, or a struct declared in the kernel, which is added to `structs`."""
        if self.by_components(tree):
            return VECTORS[one.plain, self.count]
        stem = re.sub(r"[^A-Za-z0-9]+", "_", one.type).strip("_").removesuffix("_t")
        name = fresh(tree, f"{stem}_x{self.count}")
        size = self.count * ELEMENT_BYTES[one.plain]
        self.structs[name] = f"struct alignas({size}) {name} {{ {one.type} at[{self.count}]; }};"
        return name

    def by_components(self, tree: Tree) -> bool:
        """Returns True if the work is one short statement on types with CUDA vectors.

        It is then written once for each component `.x`, `.y` and so on.
        """
        body = statements(self.body)
        short = len(body) == 1 and body[0].type == "expression_statement" and len(tree.text(body[0])) <= LINE
        return (
            short
            and not self.numbered
            and not self.alike
            and all((one.plain, self.count) in VECTORS for one in self.arrays)
        )

    def is_function(self, tree: Tree) -> bool:
        """Returns True if the work is a function that vectors and the tail call: several statements that are not short."""
        texts = [tree.text(one) for one in statements(self.body)]
        return len(texts) > 1 and sum(map(len, texts)) > SHORT


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate for the guarded work of the kernel, or for all its element-wise loops."""
    yield from _by_threads(request)
    kernels = (request.kernel, with_row_pointers(request.kernel))
    kernel, tree, found = max(((one, read_tree(one), _in_loops(read_tree(one))) for one in kernels), key=lambda one: len(one[2]))  # fmt: skip
    if tree is None or not found:
        return
    edits = list(_of_loops(tree, found))
    works = [work for _, work in found]
    yield Rewrite(apply_edits(kernel, [*_structs(tree, works), *edits]), request.contract, _why(works))


CLAIMS = (Claim(r", one instruction for each", "load_requests"),)
RECIPE = Recipe("vectorize", ("time",), ("registers",), rewrites, claims=CLAIMS)


# ------------------------------------------------------------------------------------------- strided loops


def _in_loops(tree: Tree | None) -> list[tuple[CountingLoop, ElementwiseWork]]:
    """Returns the strided loops that can use vectors."""
    found: list[tuple[CountingLoop, ElementwiseWork]] = []
    if tree is None:
        return found
    for loop in loops(tree):
        if loop.node.type != "for_statement" or not loop.declared or loop.inclusive or not _by_thread(tree, loop.start, loop.step):  # fmt: skip
            continue
        alone = loop.node.parent is not None and loop.node.parent.type == "compound_statement"
        work = _work(tree, loop.name, tree.text(loop.bound), loop.block) if alone else None
        if work is not None:
            found.append((loop, work))
    alike = not all(work.by_components(tree) for _, work in found)
    return [(loop, replace(work, alike=alike)) for loop, work in found]


def _of_loops(tree: Tree, found: Sequence[tuple[CountingLoop, ElementwiseWork]]) -> Iterator[Edit]:
    """Yields a loop over whole vectors before each loop, which then continues where that ends."""
    together = _together(tree, found)
    for place, (loop, work) in enumerate(found):
        indent, step = indent_of(tree, loop.node), indent_step(tree)
        name = f"{work.bound}{work.count}" if work.bound.isidentifier() else "vectors"
        name = fresh(tree, name if together else f"{name}_{place}" if len(found) > 1 else name)
        vector = fresh(tree, f"{loop.name}{work.count}")
        lines = []
        if place == 0 or not together:
            alike = [one for _, one in found] if together else [work]
            arrays = list({one.name: one for known in alike for one in known.arrays}.values())
            aligned = _aligned(arrays, work.count)
            lines.append(_comment(tree, alike))
            lines.append(
                f"const {loop.declared} {name} = {aligned} ? {work.bound if work.bound.isidentifier() else f'({work.bound})'} / {work.count} : 0;"
            )
        function = fresh(tree, f"each_{place}" if sum(one.is_function(tree) for _, one in found) > 1 else "each")
        lines += _function(tree, work, function, loop.declared)
        lines.append(f"for ({loop.declared} {vector} = {tree.text(loop.start)}; {vector} < {name}; {vector} += {loop.step}) {{")  # fmt: skip
        lines += _further_in(step, _vector(tree, work, partial("({1})[{0}]".format, vector), f"{work.count} * {vector}", loop.declared, function))  # fmt: skip
        lines.append("}")
        start = above_pragmas(tree, loop.node)
        text = "\n".join(_further_in(indent, lines))
        yield start, start, f"{text.removeprefix(indent)}\n{indent}"
        yield tree.replace(loop.start, f"{work.count} * {name} + {tree.text(loop.start)}")
        if work.is_function(tree):
            yield tree.replace(work.body, _call(work, function, "{}[" + work.index + "]", work.index))


def _together(tree: Tree, found: Sequence[tuple[CountingLoop, ElementwiseWork]]) -> bool:
    """Returns True if one number of vectors serves all loops.

    Their bounds are equal, they are adjacent, and their arrays are declared before the first one.
    """
    first = found[0][0].node
    same = {(work.bound, work.count, loop.declared, None if loop.node.parent is None else loop.node.parent.id) for loop, work in found}  # fmt: skip
    known = (tree.variable(one.name) for _, work in found for one in work.arrays)
    return len(same) == 1 and all(one is not None and one.node.start_byte < first.start_byte for one in known)


# ------------------------------------------------------------------------------------------- a thread per element


def _by_threads(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields a candidate for work of one thread per element, if the grid follows from a size."""
    kernel = without_early_returns(request.kernel)
    tree = None if kernel is None else read_tree(kernel)
    if kernel is None or tree is None:
        return
    guard = guarded(tree, statements(tree.body))
    match = None if guard is None else re.fullmatch(r"(\w+)\s*<\s*(\w[\w\s*]*)", guard.inside)
    if guard is None or match is None or len(guard.conjuncts) != 1 or guard.returns:
        return
    index = tree.variable(match[1])
    body = guard.node.child_by_field_name("consequence")
    width = int(request.contract.block[0]) if request.contract.block[0].strip().isdigit() else None
    if index is None or index.value is None or body is None or not is_global_index(tree, index.value, "x", width):
        return
    if len(index.declaration.children_by_field_name("declarator")) != 1 or not constant_after_start(tree, match[1]):
        return
    uses = [use for use in tree.uses(match[1]) if not guard.node.start_byte <= use.start_byte < guard.node.end_byte]
    work = None if uses else _work(tree, match[1], match[2].strip(), body)
    if work is None:
        return
    first = fresh(tree, "first")
    edits: list[Edit] = [
        (*tree.span(index.declaration), f"const {index.type} {first} = {work.count} * ({tree.text(index.value)});"),
        (*tree.span(guard.node), _both_ways(tree, work, first, index.type, indent_of(tree, guard.node))),
    ]
    changed = apply_edits(kernel, [*_structs(tree, [work]), *edits])
    grid = (_shorter_grid(request.contract, work.count), *request.contract.grid[1:])
    changed, contract = relaunch(request, changed, grid=grid)
    yield Rewrite(changed, contract, _why([work]))


def _shorter_grid(contract: Contract, count: int) -> str:
    """Returns the grid's first side for `count` elements per thread."""
    known = covered(contract.grid[0])
    if known is None:
        return f"cdiv({contract.grid[0].strip()}, {count})"
    work, length = known
    return f"cdiv({work}, {int(length) * count if length.isdigit() else f'{length} * {count}'})"


def _both_ways(tree: Tree, work: ElementwiseWork, first: str, kind: str, indent: str) -> str:
    """Returns the work for a whole vector, with a branch for single elements where no whole vector remains."""
    step = indent_step(tree)
    function = fresh(tree, "each")
    lines = _function(tree, work, function, kind)
    lines.append(_comment(tree, [work]))
    lines.append(f"if ({first} + {work.count} <= {work.bound} && {_aligned(work.arrays, work.count)}) {{")
    lines += _further_in(step, _vector(tree, work, partial("({1} + {0})".format, first), first, kind, function))
    lines.append("} else {")
    head = f"for ({kind} {work.index} = {first}; {work.index} < {work.bound} && {work.index} < {first} + {work.count}; ++{work.index})"  # fmt: skip
    body = _body(tree, work.body, []).split("\n")
    if work.is_function(tree):
        body = [_call(work, function, "{}[" + work.index + "]", work.index)]
    if work.body.type == "compound_statement":
        rest = [f"{head} {{", *_further_in(step, body), "}"]
    else:
        rest = [head, *_further_in(step, body)] if len(head) + len(body[0]) > LINE else [f"{head} {body[0]}", *body[1:]]
    lines += [*_further_in(step, rest), "}"]
    return "\n".join(_further_in(indent, lines)).lstrip()


def _further_in(indent: str, lines: Sequence[str]) -> list[str]:
    """Returns lines with further indentation, except preprocessor lines."""
    return [line if line.startswith("#") or not line else f"{indent}{line}" for line in lines]


# -------------------------------------------------------------------------------------- detection of the work


def _by_thread(tree: Tree, start: Node, step: str) -> bool:
    """Returns True if the loop starts at the thread's index and advances by the number of threads."""
    if is_global_index(tree, start) or _is(tree, start, is_global=True):
        return is_grid_stride(tree, step)
    squeezed = "".join(step.split())
    return squeezed == "blockDim.x" and (plain(tree, start) == "threadIdx.x" or _is(tree, start, is_global=False))


def _is(tree: Tree, start: Node, *, is_global: bool) -> bool:
    variable = tree.variable(tree.text(start)) if start.type == "identifier" else None
    if variable is None or variable.value is None or not constant_after_start(tree, variable.name):
        return False
    return is_global_index(tree, variable.value) if is_global else plain(tree, variable.value) == "threadIdx.x"


def _work(tree: Tree, index: str, bound: str, body: Node) -> ElementwiseWork | None:
    if next(tree.walk("return_statement", "continue_statement", "break_statement", "for_statement", under=body), None):
        return None
    if not re.fullmatch(r"\w[\w\s*]*", bound) or not only_pure_calls(tree, body) or len(statements(body)) > LONGEST:
        return None
    arrays: dict[str, PackedArray] = {}
    elsewhere: set[str] = set()
    inside = 0
    for element in element_accesses(tree, body):
        name, at = root_name(tree, element), index_of(element)
        variable = tree.variable(name or "")
        if at is None or variable is None or name is None:
            return None
        if plain(tree, at) != index:
            if is_written(tree, element):
                return None
            if index in names(tree, at):
                elsewhere.add(name)
            continue
        packed = _packed(tree, name, element, arrays)
        if packed is None:
            return None
        inside += 1
        arrays[name] = packed
    met = sum(1 for n in tree.walk("identifier", under=body) if tree.text(n) == index)
    if any(one.stored and one.name in elsewhere for one in arrays.values()) or stores_in_part(tree, body, arrays):
        return None
    if not any(one.read for one in arrays.values()):
        return None
    count = WIDEST // max(ELEMENT_BYTES[one.plain] for one in arrays.values())
    return ElementwiseWork(index, bound, body, tuple(arrays.values()), count, met != inside) if count > 1 else None


def _packed(tree: Tree, name: str, element: Node, arrays: dict[str, PackedArray]) -> PackedArray | None:
    """Returns the array's properties after one more access; None if vector accesses are impossible."""
    variable = tree.variable(name)
    if variable is None or variable.pointers != 1 or "volatile" in variable.qualifiers:
        return None
    if any(place.type == "identifier" and tree.text(place) == name for place in writes(tree, tree.body)):
        return None
    kind = plain_type(tree, variable.type)
    if kind not in ELEMENT_BYTES:
        return None
    known = arrays.get(name, PackedArray(name, variable.type, kind, False, False))
    stored = is_written(tree, element)
    parent = element.parent
    fresh_value = stored and parent is not None and parent.type == "assignment_expression" and operator(tree, parent) == "="  # fmt: skip
    return replace(known, read=known.read or not fresh_value, stored=known.stored or stored)


# ------------------------------------------------------------------------------------------- writing


def _structs(tree: Tree, works: Sequence[ElementwiseWork]) -> Iterator[Edit]:
    """Yields the structs for vectors without a CUDA type, declared at the start of the kernel."""
    indent = indent_of(tree, statements(tree.body)[0])
    start = tree.span(tree.body)[0] + 1
    for work in works:
        for one in work.arrays:
            work.vector(tree, one)
    structs = {name: text for work in works for name, text in work.structs.items()}
    if structs:
        yield start, start, "".join(f"\n{indent}{text}" for text in structs.values())


def _function(tree: Tree, work: ElementwiseWork, name: str, kind: str) -> list[str]:
    """Returns the definition of a function of one element, by value or, if it is stored, by reference; else nothing."""
    if not work.is_function(tree):
        return []
    locals_ = {
        one.name: fresh(tree, f"{one.name}_{work.index if len(work.index) == 1 else 'i'}") for one in work.arrays
    }
    given = [f"{one.type}{'&' * one.stored} {locals_[one.name]}" for one in work.arrays]
    given += [f"{kind} {work.index}"] * work.numbered
    body = _element(tree, work, locals_, "").split("\n")
    return [f"const auto {name} = [&]({', '.join(given)}) {{", *_further_in(indent_step(tree), body), "};"]


def _call(work: ElementwiseWork, name: str, element: str, number: str) -> str:
    """Returns the call of a function of one element: `element` is the form of each array's element."""
    given = [element.format(one.name) for one in work.arrays] + [number] * work.numbered
    return f"{name}({', '.join(given)});"


def _vector(
    tree: Tree, work: ElementwiseWork, at: Callable[[str], str], number: str, kind: str, function: str
) -> list[str]:
    """Returns the work for one vector: loads, the work for each element, stores.

    `number` is the index of the vector's first element, and `function` the name of a function of one element.
    """
    names_ = {one.name: fresh(tree, f"{one.name}{work.count}") for one in work.arrays}
    lines: list[str] = []
    star = "*" if "+" in at("") else ""
    for one in sorted(work.arrays, key=lambda one: not one.read):
        vector = work.vector(tree, one)
        const = "" if one.stored else "const "
        given = f" = {star}reinterpret_cast<const {vector}*>{at(one.name)}" if one.read else ""
        lines.append(f"{const}{vector} {names_[one.name]}{given};")
    if work.by_components(tree):
        lines += [_element(tree, work, names_, f".{axis}") for axis in "xyzw"[: work.count]]
    else:
        lane = min((fresh(tree, name) for name in "kje"), key=len)
        step = indent_step(tree)
        lines += ["#pragma unroll", f"for (int {lane} = 0; {lane} < {work.count}; ++{lane}) {{"]
        element = _element(tree, work, names_, f".at[{lane}]").split("\n")
        if work.is_function(tree):
            vectors = replace(work, arrays=tuple(replace(one, name=names_[one.name]) for one in work.arrays))
            element = [_call(vectors, function, f"{{}}.at[{lane}]", f"{number} + {lane}")]
        elif work.numbered:
            lines.append(f"{step}const {kind} {work.index} = {number} + {lane};")
        lines += [*_further_in(step, element), "}"]
    lines += [f"{star}reinterpret_cast<{work.vector(tree, one)}*>{at(one.name)} = {names_[one.name]};" for one in work.arrays if one.stored]  # fmt: skip
    return lines


def _element(tree: Tree, work: ElementwiseWork, names_: dict[str, str], part: str) -> str:
    """Returns the work on one element of the vectors, without indentation."""
    changes = [
        (element.start_byte, element.end_byte, f"{names_[name]}{part}")
        for element in element_accesses(tree, work.body)
        if (at := index_of(element)) is not None
        and plain(tree, at) == work.index
        and (name := root_name(tree, element)) in names_
    ]
    if work.by_components(tree):
        return replaced(tree, statements(work.body)[0], changes)
    return _body(tree, work.body, changes)


def _body(tree: Tree, body: Node, changes: list[Edit]) -> str:
    """Returns the work's text with parts of it replaced, without indentation."""
    text = replaced(tree, body, changes).strip()
    if body.type == "compound_statement":
        text = text[1:-1].strip()
    return reindented(text, indent_of(tree, statements(body)[0]), "")


def _aligned(arrays: Sequence[PackedArray], count: int) -> str:
    groups: dict[int, list[str]] = {}
    for one in arrays:
        groups.setdefault(count * ELEMENT_BYTES[one.plain], []).append(f"(size_t){one.name}")
    return " && ".join(
        f"{'(' + ' | '.join(names_) + ')' if len(names_) > 1 else names_[0]} % {size} == 0"
        for size, names_ in groups.items()
    )


def _comment(tree: Tree, works: Sequence[ElementwiseWork]) -> str:
    """Returns a comment that explains the vector path and the scalar path."""
    kinds = {work.vector(tree, one): ELEMENT_BYTES[one.plain] * work.count for work in works for one in work.arrays}
    if len(kinds) > 1:
        return "// Vector accesses need aligned addresses; without them, and for what is left, elements go one by one."
    ((kind, size),) = kinds.items()
    return f"// {kind} accesses need {size}-byte alignment; without it, and for what is left, elements go one by one."


def _why(works: Sequence[ElementwiseWork]) -> str:
    words = " and ".join(dict.fromkeys(f"{work.count} of {one.type}" for work in works for one in work.arrays))
    return f"Elements are loaded and stored by whole vectors ({words}), one instruction for each; the rest goes one by one."
