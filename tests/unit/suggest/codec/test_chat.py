from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from kernelmate.compiler.targets import find_target
from kernelmate.records import Verdict
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.codec import codec_named
from kernelmate.suggest.codec.base import CodecVersion, NotEncodable, Question, TriedVersion, UndecodableAnswer
from kernelmate.suggest.codec.requests import question_of
from kernelmate.suggest.local.author import fitted
from kernelmate.suggest.prompts import RULES, kernel_part, questions, versions_part
from tests.unit.suggest.codec.conftest import ROOT, VERDICT, kernels_of, recipe_versions, words_of
from tests.unit.suggest.codec.conftest import question_of as asked_about

CHAT = codec_named("chat-1")


def test_a_model_is_trained_on_the_very_prompt_that_a_search_asks_it_by(ask: Callable[..., SuggestRequest]) -> None:
    source = (ROOT / "examples" / "softmax.cu").read_text()
    request = replace(ask(source, "reduce memory usage"), target=find_target("H100 SXM"))
    user, _ = fitted(kernel_part(request), [versions_part((), request)], questions(request), None)
    messages = CHAT.ask(question_of(request)).messages
    assert messages[0] == ("system", RULES)
    assert messages[1][1].split() == user.split()


@pytest.mark.parametrize("name", ["softmax", "layernorm", "transpose", "histogram"])
def test_what_a_recipe_makes_comes_back_from_the_proposal_of_it(name: str) -> None:
    kernel, contract = next(kernels_of(ROOT / "examples" / f"{name}.cu"))
    question = replace(asked_about(kernel, contract), prompt="make it faster", verdict=VERDICT)
    asked = CHAT.ask(question)
    told = 0
    for recipe, after in recipe_versions(kernel, contract):
        try:
            answer = CHAT.answer(question, after, ["Slow.", recipe])
        except NotEncodable:
            continue
        got = asked.read(answer + CHAT.end)
        assert got.version is not None
        assert got.version.launch == after.launch
        assert sorted(words_of(got.version.text)) == sorted(words_of(after.text))
        assert got.analysis == ("Slow.", recipe)
        told += 1
    assert told > 2


def test_the_prompt_is_chatml(softmax: Question) -> None:
    prompt = CHAT.ask(replace(softmax, prompt="make it faster", verdict=VERDICT)).prompt
    assert prompt.startswith("<|im_start|>system\nYou improve CUDA kernels.")
    assert prompt.endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert CHAT.vocabulary() == ("<|im_end|>", "<|im_start|>")


def test_earlier_versions_and_what_was_said_stand_in_the_prompt(softmax: Question) -> None:
    tried = TriedVersion(
        CodecVersion(softmax.text.replace("0.0f", "1.0f"), softmax.launch), False, None, ("wrong-values",)
    )
    prompt = CHAT.ask(
        replace(softmax, tried=(tried,), broken="wrong-values: y[0] is 1", task="debug", metric="correct")
    ).prompt
    assert "Version 1, by an earlier search: rejected." in prompt
    assert "- wrong-values" in prompt
    assert "It was said of it: wrong-values: y[0] is 1" in prompt


def test_an_analysis_is_a_review(softmax: Question) -> None:
    question = replace(softmax, task="analyse")
    answer = CHAT.answer(question, None, ["It waits.", "Wait less."])
    assert json.loads(answer)["optimizations"] == [{"what": "Wait less.", "why": ""}]
    assert CHAT.ask(question).read(answer).analysis == ("It waits.", "Wait less.")


@pytest.mark.parametrize("text", ["", "{}", "nonsense", '{"analysis": "", "changes": [], "kernel": "int x;"}', '{"analysis": "", "changes": [], "kernel": "__global__ void softmax() { fopen(); }", "block": ["x"]}'])  # fmt: skip
def test_what_is_no_proposal_is_unreadable(softmax: Question, text: str) -> None:
    with pytest.raises(UndecodableAnswer):
        CHAT.ask(softmax).read(text)


def test_a_kernel_that_is_not_there_is_untellable(softmax: Question) -> None:
    with pytest.raises(NotEncodable, match="not in the text"):
        CHAT.ask(replace(softmax, kernel="other"))


def test_a_verdict_is_optional(softmax: Question) -> None:
    assert isinstance(CHAT.ask(softmax).request.verdict, Verdict)  # type: ignore[attr-defined]
