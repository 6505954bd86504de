from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmate.suggest.codec import codec_named
from kernelmate.suggest.codec.base import CodecLaunch, CodecVersion, NotEncodable, Question, TriedVersion
from kernelmate.suggest.codec.spelling import dense
from kernelmate.suggest.codec.splitting import canonical
from tests.unit.suggest.codec.conftest import FILES, kernels_of, question_of, words_of

LINES = codec_named("mixed-2")
SLOW = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
QUESTIONS = [question_of(kernel, contract) for path in FILES for kernel, contract in kernels_of(path)]
STATEMENTS = ("__syncthreads();", "float extra = 0.5f * x[0];", "if (cols > 3) { y[0] = 1.0f; }", "for (int k=0;k<4;k++) total+=k;", "#pragma unroll 4", "else", "}", "{", "return;")  # fmt: skip


def forced(text: str, kernel: str) -> list[list[str]]:
    """The statements of shown code with every body in braces."""
    return [line.texts for line in canonical(text, kernel).shown]


def body(asked) -> tuple[str, ...]:
    """The lines of the kernel's body, which have numbers, from 1."""
    return asked.lines.lines[asked.where.start : asked.where.stop]


@st.composite
def mutated(draw: st.DrawFn) -> tuple[Question, str]:
    """A kernel and the same with some lines of its body taken out, doubled, moved, changed or put in."""
    question = draw(st.sampled_from(QUESTIONS))
    lines = question.text.split("\n")
    head = next(number for number, line in enumerate(lines) if "__global__" in line and question.kernel.rpartition("::")[2] in "\n".join(lines[number : number + 4]))  # fmt: skip
    start = next(number for number, line in enumerate(lines) if number >= head and "{" in line)
    for _ in range(draw(st.integers(1, 5))):
        place = draw(st.integers(start + 1, max(start + 1, len(lines) - 1)))
        change = draw(st.sampled_from(("out", "double", "move", "word", "in")))
        if change == "in":
            lines.insert(place, draw(st.sampled_from(("  ", "", "\t"))) + draw(st.sampled_from(STATEMENTS)))
        elif place < len(lines):
            line = lines[place]
            if change in ("out", "move"):
                del lines[place]
            if change in ("double", "move"):
                lines.insert(draw(st.integers(start + 1, len(lines))), line)
            if change == "word":
                lines[place] = re.sub(r"\b\d+\b", str(draw(st.integers(0, 10**9))), line, count=1)
    return question, "\n".join(lines)


def same_but_for_undeclared(got: list[str], want: list[str], text: str) -> bool:
    """True if the words are the same, but for names whose declaration the change took away: those are taken for slips."""
    changed = {two for one, two in zip(got, want, strict=True) if one != two}
    return not any(
        re.search(rf"\b(?:int|float|unsigned|size_t|auto|T|double|bool)\b[^;(){{}}]*\b{word}\b\s*[=;,)\[]", text)
        for word in changed
    )


def test_a_name_that_nothing_declares_is_taken_for_a_slip() -> None:
    question = next(one for one in QUESTIONS if one.kernel == "l2_normalize")
    lines = question.text.split("\n")
    declared = next(number for number, line in enumerate(lines) if re.search(r"\bint row\b.*=", line))
    del lines[declared]
    used = next(number for number in range(declared, len(lines)) if re.search(r"\brow\b", lines[number]))
    text = "\n".join([*lines[: used + 1], lines[used], *lines[used + 1 :]])
    got = LINES.ask(question).read(LINES.answer(question, CodecVersion(text, question.launch))).version
    assert got is not None
    assert words_of(got.text) != words_of(text)
    assert same_but_for_undeclared(words_of(got.text), words_of(text), text)


@SLOW
@given(mutated())
def test_any_change_of_shown_code_comes_back_token_for_token(pair: tuple[Question, str]) -> None:
    question, text = pair
    after = CodecVersion(text, question.launch)
    try:
        answer = LINES.answer(question, after)
    except NotEncodable:
        return
    got = LINES.ask(question).read(answer).version
    assert got is not None
    assert same_but_for_undeclared(words_of(got.text), words_of(text), text)
    # What was read once is laid out as the reader does it, and comes back byte for byte; where braces do not pair, which
    # of them stand for bodies cannot be told.
    if words_of(got.text) == words_of(text) and text.count("{") == text.count("}"):
        assert forced(got.text, question.kernel) == forced(text, question.kernel)
        assert LINES.ask(question).read(LINES.answer(question, got)).version == got


@SLOW
@given(st.sampled_from(QUESTIONS), st.sampled_from((128, 64, 512)))
def test_what_is_not_changed_stays_byte_for_byte(question: Question, seed: int) -> None:
    asked = LINES.ask(replace(question, seed=seed))
    number = random.Random(seed).randrange(len(body(asked)) - 1) + 1
    got = asked.read(f"@ins@{number}:@|__syncthreads();").version
    assert got is not None
    rest = got.text.replace("__syncthreads();", "", 1) if "__syncthreads();" not in question.text else None
    if rest is not None and words_of(rest) == words_of(question.text) and rest.count("{") == question.text.count("{"):
        assert re.sub(r"\s", "", rest) == re.sub(r"\s", "", question.text)
    kept = set(question.text.split("\n")) - set(got.text.split("\n"))
    assert len(kept) <= 3


@SLOW
@given(st.text(alphabet="{}();ifelsordw#\n /*\"'<>=+-@$\\", max_size=120))
def test_text_that_is_hardly_a_kernel_is_kept(noise: str) -> None:
    text = f"__global__ void k(int n) {{\n{noise}\n}}\n__global__ void other() {{}}\n"
    question = Question(text, "k", CodecLaunch(("n",), ("32",)))
    try:
        asked = LINES.ask(question)
    except NotEncodable:
        return
    assert asked.read("").version == CodecVersion(text, question.launch)


def test_a_prompt_holds_no_name_of_the_author(softmax: Question) -> None:
    prompt = LINES.ask(softmax).prompt
    assert "scratch" not in prompt
    assert "largest" not in prompt
    assert "cols" not in prompt
    assert "__syncthreads();" in prompt


def test_a_compilers_message_names_shown_lines_and_placeholders(softmax: Question) -> None:
    line = softmax.text.split("\n").index("  float total = 0.0f;") + 1
    asked = LINES.ask(
        replace(softmax, task="debug", broken=f'softmax.cu({line}): error: identifier "total" is undefined')
    )
    number = body(asked).index("float@v10=0.0f;") + 1
    assert f'@says@{number}: identifier "@v10" is undefined' in asked.prompt


def test_earlier_versions_are_told_with_what_became_of_them(softmax: Question) -> None:
    tried = TriedVersion(
        CodecVersion(softmax.text.replace("total = 0.0f", "total = 1.0f"), softmax.launch),
        False,
        None,
        ("wrong-values",),
    )
    prompt = LINES.ask(replace(softmax, tried=(tried,))).prompt
    assert "@tried@x-wrong@rep@" in prompt


def test_a_new_name_that_is_taken_gets_another_one(softmax: Question) -> None:
    got = LINES.ask(softmax).read("@ins@2:@|int total=3;@|total+=1;").version
    assert got is not None
    assert "int total_ = 3;\n  total_ += 1;" in got.text


def test_comments_stay_with_their_lines(softmax: Question) -> None:
    asked = LINES.ask(softmax)
    number = body(asked).index("float@v10=0.0f;")
    got = asked.read(f"@rep@{number + 1}:@|double@v10=0.0;@del@1@{number}:".replace("@del@1@", "@del@")).version
    assert got is not None
    assert "// Softmax over the rows of a matrix" in got.text
    assert "double total = 0.0;" in got.text


def test_a_brace_that_is_needed_is_written(softmax: Question) -> None:
    asked = LINES.ask(softmax)
    number = body(asked).index("@v10+=expf(@v6[@v9]-@v8);") + 1
    got = asked.read(f"@ins@{number}:@|@v10+=0.0f;").version
    assert got is not None
    assert (
        "  for (int c = tid; c < cols; c += blockDim.x) {\n    total += expf(in[c] - largest);\n    total += 0.0f;\n  }\n"
        in got.text
    )


def test_a_changed_launch_goes_into_contract_and_host_code(softmax: Question) -> None:
    got = LINES.ask(softmax).read("@block128@sharedblock*4").version
    assert got is not None
    assert got.launch.block == ("128",)
    assert "// block = 128" in got.text
    assert "softmax<<<rows, 128, 128 * sizeof(float), stream>>>" in got.text


def test_an_else_does_not_change_its_if() -> None:
    text = "__global__ void k(int* a) {\n  if (a[0])\n    if (a[1]) a[2] = 1;\n  a[3] = 2;\n}\n"
    question = Question(text, "k", CodecLaunch(("1",), ("32",)))
    asked = LINES.ask(question)
    assert body(asked)[:5] == ("if(@v1[0]){", "if(@v1[1]){", "@v1[2]=1;", "}", "}")
    got = asked.read("@rep@5:@|}else{@|@v1[4]=3;@|}").version
    assert got is not None
    unit = canonical(got.text, "k")
    assert [dense(line.texts) for line in unit.shown][5:8] == ["}else{", "a[4]=3;", "}"]


def test_analysis_is_told_in_tags_and_read_as_sentences(softmax: Question) -> None:
    question = replace(softmax, task="analyse")
    answer = LINES.answer(
        question, None, ["Each access of a warp touches up to 32 sectors.", "Pad the tile's rows by one element."]
    )
    got = LINES.ask(question).read(answer)
    assert got.version is None
    assert got.tags == ("@why-uncoalesced:", "@do-pad:")
    assert got.analysis[1] == "Pad shared arrays so that columns fall into different banks."


def test_what_cannot_be_told_says_so(softmax: Question) -> None:
    with pytest.raises(NotEncodable, match="not shown"):
        LINES.answer(
            softmax, CodecVersion(softmax.text.replace("void launch_softmax", "void start_softmax"), softmax.launch)
        )
    with pytest.raises(NotEncodable, match="is the one that was asked about"):
        LINES.answer(softmax, CodecVersion(softmax.text, softmax.launch))
