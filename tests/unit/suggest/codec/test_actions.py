from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmate.suggest.codec import codec_named
from kernelmate.suggest.codec.applicable import candidates
from kernelmate.suggest.codec.base import CodecVersion, NotEncodable, Question, UndecodableAnswer
from tests.unit.suggest.codec.conftest import ROOT, VERDICT, kernels_of, question_of, recipe_versions

ACTIONS = codec_named("actions-1")
KERNEL, CONTRACT = next(kernels_of(ROOT / "examples" / "layernorm.cu"))
QUESTION = question_of(KERNEL, CONTRACT, verdict=VERDICT)


def test_what_a_recipe_makes_is_told_by_its_name_and_comes_back_byte_for_byte() -> None:
    told = set()
    for name, after in recipe_versions(KERNEL, CONTRACT):
        answer = ACTIONS.answer(QUESTION, after, (f"recipe:{name}",))
        assert ACTIONS.ask(QUESTION).read(answer + ACTIONS.end).version == after
        told.add(name)
    assert len(told) > 3


def test_steps_one_after_another_are_told_by_an_authors_names() -> None:
    asked = ACTIONS.ask(QUESTION)
    first = asked.read("@use-restrict-pointers:@0:@use-unroll:@1:")
    assert first.version is not None
    assert "__restrict__" in first.version.text
    assert "#pragma unroll" in first.version.text
    again = ACTIONS.answer(QUESTION, first.version, ["recipe:restrict-pointers+unroll"])
    assert again.endswith("@use-restrict-pointers:@0:@use-unroll:@1:")


def test_without_a_name_a_repair_is_found_by_trying_and_nothing_else_is() -> None:
    broken = replace(
        QUESTION,
        text=QUESTION.text.replace("const float mean", "const float maen", 1),
        task="debug",
        metric="correct",
        broken='compile-error: line 36: identifier "mean" is undefined',
    )
    assert broken.text != QUESTION.text
    name, after = next((name, found[0]) for name, found in candidates(broken))
    version = CodecVersion(after.kernel.unit.text, QUESTION.launch)
    assert ACTIONS.answer(broken, version) == f"@use-{name}:@0:"
    _, better = next(iter(recipe_versions(KERNEL, CONTRACT)))
    with pytest.raises(NotEncodable, match="No recipe"):
        ACTIONS.answer(QUESTION, better)


def test_what_no_recipe_makes_is_untellable() -> None:
    with pytest.raises(NotEncodable, match="No recipe"):
        ACTIONS.answer(QUESTION, CodecVersion(QUESTION.text.replace("0.0f", "0.5f"), QUESTION.launch))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("@use-unroll:@99:", "no variant 99"),
        ("@use-magic:@0:", "where a recipe should be named"),
        ("", "names no recipe"),
        ("@use-unroll:@0:" * 5, "has no variant|more than 4 steps"),
    ],
)
def test_an_unreadable_answer_says_why(answer: str, says: str) -> None:
    with pytest.raises(UndecodableAnswer, match=says):
        ACTIONS.ask(QUESTION).read(answer)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.sampled_from(("@use-unroll:", "@use-divide:", "@0:", "@1:", "@why-double:", "@end", "x", " ")), max_size=6
    )
)
def test_a_garbled_answer_is_unreadable_and_nothing_worse(parts: list[str]) -> None:
    try:
        assert ACTIONS.ask(QUESTION).read("".join(parts)).version is not None
    except UndecodableAnswer:
        return


def test_prompts_are_those_of_lines(softmax: Question) -> None:
    assert ACTIONS.ask(softmax).prompt == codec_named("lines-1").ask(softmax).prompt
    assert set(codec_named("lines-1").vocabulary()) < set(ACTIONS.vocabulary())
    assert ACTIONS.ask(replace(softmax, task="analyse")).read("@why-double:").version is None
