"""Merge of changed lines into the unit's text, which keeps the comments, layout and spelling of all unchanged code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from kernelmate.suggest.codec.lines import CanonicalLine, CanonicalUnit, Item
from kernelmate.suggest.codec.spelling import SpacingStyle, needs_blank, spaced
from kernelmate.suggest.codec.writing import OutputToken, TokenWriter, style_of

ALIKE = 0.5
"""Fraction of common tokens from which a new line counts as a changed old line and keeps its layout and comment."""
MOST_PAIRS = 3000
"""Largest number of line pairs compared in one edit; in larger edits every line counts as new."""


def put_back(old: CanonicalUnit, changed: Sequence[CanonicalLine | list[str]]) -> str:
    """Returns the unit's text with changed lines.

    Args:
        old: the original unit.
        changed: all its lines, hidden ones included: unchanged lines, or the tokens of new ones.
    """
    style = style_of(old)
    tokens = _tokens(old, changed, style)
    _decide_braces(tokens, style)
    return TokenWriter(old, style).text(tokens)


def replaced(
    old: CanonicalUnit, edits: Sequence[tuple[int, int, Sequence[list[str]]]]
) -> Iterator[CanonicalLine | list[str]]:
    """Yields all lines of a unit after edits of the shown ones.

    New lines between two shown lines come after hidden lines between them, directly before the second shown line. New
    lines after the last shown line directly follow it.

    Args:
        old: the original unit.
        edits: start and stop of each edit among the shown lines (from 0, stop exclusive), and the tokens of its new
            lines.
    """
    new: dict[int, list[list[str]]] = {}
    for start, _, lines in edits:
        new.setdefault(start, []).extend(lines)
    gone = {number for start, stop, _ in edits for number in range(start, stop)}
    count = len(old.shown)
    number = 0
    for line in old.lines:
        if line.hidden:
            yield line
            continue
        yield from new.get(number, ())
        if number not in gone:
            yield line
        number += 1
        if number == count:
            yield from new.get(number, ())


# ------------------------------------------------------------------------------------------------------ alignment


def _tokens(old: CanonicalUnit, changed: Sequence[CanonicalLine | list[str]], style: SpacingStyle) -> list[OutputToken]:
    """Returns all tokens of the new text in order; tokens of changed lines are matched with the old ones."""
    kept = {id(line) for line in changed if isinstance(line, CanonicalLine)}
    depths = _depths(old)
    tokens: list[OutputToken] = []
    place = 0
    index = 0
    while index < len(changed):
        line = changed[index]
        if isinstance(line, CanonicalLine):
            while old.lines[place] is not line:
                place += 1
            place += 1
            tokens += _as_it_was(line, style, depths[id(line)])
            index += 1
            continue
        end = index
        new: list[list[str]] = []
        while end < len(changed) and not isinstance(changed[end], CanonicalLine):
            new.append(changed[end])  # type: ignore[arg-type]
            end += 1
        gone = []
        while place < len(old.lines) and id(old.lines[place]) not in kept:
            gone.append(old.lines[place])
            place += 1
        for texts, source in zip(new, _paired(new, gone), strict=True):
            tokens += _aligned(texts, source, style, None if source is None else depths[id(source)])
        index = end
    return tokens


def _depths(old: CanonicalUnit) -> dict[int, int]:
    """Returns the brace depth of each line, counting braces that the author omitted."""
    found: dict[int, int] = {}
    depth = 0
    for line in old.lines:
        texts = line.texts
        found[id(line)] = max(depth - (texts[:1] == ["}"]), 0)
        depth = max(depth + texts.count("{") - texts.count("}"), 0)
    return found


def _as_it_was(line: CanonicalLine, style: SpacingStyle, deep: int) -> list[OutputToken]:
    """Returns the tokens of an unchanged line; spacing is computed only if an omitted brace may have to be written."""
    blanks = spaced(line.texts, style) if any(item.place < 0 for item in line.items) else [""] * len(line.items)
    return [
        OutputToken(item.text, item.place, blank, number == 0, deep)
        for number, (item, blank) in enumerate(zip(line.items, blanks, strict=True))
    ]


def _paired(new: Sequence[list[str]], gone: Sequence[CanonicalLine]) -> list[CanonicalLine | None]:
    """Pairs each new line with the old line that it changes: the pairing in order with the most tokens in common."""
    if not gone or len(new) * len(gone) > MOST_PAIRS:
        return [None] * len(new)
    score = [[_alike(texts, line.texts) for line in gone] for texts in new]
    best = [[0.0] * (len(gone) + 1) for _ in range(len(new) + 1)]
    for i in range(len(new) - 1, -1, -1):
        for j in range(len(gone) - 1, -1, -1):
            best[i][j] = max(best[i + 1][j], best[i][j + 1], best[i + 1][j + 1] + score[i][j])
    found: list[CanonicalLine | None] = []
    j = 0
    for i in range(len(new)):
        while j < len(gone) and best[i][j] == best[i][j + 1] and best[i][j] > best[i + 1][j]:
            j += 1
        if j < len(gone) and score[i][j] > 0 and best[i][j] == best[i + 1][j + 1] + score[i][j]:
            found.append(gone[j])
            j += 1
        else:
            found.append(None)
    return found


def _alike(one: list[str], other: list[str]) -> float:
    if one[-1:] == ["{"] != other[-1:]:
        return 0.0
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    if matcher.real_quick_ratio() < ALIKE:
        return 0.0
    ratio = matcher.ratio()
    return ratio if ratio >= ALIKE else 0.0


def _aligned(
    texts: list[str], source: CanonicalLine | None, style: SpacingStyle, deep: int | None
) -> list[OutputToken]:
    blanks = spaced(texts, style)
    for number in range(1, len(texts)):
        if not blanks[number] and needs_blank(texts[number - 1], texts[number]):
            blanks[number] = " "
    tokens = [
        OutputToken(text, None, blank, number == 0, deep)
        for number, (text, blank) in enumerate(zip(texts, blanks, strict=True))
    ]
    if source is not None:
        items: Sequence[Item] = source.items
        for i, j, size in SequenceMatcher(None, texts, source.texts, autojunk=False).get_matching_blocks():
            for offset in range(size):
                tokens[i + offset].index = items[j + offset].place
    return tokens


# --------------------------------------------------------------------------------------------------------- braces


def _decide_braces(tokens: list[OutputToken], style: SpacingStyle) -> None:
    """Decides which braces that the text lacks are written: they are omitted only around a single statement."""
    for opening, closing in _brace_pairs(tokens):
        marks = {tokens[opening].index, tokens[closing].index}
        if -1 not in marks and not (marks == {None} and style.bare and _heads_body(tokens, opening, closing)):
            continue
        inner = tokens[opening + 1 : closing]
        bare = _is_headed(tokens, opening) and (
            _is_simple(inner)
            or (marks == {-1} and _is_stretch(tokens, opening, closing) and not _gains_else(tokens, closing))
        )
        for place in (opening, closing):
            if bare:
                tokens[place].index = -1
            elif tokens[place].index == -1:
                tokens[place].index = None


def _brace_pairs(tokens: Sequence[OutputToken]) -> list[tuple[int, int]]:
    """Returns matching brace pairs, inner ones first; an unmatched brace that the text lacks is written."""
    stack: list[int] = []
    pairs: list[tuple[int, int]] = []
    for place, token in enumerate(tokens):
        if token.text == "{":
            stack.append(place)
        elif token.text == "}" and stack:
            pairs.append((stack.pop(), place))
        elif token.text == "}" and token.index == -1:
            token.index = None
    for place in stack:
        if tokens[place].index == -1:
            tokens[place].index = None
    return pairs


def _gains_else(tokens: Sequence[OutputToken], closing: int) -> bool:
    """Returns True if without these braces an `else` that now follows would bind to a condition inside them."""
    following = tokens[closing + 1] if closing + 1 < len(tokens) else None
    if following is None or following.text != "else":
        return False
    last = next((token.index for token in reversed(tokens[:closing]) if token.index != -1), None)
    return last is None or following.index != last + 1


def _is_headed(tokens: Sequence[OutputToken], opening: int) -> bool:
    """Returns True if the brace follows a head that may have one statement instead of a block."""
    place = opening
    while place > 0 and not tokens[place].first:
        place -= 1
    return tokens[place].text in ("if", "for", "while", "do") or (
        tokens[place].text == "}" and tokens[place + 1].text == "else"
    )


def _heads_body(tokens: Sequence[OutputToken], opening: int, closing: int) -> bool:
    """Returns True if a new brace pair is the body of a loop, or of a condition without `else`."""
    place = opening
    while place > 0 and not tokens[place].first:
        place -= 1
    following = tokens[closing + 1].text if closing + 1 < len(tokens) else ""
    return tokens[place].text in ("if", "for", "while") and following != "else"


def _is_stretch(tokens: Sequence[OutputToken], opening: int, closing: int) -> bool:
    """Returns True if the contents of the braces are contiguous in the old text."""
    head = next((token.index for token in reversed(tokens[:opening]) if token.index != -1), None)
    numbers = [token.index for token in tokens[opening + 1 : closing] if token.index != -1]
    return head is not None and bool(numbers) and numbers == list(range(head + 1, head + 1 + len(numbers)))


def _is_simple(inner: Sequence[OutputToken]) -> bool:
    """Returns True for one statement without nested statements that is not a declaration."""
    texts = [token.text for token in inner]
    return (
        texts[-1:] == [";"]
        and not {"{", "}", "#"} & set(texts)
        and sum(token.first for token in inner) == 1
        and texts[0] not in ("if", "for", "while", "do", "switch", "else")
    )
