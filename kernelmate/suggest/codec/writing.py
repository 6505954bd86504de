"""Writes a changed text from tokens: with the old layout for contiguous old tokens, else in the author's style."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kernelmate.suggest.codec.lines import CanonicalLine, CanonicalUnit
from kernelmate.suggest.codec.spelling import SpacingStyle

WIDEST = 120
"""Largest width in columns of a single-statement body on the line of its head, if the author uses that style."""

_OPERATORS = frozenset({"=", "+", "<", "+=", "/", "=="})
_DEEPER = re.compile(r"\n(?=[ \t]+(?:[^\s]|\Z))")
_STAR_LEFT = re.compile(r"\w[*&] (?=\w)")
_STAR_RIGHT = re.compile(r"\w [*&](?=\w)")
_SAME_LINE = re.compile(r"(?:[ \t\r\f\v]|\\\r?\n|/\*(?:[^*\n]|\*(?!/))*\*/)*(?://(?:[^\\\n]|\\\n|\\(?!\n))*)?")


@dataclass(slots=True)
class OutputToken:
    """One token of the new text.

    Attributes:
        text: the token's text.
        index: its index among the old tokens; -1 for a brace that the author omitted, None for a new token.
        lead: the space before it by the spacing of its line.
        first: True if it begins a line of the canonical form.
        deep: brace depth of its old line; None if it has none.
    """

    text: str
    index: int | None
    lead: str = ""
    first: bool = False
    deep: int | None = None


def style_of(old: CanonicalUnit) -> SpacingStyle:
    """Detects the layout style of a unit's author."""
    gaps, texts = old.tokens.gaps, old.tokens.texts
    joined = "".join(gap + text for gap, text in zip(gaps, texts, strict=True))
    left, right = len(_STAR_LEFT.findall(joined)), len(_STAR_RIGHT.findall(joined))
    operators = [gap for gap, text in zip(gaps, texts, strict=True) if text in _OPERATORS]
    tight = operators.count("") * 2 > len(operators)
    bare = braced = same = 0
    for line in old.lines:
        last = line.items[-1] if line.items else None
        if last is not None and last.text == "{" and line.items[0].text in ("if", "for", "while", "}"):
            bare += last.place == -1
            braced += last.place != -1
            if last.place == -1:
                following = line.items[-2].place + 1
                same += following < len(gaps) and "\n" not in gaps[following]
    return SpacingStyle(_step(old), left >= right, bare >= braced, same * 2 >= bare, tight)


def _step(old: CanonicalUnit) -> str:
    """Returns one indentation level: the most frequent difference of indentation between a line and its parent."""
    steps: Counter[str] = Counter()
    above: list[str] = []
    for line in old.lines:
        if line.hidden or line.directive or not line.items:
            continue
        if line.items[0].text == "}" and above:
            above.pop()
        indent = _indent_of(old, line)
        if indent is not None and above and indent.startswith(above[-1]) and len(indent) > len(above[-1]):
            steps[indent[len(above[-1]) :]] += 1
        if line.items[-1].text == "{":
            above.append(indent if indent is not None else (above[-1] if above else ""))
    return steps.most_common(1)[0][0] if steps else "  "


def _indent_of(old: CanonicalUnit, line: CanonicalLine) -> str | None:
    """Returns the indentation of a line that begins at the start of a text line; None for others."""
    index = line.items[0].place
    if index < 0:
        return None
    gap = old.tokens.gaps[index]
    if "\n" not in gap and index > 0:
        return None
    indent = gap[gap.rfind("\n") + 1 :]
    return indent if not indent.strip() else None


class TokenWriter:
    """Writer of tokens as text."""

    def __init__(self, old: CanonicalUnit, style: SpacingStyle) -> None:
        self.gaps = [*old.tokens.gaps, old.tokens.tail]
        self.style = style
        self.depth = self.shift = 0
        self.base: tuple[str, int] = ("", 0)
        self.column = 0

    def text(self, tokens: Sequence[OutputToken]) -> str:
        """Returns the text of all tokens."""
        parts: list[str] = []
        last: OutputToken | None = None
        broken = bare = False
        depth = 0
        for place, token in enumerate(tokens):
            depth = max(depth - (token.text == "}"), 0)
            self.depth = depth
            depth += token.text == "{"
            if token.first:
                self.shift = 0 if token.deep is None else self.depth - token.deep
            if token.index == -1:
                broken, bare = broken or token.first, token.text == "{"
                continue
            room = self._fits(tokens, place) if bare and self.style.same_line else False
            lead = self._gap(last, token, begins=token.first or broken or last is None, joins=room)
            broken = bare = False
            written = lead + token.text.strip()
            parts.append(written)
            self._remember(token, lead, written)
            last = token
        end = len(self.gaps) - 1
        if last is None or (last.index is not None and last.index + 1 == end):
            parts.append(self.gaps[end])
        else:
            parts.append("\n" if "\n" in self.gaps[end] else "")
        return "".join(parts)

    def _gap(self, last: OutputToken | None, token: OutputToken, *, begins: bool, joins: bool) -> str:
        """Returns the gap between two tokens; `joins` if the second is a body on the line of its head."""
        own = self.gaps[token.index] if token.index is not None else None
        previous = -1 if last is None else last.index
        if own is not None and previous is not None and previous + 1 == token.index:
            return self._shifted(own)
        if not begins:
            return token.lead
        trailing = _cut(self.gaps[previous + 1])[0] if previous is not None and previous >= 0 else ""
        if joins and not trailing:
            return " "
        above = None if own is None else _cut(own)[1]
        if token.index == 0:
            above = own
        if above is not None:
            lead = self._shifted("\n" + above)[1:]
        elif last is not None:
            lead = self._indent(token)
        else:
            lead = ""
        return trailing + ("" if last is None else "\n") + lead

    def _shifted(self, gap: str) -> str:
        """Returns a gap with its lines re-indented; lines without indentation stay there."""
        if not self.shift or "\n" not in gap:
            return gap
        if self.shift > 0:
            return _DEEPER.sub(lambda found: found[0] + self.style.step * self.shift, gap)
        lines = gap.split("\n")
        for _ in range(-self.shift):
            lines[1:] = [line.removeprefix(self.style.step) for line in lines[1:]]
        return "\n".join(lines)

    def _fits(self, tokens: Sequence[OutputToken], place: int) -> bool:
        """Returns True if the statement at `place` fits on the line of its head."""
        if tokens[place].text == "#":
            return False
        width = 1
        for token in tokens[place:]:
            if token.index == -1 or (token is not tokens[place] and token.first):
                break
            width += len(token.lead) + len(token.text)
        return self.column + width <= WIDEST

    def _indent(self, token: OutputToken) -> str:
        if token.text == "#":
            return ""
        indent, depth = self.base
        if self.depth >= depth:
            return indent + self.style.step * (self.depth - depth)
        for _ in range(depth - self.depth):
            indent = indent.removesuffix(self.style.step)
        return indent

    def _remember(self, token: OutputToken, lead: str, written: str) -> None:
        if "\n" in written:
            self.column = len(written) - written.rfind("\n") - 1
        else:
            self.column += len(written)
        if token.first and token.text != "#" and ("\n" in lead or not lead):
            indent = lead[lead.rfind("\n") + 1 :]
            if not indent.strip():
                self.base = (indent, self.depth)


def _cut(gap: str) -> tuple[str, str | None]:
    """Splits a gap into the comment on the line of the token before it, and the lines below.

    The second part is None if the gap does not end a line.
    """
    same = _SAME_LINE.match(gap)
    end = same.end() if same is not None else 0
    comment = gap[:end].rstrip()
    if end < len(gap) and gap[end] == "\n":
        return comment, gap[end + 1 :]
    return comment, gap[end:] if end < len(gap) else None
