"""Changes of structure that rewrites need before they can do their own: none of them alters what a kernel computes."""

from __future__ import annotations

from kernelmate.records import Kernel
from kernelmate.source import apply_edits
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree
from kernelmate.suggest.syntax_effects import fresh, indent_of, indent_step, statements
from kernelmate.suggest.syntax_loops import Guarded, guarded


def without_early_returns(kernel: Kernel) -> Kernel | None:
    """The kernel with `if (out) return; rest` written as `if (in) { rest }`, so that all threads reach its end.

    None where a return remains: every thread of a block must come to what is put at the end.
    """
    for _ in range(4):
        tree = read_tree(kernel)
        if tree is None:
            return None
        if next(tree.walk("return_statement"), None) is None:
            return kernel
        guard = guarded(tree, statements(tree.body))
        if guard is None or not guard.returns or not guard.rest:
            return None
        kernel = apply_edits(kernel, _braced_rest(tree, guard))
    return None


def _braced_rest(tree: Tree, guard: Guarded) -> list[Edit]:
    """Edits that put what follows a guard into its braces, one level further in."""
    text = tree.kernel.unit.text
    rest = guard.rest
    before = last_return(guard)
    edits = [(tree.span(guard.node)[0], tree.span(before)[1], f"if ({guard.inside}) {{")]
    edits += further_in(tree, tree.span(before)[1], tree.span(rest[-1])[1])
    closing = tree.span(tree.body)[1] - 1
    line = text.rfind("\n", 0, closing) + 1
    indent = indent_of(tree, guard.node)
    if text[line:closing].strip():
        edits.append((closing, closing, f"\n{indent}}}\n"))
    else:
        edits.append((line, line, f"{indent}}}\n"))
    return edits


def last_return(guard: Guarded) -> Node:
    """The last of the returns that the guard stands for."""
    node = guard.node
    for _ in range(guard.returns - 1):
        following = node.next_named_sibling
        while following is not None and following.type == "comment":
            following = following.next_named_sibling
        if following is not None:
            node = following
    return node


def further_in(tree: Tree, start: int, end: int) -> list[Edit]:
    """Insertions that indent each line that begins between two offsets by one level; preprocessor lines stay."""
    text, step = tree.kernel.unit.text, indent_step(tree)
    edits: list[Edit] = []
    line = text.find("\n", start, end) + 1
    while line:
        if text[line : line + 1] not in {"\n", "#", ""} and line < end:
            edits.append((line, line, step))
        line = text.find("\n", line, end) + 1
    return edits


def above(kernel: Kernel) -> int:
    """Where a function goes that the kernel calls: above its contract and their comments, unless code lies in between."""
    text = kernel.unit.text
    place = kernel.start
    if kernel.contract_span is not None and kernel.contract_span[1] <= place:
        between = text[kernel.contract_span[1] : place]
        place = kernel.contract_span[0] if _only_comments(between) else place
    line = text.rfind("\n", 0, place) + 1
    if text[line:place].strip():
        return place
    while line > 0:
        previous = text.rfind("\n", 0, line - 1) + 1
        if not text[previous:line].lstrip().startswith("//"):
            break
        line = previous
    return line


def _only_comments(text: str) -> bool:
    return all(not line.strip() or line.lstrip().startswith("//") for line in text.split("\n"))


class WarpFunctions:
    """The functions that join the values of a warp, each written once above the kernel, and names of values."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._names: dict[tuple[str | None, str], str] = {}
        self._values: set[str] = set()

    def name(self, function: str | None, kind: str) -> str:
        """What the function is called that joins by addition, or by `function`, values of a type."""
        if (function, kind) not in self._names:
            what = "sum" if function is None else "max" if "max" in function else "min"
            name = fresh(self._tree, f"warp_{what}")
            if name in self._names.values():
                name = fresh(self._tree, f"warp_{what}_{kind.replace(' ', '_')}")
            self._names[function, kind] = name
        return self._names[function, kind]

    def value_name(self, name: str) -> str:
        """A name that no value has yet."""
        name = numbered = fresh(self._tree, name)
        count = 1
        while numbered in self._values:
            count += 1
            numbered = fresh(self._tree, f"{name}{count}")
        self._values.add(numbered)
        return numbered

    def edit(self) -> Edit:
        """The functions, above the kernel and its comments."""
        place = above(self._tree.kernel)
        step = indent_step(self._tree)
        text = ""
        for (function, kind), name in self._names.items():
            other = "__shfl_down_sync(0xffffffffu, value, offset)"
            join = f"value += {other};" if function is None else f"value = {function}(value, {other});"
            text += f"__device__ {kind} {name}({kind} value) {{\n{step}for (int offset = 16; offset > 0; offset /= 2) {join}\n{step}return value;\n}}\n\n"  # fmt: skip
        return place, place, text
