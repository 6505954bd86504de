"""Deficiencies of a correct kernel: each by name, with the metrics that its removal improves and prompts that ask for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
        "The flat number is taken apart with the slowest dimension first, so neighbouring threads are far apart in memory.",
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
