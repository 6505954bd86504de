"""`kernelmate model test`: does the model answer, how fast, and what does it make of the exam."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.options import Output, output_of, output_options
from kernelmate.cli.stopping import note
from kernelmate.errors import EnvironmentFailed, UsageError

if TYPE_CHECKING:
    from kernelmate.config import Settings
    from kernelmate.suggest.local.library import Model
    from kernelmate.upskill.exam import ExamResult, GoalResult, Wanted

TEST_TOKENS = 64


@click.command(
    short_help="Say how fast the model answers, and let it sit the exam.",
    epilog="""\b
Examples:
  kernelmate model test --quick                 # only how soon and how fast it answers
  kernelmate model test                         # the whole exam, on the emulator
  kernelmate model test starter --k 1 --no-recipes
  kernelmate model test --goals jacobi7 --goals fix-trapezoid
  kernelmate model test --backend cuda --jobs 4 -o exam.json

\b
The exam is over 60 wishes for over 50 kernels that no training has seen. Each of the model's answers, and the
versions of recipes beside it, are judged like any candidate. It may be stopped by Ctrl-C; the same
command goes on where it was. What the figures mean stands in docs/upskill.md.""",
)
@click.argument("name", required=False)
@click.option("--quick", is_flag=True, help="Ask once, and leave out the exam.")
@click.option("--list", "listed", is_flag=True, help="List the exam's goals, and do nothing else.")
@click.option(
    "--k", type=click.IntRange(1), default=8, show_default=True, help="Answers to each goal, one of them greedy."
)
@click.option("--goals", multiple=True, metavar="NAME", help="This goal or kernel alone; may be repeated.")
@click.option("--recipes/--no-recipes", default=True, help="Also try recipes, for the figures of both together.")
@click.option("--backend", type=click.Choice(["emulator", "cuda"]), default="emulator", show_default=True, help="Where versions are judged; cuda measures.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Goals at a time.")
@click.option("-o", "--output", "out", type=click.Path(path_type=Path, dir_okay=False), help="Write the result here as well, as JSON.")  # fmt: skip
@output_options()
def test(name: str | None, quick: bool, listed: bool, **options: Any) -> int:
    """Load a model, say how fast it answers, then let it sit the exam."""
    output = output_of(options)
    if listed:
        return _list(output)
    from kernelmate.config import load_settings

    settings = load_settings(model=name) if name else load_settings()
    if settings.model_url is not None and quick:
        raise UsageError(
            "--quick is for models that are served here.", hint="Leave it out to let the model sit the exam."
        )
    document: dict[str, Any] = {}
    if settings.model_url is None:
        document["test"] = _speed(settings, name)
        _show_speed(document["test"], output)
    if not quick:
        result = _exam(settings, name, options, output)
        from kernelmate.upskill.exam import to_json

        document["exam"] = to_json(result)
        if options["out"] is not None:
            options["out"].write_text(
                json.dumps(document["exam"], indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
            )
    if output.as_json:
        from kernelmate.report.json import SCHEMA

        output.document({"schema": SCHEMA, **document})
    return 0


def _list(output: Output) -> int:
    from kernelmate.upskill.exam import load_exam

    exam = load_exam()
    if output.as_json:
        from dataclasses import asdict

        from kernelmate.report.json import SCHEMA

        goals = [asdict(goal) for goal in exam.goals]
        output.document({"schema": SCHEMA, "version": exam.version, "sha256": exam.sha256, "goals": goals})
        return 0
    for goal in exam.goals:
        click.echo(f"{goal.name:<26} {goal.kernel:<20} {goal.metric:<13} {goal.prompt}")
    return 0


def _speed(settings: Settings, name: str | None) -> dict[str, Any]:
    """Ask the model something short.

    Raises:
        UsageError: there is no model. EnvironmentFailed: it does not answer.
    """
    from kernelmate.session.authors import model_server
    from kernelmate.suggest.base import AuthorFailed
    from kernelmate.suggest.codec import CHAT
    from kernelmate.suggest.local.chat import Question, ask
    from kernelmate.suggest.local.coded import sample_question

    server = model_server(settings)
    chosen = _chosen(settings, name)
    question = Question("You write CUDA.", "Write a kernel that doubles a vector.", most_tokens=TEST_TOKENS)
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


def _chosen(settings: Settings, name: str | None) -> Model:
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


def _exam(settings: Settings, name: str | None, options: dict[str, Any], output: Output) -> ExamResult:
    """The exam's result, printed where no document is asked for.

    Raises:
        KeyboardInterrupt: after what is done so far was printed.
    """
    from kernelmate.upskill.exam import Terms, Wanted, interrupted, run
    from kernelmate.upskill.exam.running import RECIPES

    wanted = Wanted(
        goals=options["goals"],
        backend=options["backend"],
        model=name or settings.model or "",
        terms=Terms(k=options["k"], recipes=RECIPES if options["recipes"] else 0),
        jobs=options["jobs"],
    )
    keep = _kept(settings, wanted)
    try:
        result = run(wanted, on_goal=None if output.quiet else _told, keep=keep)
    except KeyboardInterrupt:
        _show_exam(interrupted(wanted, keep), output)
        note("Stopped. The same command goes on from here.")
        raise
    keep.unlink(missing_ok=True)
    _show_exam(result, output)
    return result


def _kept(settings: Settings, wanted: Wanted) -> Path:
    """The file that holds what is done, for exactly this run."""
    import platformdirs

    folder = settings.cache_dir or platformdirs.user_cache_path("kernelmate")
    return Path(folder) / "exams" / f"{hashlib.sha256(repr(wanted).encode()).hexdigest()[:16]}.jsonl"


def _told(result: GoalResult, done: int, total: int) -> None:
    from kernelmate.upskill.exam.table import goal_line

    note(f"[{done}/{total}] {goal_line(result)}")


def _show_exam(result: ExamResult, output: Output) -> None:
    if output.as_json:
        return
    from kernelmate.upskill.exam.table import goal_lines, summary_lines

    lines = list(summary_lines(result)) if output.quiet else [*goal_lines(result), "", *summary_lines(result)]
    for line in lines:
        click.echo(line)
