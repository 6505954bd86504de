"""Neighbouring elements are loaded and stored 16 bytes at a time, with a tail for the last few.

Applies to element-wise work: a thread's number, or a strided loop's variable, used for nothing but `array[i]`. Each thread takes
as many neighbouring elements as fit 16 bytes; where an array does not begin at such an address, or fewer elements are left,
it takes them one by one. There are fewer, wider instructions. It is for time, and costs registers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelmate.records import Contract
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite, relaunch
from kernelmate.suggest.recipes.restructure import without_early_returns
from kernelmate.suggest.syntax import ELEMENT_BYTES, Edit, Node, Tree, read_tree
from kernelmate.suggest.syntax_effects import (
    constant_after_start,
    element_accesses,
    fresh,
    indent_of,
    indent_step,
    index_of,
    is_written,
    only_pure_calls,
    operator,
    plain,
    reindented,
    replaced,
    root_name,
    statements,
)
from kernelmate.suggest.syntax_loops import guarded, is_global_index, is_grid_stride, loops

WIDEST = 16
"""Bytes of the widest load: PTX ISA, ld, vectors of 128 bits."""


@dataclass(frozen=True, slots=True)
class Packed:
    """One array that is met only at the element's own number."""

    name: str
    type: str
    read: bool
    stored: bool


@dataclass(frozen=True, slots=True)
class Work:
    """Element-wise work: `body` for the element that `index` numbers, below `bound`."""

    index: str
    bound: str
    body: Node
    arrays: tuple[Packed, ...]
    count: int


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """One candidate: the guarded work of the kernel, or all its element-wise loops."""
    yield from _by_threads(request)
    tree = read_tree(request.kernel)
    if tree is None:
        return
    edits: list[Edit] = []
    packs: dict[str, int] = {}
    for loop in loops(tree):
        if loop.node.type != "for_statement" or not loop.declared or loop.inclusive or not _by_thread(tree, loop.start, loop.step):  # fmt: skip
            continue
        work = _work(tree, loop.name, tree.text(loop.bound), loop.block)
        if work is None:
            continue
        indent = indent_of(tree, loop.node)
        base = fresh(tree, f"{loop.name}_base")
        head = f"for ({loop.declared} {base} = ({tree.text(loop.start)}) * {work.count}; {base} < {work.bound}; {base} += ({loop.step}) * {work.count}) {{"  # fmt: skip
        inner = _both_ways(tree, work, base, loop.declared, indent + indent_step(tree))
        edits.append((*tree.span(loop.node), f"{head}\n{inner}\n{indent}}}"))
        packs |= {one.type: work.count for one in work.arrays}
    if edits and len({span[:2] for span in edits}) == len(edits):
        kernel = apply_edits(request.kernel, [_structs(tree, packs), *edits])
        yield Rewrite(kernel, request.contract, _why(packs))


RECIPE = Recipe("vectorize", ("time",), ("registers",), rewrites)


def _by_threads(request: SuggestRequest) -> Iterator[Rewrite]:
    """The work of a thread with a number of its own, where the grid follows from a size."""
    kernel = without_early_returns(request.kernel)
    tree = None if kernel is None else read_tree(kernel)
    if kernel is None or tree is None:
        return
    guard = guarded(tree, statements(tree.body))
    match = None if guard is None else re.fullmatch(r"(\w+)\s*<\s*(\w+)", guard.inside)
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
    work = None if uses else _work(tree, match[1], match[2], body)
    grid = None if work is None else _shorter_grid(request.contract, work.count)
    if work is None or grid is None:
        return
    base = fresh(tree, f"{work.index}_base")
    indent = indent_of(tree, guard.node)
    kind = "const " + index.type
    edits: list[Edit] = [
        (*tree.span(index.declaration), f"{kind} {base} = ({tree.text(index.value)}) * {work.count};"),
        (*tree.span(guard.node), _both_ways(tree, work, base, index.type, indent).lstrip()),
    ]
    packs = {one.type: work.count for one in work.arrays}
    changed = apply_edits(kernel, [_structs(tree, packs), *edits])
    changed, contract = relaunch(request, changed, grid=(grid,))
    yield Rewrite(changed, contract, _why(packs))


def _shorter_grid(contract: Contract, count: int) -> str | None:
    if len(contract.grid) > 1:
        return None
    text, found = re.subn(r"cdiv\(\s*(\w+)\s*,\s*(\w+)\s*\)", rf"cdiv(\1, \2 * {count})", contract.grid[0])
    return text if found == 1 else None


def _by_thread(tree: Tree, start: Node, step: str) -> bool:
    """The loop starts at the thread's number, and goes on by the number of threads."""
    if is_global_index(tree, start) or _is(tree, start, is_global=True):
        return is_grid_stride(tree, step)
    squeezed = "".join(step.split())
    return squeezed == "blockDim.x" and (plain(tree, start) == "threadIdx.x" or _is(tree, start, is_global=False))


def _is(tree: Tree, start: Node, *, is_global: bool) -> bool:
    variable = tree.variable(tree.text(start)) if start.type == "identifier" else None
    if variable is None or variable.value is None or not constant_after_start(tree, variable.name):
        return False
    return is_global_index(tree, variable.value) if is_global else plain(tree, variable.value) == "threadIdx.x"


def _work(tree: Tree, index: str, bound: str, body: Node) -> Work | None:
    if next(tree.walk("return_statement", "continue_statement", "break_statement", "for_statement", under=body), None):
        return None
    if not re.fullmatch(r"\w+", bound) or not only_pure_calls(tree, body):
        return None
    arrays: dict[str, Packed] = {}
    inside = 0
    for element in element_accesses(tree, body):
        name, at = root_name(tree, element), index_of(element)
        variable = tree.variable(name or "")
        if at is None or variable is None or name is None:
            return None
        if plain(tree, at) != index:
            if is_written(tree, element) or index in {tree.text(n) for n in tree.walk("identifier", under=at)}:
                return None
            continue
        if variable.pointers != 1 or variable.type not in ELEMENT_BYTES or "volatile" in variable.qualifiers:
            return None
        inside += 1
        known = arrays.get(name, Packed(name, variable.type, False, False))
        stored = is_written(tree, element)
        fresh_value = stored and element.parent is not None and element.parent.type == "assignment_expression" and operator(tree, element.parent) == "="  # fmt: skip
        arrays[name] = Packed(name, variable.type, known.read or not fresh_value, known.stored or stored)
    met = sum(1 for n in tree.walk("identifier", under=body) if tree.text(n) == index)
    if not arrays or met != inside or _stores_in_part(tree, body, arrays):
        return None
    count = WIDEST // max(ELEMENT_BYTES[one.type] for one in arrays.values())
    return Work(index, bound, body, tuple(arrays.values()), count) if count > 1 else None


def _stores_in_part(tree: Tree, body: Node, arrays: dict[str, Packed]) -> bool:
    """An element is stored only under a condition: the others of its pack would be stored too."""
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


def _structs(tree: Tree, packs: dict[str, int]) -> Edit:
    """Local types of so many elements, aligned to their size, declared first in the kernel."""
    indent = indent_of(tree, statements(tree.body)[0])
    start = tree.span(tree.body)[0] + 1
    text = "".join(
        f"\n{indent}struct alignas({count * ELEMENT_BYTES[kind]}) {_pack(kind)} {{ {kind} at[{count}]; }};"
        for kind, count in packs.items()
    )
    return start, start, text


def _pack(kind: str) -> str:
    return f"pack_{re.sub(r'[^A-Za-z0-9]+', '_', kind).strip('_')}"


def _both_ways(tree: Tree, work: Work, base: str, kind: str, indent: str) -> str:
    """The work for a whole pack, and element by element where there is none."""
    step = indent_step(tree)
    lane = fresh(tree, "k")
    old = indent_of(tree, statements(work.body)[0])
    aligned = _aligned(work.arrays, work.count)
    lines = [f"{indent}if ({base} + {work.count} <= {work.bound} && {aligned}) {{"]
    for one in work.arrays:
        pack = fresh(tree, f"{one.name}_pack")
        given = f" = *reinterpret_cast<const {_pack(one.type)}*>({one.name} + {base})" if one.read else ""
        lines.append(f"{indent}{step}{_pack(one.type)} {pack}{given};")
    changes = [
        (element.start_byte, element.end_byte, f"{fresh(tree, f'{root_name(tree, element)}_pack')}.at[{lane}]")
        for element in element_accesses(tree, work.body)
        if (at := index_of(element)) is not None and plain(tree, at) == work.index
    ]
    lines += ["#pragma unroll", f"{indent}{step}for (int {lane} = 0; {lane} < {work.count}; ++{lane}) {{"]
    lines += _body(tree, work.body, changes, old, indent + step * 2)
    lines.append(f"{indent}{step}}}")
    for one in work.arrays:
        if one.stored:
            pack = fresh(tree, f"{one.name}_pack")
            lines.append(f"{indent}{step}*reinterpret_cast<{_pack(one.type)}*>({one.name} + {base}) = {pack};")
    lines += [f"{indent}}} else {{", f"{indent}{step}for ({kind} {work.index} = {base}; {work.index} < {work.bound} && {work.index} < {base} + {work.count}; ++{work.index}) {{"]  # fmt: skip
    lines += _body(tree, work.body, [], old, indent + step * 2)
    return "\n".join([*lines, f"{indent}{step}}}", f"{indent}}}"])


def _body(tree: Tree, body: Node, changes: list[tuple[int, int, str]], old: str, new: str) -> list[str]:
    text = replaced(tree, body, changes).strip()
    if body.type == "compound_statement":
        text = text[1:-1].strip("\n").strip()
    return [new + reindented(text, old, new)]


def _aligned(arrays: Sequence[Packed], count: int) -> str:
    groups: dict[int, list[str]] = {}
    for one in arrays:
        groups.setdefault(count * ELEMENT_BYTES[one.type], []).append(f"(size_t){one.name}")
    return " && ".join(f"({' | '.join(names)}) % {size} == 0" for size, names in groups.items())


def _why(packs: dict[str, int]) -> str:
    words = ", ".join(f"{count} of {kind}" for kind, count in packs.items())
    return f"Elements are loaded and stored one by one; taken together ({words}) there is one instruction for each pack, and a tail where arrays or sizes do not fit it."  # fmt: skip
