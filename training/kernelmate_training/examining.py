"""The exam at the end of the way: answers drawn by torch, each judged by the product's own session on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelmate.errors import UsageError
from kernelmate_training.finished_steps import FinishedSteps, key_of
from kernelmate_training.settings import Upskill

OnLine = Callable[[str], None]


def write_exam_prompts(settings: Upskill, codec: str, told: OnLine = lambda line: None) -> Path:
    """The exam's prompts for a codec, written where they are not there yet; judging the kernels takes some minutes.

    Raises:
        UsageError: there is no such codec or goal. EnvironmentFailed: the compiler is missing.
    """
    from kernelmate_training.exam.goals import load_exam
    from kernelmate_training.exam.prompts import write_prompts

    path = settings.prompts_folder / f"{codec}.jsonl"
    done, key = FinishedSteps(settings.folder), key_of(load_exam(settings.exam.goals).sha256, settings.exam.goals)
    # Prompts that were brought along are the user's; their own are written anew where other goals are wanted.
    stale = settings.sampling.prompts is None and not done.has(f"prompts of {codec}", key)
    if stale or not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        written, untold = write_prompts(partial, codec, settings.exam.goals)
        partial.replace(path)
        done.mark(f"prompts of {codec}", key)
        told(f"{written} prompts of the exam" + (f", {len(untold)} cannot be told by {codec}" if untold else ""))
    return path


def examine(settings: Upskill, name: str, told: OnLine = lambda line: None) -> dict[str, Any]:
    """Judge the answers of a model to the exam; kept beside it, and gone on with where it was cut.

    Raises:
        UsageError: it has no answers yet. EnvironmentFailed: compiler or worker are missing.
    """
    from kernelmate.report.json import plain
    from kernelmate_training.exam.attempts import Terms
    from kernelmate_training.exam.running import Wanted, run
    from kernelmate_training.torch_folders import load_folder

    folder = settings.model_folder(name)
    answers = folder / "answers.jsonl"
    if not answers.is_file():
        raise UsageError(
            f"The model {name} has no answers.", file=str(answers), hint="Name the exam's prompts in [sampling]."
        )
    section = settings.exam
    wanted = Wanted(
        goals=section.goals,
        answers=answers,
        codec=load_folder(folder).codec,
        model=name,
        terms=Terms(k=section.k, recipes=section.recipes),
        jobs=section.jobs,
    )
    result = run(
        wanted, on_goal=lambda goal, done, total: told(f"{name}: {done} of {total} goals"), keep=folder / "exam.jsonl"
    )
    document: dict[str, Any] = plain(result)
    return document
