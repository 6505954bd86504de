"""Inserts a missing `;` or closing bracket at the place that the compiler's message or the layout indicates.

The compiler names the token after the gap. A missing `;` belongs before that token; a missing bracket may belong
anywhere after its opening bracket, and indentation determines the place of a brace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.source import apply_edits
from kernelmate.source.tokens import Token, lex
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Rewrite
from kernelmate.suggest.repairs.base import COMPILE, FaultLocation, Repair, compile_errors

_EXPECTED = re.compile(r'expected an? "([;)\]}])"')
_UNEXPECTED = ("expected an expression", "expected a statement", "expected a declaration")
"""Beginnings of the compiler's messages on the token that follows a missing `;`."""
_GOES_ON = frozenset(
    {";", "{", "}", ",", "(", "[", ":", "=", "<", ">", "+", "-", "*", "/", "%", "&", "|", "^", "!", "?"}
)
_LINES_BACK = 3
_OPENING = {")": "(", "]": "[", "}": "{"}
MOST_PLACES = 4


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields a candidate with all missing `;`, then the first named missing token at each probable place."""
    missing = [(spot, token) for spot in compile_errors(request) if (token := _missing(spot)) is not None]
    semicolons = [next(_places(request, spot, ";"), None) for spot, wanted in missing if wanted == ";"]
    ends = list(dict.fromkeys(place for place in semicolons if place is not None))
    if len(ends) > 1:
        lines = ", ".join(str(_file_line(request, place)) for place in sorted(ends))
        edits = [(place, place, ";") for place in ends]
        yield Rewrite(apply_edits(request.kernel, edits), request.contract, f"Lines {lines} lack a `;` at their end.")
    for spot, wanted in missing[:1]:
        for place in dict.fromkeys(_places(request, spot, wanted)):
            text = wanted if wanted != "}" else _closing_line(request, place)
            why = f"The compiler expects `{wanted}` in line {_file_line(request, place)}."
            yield Rewrite(apply_edits(request.kernel, [(place, place, text)]), request.contract, why)


REPAIR = Repair("missing-token", ("correct",), (), rewrites, COMPILE)


def _missing(spot: FaultLocation) -> str | None:
    """Returns the token that a message names; `;` if the message is on a token that cannot begin a statement.

    The result is None otherwise.
    """
    found = _EXPECTED.match(spot.message)
    return found[1] if found else ";" if spot.message.startswith(_UNEXPECTED) else None


def _file_line(request: SuggestRequest, offset: int) -> int:
    unit = request.kernel.unit
    return unit.locate(unit.text.count("\n", 0, offset) + 1, None)[0]


def _gap(request: SuggestRequest, spot: FaultLocation) -> int:
    """Returns the offset after the last token before the position."""
    before = [token for token in lex(request.kernel.unit.text).tokens if token.end <= spot.offset]
    return before[-1].end if before else spot.offset


def _places(request: SuggestRequest, spot: FaultLocation, wanted: str) -> Iterator[int]:
    if wanted == "}":
        yield from _brace_places(request)
        return
    if wanted == ";":
        yield from _statement_ends(request, spot)
        return
    yield _gap(request, spot)
    tokens = [
        token for token in lex(request.kernel.unit.text).tokens if token.end <= spot.offset and not token.directive
    ]
    opened = _last_open(tokens, _OPENING[wanted])
    if opened is not None:
        yield from (token.end for token in tokens[opened + 1 : opened + 1 + MOST_PLACES])


def _statement_ends(request: SuggestRequest, spot: FaultLocation) -> Iterator[int]:
    """Yields the ends of preceding code lines at which a `;` may be missing.

    Within a line, only the place that the compiler names is tried.
    """
    text, gap = request.kernel.unit.text, _gap(request, spot)
    at_end = "\n" in text[gap : spot.offset]
    if at_end and text[gap - 1 : gap] not in _GOES_ON:
        yield gap
    tokens = [token for token in lex(text).tokens if token.end <= spot.offset and not token.directive]
    seen: set[int] = set()
    for token, following in zip(reversed(tokens[:-1]), reversed(tokens[1:]), strict=True):
        if "\n" in text[token.end : following.start] and len(seen) < _LINES_BACK:
            seen.add(token.end)
            if token.text not in _GOES_ON:
                yield token.end
    if not at_end and not spot.message.startswith(_UNEXPECTED):
        yield gap


def _last_open(tokens: list[Token], opening: str) -> int | None:
    """Returns the index of the last bracket of this kind that is not closed; None if there is none."""
    depth = 0
    for index in range(len(tokens) - 1, -1, -1):
        text = tokens[index].text
        if text in {")", "]", "}"}:
            depth += 1
        elif text in {"(", "[", "{"}:
            if depth == 0:
                return index if text == opening else None
            depth -= 1
    return None


def _brace_places(request: SuggestRequest) -> Iterator[int]:
    """Yields offsets before lines indented no further than the line of an open brace, then the end of the text."""
    text = request.kernel.unit.text
    opened: list[int] = []
    offset = request.kernel.start
    for line in text[offset:].split("\n"):
        indent = len(line) - len(line.lstrip(" \t"))
        code = line.strip()
        closes = code.startswith("}")
        if code and opened and (indent < opened[-1] or (indent == opened[-1] and not closes)):
            yield offset
        for token in lex(line).tokens:
            if token.text == "{":
                opened.append(indent)
            elif token.text == "}" and opened:
                opened.pop()
        offset += len(line) + 1
    yield len(text)


def _closing_line(request: SuggestRequest, place: int) -> str:
    """Returns a line with a closing brace for an offset.

    It is indented one level less than the code before it, or equally if that code opens a brace.
    """
    text = request.kernel.unit.text
    if place == len(text):
        return "}\n" if text.endswith("\n") else "\n}\n"
    last = text[:place].rstrip("\n").rpartition("\n")[2]
    indent = len(last) - len(last.lstrip(" \t"))
    own = last[:indent] if "{" in last else last[: max(indent - 4, 0)]
    return own + "}\n"
