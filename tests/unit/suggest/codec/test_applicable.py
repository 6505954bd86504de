from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmate.records import Diagnostic, Finding, FindingCode
from kernelmate.source import find_kernels, text_unit
from kernelmate.suggest import recipes, repairs
from kernelmate.suggest.codec.applicable import (
    MOST_VARIANTS,
    REWRITES,
    assumed,
    candidates,
    choice_of,
    fits,
    offered,
    with_steps,
    without_offers,
)
from kernelmate.suggest.codec.base import CodecLaunch, Question
from kernelmate.suggest.codec.requests import finding_of, words_on
from kernelmate.suggest.codec.requests import question_of as question_of_request
from tests.unit.suggest.codec.conftest import FILES, VERDICT, kernels_of, question_of

QUESTIONS = [question_of(kernel, contract) for path in FILES for kernel, contract in kernels_of(path)]
GUARDLESS = """\
__global__ void scale(const float* input, float* output, int count) {
  int index = blockIdx.x * blockDim.x + threadIdx.x;
  output[index] = 2.0f * input[index];
}
"""
MISSPELT = GUARDLESS.replace("2.0f * input[index]", "2.0f * input[indx]")


def broken(text: str, words: str) -> Question:
    return Question(text, "scale", CodecLaunch(("cdiv(count, 256)",), ("256",)), "correct", task="debug", broken=words)


def test_no_two_rewrites_have_one_name() -> None:
    assert len(REWRITES) == len(recipes.ALL) + len(repairs.ALL)


@pytest.mark.parametrize("metric", ["time", "shared_bytes", "registers", "global_bytes", "accuracy"])
def test_what_is_offered_can_be_taken_and_is_for_what_is_asked(metric: str) -> None:
    some = 0
    for question in QUESTIONS[::2]:
        asked = replace(question, metric=metric)
        found = offered(asked)
        assert [name for name, _ in found] == [name for name in REWRITES if name in dict(found)]
        for name, count in found:
            assert metric in REWRITES[name].metrics
            assert 1 <= count <= MOST_VARIANTS
            request, whys = with_steps(assumed(asked), [(name, count - 1)])
            assert whys
            assert (request.kernel.unit.text, request.contract) != (question.text, question.contract)
        some += bool(found)
    assert some


def test_a_request_and_a_question_are_offered_the_same() -> None:
    for question in QUESTIONS[::3]:
        request = assumed(question)
        unassumed = replace(request, compiled=replace(request.compiled, ptx=""))
        assert offered(unassumed) == offered(question)


@pytest.mark.parametrize(
    ("text", "words", "wanted"),
    [
        (MISSPELT, 'compile-error: line 3: identifier "indx" is undefined', "misspelt-name"),
        (
            GUARDLESS,
            "out-of-bounds-write: line 3: writes 4 bytes at byte 4000 of output, which has 4000 bytes",
            "missing-guard",
        ),
    ],
)
def test_repairs_are_offered_for_words_alone(text: str, words: str, wanted: str) -> None:
    found = dict(offered(broken(text, words)))
    assert wanted in found
    assert all(isinstance(REWRITES[name], repairs.Repair) for name in found)
    assert dict(candidates(broken(text, words)))[wanted][0].kernel.unit.text != text


def test_repairs_are_the_same_for_a_verdict_and_for_its_words() -> None:
    error = 'identifier "indx" is undefined'
    refused = replace(
        VERDICT,
        compiled=False,
        diagnostics=(Diagnostic("error", error, None, 3, 29),),
        findings=(Finding(FindingCode.COMPILE_ERROR, "error", error, line=3, column=29),),
    )
    message = "writes 4 bytes at byte 4000 of output, which has 4000 bytes"
    outside = replace(
        VERDICT,
        findings=(Finding(FindingCode.OUT_OF_BOUNDS_WRITE, "error", message, line=3, column=3, buffer="output"),),
    )
    for text, verdict in ((MISSPELT, refused), (GUARDLESS, outside)):
        words = words_on(verdict)
        assert words is not None
        assert offered(replace(broken(text, words), verdict=verdict)) == offered(broken(text, words)) != ()


def test_words_are_read_as_the_finding_that_told_them() -> None:
    finding = Finding(
        FindingCode.OUT_OF_BOUNDS_READ, "error", "reads at byte 8 of x, which has 8 bytes", line=4, buffer="x"
    )
    assert finding_of(words_on(replace(VERDICT, findings=(finding,))) or "") == finding
    without_line = replace(finding, line=None)
    assert finding_of(words_on(replace(VERDICT, findings=(without_line,))) or "") == without_line
    assert finding_of("wrong values at n=3: x[0] is 1, want 2") is not None
    assert finding_of("it is wrong") is None


def test_a_right_kernel_is_offered_no_repair() -> None:
    assert offered(replace(broken(GUARDLESS, ""), broken=None)) == ()


def test_a_search_and_its_question_are_offered_the_same_repairs() -> None:
    kernel = find_kernels(text_unit(MISSPELT, "scale.cu"))[0]
    error = 'identifier "indx" is undefined'
    verdict = replace(
        VERDICT,
        compiled=False,
        diagnostics=(Diagnostic("error", error, "scale.cu", 3, 27),),
        findings=(Finding(FindingCode.COMPILE_ERROR, "error", error, "scale.cu", 3, 27),),
    )
    request = replace(assumed(broken(MISSPELT, f"compile-error: line 3: {error}")), kernel=kernel, verdict=verdict)
    assert offered(question_of_request(request)) == offered(request) != ()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("@use-unroll:", "@why-serial:@use-unroll:", True),
        ("@use-unroll:", "@use-unroll:@use-divide:", True),
        ("@use-unroll:", "@use-unroll:@#1", False),
        ("@do-unroll:@rep@1:@|a;", "@rep@1:@|a;", True),
        ("@rep@1:@|a;", "@rep@1:@|b;", False),
    ],
)
def test_answers_are_known_by_their_program_and_choices_by_their_first_step(one: str, other: str, same: bool) -> None:
    assert (choice_of(one) == choice_of(other)) is same


PROMPT = "@code@1:x;@offers@use-coalesce:@use-block-size:@#5@use-unroll:@#2@answer"


@pytest.mark.parametrize(
    ("answer", "fit"),
    [
        ("", False),
        ("@rep@1:@|y;", True),
        ("@use-coalesce:", True),
        ("@why-serial:@use-unroll:@#1@use-divide:", True),
        ("@use-unroll:@#2", False),
        ("@use-divide:", False),
    ],
)
def test_an_answer_fits_where_it_chooses_what_is_offered(answer: str, fit: bool) -> None:
    assert fits(PROMPT, answer) is fit


def test_without_offers_no_choice_fits() -> None:
    plain = without_offers(PROMPT)
    assert plain == "@code@1:x;@answer" == without_offers(plain)
    assert not fits(plain, "@use-coalesce:")
    assert fits(plain, "@rep@1:@|y;@use-coalesce:")
