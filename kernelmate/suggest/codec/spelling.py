"""Conversion of tokens to text: without unnecessary blanks for a model, and with usual spacing for a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelmate.suggest.codec.lines import is_number, is_string, is_word
from kernelmate.suggest.codec.names import CONTROL, KEYWORDS, is_type

_GLUED = frozenset(
    {"++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "!=", "<=", ">=", "==", "&&", "||", "<<", ">>", "->", "::"}
    | {"//", "/*", "##", ".."}
)  # fmt: skip
_BINARY = frozenset(
    [
        "+",
        "-",
        "*",
        "/",
        "%",
        "&",
        "|",
        "^",
        "<",
        ">",
        "=",
        "?",
        "<<",
        ">>",
        "&&",
        "||",
        "==",
        "!=",
        "<=",
        ">=",
        "+=",
        "-=",
        "*=",
        "/=",
        "%=",
        "&=",
        "|=",
        "^=",
        "<<=",
        ">>=",
    ]
)
_UNARY = frozenset(["+", "-", "*", "&", "!", "~", "++", "--"])
_ANGLED = frozenset({"static_cast", "reinterpret_cast", "const_cast", "dynamic_cast", "template"})
_BEFORE_VALUE = frozenset({"return", "case", "throw", "else", "do"})


def dense(tokens: Sequence[str]) -> str:
    """Joins tokens with a blank only where needed to keep them apart."""
    parts: list[str] = []
    last = ""
    for word in tokens:
        if last and needs_blank(last, word):
            parts.append(" ")
        parts.append(word)
        last = word
    return "".join(parts)


def needs_blank(last: str, word: str) -> bool:
    """Returns True if two adjacent tokens would be read as other tokens without a blank."""
    end, start = last[-1], word[0]
    if end.isalnum() or end == "_":
        if start.isalnum() or start == "_":
            return True
        if start in "\"'":
            return True
        if start == "@":
            return False
        return is_number(last) and (start == "." or (start in "+-" and end in "eEpP")) and last[0] != "@"
    if start.isalnum() or start == "_":
        return end in "\"'" or (end == "." and start.isdigit())
    return end + start in _GLUED or (end == "." and is_number(word)) or (end == "." == start)


@dataclass(frozen=True, slots=True)
class SpacingStyle:
    """An author's spacing style.

    Attributes:
        step: one level of indentation.
        star_left: pointers are written `float* x`.
        bare: bodies of one statement have no braces.
        same_line: such bodies are on the line of their head.
        tight: operators have no blanks around them.
    """

    step: str = "  "
    star_left: bool = True
    bare: bool = False
    same_line: bool = True
    tight: bool = False


def spaced(tokens: Sequence[str], style: SpacingStyle) -> list[str]:
    """Returns the space before each word of a line, empty for the first."""
    if tokens and tokens[0] == "#":
        return _spaced_directive(tokens)
    angles = _template_brackets(tokens)
    blanks = [""]
    for index in range(1, len(tokens)):
        blanks.append(" " if _is_spaced(tokens, index, angles, style) else "")
    return blanks


def _spaced_directive(tokens: Sequence[str]) -> list[str]:
    if tokens[1:2] == ["include"]:
        return ["", "", " ", *[""] * (len(tokens) - 3)][: len(tokens)]
    rest = spaced(tokens[1:], SpacingStyle()) if len(tokens) > 1 else []
    blanks = ["", *rest]
    if tokens[1:2] == ["define"]:
        if len(tokens) > 3 and tokens[3] == "(":
            close = _match(tokens, 3)
            if close is not None and close + 1 < len(tokens):
                blanks[close + 1] = " "
        elif len(tokens) > 3:
            blanks[3] = " "
    return blanks


def _is_spaced(tokens: Sequence[str], index: int, angles: set[int], style: SpacingStyle) -> bool:
    last, word = tokens[index - 1], tokens[index]
    if word in (",", ";", ")", "]") or last in ("(", "[", " ("):
        return False
    if last in (".", "->", "::", "!", "~") or word in (".", "->", "::", "..."):
        return last in ("=", "return", ",") and word == "::"
    if last in (",", ";"):
        return True
    if word == "{" or last == "}":
        return (word == "{" and index > 0 and last != "{" and not _is_braced_type(tokens, index)) or last == "}"
    if word == "}" or last == "{":
        return last == ";" or (last == "{" and ";" in tokens[index:-1])
    if index in angles or index - 1 in angles:
        return _spaced_at_bracket(tokens, index, angles, style)
    if word == "(":
        return last in CONTROL or last in ("return", "case") or (last in _BINARY and not _is_unary(tokens, index - 1))
    if word == "[":
        return not (is_word(last) or last in (")", "]")) or last == "return"
    return _spaced_operator(tokens, index, angles, style)


def _is_braced_type(tokens: Sequence[str], index: int) -> bool:
    """Returns True for a brace that constructs a value of the preceding type, as in `float4{...}`."""
    return is_word(tokens[index - 1]) and is_type(tokens[index - 1]) and index > 1


def _spaced_at_bracket(tokens: Sequence[str], index: int, angles: set[int], style: SpacingStyle) -> bool:
    last, word = tokens[index - 1], tokens[index]
    if index in angles:
        return last == "template" and word == "<"
    if last == "<" or word in ("(", "{"):
        return False
    if word in ("*", "&"):
        return not style.star_left
    return is_word(word) or word in _BINARY


def _spaced_operator(tokens: Sequence[str], index: int, angles: set[int], style: SpacingStyle) -> bool:
    last, word = tokens[index - 1], tokens[index]
    if word in ("*", "&") and _is_declarator(tokens, index, angles):
        return not style.star_left
    if last in ("*", "&") and _is_declarator(tokens, index - 1, angles):
        return style.star_left and is_word(word)
    if word in ("++", "--") and ((is_word(last) and last not in KEYWORDS) or last in (")", "]")):
        return False
    if word == ":":
        return tokens[0] not in ("case", "default") and index + 1 < len(tokens)
    if last in _UNARY and _is_unary(tokens, index - 1):
        return False
    if word in _BINARY or last in _BINARY or last == ":":
        return not style.tight
    if last == ")":
        return not _closes_cast(tokens, index - 1)
    return ((_wordy(last) or last == "]") and _wordy(word)) or (word in ("!", "~", "++", "--") and _wordy(last))


def _wordy(word: str) -> bool:
    return is_word(word) or is_number(word) or is_string(word)


def _is_unary(tokens: Sequence[str], index: int) -> bool:
    """Returns True if the operator at `index` is a prefix operator."""
    if tokens[index] not in _UNARY:
        return False
    if tokens[index] in ("!", "~"):
        return True
    if index == 0:
        return True
    before = tokens[index - 1]
    if before == ")":
        return _closes_cast(tokens, index - 1)
    return before in _BEFORE_VALUE or not (_wordy(before) or before == "]") or (before in ("++", "--") and index == 1)


def _is_declarator(tokens: Sequence[str], index: int, angles: set[int]) -> bool:
    """Returns True if the star or ampersand at `index` belongs to a declarator or to a pointer type."""
    if index == 0 or tokens[index] not in ("*", "&"):
        return False
    before = tokens[index - 1]
    if before == "*":
        return _is_declarator(tokens, index - 1, angles)
    if index + 1 in angles and tokens[index + 1] == ">":
        return True
    return is_word(before) and (is_type(before) or (index == 1 and len(tokens) > 2 and is_word(tokens[2])))


def _closes_cast(tokens: Sequence[str], index: int) -> bool:
    """Returns True if the parenthesis at `index` closes a cast: it contains only a type."""
    depth = 0
    for position in range(index, -1, -1):
        depth += (tokens[position] == ")") - (tokens[position] in ("(", " ("))
        if depth == 0:
            inner = tokens[position + 1 : index]
            before = tokens[position - 1] if position else ""
            if is_word(before) and before not in _BEFORE_VALUE:
                return False
            return bool(inner) and all(
                (is_word(word) and is_type(word)) or word in ("*", "&", "::", "<", ">") for word in inner
            )
    return False


def _template_brackets(tokens: Sequence[str]) -> set[int]:
    """Returns indices of angle brackets of template arguments or parameters."""
    found: set[int] = set()
    for index, word in enumerate(tokens):
        if word != "<" or index == 0 or not is_word(tokens[index - 1]):
            continue
        close = _angle_end(tokens, index)
        if close is not None:
            found |= {index, close}
    return found


def _angle_end(tokens: Sequence[str], opening: int) -> int | None:
    certain = tokens[opening - 1] in _ANGLED
    depth = 0
    for index in range(opening, len(tokens)):
        word = tokens[index]
        if word == "<":
            depth += 1
        elif word == ">":
            depth -= 1
            if depth == 0:
                following = tokens[index + 1] if index + 1 < len(tokens) else ""
                return index if certain or following in ("(", "::", ">", "{", ",", ")") or is_word(following) else None
        elif word in (";", "{", "}", "&&", "||") or (
            not certain and not (_wordy(word) or word in (",", "::", "*", "&", "(", ")", "..."))
        ):
            return None
    return None


def _match(tokens: Sequence[str], opening: int) -> int | None:
    depth = 0
    for index in range(opening, len(tokens)):
        depth += (tokens[index] == "(") - (tokens[index] == ")")
        if depth == 0:
            return index
    return None
