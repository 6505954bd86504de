"""Rounds of further training in a process of their own, on a copy of a trained model and on one GPU.

The copy is then exported and answers the exam's prompts.
"""

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
    """Copies a trained model to another name for rounds; an existing copy is not changed.

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
    """Run rounds, evaluate choices, export, and answer the exam's prompts; returns the failures, one sentence each.

    Results of completed steps are stored even if later steps fail.

    Args:
        settings: the configuration with its rounds.
        name: name of the trained model.
        seconds: time after which no further round is begun.
        finish: largest duration of sampling in seconds.
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
