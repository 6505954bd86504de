"""Conditions of CUDA text over problem sizes, with the conditions that enclose each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kernelmate.source.expansion import CalledDefinition, ExpressionToken, expanded, helpers_in, macros_in, substituted
from kernelmate.source.size_expressions import (
    ASSIGNMENTS,
    COMPARISONS,
    TYPE_WORDS,
    Lookup,
    SizeExpression,
    Value,
    combined,
    constant,
    pieces,
    read_expression,
    with_sign,
)
from kernelmate.source.tokens import lex

_ENDS = frozenset({",", ";", "?", ":", "{", "}", "return", "case", *ASSIGNMENTS})
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_ASSUMES = frozenset({"__builtin_assume", "__assume", "assume"})
_UNREACHABLE = frozenset({"__builtin_unreachable", "__trap", "unreachable"})


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of the text.

    Attributes:
        text: its source text in one line.
        offset: offset of its first character.
        expression: its parsed form; None if not understood.
        guards: enclosing conditions, each with its truth value there.
        assumed: True for an assumption stated to the compiler.
    """

    text: str
    offset: int
    expression: SizeExpression | None
    guards: tuple[tuple[SizeExpression | None, bool], ...] = ()
    assumed: bool = False

    def reached(self, lookup: Lookup) -> bool | None:
        """Returns True if control flow reaches it; None if unknown."""
        known: bool | None = True
        for expression, truth in self.guards:
            value = None if expression is None else expression.value(lookup)
            if value is not None and bool(value) is not truth:
                return False
            if value is None:
                known = None
        return known

    def holds(self, lookup: Lookup) -> bool | None:
        """Returns its truth value; None if unknown."""
        value = None if self.expression is None else self.expression.value(lookup)
        return None if value is None else bool(value)


def conditions_of(text: str, defines: Iterable[str] = ()) -> tuple[Condition, ...]:
    """Returns all conditions of a CUDA text, and assumptions stated to the compiler, in order.

    Args:
        text: the unit's text.
        defines: compiler options; `-DNAME=NUMBER` defines a name's value.
    """
    return _Walk(text, defines).found()


@dataclass(slots=True)
class _Walk:
    """One pass over a text: definitions first, then statements with their enclosing conditions."""

    text: str
    defines: Iterable[str]
    code: list[ExpressionToken] = field(default_factory=list)
    definitions: dict[str, SizeExpression | None] = field(default_factory=dict)
    conditions: dict[tuple[int, int, bool], Condition] = field(default_factory=dict)
    helpers: dict[str, CalledDefinition] = field(default_factory=dict)
    inlined: set[str] = field(default_factory=set)

    def found(self) -> tuple[Condition, ...]:
        tokens = pieces(lex(self.text).tokens)
        lines: dict[int, list[ExpressionToken]] = {}
        for piece in tokens:
            if piece.directive:
                lines.setdefault(piece.directive, []).append(piece)
        self.code = expanded([piece for piece in tokens if not piece.directive], macros_in(lines.values()))
        self.helpers = helpers_in(self.code)
        for option in self.defines:
            match = re.match(r"-D\s*(\w+)=(\d+)$", option)
            if match is not None:
                self.definitions[match[1]] = constant(int(match[2]))
        self._macros(lines.values())
        shared, at, last = self.definitions, 0, len(self.code)
        while at < last:
            end = next((place for place in range(at, last) if self.code[place].text == "{"), last)
            self._define(at, end)
            closed = self._closing(end, last) if end < last else end
            self.definitions = dict(shared)  # local variables of one function are not visible in another
            self._define(end, closed)
            self._statements(end, closed + 1, ())
            self.definitions, at = shared, closed + 1
        # An assumption in a helper function is evaluated at its call; its body alone says nothing.
        told = [piece for name in self.inlined for piece in self.helpers[name].body]
        for key in [key for key, one in self.conditions.items() if one.assumed]:
            if any(piece.start == key[0] for piece in told):
                del self.conditions[key]
        return tuple(self.conditions[key] for key in sorted(self.conditions))

    def _macros(self, lines: Iterable[Sequence[ExpressionToken]]) -> None:
        for line in lines:
            if len(line) > 3 and line[1].text == "define" and line[2].end != line[3].start:
                self.definitions[line[2].text] = self._read(line[3:])

    def _define(self, start: int, end: int) -> None:
        """Records names that are assigned once and never changed; any other assigned name has no value."""
        code, many = self.code, set[str]()
        for at in range(start, end):
            piece = code[at]
            before = code[at - 1] if at else None
            if piece.kind != "word":
                continue
            follows = code[at + 1].text if at + 1 < len(code) else ""
            changed = follows in (*ASSIGNMENTS[1:], "++", "--") or (before is not None and before.text in ("++", "--"))
            if not changed and follows != "=":
                continue
            declared = (
                before is not None and (before.kind == "word" or before.text in (",", ">")) and before.text != "return"
            )
            if changed or not declared or piece.text in many or piece.text in self.definitions:
                self.definitions[piece.text] = None
            else:
                self.definitions[piece.text] = self._read(code[at + 2 : self._end_of(at + 2, end)])
            many.add(piece.text)

    def _read(self, some: Sequence[ExpressionToken]) -> SizeExpression | None:
        return read_expression(some, self.definitions)

    def _end_of(self, at: int, end: int) -> int:
        """Returns the index of the token that ends the expression at `at`."""
        while at < end:
            word = self.code[at].text
            if word in _BRACKETS and word != "{":
                at = self._closing(at, end)
            elif word in _ENDS or word in (")", "]"):
                return at
            at += 1
        return end

    def _closing(self, at: int, end: int) -> int:
        """Returns the index of the bracket that closes the one at `at`."""
        opened, closes, depth = self.code[at].text, _BRACKETS[self.code[at].text], 0
        for place in range(at, end):
            word = self.code[place].text
            depth += (word == opened) - (word == closes)
            if depth == 0:
                return place
        return end

    Guards = tuple[tuple[SizeExpression | None, bool], ...]

    def _statements(self, at: int, end: int, guards: Guards) -> None:
        end = min(end, len(self.code))
        while at < end:
            at, guard = self._statement(at, end, guards)
            if guard is not None:
                guards = (*guards, guard)

    def _statement(self, at: int, end: int, guards: Guards) -> tuple[int, tuple[SizeExpression | None, bool] | None]:
        """Visits one statement; returns the index after it, and the conditions under which execution continues after it."""
        word = self.code[at].text
        if word == "{":
            closed = self._closing(at, end)
            self._statements(at + 1, closed, guards)
            return closed + 1, None
        if word == "if":
            return self._if(at, end, guards)
        if word in ("while", "switch") and at + 1 < end and self.code[at + 1].text == "(":
            closed = self._closing(at + 1, end)
            inner = self._add(at + 2, closed, guards)
            if word == "switch":
                self._cases(inner, closed + 1, end, guards)
            return closed + 1, None
        stop = at
        while stop < end and self.code[stop].text not in (";", "{", "}"):
            stop = self._closing(stop, end) if self.code[stop].text in ("(", "[") else stop
            stop += 1
        stop = min(stop, end)
        self._simple(at, stop, guards)
        return (stop if stop < end and self.code[stop].text == "{" else stop + 1), None

    def _if(self, at: int, end: int, guards: Guards) -> tuple[int, tuple[SizeExpression | None, bool] | None]:
        opening = at + 1
        while opening < end and self.code[opening].text == "constexpr":
            opening += 1
        if opening >= end or self.code[opening].text != "(":
            return at + 1, None
        closed = self._closing(opening, end)
        taken = closed + 1
        if taken >= end:
            return taken, None
        expression = self._read(self.code[opening + 1 : closed])
        behind, _ = self._statement(taken, end, (*guards, (expression, True)))
        words = {piece.text for piece in self.code[taken:behind]}
        unreachable = bool(words & _UNREACHABLE) and behind - taken <= 8
        self._add(opening + 1, closed, guards, assumed=unreachable, negated=unreachable)
        leaves = self.code[taken].text == "return" or (
            self.code[taken].text == "{" and "return" in [p.text for p in self._last_statement(taken, behind)]
        )
        if behind < end and self.code[behind].text == "else":
            behind, _ = self._statement(behind + 1, end, (*guards, (expression, False)))
        return behind, (expression, False) if leaves else None

    def _last_statement(self, opening: int, behind: int) -> list[ExpressionToken]:
        """Returns the tokens of a block's last statement if it is a simple one."""
        inside = self.code[opening + 1 : behind - 1]
        ends = [place for place, piece in enumerate(inside) if piece.text in (";", "}", "{")]
        if not ends or inside[-1].text != ";":
            return []
        return inside[ends[-2] + 1 if len(ends) > 1 else 0 :]

    def _cases(self, value: SizeExpression | None, at: int, end: int, guards: Guards) -> None:
        """Adds each `case` of a switch as an equality."""
        if value is None or at >= end or self.code[at].text != "{":
            return
        closed = self._closing(at, end)
        for place in range(at + 1, closed):
            if self.code[place].text == "case":
                stop = self._end_of(place + 1, closed)
                label = self._read(self.code[place + 1 : stop])
                if label is not None and stop > place + 1:
                    self._keep(place + 1, stop, combined("==", value, label), guards)

    def _simple(self, at: int, end: int, guards: Guards) -> None:
        """Adds conditions inside a statement other than `if`: comparisons, ternaries and assumptions."""
        for place in range(at, end):
            piece = self.code[place]
            if piece.text in _ASSUMES and place + 1 < end and self.code[place + 1].text == "(":
                self._add(place + 2, self._closing(place + 1, end), guards, assumed=True)
                return
            if piece.text in self.helpers and place + 1 < end and self.code[place + 1].text == "(":
                self._inline(place, self._closing(place + 1, end), guards)
            if piece.text == "__builtin_assume_aligned" and place + 1 < end and self.code[place + 1].text == "(":
                self._aligned(place, self._closing(place + 1, end), guards)
            if piece.text in COMPARISONS or piece.text == "?":
                start = self._start_of(place, at)
                stop = place if piece.text == "?" else self._end_of(place + 1, end)
                if start < stop:
                    self._keep(start, stop, self._read(self.code[start:stop]), guards)

    def _inline(self, at: int, closed: int, guards: Guards) -> None:
        """Visits a helper's body with a call's arguments, appended after the code."""
        name = self.code[at].text
        called = self.helpers.pop(name)  # it may call itself
        start = len(self.code)
        self.code += substituted(called, self.code, at, closed)
        self._statements(start, len(self.code), guards)
        self.helpers[name] = called
        self.inlined.add(name)

    def _aligned(self, at: int, closed: int, guards: Guards) -> None:
        """Adds the condition of `__builtin_assume_aligned(pointer, bytes)`.

        Each name in the pointer must be a multiple.
        """
        comma = self._end_of(at + 2, closed)
        bytes_ = self._read(self.code[comma + 1 : self._end_of(comma + 1, closed)]) if comma < closed else None
        some = [
            piece.text for piece in self.code[at + 2 : comma] if piece.kind == "word" and piece.text not in TYPE_WORDS
        ]
        if bytes_ is None or bytes_.names:
            return
        wide, names = bytes_.value(lambda _: None), [f"&{name}" for name in some]

        def value(lookup: Lookup) -> Value:
            known = [found for name in names if (found := lookup(name)) is not None]
            return int(not any(found % wide for found in known)) if known and wide else None

        self._keep(at, closed + 1, SizeExpression(value, frozenset(names), bytes_.constants), guards, assumed=True)

    def _start_of(self, at: int, first: int) -> int:
        """Returns the index of the first token of the expression that contains the token at `at`."""
        depth = 0
        for place in range(at - 1, first - 1, -1):
            word = self.code[place].text
            if word in (")", "]"):
                depth += 1
            elif word in ("(", "["):
                depth -= 1
                if depth < 0:
                    return place + 1
            elif depth == 0 and word in _ENDS:
                return place + 1
        return first

    def _add(
        self, start: int, end: int, guards: Guards, *, assumed: bool = False, negated: bool = False
    ) -> SizeExpression | None:
        expression = self._read(self.code[start:end])
        read = with_sign("!", expression) if negated and expression is not None else expression
        if start < end:
            self._keep(start, end, read, guards, assumed=assumed)
        return expression

    def _keep(
        self, start: int, end: int, expression: SizeExpression | None, guards: Guards, *, assumed: bool = False
    ) -> None:
        some = self.code[start:end]
        text = " ".join(self.text[some[0].start : some[-1].end].split())
        key = (some[0].start, some[-1].end, assumed)
        self.conditions.setdefault(key, Condition(text, some[0].start, expression, guards, assumed))


def own_conditions(text: str, baseline: str, defines: Iterable[str] = ()) -> Iterator[Condition]:
    """Yields conditions of a text that its baseline does not have."""
    theirs = {(one.text, one.assumed) for one in conditions_of(baseline, defines)}
    known = {one.text for one in conditions_of(baseline, defines)} if theirs else set()
    for one in conditions_of(text, defines):
        if (one.text, one.assumed) not in theirs and (one.assumed or one.text not in known):
            yield one
