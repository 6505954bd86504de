"""Tokens of host code: the names visible at a token, the function that contains it, and the calls of that function."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernelmate.source.host_syntax import value_end
from kernelmate.source.host_text import HostFiles, HostText
from kernelmate.source.signature import spell
from kernelmate.source.tokens import Token, closing, closing_angle, lex, split_list

_NOT_CALLERS = frozenset({"return", "else", "do", "case", "throw", "co_return"})
_MOST_CALLERS = 4


@dataclass(frozen=True, slots=True)
class HostParameter:
    """One parameter of a host function: its name, its whole text, and its default, if it has one."""

    name: str
    text: str
    default: str | None = None


@dataclass(frozen=True, slots=True)
class HostFunction:
    """A host function that contains a token: its name, its parameters, and the index of the brace that opens its body."""

    name: str
    template: tuple[str, ...]
    parameters: tuple[HostParameter, ...]
    brace: int


@dataclass(frozen=True, slots=True, eq=False)
class HostPlace:
    """A token of host code.

    Attributes:
        host: the text.
        index: of the token.
        given: the arguments of the function around it by parameter, where one call is meant; None for any call.
        caller: where `given` is written.
    """

    host: HostText
    index: int
    given: Mapping[str, str] | None = None
    caller: HostPlace | None = None
    _seen: dict[int, bool] = field(default_factory=dict)

    @property
    def line(self) -> int:
        """The line, from 1."""
        return self.line_of(self.index)

    def line_of(self, index: int) -> int:
        """Returns the line, from 1, of a token of the same text."""
        return self.host.text.count("\n", 0, self.host.tokens[index].start) + 1

    def moved(self, index: int) -> HostPlace:
        """Returns another token, for the same call of the enclosing function."""
        return HostPlace(self.host, index, self.given, self.caller)

    def function(self) -> HostFunction | None:
        """Returns the innermost function that contains the token; None outside of functions."""
        for opening in self.host.around(self.index):
            head = self.host.head(opening) if self.host.tokens[opening].text == "{" else None
            if head is None or head.name in ("constexpr", "switch", "defined"):
                continue
            if head.parameters.strip():
                return HostFunction(head.name, head.template, read_host_parameters(head.parameters), opening)
            if self._is_function(opening):
                return HostFunction(head.name, head.template, (), opening)
        return None

    def _is_function(self, brace: int) -> bool:
        return any(self.host.tokens[at].text == ")" for at in range(max(brace - 3, 0), brace))

    def region(self) -> tuple[int, int]:
        """Returns the first and last token of the function's body; of the whole text outside of a function."""
        function = self.function()
        if function is None:
            return 0, len(self.host.tokens)
        return function.brace, closing(self.host.tokens, function.brace) or len(self.host.tokens)

    def sees(self, index: int) -> bool:
        """Returns True if a declaration at token `index` is visible at this one, provided that it comes first.

        Visible are preprocessor lines, declarations outside of every function, and those of the enclosing blocks.
        """
        tokens, parents = self.host.tokens, self.host.parents
        if not self._seen:
            self._seen.update(dict.fromkeys((-1, *self.host.around(self.index)), True))
        path = []
        opening = -1 if tokens[index].directive else parents[index]
        while opening not in self._seen:
            path.append(opening)
            opening = parents[opening]
        state = self._seen[opening]
        for one in reversed(path):
            state = state and (tokens[one].text != "{" or self._is_namespace(one))
            self._seen[one] = state
        return state

    def _is_namespace(self, brace: int) -> bool:
        """Returns True for a brace that opens no block of statements, such as that of a namespace or of a list of values."""
        before = [token.text for token in self.host.tokens[max(brace - 4, 0) : brace]]
        if "namespace" in before or before[-2:] == ["extern", '"C"'] or "enum" in before:
            return True
        blocks = (")", ";", "{", "}", "else", "do", "try", "const", "noexcept", ":")
        return before[-1:] != [] and before[-1] not in blocks and not {"struct", "class", "union"} & set(before)

    def callers(self, files: HostFiles) -> Iterator[HostPlace]:
        """Yields this token once for each call of the enclosing function, with `given` and `caller` of that call."""
        function = self.function()
        if function is None or function.name == "main":
            return
        if self.given is not None:
            yield self
            return
        found = 0
        for host in files.mentioning(function.name):
            for index in host.words.get(function.name, ()):
                arguments = _call_arguments(host, index)
                if arguments is None or (
                    host is self.host and index < function.brace and _heads(host, index, function)
                ):
                    continue
                given = dict(_bound(function.parameters, arguments))
                yield HostPlace(self.host, self.index, given, HostPlace(host, index), self._seen)
                found += 1
                if found >= _MOST_CALLERS:
                    return
            if found:
                return


def _heads(host: HostText, index: int, function: HostFunction) -> bool:
    """Returns True if a name is that of the function's own definition."""
    return not any(token.text in (";", "}", "{") for token in host.tokens[index : function.brace])


def _bound(parameters: tuple[HostParameter, ...], arguments: list[str]) -> Iterator[tuple[str, str]]:
    for number, parameter in enumerate(parameters):
        if number < len(arguments):
            yield parameter.name, arguments[number]
        elif parameter.default is not None:
            yield parameter.name, parameter.default


def _call_arguments(host: HostText, index: int) -> list[str] | None:
    """Returns the arguments of the call that begins at a name; None if it is not a call, such as a declaration."""
    opening = index + 1
    if opening < len(host.tokens) and host.tokens[opening].text == "<":
        end = closing_angle(host.tokens, opening)
        opening = len(host.tokens) if end is None else end + 1
    if opening >= len(host.tokens) or host.tokens[opening].text != "(":
        return None
    end = closing(host.tokens, opening)
    if end is None or host.tokens[min(end + 1, len(host.tokens) - 1)].text == "{":
        return None
    before = host.tokens[index - 1] if index else None
    if before is not None and (before.text in ("define", "*", ">") or (before.kind == "word" and before.text not in _NOT_CALLERS)):  # fmt: skip
        return None
    return host.arguments(opening)


def read_host_parameters(text: str) -> tuple[HostParameter, ...]:
    """Returns the parameters of a function from the text between its parentheses."""
    tokens = lex(text).tokens
    found = []
    for first, last in split_list(tokens, 0, len(tokens)):
        part = tokens[first:last]
        equals = next((at for at, token in enumerate(part) if token.text == "="), len(part))
        bracket = next((at for at, token in enumerate(part) if token.text == "["), len(part))
        words = [token.text for token in part[: min(equals, bracket)] if token.kind == "word"]
        default = text[part[equals + 1].start : part[-1].end] if equals + 1 < len(part) else None
        if words:
            found.append(HostParameter(words[-1], text[part[0].start : part[-1].end], default))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class HostBody:
    """A function with a single `return`: its type, its parameters, the token `return`, and the returned expression."""

    result: str
    parameters: tuple[HostParameter, ...]
    place: HostPlace
    value: Sequence[Token]


def _body_at(host: HostText, index: int, count: int) -> HostBody | None:
    """Returns the function that is defined at a name, if it takes `count` arguments and has a single `return`."""
    tokens = host.tokens
    end = closing(tokens, index + 1) if tokens[index + 1 : index + 2] and tokens[index + 1].text == "(" else None
    if end is None:
        return None
    brace = next((at for at in range(end + 1, len(tokens)) if tokens[at].text not in ("const", "noexcept")), end)
    last = closing(tokens, brace) if tokens[brace].text == "{" else None
    if last is None:
        return None
    parameters = read_host_parameters(host.text[tokens[index + 1].end : tokens[end].start])
    least = sum(one.default is None and one.text != "void" for one in parameters)
    returns = [at for at in host.words.get("return", ()) if brace < at < last]
    alone = len(returns) == 1 and host.parents[returns[0]] == brace and not host.is_conditional(returns[0])
    if not alone or not least <= count <= len(parameters):
        return None
    value = tokens[returns[0] + 1 : value_end(tokens, returns[0] + 1)]
    return HostBody(tokens[index - 1].text, parameters, HostPlace(host, returns[0], {}, None), value)


def function_body(files: HostFiles, name: str, count: int) -> HostBody | None:
    """Returns the function `name` that takes `count` arguments and has a single `return`.

    The result is None if there is none, or if several return different expressions.
    """
    definition = rf"\b{re.escape(name)}\s*\([^;{{}}]*\)\s*(?:(?:const|noexcept)\s*)*\{{"
    for host in files.mentioning(name, definition):
        bodies = [body for index in host.words.get(name, ()) if (body := _body_at(host, index, count)) is not None]
        if bodies:
            return bodies[0] if all(spell(body.value) == spell(bodies[0].value) for body in bodies) else None
    return None


def position_text(files: HostFiles, place: HostPlace, unit: str, indices: list[int] | None = None) -> str:
    """Returns a position as text: `line 12`, or `main.cu:12` if it is in another file than the unit's."""
    lines = sorted({place.line_of(index) for index in indices or [place.index]})
    numbers = " and ".join(map(str, lines)) if len(lines) < 3 else f"{', '.join(map(str, lines[:-1]))} and {lines[-1]}"
    if place.host.source == unit:
        return f"line {numbers}" if len(lines) == 1 else f"lines {numbers}"
    path: Path | None = files.path_of(place.host)
    return f"{path.name if path is not None else 'another file'}:{numbers}"
