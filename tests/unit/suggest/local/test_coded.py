"""A model with a codec of its own as an author: scripted answers, and nonsense from real llama.cpp."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_gguf import write_tiny_gguf

from kernelmate.records import Candidate, Judged, Verdict
from kernelmate.suggest.base import AuthorFailed, SuggestRequest
from kernelmate.suggest.local.author import LocalModel
from kernelmate.suggest.local.chat import Question, ask
from kernelmate.suggest.local.coded import sample_question
from kernelmate.suggest.local.library import Library, Model, read_facts
from kernelmate.suggest.local.serving import ModelServer
from kernelmate.suggest.router import Router
from tests.unit.suggest.local.test_author import SOURCE, Chat, chat

__all__ = ["chat"]

BETTER = "@why-arithmetic:@do-cheaper:@rep@2:@|@v1[threadIdx.x]+=@v1[threadIdx.x];"


@pytest.fixture
def request_(ask: Callable[..., SuggestRequest]) -> SuggestRequest:
    return ask(SOURCE)


@pytest.fixture(scope="session")
def coded_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "coded.gguf", codec="lines-1")


@pytest.fixture
def coded(library: Library, coded_file: Path) -> Model:
    return library.add(coded_file)


def author(server: Chat, codec: str = "lines-1") -> LocalModel:
    return LocalModel(server.endpoint, "small", codec=codec)


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
    assert "@1:__global__ void@v0(float*@v1,int@v2){" in body["prompt"]


def test_equal_answers_and_answers_that_change_nothing_are_left_out(
    chat: Callable[..., Chat], request_: SuggestRequest
) -> None:
    server = chat(BETTER, BETTER + "@end", "@rep@2:@|@v1[threadIdx.x]*=2.0f;", "nonsense", "@block128")
    found = list(author(server).samples(request_, 5))
    assert len(server.bodies) == 5
    assert [one.contract.block for one in found if isinstance(one, Candidate)] == [("256",), ("128",)]


def test_an_answer_that_says_the_same_is_drawn_again_with_the_names_numbered_otherwise(
    chat: Callable[..., Chat], request_: SuggestRequest
) -> None:
    server = chat("@block128", "@block128", "@block64", "@block32")
    found = list(author(server).samples(request_, 3))
    assert [one.contract.block for one in found if isinstance(one, Candidate)] == [("128",), ("64",), ("32",)]
    prompts = [body["prompt"] for body in server.bodies]
    assert len(set(prompts)) == len(prompts) == 4
    assert len({re.sub(r"@v\d+", "@v", prompt) for prompt in prompts}) == 1


def test_each_attempt_chooses_among_the_offers_that_those_before_it_have_left(
    chat: Callable[..., Chat], request_: SuggestRequest
) -> None:
    server = chat(
        "@why-serial:@use-block-size:", "@use-block-size:@#1", "@use-block-size:@#2", "@use-restrict-pointers:"
    )
    found = [one for one in author(server, "mixed-2").samples(request_, 3) if isinstance(one, Candidate)]
    assert len({(one.kernel.source, one.contract.block) for one in found}) == 3
    assert {one.author for one in found} == {"recipe:block-size, chosen by local:small"}
    offers = [body["prompt"].partition("@offers")[2] for body in server.bodies]
    assert "@use-block-size:@#" in offers[0]
    assert offers[1] == offers[0]
    # What stands before the offers stays as it is, so that the server need not read it again.
    assert len({body["prompt"].partition("@offers")[0] for body in server.bodies}) == 1


def test_a_model_that_was_taught_with_other_recipes_says_so_once(
    chat: Callable[..., Chat], request_: SuggestRequest
) -> None:
    said: list[str] = []
    model = author(chat("@use-block-size:", "@use-block-size:@#1"), "mixed-2")
    model.taught, model.on_note = "0123456789abcdef", said.append
    for _ in range(2):
        list(model.samples(request_, 1))
    assert len(said) == 1
    assert "small was taught to choose among other recipes" in said[0]


def test_what_a_model_wrote_itself_is_its_own_even_where_a_recipe_follows(
    chat: Callable[..., Chat], request_: SuggestRequest
) -> None:
    server = chat("@ins@1:@|__syncthreads();@use-block-size:", "@restrict")
    found = [one for one in author(server, "mixed-2").samples(request_, 2) if isinstance(one, Candidate)]
    assert [one.author for one in found] == ["local:small", "local:small"]


def test_where_none_can_be_read_that_is_one_line(chat: Callable[..., Chat], request_: SuggestRequest) -> None:
    with pytest.raises(AuthorFailed, match="where an edit should begin") as caught:
        list(author(chat("nonsense")).samples(request_, 2))
    assert caught.value.kind == "malformed"


def test_an_answer_that_was_cut_off_is_none(chat: Callable[..., Chat], request_: SuggestRequest) -> None:
    with pytest.raises(AuthorFailed, match="cut off"):
        list(author(chat(BETTER, finish="length")).samples(request_, 1))


def test_a_codec_of_a_newer_version_is_said(chat: Callable[..., Chat], request_: SuggestRequest) -> None:
    with pytest.raises(AuthorFailed, match="newer version of KernelMate"):
        list(author(chat(BETTER), "lines-99").samples(request_, 1))


def test_a_repair_asks_about_the_version_that_failed(
    chat: Callable[..., Chat], request_: SuggestRequest, verdict: Callable[..., Verdict]
) -> None:
    server = chat(BETTER)
    (candidate,) = author(chat("@rep@2:@|@v1[0]=2.0f;")).samples(request_, 1)
    assert isinstance(candidate, Candidate)
    list(author(server).repair(request_, Judged(candidate, verdict(error="shared-race", accepted=False))))
    prompt = server.bodies[0]["prompt"]
    assert prompt.startswith("@debug@for-correct")
    assert "@says" in prompt
    assert "shared-race" in prompt
    assert "@v1[0]=2.0f;" in prompt


def test_the_router_takes_candidates_as_they_are(chat: Callable[..., Chat], request_: SuggestRequest) -> None:
    (candidate,) = Router(None, author(chat(BETTER)), samples=1).propose(request_)
    assert candidate.author == "local:small"
    assert candidate.cost is not None
    assert candidate.cost.output_tokens == 3


def test_a_files_metadata_name_its_codec(coded_file: Path, tiny: Path) -> None:
    assert read_facts(coded_file)["codec"] == "lines-1"
    assert read_facts(tiny)["codec"] is None


def test_a_real_server_goes_on_from_the_exact_text(serve: Callable[..., ModelServer], coded: Model) -> None:
    endpoint = serve(context=2048).ensure(coded)
    answer = ask(endpoint, sample_question("lines-1", 24))
    # 22 special tokens and few others stand in the prompt: were they read as text, there would be several times as many.
    assert answer.input_tokens is not None
    assert 40 < answer.input_tokens < 140
    again = ask(endpoint, Question("", "", prompt="@code@1:__syncthreads();@answer", most_tokens=8))
    assert again.input_tokens is not None
    assert again.input_tokens <= 20


def test_the_nonsense_of_a_random_model_costs_one_line_and_the_loop_goes_on(
    serve: Callable[..., ModelServer], coded: Model, request_: SuggestRequest
) -> None:
    server = serve(context=2048)
    local = LocalModel(lambda: server.ensure(coded), coded.name, timeout_s=60.0, codec=coded.codec or "")
    router = Router(None, local, samples=2)
    assert list(router.propose(request_)) == []
    assert router.notes[0].startswith("local:coded gave nothing that can be used.")
    assert server.running() is not None
