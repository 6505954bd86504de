"""Folding of prompts: lower case, plain apostrophes, contractions, and mistyped key words."""

from __future__ import annotations

import re
import unicodedata

from kernelmate.decide.modifiers import FILLERS

_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc\u00b4\uff07`", "'"))
"""Typographic apostrophes, as editors and phones insert them: "don’t" forbids what "don't" forbids."""

CONTRACTIONS = {
    word: f"{word[:-1]}'s" for word in ("thats", "whats", "wheres", "hows", "theres", "heres", "whos", "whens")
}
"""Contractions that people write without the apostrophe, and their usual form."""

SPELLED = [
    "shared",
    "memory",
    "register",
    "registers",
    "faster",
    "quicker",
    "fewer",
    "speed",
    "bandwidth",
    "traffic",
    "occupancy",
    "accurate",
    "accuracy",
    "precision",
    "performance",
    "spill",
    "spills",
    "spilled",
    "latency",
    "throughput",
    "optimize",
    "reduce",
    "increase",
    "decrease",
    "global",
    "local",
    "without",
    "usage",
    "runtime",
    "coalescing",
    "transactions",
    "atomics",
    "deterministic",
    "vectorize",
    "vectorise",
    "tensor",
    "unroll",
    "loads",
]
"""Key words to which mistyped words are corrected."""

NO_SLIPS = frozenset(
    ["leads", "provision", "registry", "shaped", "shard", "share", "shares", "skill", "skills", "spell", "throughout"]
)
"""English words that are one letter away from a key word, and are not corrected; nor are fillers."""


def fold(prompt: str) -> str:
    """Converts to lower case, strips accents, writes contractions out alike, and corrects mistyped key words."""
    prompt = prompt.translate(_APOSTROPHES)
    decomposed = unicodedata.normalize("NFKD", prompt.casefold().replace("ß", "ss"))
    plain = re.sub("[\u0300-\u036f]", "", decomposed)
    plain = unicodedata.normalize("NFKC", plain)
    plain = re.sub(r"\b(?:this|next|last|first|second|one more) time\b", " ", plain)  # no wish for a shorter one
    plain = re.sub(r"[\s_]+", " ", plain)
    plain = re.sub(r"\bw/(o\b)?[ ]?", lambda found: "without " if found[1] else "with ", plain)
    plain = re.sub(r"\b[a-z]+s\b", lambda word: CONTRACTIONS.get(word.group(), word.group()), plain)
    return re.sub(r"[a-z]{5,}", lambda word: _spell(word.group()), plain)


def _spell(word: str) -> str:
    if word in SPELLED or word in FILLERS or word in NO_SLIPS:
        return word
    near = [known for known in SPELLED if _one_slip(word, known)]
    return near[0] if near else word


def _one_slip(word: str, known: str) -> bool:
    """Returns True if a word is a mistyped form of a known word.

    An error is a changed, missing, doubled or extra letter, or a swap of two neighbours. One is allowed, two for known
    words of 9 letters or more; the first letters must be equal.
    """
    allowed = 2 if len(known) >= 9 else 1
    if word[0] != known[0] or abs(len(word) - len(known)) > allowed:
        return False
    return _slips(word, known) <= allowed


def _slips(left: str, right: str) -> int:
    """Returns the optimal string alignment distance: insertions, deletions, changes and swaps of neighbours."""
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        last, before_last = row, before
        row = [i]
        for j, b in enumerate(right, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, before_last[j - 2] + 1)
            row.append(cost)
        before = last
    return row[-1]
