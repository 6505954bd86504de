"""Lambdas and class templates that host code passes to functions, and their calls by those functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernelmate.source.host_declarations import class_bodies
from kernelmate.source.host_text import Head, HostFiles, HostText
from kernelmate.source.tokens import closing, closing_angle, lex, opening_angle, split_list

_DEEPEST = 3
_BEHIND_PARAMETERS = frozenset(["mutable", "noexcept", "constexpr", "__host__", "__device__", "->", "void", "auto"])


@dataclass(frozen=True, slots=True)
class Lambda:
    """A lambda: its template parameters, its parameters as declared, and the token that opens its captures."""

    template: tuple[str, ...]
    parameters: tuple[str, ...]
    opening: int


@dataclass(frozen=True, slots=True)
class CallPlace:
    """A call of a callable value: the token that opens its template argument list, or None, and that of its arguments."""

    host: HostText
    angle: int | None
    opening: int

    @property
    def template(self) -> list[str]:
        """The explicit template arguments."""
        return [] if self.angle is None else self.host.arguments(self.angle)


@dataclass(frozen=True, slots=True)
class FunctionBody:
    """The definition of a function or class: its head, and the tokens of its braces."""

    host: HostText
    head: Head
    first: int
    last: int


def lambda_at(host: HostText, brace: int) -> Lambda | None:
    """Returns the lambda whose body a brace opens; None for another block."""
    tokens = host.tokens
    at = brace - 1
    while at > 0 and tokens[at].text in _BEHIND_PARAMETERS:
        at -= 1
    opening = _opening(host, at) if tokens[at].text == ")" else None
    if not opening:
        return None
    template: tuple[str, ...] = ()
    before = opening - 1
    if tokens[before].text == ">":
        angle = opening_angle(tokens, before)
        if not angle:
            return None
        parts = [tokens[a:b] for a, b in split_list(tokens, angle + 1, before)]
        template = tuple(next((one.text for one in reversed(part) if one.kind == "word"), "") for part in parts)
        before = angle - 1
    captures = _opening(host, before) if tokens[before].text == "]" else None
    if captures is None or (captures and tokens[captures - 1].kind == "word" and tokens[captures - 1].text != "return"):
        return None
    return Lambda(template, tuple(host.arguments(opening)), captures)


def _opening(host: HostText, end: int) -> int | None:
    """Returns the token that opens the bracket closed at `end`."""
    depth = 0
    for at in range(end, -1, -1):
        depth += (host.tokens[at].text in (")", "]", "}")) - (host.tokens[at].text in ("(", "[", "{"))
        if depth == 0:
            return at
    return None


def lambda_calls(files: HostFiles, host: HostText, own: Lambda) -> Iterator[CallPlace]:
    """Yields the calls of a lambda: by its variable's name, or by the functions that it is an argument of."""
    before = host.tokens[own.opening - 1].text if own.opening else ""
    if before == "=" and host.tokens[own.opening - 2].kind == "word":
        yield from _calls_by_name(files, host, host.tokens[own.opening - 2].text, own.opening, len(host.tokens), 0)
    elif before in ("(", ","):
        yield from _calls_as_argument(files, host, own.opening, 0)


def _calls_by_name(
    files: HostFiles, host: HostText, name: str, first: int, last: int, depth: int
) -> Iterator[CallPlace]:
    """Yields the calls of a variable or parameter between two tokens."""
    tokens = host.tokens
    for index in host.words.get(name, ()):
        if not first < index < last or index + 2 >= len(tokens):
            continue
        following = [token.text for token in tokens[index + 1 : index + 6]]
        if following[0] == "(":
            yield CallPlace(host, None, index + 1)
        elif following[:2] == [")", "("] and tokens[index - 1].text == "(" and tokens[index - 2].text == ">":
            yield CallPlace(host, None, index + 2)  # std::forward<F>(f)(...)
        elif following[0] == ".":
            at = index + 2 + (following[1] == "template")
            if [token.text for token in tokens[at : at + 4]] == ["operator", "(", ")", "<"]:
                end = closing_angle(tokens, at + 3)
                if end is not None:
                    yield CallPlace(host, at + 3, end + 1)
        elif following[0] in (",", ")") and tokens[index - 1].text in ("(", ",") and depth < _DEEPEST:
            yield from _calls_as_argument(files, host, index, depth + 1)


def _calls_as_argument(files: HostFiles, host: HostText, index: int, depth: int) -> Iterator[CallPlace]:
    """Yields the calls of the argument of a call that begins at a token, in the body of the function that is called."""
    opening = host.parents[index]
    if opening <= 0 or host.tokens[opening].text != "(":
        return
    end = closing(host.tokens, opening)
    parts = split_list(host.tokens, opening + 1, end) if end is not None else []
    position = next((n for n, (first, last) in enumerate(parts) if first <= index < last), None)
    name = _callee(host, opening)
    if position is None or not name:
        return
    for body in function_bodies(files, name):
        declared = _split(body.head.parameters)
        parameter = re.search(r"(\w+)\s*\Z", declared[position]) if position < len(declared) else None
        if parameter is not None:
            yield from _calls_by_name(files, body.host, parameter[1], body.first, body.last, depth)


def _callee(host: HostText, opening: int) -> str:
    """Returns the name of the function that is called with the parentheses at a token; empty for others."""
    before = opening - 1
    if host.tokens[before].text == ">":
        before = (opening_angle(host.tokens, before) or 0) - 1
    return host.tokens[before].text if before >= 0 and host.tokens[before].kind == "word" else ""


def _split(parameters: str) -> list[str]:
    tokens = lex(parameters).tokens
    return [parameters[tokens[a].start : tokens[b - 1].end] for a, b in split_list(tokens, 0, len(tokens)) if b > a]


def function_bodies(files: HostFiles, name: str) -> Iterator[FunctionBody]:
    """Yields the definitions of functions of a name."""
    for host in files.mentioning(name, rf"\b{re.escape(name)}\s*\([^;{{}}]*\{{"):
        for index in host.words.get(name, ()):
            if index + 1 >= len(host.tokens) or host.tokens[index + 1].text != "(":
                continue
            end = closing(host.tokens, index + 1)
            brace = end + 1 if end is not None else len(host.tokens)
            while brace < len(host.tokens) and host.tokens[brace].text in ("const", "noexcept"):
                brace += 1
            if brace < len(host.tokens) and host.tokens[brace].text == "{":
                head, last = host.head(brace), closing(host.tokens, brace)
                if head is not None and head.name == name and last is not None:
                    yield FunctionBody(host, head, brace, last)


def template_argument_uses(files: HostFiles, host: HostText, index: int) -> Iterator[tuple[HostText, int]]:
    """Yields the uses, with template arguments, of a template that is itself a template argument at a token.

    `run<Launch>()` with `template <template <typename> class F> void run() { F<float>()(); }` gives the place of
    `F`, whose next token opens the arguments.
    """
    angle = _angle_around(host, index)
    if angle is None:
        return
    end = closing_angle(host.tokens, angle)
    parts = split_list(host.tokens, angle + 1, end or angle + 1)
    position = next((n for n, (first, last) in enumerate(parts) if first <= index < last), None)
    name = host.tokens[angle - 1].text
    bodies = list(function_bodies(files, name))
    for defining, brace in class_bodies(files, name):
        head, last = defining.head(brace), closing(defining.tokens, brace)
        if head is not None and last is not None:
            bodies.append(FunctionBody(defining, head, brace, last))
    for body in bodies:
        own = body.head.template[position] if position is not None and position < len(body.head.template) else None
        for at in body.host.words.get(own, ()) if own else ():
            if body.first < at < body.last and body.host.tokens[at + 1].text == "<":
                yield body.host, at


def _angle_around(host: HostText, index: int) -> int | None:
    """Returns the token that opens the template argument list of a function or class around a token."""
    for at in range(index - 1, max(index - 60, 0), -1):
        text = host.tokens[at].text
        if text in (";", "{", "}"):
            return None
        if text == "<" and host.tokens[at - 1].kind == "word" and (closing_angle(host.tokens, at) or 0) > index:
            return None if host.tokens[at - 1].text == "template" else at
    return None
