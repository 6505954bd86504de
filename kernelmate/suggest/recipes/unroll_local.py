"""Unrolls loops over a local array, so that all its indices are constants and its elements are registers.

Applies to arrays of a thread that are accessed by loops of a length known at compile time. An array with a variable
index is in local memory, which is off-chip. Improves local memory and time, and costs registers and code size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.records import Claim
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.recipes.unroll import pragma
from kernelmate.suggest.syntax import Node, Tree, integer_constants, read_tree
from kernelmate.suggest.syntax_effects import names
from kernelmate.suggest.syntax_loops import enclosing_loops


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that unrolls every loop of known length over a local array."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    arrays = [v.name for v in tree.variables.values() if v is not None and v.dims and not v.shared and not v.pointers]
    loops: dict[int, Node] = {}
    for element in tree.walk("subscript_expression"):
        root = element.child_by_field_name("argument")
        if root is None or tree.text(root).split("[")[0] not in arrays:
            continue
        for loop in enclosing_loops(element):
            if _of_known_length(tree, loop) and "unroll\n" not in f"{_before(loop)}\n":
                loops[loop.id] = loop
    edits = [edit for loop in loops.values() for edit in pragma(tree, loop, "unroll")]
    if edits:
        why = f"{' and '.join(arrays)} is indexed by loop variables and so kept in local memory; unrolled, every index is a constant and the elements are registers."  # fmt: skip
        yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)


CLAIMS = (
    Claim(r" and so kept in local memory", "local_bytes", "present"),
    Claim(
        r"every index is a constant and the elements are registers",
        "local_bytes",
        instead="more of the indices are constants",
    ),
)
RECIPE = Recipe("unroll-local-arrays", ("local_bytes", "time"), ("registers",), rewrites, claims=CLAIMS)


def _of_known_length(tree: Tree, loop: Node) -> bool:
    """Returns True if the trip count is known at compile time.

    The head contains only numbers, constants, template arguments, and variables of such loops around it.
    """
    if loop.type != "for_statement":
        return False
    known = set(integer_constants(tree.kernel.unit.text)) | set(tree.kernel.signature.template_parameters)
    for around in (loop, *(one for one in enclosing_loops(loop) if one.type == "for_statement")):
        opening = around.child_by_field_name("initializer")
        if opening is not None:
            known |= {tree.text(n) for d in opening.children_by_field_name("declarator") if (n := tree.name_node(d))}
        if around.id != loop.id and not _of_known_length(tree, around):
            known -= {tree.text(n) for d in (opening.children_by_field_name("declarator") if opening else ()) if (n := tree.name_node(d))}  # fmt: skip
    head = [loop.child_by_field_name(part) for part in ("initializer", "condition", "update")]
    used = {name for part in head if part is not None for name in names(tree, part)}
    return used <= known and all(part is not None for part in head)


def _before(loop: Node) -> str:
    before = loop.prev_named_sibling
    text = b"" if before is None or before.type != "preproc_call" else before.text or b""
    return re.sub(r"\s+", " ", text.decode()).strip()
