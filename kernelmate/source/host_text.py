"""Host code of a file and its project as tokens: enclosing brackets, function heads, macros and their expansion.

Nothing is executed and no name is looked up as a compiler would; what is not recognised is left out.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernelmate.config import project_folder
from kernelmate.files import project_folders
from kernelmate.source.tokens import Token, closing, closing_angle, lex, live_text, opening_angle, split_list

_SUFFIXES = frozenset({".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".cc", ".cpp", ".cxx", ".inl", ".inc", ".def"})
_MOST_FILES = 4000
_MOST_CHARACTERS = 48_000_000
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DEEPEST_MACRO = 4
_MOST_READ = 1_500_000
"""Maximum number of characters of other files that one search parses."""


@dataclass(frozen=True, slots=True)
class HostMacro:
    """A function-like macro: its parameters, and the text of its body."""

    parameters: tuple[str, ...]
    body: str

    def expanded(self, arguments: Sequence[str]) -> str:
        """Returns the body with the arguments in place of the parameters; `##` joins."""
        given = dict(zip(self.parameters, arguments, strict=False))
        if self.parameters[-1:] == ("__VA_ARGS__",):
            given["__VA_ARGS__"] = ", ".join(arguments[len(self.parameters) - 1 :])
        text = re.sub(r"[^\W\d]\w*", lambda word: given.get(word[0], word[0]), self.body)
        return re.sub(r"\s*##\s*", "", text)


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a block before its brace: the name of a function or class, its template parameters and its parameter list.

    `defaults` are the default arguments of template parameters that have one, by name; `owner` is the class template
    whose member function is defined outside of it: `Layer` in `void Layer<T>::run(...)`.
    """

    name: str
    template: tuple[str, ...]
    parameters: str
    defaults: tuple[tuple[str, str], ...] = ()
    owner: str = ""


class HostText:
    """The tokens of one text, with the opening bracket around each; `source` is the text with the code that `#if 0` leaves out."""

    def __init__(self, text: str) -> None:
        self.source = text
        self.text = live_text(text)
        self.tokens = lex(self.text).tokens
        self.parents = self._parents()
        self.words: dict[str, list[int]] = {}
        for index, token in enumerate(self.tokens):
            if token.kind == "word":
                self.words.setdefault(token.text, []).append(index)

    def _parents(self) -> list[int]:
        """Returns, for each token, the index of the bracket around it; -1 outside. A macro's body is on its own."""
        found: list[int] = []
        stack: list[int] = []
        own: list[int] = []
        directive = 0
        for index, token in enumerate(self.tokens):
            if token.directive != directive:
                directive, own = token.directive, []
            current = own if directive else stack
            if token.kind == "symbol" and token.text in ")]}" and current:
                current.pop()
            found.append(current[-1] if current else -1)
            if token.kind == "symbol" and token.text in "([{":
                current.append(index)
        return found

    def around(self, index: int) -> Iterator[int]:
        """Yields the opening brackets around a token, the innermost first."""
        index = self.parents[index]
        while index >= 0:
            yield index
            index = self.parents[index]

    def between(self, first: int, last: int) -> str:
        """Returns the text from the end of one token to the start of another, or to the end of the text, without comments."""
        text = self.text[self.tokens[first].end : self.tokens[last].start if last < len(self.tokens) else None]
        return _COMMENT.sub(" ", text) if "/" in text else text

    def arguments(self, opening: int) -> list[str]:
        """Returns the texts between the commas of the brackets that open at a token."""
        opens = self.tokens[opening].text
        end = closing_angle(self.tokens, opening) if opens == "<" else closing(self.tokens, opening)
        if end is None:
            return []
        parts = split_list(self.tokens, opening + 1, end)
        texts = [self.text[self.tokens[a].start : self.tokens[b - 1].end] if b > a else "" for a, b in parts]
        return [_COMMENT.sub(" ", text) for text in texts]

    def is_conditional(self, index: int) -> bool:
        """Returns True for the first token of a statement without braces under a condition: `if (c) n = 5;`, `else n = 6;`."""
        return bool(index) and self.tokens[index - 1].text in (")", "else", "do")

    def head(self, brace: int) -> Head | None:
        """Returns the function or class whose body a brace opens; None for another block."""
        start = brace
        while start > 0 and self.tokens[start - 1].text not in (";", "{", "}") and not self.tokens[start - 1].directive:
            start -= 1
        tokens = self.tokens[start:brace]
        depth = 0
        for token in tokens:
            depth += (token.text in "([") - (token.text in ")]") if token.kind == "symbol" else 0
            if depth < 0:
                return None
        return None if depth or not tokens else _head(self.text, tokens)

    def macro_of(self, index: int) -> tuple[str, tuple[str, ...]] | None:
        """Returns name and parameters of the macro whose definition holds a token; None outside of one."""
        directive = self.tokens[index].directive
        if not directive:
            return None
        start = index
        while start > 0 and self.tokens[start - 1].directive == directive:
            start -= 1
        line = self.tokens[start : index + 1]
        if len(line) < 4 or line[1].text != "define":
            return None
        if line[3].start != line[2].end or line[3].text != "(":
            return line[2].text, ()
        closed = next((at for at in range(4, len(line)) if line[at].text == ")"), len(line))
        return line[2].text, tuple(token.text for token in line[4:closed] if token.kind == "word")

    @functools.cached_property
    def macros(self) -> dict[str, HostMacro]:
        """The function-like macros that the text defines."""
        found: dict[str, HostMacro] = {}
        for match in re.finditer(
            r"^[ \t]*#[ \t]*define[ \t]+(\w+)\(([^)]*)\)((?:[^\n\\]|\\[ \t]*\n|\\[^\n])*)", self.text, re.MULTILINE
        ):
            parameters = tuple(
                "__VA_ARGS__" if name.strip() == "..." else name.strip()
                for name in match[2].replace("\\", " ").split(",")
            )
            found[match[1]] = HostMacro(parameters, re.sub(r"\\[ \t]*\n", "\n", match[3]))
        return found


def _head(text: str, tokens: Sequence[Token]) -> Head | None:
    template: tuple[str, ...] = ()
    defaults: tuple[tuple[str, str], ...] = ()
    at = 0
    while at + 1 < len(tokens) and tokens[at].text == "template" and tokens[at + 1].text == "<":
        end = closing_angle(tokens, at + 1)
        if end is None:
            return None
        parts = [tokens[a:b] for a, b in split_list(tokens, at + 2, end)]
        template += tuple(_declared(part) for part in parts)
        defaults += tuple((_declared(part), value) for part in parts if (value := _default(text, part)))
        at = end + 1
    rest = tokens[at:]
    for index, token in enumerate(rest):
        if token.text in ("struct", "class") and index + 1 < len(rest) and rest[index + 1].kind == "word":
            return Head(rest[index + 1].text, template, "", defaults)
        if token.text == "namespace":
            return None
        if token.text == "(" and index and rest[index - 1].kind == "word":
            name = rest[index - 1].text
            end = closing(rest, index)
            if name in ("if", "for", "while", "switch", "catch") or end is None:
                return None
            if name.startswith("__") or name in ("alignas", "decltype"):
                continue
            return Head(name, template, text[token.end : rest[end].start], defaults, _owner(rest, index - 1))
    return None


def _owner(tokens: Sequence[Token], name: int) -> str:
    """Returns the class template before the `::` of a member function's name; empty without one."""
    if name < 4 or tokens[name - 1].text != "::" or tokens[name - 2].text != ">":
        return ""
    angle = opening_angle(tokens, name - 2)
    return tokens[angle - 1].text if angle else ""


def _declared(part: Sequence[Token]) -> str:
    words = []
    for token in part:
        if token.text == "=":
            break
        words += [token.text] if token.kind == "word" else []
    return words[-1] if words else ""


def _default(text: str, part: Sequence[Token]) -> str:
    """Returns the default argument of a template parameter; empty if it has none."""
    equals = next((index for index, token in enumerate(part) if token.text == "="), len(part))
    return text[part[equals + 1].start : part[-1].end] if equals + 1 < len(part) else ""


@dataclass(slots=True)
class HostFiles:
    """A unit's text and, if it is a file, those of its project that mention a word; the nearest come first.

    `most` is the maximum number of files that are read.
    """

    text: str
    path: Path | None
    wide: bool = True
    most: int = _MOST_FILES
    _unit: HostText | None = field(default=None, init=False)
    _read: dict[Path, HostText] = field(default_factory=dict, init=False)
    _found: dict[tuple[str, str], list[HostText]] = field(default_factory=dict, init=False)
    _macros: dict[str, HostMacro | None] = field(default_factory=dict, init=False)
    _files: tuple[Path, ...] | None = field(default=None, init=False)
    _left: int = field(default=_MOST_READ, init=False)

    def mentioning(self, word: str, definition: str = "") -> Iterator[HostText]:
        """Yields the texts with a word, the unit first.

        `definition` is a regular expression of the word's definition: of other files, only those in which it is found are parsed.
        """
        if self._unit is None:
            self._unit = host_text(self.text)
        if word in self._unit.words or f'"{word}"' in self.text:
            yield self._unit
        if self.path is None or not self.wide:
            return
        if (word, definition) in self._found:
            yield from self._found[word, definition]
            return
        pattern = re.compile(definition or rf"\b{re.escape(word)}\b")
        found = []
        for path in self._project():
            text = _read(path)
            if word not in text or text == self.text or not pattern.search(text):
                continue
            if path not in self._read:
                if len(text) > self._left:
                    continue
                self._left -= len(text)
                self._read[path] = host_text(text)
            found.append(self._read[path])
            yield self._read[path]
        self._found[word, definition] = found

    def _project(self) -> tuple[Path, ...]:
        if self._files is None:
            self._files = project_files(self.path)[: self.most] if self.path is not None else ()
        return self._files

    def path_of(self, host: HostText) -> Path | None:
        """Returns the file of a text; None for the unit's own."""
        return next((path for path, read in self._read.items() if read is host), None)

    def macro(self, name: str) -> HostMacro | None:
        """Returns the definition of a macro in these files."""
        if name not in self._macros:
            texts = self.mentioning(name, rf"\bdefine[ \t]+{re.escape(name)}\(")
            self._macros[name] = next((host.macros[name] for host in texts if name in host.macros), None)
        return self._macros[name]

    def expansion(self, name: str, arguments: Sequence[str], depth: int = 0) -> str:
        """Returns the expanded text of a macro's call, with the calls in it expanded as well; empty if it is unknown."""
        macro = self.macro(name)
        if macro is None:
            return ""
        text = macro.expanded(arguments)
        if depth >= _DEEPEST_MACRO:
            return text
        inner = host_text(text)
        parts = [text]
        for index, token in enumerate(inner.tokens[:-1]):
            if (
                token.kind == "word"
                and token.text.isupper()
                and inner.tokens[index + 1].text == "("
                and token.text != name
            ):
                parts.append(self.expansion(token.text, inner.arguments(index + 1), depth + 1))
        return "\n".join(parts)


@functools.lru_cache(maxsize=128)
def host_text(text: str) -> HostText:
    """Returns the tokens of a text."""
    return HostText(text)


def project_files(path: Path) -> tuple[Path, ...]:
    """Returns the source files of a file's project, those of its own folder first."""
    try:
        folder = project_folder(path.parent)
    except OSError:
        return ()
    beside = path.parent.resolve()
    found = []
    for place, names in project_folders(folder):
        near = 0 if place == beside else len(os.path.relpath(place, beside).split(os.sep))
        found += [(near, place / name) for name in names if os.path.splitext(name)[1].lower() in _SUFFIXES]
        if len(found) > 4 * _MOST_FILES:
            break
    return tuple(file for _, file in sorted(found)[:_MOST_FILES])


def project_texts(path: Path) -> Iterator[tuple[Path, str]]:
    """Yields the other source files of a file's project with their texts; those that cannot be read are left out."""
    for file in project_files(path):
        if file.resolve() != path.resolve() and (text := _read(file)):
            yield file, text


def project_state(path: Path) -> int:
    """Returns a number that differs if a source file of a file's project was changed, added or removed."""
    return hash(tuple((file, _changed(file)) for file in project_files(path)))


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _read(path: Path) -> str:
    try:
        changed = path.stat()
        return _read_once(path, changed.st_mtime_ns) if changed.st_size < _MOST_CHARACTERS // 16 else ""
    except OSError:
        return ""


@functools.lru_cache(maxsize=_MOST_FILES)
def _read_once(path: Path, changed: int) -> str:  # noqa: ARG001 -- `changed` makes the cache see edits
    return path.read_bytes().decode("utf-8", errors="replace").replace("\r\n", "\n")
