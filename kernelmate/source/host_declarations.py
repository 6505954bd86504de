"""Declarations in host code: of words in a text, the class around a member function, and the members of a class."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.source.host_text import HostFiles, HostText
from kernelmate.source.tokens import closing, lex, split_list

_CLASS = re.compile(r"\b(?:struct|class)\s+(?:[\w()]+\s+)*?(\w+)\s*(?:final\s*)?(?::(?!:)[^{}]*)?\Z")
_MEMBER = re.compile(r"\b(\w+)\s*(?:<[\w\s,:]*>)?\s*::\s*~?\w+\s*\(")
_ENUM = re.compile(r"\benum\b(?:\s+(?!class\b|struct\b)\w+)?\s*(?::\s*[\w\s:]+)?\{([^{}]*)\}")
_INNER = re.compile(r"\{[^{}]*\}")


def statement_start(host: HostText, index: int) -> int:
    """Returns the index of the first token of the statement or declaration that holds a token."""
    while index > 0 and host.tokens[index - 1].text not in (";", "{", "}") and not host.tokens[index - 1].directive:
        index -= 1
    return index


def is_in_template_head(host: HostText, index: int) -> bool:
    """Returns True for a name in the head of a template, such as that of a member function outside of its class."""
    start = statement_start(host, index)
    return host.tokens[start].text == "template" and host.tokens[min(start + 1, index)].text == "<"


def enclosing_class(host: HostText, index: int) -> str | None:
    """Returns the name of the class whose member function holds a token; None outside of member functions."""
    for opening in host.around(index):
        if host.tokens[opening].text == "{":
            start = host.tokens[statement_start(host, opening)].start
            head = host.text[start : host.tokens[opening].start]
            found = _CLASS.search(head) or _MEMBER.search(head)
            if found is not None:
                return found[1]
    return None


def class_bodies(files: HostFiles, name: str) -> Iterator[tuple[HostText, int]]:
    """Yields the texts with a definition of a class, each with the index of the brace that opens its body; no specialisations."""
    definition = rf"\b(?:struct|class)\s+(?:\w+\s+)?{re.escape(name)}\b[^;(){{}}]*\{{"
    for host in files.mentioning(name, definition):
        for index in host.words.get(name, ()):
            if index and host.tokens[index - 1].text in ("struct", "class"):
                at = index + 1
                limit = min(index + 100, len(host.tokens))
                while at < limit and host.tokens[at].text not in ("{", ";", "(", ")", ">"):
                    at += 1
                if at < limit and host.tokens[at].text == "{" and host.tokens[index + 1].text in ("{", ":", "final"):
                    yield host, at


def members_of(host: HostText, brace: int) -> tuple[str, int]:
    """Returns the text of a class without the bodies of its functions, and the index of its last token."""
    end = closing(host.tokens, brace)
    last = len(host.tokens) if end is None else end
    text = host.between(brace, last)
    while _INNER.search(text):
        text = _INNER.sub(";", text)
    return text, last - 1


def definitions(word: str, text: str) -> list[str]:
    """Returns the definitions of a word in a text, an alias, a constant or an enumerator, in order."""
    name = re.escape(word)
    found = []
    if _is_defined(name, text):
        for match in re.finditer(
            rf"\busing\s+{name}\s*=\s*(?:typename\s+)?([^;]+);|\btypedef\s+([^;{{}}]+?)\s+{name}\s*;"
            rf"|\b(?:constexpr|const)\b[^;=(){{}}]*(?:=[^;(){{}}]*,\s*)?\b{name}\s*=\s*([^;]+);"
            rf"|\b(?:constexpr|const)\b[^;=(){{}}]*\b{name}\s*\{{([^;{{}}]+)\}}\s*;",
            text,
        ):
            value = next(part for part in match.groups() if part)
            found.append((match.start(), " ".join((_first(value) if match[3] else value).split())))
    if "enum" in text:
        found += _enumerators(word, text)
    return [value for _, value in sorted(found)]


def _first(declarators: str) -> str:
    """Returns the value before the next declarator: `16` of `16, M = 4`."""
    tokens = lex(declarators).tokens
    first, last = split_list(tokens, 0, len(tokens))[0]
    return declarators[tokens[first].start : tokens[last - 1].end]


def _enumerators(word: str, text: str) -> list[tuple[int, str]]:
    """Returns the positions and values of the enumerators of a name; those of a scoped enumeration are named with it."""
    found = []
    for match in _ENUM.finditer(text):
        value, steps = "", -1
        for one in match[1].split(","):
            name, equals, written = one.partition("=")
            value, steps = (written.strip(), 0) if equals else (value, steps + 1)
            if name.strip() == word:
                shown = f"{value} + {steps}" if value and steps else value or str(steps)
                found.append((match.start(), str(int(value) + steps) if value.isdecimal() else shown))
    return found


def definition(word: str, text: str) -> str | None:
    """Returns the last definition of a word in a text; None without one."""
    found = definitions(word, text) if word in text else []
    return found[-1] if found else None


def is_run_time(word: str, text: str) -> bool:
    """Returns True if a text declares the word as a variable."""
    pattern = rf"(?:\b(?:auto|int|unsigned|bool|size_t|float|double|u?int\d+_t|long)\s+|,\s*){re.escape(word)}\s*[=;]"
    return word in text and _is_defined(re.escape(word), text) and re.search(pattern, text) is not None


def _is_defined(name: str, text: str) -> bool:
    """Returns True if a sign of a definition follows a name somewhere: far cheaper than to look for the definition."""
    return re.search(rf"{name}\s*[=;{{]", text) is not None  # without \b, a search for the literal first


def declaration(word: str, text: str) -> tuple[str, str] | None:
    """Returns the type that a scope declares a word with; for `auto` also the expression of its value."""
    if word not in text:
        return None
    for match in reversed(list(re.finditer(rf"\b{re.escape(word)}\b\s*(?:=\s*([^;]{{0,400}})|[;,)\[({{]|\Z)", text))):
        before = re.split(r"[;{}]", text[max(match.start() - 200, 0) : match.start()])[-1]
        found = _DECLARED.search(before) or _DECLARED_FIRST.match(before)
        if found is not None and found[1] not in ("return", "else", "typename", "new", "delete", "const"):
            return found[1].strip(), (match[1] or "").strip()
    return None


_DECLARED = re.compile(
    r"(?:^|[\s(,])((?:(?:unsigned|long|signed)\s+)*[A-Za-z_][\w:]*(?:\s*<[^;(){}<>]*(?:<[^<>]*>)?[^;(){}<>]*>)?)(?:\s+const)?(?:\s+|\s*[*&])[*&\s]*"
    r"(?:const\s+)?(?:(?:__restrict__|RESTRICT)\s+)?\Z"
)
_DECLARED_FIRST = re.compile(
    r"\s*(?:static\s+|const\s+)*([A-Za-z_][\w:]*)(?:\s+|\s*[*&])[*&\s]*\w+\s*(?:=[^,;]*)?,[\w\s,*&]*\Z"
)
