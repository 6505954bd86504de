"""Correction of the sentences of a comment after a rewrite: a false clause is removed, or names the new technique."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SENTENCE = re.compile(
    r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!cf\.)(?<!vs\.)(?<!al\.)(?<!approx\.)(?<!resp\.)(?<!Fig\.)(?<!Sec\.)\s+(?=\S)"
)
CLAUSE = re.compile(r"([,;:]|\s+--?|\s+—)(?=\s)")
FOLLOWS = re.compile(r"(?:and |but )?(?:so|which|because|since|hence|thus|therefore|whereas|until|while|as)\b", re.I)
"""Beginnings of a clause that gives a reason for the clause before it, or its effect."""
_REASON_OF = re.compile(r"\s+(?:because|since|so\s+that|as)\b.*", re.IGNORECASE)
"""A reason within the clause of an ended technique."""
_HANDLED = re.compile(
    r"(?:and\s+|then\s+)*(?:every|each|all|an?|the)\s+[\w\s-]*\b(?:is|are|gets?|was|were)\s+"
    r"(?:handled|processed|computed|done|produced|treated|taken|covered|owned|updated|written|assigned|worked\s+on)\s*",
    re.IGNORECASE,
)
"""A clause that says nothing without who does it: `each row is handled`."""
_IT = re.compile(r"\b((?:to|of|with|from|than|against) )it\b")
_LABEL = re.compile(
    r"(?:implementation|notes?|layout|launch|mapping|strategy|parallel\w*|optimi[sz]\w*|algorithm|approach|how)[.!]?",
    re.I,
)
"""Clauses that only introduce the following clause."""
_TASK = re.compile(r"(?:TODO|FIXME|XXX|HACK)\b")
"""Beginning of a sentence for the file's authors, which is theirs to remove."""
BY = r"(?P<by>(?:as|by|with|through|via|using|in|into|over)\s+)?(?P<article>(?:an?|the|one)\s+)?(?P<what>{})"
SCOPE = r"(?:\s+(?:per|for each|for every|in each|in every|of each|within each|within the|of a) \w+)?(?:\s*\([^()]*\))?"


@dataclass(frozen=True, slots=True)
class EndedTechnique:
    """A technique that a rewrite ends.

    Attributes:
        words: a pattern of the words by which comments name it.
        instead: the replacement, a template of the pattern's groups; empty to remove the words.
        still: a pattern of code in which the changed kernel still uses the technique.
        whole: True if the words are a statement, so that the whole clause is replaced; else only the words are, if they
            are a clause or follow a preposition.
        phrase: True to replace the words anywhere.
        unless: a pattern of clauses in which the words have another meaning.
        spares_head: True to keep the clause that states what the kernel computes, if the words are only a part of it.
        explains: True if a clause with the words after the first sentence explains the method, and is removed as a
            whole.
    """

    words: str
    instead: str = ""
    still: str = ""
    whole: bool = False
    phrase: bool = False
    unless: str = ""
    spares_head: bool = False
    explains: bool = False

    def holds_for(self, code: str) -> bool:
        """Returns True if the changed kernel still uses the technique."""
        return bool(self.still) and re.search(self.still, code) is not None


@dataclass(frozen=True, slots=True)
class _Clause:
    """A part of a sentence, and the punctuation before it."""

    sign: str
    text: str


def corrected(
    text: str,
    ended: Sequence[EndedTechnique],
    gone: Iterable[str],
    kernel: str,
    others: Sequence[str] = (),
    *,
    head: bool = True,
) -> str:
    """Returns a paragraph without statements that are no longer true.

    Args:
        text: one paragraph.
        ended: techniques that the kernel no longer uses.
        gone: names that the kernel no longer declares.
        kernel: the kernel's name.
        head: True if the paragraph's first sentence states what the kernel computes.
        others: other kernels of the file; with any, a sentence is changed only if it refers to this kernel.
    """
    kept: list[str] = []
    said: set[str] = set()
    for number, sentence in enumerate(SENTENCE.split(text)):
        now = sentence
        for one in () if _TASK.match(sentence) else ended:
            now = _without(now, one, kernel, others, said, opens=head and number == 0)
        if now != sentence and _LABEL.fullmatch(now):
            now = ""
        if any(re.search(rf"`{re.escape(name)}`|\b{re.escape(name)}(?=[\[(])", now) or (_coded(name) and re.search(rf"\b{re.escape(name)}\b", now)) for name in gone):  # fmt: skip
            now = ""
        if now:
            kept.append(now)
    return " ".join(kept)


def names_other_kernel(text: str, kernel: str, others: Sequence[str]) -> bool:
    """Returns True if a text contains a word of another kernel's name that this kernel's name lacks.

    Such a text compares the kernels.
    """
    foreign = set().union(*map(_parts, others)) - _parts(kernel)
    return bool(foreign & set(re.findall(r"[a-z]+|\d+", text.lower())))


def _coded(name: str) -> bool:
    """Returns True if the name cannot be an English word."""
    return re.search(r"_|\d|[a-z][A-Z]", name.strip("_")) is not None


def _without(
    sentence: str, one: EndedTechnique, kernel: str, others: Sequence[str], said: set[str], *, opens: bool
) -> str:
    clauses = _clauses(sentence.rstrip(".!"))
    ending = sentence[len(sentence.rstrip(".!")) :]
    for place, clause in enumerate(clauses):
        match = re.search(rf"\b{BY.format(one.words)}(?!\w)", clause.text, re.IGNORECASE)
        if match is None or (one.unless and re.search(one.unless, clause.text, re.IGNORECASE)):
            continue
        if others and not _means(clauses, place, kernel, others):
            continue
        if others and one.phrase and _parts(match["what"]) & set().union(*map(_parts, (kernel, *others))):
            continue  # the word distinguishes the file's kernels
        instead = match.expand(one.instead) if one.instead else ""
        instead = f"in {kernel}, {instead}" if instead and others and one.whole else instead
        if instead and instead.lower() in said:
            instead = ""
        elif instead:
            said.add(instead.lower())
        now = _exchanged(clauses, place, match, one, instead, opens=opens)
        if now is None:
            continue
        if others and now and clauses[0] not in now:  # what followed spoke of the clause's subject
            now = [_Clause(one.sign, _IT.sub(rf"\g<1>{kernel}", one.text)) for one in now]
        return _sentence(now, ending, capital=not sentence[:1].islower())
    return sentence


def _clauses(sentence: str) -> list[_Clause]:
    """Returns the parts of a sentence between commas, semicolons, colons and dashes outside of parentheses."""
    found, sign, start, depth = [], "", 0, 0
    signs = {match.start(): match for match in CLAUSE.finditer(sentence)}
    for place, letter in enumerate(sentence):
        depth += (letter in "([") - (letter in ")]")
        match = signs.get(place)
        if match is not None and depth == 0:
            found.append(_Clause(sign, sentence[start:place].strip()))
            sign, start = match[1], match.end()
    return [*found, _Clause(sign, sentence[start:].strip())]


def _means(clauses: Sequence[_Clause], place: int, kernel: str, others: Sequence[str]) -> bool:
    """Returns True if the sentence part around the clause refers to this kernel and to no other one of the file."""
    first = place
    while first > 0 and clauses[first].sign != ";":
        first -= 1
    last = place
    while last + 1 < len(clauses) and clauses[last + 1].sign != ";":
        last += 1
    part = " ".join(clause.text for clause in clauses[first : last + 1]).lower()
    own, foreign = _parts(kernel), set().union(*map(_parts, others))
    words = set(re.findall(r"[a-z]+|\d+", part))
    return bool(words & (own - foreign)) and not words & (foreign - own)


def _parts(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+|\d+", name.lower()))


def _exchanged(
    clauses: Sequence[_Clause], place: int, match: re.Match[str], one: EndedTechnique, instead: str, *, opens: bool
) -> list[_Clause] | None:
    """Returns the clauses with the technique's words replaced or its clause removed; None if nothing remains."""
    clause = clauses[place]
    before, after = clause.text[: match.start()], clause.text[match.end() :]
    aside = None if one.phrase else re.search(r"\s*\([^()]*$", before)
    if aside is not None and ")" in after:
        said = f" ({instead})" if instead and not one.whole else ""
        return _put(clauses, place, place, before[: aside.start()] + said + after[after.index(")") + 1 :])
    if one.explains and not opens:
        return _put(clauses, place, place, "")
    alone = not before.strip() or re.fullmatch(r"(?:and|then|each)\s+", before) is not None
    rest = re.fullmatch(SCOPE, after) is not None
    if one.phrase or (not one.whole and instead and rest and (match["by"] or alone)):
        by = "by " if match["by"] else ""
        by = (match["by"] or "") + (match["article"] or "") if one.phrase else by
        after = re.sub(r"^\s*\([^()]*\)", "", after)  # it explained the words
        return _put(clauses, place, place, before + by + instead + after)
    if one.whole and match["by"] and before.strip():
        after = _REASON_OF.sub("", after)
        said = (
            "" if _HANDLED.fullmatch(before) and not after.strip() else f"{before.rstrip()} {after.lstrip()}".rstrip()
        )
        return _put(clauses, place, place, said)
    if place == 0 and not alone and opens and (not one.whole or one.spares_head):
        return None  # the clause says what is computed
    first = place
    while first > 0 and clauses[first].sign == "," and FOLLOWS.match(clauses[first].text):
        first -= 1
    return _put(clauses, first, place, instead if one.whole else "")


def _put(clauses: Sequence[_Clause], first: int, place: int, text: str) -> list[_Clause]:
    """Replaces some clauses by one, and removes the clauses that explained them."""
    last = place
    while last + 1 < len(clauses):
        following = clauses[last + 1]
        explains = following.sign == "," and FOLLOWS.match(following.text)
        if not explains and not (following.sign in {":", "--", "-", "—"} and "=" not in following.text):
            break
        last += 1
        while following.sign != "," and last + 1 < len(clauses) and clauses[last + 1].sign != ";":
            last += 1
    text = re.sub(r" {2,}", " ", text).strip()
    new = [_Clause(clauses[first].sign, text)] if text else []
    rest = list(clauses[last + 1 :])
    if not text and first == 0 and rest:
        rest[0] = _Clause("", re.sub(r"^(?:and|but|then)\s+", "", rest[0].text))
    return [*clauses[:first], *new, *rest]


def _sentence(clauses: Sequence[_Clause], ending: str, *, capital: bool) -> str:
    text = ""
    for clause in clauses:
        space = " " if text else ""
        text += f"{'' if not text else clause.sign}{space}{clause.text}"
    if not text:
        return ""
    return (text[0].upper() if capital else text[0]) + text[1:] + ending
