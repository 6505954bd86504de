"""`kernelmate upskill examine`: the exam of a model that is installed on this machine."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.options import Output, output_of, output_options
from kernelmate.cli.stopping import print_note

if TYPE_CHECKING:
    from kernelmate.config import Settings
    from kernelmate_training.exam import ExamResult, GoalResult


@click.command(
    short_help="Examine a model that is installed on this machine.",
    epilog="""\b
Examples:
  kernelmate upskill examine                         # the model in use, on the emulator
  kernelmate upskill examine starter --k 1 --no-recipes
  kernelmate upskill examine --goals jacobi7 --goals fix-trapezoid
  kernelmate upskill examine --backend cuda --jobs 4 -o exam.json

\b
The exam is over 60 wishes for over 50 kernels that no training has seen. Each of the model's answers, and the
versions of recipes beside it, are judged like any candidate. It may be stopped by Ctrl-C; the same
command goes on where it was. What the figures mean stands in docs/upskill.md.""",
)
@click.argument("name", required=False)
@click.option("--list", "listed", is_flag=True, help="List the exam's goals, and do nothing else.")
@click.option(
    "--k", type=click.IntRange(1), default=8, show_default=True, help="Number of answers per goal, one of them greedy."
)
@click.option("--goals", multiple=True, metavar="NAME", help="Only this goal or kernel; repeatable.")
@click.option(
    "--recipes/--no-recipes", default=True, help="Also judge recipes, and report the figures of both together."
)
@click.option("--backend", type=click.Choice(["emulator", "cuda"]), default="emulator", show_default=True, help="The backend that judges versions; cuda measures.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Goals that are judged at once.")
@click.option("-o", "--output", "out", type=click.Path(path_type=Path, dir_okay=False), help="Write the result here as well, as JSON.")  # fmt: skip
@output_options()
def examine(name: str | None, listed: bool, **options: Any) -> int:
    """Examine a model that is installed on this machine."""
    output = output_of(options)
    if listed:
        return _list(output)
    from kernelmate.config import load_settings
    from kernelmate_training.exam import to_json

    settings = load_settings(model=name) if name else load_settings()
    document = to_json(_exam(settings, name, options, output))
    if options["out"] is not None:
        options["out"].write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if output.as_json:
        from kernelmate.report.json import SCHEMA

        output.document({"schema": SCHEMA, "exam": document})
    return 0


def _list(output: Output) -> int:
    from kernelmate_training.exam import load_exam

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


def _exam(settings: Settings, name: str | None, options: dict[str, Any], output: Output) -> ExamResult:
    """Returns the exam's result; prints it unless a document is requested.

    Raises:
        KeyboardInterrupt: the user stopped the exam; the results so far were printed.
    """
    from kernelmate_training.exam import Terms, Wanted, interrupted, run
    from kernelmate_training.exam.running import RECIPES

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
        print_note("Stopped. The same command goes on from here.")
        raise
    keep.unlink(missing_ok=True)
    _show_exam(result, output)
    return result


def _kept(settings: Settings, wanted: object) -> Path:
    """Returns the file with the results so far of a run with exactly these options."""
    import platformdirs

    folder = settings.cache_dir or platformdirs.user_cache_path("kernelmate")
    return Path(folder) / "exams" / f"{hashlib.sha256(repr(wanted).encode()).hexdigest()[:16]}.jsonl"


def _told(result: GoalResult, done: int, total: int) -> None:
    from kernelmate_training.exam.records import goal_line

    print_note(f"[{done}/{total}] {goal_line(result)}")


def _show_exam(result: ExamResult, output: Output) -> None:
    if output.as_json:
        return
    from kernelmate_training.exam.records import goal_lines, summary_lines

    lines = list(summary_lines(result)) if output.quiet else [*goal_lines(result), "", *summary_lines(result)]
    for line in lines:
        click.echo(line)
