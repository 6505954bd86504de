"""Variation: each draw tells the same example otherwise, and what is right of it stays right."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tokenizers", reason="training needs the extra `train`")

from kernelmate.source import contract_for, find_kernels, text_unit
from kernelmate.suggest.codec import codec_named
from kernelmate.suggest.codec.base import CodecVersion, Question, UndecodableAnswer
from kernelmate.suggest.codec.requests import launch_of
from kernelmate_training.augmentation import Augmentation, AugmentationRates
from kernelmate_training.encoded import Encoded, encode
from kernelmate_training.exam.goals import KERNELS
from kernelmate_training.examples import TASKS, format_examples, question_of, version_of
from kernelmate_training.settings import ModelSection
from kernelmate_training.vocabulary import train_tokenizer

PAIRS = Path(__file__).resolve().parents[2] / "data" / "upskill" / "pairs.jsonl"
LINES = PAIRS.read_text().splitlines()
CODEC = codec_named("mixed-2")
EXAMPLES = format_examples(LINES, "mixed-2", processes=1).examples
TOKENIZER = train_tokenizer((text for one in EXAMPLES for text in (one.prompt, one.answer)), CODEC.vocabulary(), CODEC.end, 2048)  # fmt: skip
DATA: Encoded = encode(EXAMPLES, TOKENIZER, 4096)[0]
SEEDS, NUMBERS = st.integers(0, 2**32), st.integers(0, len(DATA) - 1)


def drawn(number: int, seed: int, **how: float) -> tuple[str, str]:
    """Prompt and answer of an example in one draw."""
    tokens = DATA.tokens[DATA.starts[number] : DATA.starts[number + 1]]
    varying = Augmentation(AugmentationRates.of(how), TOKENIZER.to_str())
    made, cut = varying.draw(tokens, int(DATA.answers[number]), TASKS[DATA.tasks[number]], np.random.default_rng(seed))
    assert len(made) <= len(tokens)
    assert made.dtype == tokens.dtype
    return text(made[:cut]), text(made[cut:])


def text(ids: Any) -> str:
    return str(TOKENIZER.decode(list(map(int, ids)), skip_special_tokens=False))


def question(number: int, seed: int | None = None) -> Any:
    return question_of(json.loads(LINES[number]), seed)


@settings(max_examples=40, deadline=None)
@given(NUMBERS, SEEDS)
def test_renumbered_names_are_those_of_another_numbering_of_the_same_question(number: int, seed: int) -> None:
    prompt, answer = drawn(number, seed, names=1.0)
    marks = re.compile(r"@[vk]\d+")
    before = EXAMPLES[number].prompt + EXAMPLES[number].answer
    order = [dict.fromkeys(marks.findall(one)) for one in (before, prompt + answer)]
    assert len(order[0]) == len(order[1])
    back = dict(zip(order[1], order[0], strict=True))
    assert marks.sub(lambda mark: back[mark[0]], prompt + answer) == before


@settings(max_examples=40, deadline=None)
@given(NUMBERS, SEEDS)
def test_line_numbers_are_all_moved_by_the_same(number: int, seed: int) -> None:
    prompt, answer = drawn(number, seed, numbers=1.0)
    lines = re.compile(r"@(\d+):")
    before = EXAMPLES[number].prompt + EXAMPLES[number].answer
    moved = {int(new) - int(old) for old, new in zip(lines.findall(before), lines.findall(prompt + answer), strict=True)}  # fmt: skip
    assert len(moved) == 1
    assert min(moved) >= 0
    assert lines.sub("", prompt + answer) == lines.sub("", before)


@settings(max_examples=40, deadline=None)
@given(NUMBERS, SEEDS)
def test_facts_are_left_out_and_the_code_and_the_answer_stay(number: int, seed: int) -> None:
    prompt, answer = drawn(number, seed, facts=0.5)
    before = EXAMPLES[number]
    assert answer == before.answer
    assert prompt.partition("@code")[2] == before.prompt.partition("@code")[2]
    head, old = (one.partition("@code")[0] for one in (prompt, before.prompt))
    assert head.split("@")[:4] == old.split("@")[:4]
    assert set(re.findall(r"@(?!do-|wants)[^@]+", head)) <= set(re.findall(r"@[^@]+", old))
    assert sorted(re.findall(r"@arg[^@]*(?:@(?:in|out|inout)-)?[^@]*", head)) == sorted(re.findall(r"@arg[^@]*(?:@(?:in|out|inout)-)?[^@]*", old))  # fmt: skip
    asked = re.findall(r"@wants(@do-[a-z-]+:)", head)
    assert all(means in answer for means in asked)


def test_functions_are_exchanged_alike_before_and_after() -> None:
    changed = 0
    for number, example in enumerate(EXAMPLES):
        for seed in range(6):
            prompt, answer = drawn(number, seed, words=1.0)
            if (prompt, answer) == (example.prompt, example.answer):
                continue
            changed += 1
            kept = re.compile(r"\w*(?:exp|sin|cos|log|tanh|sqrt|fabs|atan|erf|log1p|sinh|cbrt)f?\b|\d+\.\d+")
            assert kept.sub("?", prompt + answer) == kept.sub("?", example.prompt + example.answer)
            pairs = set(zip(kept.findall(example.prompt + example.answer), kept.findall(prompt + answer), strict=True))
            assert len({old for old, _ in pairs}) == len(pairs)
    assert changed > 5


def test_an_answer_to_a_varied_prompt_still_mends_what_is_broken() -> None:
    """Only what the answer leaves alone differs, so the lines that it brings are the same."""
    for number, example in enumerate(EXAMPLES):
        if example.task == "debug":
            for seed in range(6):
                _, answer = drawn(number, seed, words=1.0, lines=1.0)
                assert answer == example.answer


def test_operators_change_in_lines_that_the_answer_leaves_alone() -> None:
    changed = 0
    for number, example in enumerate(EXAMPLES):
        touched = {line for places in re.findall(r"@(?:rep|del)((?:@\d+:){1,2})", example.answer) for first, last in [re.findall(r"\d+", places * 2)[::2][:1] + re.findall(r"\d+", places)[-1:]] for line in range(int(first), int(last) + 1)}  # fmt: skip
        for seed in range(6):
            prompt, answer = drawn(number, seed, lines=1.0)
            assert answer == example.answer
            old, new = (re.findall(r"@(\d+):((?:(?!@\d+:|@\||@answer).)*)", one.partition("@code")[2]) for one in (example.prompt, prompt))  # fmt: skip
            for one, other in zip(old, new, strict=True):
                if one != other:
                    changed += 1
                    assert int(one[0]) not in touched
                    assert sum(a != b for a, b in zip(one[1], other[1], strict=True)) == 1
                    assert example.task == "generate"
    assert changed > 0


@settings(max_examples=40, deadline=None)
@given(NUMBERS, SEEDS)
def test_offers_that_the_answer_does_not_take_are_left_out_and_the_others_keep_their_order(
    number: int, seed: int
) -> None:
    prompt, answer = drawn(number, seed, offers=0.5)
    before = EXAMPLES[number]
    assert answer == before.answer
    step = re.compile(r"@use-[a-z0-9-]+:(?:@#\d+)?")
    (head, _, section), (old_head, _, old) = ((one + "@offers").partition("@offers") for one in (prompt, before.prompt))
    assert head.removesuffix("@answer") == old_head.removesuffix("@answer")
    left, offers = step.findall(section), step.findall(old)
    assert left == [one for one in offers if one in left]
    taken = re.findall(r"@use-[a-z0-9-]+:", answer)
    assert all(one in left for one in offers if one.partition("@#")[0] in taken)
    assert ("@offers" in prompt) == bool(left)


def test_offers_are_left_out_at_all_and_with_their_numbers() -> None:
    whole = [drawn(number, 1, offers=1.0)[0] for number in range(len(DATA))]
    assert any("@offers" in one.prompt for one in EXAMPLES)
    assert not any(
        "@offers" in prompt for prompt, one in zip(whole, EXAMPLES, strict=True) if "@use-" not in one.answer
    )
    assert not any("@#" in prompt for prompt, one in zip(whole, EXAMPLES, strict=True) if "@use-" not in one.answer)


@settings(max_examples=30, deadline=None)
@given(NUMBERS, SEEDS)
def test_a_draw_depends_on_its_generator_alone(number: int, seed: int) -> None:
    how = {"names": 0.8, "numbers": 0.5, "facts": 0.2, "words": 0.5, "lines": 0.5, "offers": 0.4}
    assert drawn(number, seed, **how) == drawn(number, seed, **how)
    assert drawn(number, seed) == (EXAMPLES[number].prompt, EXAMPLES[number].answer)


def test_renumbered_answers_are_read_by_the_question_that_was_numbered_so() -> None:
    for number in range(len(LINES)):
        after: CodecVersion = version_of(json.loads(LINES[number])["after"])
        asked = CODEC.ask(question(number))
        _, answer = drawn(number, 3, names=1.0)
        back = {new: old for old, new in zip(re.findall(r"@[vk]\d+", EXAMPLES[number].answer), re.findall(r"@[vk]\d+", answer), strict=True)}  # fmt: skip
        try:
            got = asked.read(re.sub(r"@[vk]\d+", lambda mark, back=back: back[mark[0]], answer)).version
        except UndecodableAnswer as error:
            pytest.fail(str(error))
        assert got is not None
        assert got.launch == after.launch


@pytest.mark.parametrize("name", ["mixed-2", "mixed-2-plain"])
def test_every_codec_of_small_models_can_be_varied(name: str) -> None:
    codec = codec_named(name)
    examples = format_examples(LINES, name, processes=1).examples
    tokenizer = train_tokenizer((part for one in EXAMPLES for part in (one.prompt, one.answer)), codec.vocabulary(), codec.end, 2048)  # fmt: skip
    data = encode(examples, tokenizer, 4096)[0]
    varying = Augmentation(AugmentationRates(1.0, 1.0, 1.0, 1.0, 1.0, 1.0), tokenizer.to_str())
    for number in range(len(data)):
        tokens = data.tokens[data.starts[number] : data.starts[number + 1]]
        made, cut = varying.draw(tokens, int(data.answers[number]), TASKS[data.tasks[number]], np.random.default_rng(1))
        assert made.max() < tokenizer.get_vocab_size()
        assert tokenizer.id_to_token(int(made[cut - 1])) == "@answer"
        assert made[-1] == 0


def test_examples_and_the_exams_kernels_fit_the_length_that_models_are_trained_with() -> None:
    assert max(DATA.lengths) < ModelSection(name="any").context
    for path in sorted(KERNELS.glob("*.cu")):
        kernel = find_kernels(text_unit(path.read_text(encoding="utf-8")))[0]
        contract = contract_for(kernel)
        asked = Question(kernel.unit.text, kernel.name, launch_of(contract), contract=contract)
        ids = TOKENIZER.encode(CODEC.ask(asked).prompt, add_special_tokens=False).ids
        assert len(ids) < ModelSection(name="any").context / 2


@pytest.mark.parametrize(("how", "said"), [({"name": 1.0}, "no 'name'"), ({"names": 2.0}, "between 0 and 1")])
def test_a_configuration_says_what_there_is(how: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        AugmentationRates.of(how)


def chosen(number: int) -> tuple[str, Any, int]:
    """An example's prompt, and its tokens with the number of the prompt's, where the answer takes the first that is offered."""
    prompt = EXAMPLES[number].prompt
    first = prompt.partition("@offers")[2].partition(":")[0]
    ids = [TOKENIZER.encode(part, add_special_tokens=False).ids for part in (prompt, f"{first}:{CODEC.end}")]
    return prompt, np.array([*ids[0], *ids[1]], dtype=DATA.tokens.dtype), len(ids[0])


def test_lines_of_code_are_left_out_where_the_answer_is_a_choice_and_nothing_else_is() -> None:
    fewer, line = 0, re.compile(r"(?=@\||@\d+:)")
    varying = Augmentation(AugmentationRates(code=1.0), TOKENIZER.to_str())
    for number, example in enumerate(EXAMPLES):
        if "@offers" not in example.prompt:
            continue
        before, tokens, cut = chosen(number)
        for seed in range(4):
            made, left = varying.draw(tokens, cut, example.task, np.random.default_rng(seed))
            prompt = text(made[:left])
            assert made[left:].tolist() == tokens[cut:].tolist()
            (head, _, rest), (old_head, _, old_rest) = (one.partition("@code") for one in (prompt, before))
            code, old = rest.partition("@offers"), old_rest.partition("@offers")
            assert (head, code[2]) == (old_head, old[2])
            lines, every = line.split(code[0]), iter(line.split(old[0]))
            assert all(one in every for one in lines)
            assert example.task == "generate" or prompt == before
            fewer += len(lines) < len(line.split(old[0]))
    assert fewer > 10


def test_lines_of_code_stay_where_the_answer_edits_them() -> None:
    edits = [number for number, one in enumerate(EXAMPLES) if not one.answer.startswith("@use-")]
    assert edits
    for number in edits:
        assert drawn(number, 1, code=1.0) == (EXAMPLES[number].prompt, EXAMPLES[number].answer)
