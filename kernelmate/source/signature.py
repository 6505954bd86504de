"""Parses signatures of kernels: parameters, template parameters, launch bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from kernelmate.records import Parameter
from kernelmate.source.dtypes import c_type_dtype
from kernelmate.source.tokens import Token, closing, closing_angle, split_list

_QUALIFIERS = frozenset({"const", "volatile", "__grid_constant__", "register", "struct", "class", "enum", "typename"})
_RESTRICT = frozenset({"__restrict__", "__restrict", "restrict"})
_TYPE_WORDS = frozenset(
    [
        "unsigned",
        "signed",
        "int",
        "long",
        "short",
        "char",
        "double",
        "float",
        "bool",
        "void",
        "auto",
        "size_t",
        "wchar_t",
    ]
)
_ATTRIBUTES = frozenset({"alignas", "__align__", "__attribute__"})

Position = Callable[[int], tuple[int, int]]


def read_parameters(
    tokens: Sequence[Token], start: int, end: int, position: Position, aliases: Mapping[str, str]
) -> tuple[Parameter, ...]:
    """Parses the parameters between a parameter list's parentheses.

    Args:
        tokens: tokens of the whole text.
        start: index of the first token inside.
        end: index of the closing parenthesis.
        position: returns line and column of an offset.
        aliases: type names that the text defines, with the types they stand for.
    """
    found = []
    for number, (first, last) in enumerate(split_list(tokens, start, end)):
        part = _without_attributes(_without_default(tokens[first:last]))
        if not part or [token.text for token in part] == ["void"]:
            continue
        found.append(_read_parameter(part, number, position, aliases))
    return tuple(found)


def _without_default(part: Sequence[Token]) -> Sequence[Token]:
    for index, token in enumerate(part):
        if token.text == "=":
            return part[:index]
    return part


def _without_attributes(part: Sequence[Token]) -> list[Token]:
    kept: list[Token] = []
    index = 0
    while index < len(part):
        token = part[index]
        following = part[index + 1].text if index + 1 < len(part) else ""
        if (token.text in _ATTRIBUTES and following == "(") or (token.text == "[" and following == "["):
            end = closing(part, index + 1 if token.text in _ATTRIBUTES else index)
            index = len(part) if end is None else end + 1
            continue
        kept.append(token)
        index += 1
    return kept


def _read_parameter(part: list[Token], number: int, position: Position, aliases: Mapping[str, str]) -> Parameter:
    named = _name_index(part)
    name = f"arg{number}" if named is None else part[named].text
    place = part[0] if named is None else part[named]
    function = _is_function(part)
    declared = part if named is None or function else part[:named]
    dimensions = 0 if named is None else _array_dimensions(part, named + 1)
    stars = [index for index, token in enumerate(declared) if token.text == "*"]
    grouped = any(token.text == "(" for token in declared)
    pointed = declared[: stars[0]] if stars else declared
    base_tokens = [t for t in pointed if t.text not in _QUALIFIERS | _RESTRICT and t.text not in "(&"]
    base = _known_type(spell(_without_macros(base_tokens)), aliases)
    levels = 0 if function else max(len(stars), 1) if grouped else len(stars) + dimensions
    reference = any(token.text == "&" for token in declared)
    if levels > 1:
        base += " *" * (levels - 1)
    dtype, vector = (None, 1) if reference or function else c_type_dtype(base)
    line, column = position(place.start)
    return Parameter(
        name=name,
        type=_spelled_type(part, named, dimensions, grouped),
        base=base,
        dtype=dtype,
        vector=vector,
        pointer=levels > 0 and not reference,
        const=any(token.text == "const" for token in pointed),
        restrict=any(_is_restrict(token) for token in declared),
        line=line,
        column=column,
    )


def _is_restrict(token: Token) -> bool:
    return token.text in _RESTRICT or token.text.lower().strip("_") == "restrict"


def _is_function(part: Sequence[Token]) -> bool:
    """Returns True for a function pointer: a second parenthesis follows the one around the name."""
    texts = [token.text for token in part]
    return any(pair == (")", "(") for pair in pairwise(texts))


def _spelled_type(part: Sequence[Token], named: int | None, dimensions: int, grouped: bool) -> str:
    """Returns the type without the name; an array parameter decays to a pointer."""
    if grouped:
        return spell([token for index, token in enumerate(part) if index != named])
    declared = part if named is None else part[:named]
    return spell([token for token in declared if not _is_restrict(token)]) + (" *" if dimensions else "")


def _name_index(part: Sequence[Token]) -> int | None:
    """Returns the index of the declared name; None for an unnamed parameter."""
    index = 0
    candidates: list[int] = []
    while index < len(part):
        token = part[index]
        if token.text == "<" and index and part[index - 1].kind == "word":
            end = closing_angle(part, index)
            if end is not None:
                index = end + 1
                continue
        if token.text == "[":
            break
        if token.text == "(" and candidates and index + 1 < len(part) and part[index + 1].text not in "*&":
            break
        if token.text == ")":
            break
        if token.kind == "word":
            candidates.append(index)
        index += 1
    words = [i for i in candidates if part[i].text not in _QUALIFIERS | _RESTRICT]
    if len(words) < 2 or part[words[-1]].text in _TYPE_WORDS or part[words[-1] - 1].text == "::":
        return None
    return words[-1]


def _array_dimensions(part: Sequence[Token], start: int) -> int:
    dimensions = 0
    for token in part[start:]:
        if token.text == "[":
            dimensions += 1
        elif token.text == "(":
            break
    return min(dimensions, 1) if dimensions else 0


def _without_macros(tokens: Sequence[Token]) -> Sequence[Token]:
    """Drops annotation macros before a type (`IN const float *x`).

    Two consecutive words form a type only if it is a basic type.
    """
    for index in range(len(tokens) - 1, 0, -1):
        adjacent = tokens[index].kind == "word" and tokens[index - 1].kind == "word"
        if adjacent and not {tokens[index].text, tokens[index - 1].text} <= _TYPE_WORDS:
            return tokens[index:]
    return tokens


def _known_type(base: str, aliases: Mapping[str, str]) -> str:
    for _ in range(8):
        if c_type_dtype(base)[0] is not None or base not in aliases:
            return base
        base = aliases[base]
    return base


def read_template(tokens: Sequence[Token], opening: int) -> tuple[tuple[str, ...], int]:
    """Returns the names of the template parameters in the list opened at `opening`, and the index after its `>`."""
    end = closing_angle(tokens, opening)
    if end is None:
        return (), opening + 1
    names = []
    for first, last in split_list(tokens, opening + 1, end):
        part = _without_default(tokens[first:last])
        words = [token.text for token in part if token.kind == "word"]
        if words and words[-1] not in ("typename", "class", *_TYPE_WORDS):
            names.append(words[-1])
        elif words:
            names.append(f"template{len(names)}")
    return tuple(names), end + 1


def literal_integers(tokens: Sequence[Token], start: int, end: int) -> tuple[int, ...]:
    """Returns the integers of a list such as `256, 2`; empty if an entry is not a literal."""
    values = []
    for first, last in split_list(tokens, start, end):
        if last - first != 1 or tokens[first].kind != "number":
            return ()
        try:
            values.append(int(tokens[first].text.replace("'", "").rstrip("uUlL"), 0))
        except ValueError:
            return ()
    return tuple(values)


def spell(tokens: Sequence[Token]) -> str:
    """Joins tokens to one readable line: `const float *`."""
    text = ""
    for index, token in enumerate(tokens):
        tight = token.text in ("::", "<", ">", ",", ")", "]", "[") or (
            index > 0 and tokens[index - 1].text in ("::", "<", "(", "[", "*", "&")
        )
        follows = index > 0 and tokens[index - 1].text == ","
        text += token.text if not text or (tight and not follows) else f" {token.text}"
    return text
