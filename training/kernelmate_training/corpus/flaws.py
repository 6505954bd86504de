"""Deficiencies of a correct kernel: each by name, with the metrics that its removal improves and prompts that ask for it.

Mistakes of programmers are put into correct kernels one at a time; `mistakes.toml` lists them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from kernelmate.records import MetricName


@dataclass(frozen=True, slots=True)
class Flaw:
    """One deficiency.

    Attributes:
        metrics: metrics that its removal improves, the most important first.
        bottleneck: the fault, in a sentence.
        remedy: the correction, in a sentence.
        minor: True if it is only removed together with others.
    """

    metrics: tuple[MetricName, ...]
    bottleneck: str
    remedy: str
    minor: bool = False


FLAWS: Mapping[str, Flaw] = {
    "swapped_axes": Flaw(
        ("time", "global_bytes"),
        "Neighbouring threads of a warp take elements a whole row apart, so each access of a warp touches up to 32 sectors.",
        "Let threadIdx.x run along the dimension that is contiguous in memory, and exchange the grid's axes with it.",
    ),
    "chunked": Flaw(
        ("time", "global_bytes"),
        "Each thread walks over a run of neighbouring elements, so the lanes of a warp are a run apart and no access is coalesced.",
        "Interleave: lane by lane neighbouring elements, each thread striding by the number of threads.",
    ),
    "thread_per_row": Flaw(
        ("time", "global_bytes"),
        "One thread goes through a whole row: the lanes of a warp are a row apart in memory, and few threads are at work.",
        "Give a row to several threads that take neighbouring columns.",
    ),
    "serial_block": Flaw(
        ("time",),
        "A single thread of the block does the loop while the others wait.",
        "Spread the loop over all threads of the block.",
    ),
    "one_block": Flaw(
        ("time",),
        "One block does everything, so one multiprocessor works and the others idle.",
        "Spread the elements over the grid, a block for each stretch of them.",
    ),
    "tiny_block": Flaw(
        ("time", "occupancy"),
        "Blocks of one warp: the limit of blocks per multiprocessor is reached with few warps resident.",
        "Launch larger blocks.",
    ),
    "huge_block": Flaw(
        ("time", "occupancy"),
        "Blocks of 1024 threads leave the multiprocessor no choice of what to run, and a ragged end wastes many threads.",
        "Launch blocks of 256 threads.",
        minor=True,
    ),
    "double_literals": Flaw(
        ("time", "registers"),
        "Literals without the suffix f turn float arithmetic into double arithmetic, with conversions both ways.",
        "Write literals with the suffix f and call the functions of float.",
    ),
    "powers": Flaw(
        ("time", "registers"),
        "powf is called for small whole powers.",
        "Multiply instead of calling powf.",
    ),
    "divides": Flaw(
        ("time", "registers"),
        "Divisions by what does not change take many instructions each.",
        "Multiply by the inverse.",
    ),
    "through_memory": Flaw(
        ("time", "global_bytes"),
        "Intermediate values go through the output in global memory, each step a load and a store.",
        "Keep the value in a register and store it once.",
    ),
    "global_accumulator": Flaw(
        ("time", "global_bytes"),
        "The sum is kept in global memory, so every step of the loop loads and stores it.",
        "Accumulate in a register and store the result once after the loop.",
    ),
    "no_restrict": Flaw(
        ("time", "global_bytes"),
        "Pointers may alias as far as the compiler knows, so values are loaded again after each store.",
        "Declare the pointers __restrict__, and const where they are only read.",
        minor=True,
    ),
    "reloads": Flaw(
        ("time", "global_bytes"),
        "A value that does not change in the loop is loaded in each step of it.",
        "Load it once before the loop.",
    ),
    "recomputes": Flaw(
        ("time",),
        "What does not change in the loop is computed again in each step.",
        "Compute it once before the loop.",
    ),
    "flat_index": Flaw(
        ("time", "registers"),
        "Row and column come out of one flat number by division and remainder, which take dozens of instructions.",
        "Launch a two-dimensional grid, so that both are there.",
    ),
    "atomic_each": Flaw(
        ("time",),
        "Every thread adds to one address by an atomic of its own, and those are done one after another.",
        "Reduce within the block first, and let one thread of each block make the atomic.",
    ),
    "atomic_bins": Flaw(
        ("time",),
        "Every sample is an atomic in global memory, and samples of one bin wait for each other.",
        "Count in shared memory of the block, and add each bin to global memory once per block.",
    ),
    "modulo_tree": Flaw(
        ("time",),
        "The tree's active threads are spread out by a modulo, so every warp diverges in every step.",
        "Halve the stride from the top, so that the active threads are neighbours.",
    ),
    "shared_tree": Flaw(
        ("shared_bytes", "time"),
        "The reduction runs through shared memory with a barrier in each step.",
        "Reduce within warps by shuffles, and keep one value per warp in shared memory.",
    ),
    "oversized_shared": Flaw(
        ("shared_bytes", "occupancy"),
        "The shared array is larger than what the block uses.",
        "Size the shared array by the block.",
    ),
    "second_buffer": Flaw(
        ("shared_bytes", "occupancy"),
        "Two shared buffers are there that are never needed at the same time.",
        "Use one buffer for both, with a barrier between.",
    ),
    "row_in_shared": Flaw(
        ("shared_bytes", "occupancy"),
        "A whole row is kept in shared memory though each thread reads back only what it wrote itself.",
        "Read the row again from global memory, or keep the values in registers.",
    ),
    "extra_barriers": Flaw(
        ("time",),
        "There are barriers that separate nothing.",
        "Leave out the barriers between which no thread reads what another one wrote.",
    ),
    "two_pass_moments": Flaw(
        ("time", "global_bytes"),
        "Mean and variance take a pass over the row each.",
        "Take the sum and the sum of squares in the same pass.",
    ),
    "two_pass_softmax": Flaw(
        ("time", "global_bytes"),
        "The maximum and the sum of exponentials take a pass over the row each.",
        "Take both in one pass, scaling the sum whenever the maximum grows.",
    ),
    "untiled": Flaw(
        ("time", "global_bytes"),
        "Every thread reads its whole row and column from global memory, each value as often as there are threads that need it.",
        "Stage tiles of both operands in shared memory, and let all threads of the block read them there.",
    ),
    "unstaged": Flaw(
        ("time", "global_bytes"),
        "All threads of the block read the same values from global memory.",
        "Stage them in shared memory a block's length at a time.",
    ),
    "tiled_shared": Flaw(
        ("shared_bytes", "occupancy"),
        "Values are staged in shared memory that each thread reads only once.",
        "Read them from global memory directly.",
    ),
    "strided_copy": Flaw(
        ("time", "global_bytes"),
        "Reads are coalesced and writes are not, or the other way round, whichever way the block is turned.",
        "Turn a tile round in shared memory, so that reads and writes are both coalesced.",
    ),
    "bank_conflicts": Flaw(
        ("time",),
        "A column of the tile lies in one bank of shared memory, so a warp reads it in 32 goes.",
        "Pad the tile's rows by one element.",
    ),
    "wide_shared": Flaw(
        ("shared_bytes", "occupancy"),
        "Shared memory holds floats where the values are halves.",
        "Keep the values in shared memory in their own type.",
    ),
    "scalar_access": Flaw(
        ("time",),
        "Each thread moves four bytes at a time, so there are four times as many requests as there need be.",
        "Load and store four neighbouring floats at once as float4.",
    ),
    "half_scalar": Flaw(
        ("time",),
        "Halves are loaded and converted one by one.",
        "Work on pairs as __half2.",
    ),
    "byte_dot": Flaw(
        ("time",),
        "Bytes are multiplied one by one.",
        "Take four products at once by __dp4a on words of four bytes.",
    ),
    "integer_tree": Flaw(
        ("time",),
        "A warp's integers are added by five shuffles.",
        "Let the hardware add them: __reduce_add_sync (from sm_80 on).",
    ),
    "vote_by_shuffle": Flaw(
        ("time",),
        "Flags are counted by a reduction of ones and zeros.",
        "Take the warp's flags as one word by __ballot_sync and count its bits.",
    ),
    "serial_scan": Flaw(
        ("time", "global_bytes"),
        "One thread runs through the whole row, since each element needs the one before.",
        "Scan by warps: shuffles within 32 elements, and the running total carried on.",
    ),
    "launch_bounds": Flaw(
        ("local_bytes", "time"),
        "__launch_bounds__ leaves each thread too few registers, so values are spilled to local memory.",
        "Ask for fewer resident blocks, so that values stay in registers.",
    ),
    "local_array": Flaw(
        ("local_bytes", "time"),
        "An array of the thread's own is indexed by what is not known when compiling, so it lies in local memory.",
        "Unroll the loops over it, so that its elements are registers.",
    ),
    "unrolled": Flaw(
        ("registers", "occupancy"),
        "The loop is unrolled so far that many values are alive at once.",
        "Unroll less.",
    ),
    "full_grid": Flaw(
        ("time",),
        "The block takes one element per thread, so there are as many reductions as blocks.",
        "Let a grid of fixed size stride over the elements, so that each thread adds up several before any reduction.",
    ),
    "naive_sum": Flaw(
        ("accuracy",),
        "Half precision accumulates the sum, whose rounding errors grow with each term.",
        "Accumulate in float and round once.",
    ),
    "wide_type": Flaw(
        ("time", "registers"),
        "Accumulating in double where the result is float takes twice the registers and a fraction of the throughput.",
        "Accumulate in float.",
    ),
    "slow_functions": Flaw(
        ("time", "registers"),
        "Exact functions are called where the stated tolerance leaves room.",
        "Call the hardware's approximations (__expf, __fdividef, rsqrtf).",
    ),
    "wide_index": Flaw(
        ("registers", "time"),
        "Indices are computed with 64 bits where 32 suffice, which takes two registers and several instructions each.",
        "Compute indices as int.",
    ),
    "slow_order": Flaw(
        ("time", "global_bytes"),
        "The flat index is decomposed with the slowest dimension first, so neighbouring threads are far apart in memory.",
        "Take the flat number apart with the contiguous dimension first.",
    ),
    "power_series": Flaw(
        ("time", "registers"),
        "Each term of the polynomial calls powf.",
        "Evaluate the polynomial by Horner's rule.",
    ),
    "bit_loop": Flaw(
        ("time", "registers"),
        "Bits are counted one by one in a loop.",
        "Count them by one instruction, __popc.",
    ),
    "cancelling": Flaw(
        ("accuracy",),
        "The variance is the difference of two large numbers, mean of squares less square of the mean, which cancels digits.",
        "Take the mean first, and then the mean of the squared deviations.",
    ),
    "plain_sum": Flaw(
        ("accuracy",),
        "A long sum in one float loses digits with each term.",
        "Carry what each addition loses along (Kahan's summation).",
    ),
    "ping_pong": Flaw(
        ("shared_bytes", "time"),
        "The scan goes to and fro between two buffers in shared memory, with a barrier in each step.",
        "Scan within warps by shuffles; then no shared memory is needed.",
    ),
    "branchy_edges": Flaw(
        ("time",),
        "Every tap is checked against the edges by branches.",
        "Clamp the index instead of branching.",
        minor=True,
    ),
}
"""Every deficiency that families put into kernels."""


def fixes(flaws: Iterable[str], metric: MetricName) -> frozenset[str]:
    """Returns the flaws whose removal improves a metric."""
    return frozenset(flaw for flaw in flaws if metric in FLAWS[flaw].metrics)


def metrics_of(flaws: Iterable[str]) -> tuple[MetricName, ...]:
    """Returns the metrics that versions with these flaws may be improved in, from flaws that are not minor."""
    found: dict[MetricName, None] = {}
    for flaw in flaws:
        if not FLAWS[flaw].minor:
            found.update(dict.fromkeys(FLAWS[flaw].metrics))
    return tuple(found)


Change = tuple[int, int, str, str]
"""Start, end, replacement text, and explanation."""

_PARAMETER = re.compile(r"(\w+)(?=[,)])")
_DECLARED = re.compile(r"\b(?:int|float|double|size_t|unsigned int|__half2?)\s+(\w+)\s*=")
_COUNT = re.compile(r"\b(?:int|unsigned int|size_t) (\w+)[,)]")
_BOUND = re.compile(r"(\w+) (?:<|>=) ([A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True)
class MistakenText:
    """A text with one mistake.

    Attributes:
        kind: the mistake's name.
        text: the whole unit.
        explanation: the fault and its correction.
    """

    kind: str
    text: str
    explanation: str


@cache
def mistakes() -> Mapping[str, dict[str, Any]]:
    """Returns the table of mistakes, by name."""
    return tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8"))


def break_text(text: str, rng: Random) -> MistakenText | None:
    """Returns the text with one random mistake; None if no mistake can be put into it."""
    if "__global__" not in text:
        return None
    kinds = list(mistakes())
    rng.shuffle(kinds)
    # Frequent mistakes come first more often than the others.
    kinds.sort(key=lambda kind: rng.random() / mistakes()[kind].get("weight", 1.0))
    for kind in kinds:
        found = changes(text, kind)
        if not found:
            continue
        at, end, put, words = rng.choice(found)
        broken = text[:at] + put + text[end:]
        if broken != text:
            return MistakenText(kind, broken, words)
    return None


def changes(text: str, kind: str) -> list[Change]:
    """Returns every change that puts one kind of mistake into a kernel."""
    start = text.index("{", text.index("__global__")) + 1
    mistake = mistakes()[kind]
    if "function" in mistake:
        function: Callable[[str, int], Iterator[Change]] = globals()[mistake["function"]]
        return list(function(text, start))
    return [change for rule in mistake["changes"] for change in _changes(text, start, **rule)]


def _changes(text: str, start: int, pattern: str, put: str, why: str, *, head: bool = False, **only: Any) -> Iterator[Change]:  # fmt: skip
    """Yields the changes of one row of the table for a text whose kernel's body begins at `start`."""
    if only.get("needs", "") not in text or ("lacks" in only and only["lacks"] in text[start:]):
        return
    counts = set(_COUNT.findall(text[:start])) if "count" in only else set()
    for match in re.finditer(pattern, text[:start] if head else text[start:]):
        first, last = (match[group] for group in only.get("differ", (0, 0)))
        number = match[2] if match.re.groups > 1 and match[2].isdigit() else "0"
        count = match[only["count"]] if "count" in only else "0"
        if ("differ" in only and first == last) or int(number) < only.get("least", 0) or not (count.isdigit() or count in counts):  # fmt: skip
            continue
        at, words = 0 if head else start, {"half": int(number) // 2}
        told = why.format(match[0].strip(), *match.groups(), **words)
        yield at + match.start(), at + match.end(), put.format(match[0], *match.groups(), **words), told


def _misspelt(text: str, start: int) -> Iterator[Change]:
    """Yields misspelt names: two letters exchanged, or one left out."""
    names = set(_DECLARED.findall(text[start:])) | set(_PARAMETER.findall(text[:start]))
    for match in re.finditer(r"[A-Za-z_]\w*", text[start:]):
        name = match[0]
        if len(name) < 3 or name not in names:
            continue
        wrong = name[:-2] + name[-1] + name[-2] if name[-1] != name[-2] else name[:-1]
        if wrong not in names:
            yield start + match.start(), start + match.end(), wrong, f"`{wrong}` is misspelt: it is called `{name}`."


def _wrong_width(text: str, start: int) -> Iterator[Change]:
    """Yields indices with the row's length replaced by the number of rows."""
    bounds = dict(_BOUND.findall(text[start:]))
    for match in re.finditer(r"\[(\w+) \* ([A-Za-z_]\w*) \+ ", text[start:]):
        row, width = match.groups()
        other = bounds.get(row)
        if other is not None and other != width and bounds.get(width) is None:
            why = f"A row has {width} elements, not {other}: the index is `{row} * {width} + ...`."
            yield start + match.start(), start + match.end(), f"[{row} * {other} + ", why


def _other_layout(text: str, start: int) -> Iterator[Change]:
    """Yields changes of all accesses of one array from row-major to column-major order."""
    bounds = dict(_BOUND.findall(text[start:]))
    for name in dict.fromkeys(re.findall(r"\b(\w+)\[\w+ \* \w+ \+ \w+\]", text[start:])):
        pattern = re.compile(rf"\b{name}\[(\w+) \* (\w+) \+ (\w+)\]")
        places = set(pattern.findall(text[start:]))
        row, width, col = places.pop()
        rows = bounds.get(row)
        if places or rows is None or rows == width or not width.isidentifier() or bounds.get(col) != width:
            continue
        put = pattern.sub(f"{name}[{col} * {rows} + {row}]", text[start:])
        yield start, len(text), put, f"`{name}` has rows of {width} elements: its index is `{row} * {width} + {col}`."
