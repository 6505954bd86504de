"""Command `python -m kernelmate_training.exam`: the exam without KernelMate's command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from kernelmate.errors import KernelmateError
from kernelmate_training.exam.records import GoalResult


@click.group(
    epilog="""\b
Examples:
  python -m kernelmate_training.exam list
  python -m kernelmate_training.exam prompts --codec mixed-2 -o prompts.jsonl
  python -m kernelmate_training.exam run -o recipes.json
  python -m kernelmate_training.exam run --answers answers.jsonl --codec mixed-2 --k 8 --jobs 16 -o exam.json
  python -m kernelmate_training.exam join exam.json benchmarks/results/exam_recipes.json
  python -m kernelmate_training.exam near corpus/"""
)
def main() -> None:
    """The exam: list its goals, write its prompts, run it, and hold a corpus against it."""


@main.command("list")
def list_goals() -> None:
    """Every goal with its kernel, metric and words."""
    from kernelmate_training.exam.goals import load_exam

    exam = load_exam()
    for goal in exam.goals:
        click.echo(f"{goal.name:<26} {goal.kernel:<20} {goal.metric:<13} {goal.prompt}")
    click.echo(f"exam {exam.version}: {len(exam.goals)} goals, sha256 {exam.sha256}")


@main.command()
@click.option("--codec", default="mixed-2", show_default=True, help="The codec of the model's prompts.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The file for the prompts, one per line."
)
@click.option("--goals", multiple=True, help="Names of goals or kernels; by default all.")
def prompts(codec: str, output: Path, goals: tuple[str, ...]) -> None:
    """Write what a model is to be asked: goal, task, codec and prompt, one JSON object per line."""
    from kernelmate_training.exam.prompts import write_prompts

    written, untold = write_prompts(output, codec, goals, on_goal=lambda name: click.echo(name, err=True))
    click.echo(f"{written} prompts in {output}" + "".join(f"\n{line}" for line in untold))


@main.command()
@click.option(
    "--answers", type=click.Path(path_type=Path, exists=True), help="A file of answers that were sampled elsewhere."
)
@click.option("--codec", default="mixed-2", show_default=True, help="The codec that wrote the prompts.")
@click.option("--model", help="Ask this local model; with --answers, the name of their author.")
@click.option("--k", type=click.IntRange(1), default=8, show_default=True, help="Number of answers per goal.")
@click.option(
    "--recipes",
    type=click.IntRange(0),
    default=12,
    show_default=True,
    help="Most versions that recipes make; 0 disables recipes.",
)
@click.option(
    "--synthesis/--no-synthesis", default=True, show_default=True, help="Also judge kernels written from references."
)
@click.option("--backend", type=click.Choice(["emulator", "cuda"]), default="emulator", show_default=True)
@click.option("--goals", multiple=True, help="Names of goals or kernels; by default all.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Goals that are judged at once.")
@click.option("--again/--once", default=True, help="Judge versions that met a goal once more, with other inputs.")
@click.option(
    "--label", "labels", multiple=True, metavar="NAME=VALUE", help="A label that is kept in the result, for tables."
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The result as JSON; FILE.part holds what is done."
)
def run(**options: Any) -> None:
    """Sit the exam, and print the result."""
    from kernelmate_training.exam.attempts import Terms
    from kernelmate_training.exam.running import Wanted
    from kernelmate_training.exam.running import run as sit_exam

    wanted = Wanted(
        goals=options["goals"],
        backend=options["backend"],
        answers=options["answers"],
        codec=options["codec"],
        model=options["model"],
        terms=Terms(options["k"], options["recipes"], options["again"], options["synthesis"]),
        jobs=options["jobs"],
        labels=dict(label.partition("=")[::2] for label in options["labels"]),
    )
    output: Path | None = options["output"]
    part = None if output is None else output.with_name(output.name + ".part")
    result = sit_exam(wanted, on_goal=_told, keep=part)
    _print(result)
    if output is not None:
        from kernelmate_training.exam.records import to_json

        output.write_text(json.dumps(to_json(result), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


@main.command()
@click.argument("results", nargs=-1, type=click.Path(path_type=Path, exists=True), required=True)
def show(results: tuple[Path, ...]) -> None:
    """Print results that were kept."""
    from kernelmate_training.exam.records import read_result

    for path in results:
        _print(read_result(path))


@main.command()
@click.argument("model", type=click.Path(path_type=Path, exists=True))
@click.argument("recipes", type=click.Path(path_type=Path, exists=True))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The joined result as JSON.")
def join(model: Path, recipes: Path, output: Path | None) -> None:
    """Put a model's result and the recipes', which were run apart, together: figures of both."""
    from kernelmate_training.exam.records import joined, read_result, to_json

    result = joined(read_result(model), read_result(recipes))
    _print(result)
    if output is not None:
        output.write_text(json.dumps(to_json(result), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


@main.command()
@click.argument("corpus", type=click.Path(path_type=Path, exists=True))
@click.option("--bound", type=float, default=None, help="Overlap from which on two texts are near-duplicates.")
def near(corpus: Path, bound: float | None) -> None:
    """Hold a corpus (its folder, or a .jsonl file) against the exam's kernels; ends with 1 where one is near."""
    from kernelmate_training.exam.similarity import nearest_of

    report = nearest_of(corpus, bound)
    click.echo("\n".join(report.lines()))
    if report.near:
        raise SystemExit(1)


def _told(result: GoalResult, done: int, total: int) -> None:
    from kernelmate_training.exam.records import goal_line

    click.echo(f"[{done}/{total}] {goal_line(result)} ({result.seconds:.0f} s)", err=True)


def _print(result: Any) -> None:
    from kernelmate_training.exam.records import goal_lines, summary_lines

    click.echo("\n".join([*goal_lines(result), "", *summary_lines(result)]))


if __name__ == "__main__":
    try:
        main()
    except KernelmateError as error:
        raise SystemExit(f"{error.message} {error.hint or ''}".strip()) from None
