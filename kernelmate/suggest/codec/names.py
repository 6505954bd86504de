"""Placeholders for names and long literals: a small model copies one token reliably, but may corrupt a longer name."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kernelmate.suggest.codec.known_words import MEMBERS, is_known
from kernelmate.suggest.codec.tokens import is_number, is_string, is_word

NAMES, LITERALS = 96, 32
"""Number of placeholders for names and for literals; further ones are not replaced."""
SHORT_NUMBER, SHORT_STRING = 5, 4
"""Largest length in characters of numbers and strings that are not replaced."""

_SUFFIX = re.compile(r"(?<=[\w.])(?:[uU]?[lL]{0,2}|[fFhH])\Z")
_HEX_SUFFIX = re.compile(r"[uU]?[lL]{0,2}\Z")
_PLACEHOLDER = re.compile(r"@([vk])(\d+)([A-Za-z]\w*)?\Z")
_WORD = re.compile(r"(?<![\w@])[A-Za-z_]\w*|@v\d+")


def placeholders() -> tuple[str, ...]:
    """Returns all placeholders: of names (`@v0`, ...) and of literals (`@k0`, ...)."""
    return (*(f"@v{number}" for number in range(NAMES)), *(f"@k{number}" for number in range(LITERALS)))


@dataclass(slots=True)
class Placeholders:
    """Placeholders of the names in one unit.

    Attributes:
        names: placeholder of each name.
        literals: placeholder of each literal, which is given without its suffix.
    """

    names: dict[str, str] = field(default_factory=dict)
    literals: dict[str, str] = field(default_factory=dict)
    _back: dict[str, str] = field(default_factory=dict)
    _fresh: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[Sequence[str]], seed: int | None, *, replace: bool = True) -> Placeholders:
        """Assign placeholders to names and literals, in the order of first appearance, or by a seed.

        Args:
            lines: the tokens of each line.
            seed: as `Question.seed`.
            replace: False replaces only literals that could be read as special tokens.
        """
        words, numbers = list(range(NAMES)), list(range(LITERALS))
        if seed is not None:
            drawn = random.Random(seed)  # noqa: S311 -- nothing secret is drawn
            drawn.shuffle(words)
            drawn.shuffle(numbers)
        found = cls()
        for line in lines:
            for index, token in enumerate(line):
                if is_word(token):
                    if replace and token not in found.names and words_are_free(found, line, index):
                        found.names[token] = f"@v{words[len(found.names)]}"
                elif len(found.literals) < LITERALS and _is_long(token, replace=replace):
                    core = _split(token)[0]
                    if core not in found.literals:
                        found.literals[core] = f"@k{numbers[len(found.literals)]}"
        found._back = {mark: word for table in (found.names, found.literals) for word, mark in table.items()}
        return found

    def hide(self, line: Sequence[str]) -> list[str]:
        """Replaces names and literals of a line by placeholders."""
        names, literals = self.names, self.literals
        hidden = []
        for index, token in enumerate(line):
            mark = names.get(token)
            if mark is not None:
                hidden.append(token if is_fixed(line, index) else mark)
            elif literals and token[0] in "0123456789.\"'@uULR":
                core, suffix = _split(token)
                hidden.append(literals[core] + suffix if core in literals else token)
            else:
                hidden.append(token)
        return hidden

    def show(self, line: Sequence[str]) -> list[str]:
        """Replace placeholders in a model's line by their values.

        A name that the model wrote and that the unit uses with another meaning gets an underscore.

        Raises:
            KeyError: a placeholder is undefined.
        """
        shown = []
        for index, token in enumerate(line):
            found = _PLACEHOLDER.match(token)
            if found is not None:
                shown.append(self._back[f"@{found[1]}{found[2]}"] + (found[3] or ""))
            elif token in self.names and not is_fixed(line, index):
                shown.append(self._renamed(token))
            else:
                shown.append(token)
        return shown

    def _renamed(self, name: str) -> str:
        if name not in self._fresh:
            other = f"{name}_"
            while other in self.names or other in self._fresh.values():
                other += "_"
            self._fresh[name] = other
        return self._fresh[name]

    def hide_expression(self, text: str) -> str:
        """Replaces names in a contract expression by placeholders."""
        return _WORD.sub(lambda word: self.names.get(word[0], word[0]), text)

    def show_expression(self, text: str) -> str:
        """Replace placeholders in an answer's expression by names.

        Raises:
            KeyError: a placeholder is undefined.
        """
        return _WORD.sub(lambda word: self._back[word[0]] if word[0][0] == "@" else word[0], text)


def words_are_free(found: Placeholders, line: Sequence[str], index: int) -> bool:
    """Returns True if the word at `index` is a user-defined name and a placeholder is left."""
    return len(found.names) < NAMES and not is_known(line[index]) and not is_fixed(line, index)


def is_fixed(line: Sequence[str], index: int) -> bool:
    """Returns True if the context of the word at `index` gives it a fixed meaning.

    Examples are a vector's field, a library's name, and a header.
    """
    if line[0] == "#" and (index == 1 or line[1] in ("include", "pragma")):
        return True
    before = line[index - 1] if index else ""
    if before in (".", "->"):
        return line[index] in MEMBERS
    return before == "::" or (index + 1 < len(line) and line[index + 1] == "::")


def _is_long(token: str, *, replace: bool) -> bool:
    if "@" in token:
        return True
    if not replace:
        return False
    if is_number(token):
        return len(_split(token)[0]) > SHORT_NUMBER
    return is_string(token) and len(token) > SHORT_STRING


def _split(token: str) -> tuple[str, str]:
    """Splits a number into its digits and its suffix; other tokens have no suffix."""
    if not is_number(token):
        return token, ""
    pattern = _HEX_SUFFIX if token[:2] in ("0x", "0X") else _SUFFIX
    found = pattern.search(token)
    cut = found.start() if found is not None else len(token)
    return token[:cut], token[cut:]
