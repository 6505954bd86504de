"""Tree of the declarations in CUDA text, with extent, kind and declared names of each.

This is not a C++ parser. It finds the ends of declarations, their kind (function, type, variable), and their namespace
or class. It works on tokens, not on tree-sitter's tree, because unexpanded macros must not merge a kernel with an
adjacent host function (see `kernelmate.source.tokens`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

from kernelmate.caching import text_cache
from kernelmate.compiler.prelude import words_of
from kernelmate.compiler.preprocessor import OPENING, STATEMENTS, find_closers, macros_of
from kernelmate.source.tokens import LexedText, Token, closing_angle, lex

Kind = Literal["function", "variable", "type", "alias", "namespace", "linkage", "using", "assert", "macro", "other"]

SPACES = frozenset({"__global__", "__device__", "__constant__", "__managed__", "__shared__"})
"""Specifiers of device declarations.

An additional `__host__` does not change that; alone it makes a host declaration.
"""

_CLASS_KEYS = frozenset({"struct", "class", "union", "enum"})
_BEFORE_TYPE = _CLASS_KEYS | {"typedef"}
"""Words that follow an attribute in parentheses, `ALIGN(16) struct`, and no parameters."""
_ATTRIBUTES = words_of(
    "__align__ alignas __attribute__ __declspec __launch_bounds__ __cluster_dims__ __maxnreg__ __block_size__ "
    "decltype noexcept requires explicit throw"
)
"""Words whose parentheses are not a parameter list."""

_ACCESS = frozenset({"public", "private", "protected"})


@dataclass(frozen=True, slots=True)
class Declaration:
    """One declaration; indices are into `Parsed.code`.

    Attributes:
        start: its first token.
        stop: one past its last token.
        names: unqualified names that it declares: of a function, of a variable, or of a type and its unscoped
            enumerators.
        head: index after the tokens before body or initialiser.
        body: indices of the braces of a function, type, namespace or linkage block; the closing one may be past the
            end.
        members: the members of a type, namespace or linkage block.
    """

    kind: Kind
    start: int
    stop: int
    names: tuple[str, ...] = ()
    head: int = 0
    body: tuple[int, int] | None = None
    members: tuple[Declaration, ...] = ()


@dataclass(frozen=True)
class ParsedDeclarations:
    """A parsed text.

    Attributes:
        code: tokens outside preprocessor lines.
        directives: tokens of each preprocessor line.
        declarations: the declarations of the outermost scope.
    """

    text: str
    code: tuple[Token, ...]
    directives: tuple[tuple[Token, ...], ...]
    declarations: tuple[Declaration, ...]

    @cached_property
    def pragmas(self) -> tuple[tuple[Token, ...], ...]:
        """The preprocessor lines with a pragma; `#pragma once` is none of them."""
        return tuple(
            line for line in self.directives if len(line) > 2 and line[1].text == "pragma" and line[2].text != "once"
        )


@text_cache(64)
def parse(text: str, function_macros: frozenset[str] = frozenset()) -> ParsedDeclarations:
    """Parses a text. Never raises: unknown constructs become `other`.

    Args:
        text: CUDA text.
        function_macros: function-like macros defined elsewhere; a call that is alone on its line is a declaration.
    """
    lexed = lex(text)
    code = lexed.code
    own = frozenset(macro.name for macro in macros_of(text) if macro.function)
    parser = _Parser(lexed, function_macros | own)
    return ParsedDeclarations(text, code, lexed.directives, tuple(parser.scope(0, len(code), in_class=False)))


# ------------------------------------------------------------------------------------------------------- parsing


_NO_WORDS = ("",) * 4
"""Stand for the tokens before the first and behind the last: the parser looks at most so far ahead."""


class _Parser:
    """Parser state of one pass over a text's tokens."""

    def __init__(self, lexed: LexedText, function_macros: frozenset[str]) -> None:
        self.text = lexed.text
        self.code = lexed.code
        self.words = (*lexed.words, *_NO_WORDS)
        self.closers = find_closers(lexed)
        self.function_macros = function_macros

    def scope(self, index: int, end: int, *, in_class: bool) -> Iterator[Declaration]:
        while index < end:
            found = self._declaration(index, end, in_class=in_class)
            if found.kind != "other" or found.stop - found.start > 1 or self.code[index].text != ";":
                yield found
            index = max(found.stop, index + 1)

    def _word(self, index: int) -> str:
        return self.words[index]

    def _after(self, opening: int, end: int) -> int:
        """Returns the index after the bracket that closes the one at `opening`.

        If that bracket is not closed, it is the index after `opening`.
        """
        closer = self.closers.get(opening)
        return opening + 1 if closer is None else min(closer + (self._closes(closer)), end)

    def _closes(self, closer: int) -> int:
        return 1 if self._word(closer) in (")", "]", "}") else 0

    def _declaration(self, index: int, end: int, *, in_class: bool) -> Declaration:
        word = self._word(index)
        if word in (";", "}", ")", "]") or word in STATEMENTS:
            return Declaration("other", index, self._statement_end(index, end) if word in STATEMENTS else index + 1)
        if in_class and word in _ACCESS and self._word(index + 1) == ":":
            return Declaration("other", index, index + 2)
        if word == "namespace" or (word == "inline" and self._word(index + 1) == "namespace"):
            return self._namespace(index, end)
        if word == "extern" and self.code[min(index + 1, end - 1)].kind == "string" and self._word(index + 2) == "{":
            return self._block("linkage", index, index + 2, end, ())
        if word in ("using", "typedef", "static_assert", "_Static_assert"):
            return self._simple(word, index, end)
        macro = self._macro_call(index, end)
        return macro if macro is not None else self._general(index, end, in_class=in_class)

    def _statement_end(self, index: int, end: int) -> int:
        """Returns the index after the next `;` or closing brace outside brackets."""
        while index < end:
            word = self._word(index)
            if word in OPENING and self.code[index].kind == "symbol":
                past = self._after(index, end)
                if word == "{":
                    return past
                index = past
                continue
            if word == ";":
                return index + 1
            if word == "}":
                return index
            index += 1
        return end

    def _namespace(self, index: int, end: int) -> Declaration:
        at = index
        while at < end and self._word(at) not in ("{", ";", "=", "}"):
            at += 1
        names = tuple(t.text for t in self.code[index:at] if t.kind == "word" and t.text not in ("namespace", "inline"))
        if self._word(at) == "{":
            return self._block("namespace", index, at, end, names)
        stop = self._statement_end(index, end)
        return Declaration("alias", index, stop, names, at)

    def _block(self, kind: Kind, index: int, brace: int, end: int, names: tuple[str, ...]) -> Declaration:
        closer = min(self.closers.get(brace, end), end)
        members = tuple(self.scope(brace + 1, closer, in_class=False))
        return Declaration(kind, index, min(closer + self._closes(closer), end), names, brace, (brace, closer), members)

    def _simple(self, word: str, index: int, end: int) -> Declaration:
        if word == "typedef":
            return self._typedef(index, end)
        stop = self._statement_end(index, end)
        if word != "using":
            return Declaration("assert", index, stop)
        words = self.code[index:stop]
        if self._word(index + 1) == "namespace":
            return Declaration("using", index, stop, (), stop)
        equals = next((at for at, token in enumerate(words) if token.text == "="), None)
        if equals is not None:
            return Declaration("alias", index, stop, (words[1].text,), index + equals)
        last = [token.text for token in words if token.kind == "word"]
        return Declaration("alias", index, stop, tuple(last[-1:]), stop)

    def _typedef(self, index: int, end: int) -> Declaration:
        at = index + 1
        body: tuple[int, int] | None = None
        members: tuple[Declaration, ...] = ()
        names: list[str] = []
        key = ""
        while at < end and self._word(at) not in (";", "}"):
            word = self._word(at)
            key = word if word in _CLASS_KEYS and not key else key
            if word == "{":
                closer = min(self.closers.get(at, end), end)
                body, members = (at, closer), self._class_members(key, at, closer)
                names += self._type_names(index, at, key, closer)
                at = self._after(at, end)
            elif word == "(":
                inside = self.code[at : self._after(at, end)]
                names += [b.text for a, b in pairwise(inside) if a.text in "*&" and b.kind == "word"]
                at = self._after(at, end)
            else:
                if self.code[at].kind == "word" and self._word(at + 1) in (";", ",", "["):
                    names.append(word)
                at += 1
        stop = min(at + (self._word(at) == ";"), end)
        return Declaration("type" if body else "alias", index, max(stop, index + 1), tuple(names), at, body, members)

    def _macro_call(self, index: int, end: int) -> Declaration | None:
        """Returns a macro call that is a declaration by itself; None for other code.

        The macro is known, or its name is in capitals, and the call ends with `;` or its line.
        """
        word = self._word(index)
        if self.code[index].kind != "word" or self._word(index + 1) != "(":
            return None
        past = self._after(index + 1, end)
        known = word in self.function_macros
        if past >= end or self._word(past) == ";":
            stop = min(past + 1, end)
            return Declaration("macro", index, stop, (), stop) if known or word.isupper() else None
        between = self.text[self.code[past - 1].end : self.code[past].start]
        follows = self.code[past].kind == "word" or self._word(past) in ("}", "[")
        if (known or word.isupper()) and follows and "\n" in between:
            return Declaration("macro", index, past, (), past)
        return None

    # -------------------------------------------------------------------------------------- functions, types, variables

    def _general(self, index: int, end: int, *, in_class: bool) -> Declaration:
        at = self._past_templates(index, end)
        parameters: int | None = None
        key = ""
        while at < end:
            word, token = self._word(at), self.code[at]
            if word in _CLASS_KEYS and token.kind == "word" and parameters is None and not key:
                key = word
            if word in (";", "}"):
                return self._ended(index, at, at + (word == ";"), parameters, key, end)
            if word == "operator":
                parameters, at = self._operator(at, end)
            elif word == "(":
                past = self._after(at, end)
                if parameters is None and self._takes_parameters(at) and self._word(past) not in _BEFORE_TYPE:
                    parameters = at
                at = past
            elif word == "=":
                return self._initialised(index, at, parameters, end)
            elif word == ":" and parameters is not None:
                at = self._past_initialisers(at + 1, end)
            elif word == "{":
                return self._braced(index, at, parameters, key, end)
            else:
                at = self._past(at, end)
        return self._ended(index, end, end, parameters, key, end)

    def _past(self, at: int, end: int) -> int:
        """Returns the index after one token, or after the square brackets or template arguments that it opens."""
        if self._word(at) == "[":
            return self._after(at, end)
        if self._word(at) == "<" and self.code[at - 1].kind == "word":
            closer = closing_angle(self.code, at)
            return at + 1 if closer is None or closer >= end else closer + 1
        return at + 1

    def _past_templates(self, index: int, end: int) -> int:
        while self._word(index) == "template" and self._word(index + 1) == "<":
            closer = _template_close(self.code, index + 1)
            if closer is None or closer >= end:
                return index + 2
            index = closer + 1
        return index

    def _takes_parameters(self, opening: int) -> bool:
        before = self.code[opening - 1] if opening else None
        return before is not None and before.text not in _ATTRIBUTES and (before.kind == "word" or before.text in ">])")

    def _operator(self, at: int, end: int) -> tuple[int | None, int]:
        """Returns the start of an operator function's parameters, and the next position."""
        at += 1
        if self._word(at) == "(" and self._word(at + 1) == ")":
            at += 2
        while at < end and self._word(at) not in ("(", ";", "{", "}"):
            at += 1
        return (at, self._after(at, end)) if self._word(at) == "(" else (None, at)

    def _past_initialisers(self, at: int, end: int) -> int:
        """Skips a constructor's member initialisers, up to the brace of its body."""
        while at < end:
            while at < end and self._word(at) not in ("(", "{", ";", "}"):
                at += 1
            if at >= end or self._word(at) in (";", "}") or (self._word(at) == "{" and self.code[at - 1].text in ")},"):
                return at
            at = self._after(at, end)
            if self._word(at) == ".":
                at += 3
            if self._word(at) != ",":
                return at
            at += 1
        return at

    def _initialised(self, index: int, equals: int, parameters: int | None, end: int) -> Declaration:
        after = self._word(equals + 1)
        stop = equals + 1
        while stop < end and self._word(stop) not in (";", "}"):
            stop = (
                self._after(stop, end) if self._word(stop) in OPENING and self.code[stop].kind == "symbol" else stop + 1
            )
        stop = min(stop + (self._word(stop) == ";"), end)
        named = self._past_templates(index, end)
        if named > index and self._word(named) == "using":
            return Declaration("alias", index, stop, (self._word(named + 1),), equals)
        is_function = parameters is not None and after in ("default", "delete", "0")
        names = self._function_name(parameters) if is_function else self._variable_names(index, stop)
        return Declaration("function" if is_function else "variable", index, stop, names, equals)

    def _braced(self, index: int, brace: int, parameters: int | None, key: str, end: int) -> Declaration:
        closer = min(self.closers.get(brace, end), end)
        past = min(closer + self._closes(closer), end)
        if key and parameters is None:
            names = self._type_names(index, brace, key, closer)
            members = self._class_members(key, brace, closer)
            stop = past
            while stop < end and self._closes(closer) and self._word(stop) not in (";", "}", "{", "("):
                stop += 1
            if self._word(stop) in ("{", "("):
                stop = past
            names += self._variable_names(past, stop + 1) if stop > past else ()
            stop = min(stop + (self._word(stop) == ";"), end)
            return Declaration("type", index, stop, names, brace, (brace, closer), members)
        if parameters is not None or not self._names_before(brace):
            return Declaration("function", index, past, self._function_name(parameters), brace, (brace, closer))
        stop = self._statement_end(past, end) if self._word(past) in (";", ",") else past
        return Declaration("variable", index, stop, self._variable_names(index, stop), brace)

    def _names_before(self, brace: int) -> bool:
        """Returns True if an identifier or `]` precedes a brace, so that it opens the initialiser of a variable."""
        return brace >= 2 and (self.code[brace - 1].text == "]" or self.code[brace - 1].kind == "word")

    def _class_members(self, key: str, brace: int, closer: int) -> tuple[Declaration, ...]:
        return () if key == "enum" else tuple(self.scope(brace + 1, closer, in_class=True))

    def _ended(self, index: int, at: int, stop: int, parameters: int | None, key: str, end: int) -> Declaration:
        stop = max(min(stop, end), index + 1)
        if parameters is not None:
            return Declaration("function", index, stop, self._function_name(parameters), at)
        if key and at - self._past_templates(index, end) <= 4:
            return Declaration("type", index, stop, self._type_names(index, at, key, at), at)
        names = self._variable_names(index, stop)
        return Declaration("variable" if at - index > 1 else "other", index, stop, names, at)

    def _function_name(self, parameters: int | None) -> tuple[str, ...]:
        if parameters is None:
            return ()
        at = parameters - 1
        if self._word(at) == ">":
            depth = 0
            while at > 0:
                depth += {">": 1, "<": -1}.get(self._word(at), 0)
                if depth == 0:
                    break
                at -= 1
            at -= 1
        return (self._word(at),) if at >= 0 and self.code[at].kind == "word" else ()

    def _variable_names(self, index: int, stop: int) -> tuple[str, ...]:
        """Returns the names of the variables that a declaration declares."""
        names = []
        at = self._past_templates(index, stop)
        while at < stop and at < len(self.code):
            word = self._word(at)
            if self.code[at].kind == "word" and self._word(at + 1) in ("=", ";", ",", "[", "{", "("):
                names.append(word)
            if word in ("(", "{", "["):
                at = self._after(at, stop)
            elif word == "<" and at and self.code[at - 1].kind == "word":
                closer = closing_angle(self.code, at)
                at = at + 1 if closer is None else closer + 1
            else:
                at += 1
        return tuple(name for name in names if name not in _ATTRIBUTES)

    def _type_names(self, index: int, brace: int, key: str, closer: int) -> tuple[str, ...]:
        at = self._past_templates(index, brace)
        while at < brace and self._word(at) != key:
            at += 1
        names: list[str] = []
        at += 1
        while at < brace and self._word(at) not in (":", "<", "final"):
            if self._word(at) in ("(", "["):
                at = self._after(at, brace)
                continue
            if self.code[at].kind == "word" and self._word(at) not in (*_ATTRIBUTES, "class", "struct"):
                names.append(self._word(at))
            at += 1
        found = names[-1:]
        if key == "enum" and closer > brace:
            inside = self.code[brace:closer]
            found += [b.text for a, b in pairwise(inside) if a.text in "{," and b.kind == "word"]
        return tuple(found)


def _template_close(code: Sequence[Token], opening: int) -> int | None:
    """Returns the `>` that closes a template parameter list.

    Defaults may contain brackets, and comparisons must be parenthesised.
    """
    depth, index = 0, opening
    brackets = 0
    while index < len(code):
        text = code[index].text
        if text in ("(", "[", "{"):
            brackets += 1
        elif text in (")", "]", "}"):
            brackets -= 1
        elif text == ";":
            return None
        elif not brackets and text in ("<", "<<"):
            depth += len(text)
        elif not brackets and text == ">":
            depth -= 1
            if depth == 0:
                return index
        index += 1
    return None
