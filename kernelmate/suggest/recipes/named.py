"""Names for numbers that rewrites introduce: an existing constant of the file, else a new one above the kernel."""

from __future__ import annotations

import re

from kernelmate.suggest.recipes.restructure import WARP, above, known, warp_width
from kernelmate.suggest.syntax import Edit, Tree, integer_constants
from kernelmate.suggest.syntax_effects import fresh

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
