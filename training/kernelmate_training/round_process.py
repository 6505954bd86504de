"""Rounds in a process of their own: a copy of a trained model takes part in rounds on one GPU, then is exported and answers the exam's prompts."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from typing import Any

from kernelmate.errors import KernelmateError
from kernelmate_training.settings import Upskill

OnLine = Callable[[str], None]
KEPT = ("config.json", "tokenizer.json", "tokenizer_config.json", "kernelmate.json", "model.safetensors")
"""Files of a trained model, without its checkpoints."""


def copy_model(settings: Upskill, name: str, copy: str) -> None:
    """A trained model under another name, to play rounds with; one that is there already stays as it is.

    Raises:
        UsageError: there is no such model.
    """
    from kernelmate_training.torch_folders import load_folder

    load_folder(settings.model_folder(name))
    start, end = settings.model_folder(name), settings.model_folder(copy)
    if (end / KEPT[-1]).is_file():
        return
    end.mkdir(parents=True, exist_ok=True)
    for file in KEPT:
        shutil.copyfile(start / file, end / file)


def run_rounds(settings: Upskill, name: str, *, seconds: float | None = None, finish: float = 60.0, told: OnLine = lambda line: None) -> tuple[str, ...]:  # fmt: skip
    """Rounds, how well it then chooses, export, answers to the exam's prompts; gives what went wrong, one sentence each, and keeps what was done before.

    Args:
        settings: with the rounds to be played.
        name: of the trained model.
        seconds: after which no further round is begun.
        finish: seconds of sampling at most.
        told: called with lines of progress.
    """
    from kernelmate_training.rounds import improve
    from kernelmate_training.training_job import evaluate_choices, export_model, sample_prompts

    problems: list[str] = []
    results: dict[str, Any] = {}
    steps: dict[str, Callable[[], Any]] = {
        "rounds": lambda: improve(settings, settings.model(name), seconds=seconds, told=told)["rounds"],
        "choosing": lambda: evaluate_choices(settings, settings.model(name), told),
        "export": lambda: str(export_model(settings, name)),
        "sampling": lambda: str(sample_prompts(settings, name, seconds=finish, told=told) or ""),
    }
    for what, step in steps.items():
        begun = time.monotonic()
        try:
            results[what] = step()
        except KernelmateError as error:
            problems.append(f"{what}: {error}")
        except (RuntimeError, ValueError, OSError, ArithmeticError, LookupError, TypeError) as error:
            problems.append(f"{what}: {type(error).__name__}: {str(error)[:300]}")
        told(f"{what} took {time.monotonic() - begun:.1f} s")
    folder = settings.model_folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    kept = {"name": name, **results, "problems": problems}
    (folder / "result.json").write_text(json.dumps(kept, indent=1), encoding="utf-8")
    return tuple(problems)
