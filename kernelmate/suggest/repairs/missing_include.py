"""Includes the CUDA header that declares an unknown name, with the namespace alias that it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.source import apply_edits
from kernelmate.source.tokens import lex
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Rewrite
from kernelmate.suggest.repairs.base import COMPILE, FaultLocation, Repair, compile_errors

HEADERS: tuple[tuple[str, str, str], ...] = (
    (
        r"(?:__)?half2?(?:_raw)?|__(?:float|double|int|uint|short|ushort|ll|ull)2?_?2?half2?\w*|__half2?2?\w+|__halves2half2"
        r"|__(?:low|high)2\w+|__lows2half2|__highs2half2|__h(?:add|sub|mul|div|fma|neg|abs|max|min|gt|lt|ge|le|eq|ne)2?(?:_\w+)?"
        r"|h(?:exp|log|sqrt|rsqrt|rcp|sin|cos|floor|ceil|trunc|rint)2?",
        "cuda_fp16.h",
        "",
    ),
    (
        r"(?:__)?nv_bfloat162?(?:_raw)?|__(?:float|double|int|bfloat16)2?2?bfloat162?\w*|__bfloat16\w+",
        "cuda_bf16.h",
        "",
    ),
    (r"__nv_fp8\w+|__nv_cvt_\w*fp8\w*", "cuda_fp8.h", ""),
    (r"cooperative_groups", "cooperative_groups.h", ""),
    (r"cg", "cooperative_groups.h", "namespace cg = cooperative_groups;"),
    (r"nvcuda", "mma.h", ""),
    (r"wmma", "mma.h", "using namespace nvcuda;"),
    (r"cub", "cub/cub.cuh", ""),
    (r"CUDART_\w+", "math_constants.h", ""),
    (r"__pipeline_\w+", "cuda_pipeline_primitives.h", ""),
)
"""Patterns of names, the header that declares them, and a further declaration that short names need."""

_UNKNOWN = re.compile(r'identifier "(\w+)" is undefined')
_UNKNOWN_SCOPE = re.compile(r"name followed by \"::\" must be|name must be a namespace name")


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate with every header that declares an unknown name."""
    lines: dict[str, str] = {}
    for spot in compile_errors(request):
        name = _name(request, spot)
        for pattern, header, also in HEADERS:
            if name is not None and re.fullmatch(pattern, name):
                for line in filter(None, (f"#include <{header}>", also)):
                    lines.setdefault(line, name)
                break
    text = request.kernel.unit.text
    new = [line for line in lines if line not in text]
    if new:
        place = _place(text, request.kernel.start)
        added = "".join(f"{line}\n" for line in sorted(new, key=lambda line: not line.startswith("#")))
        why = "; ".join(f"`{lines[line]}` needs `{line}`" for line in new) + "."
        yield Rewrite(apply_edits(request.kernel, [(place, place, added)]), request.contract, why)


REPAIR = Repair("missing-include", ("correct",), (), rewrites, COMPILE)


def _name(request: SuggestRequest, spot: FaultLocation) -> str | None:
    """Returns the unknown name that a message refers to; None for other messages."""
    found = _UNKNOWN.match(spot.message)
    if found:
        return found[1]
    if _UNKNOWN_SCOPE.match(spot.message):
        word = re.compile(r"\w+").match(request.kernel.unit.text, spot.offset)
        return None if word is None else word[0]
    return None


def _place(text: str, before: int) -> int:
    """Returns the offset after the last include above the kernel, else the top of the file."""
    hashes = [token for token in lex(text).tokens if token.text == "#" and token.directive and token.start < before]
    last = [token for token in hashes if re.match(r"#[ \t]*include\b", text[token.start :])]
    if not last:
        return 0
    end = text.find("\n", last[-1].start)
    return len(text) if end < 0 else end + 1
