"""Similarity of two kernels, independent of names, layout and comments, to find duplicates and kernels of the exam.

Texts become tokens: the text's own identifiers become one placeholder, numbers another, comments and layout are
dropped; words of CUDA C++ and its library stay, since they are the code's structure. The similarity of two texts is the
Jaccard index of their sets of runs of five tokens: shared runs over all runs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

RUN = 5
"""Number of tokens of one run."""

NEAR = 0.8
"""Similarity from which two texts count as near-duplicates."""

_SKIPPED = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(
    r'\.[xyzw]\b|"(?:\\.|[^"\\\n])*"|\d[\w.]*(?:[eE][+-]\d+\w*)?|\.\d\w*|[A-Za-z_]\w*|<<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|::|\S'
)
_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_NUMBER = re.compile(r"\.?\d")

_WORDS = frozenset(
    [
        "auto",
        "bool",
        "break",
        "case",
        "char",
        "class",
        "const",
        "constexpr",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "false",
        "float",
        "for",
        "if",
        "inline",
        "int",
        "long",
        "namespace",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "template",
        "true",
        "typedef",
        "typename",
        "union",
        "unsigned",
        "using",
        "void",
        "volatile",
        "while",
        "half",
        "size_t",
        "int8_t",
        "int16_t",
        "int32_t",
        "int64_t",
        "uint8_t",
        "uint16_t",
        "uint32_t",
        "uint64_t",
        "define",
        "include",
        "pragma",
        "unroll",
        "threadIdx",
        "blockIdx",
        "blockDim",
        "gridDim",
        "warpSize",
        "float2",
        "float3",
        "float4",
        "int2",
        "int4",
        "uint4",
        "uchar4",
        "dim3",
        "min",
        "max",
        "abs",
        "extern",
        "C",
    ]
)
_LIBRARY = re.compile(
    r"__\w+|atomic\w+|(?:exp|exp2|log|log2|log1p|sqrt|rsqrt|tanh|sin|cos|pow|fabs|fmax|fmin|fma|floor|ceil|round|rint|erf|"
    r"fmod|sinh|cosh|tan|atan|atan2|cbrt|hypot)f?\Z|make_\w+|INFINITY\Z|FLT_MAX\Z|INT_M(?:AX|IN)\Z"
)


def tokens(text: str) -> tuple[str, ...]:
    """Returns a text's tokens with its own identifiers as `$` and numbers as `0`, without comments and contract."""
    return tuple(_placed(token) for token in _TOKEN.findall(_SKIPPED.sub(" ", text)))


def _placed(token: str) -> str:
    if _NUMBER.match(token):
        return "0"
    if _NAME.match(token) and token not in _WORDS and not _LIBRARY.match(token):
        return "$"
    return token


def normalised(text: str) -> str:
    """Returns the text with its own names numbered by first use.

    Equal for kernels that differ in names and layout only.
    """
    names: dict[str, str] = {}
    placed = []
    for token in _TOKEN.findall(_SKIPPED.sub(" ", text)):
        own = _placed(token) == "$"
        placed.append(names.setdefault(token, f"${len(names)}") if own else token)
    return " ".join(placed)


def fingerprint(*texts: str) -> str:
    """Returns a hash of the normalised texts; equal if only names, layout or comments differ."""
    return hashlib.sha256("\n\f\n".join(normalised(text) for text in texts).encode()).hexdigest()[:24]


def runs(text: str) -> frozenset[int]:
    """Returns hashes of all runs of `RUN` tokens, or of the whole text if it is shorter; equal in every process."""
    placed = tokens(text)
    spans = [placed[at : at + RUN] for at in range(max(len(placed) - RUN + 1, 1))]
    return frozenset(
        int.from_bytes(hashlib.blake2b(" ".join(span).encode(), digest_size=8).digest(), "big")
        for span in spans
        if span
    )


def overlap(one: str, other: str) -> float:
    """Returns the Jaccard index of two texts' runs: 1 for equal structure, 0 without shared runs or for empty texts."""
    return _jaccard(runs(one), runs(other))


def _jaccard(one: frozenset[int], other: frozenset[int]) -> float:
    together = len(one | other)
    return len(one & other) / together if together else 0.0


@dataclass(frozen=True, slots=True)
class Nearest:
    """The most similar text; `overlap` is 0 and `name` empty if there is none."""

    name: str
    overlap: float


class Overlaps:
    """Texts to compare others with, tokenised once.

    Args:
        texts: texts by name, such as an exam's kernels by file.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._runs = {name: runs(text) for name, text in texts.items()}

    def nearest(self, text: str) -> Nearest:
        """Returns the most similar text, the first by name among equals."""
        mine = runs(text)
        best = Nearest("", 0.0)
        for name in sorted(self._runs):
            shared = _jaccard(mine, self._runs[name])
            if shared > best.overlap:
                best = Nearest(name, shared)
        return best

    def near(self, texts: Iterable[str], bound: float = NEAR) -> list[tuple[int, Nearest]]:
        """Returns the texts that are near-duplicates of one of these: the index of each with its most similar text."""
        found = ((place, self.nearest(text)) for place, text in enumerate(texts))
        return [(place, nearest) for place, nearest in found if nearest.overlap >= bound]
