"""The techniques that recipes remove from a kernel: patterns of their names in comments, and replacements."""

from __future__ import annotations

import math

from kernelmate.records import Contract
from kernelmate.suggest.recipes.sentences import EndedTechnique

_HALVES = r"(?:/=\s*2|>>=\s*1|/\s*2|>>\s*1)\s*\)[^;]*\[[^\]]*\+"
"""Pattern of a loop that halves a distance and combines elements of an array."""
_KINDS = (
    r"(?:(?:classic|binary|usual|plain|simple|standard|shared[- ]memory|block|sequential|pairwise|interleaved)\s+)*"
)
_WHERE = r"(?:\s+(?:in|over|through|via)\s+(?:dynamic\s+|static\s+)?shared\s+memory)?(?:\s+(?:of|with)\s+(?:one|a)\s+\w+\s+(?:per|for\s+each)\s+thread)?"

TREE = (
    EndedTechnique(
        r"(?:tree-based\s+|parallel\s+)+(reduction|sum|maximum)(?:\s+(?:in|over|through|via|using)\s+shared\s+memory)?",
        r"\g<4> by warp shuffles",
        _HALVES,
        phrase=True,
    ),
    EndedTechnique(r"(?:each|every)\s+(?:step|round|iteration|turn)\s+halves", still=_HALVES, whole=True),
    EndedTechnique(
        rf"{_KINDS}(?:tree[- ]reduction|reduction\s+tree|tree|halving(?:\s+loop)?){_WHERE}", "warp shuffles", _HALVES
    ),
    EndedTechnique(r"(?:the|this)\s+tree\b", still=_HALVES),
    EndedTechnique(
        r"half\s+(?:of\s+)?the\s+threads\s+(?:idle|drop|are\s+idle|leave)|threads\s+drop\s+out", still=_HALVES
    ),
)
_NEAR = "neighbouring threads access neighbouring elements"
STRIDED = (
    EndedTechnique(
        r"(?:is|are|be)\s+not\s+coalesced|(?:no|none|nothing|neither|never|hardly)\b[\w\s]*\bcoalesced",
        _NEAR,
        whole=True,
    ),
    EndedTechnique(
        r"un-?coalesced|non-?coalesced|strided\s+(?:access\w*|loads?|stores?|reads?|writes?|memory|in)|(?:loads|stores|reads|writes)\s+are\s+not",
        _NEAR,
        whole=True,
    ),
    EndedTechnique(
        r"neighbou?ring\s+(?:threads|lanes)\s+(?:take|own|read|have)\s+neighbou?ring\s+rows", _NEAR, whole=True
    ),
    EndedTechnique(r"(?:a|one)\s+(?:whole\s+)?row\s+apart|strides?\s+of\s+a\s+(?:whole\s+)?row", _NEAR, whole=True),
)
TILED = tuple(
    EndedTechnique(one.words, "a tile in shared memory lets loads and stores both walk along rows", whole=True)
    for one in STRIDED
)
NO_PADDING = (
    EndedTechnique(
        r"(?:no|without)\s+padding|(?:not|un)[- ]?padded",
        "a column of padding spreads the tile's columns over all banks",
        whole=True,
    ),
    EndedTechnique(r"(?:in|on|onto|to|into)\s+(?:one|the\s+same|a\s+single)\s+bank", whole=True),
    EndedTechnique(
        r"(?:suffers?|causes?|has|have|with|hits?|makes?|costs?)\s+(?:\d+-way\s+|many\s+)?bank\s+conflicts|\d+-way\s+(?:bank\s+)?conflicts?",
        whole=True,
    ),
)
_ONE = r"(?:(?:is|costs|does|makes|needs)\s+)?(?:its\s+own\s+|an?\s+|one\s+)?(?:\w+\s+)?atomic\w*(?:\s+\w+){0,2}"
GLOBAL_ATOMICS = (
    EndedTechnique(
        rf"(?:(?:every|each|one)\s+\w+\s+)?{_ONE}\s+(?:in|on|to|into)\s+(?:the\s+)?global(?:\s+\w+)?",
        "each block counts in shared memory, then adds its counts to the global ones",
        whole=True,
    ),
    EndedTechnique(r"global(?:-memory)?\s+atomics?", whole=True),
    EndedTechnique(
        r"adds?\s+(?:it|them|one|1)\s+to\s+(?:the\s+)?global\s+\w+",
        "each block counts in shared memory, then adds its counts to the global ones",
        whole=True,
    ),
)
BLOCK_ATOMICS = (
    EndedTechnique(
        r"(?:one|an|a\s+single)\s+(atomic\w*(?:\s+(?:addition|add|update))?)\s+(?:per|for\s+each)\s+(?:thread|element|value|sample|item)",
        r"one \g<4> per block",
        phrase=True,
    ),
    EndedTechnique(
        r"(?:every|each)\s+(?:thread|element|value|sample|item)\s+(?:adds?|is\s+added|does|makes|issues)\b.*\batomic\w*.*",
        "each block adds its partial result once",
        whole=True,
    ),
)
_MEMORY = r"\b(?:shared|memory|arrays?|buffers?|scratch|tiles?|bytes|registers?|slots?|entry|entries|cells?|room|space|holds?|keeps?|reserves?|allocat\w+)\b"
"""Words of a clause that describes the layout of memory instead of the work of threads."""
VECTOR = (
    EndedTechnique(
        r"(?:(?:exactly|only|just)\s+)?(?:one|a\s+single)\s+(?:element|value|pixel|float|number)\s+(?:per|for\s+each)\s+thread|one\s+thread\s+(?:per|for\s+each)\s+(?:element|value|pixel|output|number)",
        "several neighbouring elements per thread",
        phrase=True,
        unless=_MEMORY,
    ),
    EndedTechnique(
        r"(?:each|every|one)\s+thread\s+(handles|computes|takes|does|loads|processes)\s+(?:(?:exactly|only|just)\s+)?(?:one|an?|a\s+single|its)\s+(?:element|value|pixel|output|number)",
        r"each thread \g<4> several neighbouring elements",
        phrase=True,
    ),
    EndedTechnique(r"scalar\s+(?:loads|stores|accesses)(?:\s+and\s+(?:loads|stores))?", whole=True),
)
WARP_PER_ROW = (
    EndedTechnique(r"(?:thread|block)\s+(per|for\s+each|for\s+every)\s+(\w+)", r"warp \g<4> \g<5>", phrase=True),
    EndedTechnique(r"(each|every|one|an?)\s+(?:thread|block)(?=\s+(?:takes|handles|owns|computes|sums|does|reduces|walks|processes|works\s+on)\s+(?:one|an?|its)\s+(?:\w+\s+)?(?:row|column|line|token|vector|query|head|segment|list|node|vertex|sequence|element|output|result)\b)", r"\g<4> warp", phrase=True),
    EndedTechnique(r"(?:serial|sequential)(?:ly)?(?=\s+(?:sum|loop|reduction|maximum|minimum|product|dot|pass|walk|over)\b)", phrase=True),
    EndedTechnique(r"(?:between|across)\s+(?:the\s+)?warps\s+through\s+shared\s+memory", whole=True),
    *STRIDED, *TREE,
)  # fmt: skip

ENDED: dict[str, tuple[EndedTechnique, ...]] = {
    "accumulate-in-register": (
        EndedTechnique(r"(?:accumulates?|adds?|sums?)\s+(?:\w+\s+){0,3}(?:in|into|to)\s+global\s+memory", "sums in a register", whole=True),
        EndedTechnique(r"(?:read|written|updated)\s+(?:in\s+global\s+memory\s+)?in\s+every\s+(?:turn|iteration)", whole=True),
    ),
    "block-atomics": BLOCK_ATOMICS,
    "coalesce": STRIDED,
    "exchange-axes": STRIDED,
    "flat-order": STRIDED,
    "grid-stride": (
        EndedTechnique(r"(?:one|a)\s+thread\s+(?:per|for\s+each)\s+(?:element|value|pixel|output|number)|(?:one|a\s+single)\s+(?:element|value|pixel|number)\s+per\s+thread", "a grid-stride loop", phrase=True, unless=_MEMORY),
        EndedTechnique(r"((?:each|every|one)\s+thread\s+(?:handles|computes|takes|does|loads|processes))\s+(?:(?:exactly|only|just)\s+)?(?:one|an?|a\s+single|its)\s+(element|value|pixel|output|number)", r"\g<4> \g<5>s at the grid's stride", phrase=True),
    ),
    "interleave-chunks": (
        EndedTechnique(r"(?:each|every)\s+thread\s+\w+\s+(?:a|one|its\s+own)\s+(?:contiguous\s+)?(?:chunk|run|piece|range)(?:\s+of\s+\w+)*", "neighbouring threads take neighbouring elements", whole=True),
        EndedTechnique(r"contiguous\s+(?:chunk|run|piece|range)s?", whole=True),
        *STRIDED,
    ),
    "online-softmax": (
        EndedTechnique(r"first\s+pass\b.*", "one pass finds the maximum and the sum", whole=True),
        EndedTechnique(r"second\s+pass\b.*", whole=True),
        EndedTechnique(r"third\s+pass", "second pass", phrase=True),
        EndedTechnique(r"(?:three|3)\s+passes", "two passes", phrase=True),
        EndedTechnique(r"(?:three|3)-pass", "two-pass", phrase=True),
        EndedTechnique(r"read\s+(?:three\s+times|thrice)", "read twice", phrase=True),
    ),
    "pad-shared-tile": NO_PADDING,
    "private-histogram": GLOBAL_ATOMICS,
    "sequential-reduction": (
        EndedTechnique(r"interleaved\s+(?:addressing|pairs|indices)|modulo|divergent(?:\s+branch\w*)?|tid\s*%\s*\(?\s*2", whole=True),
    ),
    "serial-reduction": TREE,
    "single-pass-moments": (
        EndedTechnique(r"first\s+pass\b.*", "one pass finds the mean and the variance", whole=True),
        EndedTechnique(r"second\s+pass\b.*", whole=True),
        EndedTechnique(r"third\s+pass", "second pass", phrase=True),
        EndedTechnique(r"(?:two|2)\s+passes", "one pass", phrase=True),
        EndedTechnique(r"(?:three|3)\s+passes", "two passes", phrase=True),
        EndedTechnique(r"(?:three|3)-pass", "two-pass", phrase=True),
        EndedTechnique(r"read\s+(?:three\s+times|thrice)", "read twice", phrase=True),
        EndedTechnique(r"two-pass", "one-pass", phrase=True),
    ),
    "shifted-variance": (EndedTechnique(r"loses\s+(?:digits|accuracy|precision)|cancel(?:s|lation)", whole=True),),
    "spread-over-grid": (
        EndedTechnique(r"(?:a\s+single|one|only\s+one)\s+block\s+(?:does|sums|reduces|reads|computes|for|works)\b.*", "every block of the grid takes part", whole=True),
    ),
    "stage-records": STRIDED,
    "thread-per-turn": STRIDED,
    "tile-permute": TILED,
    "tile-shared": (
        *(EndedTechnique(one.words, "each block reads its operands through tiles in shared memory", whole=True) for one in STRIDED),
        EndedTechnique(r"(?:no|without)\s+(?:tiles|tiling|shared\s+memory|blocking)", "each block reads its operands through tiles in shared memory", whole=True),
        EndedTechnique(r"(?:every|each)\s+thread\s+reads\s+(?:its|a|one|the)\s+(?:whole\s+)?row\b.*", "each block reads its operands through tiles in shared memory", whole=True),
    ),
    "tile-transpose": TILED,
    "vectorize": VECTOR,
    "warp-per-row": WARP_PER_ROW,
    "warp-reduction": TREE,
    "warp-scan": (
        EndedTechnique(r"(?:(?:Hillis\W+(?:and\s+)?Steele|Kogge\W+Stone)[\w']*(?:\s+(?:inclusive\s+|exclusive\s+)?scan)?|scan\s+by\s+doubl\w+(?:\s+distances?)?)(?:\s+between\s+two\s+buffers)?(?:\s+in\s+shared\s+memory)?", "a scan by warp shuffles"),
        EndedTechnique(r"double[- ]buffer\w*|ping-?pong\w*|between\s+two\s+buffers|two\s+buffers", whole=True),
    ),
}  # fmt: skip
"""Ended techniques by the recipe's name; other recipes end none that comments mention."""


def ended_by(recipe: str, before: Contract, after: Contract) -> tuple[EndedTechnique, ...]:
    """Returns the techniques that a rewrite ends: the recipe's, and mentions of a changed block size."""
    return (*ENDED.get(recipe, ()), *_lengths(before.block, after.block))


def _lengths(before: tuple[str, ...], after: tuple[str, ...]) -> tuple[EndedTechnique, ...]:
    """Returns the replacements of `256 threads` and `16 x 16 threads` for a changed block size."""
    if before == after or not all(side.strip().isdigit() for side in (*before, *after)):
        return ()
    old, new = (math.prod(int(side) for side in block) for block in (before, after))
    found = [EndedTechnique(rf"{old}(?=(?:\s+|-)threads?\b)", str(new), phrase=True)] if old != new else []
    if len(before) == 2 and len(after) == 2:
        sides = " x ".join(side.strip() for side in after)
        found.append(
            EndedTechnique(
                rf"{before[0].strip()}\s*x\s*{before[1].strip()}(?=\s+(?:threads|blocks?\b))", sides, phrase=True
            )
        )
    return tuple(found)


_WORKERS = r"(?:threads?|warps?|blocks?|lanes?)"
_MAPPED = (
    rf"(?:(?:one|an?(?:\s+single)?|single|each|every|the(?:\s+(?:first|last|same))?|all|\d+|neighbou?ring|adjacent|consecutive)\s+{_WORKERS}"
    r"|(?:thread|lane|warp|block)\s+(?:0|zero|number\s+\w+))"
    r"(?:\s+(?:per|for\s+(?:each|every)|in\s+(?:each|every))\s+\w+)?(?!\s+of\s+(?!threads)\w|[-\s]+(?:diagonal|size|matri|sparse))"
)
"""Pattern of threads to which work is assigned.

Excludes `each block of 64 columns`, which describes the computation.
"""
_WAYS = (
    r"(?:one|two|three|four|single|\d+|several)[-\s]+pass(?:es)?(?:\s+over\s+(?:the|each|every)\s+\w+)?"
    r"|(?:is|are)\s+read\s+(?:once|twice|\w+\s+times)|shared\s+memory|scratch|shuffles?|atomics?|atomic(?:ally|Add|\s+(?:add\w*|operations?|updates?))|grid[-\s]strided?"
    r"|read\s+(?:\w+\s+)?from\s+(?:global\s+memory|DRAM)|(?:all|one|the\s+same|\w+-way)\s+banks?|bank\s+conflicts?|(?:\w+\s+)?barriers?\s+(?:per|between|after|in)|unroll\w*|(?:un)?coalesced|float[24]"
    r"|(?:tree|halving|serial|parallel)[-\s]+reductions?|(?:as|by)\s+a\s+tree|tree\s+(?:in|over)|tiles?"
    r"|(?:loads?|stores?|reads?|writes?)\s+(?:\w+\s+)?(?:walk|stride|jump|are\s+(?:not|strided|scattered|full))\w*"
    r"|double\s+arithmetic|(?:float|double)\s+rate|FLOP\w*|(?:element|row|column|pixel|output)s?\s+(?:per|for|by)\s+(?:one\s+|a\s+|each\s+)?"
    rf"{_WORKERS}|(?:per|by)\s+{_WORKERS}"
)
_TWO_PASSES = r"(?:mean|variance).*two[-\s]+pass(?:es)?\b.*|two[-\s]+pass(?:es)?\b.*(?:E\[|digits|cancel|variance).*"

REWRITTEN = (
    # A two-pass variance is a choice of arithmetic that generated kernels share, except those that combine partial
    # moments.
    EndedTechnique(_TWO_PASSES, whole=True, explains=True, still=r"\A(?![\s\S]*\bMoments)"),
    EndedTechnique(
        r"\s+(?:through|by|via|using|with|in)\s+(?:[\w-]+\s+){0,5}?(?:tiles?|shared\s+memory|trees?|shuffles?|atomics?)(?:\s+in\s+shared\s+memory)?",
        phrase=True,
        explains=True,
    ),
    EndedTechnique(
        r"(?:(?:very\s+)?simple|naive|straightforward|correct|easy),?\s+(?:but|and|yet)\s+(?:very\s+)?(?:slow|inefficient|unoptimi[sz]ed)",
        whole=True,
        explains=True,
    ),
    # Applies to arithmetic in double, for example by literals without a suffix, that the new kernel no longer has.
    EndedTechnique(
        r".*\b(?:literals?|constants?|arithmetic|functions?|sqrt|exp|log)\b.*\b(?:doubles?|double[- ]precision|float64)\b.*",
        whole=True,
        explains=True,
        still=r"\bdouble\b|(?<![\w.])\d+\.\d*(?![\d.]*(?:e[+-]?\d+)?f)",
    ),
    *(
        EndedTechnique(
            r"(?:naive(?:ly)?|tiled|vectori[sz]ed|unrolled|(?:un)?coalesced|atomic|shared[-\s]memory|warp[-\s]level|block[-\s]level)(?=\s+(?!add|operation|update|access|load|store|read|write)\w)"
            r"(?!\s+(?:\w+\s+)?(?:kernel|version|variant|one|function)s?\s+(?:below|above|after|before|that|of\s+this\s+file|in\s+this\s+file)\b)",
            phrase=True,
        )
        for _ in range(2)
    ),
    *(
        EndedTechnique(rf"(?:{_MAPPED}|{_WAYS})", whole=True, spares_head=True, explains=True, unless=_TWO_PASSES)
        for _ in range(4)
    ),
)
"""Patterns of comments that describe the method of a kernel that was replaced; each matches once per sentence.

The clause on the computed result stays, without the words on the method.
"""
