"""Splits a unit into the lines of its canonical form, one statement each, by recursive descent over its tokens.

It uses tokens instead of a syntax tree because units may contain macros or be broken, and because a tree takes several
times as long: a corpus has some hundred thousand units.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from kernelmate.suggest.codec.lines import (
    CanonicalLine,
    CanonicalUnit,
    Item,
    Tokens,
    Unbalanced,
    flat,
    is_word,
    mark_object_macros,
    read_tokens,
)

MOST_DEPTH = 60
"""Largest nesting depth of blocks; units with deeper ones are split by punctuation alone."""

_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_DEVICE = frozenset({"__device__", "__constant__", "constexpr", "__managed__"})
_RECORDS = frozenset({"struct", "class", "union", "enum"})
_AFTER_PARAMETERS = frozenset({")", "const", "noexcept", "override", "final", "mutable"})


def canonical(text: str, kernel: str) -> CanonicalUnit:
    """Returns the canonical form of a unit around one kernel.

    The function raises no errors: text that is not C++ is split by punctuation.
    """
    tokens = read_tokens(text)
    mark_object_macros(tokens)
    short = kernel.rpartition("::")[2]
    try:
        lines = list(_Splitter(tokens, short).unit())
        if any(len({tokens.directives[item.place] for item in line.items if item.place >= 0}) > 1 for line in lines):
            raise Unbalanced
    except (Unbalanced, RecursionError):
        lines = list(flat(tokens))
    return CanonicalUnit(tokens, lines)


class _Splitter:
    """Splitter of a unit's tokens into lines, from left to right; every method continues at the index `at`."""

    def __init__(self, tokens: Tokens, kernel: str) -> None:
        self.texts, self.directives = tokens.texts, tokens.directives
        self.end = len(tokens.texts)
        self.kernel = kernel
        self.at = 0
        self.depth = 0
        self.hiding = False

    # ------------------------------------------------------------------------------------------- declarations

    def unit(self) -> Iterator[CanonicalLine]:
        """Splits the whole unit: items at the outermost level, and within namespaces."""
        while self.at < self.end:
            if self.directives[self.at]:
                yield from self._directive()
            elif self.texts[self.at] == "}":
                yield self._line(self.at + 1)
            else:
                yield from self._item()

    def _item(self) -> Iterator[CanonicalLine]:
        """Splits one declaration, definition or namespace head."""
        start, stop, kind = self._extent()
        head = self.texts[start:stop]
        if kind == "scope":
            yield self._line(stop)
            return
        self.hiding = kind == "function" and not self._is_shown(head)
        if self.hiding:
            end = self._matching(stop - 1)
            yield CanonicalLine([Item(self.texts[index], index) for index in range(start, end + 1)], hidden=True)
            self.at = end + 1
            self.hiding = False
        elif kind == "plain":
            yield from self._pieces(stop)
        else:
            yield from self._block_from(stop)

    def _extent(self) -> tuple[int, int, str]:
        """Returns the start of an item, the end of its head or of the whole item, and its kind."""
        start = index = self.at
        assigned = False
        while index < self.end:
            text = self.texts[index]
            if self.directives[index]:
                return start, index, "plain"
            if text == ";":
                return start, index + 1, "plain"
            if text == "}":
                raise Unbalanced
            if text in ("(", "["):
                index = self._matching(index)
            elif text == "=" and self.texts[index - 1] != "operator":
                assigned = True
            elif text == "{":
                if assigned or self.texts[start] == "enum":
                    index = self._matching(index)
                else:
                    return start, index + 1, self._kind(self.texts[start:index])
            index += 1
        return start, self.end, "plain"

    def _kind(self, head: list[str]) -> str:
        if "namespace" in head or (len(head) == 2 and head[0] == "extern"):
            return "scope"
        return "record" if _RECORDS & set(head) and "(" not in head else "function"

    def _is_shown(self, head: list[str]) -> bool:
        """Returns True if the function is the kernel, or probably a device function."""
        if "__global__" in head:
            return self._name(head) == self.kernel
        return bool(_DEVICE & set(head)) or any(word.isupper() and len(word) > 2 and is_word(word) for word in head[:4])

    def _name(self, head: list[str]) -> str | None:
        index = head.index("__global__") + 1
        while index < len(head) - 1:
            if head[index] == "__launch_bounds__":
                index = _closing(head, index + 1)
            elif head[index + 1] == "(" and is_word(head[index]) and not head[index].startswith("__"):
                return head[index]
            index += 1
        return None

    # --------------------------------------------------------------------------------------------- statements

    def _block_from(self, stop: int) -> Iterator[CanonicalLine]:
        """Splits a head with its opening brace, the contents, and the closing brace with its trailing tokens."""
        record = bool(_RECORDS & set(self.texts[self.at : stop])) and "(" not in self.texts[self.at : stop]
        yield self._line(stop)
        yield from self._body()
        yield self._close(goes_on=record)

    def _close(self, *, goes_on: bool) -> CanonicalLine:
        """Splits a closing brace with its semicolon; with `goes_on`, further tokens may lie between them."""
        close = self.at
        self._expect("}")
        if goes_on:
            while self.at < self.end and self.texts[self.at] not in (";", "{", "}"):
                self.at += 1
        self.at += self.at < self.end and self.texts[self.at] == ";"
        return self._items(close, self.at)

    def _body(self) -> Iterator[CanonicalLine]:
        """Splits statements up to a closing brace, exclusive."""
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise Unbalanced
        while self.at < self.end and self.texts[self.at] != "}":
            yield from self._statement()
        if self.at >= self.end:
            raise Unbalanced
        self.depth -= 1

    def _statement(self) -> Iterator[CanonicalLine]:
        if self.at >= self.end:
            raise Unbalanced
        text = self.texts[self.at]
        if self.directives[self.at]:
            yield from self._directive()
        elif text in ("if", "for", "while", "switch"):
            yield from self._controlled([])
        elif text == "do":
            yield from self._do()
        elif text == "{":
            yield self._line(self.at + 1)
            yield from self._body()
            yield self._line(self.at + 1)
        elif (label := self._label()) is not None:
            yield self._line(label)
        else:
            yield from self._simple()

    def _controlled(self, lead: list[Item]) -> Generator[CanonicalLine, None, None]:
        """Splits `if`, `for`, `while`, `switch` with their bodies; `lead` are the tokens before it on its line."""
        chain = self.texts[self.at] == "if"
        start = self.at
        while self.at < self.end and self.texts[self.at] != "(":
            if self.texts[self.at] in (";", "{", "}"):
                raise Unbalanced
            self.at += 1
        self.at = self._matching(self.at) + 1
        closing = yield from self._braced(lead + self._items(start, self.at).items)
        while chain and self.at < self.end and self.texts[self.at] == "else" and not self.directives[self.at]:
            lead = [closing, Item("else", self.at)]
            self.at += 1
            if self.at < self.end and self.texts[self.at] == "if":
                yield from self._controlled(lead)
                return
            closing = yield from self._braced(lead)
            chain = False
        yield CanonicalLine([closing])

    def _do(self) -> Iterator[CanonicalLine]:
        head = [Item("do", self.at)]
        self.at += 1
        closing = yield from self._braced(head)
        start = self.at
        self._expect("while")
        while self.at < self.end and self.texts[self.at] not in (";", "{", "}"):
            self.at += 1
        self._expect(";")
        yield CanonicalLine([closing, *self._items(start, self.at).items])

    def _braced(self, head: list[Item]) -> Generator[CanonicalLine, None, Item]:
        """Splits a body after its head, adding missing braces; returns the pending closing one."""
        if self.at < self.end and self.texts[self.at] == "{":
            yield CanonicalLine([*head, Item("{", self.at)])
            self.at += 1
            yield from self._body()
            closing = Item("}", self.at)
            self.at += 1
            return closing
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise Unbalanced
        yield CanonicalLine([*head, Item("{", -1)])
        while self.at < self.end and self.directives[self.at]:
            yield from self._directive()
        yield from self._statement()
        self.depth -= 1
        return Item("}", -1)

    def _label(self) -> int | None:
        """Skips a label including its colon, if one begins here."""
        text = self.texts[self.at]
        if text in ("case", "default"):
            index = self.at + 1
            while index < self.end and self.texts[index] not in (":", ";", "{", "}"):
                index += 1
            return index + 1 if index < self.end and self.texts[index] == ":" else None
        following = self.texts[self.at + 1] if self.at + 1 < self.end else ""
        return self.at + 2 if is_word(text) and following == ":" else None

    def _simple(self) -> Iterator[CanonicalLine]:
        """Splits a statement up to its semicolon; bodies of functions and lambdas in it have lines of their own."""
        start = index = self.at
        while index < self.end and not self.directives[index]:
            text = self.texts[index]
            if text == ";":
                yield from self._pieces(index + 1)
                return
            if text in ("(", "["):
                index = self._matching(index)
            elif text == "{":
                if not self._opens_body(start, index):
                    index = self._matching(index)
                else:
                    self.at = start
                    yield from self._nested(index + 1)
                    return
            elif text in ("}", ")", "]"):
                break
            index += 1
        if index == start:
            raise Unbalanced
        yield from self._pieces(index)

    def _opens_body(self, start: int, brace: int) -> bool:
        head = self.texts[start:brace]
        record = bool(_RECORDS & set(head)) and not {"(", "=", "enum"} & set(head)
        return record or (head[-1:] != [] and head[-1] in _AFTER_PARAMETERS)

    def _nested(self, stop: int) -> Iterator[CanonicalLine]:
        """Splits a member function, a local record, or a lambda that is assigned."""
        head = self.texts[self.at : stop]
        goes_on = bool({"=", "return"} & set(head)) or bool(_RECORDS & set(head))
        yield self._line(stop)
        yield from self._body()
        yield self._close(goes_on=goes_on)

    # ------------------------------------------------------------------------------------------------- pieces

    def _pieces(self, stop: int) -> Iterator[CanonicalLine]:
        """Splits tokens up to `stop` as one line, or as several around preprocessor lines among them."""
        while self.at < stop:
            end = self.at
            while end < stop and self.directives[end] == self.directives[self.at]:
                end += 1
            yield self._line(end)

    def _directive(self) -> Iterator[CanonicalLine]:
        number, end = self.directives[self.at], self.at
        while end < self.end and self.directives[end] == number:
            end += 1
        line = self._line(end)
        line.directive = True
        line.hidden = self._is_foreign_include(line.texts)
        yield line

    def _is_foreign_include(self, texts: list[str]) -> bool:
        """Returns True for an include that device code does not need: a project header or a host library's."""
        if texts[1:2] == ["pragma"]:
            return texts[2:3] == ["once"]
        if texts[1:2] != ["include"]:
            return False
        target = "".join(texts[2:])
        return (
            not target.startswith(("<cuda_", "<cooperative", "<mma", "<cub", "<cuda/")) or target == "<cuda_runtime.h>"
        )

    def _line(self, stop: int) -> CanonicalLine:
        line = self._items(self.at, stop)
        line.directive = bool(self.directives[self.at]) if self.at < self.end else False
        self.at = stop
        return line

    def _items(self, start: int, stop: int) -> CanonicalLine:
        return CanonicalLine([Item(self.texts[index], index) for index in range(start, min(stop, self.end))])

    def _expect(self, text: str) -> None:
        if self.at >= self.end or self.texts[self.at] != text:
            raise Unbalanced
        self.at += 1

    def _matching(self, opening: int) -> int:
        """Returns the index of the bracket that closes the one at `opening`."""
        depth = 0
        for index in range(opening, self.end):
            text = self.texts[index]
            if text in _OPEN or text == " (":
                depth += 1
            elif text in _CLOSE:
                depth -= 1
                if depth == 0:
                    return index
        raise Unbalanced


def _closing(texts: list[str], opening: int) -> int:
    depth = 0
    for index in range(opening, len(texts)):
        depth += (texts[index] == "(") - (texts[index] == ")")
        if depth == 0:
            return index
    return len(texts)
