"""Names for the numbers that rewrites bring: a constant of the file where it has one, else a new one above the kernel."""

from __future__ import annotations

import re

from kernelmate.suggest.recipes.restructure import above
from kernelmate.suggest.syntax import Edit, Tree, integer_constants
from kernelmate.suggest.syntax_effects import fresh

WARP = 32


def known(tree: Tree, value: int, words: str) -> str | None:
    """A constant of the file with this value, whose name has one of these words: `tile|side`."""
    for name, constant in integer_constants(tree.kernel.unit.text).items():
        visible = constant.span[0] < tree.kernel.start and tree.variable(name) is None
        if visible and constant.value == value and re.search(words, name, re.IGNORECASE):
            return name
    return None


def warps(tree: Tree, threads: int) -> str:
    """The number of a block's warps: by the file's constant for its threads or warps, else a number."""
    block = known(tree, threads, "block|thread|chunk|cta")
    return known(tree, threads // WARP, "warp") or (f"{block} / {WARP}" if block else str(threads // WARP))


def named(tree: Tree, word: str, value: int, why: str) -> tuple[str, Edit]:
    """A new constant in the file's own style, and the edit that puts it below the file's last constant, or above the kernel.

    Args:
        tree: the kernel's.
        word: its name in one or two capitalised words: `MaxBlocks`.
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
