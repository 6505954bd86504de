"""Finds the value of a variable at a token of host code, and the changes that make it unknown.

Nothing is executed: a variable that is assigned under a condition, counted up or passed by its address has an unknown value.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernelmate.source.cuda import read_source
from kernelmate.source.host_places import HostPlace
from kernelmate.source.host_syntax import value_end
from kernelmate.source.host_text import HostFiles, HostText
from kernelmate.source.signature import spell
from kernelmate.source.tokens import Token, closing, closing_angle, opening_angle

WHOLE_TYPES = frozenset(
    ["int", "unsigned", "size_t", "dim3", "long", "uint32_t", "int32_t", "int64_t", "uint64_t", "uint"]
)
"""Types whose names convert in the form of a call, `int(x)`, and declare in that form, `int n(5)`."""

_TYPES = WHOLE_TYPES | {"auto", "const", "constexpr", "static", "float", "double", "bool", "char", "short", "signed"}
_NO_TYPES = frozenset(["return", "else", "case", "goto", "delete", "throw", "do", "new", "define", "in"])
_READERS = ("launchkernel", "memcpy")
"""Parts, in lower case, of the names of functions that write to none but their first argument."""

_DIM3 = Token("word", "dim3", 0, 0, 0)


@dataclass(frozen=True, slots=True)
class HostValue:
    """The value of a variable or a macro: its tokens, none if it is unknown; `place` is the name in the definition."""

    tokens: Sequence[Token]
    place: HostPlace


def value_before(place: HostPlace, name: str) -> HostValue | None:
    """Returns the last value given to a variable or macro before a token; None for a parameter, or without a visible definition."""
    host, function = place.host, place.function()
    own = function is not None and any(one.name == name for one in function.parameters)
    for at in reversed(host.words.get(name, ())):
        if at >= place.index or not place.sees(at):
            continue
        if function is not None and own and at < function.brace:
            return HostValue((), place.moved(at)) if is_changed(place, name, function.brace) else None
        scope = _narrow_scope(host, at)
        if scope is not None and not at < place.index <= scope:
            continue
        if scope is not None and not _in_for(host, at):
            return HostValue((), place.moved(at))  # a parameter of a lambda or a template
        value = given_value(host.tokens, at)
        if value is None and not _declares(host, at):
            continue
        if not value or _is_uncertain(place, name, at, value):
            return HostValue((), place.moved(at))
        return HostValue(value, place.moved(at))
    return None


def given_value(tokens: Sequence[Token], index: int) -> Sequence[Token] | None:
    """Returns the tokens of the value that the name at an index is given there; None if it is given none."""
    before = tokens[index - 1].text if index else ""
    if index + 1 >= len(tokens) or before in (".", "->"):
        return None
    following, directive = tokens[index + 1], tokens[index].directive
    if directive:
        if before != "define" or (following.text == "(" and following.start == tokens[index].end):
            return None
        return tuple(itertools.takewhile(lambda token: token.directive == directive, tokens[index + 1 :]))
    if following.text == "=":
        return tokens[index + 2 : value_end(tokens, index + 2)]
    if following.text == "[" and (end := closing(tokens, index + 1)) is not None and tokens[end + 1 : end + 2]:
        listed = end + 2 if tokens[end + 1].text == "=" else end + 1
        if tokens[listed].text == "{" and tokens[index - 1].kind == "word":
            return tokens[listed : value_end(tokens, listed)]
    end = closing(tokens, index + 1) if following.text in ("(", "{") else None
    if end is not None and before in ("dim3", ",") and _declares_dim3(tokens, index):
        return (_DIM3, *tokens[index + 1 : end + 1])
    if end is not None and before in WHOLE_TYPES:
        return tokens[index + 2 : end]
    return _pitch(tokens, index)


def constant_value(files: HostFiles, name: str) -> Sequence[Token] | None:
    """Returns the value of a macro or a constant outside of functions, in any file; None if there are several values."""
    for host in files.mentioning(name, rf"\b(?:define|const|constexpr)\b[^;{{}}]{{0,200}}\b{re.escape(name)}\b"):
        found = []
        for index in host.words.get(name, ()):
            before = [token.text for token in host.tokens[max(index - 4, 0) : index]]
            value = (
                given_value(host.tokens, index)
                if {"const", "constexpr"} & set(before) or before[-1:] == ["define"]
                else None
            )
            if value and HostPlace(host, index).function() is None:
                found.append(value)
        if found:
            return found[0] if all(spell(one) == spell(found[0]) for one in found) else None
    return None


def type_value(files: HostFiles, name: str) -> str | None:
    """Returns the type that `typedef`, `using`, `#define` or `enum` of a project define a name as; None for several and for none."""
    word = re.escape(name)
    definition = (
        rf"\btypedef\b[^;]*\b{word}\s*;|\busing\s+{word}\s*=|\bdefine[ \t]+{word}[ \t]+\w|\benum\b[^;{{}}]*\b{word}\b"
    )
    for host in files.mentioning(name, definition):
        found = read_source(host.source).aliases.get(name)
        if found is not None:
            return found
    return None


def is_changed(place: HostPlace, name: str, since: int, *, again: bool = True) -> bool:
    """Returns True if a variable may have another value at a token than after the token `since` of its text.

    Later changes count too for a variable of the whole file and, unless `again` is False, in a loop that contains the token.
    """
    host = place.host
    around = [at for at in host.around(place.index) if host.tokens[at].text == "{"]
    loops = [at for at in around if at > since and _is_loop(host, at)]
    until = max([place.index, *(closing(host.tokens, at) or place.index for at in loops if again)])
    if since < place.region()[0]:
        until = len(host.tokens)
    return any(
        since < at < until and at != place.index and _changes(host, at) and not _is_hidden(place, name, at, since)
        for at in host.words.get(name, ())
    )


def _is_uncertain(place: HostPlace, name: str, at: int, value: Sequence[Token]) -> bool:
    """Returns True if a variable or macro may have another value at a token."""
    host = place.host
    if host.tokens[at].directive:
        others = [given_value(host.tokens, other) for other in host.words[name] if host.tokens[other].directive]
        texts = {tuple(token.text for token in other) for other in others if other is not None}
        undefined = any(host.tokens[other - 1].text == "undef" for other in host.words[name])
        return len(texts) > 1 and not undefined
    if host.is_conditional(at) or is_changed(place, name, at):
        return True
    if any(token.text == name and value[max(i - 1, 0)].text not in (".", "->") for i, token in enumerate(value)):
        return True
    block = host.parents[at]
    labels = ("case", "default")
    return any(host.parents[i] == block for word in labels for i in host.words.get(word, ()) if at < i < place.index)


# ------------------------------------------------------------------------------------------------------- declarations


def _declares(host: HostText, at: int) -> bool:
    """Returns True for a name that follows its type, in a list of declarations or in a structured binding."""
    tokens, before = host.tokens, host.tokens[at - 1]
    if not at or tokens[at].directive:
        return False
    if before.kind == "word":
        return before.text not in _NO_TYPES
    if before.text == ">":
        angle = opening_angle(tokens, at - 1)
        return angle is not None and not {"&", "|"} & {token.text for token in tokens[angle:at]}
    if before.text in ("&", "*") and tokens[at - 2].text in _TYPES:
        return True
    opening = host.parents[at]
    if opening > 0 and tokens[opening].text == "[":
        return tokens[opening - 1].text in ("auto", "&")
    if before.text != ",":
        return False
    start = at
    while start - 1 > opening and (host.parents[start - 1] != opening or tokens[start - 1].text not in (";", "{", "}")):
        start -= 1
    return tokens[start].text in _TYPES and tokens[start + 1].kind == "word"


def _narrow_scope(host: HostText, at: int) -> int | None:
    """Returns the last token of the scope of a parameter or of a variable in the head of a loop; None for another name."""
    tokens, opening = host.tokens, host.parents[at]
    if tokens[at].directive or not _declares(host, at):
        return None
    if opening >= 0 and tokens[opening].text == "(":
        head = closing(tokens, opening)
    else:
        start = at
        while start and tokens[start - 1].text not in (";", "{", "}") and tokens[start].text != "template":
            start -= 1
        head = closing_angle(tokens, start + 1) if tokens[start].text == "template" else None
        head = None if head is None or head < at else head
    if head is None:
        return None
    end = next((i for i in range(head + 1, len(tokens)) if tokens[i].text in ("{", ";")), len(tokens))
    return closing(tokens, end) or end if end < len(tokens) and tokens[end].text == "{" else end


def _in_for(host: HostText, at: int) -> bool:
    return host.tokens[host.parents[at] - 1].text in ("for", "if", "while", "switch")


def _is_hidden(place: HostPlace, name: str, at: int, since: int) -> bool:
    """Returns True if a name refers at token `at` to a variable of an inner scope that does not contain `place`."""
    host = place.host
    around = set(host.around(at))
    for declared in host.words[name]:
        if declared > at:
            return False
        if declared < since or not _declares(host, declared):
            continue
        scope = _narrow_scope(host, declared)
        if scope is not None and declared <= at <= scope and not declared <= place.index <= scope:
            return True
        block = host.parents[declared]
        if scope is None and block in around and block not in host.around(place.index):
            return True
    return False


def _declares_dim3(tokens: Sequence[Token], index: int) -> bool:
    start = index
    while start and tokens[start - 1].text not in (";", "{", "}"):
        start -= 1
        if tokens[start].text == "dim3":
            return True
    return False


# ------------------------------------------------------------------------------------------------------------ changes


def _changes(host: HostText, at: int) -> bool:
    """Returns True where a variable is assigned, counted, read into, or passed by its address to a function."""
    tokens = host.tokens
    before, after = tokens[max(at - 3, 0) : at], tokens[at + 1 : at + 3]
    last = before[-1].text if before else ""
    if tokens[at].directive or last in (".", "->", "::") or not after:
        return False
    texts = [token.text for token in after]
    if texts[0] == "=" or (texts[0] in "+-*/%&|^<<" and texts[1:] == ["="]) or texts == [">", ">="]:
        return True
    if _is_counting(after) or _is_counting(before[-2:]):
        return True
    opening = host.parents[at]
    if opening > 0 and tokens[opening].text == "(" and tokens[opening - 1].text in ("swap", "tie"):
        return True
    if [token.text for token in before[-2:]] == [">", ">"]:
        start = at
        while tokens[start - 1].text not in (";", "{", "}"):
            start -= 1
        return tokens[start + (2 if tokens[start].text == "std" else 0)].text == "cin" or tokens[start + 1].text == ">"
    return last == "&" and opening > 0 and tokens[opening].text == "(" and _is_passed(host, at, opening)


def _is_counting(tokens: Sequence[Token]) -> bool:
    texts = [token.text for token in tokens]
    return texts in (["+", "+"], ["-", "-"]) and tokens[0].end == tokens[1].start


def _is_passed(host: HostText, at: int, opening: int) -> bool:
    """Returns True if the address of a variable is an argument of a function that may write there."""
    tokens = host.tokens
    if tokens[at - 2].text not in ("(", ",") and not (tokens[at - 2].text == ")" and tokens[at - 3].text == "*"):
        return False
    while tokens[opening - 1].text == ">" and (angle := opening_angle(tokens, opening - 1)) is not None:
        outer = host.parents[opening]
        if tokens[angle - 1].text not in ("reinterpret_cast", "static_cast", "const_cast"):
            break
        if outer < 0 or tokens[outer].text != "(":
            return False
        at, opening = opening, outer
    called = tokens[opening - 1]
    if called.kind != "word":
        return False  # a launch, or an expression in parentheses
    first = not any(tokens[i].text == "," and host.parents[i] == opening for i in range(opening, at))
    return first or not any(word in called.text.lower() for word in _READERS)


def _is_loop(host: HostText, brace: int) -> bool:
    """Returns True for the brace of the body of a loop."""
    before = host.tokens[brace - 1].text if brace else ""
    if before != ")":
        return before == "do"
    opening = brace - 2 if host.tokens[brace - 2].text == "(" else host.parents[brace - 2]
    return opening > 0 and host.tokens[opening - 1].text in ("for", "while")


def _pitch(tokens: Sequence[Token], index: int) -> Sequence[Token] | None:
    """Returns the width in bytes that is passed to `cudaMallocPitch(&array, &pitch, width, height)`."""
    before = [token.text for token in tokens[max(index - 16, 0) : index]]
    if before[-2:] != [",", "&"] or not {"cudaMallocPitch", "cuMemAllocPitch"} & set(before):
        return None
    return tokens[index + 2 : value_end(tokens, index + 2)] if tokens[index + 1].text == "," else None
