"""A model with a codec of its own as an author: scripted answers, and nonsense from real llama.cpp."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_gguf import write_tiny_gguf

from kernelmate.records import Candidate, Judged, Verdict
from kernelmate.suggest.base import AuthorFailed, SuggestRequest
from kernelmate.suggest.codec import codec_named, mixed
from kernelmate.suggest.codec.requests import question_of
from kernelmate.suggest.local import codec_query
from kernelmate.suggest.local.author import LocalModel
from kernelmate.suggest.local.chat import ChatRequest, ask
from kernelmate.suggest.local.codec_query import LIKELY as LIKELIEST
from kernelmate.suggest.local.codec_query import sample_question
from kernelmate.suggest.local.library import LocalModelFile, ModelLibrary, read_facts
from kernelmate.suggest.local.serving import Endpoint, ModelServer
from kernelmate.suggest.local.starter import shipped
from kernelmate.suggest.router import Router
from tests.unit.suggest.local.test_author import SOURCE, Chat, chat

__all__ = ["chat"]

BETTER = "@why-arithmetic:@do-cheaper:@rep@1:@|@v1[threadIdx.x]+=@v1[threadIdx.x];"


@pytest.fixture
def request_(ask: Callable[..., SuggestRequest]) -> SuggestRequest:
    return ask(SOURCE)


@pytest.fixture
def nothing_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rewrite applies, so that the model writes its answers itself."""
    monkeypatch.setattr(mixed, "offered", lambda question: ())


@pytest.fixture(scope="session")
def coded_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "coded.gguf", codec="mixed-2")


@pytest.fixture
def coded(library: ModelLibrary, coded_file: Path) -> LocalModelFile:
    return library.add(coded_file)


def author(server: Chat, codec: str = "mixed-2") -> LocalModel:
    return LocalModel(server.endpoint, "small", codec=codec)


@pytest.mark.usefixtures("nothing_offered")
def test_the_model_gets_the_codecs_text_and_its_answer_is_the_candidate(
    chat: Callable[..., Chat], request_: SuggestRequest
) -> None:
    server = chat(BETTER + "@end")
    (candidate,) = author(server).samples(request_, 1)
    assert isinstance(candidate, Candidate)
    assert "x[threadIdx.x] += x[threadIdx.x];" in candidate.kernel.source
    assert candidate.kernel.unit.text.startswith("// /// kernelmate")
    assert candidate.steps == ("Expensive instructions are executed that cheaper ones could replace.", "Use cheaper instructions for the same result.")  # fmt: skip
    (body,) = server.bodies
    assert "messages" not in body
    assert body["prompt"].startswith("@generate@for-")
    assert "@|__global__ void@v0(float*@v1,int@v2){@1:" in body["prompt"]


@pytest.mark.usefixtures("nothing_offered")
def test_an_answer_is_offered_as_rewrites_of_the_search_are(
    chat: Callable[..., Chat], request_: SuggestRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched: list[Candidate] = []
    monkeypatch.setattr(codec_query, "readable", lambda kernel, one: touched.append(one) or replace(one, why="touched"))
    (candidate,) = author(chat(BETTER + "@end")).samples(request_, 1)
    assert isinstance(candidate, Candidate)
    assert (len(touched), candidate.why) == (1, "touched")


@pytest.mark.usefixtures("nothing_offered")
def test_equal_answers_and_answers_that_change_nothing_are_left_out(
    chat: Callable[..., Chat], request_: SuggestRequest
) -> None:
    server = chat(BETTER, BETTER + "@end", "@rep@1:@|@v1[threadIdx.x]*=2.0f;", "nonsense", "@block128")
    found = list(author(server).samples(request_, 5))
    assert len(server.bodies) == 5
    assert [one.contract.block for one in found if isinstance(one, Candidate)] == [("256",), ("128",)]


@pytest.mark.usefixtures("nothing_offered")
def test_an_answer_that_says_the_same_is_drawn_again_with_the_names_numbered_otherwise(
    chat: Callable[..., Chat], request_: SuggestRequest
) -> None:
    server = chat("@block128", "@block128", "@block64", "@block32")
    found = list(author(server).samples(request_, 3))
    assert [one.contract.block for one in found if isinstance(one, Candidate)] == [("128",), ("64",), ("32",)]
    prompts = [body["prompt"] for body in server.bodies]
    assert len(set(prompts)) == len(prompts) == 4
    assert len({re.sub(r"@v\d+", "@v", prompt) for prompt in prompts}) == 1


OFFERING = """\
// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, 256)"
// block = 256
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void scale(float *x, float *y, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) y[i] = x[i] * 2.0; }
"""
LIKELY = {"@rep": 0.5, "@use-restrict-pointers:": 0.2, "@use-block-size:": 0.1, "@#2": 0.6, "@#1": 0.1}
"""Probabilities of the scripted server's next tokens: an edit rather than a choice, and of a rewrite the third variant."""


@pytest.fixture
def offering(ask: Callable[..., SuggestRequest]) -> SuggestRequest:
    """About a kernel for which several rewrites apply."""
    return ask(OFFERING)


def test_what_is_offered_is_chosen_the_likeliest_first_whatever_the_model_would_rather_write(
    chat: Callable[..., Chat], offering: SuggestRequest
) -> None:
    server = chat("", likely=LIKELY)
    found = [one for one in author(server).samples(offering, 4) if isinstance(one, Candidate)]
    assert [one.author.partition(",")[0] for one in found] == ["recipe:restrict-pointers"] + ["recipe:block-size"] * 3
    assert [one.author.partition(", ")[2] for one in found] == ["chosen by local:small"] * 4
    sides = [one.contract.block for one in found]
    assert len(set(sides)) == 4
    offers = server.bodies[0]["prompt"].partition("@offers")[2]
    assert "@use-block-size:@#" in offers
    # One question for the rewrite, one for its variant: each reads what the one before it has read, and writes nothing.
    assert [body["prompt"].removeprefix(server.bodies[0]["prompt"]) for body in server.bodies] == [
        "",
        "@use-block-size:",
    ]
    assert {body["max_tokens"] for body in server.bodies} == {1}


def test_a_choice_that_was_judged_before_is_left_out(
    chat: Callable[..., Chat], offering: SuggestRequest, verdict: Callable[..., Verdict]
) -> None:
    (first,) = author(chat("", likely=LIKELY)).samples(offering, 1)
    assert isinstance(first, Candidate)
    known = replace(offering, versions=lambda: (Judged(first, verdict(accepted=False)),))
    (other,) = author(chat("", likely=LIKELY)).samples(known, 1)
    assert isinstance(other, Candidate)
    assert (first.author[:13], other.author[:17]) == ("recipe:restri", "recipe:block-size")


def test_once_nothing_is_offered_any_more_the_model_writes_and_is_not_shown_the_offers(
    chat: Callable[..., Chat], offering: SuggestRequest
) -> None:
    server = chat("@use-block-size:", "@del@1:@end", "@block77", likely=LIKELY)
    found = [one for one in author(server).samples(offering, 40) if isinstance(one, Candidate)]
    written = [one for one in found if one.author == "local:small"]
    assert found[-len(written) :] == written
    assert len(written) in (1, 2)
    assert written[-1].contract.block == ("77",)
    assert len(found) > 4
    asked = [body["prompt"] for body in server.bodies if "logprobs" not in body]
    assert asked
    assert not any("@offers" in prompt for prompt in asked)


def test_what_choices_cost_is_counted_where_they_were_asked_for(
    chat: Callable[..., Chat], offering: SuggestRequest
) -> None:
    found = Router(None, author(chat("", likely=LIKELY)), samples=3).propose(offering)
    costs = [one.cost.input_tokens for one in found if one.cost is not None]
    assert costs == [7, 7, None]


def test_choices_that_cannot_be_weighed_are_written_and_that_is_said_once(
    chat: Callable[..., Chat], offering: SuggestRequest
) -> None:
    # The first answer is the one to the question for probabilities.
    server = chat("@", "@use-restrict-pointers:@end", "@use-block-size:@#2", "@use-restrict-pointers:", "@use-coalesce:", "@block77")  # fmt: skip
    model = author(server)
    router = Router(None, model, samples=3)
    found = list(router.propose(offering))
    assert [one.author for one in found] == ["recipe:restrict-pointers, chosen by local:small", "recipe:block-size, chosen by local:small"]  # fmt: skip
    asked, *written = server.bodies
    assert (asked["max_tokens"], "logprobs" in asked) == (1, True)
    assert len(written) == 4
    assert not any("logprobs" in body for body in written)
    offers = {body["prompt"].partition("@offers")[2] for body in server.bodies}
    assert len(offers) == 1
    assert "@use-block-size:@#" in offers.pop()
    assert len({body["prompt"] for body in written[1:]}) == 3
    assert [note for note in router.notes if "weighed" in note] == [
        "local:small: choices could not be weighed, so it is asked to write them. Its server reports no probabilities of tokens."
    ]
    # A server that told none once is not asked for them again.
    (other,) = model.samples(offering, 1)
    assert isinstance(other, Candidate)
    assert other.contract.block == ("77",)
    assert sum("logprobs" in body for body in server.bodies) == 1
    assert len(model.notes) == 1


def test_a_server_that_refuses_to_tell_probabilities_is_asked_to_write(
    chat: Callable[..., Chat], offering: SuggestRequest
) -> None:
    model = author(chat("@use-restrict-pointers:", likely=LIKELY, most_likely=20))
    (found,) = model.samples(offering, 1)
    assert isinstance(found, Candidate)
    assert found.author == "recipe:restrict-pointers, chosen by local:small"
    (note,) = model.notes
    assert note.endswith("asked to write them. The model's server refused (status 400): at most 20 logprobs")


def test_a_server_that_refuses_every_question_is_one_line(chat: Callable[..., Chat], offering: SuggestRequest) -> None:
    model = author(chat("", most_likely=-1))
    with pytest.raises(AuthorFailed, match="refused"):
        list(model.samples(offering, 1))
    assert model.notes == []


def test_a_model_that_was_taught_with_other_recipes_says_so_once(
    chat: Callable[..., Chat], request_: SuggestRequest
) -> None:
    model = author(chat("", likely=LIKELY))
    model.taught = "0123456789abcdef"
    router = Router(None, model, samples=1, rounds=2)
    list(router.propose(request_))
    (said,) = [note for note in router.notes if "taught" in note]
    assert said.startswith("small was taught to choose among other recipes")


def test_what_a_model_wrote_itself_is_its_own_even_where_a_recipe_follows(
    chat: Callable[..., Chat], request_: SuggestRequest
) -> None:
    server = chat("@ins@1:@|__syncthreads();@use-block-size:", "@restrict@ins@1:@|__syncwarp();", likely=LIKELY)
    found = [one for one in author(server).samples(request_, 40) if isinstance(one, Candidate)]
    assert [one.author for one in found[-2:]] == ["local:small", "local:small"]
    assert "__syncthreads" in found[-2].kernel.source


@pytest.mark.usefixtures("nothing_offered")
def test_where_none_can_be_read_that_is_one_line(chat: Callable[..., Chat], request_: SuggestRequest) -> None:
    with pytest.raises(AuthorFailed, match="where a change should begin") as caught:
        list(author(chat("nonsense")).samples(request_, 2))
    assert caught.value.kind == "malformed"


@pytest.mark.usefixtures("nothing_offered")
def test_an_answer_that_was_cut_off_is_none(chat: Callable[..., Chat], request_: SuggestRequest) -> None:
    with pytest.raises(AuthorFailed, match="cut off"):
        list(author(chat(BETTER, finish="length")).samples(request_, 1))


def test_a_codec_of_a_newer_version_is_said(chat: Callable[..., Chat], request_: SuggestRequest) -> None:
    with pytest.raises(AuthorFailed, match="newer version of KernelMate"):
        list(author(chat(BETTER), "lines-99").samples(request_, 1))


@pytest.mark.usefixtures("nothing_offered")
def test_a_repair_asks_about_the_version_that_failed(
    chat: Callable[..., Chat], request_: SuggestRequest, verdict: Callable[..., Verdict]
) -> None:
    server = chat(BETTER)
    (candidate,) = author(chat("@rep@1:@|@v1[0]=2.0f;")).samples(request_, 1)
    assert isinstance(candidate, Candidate)
    list(author(server).repair(request_, Judged(candidate, verdict(error="shared-race", accepted=False))))
    prompt = server.bodies[0]["prompt"]
    assert prompt.startswith("@debug@for-correct")
    assert "@says" in prompt
    assert "shared-race" in prompt
    assert "@v1[0]=2.0f;" in prompt


@pytest.mark.usefixtures("nothing_offered")
def test_the_router_takes_candidates_as_they_are(chat: Callable[..., Chat], request_: SuggestRequest) -> None:
    (candidate,) = Router(None, author(chat(BETTER)), samples=1).propose(request_)
    assert candidate.author == "local:small"
    assert candidate.cost is not None
    assert candidate.cost.output_tokens == 3


def test_a_files_metadata_name_its_codec(coded_file: Path, tiny: Path) -> None:
    assert read_facts(coded_file)["codec"] == "mixed-2"
    assert read_facts(tiny)["codec"] is None


@pytest.fixture
def starter(serve: Callable[..., ModelServer]) -> Callable[[], Endpoint]:
    """The model that ships, served by each package that is installed."""
    model = shipped()
    if model is None:
        pytest.skip("this checkout comes without the starter model")
    server = serve(context=2048)
    server.library = ModelLibrary(server.library.folder, model)
    return lambda: server.ensure(model)


def test_the_model_that_ships_chooses_and_chooses_alike_every_time(
    starter: Callable[[], Endpoint], request_: SuggestRequest
) -> None:
    model = LocalModel(starter, "starter", codec="mixed-2")
    first = [one for one in model.samples(request_, 4) if isinstance(one, Candidate)]
    assert len(first) == 4
    assert all(re.fullmatch(r"recipe:[a-z-]+, chosen by local:starter", one.author) for one in first)
    assert len({(one.kernel.source, one.contract.block) for one in first}) == 4
    assert list(model.samples(request_, 4)) == first


def test_probabilities_are_those_of_what_it_would_write(
    starter: Callable[[], Endpoint], request_: SuggestRequest
) -> None:
    prompt = codec_named("mixed-2").ask(question_of(request_)).prompt
    told = ask(starter(), ChatRequest("", "", prompt=prompt, most_tokens=1, likely=LIKELIEST))
    greedy = ask(starter(), ChatRequest("", "", prompt=prompt, most_tokens=1))
    assert len(told.likely) > 100
    assert max(told.likely, key=lambda token: told.likely[token]) == greedy.text
    assert 0.99 < sum(map(math.exp, told.likely.values())) < 1.0001


def test_a_real_server_goes_on_from_the_exact_text(serve: Callable[..., ModelServer], coded: LocalModelFile) -> None:
    endpoint = serve(context=2048).ensure(coded)
    answer = ask(endpoint, sample_question("mixed-2", 24))
    # 22 special tokens and few others stand in the prompt: were they read as text, there would be several times as many.
    assert answer.input_tokens is not None
    assert 40 < answer.input_tokens < 140
    again = ask(endpoint, ChatRequest("", "", prompt="@code@1:__syncthreads();@answer", most_tokens=8))
    assert again.input_tokens is not None
    assert again.input_tokens <= 20


@pytest.mark.usefixtures("nothing_offered")
def test_the_nonsense_of_a_random_model_costs_one_line_and_the_loop_goes_on(
    serve: Callable[..., ModelServer], coded: LocalModelFile, request_: SuggestRequest
) -> None:
    server = serve(context=2048)
    local = LocalModel(lambda: server.ensure(coded), coded.name, timeout_s=60.0, codec=coded.codec or "")
    router = Router(None, local, samples=2)
    assert list(router.propose(request_)) == []
    assert router.notes[0].startswith("local:coded gave nothing that can be used.")
    assert server.running() is not None
