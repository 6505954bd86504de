"""Correction of frequent errors in a model's lines: undeclared names, and unbalanced braces.

A corrected version is judged like any other, so a wrong correction costs one judgement; without it the answer would be
lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from kernelmate.suggest.codec.lines import CanonicalLine, CanonicalUnit, is_word
from kernelmate.suggest.codec.names import KEYWORDS, is_fixed, is_known, is_type

NEAR, CLEARER = 0.7, 0.1
"""Least similarity of a name to a declared one, and its least lead over all others, both from 0 to 1."""
MOST_BRACES = 3
"""Largest number of braces to add or remove."""

_NO_TYPE = frozenset(
    {"return", "else", "case", "goto", "new", "delete", "throw", "sizeof", "not", "and", "or", "defined"}
)
_TYPE_WORDS = KEYWORDS & frozenset(
    {"const", "unsigned", "signed", "static", "constexpr", "volatile", "struct", "typename"}
)

Changed = Sequence[CanonicalLine | list[str]]


def named(old: CanonicalUnit, changed: Changed) -> dict[str, str]:
    """Returns the corrections of undeclared names in new lines, from each name to a declared one.

    A name is corrected to the declared name that is by far the most similar; or if it is the only undeclared name, to
    the only new name that is declared but never used.
    """
    declared = set(_declarations(changed))
    before = set(_declarations(old.lines))
    known = {text for line in old.lines for text in line.texts} - (before - declared)
    used = Counter(_uses(line for line in changed if isinstance(line, list)))
    missing = [word for word in used if word not in declared and word not in known]
    fresh = set(_declarations([line for line in changed if isinstance(line, list)]))
    everywhere = Counter(text for line in changed for text in _texts(line))
    idle = [word for word in fresh if everywhere[word] == 1 and word not in before]
    found: dict[str, str] = {}
    for word in missing:
        meant = _nearest(word, declared)
        if meant is None and len(missing) == 1 and len(idle) == 1:
            meant = idle[0]
        if meant is not None:
            found[word] = meant
    return found


def renamed(changed: Changed, meant: Mapping[str, str]) -> list[CanonicalLine | list[str]]:
    """Returns all lines, with the names in the new ones corrected."""
    if not meant:
        return list(changed)
    return [line if isinstance(line, CanonicalLine) else [meant.get(text, text) for text in line] for line in changed]


def undeclared(old: CanonicalUnit, changed: Changed, words: set[str]) -> str | None:
    """Returns the first of the given words that new lines use without a declaration."""
    declared = set(_declarations(changed)) | {text for line in old.lines for text in line.texts}
    uses = _uses(line for line in changed if isinstance(line, list))
    return next((word for word in uses if word in words and word not in declared), None)


def paired(lines: Sequence[Sequence[list[str]]], short: int) -> list[list[list[str]]]:
    """Returns the new lines of each edit with surplus closing braces removed, or missing ones added.

    Args:
        lines: the lines of each edit, as tokens.
        short: number of missing closing braces; negative if there are too many.
    """
    kept = [list(edit) for edit in lines]
    for edit in reversed(kept):
        for place in range(len(edit) - 1, -1, -1):
            if short < 0 and edit[place] == ["}"]:
                del edit[place]
                short += 1
    return kept


def _texts(line: CanonicalLine | list[str]) -> list[str]:
    return line.texts if isinstance(line, CanonicalLine) else line


def _uses(lines: Iterator[list[str]]) -> Iterator[str]:
    """Yields the names in all lines that are neither known words, nor called, nor members."""
    for line in lines:
        if line[:1] == ["#"]:
            continue
        for place, text in enumerate(line):
            following = line[place + 1] if place + 1 < len(line) else ";"
            before = line[place - 1] if place else ";"
            if not is_word(text) or is_known(text) or text.isupper() or is_type(text) or is_fixed(line, place):
                continue
            if following in ("(", "::") or before in (".", "->", "::", "goto", "<") or is_word(following):
                continue
            yield text


def _declarations(lines: Changed) -> Iterator[str]:
    """Yields every word that the lines may declare; some of them may not be declared."""
    for line in lines:
        texts = _texts(line)
        listed = bool(texts) and (is_type(texts[0]) or texts[0] in _TYPE_WORDS or texts[0].startswith("__"))
        listed = listed or (len(texts) > 1 and is_word(texts[0]) and is_word(texts[1])) or texts[:2] == ["for", "("]
        for place in range(1, len(texts)):
            word, before = texts[place], texts[place - 1]
            if not is_word(word) or is_known(word):
                continue
            if (
                (is_word(before) and before not in _NO_TYPE)
                or (before in ("*", "&", ">", "[") and _is_declarator(texts, place))
                or (before == "," and listed)
                or "enum" in texts
            ):
                yield word


def _is_declarator(texts: Sequence[str], place: int) -> bool:
    """Returns True if the tokens before a star, ampersand or bracket at `place` - 1 may be a type."""
    start = place - 1
    while start > 0 and texts[start] in ("*", "&", "&&", ">", "["):
        start -= 1
    word = texts[start]
    return (
        is_type(word)
        or word in ("auto", "const", "__restrict__")
        or start == 0
        or texts[start - 1] in ("const", "<", "(")
    )


def _nearest(word: str, declared: set[str]) -> str | None:
    """Returns the declared name that is by far the most similar."""
    alike = sorted(((SequenceMatcher(None, word, other).ratio(), other) for other in declared), reverse=True)[:2]
    if not alike or alike[0][0] < NEAR or (len(alike) > 1 and alike[0][0] - alike[1][0] < CLEARER):
        return None
    return alike[0][1]
