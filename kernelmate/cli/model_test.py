"""`kernelmate model test`: asks the model a question and measures its speed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.options import Output, output_of, output_options
from kernelmate.errors import EnvironmentFailed, UsageError

if TYPE_CHECKING:
    from kernelmate.config import Settings
    from kernelmate.suggest.local.library import LocalModelFile

TEST_TOKENS = 64


@click.command(
    short_help="Measure the speed of the model.",
    epilog="""\b
Examples:
  kernelmate model test
  kernelmate model test starter

\b
The training package examines it on more than 60 prompts: kernelmate upskill examine.""",
)
@click.argument("name", required=False)
@output_options()
def test(name: str | None, **options: Any) -> int:
    """Load a model, ask it a short question, and measure its speed."""
    output = output_of(options)
    from kernelmate.config import load_settings

    settings = load_settings(model=name) if name else load_settings()
    if settings.model_url is not None:
        raise UsageError(
            "The model is served elsewhere, at model_url: only models served on this machine are measured."
        )
    figures = _speed(settings, name)
    _show_speed(figures, output)
    if output.as_json:
        from kernelmate.report.json import SCHEMA

        output.document({"schema": SCHEMA, "test": figures})
    return 0


def _speed(settings: Settings, name: str | None) -> dict[str, Any]:
    """Ask the model a short question, and return load time, time to first token, speed and answer.

    Raises:
        UsageError: no model is selected.
        EnvironmentFailed: the model does not answer.
    """
    from kernelmate.session.authors import model_server
    from kernelmate.suggest.base import AuthorFailed
    from kernelmate.suggest.codec import CHAT
    from kernelmate.suggest.local.chat import ChatRequest, ask
    from kernelmate.suggest.local.codec_query import sample_question

    server = model_server(settings)
    chosen = _chosen(settings, name)
    question = ChatRequest("You write CUDA.", "Write a kernel that doubles a vector.", most_tokens=TEST_TOKENS)
    if chosen.codec is not None and chosen.codec != CHAT:
        question = sample_question(chosen.codec, TEST_TOKENS)
    try:
        began = time.monotonic()
        endpoint = server.ensure(chosen)
        loaded = time.monotonic()
        first: list[float] = []
        answer = ask(endpoint, question, on_text=lambda text: first.append(time.monotonic()))
        ended = time.monotonic()
    except AuthorFailed as error:
        raise EnvironmentFailed(str(error), hint="`kernelmate doctor` says what is installed.") from None
    rate = (answer.output_tokens or len(first)) / max(ended - (first[0] if first else loaded), 1e-9)
    return {
        "model": chosen.name,
        "load_s": round(loaded - began, 3),
        "first_token_s": round((first[0] if first else ended) - loaded, 3),
        "tokens_per_s": round(rate, 1),
        "answer": answer.text,
    }


def _chosen(settings: Settings, name: str | None) -> LocalModelFile:
    from kernelmate.session.authors import model_library

    library = model_library(settings)
    chosen = library.find(name) if name is not None else library.current()
    if chosen is None:
        raise UsageError("No model is in use.", hint="Add one with `kernelmate model add FILE.gguf`.")
    return chosen


def _show_speed(figures: dict[str, Any], output: Output) -> None:
    if output.as_json:
        return
    from kernelmate.report.console import pairs

    answer = " ".join(str(figures["answer"]).split())
    output.stdout().print(
        pairs(
            [
                ("model", figures["model"]),
                ("loaded in", f"{figures['load_s']:.2f} s"),
                ("first token", f"after {figures['first_token_s']:.2f} s"),
                ("speed", f"{figures['tokens_per_s']:.1f} tokens per second"),
                ("it said", answer[:300]),
            ]
        )
    )
