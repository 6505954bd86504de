"""One model in a process of its own: training, export and sampling.

Each step stores its results before the next one.
"""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernelmate.errors import EnvironmentFailed, KernelmateError, UsageError
from kernelmate_training.preparing import STEPS, FinishedSteps, Step, first_open, model_keys
from kernelmate_training.requirements import require_packages
from kernelmate_training.settings import ModelSection, Upskill

OnLine = Callable[[str], None]
NEEDED = ("torch", "tokenizers", "safetensors", "numpy")


@dataclass(frozen=True, slots=True)
class Result:
    """Result of training one model.

    Attributes:
        name: name of the model.
        folder: folder with all of its results.
        trained: figures of training; None if it was not begun.
        gguf: the GGUF file; None if it was not written.
        answers: file of answers to the exam's prompts; None if none were sampled.
        problems: failures, one sentence each; results of earlier steps remain valid.
    """

    name: str
    folder: Path
    trained: dict[str, Any] | None
    gguf: Path | None
    answers: Path | None
    problems: tuple[str, ...]


def train_model(settings: Upskill, model: ModelSection, *, seconds: float | None = None, told: OnLine = lambda line: None) -> dict[str, Any]:  # fmt: skip
    """Train one model from scratch, or resume its training; SIGTERM and Ctrl-C save it and end.

    Args:
        settings: the configuration.
        model: the model to train.
        seconds: time limit of the training, from now.
        told: called with lines of progress.

    Returns:
        Figures, which are also stored beside the model.

    Raises:
        UsageError: corpus or folder belong to another model.
        EnvironmentFailed: packages are missing, or results cannot be written.
        TrainingFailed: the loss was not finite again after the last permitted return to a checkpoint.
    """
    # On a busy CPU, threads that spin while they wait take processor time from others; torch reads this once.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    require_packages(NEEDED, "Training")
    begun = time.monotonic()
    from kernelmate_training.augmentation import Augmentation, AugmentationRates
    from kernelmate_training.preparing import prepare
    from kernelmate_training.torch_device import place
    from kernelmate_training.torch_trainer import Progress, Trainer
    from kernelmate_training.vocabulary import PAD

    folder = settings.model_folder(model.name)
    prepared = prepare(settings, model, lambda what, done, total: told(f"{what} {done}/{total}"))
    left = None if seconds is None else max(seconds - (time.monotonic() - begun), 1.0)
    plan = settings.plan(model, left)
    shape = model.shape(prepared.facts["vocabulary"])
    asked_to_stop = _listen()

    def line(at: Progress) -> None:
        told(f"step {at.step}  {at.share:4.0%}  loss {at.loss:.4f}  {at.tokens_per_s:,.0f} tokens/s")

    with place(plan.precision) as here:
        held_out = prepared.held_out if len(prepared.held_out) else None
        varying = Augmentation(AugmentationRates.of(plan.augment), prepared.tokenizer) if plan.augment else None
        trainer = Trainer(plan, shape, prepared.train, held_out, folder, here, varying=varying, on_progress=line, stop=asked_to_stop)  # fmt: skip
        done = trainer.run()
        facts: dict[str, Any] = {
            "name": model.name, "codec": model.codec, "end": _end(model.codec), "pad": PAD, "licence": settings.licence,
            "parameters": shape.parameters, "vocabulary": shape.vocabulary, "steps": done.step, "finished": done.finished,
            "loss": done.loss if math.isfinite(done.loss) else _last_loss(folder), "held_out_loss": done.held_out, "best_step": done.best_step, "tokens": done.tokens, "seconds": round(done.seconds, 1),
            "tokens_per_s": round(done.tokens_per_s, 1), "gpu": here.name, "processes": here.processes, "corpus": prepared.facts,
        }  # fmt: skip
        if here.rank == 0:
            _keep(folder, done.model, prepared.tokenizer, facts)
    return facts


def evaluate_choices(settings: Upskill, model: ModelSection, told: OnLine = lambda line: None) -> dict[str, Any]:
    """Returns a trained model's share of good choices on held-out families, and stores it beside the model.

    The result is empty for codecs without offers, and without held-out examples.

    Raises:
        UsageError: the model was not trained yet, or the corpus is missing.
    """
    from kernelmate.suggest.codec import OFFERING

    if model.codec not in OFFERING:
        return {}
    import torch
    from tokenizers import Tokenizer

    from kernelmate_training.preparing import prepare
    from kernelmate_training.torch_choices import agreement
    from kernelmate_training.torch_folders import OWN, load_folder, load_llama

    folder = settings.model_folder(model.name)
    held_out, own = prepare(settings, model).held_out, load_folder(folder)
    llama = load_llama(own).to("cuda" if torch.cuda.is_available() else "cpu").eval()
    found = agreement(llama, Tokenizer.from_str(own.tokenizer), held_out)
    for task, of in found.items():
        told(f"chooses well, {task}: {of['first']:.1%} first, {of['three']:.1%} among three, of {of['questions']:.0f} held out")  # fmt: skip
    (folder / OWN).write_text(json.dumps({**own.facts, "choices": found}, indent=1), encoding="utf-8")
    return found


def _last_loss(folder: Path) -> float | None:
    """Returns the last logged loss of a run; a finished run takes no further step when it is resumed."""
    from kernelmate_training.journal import events

    losses = [event["loss"] for event in events(folder / "log.jsonl", "step")]
    return losses[-1] if losses else None


def export_model(settings: Upskill, name: str, *, kind: str | None = None) -> Path:
    """Write a model's GGUF file beside it.

    Raises:
        UsageError: the model was not trained yet.
        EnvironmentFailed: the gguf package is missing, or the disk is full.
    """
    require_packages(("gguf", "safetensors", "torch"), "Exporting a model")
    from kernelmate_training.card import card_of
    from kernelmate_training.gguf_files import OFFERS_KEY, Label, write_gguf
    from kernelmate_training.torch_folders import load_folder

    folder = settings.model_folder(name)
    found = load_folder(folder)
    facts = found.facts
    wanted: Any = kind or settings.export.kind
    path = folder / f"{name}-{wanted}.gguf"
    template = facts.get("chat_template")
    corpus = facts.get("corpus") or {}
    more = {OFFERS_KEY: corpus["offers"]} if corpus.get("offers") else {}
    label = Label(name, found.codec, settings.licence, card_of(facts), str(corpus.get("corpus_sha256") or ""), template, more)  # fmt: skip
    tensors = {name: tensor.float().numpy() for name, tensor in found.tensors.items()}
    write_gguf(path, found.config, tensors, found.tokenizer, label, wanted)
    return path


def sample_prompts(settings: Upskill, name: str, *, seconds: float | None = None, told: OnLine = lambda line: None) -> Path | None:  # fmt: skip
    """Sample a model's answers to the exam's prompts, on the GPU if there is one.

    Returns:
        A file with one JSON object per line: `goal`, `sample` (0 is greedy), `text` and figures of the answer. None if
        the configuration names no prompts.

    Raises:
        UsageError: there are no prompts of the model's codec, or no model.
    """
    if settings.sampling.prompts is None and not settings.exam.run:
        return None
    begun = time.monotonic()
    import torch
    from tokenizers import Tokenizer

    from kernelmate_training.augmentation import Augmentation, AugmentationRates
    from kernelmate_training.torch_folders import load_folder, load_llama
    from kernelmate_training.torch_sampling import Drawing, sample_choices

    folder = settings.model_folder(name)
    found = load_folder(folder)
    prompts = read_prompts(settings.prompts_folder, found.codec)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load_llama(found).to(device).eval()
    section = settings.sampling
    how = Drawing(section.k, section.temperature, greedy_first=True, seed=section.seed, most_tokens=section.most_tokens, spread=section.spread, top_p=section.top_p, redraws=section.redraws)  # fmt: skip
    tokenizer = Tokenizer.from_str(found.tokenizer)
    renumber = Augmentation(AugmentationRates(), found.tokenizer) if section.renumber else None
    over = (lambda: False) if seconds is None else (lambda: time.monotonic() - begun > seconds)
    drawn = sample_choices(
        model, tokenizer, [prompt["prompt"] for prompt in prompts], how, renumber=renumber, stop=over
    )
    path = folder / "answers.jsonl"
    numbers: dict[int, int] = {}
    with path.open("w", encoding="utf-8") as file:
        for one in drawn:
            number = numbers[one.prompt] = numbers.get(one.prompt, -1) + 1
            row = {"goal": prompts[one.prompt]["goal"], "sample": number, "text": one.text, "tokens": one.tokens, "finished": one.finished}  # fmt: skip
            file.write(json.dumps(row) + "\n")
    told(f"{len(drawn)} answers to {len(prompts)} prompts in {time.monotonic() - begun:.1f} s")
    return path


def read_prompts(folder: Path, codec: str) -> list[dict[str, str]]:
    """Returns the exam's prompts for a codec.

    Raises:
        UsageError: there are none, or a line has another form.
    """
    path = folder / f"{codec}.jsonl"
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        return [{"goal": str(row["goal"]), "prompt": str(row["prompt"])} for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"The exam's prompts for the codec {codec} cannot be read: {error}.", file=str(path)) from None


def run_training_job(settings: Upskill, model: ModelSection, *, seconds: float | None = None, finish: float = 60.0, told: OnLine = lambda line: None) -> Result:  # fmt: skip
    """Train, run rounds, export and sample; a failed step is recorded, and earlier results stay.

    Steps that an earlier call has completed with the same corpus and configuration are skipped.

    Args:
        settings: the configuration.
        model: the model.
        seconds: time limit of training.
        finish: time limit of sampling in seconds.
        told: called with lines of progress.
    """
    folder = settings.model_folder(model.name)
    keys = model_keys(settings, model)
    left = first_open(folder, keys)
    way = _JobSteps(settings, model, keys, told, STEPS.index(left) if left else len(STEPS))
    trained = way.step("training", lambda: train_model(settings, model, seconds=seconds, told=told), whole=_is_finished)
    if trained is None:
        trained = _facts_of(folder)
    if way.failed("training"):
        way.tried("keeping the last checkpoint", lambda: from_checkpoint(settings, model))
    if settings.rounds.kind != "none":
        from kernelmate_training.rounds import improve

        way.step("rounds", lambda: improve(settings, model, seconds=settings.rounds.seconds * 2, told=told))
    else:
        way.step("rounds", dict)
    choices = way.tried("choosing", lambda: evaluate_choices(settings, model, told))
    trained = {**trained, "choices": choices} if trained and choices else trained
    way.step("export", lambda: export_model(settings, model.name))
    begun = time.monotonic()
    way.step(
        "sampling",
        lambda: sample_prompts(settings, model.name, seconds=finish, told=told),
        whole=lambda _: time.monotonic() - begun < finish,
    )
    gguf, answers = folder / f"{model.name}-{settings.export.kind}.gguf", folder / "answers.jsonl"
    result = Result(
        model.name,
        folder,
        trained,
        gguf if gguf.is_file() and not way.failed("export") else None,
        answers if answers.is_file() and not way.failed("sampling") else None,
        tuple(way.problems.values()),
    )
    write_result(result)
    return result


def write_result(result: Result) -> None:
    """Stores the result of a model beside it."""
    result.folder.mkdir(parents=True, exist_ok=True)
    kept = {"name": result.name, "trained": result.trained, "gguf": str(result.gguf or ""), "answers": str(result.answers or "")}  # fmt: skip
    text = json.dumps({**kept, "problems": result.problems}, indent=1)
    (result.folder / "result.json").write_text(text, encoding="utf-8")


@dataclass(slots=True)
class _JobSteps:
    """The steps of one model, from the first unfinished one; `problems` has the failures by step."""

    settings: Upskill
    model: ModelSection
    keys: dict[Step, str]
    told: OnLine
    first: int
    problems: dict[str, str] = field(default_factory=dict)

    def step(self, name: Step, does: Callable[[], Any], whole: Callable[[Any], bool] = lambda found: True) -> Any:
        """Returns the result of a step; None if it was done before or failed.

        Args:
            name: name of the step.
            does: runs the step.
            whole: returns True if the result is complete, so that the step need not be repeated.
        """
        if STEPS.index(name) < self.first:
            self.told(f"{name}: done before")
            return None
        found = self.tried(name, does)
        if not self.problems and whole(found):
            FinishedSteps(self.settings.model_folder(self.model.name)).mark(name, self.keys[name])
        return found

    def tried(self, what: str, does: Callable[[], Any]) -> Any:
        """Returns the result of a call; None if it failed, which is reported."""
        begun = time.monotonic()
        try:
            return does()
        except KernelmateError as error:
            self.problems[what] = f"{what}: {error}"
        except (RuntimeError, ValueError, OSError, ArithmeticError, LookupError, TypeError) as error:
            self.problems[what] = f"{what}: {type(error).__name__}: {str(error)[:300]}"
        finally:
            failed = f" and failed: {self.problems[what]}" if what in self.problems else ""
            self.told(f"{what} took {time.monotonic() - begun:.1f} s{failed}")
        return None

    def failed(self, what: str) -> bool:
        """Returns True if an operation was tried and failed."""
        return what in self.problems


def _is_finished(trained: dict[str, Any] | None) -> bool:
    """Returns True if the training reached its planned end."""
    return bool(trained and trained["finished"])


def _facts_of(folder: Path) -> dict[str, Any] | None:
    """Returns the facts of a model that was trained before; None if they cannot be read."""
    try:
        found = json.loads((folder / "kernelmate.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def from_checkpoint(settings: Upskill, model: ModelSection) -> None:
    """Stores the model of the newest valid checkpoint, for training that did not reach its end.

    Raises:
        UsageError: there is no valid checkpoint.
    """
    from kernelmate_training.preparing import prepare
    from kernelmate_training.torch_folders import newest
    from kernelmate_training.torch_llama import Llama
    from kernelmate_training.torch_trainer import BEST
    from kernelmate_training.vocabulary import PAD

    folder = settings.model_folder(model.name)
    last, best = newest(folder), newest(folder / BEST)
    found = (
        last if best is None or not best.state or last is None else replace(last, state={**last.state, **best.state})
    )
    if found is None or not found.state:
        raise UsageError("There is no checkpoint.", file=str(folder), hint="Train the model first.")
    prepared = prepare(settings, model)
    llama = Llama(model.shape(prepared.facts["vocabulary"]))
    llama.load_state_dict(found.state["model"])
    facts = {
        "name": model.name, "codec": model.codec, "end": _end(model.codec), "pad": PAD, "licence": settings.licence,
        "parameters": llama.shape.parameters, "steps": found.state["step"], "finished": False, "tokens": found.state["tokens"],
        "seconds": found.state["spent"], "corpus": prepared.facts,
    }  # fmt: skip
    _keep(folder, llama, prepared.tokenizer, facts)


def _keep(folder: Path, model: Any, tokenizer: str, facts: dict[str, Any]) -> None:
    from kernelmate_training.torch_folders import save_folder

    try:
        save_folder(folder, model, tokenizer, facts)
    except OSError as error:
        raise EnvironmentFailed(
            f"The model cannot be written: {error.strerror or error}.",
            file=str(folder),
            hint="Its last checkpoint is kept; free space and run the command again.",
        ) from None


def _end(codec: str) -> str:
    from kernelmate.suggest.codec import codec_named

    end: str = codec_named(codec).end
    return end


def _listen() -> Callable[[], bool]:
    """Returns a function that returns True once the process was asked to end by a signal."""
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            signal.signal(number, lambda got, frame: asked.append(got))
        except ValueError:  # signals can only be handled in the main thread
            break
    return lambda: bool(asked)
