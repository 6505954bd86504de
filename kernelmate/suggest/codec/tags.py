"""Tags of bottlenecks and optimizations, each with a special token and a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from kernelmate.suggest.codec.base import DecodedAnswer, NotEncodable

MOST_TAGS = 8
"""Largest number of tags at the start of an answer."""


@dataclass(frozen=True, slots=True)
class Tag:
    """One bottleneck (`why`) or one optimization (`do`).

    Attributes:
        sentence: its text for people.
        pattern: matches sentences of a reviewer or a recipe that state it.
    """

    kind: Literal["why", "do"]
    name: str
    sentence: str
    pattern: re.Pattern[str]

    @property
    def token(self) -> str:
        """The tag's special token."""
        return f"@{self.kind}-{self.name}:"


def _tag(kind: Literal["why", "do"], name: str, sentence: str, pattern: str) -> Tag:
    return Tag(kind, name, sentence, re.compile(pattern, re.IGNORECASE))


TAGS: tuple[Tag, ...] = (
    _tag("why", "uncoalesced", "Neighbouring threads touch memory that is far apart, so each warp moves many sectors.", r"sectors|no access is coalesced|row apart|writes are not|uncoalesced|strided access"),
    _tag("why", "serial", "Few threads do the work while the others wait.", r"single thread|one thread (?:goes|runs)|few threads|idle|others wait"),
    _tag("why", "occupancy", "Too few warps are resident to hide latency.", r"few warps|occupancy|resident|blocks per multiprocessor|no choice of what to run"),
    _tag("why", "double", "Arithmetic runs in double precision without need.", r"double (?:arithmetic|precision)|in double|\.f64|suffix f turn"),
    _tag("why", "arithmetic", "Expensive instructions are executed that cheaper ones could replace.", r"many instructions|dozens of instructions|exact functions|divisions? (?:by|and)|division|powf|one by one|expensive"),
    _tag("why", "traffic", "Values are read from or written to global memory more often than needed.", r"loads? and (?:a )?stores? it|as often as|same values from global|through the output|loaded again|kept in global|a pass over the row each|passes|global traffic|global memory (?:again|each)"),
    _tag("why", "aliasing", "Pointers may alias as far as the compiler knows, so values are loaded again.", r"alias"),
    _tag("why", "repeated", "What does not change in a loop is loaded or computed in each step.", r"does not change in the loop|in each step of it|invariant"),
    _tag("why", "atomics", "Atomics on the same addresses wait for each other.", r"atomic"),
    _tag("why", "divergence", "Threads of one warp take different ways.", r"diverg|modulo"),
    _tag("why", "barriers", "Threads wait at barriers that could be fewer.", r"barrier in each step|barriers that separate|barrier is not needed"),
    _tag("why", "shared", "A block takes more shared memory than it needs.", r"shared (?:array|memory|buffers?) (?:is|are|holds)|larger than what the block|kept in shared|staged in shared|two shared buffers"),
    _tag("why", "conflicts", "Accesses to shared memory fall into the same bank.", r"bank"),
    _tag("why", "narrow", "Each access moves few bytes, so there are many requests.", r"four bytes at a time|requests|converted one by one|narrow"),
    _tag("why", "registers", "Too many values are alive at once, or lie in local memory.", r"alive at once|local memory|spill|many registers"),
    _tag("why", "broken", "The kernel does not compile.", r"missing|misspelt|not declared|undefined|expected|semicolon|bracket"),
    _tag("why", "wrong", "The kernel computes something else than it should.", r"wrong|must (?:be|start)|is meant|overwritten|exchanges|left out|lets .* through|keeps threads beyond|one too far|has to be multiplied|never reach the barrier"),
    _tag("why", "race", "Threads use what others write without waiting for them.", r"race|no barrier between"),
    _tag("do", "coalesce", "Let neighbouring threads take neighbouring elements.", r"contiguous|interleave|coalesce(?!d\.)|neighbouring columns"),
    _tag("do", "spread", "Spread the work over all threads and the whole grid.", r"spread (?:the|over)|over all threads|spread-over-grid|several threads|stretch of them"),
    _tag("do", "block-size", "Launch another shape of block or grid.", r"launch (?:larger )?blocks|block-size|two-dimensional grid|grid-stride|stride by the grid|grid of fixed size"),
    _tag("do", "single", "Compute in single precision.", r"suffix f and|float-literals|functions of float"),
    _tag("do", "cheaper", "Use cheaper instructions for the same result.", r"multiply (?:by|instead)|fast-intrinsics|intrinsic|\bdivide\b|approximations"),
    _tag("do", "register", "Keep values in registers instead of memory.", r"in (?:a )?registers?\b|accumulate|keep the values? in"),
    _tag("do", "restrict", "Declare pointers __restrict__, and const where they are only read.", r"__restrict__|restrict-pointers"),
    _tag("do", "hoist", "Do once before the loop what does not change in it.", r"once before|hoist"),
    _tag("do", "fuse", "Take several passes over the data in one.", r"same pass|in one pass|online-softmax|single-pass|fuse"),
    _tag("do", "privatize", "Collect within the block first, and make one atomic for it.", r"within the block first|count in shared|private-histogram|block-atomics|once per block"),
    _tag("do", "sequential", "Let the active threads of a reduction be neighbours.", r"active threads are neighbours|sequential-reduction|stride from the top"),
    _tag("do", "shuffle", "Exchange values within warps by shuffles and votes.", r"shuffle|warp-reduction|warp-per-row|__ballot|__reduce"),
    _tag("do", "shrink", "Use less shared memory.", r"size the shared|one buffer for both|merge-shared|dynamic-shared|in their own type|half-storage|read (?:the row|them) (?:again )?from global|halve the"),
    _tag("do", "no-barrier", "Leave out barriers that separate nothing.", r"leave out the barriers|remove-barrier"),
    _tag("do", "tile", "Stage tiles in shared memory that many threads read.", r"stage|tile-shared|tile-transpose|turn a tile"),
    _tag("do", "pad", "Pad shared arrays so that columns fall into different banks.", r"\bpad\b|pad-shared"),
    _tag("do", "vectorize", "Move several neighbouring elements at once.", r"float4|__half2|vectori[sz]e|at once as|__dp4a|words of four"),
    _tag("do", "unroll", "Unroll loops.", r"unroll(?!ed)"),
    _tag("do", "launch-bounds", "Tell the compiler how many threads and blocks to expect.", r"launch_bounds|launch-bounds|fewer resident|resident blocks"),
    _tag("do", "split", "Keep fewer values alive at once.", r"fewer values|roll (?:it|the loop)|smaller pieces|recompute"),
    _tag("do", "mend", "Put right what is wrong, and leave the rest.", r"put .* back|it must be|needs? the condition|is called|must be added|a __syncthreads\(\) is missing|missing|are needed"),
)  # fmt: skip
"""All tags. New tags are appended to their kind and never renamed, because models are trained on them."""

_FACT = re.compile(
    r"(?:Global (?:loads|stores|atomics)|Shared (?:loads|stores)|Each thread takes \d|A block takes \d|Occupancy)\b"
)
"""Start of sentences that state figures only, which have no tags."""
_BY_TOKEN = {tag.token: tag for tag in TAGS}
_TOKEN = re.compile(r"@(?:why|do)-[a-z-]+:")


def tag_tokens() -> tuple[str, ...]:
    """Special tokens of all tags."""
    return tuple(_BY_TOKEN)


def tags_of(analysis: Iterable[str]) -> tuple[Tag, ...]:
    """Returns the tags of sentences, recipe names or tag tokens: bottlenecks first, each once, at most `MOST_TAGS`."""
    said = {place for text in analysis for place in _places_in(text)}
    return tuple(TAGS[place] for place in sorted(said))[:MOST_TAGS]


def format_tags(analysis: Iterable[str], *, alone: bool = False) -> str:
    """Returns the tags of an analysis as the start of an answer; `alone` if they are the whole answer.

    Raises:
        NotEncodable: `alone` is set and there are no tags.
    """
    told = "".join(tag.token for tag in tags_of(analysis))
    if alone and not told:
        raise NotEncodable("The analysis says nothing that there is a tag for.")
    return told


@lru_cache(maxsize=4096)
def _places_in(text: str) -> tuple[int, ...]:
    """Returns the indices into `TAGS` of one sentence's tags.

    Cached because a corpus repeats a few hundred sentences.
    """
    if _FACT.match(text) is not None:
        return ()
    return tuple(place for place, tag in enumerate(TAGS) if tag.token == text or tag.pattern.search(text))


def read_tags(text: str) -> tuple[tuple[Tag, ...], int]:
    """Returns the tags at the start of a text, each once, and the offset after them; unknown tags are skipped."""
    found: list[Tag] = []
    position = 0
    for token in _tokens(text):
        position += len(token)
        tag = _BY_TOKEN.get(token)
        if tag is not None and tag not in found:
            found.append(tag)
    return tuple(found[:MOST_TAGS]), position


def read_analysis(text: str) -> tuple[DecodedAnswer, str]:
    """Splits an answer into its analysis and the rest."""
    tags, position = read_tags(text)
    return DecodedAnswer(None, tuple(tag.sentence for tag in tags), tuple(tag.token for tag in tags)), text[position:]


def without_tags(text: str) -> str:
    """Returns an answer without its leading tags."""
    return text[read_tags(text)[1] :]


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while (match := _TOKEN.match(text, position)) is not None:
        yield match[0]
        position = match.end()
