"""Texts of one compilation: a unit and the project headers that it includes, each read once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from kernelmate.compiler.declarations import ParsedDeclarations, parse
from kernelmate.compiler.preprocessor import (
    Include,
    IncludeSearch,
    Macro,
    ResolvedInclude,
    includes_of,
    macros_of,
)
from kernelmate.source.host_text import project_texts
from kernelmate.source.tokens import lex

_MOST_HEADERS = 1000
_MOST_PROJECT_CHARACTERS = 64 << 20
_MOST_INCLUDERS = 3
"""Maximum number of files including a unit whose preceding lines are tried before it."""


@dataclass(slots=True)
class File:
    """One text of the compilation; `name` is its include name, None for the unit itself."""

    name: str | None
    path: Path | None
    text: str
    includes: list[tuple[Include, ResolvedInclude]]
    macros: tuple[Macro, ...]
    parsed: ParsedDeclarations = field(init=False)


@dataclass(slots=True)
class Files:
    """All texts of a compilation, the unit first; `names` are the include names of project headers."""

    files: list[File]
    names: dict[Path, str]
    search: IncludeSearch
    macros: dict[str, list[Macro]]
    functions: frozenset[str] = frozenset()
    """Names of function-like macros."""


@dataclass(frozen=True, slots=True)
class TextBefore:
    """The lines of a file that come before its `#include` of a unit, without which the unit does not compile."""

    path: Path
    text: str


_LAST: list[Files] = []
"""Texts of the last two compilations. Each kernel of a file, and each edit of it, reads the same headers, which together are often
longer than what a `text_cache` keeps; a kernel that does not compile is tried with and without headers of the project in turn."""


def load_files(text: str, directory: Path, search: IncludeSearch, before: TextBefore | None = None) -> Files:
    """Loads the unit and every project header that it includes, each once. Texts of the last compilations are not parsed again.

    The text `before` the unit, if there is one, is a header that no text includes.
    """
    known = {file.path: (file, before.functions) for before in reversed(_LAST) for file in before.files}
    loaded = Files([], {}, search, {})
    waiting: list[tuple[str | None, Path | None, str, Path]] = [(None, None, text, directory)]
    if before is not None:
        loaded.names[before.path] = before.path.name
        waiting.append((before.path.name, before.path, before.text, before.path.parent))
    characters = 0
    while waiting:
        name, path, content, beside = waiting.pop(0)
        characters += len(content)
        includes: list[tuple[Include, ResolvedInclude]] = []
        same = known[path][0] if path in known and known[path][0].text == content else None
        for include in includes_of(content) if same is None else [include for include, _ in same.includes]:
            found = search.find(include, beside)
            if found.fate == "project" and found.path is not None:
                real = Path(os.path.normpath(found.path))
                found = replace(found, path=real)
                if real not in loaded.names:
                    if len(loaded.names) >= _MOST_HEADERS or characters > _MOST_PROJECT_CHARACTERS:
                        found = ResolvedInclude("raw", real)
                    else:
                        loaded.names[real] = _served_name(include.name, loaded.names.values())
                        waiting.append((loaded.names[real], real, _read(real), real.parent))
            includes.append((include, found))
        macros = tuple(macros_of(content)) if same is None else same.macros
        loaded.files.append(File(name, path, content, includes, macros))
    for file in loaded.files:
        for macro in file.macros:
            loaded.macros.setdefault(macro.name, []).append(macro)
    loaded.functions = frozenset(
        name for name, all_of in loaded.macros.items() if any(macro.function for macro in all_of)
    )
    for file in loaded.files:
        same, functions = known.get(file.path, (file, None))
        unchanged = functions == loaded.functions and same.text == file.text
        file.parsed = same.parsed if unchanged else parse(file.text, loaded.functions)
    _LAST[:] = [loaded, *_LAST[:1]]
    return loaded


def texts_before(path: Path) -> Iterator[TextBefore]:
    """Yields the text that precedes an `#include` of a file in other files of its project, the nearest first; includes within braces are skipped."""
    found = 0
    for file, text in project_texts(path) if path.is_file() else ():
        if path.name not in text or found == _MOST_INCLUDERS:
            continue
        named = (one for one in includes_of(text) if PurePath(one.name).name == path.name)
        include = next((one for one in named if (file.parent / one.name).resolve() == path.resolve()), None)
        head = "" if include is None else text[: include.start]
        code = [token.text for token in lex(head).code]
        if include is not None and code.count("{") == code.count("}"):
            found += 1
            words = [line[1].text for line in lex(head).directives if len(line) > 1]
            still = sum(word in ("if", "ifdef", "ifndef") for word in words) - words.count("endif")
            yield TextBefore(file.resolve(), head + "\n#endif" * still + "\n")


def header_words(text: str, directory: Path, include_paths: Iterable[Path] = ()) -> frozenset[str]:
    """Returns the words of all user headers that a text includes.

    Args:
        text: the text of a unit.
        directory: folder in which its quoted includes are searched first.
        include_paths: folders searched next.
    """
    headers = load_files(text, directory, IncludeSearch(tuple(include_paths), ())).files[1:]
    return frozenset(token.text for file in headers for token in lex(file.text).tokens if token.kind == "word")


def _served_name(name: str, taken: Iterable[str]) -> str:
    """Returns the include name of a header, with a numeric prefix if another file has the name."""
    plain = name.replace("\\", "/")
    known = set(taken)
    served, count = plain, 1
    while served in known:
        count += 1
        served = f"{count}/{plain}"
    return served


def _read(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8-sig", errors="replace")
    except OSError:
        return ""
    return text.replace("\r\n", "\n").replace("\r", "\n")
