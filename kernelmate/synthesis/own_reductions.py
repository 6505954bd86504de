"""Reductions over a warp that the file has and a generated kernel uses in place of its own."""

from __future__ import annotations

import re

from kernelmate.synthesis.file_style import closing_bracket
from kernelmate.synthesis.names import without_comments

_HEAD = re.compile(r"^[\w ]*__device__[\w ]* float (\w+)\(float (\w+)\)\s*(?=\{)", re.MULTILINE)
_LOOP = (
    r"\{ (?:#pragma unroll )?for \(int (\w+) = ([\w/ ]+); \1(?: > 0| >= 1)?; \1 (?:/= 2|>>= 1)\) (\{ )?"
    r"(?:@ \+= (?P<sum>~)|@ = f(?P<kind>max|min)f\(@, (?P<extreme>~)\)); (?(3)\} )return @; \}"
).replace("~", r"__shfl_xor_sync\([^,]*, @, \1(?:, 32)?\)")


def warp_reductions(text: str) -> dict[str, str]:
    """Returns the names of functions that give each lane of a warp the sum or an extreme of its floats, by `sum`, `max` and `min`."""
    plain, found = without_comments(text), dict[str, str]()
    for head in _HEAD.finditer(plain):
        body = " ".join(plain[head.end() : closing_bracket(plain, head.end()) + 1].split())
        loop = re.fullmatch(_LOOP.replace("@", head[2]), body)
        if loop is None or not _is(loop[2].removesuffix(" / 2"), 32 if loop[2].endswith(" / 2") else 16, plain):
            continue
        mask = re.search(r"_sync\(([^,]*),", body)
        if mask is not None and _is(mask[1], 0xFFFFFFFF, plain):
            found.setdefault(loop["kind"] or "sum", head[1])
    return found


def _is(text: str, value: int, file: str) -> bool:
    """Returns True if a number, or a constant or macro of a file, has a value."""
    if text == "warpSize":
        return value == 32
    named = re.search(rf"\b{text} = (\w+);|^#[ \t]*define[ \t]+{text}[ \t]+\(?(\w+)\)?[ \t]*$", file, re.MULTILINE) if text.isidentifier() else None  # fmt: skip
    number = (named[1] or named[2] if named is not None else text).lower().rstrip("u")
    return re.fullmatch(r"\d+|0x[0-9a-f]+", number) is not None and int(number, 0) == value


def with_own_reductions(above: str, definition: str, helpers: str) -> tuple[str, str]:
    """Returns a generated kernel and its helpers, with the warp reductions of the file above it in place of equal helpers."""
    own = warp_reductions(above)
    for kind, name in warp_reductions(helpers).items() if own else ():
        piece = next(
            (one for one in helpers.split("\n\n") if re.search(rf"^static [^\n]* {name}\(", one, re.MULTILINE)), ""
        )
        if kind not in own or not piece:
            continue
        helpers = "\n\n".join(one for one in helpers.split("\n\n") if one != piece)
        definition, helpers = (re.sub(rf"\b{name}(?=\()", own[kind], one) for one in (definition, helpers))
    return definition, helpers
