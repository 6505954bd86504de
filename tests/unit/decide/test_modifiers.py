"""Prompts as people write them, and what each is taken for beside its metric."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kernelmate.decide.constraints import aimed_at, broken_by, launch_broken, suits
from kernelmate.decide.objective import read_objective
from kernelmate.errors import UsageError
from kernelmate.records import Compiled, Contract
from kernelmate.source import find_kernels, parse_contract, text_unit

WIDE, HALF, TILES, ONCE, FUSED = (
    "wide loads and stores",
    "loads in half precision",
    "tiles in shared memory",
    "input read once",
    "fused loops",
)
BITS = "the same bits in every run"

PREFERRED: list[tuple[str, tuple[str, ...]]] = [
    ("fuse the loops", (FUSED,)),
    ("please fuse these two loops", (FUSED,)),
    ("do it in a single pass", (FUSED,)),
    ("read the input once", (ONCE,)),
    ("read x only once please", (ONCE,)),
    ("don't read the input twice", (ONCE,)),
    ("use float4", (WIDE,)),
    ("use float4 loads and stores", (WIDE,)),
    ("vectorise the loads", (WIDE,)),
    ("vectorze it", (WIDE,)),
    ("I'd like wider loads", (WIDE,)),
    ("can you use 128-bit loads?", (WIDE,)),
    ("load in half precision", (HALF,)),
    ("Use half precision for the loads", (HALF,)),
    ("use fp16 for the loads", (HALF,)),
    ("tile it", (TILES,)),
    ("tile the matrix through shared memory", (TILES,)),
    ("use shared memory", (TILES,)),
    ("keep the tile in smem", (TILES,)),
    ("use tensor cores", ("tensor cores",)),
    ("tensorcores please", ("tensor cores",)),
    ("one warp per row", ("one warp per row",)),
    ("a warp for each row", ("one warp per row",)),
    ("use one block per row", ("one block per row",)),
    ("it should be one thread per row", ("one thread per row",)),
    ("unroll the inner loop", ("unrolled loops",)),
    ("use warp shuffles", ("shuffles within a warp",)),
    ("use 256 threads per block", ("256 threads per block",)),
    ("keep the row in registers", ("values in registers",)),
    ("fuse the loops and use float4", (WIDE, FUSED)),
    ("let each warp handle one row", ("one warp per row",)),
    ("give every row its own block", ("one block per row",)),
    ("avoid reading x three times", (ONCE,)),
    ("make the loads wider", (WIDE,)),
    ("use half instead of float", (HALF,)),
]


@pytest.mark.parametrize(("prompt", "wanted"), PREFERRED)
def test_structure_is_a_preference_for_speed(prompt: str, wanted: tuple[str, ...]) -> None:
    objective = read_objective(prompt)
    assert {one.words for one in objective.preferences} == set(wanted)
    assert not any(one.avoid for one in objective.preferences)
    assert (objective.metric, objective.unknown, objective.constraints) == ("time", (), ())
    assert all(words in objective.reading for words in wanted)


@pytest.mark.parametrize(
    ("prompt", "avoided"),
    [
        ("don't vectorize", WIDE),
        ("make it faster without tensor cores", "tensor cores"),
        ("avoid tiling", TILES),
        ("faster, but do not unroll the loop", "unrolled loops"),
        ("no half precision, but faster", HALF),
    ],
)
def test_denied_structure_is_not_tried(prompt: str, avoided: str) -> None:
    objective = read_objective(prompt)
    assert [(one.words, one.avoid) for one in objective.preferences] == [(avoided, True)]
    assert f"Not tried: {avoided}." in objective.reading


CONSTRAINED: list[tuple[str, str, tuple[str, ...]]] = [
    ("no atomics", "time", ("no atomics",)),
    ("without atomics", "time", ("no atomics",)),
    ("don't use atomicAdd", "time", ("no atomics",)),
    ("get rid of the atomics", "time", ("no atomics",)),
    ("again, without atomics", "time", ("no atomics",)),
    ("make it deterministic", "time", (BITS,)),
    ("but keep it determinstic", "time", (BITS,)),
    ("the results should be bitwise reproducible", "time", (BITS,)),
    ("at most 32 registers", "registers", ("at most 32 registers",)),
    ("32 registers or fewer", "registers", ("at most 32 registers",)),
    ("use no more than 64 regs per thread", "registers", ("at most 64 registers",)),
    ("fewer than 40 registers", "registers", ("at most 39 registers",)),
    ("bring the register count down to 32", "registers", ("at most 32 registers",)),
    ("make it faster with max 64 registers", "time", ("at most 64 registers",)),
    ("speed it up but keep it under 65 registers", "time", ("at most 64 registers",)),
    ("make it faster without atomics and at most 64 registers", "time", ("at most 64 registers", "no atomics")),
    ("faster and deterministic", "time", (BITS,)),
    ("don't use shared memory", "shared_bytes", ("no shared memory",)),
    ("make it faster without using shared memory", "time", ("no shared memory",)),
    ("use at most 16 KB of shared memory", "shared_bytes", ("at most 16384 bytes of shared memory",)),
    ("fix the race without atomics", "correct", ("no atomics",)),
    ("faster, it need not be deterministic", "time", ()),
    ("do not use more than 64 registers", "registers", ("at most 64 registers",)),
    ("I want it faster but the results must be identical on every run", "time", (BITS,)),
    ("avoid shared memory bank conflicts", "time", ()),
    ("at least 50 % occupancy", "occupancy", ("at least 50% occupancy",)),
    ("occupancy of at least 0.75", "occupancy", ("at least 75% occupancy",)),
    ("50% occupancy at least", "occupancy", ("at least 50% occupancy",)),
    ("i want occupany above 0.75", "occupancy", ("at least 75% occupancy",)),
    ("raise occupancy to 75%", "occupancy", ("at least 75% occupancy",)),
    ("make it faster and keep occupancy above 50 %", "time", ("at least 50% occupancy",)),
    ("make it faster with at least 62.5% occupancy", "time", ("at least 62.5% occupancy",)),
    ("faster, without dropping occupancy below 50%", "time", ("at least 50% occupancy",)),
    ("faster, but don't let the occupancy fall under 40 percent", "time", ("at least 40% occupancy",)),
    ("fewer registers, occupancy >= 50%", "registers", ("at least 50% occupancy",)),
    ("make it faster, keep block 256", "time", ("exactly 256 threads per block",)),
    ("make it faster but keep the block size at 256", "time", ("exactly 256 threads per block",)),
    ("faster, keep 128 threads per block", "time", ("exactly 128 threads per block",)),
    ("faster with exactly 128 threads per block", "time", ("exactly 128 threads per block",)),
    ("make it faster with a fixed block size of 256", "time", ("exactly 256 threads per block",)),
    ("make it faster, keep block=256", "time", ("exactly 256 threads per block",)),
    ("faster, the block must stay at 64", "time", ("exactly 64 threads per block",)),
    ("do not change the block size, just make it faster", "time", ("the block size unchanged",)),
    ("make it faster with the same block size", "time", ("the block size unchanged",)),
    ("less shared memory but keep blockDim as is", "shared_bytes", ("the block size unchanged",)),
    ("don't touch the launch, fewer registers", "registers", ("the launch unchanged",)),
    ("make it faster without changing the launch configuration", "time", ("the launch unchanged",)),
    ("blockDim fixed at 128, make it faster", "time", ("exactly 128 threads per block",)),
    ("keep block 256", "time", ("exactly 256 threads per block",)),
    ("make it faster, keep the block small", "time", ()),
    ("use less shared memory but keep 32 threads per warp", "shared_bytes", ()),
    ("faster with exactly 32 threads per warp and no shared memory", "time", ("no shared memory",)),
]


@pytest.mark.parametrize(("prompt", "metric", "words"), CONSTRAINED)
def test_what_must_hold_is_a_constraint(prompt: str, metric: str, words: tuple[str, ...]) -> None:
    objective = read_objective(prompt)
    assert objective.metric == metric
    assert {one.words for one in objective.constraints} == set(words)
    assert (objective.preferences, objective.unknown) == ((), ())


@pytest.mark.parametrize(
    "prompt",
    [
        "less shared memory but not slower",
        "less shared memory without slowing it down",
        "reduce smem at the same speed",
        "reduce shared memory use but keep the speed",
    ],
)
def test_not_slower_is_a_limit_of_time(prompt: str) -> None:
    objective = read_objective(prompt)
    assert (objective.metric, objective.limits) == ("shared_bytes", {"time": 0.0})


@pytest.mark.parametrize(
    ("prompt", "sizes"),
    [
        ("as fast as possible at rows = 8", ({"rows": 8},)),
        ("make it fast for 8 rows", ({"rows": 8},)),
        ("faster at n=1024, Cols=64", ({"n": 1024, "Cols": 64},)),
        ("fastest at rows = 8, 16 and 64", ({"rows": 8}, {"rows": 16}, {"rows": 64})),
        ("fast for batch_size=1 and batch_size = 4", ({"batch_size": 1}, {"batch_size": 4})),
        ("make it faster within 10 ms", ()),
    ],
)
def test_sizes_in_a_prompt_are_read(prompt: str, sizes: tuple[dict[str, int], ...]) -> None:
    objective = read_objective(prompt)
    assert (objective.metric, objective.sizes) == ("time", sizes)


@pytest.mark.parametrize(
    "prompt",
    ["asdf qwer", "paint it blue", "hello", "sing me a song", "сделай быстрее", "gør den hurtigere", "thanks!", "???", "not slower"],
)  # fmt: skip
def test_what_is_not_understood_is_not_read_as_faster(prompt: str) -> None:
    with pytest.raises(UsageError, match=r"understood|question") as refused:
        read_objective(prompt)
    assert "one warp per row" in str(refused.value.hint)


@pytest.mark.parametrize("prompt", ["why is it slow?", "What is the weather like today?", "how fast is this kernel?"])
def test_a_question_starts_no_search(prompt: str) -> None:
    with pytest.raises(UsageError, match="question"):
        read_objective(prompt)


def test_a_wish_in_the_form_of_a_question_is_a_wish() -> None:
    assert read_objective("can you make it faster?").metric == "time"
    assert read_objective("is it possible to make it faster?").metric == "time"
    assert read_objective("when rows = 8 it is too slow").sizes == ({"rows": 8},)
    assert read_objective("why is it slow? Use fewer registers").metric == "registers"


def test_words_that_were_not_understood_are_told() -> None:
    objective = read_objective("make it faster and paint it blue")
    assert (objective.metric, objective.unknown) == ("time", ("paint it blue",))
    assert "Not understood: 'paint it blue'." in objective.reading


def test_a_bound_that_the_kernel_keeps_is_only_held_to(verdict) -> None:
    above, below = (read_objective("at most 32 registers", verdict(registers=count)) for count in (40, 30))
    assert (above.metric, above.keep) == ("registers", False)
    assert (below.metric, below.keep) == ("time", True)


def test_a_bound_of_occupancy_is_the_objective_until_it_is_met(verdict) -> None:
    reading = [read_objective("at least 50% occupancy", verdict(occupancy=share)) for share in (0.375, 0.5)]
    assert [(one.metric, one.keep) for one in reading] == [("occupancy", False), ("time", True)]
    faster = read_objective("make it faster with at least 50% occupancy")
    raised = aimed_at(faster, ("occupancy",), verdict(occupancy=0.375))
    assert raised is not None
    assert (raised.metric, raised.direction) == ("occupancy", "increase")
    assert aimed_at(faster, ("occupancy",), verdict(occupancy=0.5)) is None


def test_an_upper_bound_of_occupancy_is_no_constraint() -> None:
    objective = read_objective("make it faster at under 50% occupancy")
    assert objective.constraints == ()
    assert "50%" in objective.unknown[0]


def contract(block: str, grid: str = "rows") -> Contract:
    text = f'''\
// /// kernelmate
// sizes = [{{ rows = 64 }}]
// grid = "{grid}"
// block = {block}
// [args]
// x = "inout float32[rows]"
// rows = "int32"
// ///
__global__ void k(float* x, int rows) {{}}
'''
    (kernel,) = find_kernels(text_unit(text))
    parsed = parse_contract(kernel)
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    ("prompt", "version", "reason"),
    [
        ("keep block 256", contract("256"), None),
        ("keep block 256", contract("[128, 2]"), None),
        ("keep block 256", contract("128"), "asked for exactly 256 threads per block, has 128 threads per block"),
        ("same block size", contract("[128, 2]"), "asked for the block size unchanged, has 256 threads per block"),
        ("same block size", contract("256", "2 * rows"), None),
        ("do not touch the launch, faster", contract("256"), None),
        (
            "do not touch the launch, faster",
            contract("256", "2 * rows"),
            "asked for the launch unchanged, has 128 blocks of 256 threads instead of 64 blocks of 256 threads",
        ),
        ("keep block 256", replace(contract("256"), block=("4096",)), None),  # its verdict has the error
    ],
)
def test_a_version_with_another_block_or_launch_says_so(prompt: str, version: Contract, reason: str | None) -> None:
    assert launch_broken(read_objective(prompt), version, contract("256")) == (() if reason is None else (reason,))


def compiled(body: str) -> Compiled:
    text = (
        f".visible .entry other(\n)\n{{\n red.global.add.f32 [%rd1], %f1;\n}}\n.visible .entry k(\n)\n{{\n{body}\n}}\n"
    )
    return Compiled("k", None, "k", "sm_90", "NVRTC", True, (), text)


@pytest.mark.parametrize(
    ("prompt", "body", "registers", "reason"),
    [
        ("at most 32 registers", "", 40, "asked for at most 32 registers, has 40"),
        ("at most 32 registers", "", 32, None),
        ("no atomics", " atom.shared.add.u32 %r1, [%r2], 1;", 32, "asked for no atomics, has 1 in its PTX"),
        ("no atomics", " @%p1 red.global.add.f32 [%rd1], %f1;", 32, "asked for no atomics, has 1 in its PTX"),
        ("no atomics", " redux.sync.add.s32 %r1, %r2, %r3;", 32, None),
        ("deterministic", " red.global.add.f32 [%rd1], %f1;", 32, f"asked for {BITS}, adds floats by atomics"),
        ("deterministic", " red.global.add.u32 [%rd1], %r1;", 32, None),
    ],
)
def test_a_version_that_breaks_a_constraint_says_so(verdict, prompt, body, registers, reason) -> None:
    reasons = broken_by(read_objective(prompt), verdict(registers=registers), compiled(body))
    assert len(reasons) == (reason is not None)
    assert all(re.match(re.escape(reason), one) for one in reasons)


def test_authors_are_told_apart_by_what_was_preferred() -> None:
    objective = read_objective("one warp per row, and don't unroll")
    authors = ("synthesis:rows-warp", "synthesis:rows-block-128", "recipe:warp-per-row+unroll")
    assert [suits(objective, author) for author in authors] == [1, 0, -1]


def test_recipes_against_registers_are_asked_while_a_bound_is_exceeded(verdict) -> None:
    objective = read_objective("make it faster with at most 32 registers")
    capped = aimed_at(objective, ("registers",), verdict(registers=40))
    assert capped is not None
    assert capped.metric == "registers"
    assert aimed_at(objective, ("registers",), verdict(registers=30)) is None
    assert aimed_at(objective, ("time",), verdict(registers=40)) is objective
