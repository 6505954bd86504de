"""Renders kept parts of a text at their original positions, with blanks elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kernelmate.compiler.declarations import Parsed
from kernelmate.source.tokens import Token


def laid_out(text: str, pieces: Sequence[tuple[int, str]]) -> str:
    """Returns parts of a text at their lines and columns, with blanks between them."""
    out: list[str] = []
    at = 0
    for start, piece in pieces:
        if start < at:
            continue
        out += (_blank(text[at:start]), piece)
        newlines = piece.count("\n")
        at = start + len(piece)
        if newlines != text.count("\n", start, at):
            # A rewritten include may be longer or shorter than the original; the rest of its line is blank anyway.
            at = start
        end = text.find("\n", start)
        if piece.startswith("#include"):
            at = len(text) if end < 0 else end
    out.append(_blank(text[at:]))
    return "\n".join(line.rstrip() for line in "".join(out).split("\n"))


def _blank(text: str) -> str:
    return re.sub(r"[^\n\t]", " ", text)


def shells(parsed: Parsed) -> set[int]:
    """Returns the tokens of namespaces and linkage blocks around their contents."""
    found: set[int] = set()
    waiting = list(parsed.declarations)
    while waiting:
        declaration = waiting.pop()
        if declaration.kind in ("namespace", "linkage") and declaration.body is not None:
            brace, closer = declaration.body
            found.update(range(declaration.start, brace + 1))
            found.update(range(closer, declaration.stop))
            waiting.extend(declaration.members)
    return found


def lambda_annotations(code: Sequence[Token], stays: set[int]) -> Iterator[int]:
    """Yields `__device__` tokens of lambdas: NVRTC compiles every lambda for the device, and rejects the annotation."""
    for index in sorted(stays):
        if code[index].text == "]" and index + 1 < len(code):
            at = index + 1
            while at < len(code) and code[at].text in ("__host__", "__device__"):
                at += 1
            if at < len(code) and code[at].text in ("(", "{", "mutable"):
                yield from range(index + 1, at)
