"""Positions of keys and values in a TOML document, which `tomllib` does not provide."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\[\s\S]|"(?!""))*"{3,5}' r"|'''[\s\S]*?'{3,5}" r'|"(?:[^"\\\n]|\\.)*"' r"|'[^'\n]*'"
)
_SCALAR = re.compile(r"[^,\]}\n#]+")


class KeySpan(NamedTuple):
    """Offsets of a key and of its value; `end` is just past the value."""

    key: int
    value: int
    end: int


@dataclass(slots=True)
class _TomlReader:
    text: str
    spans: dict[Path, KeySpan]
    index: int = 0

    def skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.index)
        if match is None:
            return ""
        self.index = match.end()
        return match.group()

    def at(self, character: str) -> bool:
        return self.text.startswith(character, self.index)


def toml_spans(text: str) -> dict[Path, KeySpan]:
    """Spans of every key of a *valid* document, by path: `("sizes", 0, "rows")`, `("args", "x")`.

    Array elements have their own entry, with `key` equal to `value`. An invalid document gives the keys before the
    error.
    """
    reader = _TomlReader(text, {})
    table: Path = ()
    tables: dict[Path, int] = {}
    while True:
        reader.skip(_BLANK)
        start = reader.index
        if start >= len(text):
            return reader.spans
        if reader.at("["):
            array = reader.at("[[")
            reader.index += 2 if array else 1
            table = _key(reader)
            if not table:
                return reader.spans
            if array:
                tables[table] = tables.get(table, -1) + 1
                reader.spans[*table, tables[table]] = KeySpan(start, start, start)
            reader.spans.setdefault(table, KeySpan(start, start, start))
            reader.skip(re.compile(r"[^\n]*"))
            table = (*table, tables[table]) if array else table
        elif not _pair(reader, table):
            return reader.spans


def _key(reader: _TomlReader) -> Path:
    parts: list[str] = []
    while True:
        reader.skip(_SPACE)
        part = reader.skip(_BARE)
        if not part and (reader.at('"') or reader.at("'")):
            part = reader.skip(_STRING)[1:-1]
        elif not part:
            return ()
        parts.append(part)
        reader.skip(_SPACE)
        if not reader.at("."):
            return tuple(parts)
        reader.index += 1


def _pair(reader: _TomlReader, table: Path) -> bool:
    start = reader.index
    key = _key(reader)
    if not key or not reader.at("="):
        return False
    reader.index += 1
    reader.skip(_SPACE)
    value = reader.index
    path = (*table, *key)
    if not _value(reader, path):
        return False
    reader.spans[path] = KeySpan(start, value, reader.index)
    return True


def _value(reader: _TomlReader, path: Path) -> bool:
    if reader.at("["):
        return _array(reader, path)
    if reader.at("{"):
        return _inline_table(reader, path)
    if reader.skip(_STRING):
        return True
    scalar = reader.skip(_SCALAR)
    reader.index -= len(scalar) - len(scalar.rstrip())
    return bool(scalar.strip())


def _array(reader: _TomlReader, path: Path) -> bool:
    reader.index += 1
    number = 0
    while True:
        reader.skip(_BLANK)
        if reader.at("]"):
            reader.index += 1
            return True
        start = reader.index
        if not _value(reader, (*path, number)):
            return False
        reader.spans[(*path, number)] = KeySpan(start, start, reader.index)
        number += 1
        reader.skip(_BLANK)
        if reader.at(","):
            reader.index += 1
        elif not reader.at("]"):
            return False


def _inline_table(reader: _TomlReader, path: Path) -> bool:
    reader.index += 1
    while True:
        reader.skip(_BLANK)
        if reader.at("}"):
            reader.index += 1
            return True
        if not _pair(reader, path):
            return False
        reader.skip(_BLANK)
        if reader.at(","):
            reader.index += 1
        elif not reader.at("}"):
            return False
