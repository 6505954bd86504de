"""Record of finished steps and their inputs, so that a repeated command does nothing twice."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from kernelmate_training.settings import ModelSection, Upskill

FILE = "done.json"
Step = Literal["training", "rounds", "export", "sampling"]
STEPS: tuple[Step, ...] = ("training", "rounds", "export", "sampling")
"""Steps of training a model, in order; each depends on the one before."""


class FinishedSteps:
    """Record of finished steps in a folder; a step is repeated if its inputs have changed.

    Args:
        folder: folder of the configuration, or of one of its models.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def has(self, step: str, key: str) -> bool:
        """Returns True if the step was done with the inputs of this key."""
        return self._read().get(step) == key

    def mark(self, step: str, key: str) -> None:
        """Records the step as done. If the disk is full, the step is only repeated later."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps({**self._read(), step: key}, indent=1), encoding="utf-8")
        except OSError:
            return

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def key_of(*parts: object) -> str:
    """Returns a hash of a step's inputs."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def model_keys(settings: Upskill, model: ModelSection) -> dict[Step, str]:
    """Returns the key of each of a model's steps: a hash of its inputs and of all steps before it.

    Raises:
        UsageError: there is no corpus.
    """
    from kernelmate_training.preparing import prepared_folder

    plan = settings.plan(model)
    how = {**plan.identity(), "steps": plan.steps, "seconds": plan.seconds}
    training = key_of(prepared_folder(settings, model).name, how, model.shape(model.vocabulary).as_dict())
    rounds = key_of(training, settings.rounds.model_dump())
    prompts = settings.prompts_folder / f"{model.codec}.jsonl"
    asked = prompts.read_text(encoding="utf-8") if prompts.is_file() else ""
    return {
        "training": training,
        "rounds": rounds,
        "export": key_of(rounds, settings.export.kind, settings.licence),
        "sampling": key_of(rounds, settings.sampling.model_dump(), asked),
    }


def first_open(folder: Path, keys: dict[Step, str]) -> Step | None:
    """Returns the step with which the training of a model resumes; None if all are done.

    Rounds begin with the trained model. If other rounds have changed the model, work resumes with the step `training`,
    which only restores the trained model.
    """
    done = FinishedSteps(folder)
    step = next((step for step in STEPS if not done.has(step, keys[step])), None)
    return "training" if step == "rounds" else step
