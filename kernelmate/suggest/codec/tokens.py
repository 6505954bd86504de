"""Split of text into tokens and the gaps before them: operators are whole tokens, gaps contain comments and layout.

It serves for the user's text and for a model's lines. `kernelmate.source.tokens` differs: it separates comments from
layout, and splits operators so that template brackets can be matched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""
    (?P<gap>(?:[^\S\n]+|\n|\\\r?\n|//(?:[^\\\n]|\\\n|\\(?!\n))*|/\*[\s\S]*?(?:\*/|\Z))*)
    (?P<token>
        (?:u8|[uUL])?R"(?P<delimiter>[^()\\\s"]{0,16})\([\s\S]*?(?:\)(?P=delimiter)"|\Z)
      | (?:u8|[uUL])?"(?:[^"\\\n]|\\[\s\S])*"?
      | (?:u8|[uUL])?'(?:[^'\\\n]|\\.)*'?
      | @[vk]\d+[A-Za-z]?\w*
      | \.?\d(?:[eEpP][+-]|'\w|[\w.])*
      | [^\W\d]\w*
      | <<=|>>=|\.\.\.|->|\+\+|--|&&|\|\||::|\#\#|<<|>>|[-+*/%&|^!=<>]=
      | .
      | \Z
    )
    """,
    re.VERBOSE,
)
_JOINED = re.compile(r"\\\r?\n")
_COMMENT = re.compile(r"//(?:[^\\\n]|\\\n|\\(?!\n))*|/\*[\s\S]*?(?:\*/|\Z)")


@dataclass(slots=True)
class Tokens:
    """The tokens of a text; `gaps[i] + texts[i]` over all i, followed by `tail`, is the text.

    Attributes:
        texts: the texts of the tokens.
        gaps: layout and comments before each token.
        directives: number of the preprocessor line that each token is part of; 0 for code.
        tail: the gap after the last token.
    """

    texts: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    directives: list[int] = field(default_factory=list)
    tail: str = ""


def read_tokens(text: str) -> Tokens:
    """Splits a text into tokens. Raises no errors: unknown characters become single tokens."""
    found = Tokens()
    texts, gaps, directives = found.texts, found.gaps, found.directives
    number = current = 0
    for gap, written, _ in _TOKEN.findall(text):
        if not written:
            found.tail = gap
            break
        fresh = not texts or ("\n" in gap and breaks_line(gap))
        if fresh:
            current = 0
            if written == "#":
                number += 1
                current = number
        texts.append(written)
        gaps.append(gap)
        directives.append(current)
    return found


def breaks_line(gap: str) -> bool:
    """Returns True if the gap ends a line, not counting continuations and line ends in comments."""
    return "\n" in _COMMENT.sub(" ", _JOINED.sub(" ", gap))


def has_comment(gap: str) -> bool:
    """Returns True if the gap contains a comment."""
    return "/" in gap


def is_word(token: str) -> bool:
    """Returns True if the token is a name or a keyword."""
    first = token[0]
    return (first.isalpha() or first == "_") and token[-1] not in "\"'"


def is_number(token: str) -> bool:
    """Returns True if the token is a number."""
    return token[0].isdigit() or (token[0] == "." and len(token) > 1 and token[1].isdigit())


def is_string(token: str) -> bool:
    """Returns True for a string or character literal, even if unclosed."""
    return '"' in token or ("'" in token and not is_number(token))
