"""Replaces a loop over the bits of a word by one instruction: `__popc` counts them, `__brev` reverses their order.

Applies to the common ways of counting or reversing the bits of a 32-bit number. Improves time and registers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.helpers import own_trees
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import Edit, Node, Tree
from kernelmate.suggest.syntax_effects import plain, statements
from kernelmate.suggest.syntax_loops import read_loop

_WORDS = frozenset(
    {"unsigned", "unsigned int", "uint32_t", "uint", "unsigned char", "uint8_t", "unsigned short", "uint16_t"}
)  # fmt: skip
_SIGNED = frozenset({"int", "int32_t"})

_COUNTS = (
    r"(?P<c>\w+)\+=\(?(?P<v>\w+)>>{i}\)?&1u?", r"(?P<c>\w+)\+=\((?P<v>\w+)>>{i}\)&1u?",
    r"if\(\(?(?P<v>\w+)>>{i}\)?&1u?\)(?P<c>\w+)\+\+", r"if\(\(?(?P<v>\w+)>>{i}\)?&1u?\)\+\+(?P<c>\w+)",
    r"if\((?P<v>\w+)&\(1u?<<{i}\)\)(?P<c>\w+)\+\+", r"if\((?P<v>\w+)&\(1u?<<{i}\)\)\+\+(?P<c>\w+)", r"if\(\(?(?P<v>\w+)&\(1u?<<{i}\)\)?(?:!=0u?)?\)\+?\+?(?P<c>\w+)(?:\+\+|\+=1)?",
)  # fmt: skip
"""Patterns of an iteration over i that counts the set bits of v in c."""

_SHIFTED = (r"(?P<c>\w+)\+=(?P<v>\w+)&1u?;(?P=v)>>=1", r"(?P<c>\w+)\+=\(?(?P<v>\w+)&1u?\)?;(?P=v)=(?P=v)>>1")
_CLEARED = (
    r"(?P<v>\w+)&=(?P=v)-1u?;(?:\+\+)?(?P<c>\w+)(?:\+\+)?",
    r"(?:\+\+)?(?P<c>\w+)(?:\+\+)?;(?P<v>\w+)&=(?P=v)-1u?",
)  # fmt: skip
_REVERSED = (
    r"(?P<c>\w+)=\((?P=c)<<1\)\|\((?P<v>\w+)&1u?\);(?P=v)>>=1", r"(?P<c>\w+)<<=1;(?P=c)\|=(?P<v>\w+)&1u?;(?P=v)>>=1",
    r"(?P<c>\w+)=\((?P=c)<<1\)\|\(\((?P<v>\w+)>>{i}\)&1u?\)", r"(?P<c>\w+)=(?P=c)<<1\|(?P<v>\w+)>>{i}&1u?",
    r"(?P<c>\w+)\|=\(\((?P<v>\w+)>>{i}\)&1u?\)<<\(31-{i}\)", r"if\((?P<v>\w+)&\(1u?<<{i}\)\)(?P<c>\w+)\|=1u?<<\(31-{i}\)",
)  # fmt: skip


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that replaces every loop over the bits of a word."""
    edits: list[Edit] = []
    for tree in own_trees(request.kernel):
        for loop in tree.walk("for_statement", "while_statement"):
            text = _instruction(tree, loop)
            if text is not None:
                edits.append(tree.replace(loop, text))
    if edits:
        words = "a single instruction does what a loop over its bits does in a hundred"
        yield Rewrite(apply_edits(request.kernel, edits), request.contract, f"For a whole word {words}.")


RECIPE = Recipe("bit-intrinsics", ("time", "registers"), (), rewrites)


def _instruction(tree: Tree, node: Node) -> str | None:
    """Returns the statement that replaces a loop over bits; None if the loop does something else."""
    body = node.child_by_field_name("body")
    if body is None:
        return None
    turn = ";".join(plain(tree, one).replace("{", "").replace("}", "").rstrip(";") for one in statements(body))
    loop = read_loop(tree, node)
    if loop is not None and node.type == "for_statement":
        bits = tree.text(loop.bound)
        if tree.text(loop.start) != "0" or loop.step != "1" or not bits.isdigit() or int(bits) > 32:
            return None
        return _over_all(tree, turn, loop.name, int(bits))
    if node.type != "while_statement":
        return None
    clause = node.child_by_field_name("condition")
    condition = "" if clause is None else re.sub(r"^\(|(?:!=0u?|>0u?)?\)$", "", re.sub(r"\s", "", tree.text(clause)))
    for pattern in (*_SHIFTED, *_CLEARED):
        match = re.fullmatch(pattern, turn)
        if match is not None and match["v"] == condition and _is_word(tree, match["v"], _WORDS | (_SIGNED if pattern in _CLEARED else set())):  # fmt: skip
            return f"{{ {match['c']} += __popc({match['v']}); {match['v']} = 0; }}"
    return None


def _over_all(tree: Tree, turn: str, i: str, bits: int) -> str | None:
    for pattern in _COUNTS:
        match = re.fullmatch(pattern.replace("{i}", i), turn)
        if match is not None and _is_word(tree, match["v"], _WORDS | _SIGNED):
            mask = "" if bits == 32 else f" & 0x{(1 << bits) - 1:x}u"
            return f"{match['c']} += __popc({match['v']}{mask});"
    for pattern in _SHIFTED:
        match = re.fullmatch(pattern, turn)
        if match is not None and bits == 32 and _is_word(tree, match["v"], _WORDS):
            return f"{{ {match['c']} += __popc({match['v']}); {match['v']} = 0; }}"
    for pattern in _REVERSED:
        match = re.fullmatch(pattern.replace("{i}", i), turn)
        if (
            match is not None
            and bits == 32
            and _is_word(tree, match["v"], _WORDS)
            and _is_word(tree, match["c"], _WORDS)
        ):
            reset = f" {match['v']} = 0;" if ">>=" in turn else ""
            return f"{{ {match['c']} = __brev({match['v']});{reset} }}"
    return None


def _is_word(tree: Tree, name: str, kinds: frozenset[str]) -> bool:
    variable = tree.variable(name)
    return variable is not None and not variable.pointers and not variable.dims and variable.type in kinds
