"""Changes of a kernel's head as special tokens: `__restrict__` and const pointers, and launch bounds.

Small models corrupt the text of the head most often; the contract determines all other parts of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernelmate.suggest.codec.base import NotEncodable, UndecodableAnswer
from kernelmate.suggest.codec.header import SIDE, with_blanks, without_blanks
from kernelmate.suggest.codec.lines import is_word, read_tokens
from kernelmate.suggest.codec.names import KEYWORDS, Placeholders

RESTRICT, CONST, NO_RESTRICT, NO_CONST, BOUNDS, MOST_REGISTERS, NO_BOUNDS = (
    "@restrict", "@const", "@no-restrict", "@no-const", "@bounds", "@maxreg", "@no-bounds",
)  # fmt: skip
HEAD_WORDS = (RESTRICT, CONST, NO_RESTRICT, NO_CONST, BOUNDS, MOST_REGISTERS, NO_BOUNDS)
"""Special tokens of head changes, in written order; without names, the first four apply to every pointer."""

_ATTRIBUTES = {BOUNDS: "__launch_bounds__", MOST_REGISTERS: "__maxnreg__"}
_RESTRICTS = frozenset({"__restrict__", "__restrict", "restrict"})
_NAME = re.compile(r"@v\d+|[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter: tokens `start` to `stop` of a head.

    `star` and `name` are the indices of its last star and its name.
    """

    start: int
    stop: int
    star: int | None
    name: int

    def is_const(self, texts: Sequence[str]) -> bool:
        """Returns True if its target, or the value itself, is const."""
        return "const" in texts[self.start : self.name if self.star is None else texts.index("*", self.start)]

    def is_restrict(self, texts: Sequence[str]) -> bool:
        """Returns True if the pointer is `__restrict__`."""
        return bool(_RESTRICTS & set(texts[self.start : self.name]))


def format_head(before: Sequence[str], after: Sequence[str], names: Placeholders) -> str:
    """Returns the special tokens that change one head into another, both given as tokens.

    Raises:
        NotEncodable: no special tokens express the change.
    """
    if list(before) == list(after):
        return ""
    words = _words(before, after, names)
    try:
        made = head_changed(before, words, names)
    except UndecodableAnswer:
        made = []
    if made != list(after):
        raise NotEncodable("The version changes the kernel's head where there is no word for it.")
    return "".join(word + operands for word, operands in words)


def _words(before: Sequence[str], after: Sequence[str], names: Placeholders) -> list[tuple[str, str]]:
    old = {before[one.name]: one for one in _parameters(before)}
    new = {after[one.name]: one for one in _parameters(after)}
    if list(old) != list(new):
        raise NotEncodable("The version has other parameters.")
    pointers = [name for name, one in old.items() if one.star is not None]
    found: list[tuple[str, str]] = []
    for word, has, wanted in (
        (RESTRICT, _Parameter.is_restrict, True),
        (CONST, _Parameter.is_const, True),
        (NO_RESTRICT, _Parameter.is_restrict, False),
        (NO_CONST, _Parameter.is_const, False),
    ):
        changed = [n for n in old if has(new[n], after) is wanted and has(old[n], before) is not wanted]
        every = [n for n in pointers if has(old[n], before) is not wanted]
        if changed:
            found.append((word, "" if changed == every else SIDE.join(map(names.hide_expression, changed))))
    bounds = _bounds(after)
    if bounds != _bounds(before):
        word, sides = bounds or (NO_BOUNDS, ())
        found.append((word, SIDE.join(without_blanks(names.hide_expression(side)) for side in sides)))
    return found


def head_changed(before: Sequence[str], words: Iterable[tuple[str, str]], names: Placeholders) -> list[str]:
    """Applies head changes to the tokens of a head.

    A change that needs a pointer has no effect on another parameter.

    Raises:
        UndecodableAnswer: a change lacks its operand, or the head is malformed.
        KeyError: a placeholder is undefined.
    """
    texts = list(before)
    for word, operands in words:
        if word == NO_BOUNDS or word in _ATTRIBUTES:
            texts = _bounded(texts, word, [names.show_expression(side) for side in operands.split(SIDE)])
            continue
        named = {names.show_expression(found[0]) for found in _NAME.finditer(operands)}
        for one in reversed(_parameters(texts)):
            if texts[one.name] in named or (not named and one.star is not None):
                texts[one.start : one.stop] = _qualified(texts, one, word)
    return texts


def parameter_names(head: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of a head's parameters, in order; empty if they cannot be determined."""
    try:
        return tuple(head[one.name] for one in _parameters(head))
    except UndecodableAnswer:
        return ()


def _qualified(texts: Sequence[str], one: _Parameter, word: str) -> list[str]:
    """Returns the tokens of one parameter after a change."""
    tokens = list(texts[one.start : one.stop])
    name = one.name - one.start
    if word == RESTRICT and one.star is not None and not one.is_restrict(texts):
        tokens.insert(name, "__restrict__")
    elif word == NO_RESTRICT:
        tokens = [token for place, token in enumerate(tokens) if place > name or token not in _RESTRICTS]
    elif word == CONST and not one.is_const(texts):
        tokens.insert(0, "const")
    elif word == NO_CONST and one.is_const(texts):
        tokens.remove("const")
    return tokens


def _parameters(texts: Sequence[str]) -> list[_Parameter]:
    """Returns the parameters of a head.

    Raises:
        UndecodableAnswer: no parameters were found.
    """
    opening = _opening(texts)
    found: list[_Parameter] = []
    start, depth = opening + 1, 0
    for place in range(opening + 1, len(texts)):
        text = texts[place]
        if depth == 0 and text in (",", ")"):
            if place > start:
                found.append(_parameter(texts, start, place))
            start = place + 1
            if text == ")":
                return found
        depth += (text in ("(", "[", "<", "{")) - (text in (")", "]", ">", "}")) - 2 * (text == ">>")
    raise UndecodableAnswer("The kernel's head does not end.")


def _opening(texts: Sequence[str]) -> int:
    """Returns the index of the parenthesis that opens the parameter list.

    It is the first one after `__global__` that does not belong to an attribute such as `__launch_bounds__(256)`.
    """
    place = texts.index("__global__") + 1 if "__global__" in texts else 0
    while place < len(texts):
        if texts[place] == "(" and place and is_word(texts[place - 1]):
            if not texts[place - 1].startswith("__"):
                return place
            place = _closing(texts, place)
        place += 1
    raise UndecodableAnswer("The kernel's head has no parameters that could be found.")


def _closing(texts: Sequence[str], opening: int) -> int:
    depth = 0
    for place in range(opening, len(texts)):
        depth += (texts[place] == "(") - (texts[place] == ")")
        if depth == 0:
            return place
    return len(texts)


def _parameter(texts: Sequence[str], start: int, stop: int) -> _Parameter:
    end = next((place for place in range(start, stop) if texts[place] in ("[", "=")), stop)
    words = [place for place in range(start, end) if is_word(texts[place]) and texts[place] not in KEYWORDS]
    if not words:
        raise UndecodableAnswer("The kernel's head has a parameter without a name.")
    stars = [place for place in range(start, words[-1]) if texts[place] == "*"]
    return _Parameter(start, stop, stars[-1] if stars else None, words[-1])


def _bounds(texts: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """Returns the special token of a head's launch bounds, and their arguments; None without launch bounds."""
    for word, attribute in _ATTRIBUTES.items():
        if attribute in texts:
            place = texts.index(attribute) + 1
            sides = "".join(texts[place + 1 : _closing(texts, place)]).split(",")
            return word, tuple(map(with_blanks, sides))
    return None


def _bounded(texts: list[str], word: str, sides: Sequence[str]) -> list[str]:
    """Returns a head with other launch bounds, or without any; new ones precede the name, as in recipes."""
    place = _opening(texts) - 1
    for attribute in _ATTRIBUTES.values():
        if attribute in texts:
            place = texts.index(attribute)
            del texts[place : _closing(texts, place + 1) + 1]
    if word == NO_BOUNDS:
        return texts
    if not all(side.strip() for side in sides) or len(sides) > 3:
        raise UndecodableAnswer("The answer leaves launch bounds empty.")
    return [*texts[:place], _ATTRIBUTES[word], "(", *read_tokens(", ".join(sides)).texts, ")", *texts[place:]]
