from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmate.records import Roofline
from kernelmate.suggest.codec import codec_named
from kernelmate.suggest.codec.applicable import REWRITES, format_offers, offered
from kernelmate.suggest.codec.base import (
    CodecLaunch,
    CodecVersion,
    DecodedAnswer,
    NotEncodable,
    Question,
    UndecodableAnswer,
)
from kernelmate.suggest.codec.splitting import canonical
from kernelmate_training.examples import question_of as question_of_row
from kernelmate_training.examples import version_of
from tests.unit.suggest.codec.conftest import FILES, ROOT, VERDICT, kernels_of, question_of, recipe_versions

MIXED = codec_named("mixed-2")
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ROWS = [json.loads(line) for line in (ROOT / "tests/data/upskill/pairs.jsonl").read_text().splitlines()]
PAIRS = [(question_of_row(row), version_of(row["after"]), tuple(row["reasoning"])) for row in ROWS]
QUESTIONS = [question_of(kernel, contract) for path in FILES for kernel, contract in kernels_of(path)]

TEXT = """\
struct Pair { float a, b; };
__device__ float twice(float value) { return value + value; }
__global__ void scale(const float* input, float* output, int count) {
  int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count) {
    output[index] = twice(input[index]);
  }
}
"""
QUESTION = Question(TEXT, "scale", CodecLaunch(("cdiv(count, 256)",), ("256",)))


def read(answer: str, question: Question = QUESTION) -> str:
    version = MIXED.ask(question).read(answer).version
    assert version is not None
    return version.text


def shown(text: str, kernel: str) -> list[list[str]]:
    return [line.texts for line in canonical(text, kernel).lines]


@SLOW
@given(st.sampled_from(PAIRS), st.integers(0, 2**32))
def test_what_is_told_comes_back(pair: tuple[Question, CodecVersion, tuple[str, ...]], seed: int) -> None:
    question, after, reasoning = replace(pair[0], seed=seed), pair[1], pair[2]
    answer = MIXED.answer(question, after, reasoning)
    got = MIXED.ask(question).read(answer + MIXED.end).version
    assert got is not None
    assert (shown(got.text, question.kernel), got.launch) == (shown(after.text, question.kernel), after.launch)
    # Blanks and comments are as the reader writes them; what was read once comes back byte for byte.
    assert MIXED.ask(question).read(MIXED.answer(question, got)).version == got


@SLOW
@given(st.sampled_from(PAIRS))
def test_without_placeholders_names_stand_as_they_are_and_come_back(
    pair: tuple[Question, CodecVersion, tuple[str, ...]],
) -> None:
    plain, (question, after, reasoning) = codec_named("mixed-2-plain"), pair
    answer = plain.answer(question, after, reasoning)
    prompt = plain.ask(question).prompt
    assert re.search(r"@v\d", prompt + answer) is None
    assert question.kernel in prompt
    got = plain.ask(question).read(answer + plain.end).version
    assert got is not None
    assert (shown(got.text, question.kernel), got.launch) == (shown(after.text, question.kernel), after.launch)


def test_most_pairs_come_back_byte_for_byte() -> None:
    same = [MIXED.ask(question).read(MIXED.answer(question, after)).version == after for question, after, _ in PAIRS]
    assert sum(same) >= 0.6 * len(same)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_a_recipe_makes_is_told_by_its_name_and_comes_back_byte_for_byte(path: Path) -> None:
    for kernel, contract in kernels_of(path):
        for name, after in list(recipe_versions(kernel, contract))[::7]:
            question = question_of(kernel, contract, verdict=VERDICT, metric=REWRITES[name].metrics[0])
            answer = MIXED.answer(question, after, (f"recipe:{name}",))
            assert f"@use-{name}:" in answer
            assert MIXED.ask(question).read(answer).version == after


def test_several_recipes_follow_one_another_after_edits() -> None:
    kernel, contract = next(kernels_of(ROOT / "examples" / "layernorm.cu"))
    question = question_of(kernel, contract, verdict=VERDICT)
    text = read("@ins@0:@|__syncthreads();@use-restrict-pointers:@use-unroll:@#1", question)
    assert "__syncthreads();" in text
    assert "__restrict__" in text
    assert "#pragma unroll" in text
    with pytest.raises(UndecodableAnswer, match="after a recipe"):
        read("@use-unroll:@ins@0:@|__syncthreads();", question)


def test_an_answer_that_was_read_is_told_as_it_was() -> None:
    kernel, contract = next(kernels_of(ROOT / "examples" / "layernorm.cu"))
    question = question_of(kernel, contract, verdict=VERDICT)
    for answer in (
        "@use-restrict-pointers:@use-unroll:@#1",
        "@do-unroll:@ins@0:@|float fresh_value=0.0f;",
    ):
        got = MIXED.ask(question).read(answer)
        assert MIXED.answer(question, got.version, got.tags) == answer


def test_a_variant_that_is_known_is_taken_at_its_word() -> None:
    kernel, contract = next(kernels_of(ROOT / "examples" / "layernorm.cu"))
    question = question_of(kernel, contract, verdict=VERDICT)
    after = MIXED.ask(question).read("@use-restrict-pointers:@use-unroll:@#1").version
    told = MIXED.answer(question, after, ("recipe:restrict-pointers#0+unroll#1",))
    assert told.endswith("@use-restrict-pointers:@use-unroll:@#1")
    assert "@use" not in MIXED.answer(question, after, ("recipe:restrict-pointers#0+unroll#0",))


def test_only_the_kernels_body_has_numbers() -> None:
    code = MIXED.ask(QUESTION).prompt.partition("@code")[2]
    numbers = re.findall(r"@(\d+):", code)
    assert numbers == ["1", "2", "3", "4"]
    assert code.startswith("@|struct")
    assert "@1:int" in code
    assert "@|}@offers@use-" in code
    assert code.endswith("@answer")


@pytest.mark.parametrize(
    ("answer", "head"),
    [
        ("@restrict", "scale(const float* __restrict__ input, float* __restrict__ output, int count)"),
        ("@restrictoutput", "scale(const float* input, float* __restrict__ output, int count)"),
        ("@constcount@restrictinput", "scale(const float* __restrict__ input, float* output, const int count)"),
        ("@no-constinput", "scale(float* input, float* output, int count)"),
        ("@bounds256", "void __launch_bounds__(256) scale(const float* input"),
        ("@bounds256@,2", "void __launch_bounds__(256, 2) scale(const float* input"),
        ("@maxreg32", "void __maxnreg__(32) scale(const float* input"),
        ("@constcount@no-constcount@restrictcount@block128", "scale(const float* input, float* output, int count)"),
    ],
)
def test_words_change_the_head_and_nothing_else(answer: str, head: str) -> None:
    names = MIXED.ask(QUESTION).lines.names
    text = read(re.sub(r"input|output|count", lambda word: names.names[word[0]], answer))
    assert head in text
    assert text.partition("{\n  int index")[2] == TEXT.partition("{\n  int index")[2]


@pytest.mark.parametrize(
    "head",
    [
        "__global__ void scale(const float* __restrict__ input, float* __restrict__ output, int count)",
        "__global__ void __launch_bounds__(128, 4) scale(float* input, float* __restrict__ output, const int count)",
        "__global__ void __maxnreg__(40) scale(const float* input, float* output, int count)",
    ],
)
def test_heads_are_told_by_words_both_ways(head: str) -> None:
    after = TEXT.replace("__global__ void scale(const float* input, float* output, int count)", head)
    for one, other in ((TEXT, after), (after, TEXT)):
        question = replace(QUESTION, text=one)
        answer = MIXED.answer(question, CodecVersion(other, QUESTION.launch))
        assert "@|" not in answer
        assert read(answer, question) == other


@pytest.mark.parametrize(
    "after",
    [
        TEXT.replace("float a, b", "float a, b, c"),
        TEXT.replace("value + value", "2.0f * value"),
        TEXT.replace("int count", "long count"),
        TEXT.replace("float* output, int count", "int count, float* output"),
        TEXT + "__device__ int more;\n",
        "struct More { int x; };\n" + TEXT,
    ],
)
def test_what_stands_beside_the_kernel_cannot_be_changed(after: str) -> None:
    with pytest.raises(NotEncodable):
        MIXED.answer(QUESTION, CodecVersion(after, QUESTION.launch))


@pytest.mark.parametrize("helper", ["#define SIDE 16\n", "constexpr int side = 16;\n", "__device__ int same(int x) { return x; }\n"])  # fmt: skip
def test_a_helper_or_a_constant_may_be_put_above_the_kernel(helper: str) -> None:
    after = TEXT.replace("__global__", helper + "__global__").replace("index < count", "index < count && count > 0")
    answer = MIXED.answer(QUESTION, CodecVersion(after, QUESTION.launch))
    assert answer.startswith("@top@|")
    assert re.sub(r"\s", "", helper) in re.sub(r"\s", "", read(answer))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("@rep@9:@|x=1;", "names lines 9 to 9 of 4"),
        ("@top@|int x=f();", "not a helper"),
        ("@top@|__global__ void other(){}", "not a helper"),
        ("@use-magic:", "no recipe magic"),
        ("@use-unroll:@#31", "no variant 31"),
        ("@use-divide:" * 6, "more than 5 steps"),
        ("hello", "where a change should begin"),
        ("@restrict@v77", "@v77, which is not defined"),
        ("@rep@3:@|@v2[@v4]=@v77;", "@v77, which is not defined"),
        ("@rep@3:@|@v2[@v4]=@k9f;", "@k9, which is not defined"),
        ("@bounds", "launch bounds empty"),
        ("@rep@1:@|a;@rep@1:@|b;", "changes line 1 twice"),
    ],
)
def test_an_unreadable_answer_says_why(answer: str, says: str) -> None:
    with pytest.raises(UndecodableAnswer, match=says):
        MIXED.ask(QUESTION).read(answer)


def test_a_misspelt_new_name_is_the_one_that_is_declared() -> None:
    answer = "@rep@3:@|float scaled_value=2.0f;@|@v9[@v10]=scaled_valeu;"
    names = MIXED.ask(QUESTION).lines.names.names
    text = read(answer.replace("@v9", names["output"]).replace("@v10", names["index"]))
    assert "output[index] = scaled_value;" in text


def test_one_name_that_is_never_used_is_the_one_that_is_never_declared() -> None:
    names = MIXED.ask(QUESTION).lines.names.names
    text = read(f"@rep@3:@|float twofold=2.0f;@|{names['output']}[{names['index']}]=result;")
    assert "output[index] = twofold;" in text


def test_a_placeholder_that_the_answer_declares_is_a_new_name() -> None:
    names = MIXED.ask(QUESTION).lines.names.names
    text = read(f"@rep@3:@|float@v90=2.0f;@|{names['output']}[{names['index']}]=@v90;")
    assert "float v90 = 2.0f;\n    output[index] = v90;" in text


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [("@rep@3:@|if(@index>2){@|@output[@index]=1.0f;", "1.0f;"), ("@ins@3:@|@output[@index]+=1.0f;@|}", "+= 1.0f;")],
)
def test_braces_that_do_not_pair_are_paired(answer: str, wanted: str) -> None:
    names = MIXED.ask(QUESTION).lines.names.names
    text = read(answer.replace("@index", names["index"]).replace("@output", names["output"]))
    assert text.count("{") == text.count("}")
    assert wanted in text


@pytest.mark.parametrize(
    ("side", "means"),
    [
        ("cdiv(@middle,256)", "cdiv((count // 2), 256)"),
        ("cdiv(count,@tile)", "cdiv(count, 16)"),
        ("cdiv(@moving,256)", None),
        ("cdiv(@count,256)", "cdiv(count, 256)"),
    ],
)
def test_a_launch_is_told_in_parameters_whatever_names_it_was_given(side: str, means: str | None) -> None:
    locals_ = "  const int middle = count / 2;\n  int moving = count;\n  moving += middle * TILE;\n"
    text = "#define TILE 16\n" + TEXT.replace("  int index", locals_ + "  int index")
    question = replace(QUESTION, text=text)
    names = MIXED.ask(question).lines.names.names
    marks = {"@middle": names["middle"], "@tile": names["TILE"], "@moving": names["moving"], "@count": names["count"]}
    answer = "@grid" + re.sub(r"@\w+|\bcount", lambda word: marks.get(word[0], names["count"]), side)
    version = MIXED.ask(question).read(answer).version
    assert version is not None
    assert version.launch.grid == (means or "cdiv(moving, 256)",)


def test_a_means_that_the_user_names_is_in_the_prompt() -> None:
    assert "@wants@do-coalesce:@fill<=0.25@grid" in MIXED.ask(replace(QUESTION, prompt="coalesce the accesses")).prompt
    assert "@wants" not in MIXED.ask(replace(QUESTION, prompt="schneller")).prompt


def test_a_message_names_numbered_lines() -> None:
    prompt = MIXED.ask(replace(QUESTION, task="debug", broken="compile-error: line 6: no")).prompt
    assert "@says@3: no" in prompt


def test_a_judges_words_are_told_as_code_lines_and_names() -> None:
    words = "out-of-bounds-write: line 6: at count = 1000: writes 4 bytes at byte 4000 of output, which has 4000 bytes"
    question = replace(QUESTION, task="debug", metric="correct", broken=words)
    names = MIXED.ask(question).lines.names.names
    assert f"@says@!out-of-bounds-write@3:{names['count']}{names['output']}@code" in MIXED.ask(question).prompt
    seen = replace(question, verdict=VERDICT, broken="wrong values at count=3: output[0] is 1, want 2")
    assert f"@says@!wrong-values{names['count']}{names['output']}@code" in MIXED.ask(seen).prompt


def test_a_body_whose_braces_do_not_pair_is_numbered_to_its_end() -> None:
    broken = TEXT.replace("  if (index < count) {", "  if (index < count) {{")
    question = replace(QUESTION, text=broken, task="debug", metric="correct")
    answer = MIXED.answer(question, CodecVersion(TEXT, QUESTION.launch))
    assert read(answer, question).count("{") == TEXT.count("{")


TOKENS = MIXED.vocabulary()


def test_special_tokens_are_all_in_the_vocabulary() -> None:
    assert len(set(TOKENS)) == len(TOKENS)
    texts = [MIXED.ask(question).prompt for question in QUESTIONS] + [
        MIXED.answer(question, after, reasoning) for question, after, reasoning in PAIRS
    ]
    for rest in texts:
        for token in sorted(TOKENS, key=len, reverse=True):
            rest = rest.replace(token, " ")
        assert "@" not in rest


@SLOW
@given(st.sampled_from(QUESTIONS), st.lists(st.sampled_from(TOKENS) | st.sampled_from(("if(", ")", "{", "}", ";", "=", "float ", "x[", "]", " ", "\n", "#define A", '"', "'", "//", "/*", "\\")) | st.text(max_size=6), max_size=25))  # fmt: skip
def test_a_garbled_answer_is_unreadable_and_nothing_worse(question: Question, parts: list[str]) -> None:
    try:
        got = MIXED.ask(question).read("".join(parts))
    except UndecodableAnswer:
        return
    assert isinstance(got, DecodedAnswer)
    assert got.version is not None


@SLOW
@given(st.sampled_from(PAIRS), st.data())
def test_a_right_answer_with_parts_mixed_up_is_unreadable_and_nothing_worse(
    pair: tuple[Question, CodecVersion, tuple[str, ...]], data: st.DataObject
) -> None:
    question, after, _ = pair
    answer = MIXED.answer(question, after)
    first, last = sorted((data.draw(st.integers(0, len(answer))), data.draw(st.integers(0, len(answer)))))
    for text in (answer[:first] + answer[last:], answer[first:], answer[:last] * 2):
        try:
            got = MIXED.ask(question).read(text)
        except UndecodableAnswer:
            continue
        assert isinstance(got, DecodedAnswer)


def test_what_applies_is_offered_before_the_answer_and_only_what_is_offered_is_taken() -> None:
    offers = offered(QUESTION)
    prompt = MIXED.ask(QUESTION).prompt
    assert prompt.endswith(format_offers(offers) + "@answer")
    told = dict(re.findall(r"@use-([a-z0-9-]+):(?:@#(\d+))?", prompt))
    assert {name: int(count or 1) for name, count in told.items()} == dict(offers)
    after = MIXED.ask(QUESTION).read("@use-restrict-pointers:").version
    fewer = replace(QUESTION, offers=tuple(one for one in offers if one[0] != "restrict-pointers"))
    assert "restrict-pointers" not in MIXED.ask(fewer).prompt
    assert MIXED.answer(QUESTION, after, ("recipe:restrict-pointers",)) == "@use-restrict-pointers:"
    with pytest.raises(NotEncodable, match="not offered"):
        MIXED.answer(fewer, after, ("recipe:restrict-pointers",))


@pytest.mark.parametrize("question", [replace(QUESTION, task="analyse"), replace(QUESTION, offers=())])
def test_where_nothing_is_offered_there_is_no_section(question: Question) -> None:
    assert "@offers" not in MIXED.ask(question).prompt
    assert MIXED.ask(question).prompt.endswith("@|}@answer")


def test_a_repair_is_told_as_a_choice_wherever_one_makes_the_version() -> None:
    broken = TEXT.replace("twice(input[index]);", "twice(input[indx]);")
    words = 'compile-error: line 6: identifier "indx" is undefined'
    question = replace(QUESTION, text=broken, task="debug", metric="correct", broken=words)
    answer = MIXED.answer(question, CodecVersion(TEXT, QUESTION.launch))
    assert answer == "@use-misspelt-name:"
    assert read(answer, question) == TEXT
    with pytest.raises(UndecodableAnswer, match="no variant"):
        MIXED.ask(QUESTION).read("@use-misspelt-name:")


@pytest.mark.parametrize(
    ("size", "token"),
    [({"count": 1}, "@fill<=0.0625"), ({"count": 200_000}, "@fill<=1"), ({"count": 1 << 30}, "@fill-more")],
)
def test_how_full_the_gpu_is_is_told_of_the_size_that_counts(size: dict[str, int], token: str) -> None:
    assert token in MIXED.ask(replace(QUESTION, size=size)).prompt
    assert "@fill" not in MIXED.ask(replace(QUESTION, size={"other": 3})).prompt


def test_a_prompt_tells_nothing_that_rows_of_a_corpus_do_not_keep() -> None:
    """A token that no model was trained on would stand in every prompt of a user's."""
    nothing = dict.fromkeys(field.name for field in fields(Roofline))
    known = replace(VERDICT, roofline=Roofline(**{**nothing, "bound": "memory"}))
    assert "@load<=" in MIXED.ask(replace(QUESTION, verdict=known)).prompt
    assert MIXED.ask(replace(QUESTION, verdict=known)).prompt == MIXED.ask(replace(QUESTION, verdict=VERDICT)).prompt
    assert "@memory" not in MIXED.ask(replace(QUESTION, verdict=known)).prompt


EXAM = sorted((ROOT / "training/kernelmate_training/exam/kernels").glob("*.cu"))[::4]


@pytest.mark.parametrize("path", EXAM, ids=lambda path: path.stem)
def test_every_choice_among_the_offers_for_a_kernel_of_the_exam_comes_back(path: Path) -> None:
    (kernel, contract), *_ = kernels_of(path)
    for metric in ("time", "global_bytes", "registers"):
        question = question_of(kernel, contract, metric=metric)
        asked = MIXED.ask(question)
        for name, count in asked.offers:
            step = f"@use-{name}:" + (f"@#{count - 1}" if count > 1 else "")
            got = asked.read(step)
            assert got.version is not None
            assert got.version != CodecVersion(question.text, question.launch)
            # Two variants may come to the same version; then the first is told.
            told = MIXED.answer(question, got.version, (f"recipe:{name}",))
            assert told.startswith(f"@use-{name}:")
            assert asked.read(told).version == got.version
