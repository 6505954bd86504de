"""Prompts with the intents that people have: each is read so, and no search begins that nobody asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.decide.intent import SUGGESTED, Intent, chips_of, modifier_prompts, read_intent, restated
from kernelmate.decide.modifiers import FILLERS, STRUCTURES
from kernelmate.decide.objective import read_objective
from kernelmate.decide.spelling import fold
from kernelmate.records import Objective


@dataclass(frozen=True)
class Means:
    """A prompt, and the intent that a person reads in it."""

    kind: str
    metric: str = ""
    wishes: tuple[str, ...] = field(default=())
    earlier: str | None = None


def search(metric: str, *wishes: str, earlier: str | None = None) -> Means:
    return Means("search", metric, wishes, earlier)


EXPLAIN, UNKNOWN, IMPOSSIBLE, UNDO, ACCEPT = (Means(kind) for kind in ("explain", "unknown", "impossible", "undo", "accept"))  # fmt: skip
FASTER = "make it faster"

PROMPTS: dict[str, Means] = {
    # Plain requests, and with typing mistakes.
    "make it faster": search("time"),
    "Could you please speed this up a bit?": search("time"),
    "make it fsater": search("time"),
    "can u optimze teh kernel": search("time"),
    "reduce memroy usage": search("shared_bytes"),
    "it uses too many registers": search("registers"),
    "fewer regsters plz": search("registers"),
    "get rid of the spills": search("local_bytes"),
    "rase occupency": search("occupancy"),
    "I need better precision": search("accuracy"),
    "less dram trafic": search("global_bytes"),
    "fix the race": search("correct"),
    "fix it": search("correct"),
    "it crashes, please repair it": search("correct"),
    "it doesn't compile": search("correct"),
    "it hangs for large n": search("correct"),
    "I want it to run in under 10 us": search("time"),
    "beat cublas": search("time"),
    "use Kahan summation": search("accuracy"),
    "use double accumulators": search("accuracy"),
    # A description of what is wrong asks for a repair.
    "results dont match the reference": search("correct"),
    "the last row is wrong": search("correct"),
    "it only works if cols is a multiple of 32": search("correct"),
    "works for n=1024 but not for n=1000": search("correct", "n = 1024", "n = 1000"),
    "make it handle odd sizes": search("correct"),
    "add bounds checks": search("correct"),
    "does not compile": search("correct"),
    # Questions and requests to look.
    "show me the occupancy": EXPLAIN,
    "print the register count": EXPLAIN,
    "check for races": EXPLAIN,
    "measure the time": EXPLAIN,
    "benchmark it": EXPLAIN,
    "compare registers and occupancy": EXPLAIN,
    "should I use shared memory here": EXPLAIN,
    "does float4 make sense": EXPLAIN,
    "which line is the slowest": EXPLAIN,
    "so many registers, why": EXPLAIN,
    "bank conflicts?": EXPLAIN,
    "memory usage?": EXPLAIN,
    "fewer registers?": search("registers"),
    "show me a version with fewer registers": search("registers"),
    "tell me how": EXPLAIN,
    "run the benchmark again": EXPLAIN,
    "what about making it faster": search("time"),
    "fewer registers but performance shouldn't drop": search("registers", "not slower"),
    "less shared memory, the runtime must not increase": search("shared_bytes", "not slower"),
    "why is it slow?": EXPLAIN,
    "why is it so slow": EXPLAIN,
    "what limits this kernel?": EXPLAIN,
    "whats the bottleneck": EXPLAIN,
    "how can I make this faster?": EXPLAIN,
    "how many registers does it use?": EXPLAIN,
    "is it memory bound?": EXPLAIN,
    "is this memory bound or compute bound": EXPLAIN,
    "explain": EXPLAIN,
    "explain the bank conflicts": EXPLAIN,
    "show me where the time goes": EXPLAIN,
    "tell me why occupancy is low": EXPLAIN,
    "profile it": EXPLAIN,
    "does it have bank conflicts?": EXPLAIN,
    "what would happen with 512 threads?": EXPLAIN,
    # Structure.
    "use float4 loads": search("time", "wide loads and stores"),
    "one warp per row": search("time", "one warp per row"),
    "tile it through shared memory": search("time", "tiles in shared memory"),
    "fuse the loops": search("time", "fused loops"),
    "use warp shuffles instead of shared memory": search("time", "shuffles within a warp", "no shared memory"),
    "unroll the inner loop": search("time", "unrolled loops"),
    "use tensor cores": search("time", "tensor cores"),
    "unroll less": search("time", "without unrolled loops"),
    "fewer shuffles": search("time", "without shuffles within a warp"),
    "replace the division by a multiplication": search("time", "reciprocals instead of divisions"),
    "use int32 indices": search("time", "32-bit indices"),
    "get rid of the needless barriers": search("time", "fewer barriers"),
    "use welford": search("time", "moments by Welford"),
    "increase the grid": search("time", "work on more blocks"),
    "keep accuracy and cut registers": search("registers", "not at the cost of largest error (in tolerances)"),
    "keep the accuracy, make it faster": search("time", "not at the cost of largest error (in tolerances)"),
    "maintain numerical accuracy, fewer registers": search(
        "registers", "not at the cost of largest error (in tolerances)"
    ),
    "keep the time the same but use less shared memory": search("shared_bytes", "not slower"),
    "without losing precision": search("time", "not at the cost of largest error (in tolerances)"),
    "don't sacrifice accuracy": search("time", "not at the cost of largest error (in tolerances)"),
    "keep time low": search("time"),
    "keep accuracy and occupancy, speed it up": search(
        "time", "not at the cost of largest error (in tolerances)", "not at the cost of occupancy"
    ),
    "the result is wrong for odd n": search("correct"),
    "it returns nan for large inputs": search("correct"),
    "occupancy at least 50% and keep accuracy": search(
        "occupancy", "at least 50% occupancy", "not at the cost of largest error (in tolerances)"
    ),
    "rewrite it in triton": IMPOSSIBLE,
    "use cublas": IMPOSSIBLE,
    "split it over two gpus": IMPOSSIBLE,
    "port it to AMD": IMPOSSIBLE,
    "write the backward pass": IMPOSSIBLE,
    # Constraints, alone and together.
    "faster, at most 32 registers": search("time", "at most 32 registers"),
    "speed it up without atomics and keep it deterministic": search("time", "no atomics", "the same bits in every run"),
    "less shared memory but not slower": search("shared_bytes", "not slower"),
    "dont touch the grid": search("time", "the launch unchanged"),
    "replace the atomics with a reduction": search("time", "no atomics"),
    "occupancy is 25%": search("occupancy"),
    "make sure occupancy is 50%": search("occupancy", "at least 50% occupancy"),
    "x is aligned to 16 bytes": UNKNOWN,
    "no atomics please": search("time", "no atomics"),
    "as fast as possible at rows = 8": search("time", "rows = 8"),
    "faster with at most 16 KB of shared memory, no tensor cores": search(
        "time", "at most 16384 bytes of shared memory", "without tensor cores"
    ),
    "make it faster, an error of 0.1% is fine": search("time", "an error of 0.001 is fine"),
    "keep register use below 40 while maximising throughput": search("time", "at most 39 registers"),
    "less than 24 registers and no spills": search("local_bytes", "at most 23 registers"),
    "halve the shared memory but dont get slower": search("shared_bytes", "not slower"),
    "lower precision is ok, make it fast": search("time"),
    "do not change the block size, just make it faster": search("time"),
    "don't change the results, only make it quikcer": search("time"),
    "i want occupany above 0.75": search("occupancy"),
    "use fewr regsiters": search("registers"),
    "can you vectorize this?": search("time", "wide loads and stores"),
    "faster on A100": search("time"),
    "it is too slow": search("time"),
    "make it deterministic": search("time", "the same bits in every run"),
    "less global traffic, not slower": search("global_bytes", "not slower"),
    # Nonsense, and what no search is for.
    "asdf qwerty": UNKNOWN,
    "": UNKNOWN,
    "???": UNKNOWN,
    "hello": UNKNOWN,
    "make it nice": UNKNOWN,
    "order me a pizza": UNKNOWN,
    "thanks, that is great": UNKNOWN,
    "banana": UNKNOWN,
    "something else": UNKNOWN,
    "continue": UNKNOWN,
    "use fp16 accumulators": UNKNOWN,
    "use 64-bit indexing": UNKNOWN,
    "put the weights in constant memory": UNKNOWN,
    "reduce compile time": UNKNOWN,
    "dont make it faster": UNKNOWN,
    "do not touch the kernel": UNKNOWN,
    "2x": UNKNOWN,
    "rename x to input": UNKNOWN,
    "now the other way round": UNKNOWN,
    "make it slower": IMPOSSIBLE,
    "translate to triton": IMPOSSIBLE,
    "fits in L2?": EXPLAIN,
    "why did you reject candidate 2": EXPLAIN,
    "how come it's only at 30% of bandwidth": EXPLAIN,
    "what does this kernel do?": EXPLAIN,
    "should I use float4?": EXPLAIN,
    "would tensor cores help?": EXPLAIN,
    "would you make it faster?": search("time"),
    "i dont care about accuracy": UNKNOWN,
    "memory does not matter, make it fast": search("time"),
    "without changing the signature make it faster": search("time"),
    "again": UNKNOWN,
    # As people write: without apostrophes, with typographic ones, abbreviated.
    "don’t change the block size, make it faster": search("time", "the block size unchanged"),
    "what’s the bottleneck": EXPLAIN,
    "wheres the time going": EXPLAIN,
    "where's the race": EXPLAIN,
    "hows the occupancy": EXPLAIN,
    "faster w/o shared mem": search("time", "no shared memory"),
    "less registers w/o hurting occupancy": search("registers", "not at the cost of occupancy"),
    "this thing crawls, do something about it": search("time"),
    "squeeze out the last few percent": search("time"),
    "squeeze the registers": search("registers"),
    "boost occupancy": search("occupancy"),
    "takes forever": search("time"),
    "kernel is sluggish on small inputs": search("time"),
    "the threads in a warp diverge a lot, fix that": search("time"),
    "reduce warp divergence": search("time"),
    "the results diverge from the reference": search("correct"),
    "there's a __syncthreads missing": search("correct"),
    "you forgot a barrier": search("correct"),
    "it reads past the end of x": search("correct"),
    "it writes beyond the end of the array for odd n": search("correct"),
    "sometimes the sum is off by one": search("correct"),
    "thats wrong, it gives 0 for n=1": search("correct", "n = 1"),
    "let each thread handle 4 elements": search("time", "several elements per thread"),
    "process more than one element per thread": search("time", "several elements per thread"),
    "avoid the modulo": search("time", "reciprocals instead of divisions"),
    "is it safe for n = 0?": EXPLAIN,
    "lorem ipsum dolor": UNKNOWN,
    "rm -rf /": UNKNOWN,
    # Steps with what was found.
    "use number 3 instead": ACCEPT,
    "accept the fastest one": ACCEPT,
    "let's go with 2": ACCEPT,
    "go with the first one then": ACCEPT,
    "put candidate 1 into the file": ACCEPT,
    "go back to my version": UNDO,
    "back to the original please": UNDO,
    "restore my code": UNDO,
    "undo": UNDO,
    "revert that": UNDO,
    "take it": ACCEPT,
    "accept 2": ACCEPT,
    "take the second one": ACCEPT,
    # Follow-ups.
    "but keep it deterministic": search("time", "the same bits in every run", earlier=FASTER),
    "again, without atomics": search("time", "no atomics", earlier=FASTER),
    "again ": search("time", "at most 32 registers", earlier="faster, at most 32 registers"),
    "another one": search("time", earlier=FASTER),
    "please try something else": search("time", "at most 32 registers", earlier="faster, at most 32 registers"),
    "one more time": search("time", earlier=FASTER),
    "keep going": search("time", earlier=FASTER),
    "now with 256 threads": search("time", "256 threads per block", earlier=FASTER),
    "also at most 40 registers": search("time", "at most 40 registers", earlier="faster, at most 32 registers"),
    "and not slower": search("registers", "not slower", earlier="fewer registers"),
    "without shared memory": search("time", "no shared memory", earlier=FASTER),
    "again, but less shared memory this time": search("shared_bytes", "no atomics", earlier="faster without atomics"),
    "why?": Means("explain", earlier=FASTER),
    "why was #2 rejected": Means("explain", earlier=FASTER),
    "difference between 1 and 3": Means("explain", earlier=FASTER),
    "even faster": search("time", earlier=FASTER),
    "that is not good enough, make it faster": search("time", earlier=FASTER),
    "nah, the second one is better": Means("unknown", earlier=FASTER),
    "#3 is slower than #1": Means("unknown", earlier=FASTER),
    "number 2 is good but reduce the registers": search("registers", earlier=FASTER),
    "much better, thanks!": Means("unknown", earlier=FASTER),
    "that's faster": Means("unknown", earlier=FASTER),
    "i like number 2": Means("unknown", earlier=FASTER),
    "yes please": Means("unknown", earlier=FASTER),
    "no more": Means("unknown", earlier=FASTER),
    "and shared memory?": Means("explain", earlier=FASTER),
    "and check the occupancy": Means("explain", earlier=FASTER),
    "not with shuffles": search("time", "without shuffles within a warp", earlier=FASTER),
    "but it must still work for odd n": Means("unknown", earlier=FASTER),
    "drop the register limit": search("time", "no atomics", earlier="faster, at most 32 registers, no atomics"),
    "forget all limits": search("time", earlier="faster, at most 32 registers, no atomics"),
    "atomics are fine now": search("time", "at most 32 registers", earlier="faster, at most 32 registers, no atomics"),
    "ok you can change the block size": search("time", earlier="faster, keep the block size"),
    "it need not be deterministic": search("time", earlier="faster, deterministic"),
    "40 registers are fine": search("time", "at most 40 registers", earlier="faster, at most 32 registers"),
    "drop the limit on shared memory": Means("unknown", earlier=FASTER),
    "without bounds checks": Means("unknown", earlier="faster, no atomics"),
}


def taken(prompt: str, means: Means) -> Intent:
    return read_intent(prompt, earlier=None if means.earlier is None else read_objective(means.earlier))


def as_meant(prompt: str, means: Means) -> bool:
    intent = taken(prompt, means)
    if intent.kind != means.kind:
        return False
    if means.kind != "search":
        return intent.objective is None
    assert intent.objective is not None
    return intent.objective.metric == means.metric and set(means.wishes) == set(modifier_prompts(intent.objective))


UNHEARD = {
    "do not change the loop, just make it faster": "'do not change the loop'",
    "faster at under 50% occupancy": "'under 50% occupancy'",
    "lower precision is ok, make it fast": "no size, so the kernel's tolerance holds",
}
"""Prompts with a part that no search holds to, and the words that say so."""


@pytest.mark.parametrize(("prompt", "said"), UNHEARD.items())
def test_a_part_that_no_search_holds_to_is_named(prompt: str, said: str) -> None:
    intent = read_intent(prompt)
    assert said in intent.reading
    assert intent.objective is not None
    assert intent.objective.limits == {}


def test_a_metric_that_does_not_matter_is_no_limit() -> None:
    for prompt in ("memory does not matter, make it fast", "I don't care about the accuracy, just make it fast"):
        objective = read_intent(prompt).objective
        assert objective is not None
        assert (objective.metric, objective.limits) == ("time", {})


def test_sixty_prompts_are_taken_as_a_person_means_them() -> None:
    assert len(PROMPTS) >= 60
    otherwise = {prompt: taken(prompt, means) for prompt, means in PROMPTS.items() if not as_meant(prompt, means)}
    assert len(PROMPTS) - len(otherwise) >= 0.92 * len(PROMPTS), otherwise
    # Where a person's meaning is missed, at least no search begins that was not asked for.
    assert [prompt for prompt, intent in otherwise.items() if intent.kind == "search" and PROMPTS[prompt].kind != "search"] == []  # fmt: skip


@pytest.mark.parametrize("prompt", [prompt for prompt, means in PROMPTS.items() if means.kind != "search"])
def test_no_search_begins_that_was_not_asked_for(prompt: str) -> None:
    assert taken(prompt, PROMPTS[prompt]).kind == PROMPTS[prompt].kind


@pytest.mark.parametrize("prompt", SUGGESTED)
def test_what_is_suggested_is_understood(prompt: str) -> None:
    assert read_intent(prompt).kind == "search"


def test_a_follow_up_is_joined_to_the_earlier_prompt_and_later_words_win() -> None:
    earlier = read_objective("faster, at most 32 registers, without atomics")
    intent = read_intent("but at most 40 registers", earlier=earlier)
    assert intent.prompt == "make it faster, no atomics, at most 40 registers"
    alone = read_intent("fewer registers", earlier=earlier)
    assert alone.prompt == "fewer registers", "a request of its own"


def test_a_part_of_a_prompt_can_be_left_out() -> None:
    objective = read_objective("faster, at most 32 registers, without atomics")
    assert restated(objective, without="no atomics") == "make it faster, at most 32 registers"


def test_an_accepted_candidate_is_named_by_its_number() -> None:
    assert read_intent("accept 2").number == 2
    assert read_intent("take the second one").number == 2
    assert read_intent("take it").number is None


def test_reasons_name_what_is_not_possible() -> None:
    assert "(triton)" in read_intent("rewrite it in Triton").reading
    assert "(amd)" in read_intent("port it to AMD").reading


@pytest.mark.parametrize("word", ["still", "spend", "share", "skill", "throughout", *sorted(FILLERS)])
def test_a_correct_word_is_not_read_as_another(word: str) -> None:
    assert fold(word) == word


def test_a_named_metric_is_a_search_whatever_the_words() -> None:
    assert read_intent("why is it slow?", name="time").kind == "search"


def same(one: Objective, other: Objective) -> bool:
    def parts(objective: Objective) -> tuple[object, ...]:
        held = (objective.constraints, objective.preferences, objective.limits, objective.sizes)
        return (objective.metric, objective.keep, objective.tolerance, *held)

    return parts(one) == parts(other)


@pytest.mark.parametrize("means", [means for means in PROMPTS.values() if means.kind == "search"])
def test_what_is_restated_reads_as_the_same(means: Means) -> None:
    prompt = next(prompt for prompt, other in PROMPTS.items() if other is means)
    objective = taken(prompt, means).objective
    assert objective is not None
    assert same(read_objective(restated(objective)), objective), restated(objective)


@pytest.mark.parametrize("words", [words for words, _, _ in STRUCTURES])
@pytest.mark.parametrize("avoid", [False, True])
def test_every_structure_can_be_restated(words: str, avoid: bool) -> None:
    if avoid and words in {"input read once", "using atomics"}:
        return  # the one's negation means the same, and the other's is a constraint
    objective = read_objective(f"make it faster, {'without ' if avoid else ''}{words}")
    assert [(one.words, one.avoid) for one in objective.preferences] == [(words, avoid)]


@given(st.text(max_size=60))
def test_any_text_has_an_intent(text: str) -> None:
    intent = read_intent(text, earlier=read_objective(FASTER))
    assert (intent.kind == "search") == (intent.objective is not None)


def test_each_part_of_a_prompt_is_a_chip_that_leaves_it_out_and_no_search_has_the_five() -> None:
    chips = chips_of(read_intent("make it faster, at most 32 registers, no atomics"))
    assert [words for words, _ in chips] == ["at most 32 registers ×", "no atomics ×"]
    for words, prompt in chips:
        left = read_intent(prompt).objective
        assert left is not None
        assert words.removesuffix(" ×") not in modifier_prompts(left)
        assert len(modifier_prompts(left)) == 1
    assert chips_of(read_intent("make it faster")) == []
    assert chips_of(read_intent("no atomics")) == [], "nothing would be left to ask for"
    assert chips_of(read_intent("why is it slow?")) == []
    assert [prompt for _, prompt in chips_of(read_intent("xyzzy"))] == list(SUGGESTED)
    assert all(read_intent(prompt).kind == "search" for prompt in SUGGESTED)
