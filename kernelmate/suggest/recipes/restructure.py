"""Restructuring of a kernel that prepares rewrites and does not alter its results.

Numbers that rewrites introduce get names: an existing constant of the file, else a new one above the kernel.
"""

from __future__ import annotations

import re

from kernelmate.records import Kernel
from kernelmate.source import apply_edits, helpers_offset
from kernelmate.suggest.pieces import INCLUDED
from kernelmate.suggest.syntax import Edit, Node, Tree, integer_constants, read_tree
from kernelmate.suggest.syntax_effects import fresh, indent_of, indent_step, statements
from kernelmate.suggest.syntax_loops import GuardedWork, guarded

WARP = 32
"""Number of threads of a warp."""
_WIDTH = r"^k?_?warp$|warp_?(?:size|width|len|threads|lanes)|^k?_?lanes$|(?:lanes|threads)_?per_?warp"
"""Pattern of names of constants for the warp size."""
WARPS = 32
"""Number of warps of the largest block, which has 1024 threads."""

ZERO = {
    "float": "0.0f", "double": "0.0", "int": "0", "unsigned": "0u", "unsigned int": "0u", "long long": "0ll", "unsigned long long": "0ull",
}  # fmt: skip
"""The number zero as C++ text, by each type that shuffles support."""


def without_early_returns(kernel: Kernel) -> Kernel | None:
    """Returns the kernel with `if (out) return; rest` written as `if (in) { rest }`, so that all threads reach its end.

    The result is None if a return remains: code appended to the kernel must be reached by every thread of the block.
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


def _braced_rest(tree: Tree, guard: GuardedWork) -> list[Edit]:
    """Returns edits that move the statements after a guard into its braces, indented by one level."""
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


def last_return(guard: GuardedWork) -> Node:
    """Returns the last of the consecutive guards `if (...) return;` that `guard` combines."""
    node = guard.node
    for _ in range(guard.returns - 1):
        following = node.next_named_sibling
        while following is not None and following.type == "comment":
            following = following.next_named_sibling
        if following is not None:
            node = following
    return node


def further_in(tree: Tree, start: int, end: int) -> list[Edit]:
    """Returns insertions that indent each line between two offsets by one level, except preprocessor lines."""
    text, step = tree.kernel.unit.text, indent_step(tree)
    edits: list[Edit] = []
    line = text.find("\n", start, end) + 1
    while line:
        if text[line : line + 1] not in {"\n", "#", ""} and line < end:
            edits.append((line, line, step))
        line = text.find("\n", line, end) + 1
    return edits


def above(kernel: Kernel) -> int:
    """Returns the offset for a helper function: above the kernel and its adjacent contract and comments."""
    text = kernel.unit.text
    place = helpers_offset(kernel)
    line = text.rfind("\n", 0, place) + 1
    if text[line:place].strip():
        return place
    while line > 0:
        previous = text.rfind("\n", 0, line - 1) + 1
        if not text[previous:line].lstrip().startswith("//"):
            break
        line = previous
    return line


def known(tree: Tree, value: int, words: str) -> str | None:
    """Returns the name of a constant of the file with this value, if the name matches the pattern `words`.

    The result is None otherwise.
    """
    for name, constant in integer_constants(tree.kernel.unit.text).items():
        visible = constant.span[0] < tree.kernel.start and tree.variable(name) is None
        if visible and constant.value == value and re.search(words, name, re.IGNORECASE):
            return name
    return None


def warp_width(tree: Tree) -> str:
    """Returns the text of the warp size: the file's constant for it, else the number."""
    return known(tree, WARP, _WIDTH) or str(WARP)


def half_warp(tree: Tree) -> str:
    """Returns the text of half the warp size, the first offset of a sum by shuffles."""
    width = known(tree, WARP, _WIDTH)
    return f"{width} / 2" if width else str(WARP // 2)


class BlockReductions:
    """Device functions that reduce a block's values, written above the kernel with the warp reductions they call."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._names: dict[tuple[str | None, str], tuple[str, str]] = {}
        self._values: set[str] = set()
        self._again: set[tuple[str | None, str]] = set()

    @property
    def count(self) -> int:
        """Number of functions requested so far."""
        return len(self._names)

    def name(self, function: str | None, kind: str, *, again: bool) -> str:
        """Returns the name of the block reduction by `function` (None: sum) for a type, and requests its definition.

        `again` is True if a launch calls it more than once.
        """
        key = function, kind
        if key not in self._names:
            what = "sum" if function is None else "max" if "max" in function else "min"
            taken = {name for names in self._names.values() for name in names}
            warp, block = (fresh(self._tree, f"{part}_{what}") for part in ("warp", "block"))
            if {warp, block} & taken:
                word = kind.replace(" ", "_")
                warp, block = (fresh(self._tree, f"{part}_{what}_{word}") for part in ("warp", "block"))
            self._names[key] = warp, block
        else:
            again = True
        if again:
            self._again.add(key)
        return self._names[key][1]

    def value_name(self, name: str) -> str:
        """Returns an unused name for a value."""
        numbered = fresh(self._tree, name)
        count = 1
        while numbered in self._values:
            count += 1
            numbered = fresh(self._tree, f"{name}{count}")
        self._values.add(numbered)
        return numbered

    def edit(self) -> Edit:
        """Returns the edit that inserts the functions above the kernel and its comments."""
        place = above(self._tree.kernel)
        text = "".join(self._text(*key, *names, key in self._again) for key, names in self._names.items())
        return place, place, text

    def _text(self, function: str | None, kind: str, warp: str, block: str, again: bool) -> str:
        other = "__shfl_xor_sync(0xffffffffu, value, offset)"
        join = f"value += {other};" if function is None else f"value = {function}(value, {other});"
        idle = ZERO[kind] if function is None else "value"
        width = warp_width(self._tree)
        result = f"{warp}(lane < blockDim.x / {width} ? partial[lane] : {idle})"
        last = [f"return {result};"]
        if again:
            last = [f"value = {result};", "__syncthreads();  // partial is free for the next call", "return value;"]
        lines = [
            f"const int lane = threadIdx.x % {width}, warp = threadIdx.x / {width};",
            f"value = {warp}(value);",
            "if (lane == 0) partial[warp] = value;",
            "__syncthreads();",
            *last,
        ]
        what = "sum" if function is None else "largest value" if "max" in function else "smallest value"
        # In a header, each file that includes it has functions of its own.
        linkage = "static " * self._tree.kernel.unit.path.endswith(INCLUDED)
        step, once = indent_step(self._tree), "" if again else "; a second call needs a barrier before it"
        return (
            f"// The {what} of a warp, in each of its lanes.\n"
            f"{linkage}__device__ {kind} {warp}({kind} value) {{\n"
            f"{step}for (int offset = {half_warp(self._tree)}; offset > 0; offset /= 2) {join}\n{step}return value;\n}}\n\n"
            f"// The {what} of a block of whole warps, in each of its threads{once}.\n"
            f"{linkage}__device__ {kind} {block}({kind} value) {{\n"
            f"{step}__shared__ {kind} partial[{WARPS}];  // of each warp; a block has at most {WARPS}\n"
            + "".join(f"{step}{line}\n" for line in lines)
            + "}\n\n"
        )


BINS = "bin|bucket|level|class|symbol"
"""Regular expression of words in the names of a histogram's length."""


def warps(tree: Tree, threads: int) -> str:
    """Returns the number of a block's warps as text: an expression of the file's constants, else a literal."""
    block = known(tree, threads, "block|thread|chunk|cta")
    return known(tree, threads // WARP, "warps") or (f"{block} / {warp_width(tree)}" if block else str(threads // WARP))


def named(tree: Tree, word: str, value: int, why: str) -> tuple[str, Edit]:
    """Returns the name of a new constant in the file's style, and the edit that declares it directly above the kernel.

    Args:
        tree: the kernel's tree.
        word: the constant's name in capitalised words, such as `MaxBlocks`.
        value: the integer.
        why: a comment beside it.
    """
    text = tree.kernel.unit.text
    constants = integer_constants(text)
    upper = bool(constants) and all(name.isupper() for name in constants)
    name = fresh(tree, re.sub(r"(?<!^)(?=[A-Z])", "_", word).upper() if upper else f"k{word}")
    macros = re.search(r"^[ \t]*#[ \t]*define[ \t]+\w+[ \t]+\(?\d", text, re.MULTILINE) is not None
    typed = re.search(
        r"\bconst(?:expr)?\s+(?:unsigned\s+)?(?:int|unsigned|size_t)\s+\w+\s*=\s*\d", text[: tree.kernel.start]
    )
    head = f"#define {name} {value}" if macros and typed is None else f"constexpr int {name} = {value};"
    place = above(tree.kernel)
    last = text[:place].rstrip("\n")
    if re.match(r"#[ \t]*define\b|(?:static )?const(?:expr)?\b", last.rpartition("\n")[2]) and place > len(last):
        return name, (len(last) + 1, len(last) + 1, f"{head}  // {why}\n")
    return name, (place, place, f"{head}  // {why}\n\n")
