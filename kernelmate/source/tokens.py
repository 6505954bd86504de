"""Lexer of CUDA text: enough C++ to distinguish code from comments, strings and preprocessor lines.

Kernels, launches and contract blocks are found on these tokens and not on a syntax tree: a tree built over unexpanded
macros loses or merges definitions (`__global__ void BOUNDS(256) k(...)`), while a kernel's head is recognisable from
its tokens whatever the macros around it mean. Offsets are in characters of the text.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from kernelmate.caching import text_cache

TokenKind = Literal["word", "number", "string", "char", "symbol"]

_TOKEN = re.compile(
    r"""
      (?P<space>[^\S\n]+)
    | (?P<continued>\\[ \t]*\r?\n)
    | (?P<newline>\n)
    | (?P<line_comment>//(?:[^\\\n]|\\[ \t]*\n|\\(?![ \t]*\n))*)
    | (?P<block_comment>/\*[\s\S]*?(?:\*/|\Z))
    | (?P<string>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s"]{0,16})\([\s\S]*?(?:\)(?P=delimiter)"|\Z)
               | (?:u8|[uUL])?"(?:[^"\\\n]|\\[\s\S])*"?)
    | (?P<char>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)*'?)
    | (?P<number>\.?\d(?:[eEpP][+-]|'\w|[\w.])*)
    | (?P<word>[^\W\d]\w*)
    | (?P<symbol><<<|<<|::|->|<=|>=|==|.)
    """,
    re.VERBOSE,
)

_CONSTANT_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:el)?if[ \t]+(?:0|1|false|true)\b", re.MULTILINE)
_CONSTANTS = {"0": False, "false": False, "1": True, "true": True}
_CLOSING = {"(": ")", "[": "]", "{": "}"}

LONG_TEXT = 20_000
"""Characters from which a text is read again only where it changed."""
LOOKAHEAD = 64
"""Characters behind a token that can decide what it is: `R"delimiter(`, a continued line, `<<<`."""


class Token(NamedTuple):
    """One token; `directive` is the number of its preprocessor line (0 for code), `text` its source text."""

    kind: TokenKind
    text: str
    start: int
    end: int
    directive: int


class LineComment(NamedTuple):
    """One `//` comment: its offsets, and whether only blanks precede it on its line."""

    start: int
    end: int
    first_on_line: bool


@dataclass(frozen=True)
class LexedText:
    """The tokens of a text and its `//` comments, both in order."""

    text: str
    tokens: tuple[Token, ...]
    comments: tuple[LineComment, ...]
    line_starts: tuple[int, ...]

    @cached_property
    def code(self) -> tuple[Token, ...]:
        """The tokens outside preprocessor lines."""
        return tuple([token for token in self.tokens if not token.directive])

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The texts of `code`."""
        return tuple([token.text for token in self.code])

    @cached_property
    def directives(self) -> tuple[tuple[Token, ...], ...]:
        """The tokens of each preprocessor line."""
        found = [token for token in self.tokens if token.directive]
        return tuple(tuple(line) for _, line in itertools.groupby(found, key=lambda token: token.directive))

    def position(self, offset: int) -> tuple[int, int]:
        """Returns line and column, from 1, of an offset."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line_start(self, offset: int) -> int:
        """Returns the offset of the first character of the line that contains `offset`."""
        return self.line_starts[bisect_right(self.line_starts, offset) - 1]


_RECENT: deque[LexedText] = deque(maxlen=2)
"""The last two long texts."""


def line_starts(text: str) -> tuple[int, ...]:
    r"""Returns the offsets at which the lines of a text with `\n` line ends start."""
    return tuple(itertools.accumulate((len(line) + 1 for line in text.split("\n")[:-1]), initial=0))


@text_cache(32)
def lex(text: str) -> LexedText:
    """Splits CUDA text into tokens. Never raises: unknown characters become one-character symbols.

    Of a long text only what differs from a recent one is read: an editor sends the whole file with every key.
    """
    if len(text) < LONG_TEXT:
        return _Lexer(text).result()
    before = max(tuple(_RECENT), key=lambda one: _common(one.text, text), default=None)
    lexed = _Lexer(text).result() if before is None else _lex_again(text, before)
    _RECENT.append(lexed)
    return lexed


class _Lexer:
    """State of the lexer between two tokens: those found, and whether the next one is in a preprocessor line or can begin one."""

    def __init__(self, text: str, tokens: Sequence[Token] = (), comments: Sequence[LineComment] = ()) -> None:
        self.text = text
        self.tokens = list(tokens)
        self.comments = list(comments)
        self.at = tokens[-1].end if tokens else 0
        self.directive = tokens[-1].directive if tokens else 0
        self.directives = _last_directive(tokens)
        self.fresh_line = not tokens

    def read(self, known: _Known | None = None) -> int | None:
        """Reads to the end of the text, or up to a token known from the earlier text; returns that token's index there."""
        directives, directive, fresh_line = self.directives, self.directive, self.fresh_line
        tokens, comments = self.tokens, self.comments
        for match in _TOKEN.finditer(self.text, self.at):
            kind = match.lastgroup if match.lastgroup != "delimiter" else "string"
            if kind in ("space", "continued", "block_comment"):
                continue
            if kind == "newline":
                directive, fresh_line = 0, True
            elif kind == "line_comment":
                comments.append(LineComment(match.start(), match.end(), fresh_line))
            else:
                if fresh_line and match.group() == "#":
                    directives += 1
                    directive = directives
                elif known is not None and not directive and match.start() >= known.start:
                    same = known.index(match.start())
                    if same is not None:
                        self.directives = directives
                        return same
                fresh_line = False
                tokens.append(Token(kind, match.group(), match.start(), match.end(), directive))  # type: ignore[arg-type]
        return None

    def result(self) -> LexedText:
        """Reads to the end of the text."""
        self.read()
        return self.lexed()

    def lexed(self) -> LexedText:
        """Returns all that has been read so far as one object."""
        return LexedText(self.text, tuple(self.tokens), tuple(self.comments), line_starts(self.text))


class _Known:
    """The tokens of an earlier text after a change: they begin at offset `start` of the new text, and moved by `shift`."""

    def __init__(self, before: LexedText, start: int, shift: int) -> None:
        self.tokens, self.start, self.shift = before.tokens, start, shift

    def index(self, start: int) -> int | None:
        """Returns the index of the earlier token of code at an offset of the new text.

        From there on both texts have the same tokens, since these depend only on the characters that follow, and on
        whether it is in a preprocessor line.
        """
        index = bisect_left(self.tokens, start - self.shift, key=_start)
        if index == len(self.tokens):
            return None
        token = self.tokens[index]
        return index if token.start + self.shift == start and not token.directive and token.text != "#" else None


def _start(token: Token) -> int:
    return token.start


def _last_directive(tokens: Sequence[Token]) -> int:
    return next((token.directive for token in reversed(tokens) if token.directive), 0)


def _lex_again(text: str, before: LexedText) -> LexedText:
    """Splits a text into tokens, most of which may be those of an earlier text."""
    same = _common(before.text, text)
    ending = _common(before.text[same:][::-1], text[same:][::-1])
    # Tokens close before the change may hang on it.
    kept = bisect_right(before.tokens, same - LOOKAHEAD, key=lambda token: token.end)
    tokens = before.tokens[:kept]
    end = tokens[-1].end if tokens else 0
    shift = len(text) - len(before.text)
    lexer = _Lexer(text, tokens, before.comments[: bisect_left(before.comments, end, key=lambda one: one.start)])
    found = lexer.read(_Known(before, len(text) - ending, shift))
    if found is not None:
        rest = before.tokens[found:]
        more = lexer.directives - _last_directive(before.tokens[:found])
        lexer.tokens += (
            [
                Token(kind, word, start + shift, end + shift, directive and directive + more)
                for kind, word, start, end, directive in rest
            ]
            if shift or more
            else rest
        )
        first = bisect_left(before.comments, rest[0].start, key=lambda one: one.start)
        lexer.comments += [LineComment(a + shift, b + shift, fresh) for a, b, fresh in before.comments[first:]]
    return lexer.lexed()


def _common(one: str, other: str) -> int:
    """Returns the length of the longest common beginning of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def live_text(text: str) -> str:
    """Returns a text with blanks in place of the code that `#if 0`, or the other branches of `#if 1`, leave out."""
    if _CONSTANT_CONDITION.search(text) is None:
        return text
    tokens = lex(text).tokens
    branches: list[
        tuple[bool, bool | None]
    ] = []  # of each `#if`: is left out; one that came before, or this one, is taken
    parts: list[str] = []
    done, dead = 0, False
    for index, token in enumerate(tokens):
        if token.text != "#" or not token.directive or (index and tokens[index - 1].directive == token.directive):
            continue
        line = list(itertools.takewhile(lambda one: one.directive == token.directive, tokens[index:]))  # noqa: B023 -- used at once
        name, value = "".join(one.text for one in line[1:2]), _CONSTANTS.get(line[2].text) if len(line) == 3 else None
        if name in ("if", "ifdef", "ifndef"):
            branches.append((value is False, value))
        elif name in ("elif", "else") and branches:
            taken, value = branches.pop()[1], True if name == "else" else value
            branches.append((taken is True or value is False, taken or value))
        elif name == "endif" and branches:
            branches.pop()
        if dead != any(left_out for left_out, _ in branches):
            end = token.start if dead else line[-1].end
            parts.append(_blanked(text[done:end]) if dead else text[done:end])
            done, dead = end, not dead
    return "".join((*parts, _blanked(text[done:]) if dead else text[done:]))


def _blanked(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def closing(tokens: Sequence[Token], opening: int) -> int | None:
    """Returns the index of the bracket that closes the one at `opening`; None if the text ends before it."""
    stack: list[str] = []
    for index in range(opening, len(tokens)):
        text = tokens[index].text
        if tokens[index].kind != "symbol":
            continue
        if text in _CLOSING:
            stack.append(_CLOSING[text])
        elif text in ")]}":
            if not stack or stack.pop() != text:
                return None
            if not stack:
                return index
    return None


def assignment(tokens: Sequence[Token], bracket: int) -> str | None:
    """Returns the operator that assigns to the element whose subscript opens at `bracket`, such as `=`, `+=` or `++`.

    The result is None if the element is only read.
    """
    end = closing(tokens, bracket)
    following = "" if end is None else "".join(token.text for token in tokens[end + 1 : end + 4])
    found = re.match(r"(?:<<|>>|[-+*/%&|^])?=(?!=)|\+\+|--", following)
    return None if found is None else found[0]


def closing_angle(tokens: Sequence[Token], opening: int) -> int | None:
    """Returns the index of the `>` that closes the template argument list opened at `opening`.

    The result is None if the `<` is a comparison.
    """
    depth, index = 0, opening
    while index < len(tokens):
        text = tokens[index].text
        if text == "<":
            depth += 1
        elif text == ">":
            depth -= 1
            if depth == 0:
                return index
        elif text in ("(", "["):
            end = closing(tokens, index)
            if end is None:
                return None
            index = end
        elif text == "{" and tokens[index - 1].kind == "word":
            # A value of a class type, such as `Config{128, true}`; a block has statements.
            end = closing(tokens, index)
            if end is None or any(token.text == ";" for token in tokens[index:end]):
                return None
            index = end
        elif text in (";", "{", "}", ")", "]", "<<<"):
            return None
        index += 1
    return None


def opening_angle(tokens: Sequence[Token], end: int) -> int | None:
    """Returns the index of the `<` that opens the template argument list closed at `end`.

    Parentheses inside are skipped.
    """
    angles = brackets = 0
    for index in range(end, -1, -1):
        text = tokens[index].text
        if text in (")", "]"):
            brackets += 1
        elif text in ("(", "["):
            brackets -= 1
        elif text in (";", "{", "}") or brackets < 0:
            return None
        elif brackets == 0 and text in ("<", ">"):
            angles += 1 if text == ">" else -1
            if angles == 0:
                return index
    return None


def name_before(tokens: Sequence[Token], opening: int) -> tuple[int | None, bool]:
    """Returns the index of the name before a parenthesis, and whether template arguments lie between them."""
    index = opening - 1
    if index >= 0 and tokens[index].text == ">":
        start = opening_angle(tokens, index)
        return (start - 1, True) if start and tokens[start - 1].kind == "word" else (None, True)
    return (index, False) if index >= 0 and tokens[index].kind == "word" else (None, False)


def split_list(tokens: Sequence[Token], start: int, end: int) -> list[tuple[int, int]]:
    """Returns index ranges between the commas of `tokens[start:end]`; brackets and template arguments are not split."""
    parts: list[tuple[int, int]] = []
    begin = index = start
    while index < end:
        text = tokens[index].text
        skip = None
        if text in _CLOSING and tokens[index].kind == "symbol":
            skip = closing(tokens, index)
        elif text == "<" and index > start and tokens[index - 1].kind == "word":
            skip = closing_angle(tokens, index)
        elif text == ",":
            parts.append((begin, index))
            begin = index + 1
        index = skip + 1 if skip is not None and skip < end else index + 1
    if begin < end or parts:
        parts.append((begin, end))
    return parts
